"""Simulations of the zoo on every built-in device, shipped as data: available without torch.

Inference in eager mode and compiled, and training of the models of Table 5. `benchmarks/make_simulated.py` makes
`simulated.csv`; a test compares it with the simulation.
"""

import csv
import json
from collections.abc import Iterable, Iterator, Mapping
from functools import cache
from importlib.resources import files

from favor.errors import RequestError
from favor.records.counted import counted_records
from favor.records.schema import Reading, Record, Scalar, Task, reading
from favor.simulation.devices import Device, device, known_as
from favor.trace.conditions import IMAGENET_IMAGES, REFERENCE_BATCH

FILE_NAME = "simulated.csv"
WITH_INTERVAL = {
    "inference": ("throughput", "latency_p50", "inference_memory"),
    "training": ("train_step_time", "train_memory_reference_batch"),
}
WITHOUT_INTERVAL = {"inference": ("best_batch_size", "max_batch_size"), "training": ("train_max_batch_size",)}
COUNTED = "macs"
"""The column of the multiply-adds when the file was made: if they differ now, it is out of date."""
METHOD = "simulated from the operator trace, amp, best batch"
FINETUNING_EPOCHS = 50
"""The epochs of `finetune_time`: the benchmark's fine-tuning on ImageNet-1k (recipe deit3-finetune)."""
_OWN_CONDITIONS = (
    *("img_size", "num_classes", "device", "precision", "runtime", "batch", "fit_memory"),
    *("optimizer", "reference_batch", "epoch_images", "micro_batch_size"),
)


def is_called(name: str, other: str) -> bool:
    """Whether `other`, as a driver names a device, is the built-in device of this name.

    >>> is_called("a100", "NVIDIA A100-SXM4-40GB"), is_called("abacus", "abacus")
    (True, False)
    """
    try:
        return known_as(device(name), other)
    except RequestError:
        return False


def shipped_records(name: str) -> tuple[Record, ...]:
    """The simulations of the zoo on a built-in device, under the given name; empty if it is not built in.

    >>> shipped_records("abacus")
    ()
    """
    try:
        gpu = device(name)
    except RequestError:
        return ()
    cards = {record.name: record.model for record in counted_records()}
    return tuple(
        Record(
            name=row["name"],
            model=cards[row["name"]],
            task=task,
            source="simulated",
            conditions=conditions_on(gpu, name, int(row["img_size"]), task, row["runtime"])
            | _operating_point(row)
            | _micro_batch(row, "micro_batch_size"),
            metrics=dict(_metrics(row, task)),
            provenance={"file": FILE_NAME},
            environment={"device_name": gpu.title} | _micro_batch(row, "train_batch_size"),
        )
        for row in _rows()
        if row["device"] == gpu.name
        for task in (_task(row),)
    )


def shipped_devices() -> tuple[str, ...]:
    """The built-in devices, by name."""
    return tuple(dict.fromkeys(row["device"] for row in _rows()))


@cache
def _rows() -> tuple[dict[str, str], ...]:
    text = (files("favor.simulation") / FILE_NAME).read_text(encoding="utf-8")
    return tuple(csv.DictReader(text.splitlines()))


def conditions_on(
    gpu: Device, name: str, img_size: int, task: Task = "inference", runtime: str = "eager"
) -> dict[str, Scalar]:
    """The conditions of shipped simulations on a device that the user calls by a name."""
    conditions: dict[str, Scalar] = {
        "img_size": img_size,
        "num_classes": 1000,
        "device": name,
        "precision": "amp-fp16",
        "runtime": runtime,
        "batch": "best",
        "fit_memory": gpu.memory,
    }
    if task == "training":
        conditions |= {"optimizer": "lamb", "reference_batch": REFERENCE_BATCH, "epoch_images": IMAGENET_IMAGES}
    return conditions


def _operating_point(row: Mapping[str, str]) -> dict[str, Scalar]:
    return json.loads(row["operating_point"]) if row["operating_point"] else {}


def _task(row: Mapping[str, str]) -> Task:
    return "training" if row["task"] == "training" else "inference"


def _micro_batch(row: Mapping[str, str], key: str) -> dict[str, Scalar]:
    """The best batch size of training under a key, as simulated records have it; empty at inference."""
    return {key: int(row["train_batch_size"])} if row["train_batch_size"] else {}


def _metrics(row: Mapping[str, str], task: Task) -> Iterator[tuple[str, Reading]]:
    method = METHOD if row["runtime"] == "eager" else f"{METHOD}, fused as torch.compile does"
    for metric in (*WITH_INTERVAL[task], *WITHOUT_INTERVAL[task]):
        ends = [float(row[f"{metric}_{end}"]) if metric in WITH_INTERVAL[task] else None for end in ("low", "high")]
        yield metric, reading(metric, float(row[metric]), *ends, method=method)
    if task == "training":
        yield from _from_step(row, f"{method}, {REFERENCE_BATCH} images a step")


def _from_step(row: Mapping[str, str], method: str) -> Iterator[tuple[str, Reading]]:
    """The metrics that follow from the time of a training step."""
    step, low, high = (float(row[f"train_step_time{end}"]) for end in ("", "_low", "_high"))
    images = REFERENCE_BATCH
    yield "train_throughput", reading("train_throughput", images / step, images / high, images / low, method=method)
    hours = IMAGENET_IMAGES / images / 3600
    for metric, epochs in (("train_hours_per_epoch", 1), ("finetune_time", FINETUNING_EPOCHS)):
        scaled = (epochs * hours * value for value in (step, low, high))
        yield metric, reading(metric, *scaled, method=f"{method}, {epochs} x {IMAGENET_IMAGES} images")


def to_csv(records: Iterable[Record]) -> str:
    """Simulated records as the shipped file holds them; models that do not fit a device have no line."""
    counts = {record.name: record.metrics["macs"].value for record in counted_records()}
    columns = ["name", "device", "task", "runtime", "img_size", "operating_point", COUNTED]
    for task, metrics in WITH_INTERVAL.items():
        columns += [f"{metric}{end}" for metric in metrics for end in ("", "_low", "_high")]
        columns += WITHOUT_INTERVAL[task]
    lines = [",".join((*columns, "train_batch_size"))]
    for record in records:
        if record.status == "ok":
            point = {key: value for key, value in record.conditions.items() if key not in _OWN_CONDITIONS}
            quoted = '"' + json.dumps(point).replace('"', '""') + '"' if point else ""
            conditions = (str(record.conditions[name]) for name in ("device", "runtime", "img_size"))
            on, runtime, img_size = conditions
            cells = [record.name, on, record.task, runtime, img_size, quoted, f"{counts.get(record.name, 0):.0f}"]
            lines.append(",".join((*cells, *_cells(record), str(record.environment.get("train_batch_size", "")))))
    return "\n".join(lines) + "\n"


def _cells(record: Record) -> Iterator[str]:
    for task, metrics in WITH_INTERVAL.items():
        for metric in metrics:
            reading = record.metrics.get(metric)
            values = ("", "", "") if reading is None else (reading.value, reading.low or 0.0, reading.high or 0.0)
            yield from (value if isinstance(value, str) else f"{value:.6g}" for value in values)
        for metric in WITHOUT_INTERVAL[task]:
            yield f"{record.metrics[metric].value:.0f}" if metric in record.metrics else ""
