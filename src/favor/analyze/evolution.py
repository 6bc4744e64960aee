"""How the Pareto front moved over the years.

Paper: Nauen et al., "Which Transformer to Favor", appendix D.5, Figure 13.
"""

from collections.abc import Sequence
from dataclasses import asdict, dataclass
from typing import Any

import numpy as np
import pandas as pd

from favor.analyze.pareto import ParetoResult, pareto
from favor.analyze.selection import require_columns


@dataclass(frozen=True)
class FrontOfYear:
    """The front of all models published up to a year: its members, the added ones, and the dropped ones.

    `volume` is the share that the front dominates of the box between the worst and the best value of all years (in two
    metrics): its growth is what a year added.
    """

    year: int
    models: int
    members: tuple[str, ...]
    added: tuple[str, ...]
    dropped: tuple[str, ...]
    volume: float | None


@dataclass(frozen=True)
class EvolutionResult:
    """The fronts of the years, oldest first; rows without a year are left out and counted."""

    metrics: tuple[str, ...]
    years: tuple[FrontOfYear, ...]
    without_year: int

    def to_dict(self) -> dict[str, Any]:
        """Plain content for JSON."""
        return asdict(self)


def evolution(
    table: pd.DataFrame, metrics: Sequence[str] = ("throughput", "top1"), *, strict: bool = False
) -> EvolutionResult:
    """The Pareto front of each year over all models published up to it.

    >>> table = pd.DataFrame({"name": ["a", "b"], "year": [2020, 2022], "top1": [80.0, 82.0], "throughput": [9.0, 9.5]})
    >>> [(front.year, front.added, front.dropped) for front in evolution(table).years]
    [(2020, ('a',), ()), (2022, ('b',), ('a',))]
    """
    require_columns(table, ["name", "year"], "an evolution over the years")
    dated = table[table["year"].notna()]
    years = sorted({int(year) for year in dated["year"]})
    fronts = {year: pareto(dated[dated["year"] <= year], metrics, strict=strict, draws=1) for year in years}
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
                volume=_volume(front, fronts[years[-1]]) if len(metrics) == 2 else None,
            )
        )
        before = members
    return EvolutionResult(tuple(metrics), tuple(of_years), len(table) - len(dated))


def _volume(front: ParetoResult, everyone: ParetoResult) -> float:
    """Area that a front of two metrics dominates, in the box of all values."""
    signs = np.array([1.0 if better == "higher" else -1.0 for better in front.better])
    values = everyone.values * signs
    worst, best = values.min(axis=0), values.max(axis=0)
    span = np.where(best > worst, best - worst, 1.0)
    members = (front.values[front.member] * signs - worst) / span
    by_first = members[np.argsort(-members[:, 0])]
    reached = np.maximum.accumulate(by_first[:, 1])
    next_first = np.append(by_first[1:, 0], 0.0)
    return float(((by_first[:, 0] - next_first) * reached).sum())
