"""The wide table: one row per model and conditions, one column per condition and per metric."""

import warnings
from collections.abc import Iterable
from dataclasses import replace
from pathlib import Path

import pandas as pd

from favor.errors import RequestError
from favor.metrics import METRICS
from favor.records.contradictions import flagged
from favor.records.frame import frame_of, machine_text
from favor.records.repeated import FOUND_AT_BEST_BATCH, FOUND_UNDER_LOAD, precedence
from favor.records.schema import (
    BUDGET_COLUMN,
    IMAGES_COLUMN,
    MACHINE_COLUMNS,
    RECORD_COLUMNS,
    ROUND_COLUMNS,
    RUN_COLUMN,
    TABLE_COLUMNS,
    Record,
)
from favor.records.store import Problem, ReadResult, read

MACHINE_NAMES = ("environment.host", "environment.device_name", "environment.threads")
"""The columns that describe a machine; `machine` combines all of them in one string."""
_OF_ENVIRONMENT = (IMAGES_COLUMN, BUDGET_COLUMN, RUN_COLUMN)


class RecordsWarning(UserWarning):
    """A line of a records file was skipped."""


def load(*paths: str | Path) -> pd.DataFrame:
    """The wide table of study folders or record files, with a warning for every skipped line."""
    table, problems = load_reporting(*paths)
    for problem in problems:
        warnings.warn(str(problem), RecordsWarning, stacklevel=2)
    return table


def load_reporting(*paths: str | Path) -> tuple[pd.DataFrame, tuple[Problem, ...]]:
    """The wide table and a problem for every skipped line."""
    result = read_current(*paths)
    return table_of(result.records), result.problems


def read_current(*paths: str | Path) -> ReadResult:
    """All records of study folders or record files.

    A newer schema is refused: a table without the records of a newer favor would look complete.
    """
    result = read(*paths)
    for problem in result.problems:
        if problem.kind == "newer_schema":
            raise RequestError(f"{problem.file}:{problem.line}: {problem.why}")
    return replace(result, records=flagged(result.records))


def table_of(records: Iterable[Record]) -> pd.DataFrame:
    """The wide table of these records."""
    return _table(frame_of(list(records)))


def _table(parts: pd.DataFrame) -> pd.DataFrame:
    metrics = [name for name in METRICS if name in parts.columns]
    ends = {name: [f"{name}_low", f"{name}_high"] for name in metrics}
    unknown = {end for both in ends.values() for end in both if parts[both].isna().all(axis=None)}
    numbers = [column for name in metrics for column in (name, *ends[name])]
    in_turns = [name for name in ROUND_COLUMNS if name in parts.columns]
    others = {*RECORD_COLUMNS, "flags", *in_turns, *MACHINE_COLUMNS, *_OF_ENVIRONMENT, *numbers}
    conditions = [name for name in parts.columns if name not in others]
    rows = _joined(parts, ["name", "source", "provenance", *conditions, *MACHINE_COLUMNS], metrics)
    rows = pd.concat([rows, _machines(rows[list(MACHINE_COLUMNS)]).rename("machine")], axis=1)
    optional = (*MACHINE_NAMES, *_OF_ENVIRONMENT)
    named = [name for name in optional if name in rows.columns and rows[name].notna().any()]
    columns = [*TABLE_COLUMNS, *named, *conditions, *in_turns, *(name for name in numbers if name not in unknown)]
    return rows[columns].copy()  # in few blocks: pandas warns of every column added to more than a hundred


def _all_flags(flags: pd.Series) -> str | None:
    return " ".join(dict.fromkeys(" ".join(flags.dropna()).split())) or None


def _machines(environment: pd.DataFrame) -> pd.Series:
    """The machine of each row; the text is made once per distinct machine."""
    number = environment.groupby(list(environment.columns), dropna=False, sort=False).ngroup()
    distinct = environment[~number.duplicated()]
    texts = [machine_text(*values) for values in distinct.itertuples(index=False, name=None)]
    return number.map(pd.Series(texts, index=number[distinct.index], dtype="str"))


def _without_found(subject: pd.DataFrame) -> pd.DataFrame:
    """What was asked for, without the conditions that searches found; see `asked_conditions`."""
    asked = subject.drop(columns=list(FOUND_UNDER_LOAD), errors="ignore")
    if not {"batch", FOUND_AT_BEST_BATCH} <= set(asked.columns):
        return asked
    searched = (asked["batch"] == "best").fillna(False).astype(bool)
    return asked.assign(**{FOUND_AT_BEST_BATCH: asked[FOUND_AT_BEST_BATCH].mask(searched)})


def _joined(parts: pd.DataFrame, subject: list[str], metrics: list[str]) -> pd.DataFrame:
    """One row per subject: what counts of repeated measurements, and all tasks in one row if no metric occurs twice."""
    asked = _without_found(parts[subject])
    repeated = asked.duplicated(keep=False)
    if not repeated.any():
        return parts
    number = asked[repeated].groupby(list(asked.columns), dropna=False, sort=False).ngroup().rename("subject")
    tasks = pd.DataFrame({"subject": number, "task": parts.loc[repeated, "task"]})
    order = map(precedence, tasks["task"], parts.loc[repeated, "status"], parts.loc[repeated, "flags"])
    last = tasks.assign(order=list(order)).sort_values("order", kind="stable").drop_duplicates(list(tasks), keep="last")
    counting = parts.loc[last.index.sort_values()]
    number = number[counting.index]
    values_per_metric = counting[metrics].notna().groupby(number).transform("sum")
    apart = (values_per_metric > 1).any(axis=1) | (counting["status"] != "ok")
    groups = counting[~apart].groupby(number[~apart], sort=False)
    together = groups.first().assign(task=groups["task"].agg("+".join), flags=groups["flags"].agg(_all_flags))
    together.index = groups.head(1).index
    return pd.concat([parts[~repeated], counting[apart], together]).sort_index().reset_index(drop=True)
