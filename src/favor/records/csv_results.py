"""Results of others, written by hand into a CSV file, as records: docs/records.md describes the columns."""

import re
from collections.abc import Mapping, Sequence
from pathlib import Path

from favor.errors import RequestError, shown, unknown_name
from favor.metrics import METRICS
from favor.records.published import card_fields
from favor.records.result_file import ImportedFile, count, import_rows, positive
from favor.records.schema import CardFields, Reading, Record, Scalar, Task, reading

REQUIRED = ("model", "source")
_OF_TRAINING = ("dataset", "pipeline", "pretraining", "pretraining_img_size", "epochs", "seed")
_OF_RUNNING = ("device", "precision", "runtime", "batch_size")
_CONDITIONS: dict[Task, tuple[str, ...]] = {
    "count": (),
    "accuracy": _OF_TRAINING,
    "inference": _OF_RUNNING,
    "training": _OF_RUNNING,
}
"""The conditions that the numbers of a task depend on, besides the image size."""
_NEEDED: dict[Task, tuple[str, ...]] = {
    "count": (),
    "accuracy": ("dataset", "pipeline"),
    "inference": ("device",),
    "training": ("device",),
}
_COUNTS = ("img_size", "batch_size", "pretraining_img_size", "epochs")
_ENDS = ("_low", "_high")
_ACCURACIES = ("top1", "top5")
_NAME = re.compile(r"[\w.:()=,/+-]{1,100}", re.ASCII)
_LINE = re.compile(r".{1,300}")


def import_csv(file: Path) -> ImportedFile:
    """All rows of a CSV file of results; a metric has its glossary's name and unit, an empty cell is unknown."""
    return import_rows(file, lambda header: _check_header(file, header), lambda row: _records(row, file.name))


def _check_header(file: Path, header: Sequence[str]) -> None:
    ends = (f"{name}{end}" for name in METRICS for end in _ENDS)
    known = (*REQUIRED, "img_size", *_OF_TRAINING, *_OF_RUNNING, *METRICS, *ends)
    if len(header) == 1 and ";" in header[0]:
        raise RequestError(f"{file}:1: columns separated by semicolons; separate them by commas")
    for column in header:
        if column not in known:
            raise RequestError(f"{file}:1: {unknown_name('column', column, known, 'docs/records.md lists them')}")
    for column in REQUIRED:
        if column not in header:
            raise RequestError(f"{file}:1: there is no column {column}; add it")
    if METRICS.keys().isdisjoint(header):
        raise RequestError(f"{file}:1: no column is a metric, such as top1 or throughput; docs/metrics.md lists them")


def _records(row: Mapping[str, str], file: str) -> list[Record]:
    """One record for each task that has a number in the row."""
    name = _text(row, "model", _NAME)
    by_task: dict[Task, dict[str, Reading]] = {}
    for metric in [metric for metric in METRICS if row.get(metric)]:
        by_task.setdefault(_task(metric), {})[metric] = _reading(row, metric)
    if not by_task:
        raise ValueError("no metric has a value")
    return [
        Record(
            name=name,
            model=card_fields().get(name, CardFields(title=name)),
            task=task,
            source="imported",
            conditions=_conditions(row, task),
            metrics=metrics,
            provenance={"file": file, "row": name, "source": _text(row, "source", _LINE)},
        )
        for task, metrics in by_task.items()
    ]


def _task(metric: str) -> Task:
    entry = METRICS[metric]
    if entry.group == "quality":
        return "accuracy"
    return "count" if entry.group == "counted" else entry.phase


def _conditions(row: Mapping[str, str], task: Task) -> dict[str, Scalar]:
    for needed in _NEEDED[task]:
        if not row.get(needed):
            raise ValueError(f"{needed} is empty, and numbers of the kind {task} depend on it")
    given = [name for name in ("img_size", *_CONDITIONS[task]) if row.get(name)]
    conditions: dict[str, Scalar] = {
        name: count(row, name) if name in _COUNTS else _text(row, name, _LINE) for name in given if name != "seed"
    }
    if "seed" in given:
        conditions["recipe.seed"] = _seed(row)
    if "batch_size" in conditions:
        conditions["batch"] = "given"
    return conditions


def _seed(row: Mapping[str, str]) -> int:
    """The seed in a cell; unlike a count, it may be zero."""
    return 0 if not row["seed"].strip("0") else count(row, "seed")


def _reading(row: Mapping[str, str], metric: str) -> Reading:
    value = positive(row, metric)
    if METRICS[metric].unit == "%" and value > 100:
        raise ValueError(f"{metric} {shown(row[metric])} is above 100 %")
    if metric in _ACCURACIES and value <= 1:  # nobody publishes an accuracy that low
        raise ValueError(f"{metric} {shown(row[metric])} is a share; write it in percent: {100 * value:g}")
    low, high = (positive(row, f"{metric}{end}") if row.get(f"{metric}{end}") else None for end in _ENDS)
    return reading(metric, value, low, high, method="as its source states it")


def _text(row: Mapping[str, str], column: str, pattern: re.Pattern[str]) -> str:
    if not pattern.fullmatch(row[column]) or not row[column].isprintable():
        raise ValueError(f"{column} {shown(row[column])} is empty, too long, or has characters that are not allowed")
    return row[column]
