"""The rows of a table that an analysis can use, and the number of those left out."""

from collections.abc import Iterable, Sequence
from dataclasses import dataclass
from fnmatch import fnmatchcase

import numpy as np
import pandas as pd

from favor.errors import RequestError, unknown_name
from favor.metrics import METRICS
from favor.zoo.cards import TIMM
from favor.zoo.settings import respelled


@dataclass(frozen=True)
class Excluded:
    """Rows that were left out: those whose work failed, and those without a number for a metric that is needed.

    Of the others, `disturbed` have a number that was measured on a busy machine or contradicts others.
    """

    failed: int
    missing: int
    disturbed: int = 0


def numbers(table: pd.DataFrame, column: str) -> np.ndarray:
    """A column as floats, missing values as NaN; a column that the table does not have is an error.

    >>> numbers(pd.DataFrame({"top1": [82.5, None]}), "top1").tolist()
    [82.5, nan]
    """
    if column not in table.columns:
        known = [name for name in table.columns if name in METRICS]
        raise unknown_name("metric of this table", column, known, f"it has {', '.join(known) or 'no metric'}")
    return table[column].to_numpy(dtype=float, na_value=np.nan)


def numbers_or_nan(table: pd.DataFrame, column: str) -> np.ndarray:
    """A column as floats, all of them NaN if the table does not have it."""
    return numbers(table, column) if column in table.columns else np.full(len(table), np.nan)


def complete_rows(table: pd.DataFrame, columns: Sequence[str]) -> tuple[pd.DataFrame, Excluded]:
    """The rows that succeeded and have a finite number in every column, and the count of the others."""
    succeeded = (table["status"] == "ok").to_numpy() if "status" in table.columns else np.ones(len(table), dtype=bool)
    complete = np.ones(len(table), dtype=bool)
    for column in columns:
        complete &= np.isfinite(numbers(table, column))
    excluded = Excluded(failed=int((~succeeded).sum()), missing=int((succeeded & ~complete).sum()))
    usable = succeeded & complete
    return (table if usable.all() else table[usable]), excluded


def known_of(table: pd.DataFrame, metrics: Iterable[str]) -> list[str]:
    """Those of the metrics that any row has."""
    return [metric for metric in metrics if metric in table.columns and table[metric].notna().any()]


def labels(table: pd.DataFrame) -> np.ndarray:
    """Labels for the rows: the name, with the image size if the table has the model at several.

    >>> labels(pd.DataFrame({"name": ["a", "a", "b"], "img_size": [224, 384, 224]})).tolist()
    ['a@224', 'a@384', 'b']
    """
    names = table["name"].to_numpy(dtype=object)
    if "img_size" not in table.columns:
        return names
    several = table.groupby("name")["img_size"].transform("nunique") > 1
    sized = [f"{name}@{size:g}" for name, size in zip(names, table["img_size"], strict=True)]
    return np.where(several, np.array(sized, dtype=object), names)


def fitting(table: pd.DataFrame, pattern: str | None) -> pd.DataFrame:
    """The rows whose name or family fits a pattern with wildcards; all rows without one.

    Settings may be spelled in any way: `evit_*(keep=.5)` fits the records of evit_s16(keep=0.5). `timm` stands for all
    networks of timm.

    >>> fitting(pd.DataFrame({"name": ["swin_s", "vit_s16"], "family": ["swin", "vit"]}), "sw*")["name"].tolist()
    ['swin_s']
    """
    if pattern is None:
        return table
    pattern = f"{TIMM}*" if pattern == TIMM.removesuffix(":") else respelled(pattern)
    fits = [
        fnmatchcase(str(name), pattern) or fnmatchcase(str(family), pattern)
        for name, family in zip(table["name"], table["family"], strict=True)
    ]
    if not any(fits):
        raise unknown_name("model with records", pattern, ["timm", *map(str, table["name"].unique())])
    return table[fits]


def require_columns(table: pd.DataFrame, columns: Sequence[str], purpose: str) -> None:
    """Refuse a table that lacks a column, naming what it is needed for."""
    absent = [column for column in columns if column not in table.columns]
    if absent:
        raise RequestError(f"{purpose} needs the column(s) {', '.join(absent)}, which this table does not have")
