"""Pareto fronts in any number of metrics: who is on it, how surely, and how far the others are away.

A row is dominated if another row is at least as good in every metric and better in one (the standard rule), or, with
`strict=True`, only if another row is better in every metric (the rule of "Which Transformer to Favor"). Equal rows do
not dominate each other, so ties stay on the front. Rows that failed or lack a number are left out and counted. A row
whose accuracy is flagged is neither on the front nor dominates another.
"""

from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from typing import Any, Literal

import numpy as np
import pandas as pd

from favor.analyze.dominance import least_value_below, nondominated
from favor.analyze.intervals import draw, has_intervals, has_known_uncertainty
from favor.analyze.selection import Excluded, complete_rows, numbers, numbers_or_nan
from favor.errors import RequestError
from favor.metrics import METRICS, metric

Direction = Literal["lower", "higher"]


@dataclass(frozen=True)
class ParetoPoint:
    """One row of the table and its place; a member's distances are zero."""

    row: int
    name: str
    img_size: int | None
    values: dict[str, float]
    sources: dict[str, str | None]
    member: bool
    probability: float | None
    distance: dict[str, float]
    flag: str | None = None


@dataclass(frozen=True, eq=False)
class ParetoResult:
    """The front of a table. Columns are kept as arrays, because a table may have a million rows; `points` reads them.

    `rows` are positions in the table given. `probability` is the share of draws from the intervals in which a row is
    on the front, NaN for a row with a number of unknown uncertainty, None without any interval. `flags` has the
    reasons why an accuracy must not decide. `sources` has for each metric where its values come from, None where
    the table does not tell. `distance[i, k]` is how much row i has to improve in metric k alone
    to be no longer dominated, in the metric's unit.
    """

    metrics: tuple[str, ...]
    better: tuple[Direction, ...]
    strict: bool
    rows: np.ndarray
    names: np.ndarray
    img_sizes: np.ndarray
    values: np.ndarray
    sources: tuple[np.ndarray | None, ...]
    member: np.ndarray
    probability: np.ndarray | None
    distance: np.ndarray
    flags: tuple[str | None, ...]
    excluded: Excluded

    @property
    def members(self) -> tuple[str, ...]:
        """Names on the front, best in the first metric first."""
        return tuple(point.name for point in self.front)

    @property
    def front(self) -> tuple[ParetoPoint, ...]:
        """The points on the front, best in the first metric first."""
        on_front = np.flatnonzero(self.member)
        towards_best = self.values[on_front, 0] * (-1 if self.better[0] == "higher" else 1)
        return tuple(self._point(position) for position in on_front[np.argsort(towards_best, kind="stable")])

    @property
    def points(self) -> tuple[ParetoPoint, ...]:
        """All points, in the order of the table."""
        return tuple(self._point(position) for position in range(len(self.rows)))

    def _point(self, position: int) -> ParetoPoint:
        img_size = self.img_sizes[position]
        return ParetoPoint(
            row=int(self.rows[position]),
            name=str(self.names[position]),
            img_size=None if np.isnan(img_size) else int(img_size),
            values=dict(zip(self.metrics, self.values[position].tolist(), strict=True)),
            sources=dict(zip(self.metrics, self._sources(position), strict=True)),
            member=bool(self.member[position]),
            probability=None if self.probability is None else _known(float(self.probability[position])),
            distance=dict(zip(self.metrics, self.distance[position].tolist(), strict=True)),
            flag=self.flags[position],
        )

    def _sources(self, position: int) -> Iterator[str | None]:
        for column in self.sources:
            yield column[position] if column is not None and isinstance(column[position], str) else None

    def to_dict(self) -> dict[str, Any]:
        """Plain content for JSON."""
        return {
            "metrics": [
                {"name": name, "unit": METRICS[name].unit if name in METRICS else "1", "better": better}
                for name, better in zip(self.metrics, self.better, strict=True)
            ],
            "rule": "strict" if self.strict else "standard",
            "excluded": vars(self.excluded),
            "points": [vars(point) for point in self.points],
        }


