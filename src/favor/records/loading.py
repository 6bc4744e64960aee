"""All records in one table: the papers' numbers, our counts, simulated ones, and the user's studies."""

from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path

import pandas as pd

from favor.records.counted import counted_records, counted_table
from favor.records.published import published_table
from favor.records.published import records as published_records
from favor.records.schema import Record
from favor.records.store import Problem
from favor.records.table import read_current, table_of


@dataclass(frozen=True, eq=False)
class Gathered:
    """The wide table of all records, the records themselves, and unreadable lines; `own` are the user's records."""

    paths: tuple[str, ...]
    table: pd.DataFrame
    own: tuple[Record, ...]
    shipped: tuple[Record, ...]
    problems: tuple[Problem, ...]


def gather(paths: Sequence[str | Path]) -> Gathered:
    """All records of favor and of studies, and their table; each study is read once."""
    own = read_current(*paths)
    names = tuple(str(path) for path in paths)
    shipped = (*published_records(), *counted_records())
    return Gathered(names, with_shipped(own.records), own.records, shipped, own.problems)


def with_shipped(*others: Sequence[Record]) -> pd.DataFrame:
    """The wide table of the records that come with favor, and of others.

    >>> sorted(with_shipped()["source"].unique())
    ['measured', 'published']
    """
    tables = [published_table(), counted_table(), *(table_of(records) for records in others if records)]
    return pd.concat(tables, ignore_index=True).copy()  # in few blocks, as `table_of`
