"""How the Pareto front moved over the years.

Paper: Nauen et al., "Which Transformer to Favor", appendix D.5, Figure 13.
"""

from collections.abc import Sequence
from dataclasses import dataclass

import pandas as pd

from favor.analyze.pareto import pareto
from favor.analyze.selection import require_columns


@dataclass(frozen=True)
class FrontOfYear:
    """The front of all models published up to a year: its members, the added ones, and the dropped ones."""

    year: int
    models: int
    members: tuple[str, ...]
    added: tuple[str, ...]
    dropped: tuple[str, ...]


@dataclass(frozen=True)
class EvolutionResult:
    """The fronts of the years, oldest first; rows without a year are left out and counted."""

    metrics: tuple[str, ...]
    years: tuple[FrontOfYear, ...]
    without_year: int


def evolution(table: pd.DataFrame, metrics: Sequence[str] = ("throughput", "top1")) -> EvolutionResult:
    """The Pareto front of each year over all models published up to it.

    >>> table = pd.DataFrame({"name": ["a", "b"], "year": [2020, 2022], "top1": [80.0, 82.0], "throughput": [9.0, 9.5]})
    >>> [(front.year, front.added, front.dropped) for front in evolution(table).years]
    [(2020, ('a',), ()), (2022, ('b',), ('a',))]
    """
    require_columns(table, ["name", "year"], "an evolution over the years")
    dated = table[table["year"].notna()]
    years = sorted({int(year) for year in dated["year"]})
    fronts = {year: pareto(dated[dated["year"] <= year], metrics, draws=0) for year in years}
    before: tuple[str, ...] = ()
    of_years = []
    for year, front in fronts.items():
        members = front.members
        of_years.append(
            FrontOfYear(
                year=year,
                models=len(front.rows),
                members=members,
                added=tuple(name for name in members if name not in before),
                dropped=tuple(name for name in before if name not in members),
            )
        )
        before = members
    return EvolutionResult(tuple(metrics), tuple(of_years), len(table) - len(dated))
