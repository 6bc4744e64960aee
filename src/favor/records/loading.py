"""All records in one table: the papers' numbers, our counts, simulated ones, and the user's studies."""

from collections.abc import Iterable, Sequence
from dataclasses import dataclass
from pathlib import Path

import pandas as pd

from favor.records.counted import counted_records, counted_table
from favor.records.published import published_table
from favor.records.published import records as published_records
from favor.records.schema import Record
from favor.records.store import Problem, read
from favor.records.table import load_reporting, table_of


@dataclass(frozen=True, eq=False)
class Gathered:
    """The wide table of all records, the records themselves, and unreadable lines; `own` are the user's records."""

    paths: tuple[str, ...]
    table: pd.DataFrame
    own: tuple[Record, ...]
    shipped: tuple[Record, ...]
    problems: tuple[Problem, ...]


def gather(paths: Sequence[Path], simulated: Iterable[Record] = ()) -> Gathered:
    """All records and their table; see `load_everything`."""
    table, problems = load_everything(paths, simulated)
    own = read(*paths).records if paths else ()
    return Gathered(
        tuple(str(path) for path in paths), table, own, (*published_records(), *counted_records()), problems
    )


def load_everything(
    studies: Sequence[str | Path] = (), simulated: Iterable[Record] = ()
) -> tuple[pd.DataFrame, tuple[Problem, ...]]:
    """The wide table of favor's own records, `simulated` ones and studies, and the unreadable lines.

    >>> sorted(load_everything()[0]["source"].unique())
    ['measured', 'published']
    """
    own, problems = load_reporting(*studies) if studies else (None, ())
    stand_ins = tuple(simulated)
    tables = [published_table(), counted_table()]
    tables += [] if own is None else [own]
    tables += [table_of(stand_ins)] if stand_ins else []
    return pd.concat(tables, ignore_index=True), problems
