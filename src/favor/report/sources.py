"""What a page is made of: the reader's records beside those that come with favor."""

from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path

import pandas as pd

from favor.records import Problem, Record, counted_records, counted_table, published, published_table, read
from favor.records.table import load_reporting


@dataclass(frozen=True, eq=False)
class Gathered:
    """The wide table of everything, the records behind it, and what could not be read; `own` are the reader's."""

    paths: tuple[str, ...]
    table: pd.DataFrame
    own: tuple[Record, ...]
    shipped: tuple[Record, ...]
    problems: tuple[Problem, ...]


def gather(paths: Sequence[Path]) -> Gathered:
    """The records of study folders or files, with the papers' and our models' counts."""
    tables = [published_table(), counted_table()]
    own: tuple[Record, ...] = ()
    problems: tuple[Problem, ...] = ()
    if paths:
        study, problems = load_reporting(*paths)
        tables.append(study)
        own = read(*paths).records
    return Gathered(
        paths=tuple(str(path) for path in paths),
        table=pd.concat(tables, ignore_index=True),
        own=own,
        shipped=(*published.records(), *counted_records()),
        problems=problems,
    )
