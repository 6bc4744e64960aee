"""How the Pareto front moved over the years.

Paper: Nauen et al., "Which Transformer to Favor", appendix D.5, Figure 13.
"""

from dataclasses import dataclass

import pandas as pd

from favor.analyze.pareto import pareto
from favor.analyze.selection import require_columns
from favor.analyze.trainings import not_comparable
from favor.errors import RequestError


@dataclass(frozen=True)
class FrontOfYear:
    """The front of all models published up to a year: its members, the added ones, and the dropped ones."""

    year: int
    members: tuple[str, ...]
    added: tuple[str, ...]
    dropped: tuple[str, ...]


def evolution(table: pd.DataFrame) -> tuple[FrontOfYear, ...]:
    """The Pareto front of throughput and accuracy of each year over all models published up to it, oldest first.

    >>> table = pd.DataFrame({"name": ["a", "b"], "year": [2020, 2022], "top1": [80.0, 82.0], "throughput": [9.0, 9.5]})
    >>> [(front.year, front.added, front.dropped) for front in evolution(table)]
    [(2020, ('a',), ()), (2022, ('b',), ('a',))]
    """
    require_columns(table, ["name", "year"], "an evolution over the years")
    dated = table[table["year"].notna()]
    if why := not_comparable(dated):
        raise RequestError(why)
    before: tuple[str, ...] = ()
    fronts = []
    for year in sorted({int(year) for year in dated["year"]}):
        members = pareto(dated[dated["year"] <= year], ["throughput", "top1"], draws=0).members
        added = tuple(name for name in members if name not in before)
        fronts.append(FrontOfYear(year, members, added, tuple(name for name in before if name not in members)))
        before = members
    return tuple(fronts)