def pareto(
    table: pd.DataFrame,
    metrics: Sequence[str],
    *,
    better: Mapping[str, Direction] | None = None,
    strict: bool = False,
    flags: Sequence[str | None] | None = None,
    draws: int = 1000,
    seed: int = 0,
) -> ParetoResult:
    """The Pareto front of a table; `better` gives the direction where the glossary's is not meant or not known.

    `flags` says for every row why its accuracy must not decide, None where it may.

    >>> table = pd.DataFrame({"name": ["a", "b", "c"], "top1": [80.0, 82.0, 79.0], "params": [5e6, 9e6, 6e6]})
    >>> pareto(table, ["top1", "params"]).members
    ('b', 'a')
    """
    if len(set(metrics)) < 2 or len(set(metrics)) != len(metrics):
        raise RequestError("a Pareto front needs two or more different metrics, for example top1 and throughput")
    directions = tuple(_direction(name, better or {}) for name in metrics)
    usable, excluded = complete_rows(table.assign(_row=np.arange(len(table))), metrics)
    values = np.column_stack([numbers(usable, name) for name in metrics])
    signs = np.array([-1.0 if direction == "higher" else 1.0 for direction in directions])
    costs = values * signs
    reasons = tuple((None,) * len(usable) if flags is None else (flags[row] for row in usable["_row"]))
    admitted = np.array([reason is None for reason in reasons], dtype=bool)
    member = np.zeros(len(usable), dtype=bool)
    member[admitted] = nondominated(costs[admitted], strict=strict)
    return ParetoResult(
        metrics=tuple(metrics),
        better=directions,
        strict=strict,
        rows=usable["_row"].to_numpy(),
        names=usable["name"].to_numpy() if "name" in usable else usable["_row"].to_numpy(),
        img_sizes=numbers_or_nan(usable, "img_size"),
        values=values,
        sources=tuple(usable[f"{name}_source"].to_numpy() if f"{name}_source" in usable else None for name in metrics),
        member=member,
        probability=_membership_probability(usable, admitted, metrics, signs, strict, draws, seed),
        distance=_distance_to_front(costs, member, strict),
        flags=reasons,
        excluded=excluded,
    )


def _direction(name: str, given: Mapping[str, Direction]) -> Direction:
    if name in given:
        return given[name]
    direction = metric(name).better
    if direction == "neither":
        raise RequestError(f"{name} has no better direction; pass one in `better` to use it in a Pareto front")
    return direction


def _known(probability: float) -> float | None:
    return None if np.isnan(probability) else probability


def _membership_probability(
    table: pd.DataFrame,
    admitted: np.ndarray,
    metrics: Sequence[str],
    signs: np.ndarray,
    strict: bool,
    draws: int,
    seed: int,
) -> np.ndarray | None:
    """Share of draws from the metrics' intervals in which each row is on the front; None without any interval."""
    if not draws or not any(has_intervals(table, name) for name in metrics):
        return None
    known = np.logical_and.reduce([has_known_uncertainty(table, name) for name in metrics])
    if not known.any():
        return None
    rng = np.random.default_rng(seed)
    drawn = np.stack([draw(table, name, draws, rng) for name in metrics], axis=-1)[:, admitted] * signs
    hits = np.zeros(len(table))
    for costs in drawn:
        hits[admitted] += nondominated(costs, strict=strict)
    return np.where(known, hits / draws, np.nan)


def _distance_to_front(costs: np.ndarray, member: np.ndarray, strict: bool) -> np.ndarray:
    """How much each row has to improve in each metric alone until no row dominates it any more.

    Only rows on the front matter: every other row that dominates this one is itself dominated by a row on the front.
    """
    distance = np.zeros_like(costs)
    front, others = costs[member], costs[~member]
    # The strict rule asks for a better value in every other metric as well: the next float above does that.
    blockers = np.nextafter(front, np.inf) if strict else front
    for k in range(costs.shape[1]):
        rest = [j for j in range(costs.shape[1]) if j != k]
        distance[~member, k] = others[:, k] - least_value_below(blockers[:, rest], front[:, k], others[:, rest])
    # A flagged row may lie beyond the front that it does not make.
    return np.clip(distance, 0, None)
