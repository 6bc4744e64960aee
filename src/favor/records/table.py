"""The wide table: one row per model and conditions, one column per condition and per metric."""

import warnings
from collections.abc import Iterable, Iterator
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path

import pandas as pd

from favor.errors import RequestError
from favor.metrics import METRICS
from favor.records.bulk import frame_of_chunk
from favor.records.frame import frame_of, machine_text
from favor.records.schema import MACHINE_COLUMNS, RECORD_COLUMNS, TABLE_COLUMNS, Record, check, to_data
from favor.records.store import Chunk, Problem, chunks, is_record, json_lines

MACHINE_NAMES = ("environment.host", "environment.device_name")
"""The columns by which people name a machine; `machine` is all that tells two apart, as one text."""


class RecordsWarning(UserWarning):
    """A line of a file of records was skipped."""


def load(*paths: str | Path) -> pd.DataFrame:
    """The wide table of study folders or record files; lines that had to be skipped are warned about."""
    table, problems = load_reporting(*paths)
    for problem in problems:
        warnings.warn(str(problem), RecordsWarning, stacklevel=2)
    return table


def load_reporting(*paths: str | Path) -> tuple[pd.DataFrame, tuple[Problem, ...]]:
    """The wide table and a problem for every line that had to be skipped.

    A newer schema is refused: a table without what a later favor wrote would look complete.
    """
    problems: list[Problem] = []
    frames = [frame for frame in _frames(chunks(paths), problems) if len(frame)]
    for problem in problems:
        if problem.kind == "newer_schema":
            raise RequestError(f"{problem.file}:{problem.line}: {problem.why}")
    parts = pd.concat(frames, ignore_index=True) if frames else frame_of([])
    return _table(parts), tuple(problems)


def table_of(records: Iterable[Record]) -> pd.DataFrame:
    """The wide table of records at hand."""
    data = [to_data(record) for record in records]
    for one in data:
        check(one)
    return _table(frame_of(data))


def _frames(all_chunks: Iterable[Chunk], problems: list[Problem]) -> Iterator[pd.DataFrame]:
    """All lines of a chunk at once if none of them is unusual, else one by one, to say what is wrong with which."""
    some = list(all_chunks)
    with ThreadPoolExecutor() as threads:
        for chunk, frame in zip(some, threads.map(frame_of_chunk, some), strict=True):
            if frame is None:
                frame = frame_of([line.data for line in json_lines(chunk, problems) if is_record(line, problems)])
            yield frame


def _table(parts: pd.DataFrame) -> pd.DataFrame:
    metrics = [name for name in METRICS if name in parts.columns]
    ends = {name: [f"{name}_low", f"{name}_high"] for name in metrics}
    unknown = {end for both in ends.values() for end in both if parts[both].isna().all(axis=None)}
    numbers = [column for name in metrics for column in (name, *ends[name])]
    conditions = [name for name in parts.columns if name not in {*RECORD_COLUMNS, *MACHINE_COLUMNS, *numbers}]
    rows = _joined(parts, ["name", "source", "provenance", *conditions, *MACHINE_COLUMNS], metrics)
    rows = rows.assign(machine=_machines(rows[list(MACHINE_COLUMNS)]))
    named = [column for column in MACHINE_NAMES if rows[column].notna().any()]
    return rows[[*TABLE_COLUMNS, *named, *conditions, *(name for name in numbers if name not in unknown)]]


def _machines(environment: pd.DataFrame) -> pd.Series:
    """The machine of each row; a text is made once for each machine, of which there are few."""
    number = environment.groupby(list(environment.columns), dropna=False, sort=False).ngroup()
    distinct = environment[~number.duplicated()]
    texts = [machine_text(*values) for values in distinct.itertuples(index=False, name=None)]
    return number.map(pd.Series(texts, index=number[distinct.index], dtype="str"))


def _joined(parts: pd.DataFrame, subject: list[str], metrics: list[str]) -> pd.DataFrame:
    """One row for each subject: the newest of repeated measurements, and all tasks in one where no metric is twice."""
    repeated = parts.duplicated(subject, keep=False)
    if not repeated.any():
        return parts
    number = parts[repeated].groupby(subject, dropna=False, sort=False).ngroup().rename("subject")
    by_age = parts[repeated].sort_values("time", kind="stable", na_position="first")
    newest = by_age[~by_age.assign(subject=number).duplicated(["subject", "task"], keep="last")].sort_index()
    number = number[newest.index]
    values_per_metric = newest[metrics].notna().groupby(number).transform("sum")
    apart = (values_per_metric > 1).any(axis=1) | (newest["status"] != "ok")
    groups = newest[~apart].groupby(number[~apart], sort=False)
    together = groups.first().assign(task=groups["task"].agg("+".join))
    together.index = groups.head(1).index
    return pd.concat([parts[~repeated], newest[apart], together]).sort_index().reset_index(drop=True)
