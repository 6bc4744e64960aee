"""Where cost indicators disagree about which model is cheaper: the message of the efficiency misnomer.

Paper: Dehghani et al., "The Efficiency Misnomer", ICLR 2022, sections 2.2 and 3.1.
"""

from collections.abc import Sequence
from dataclasses import asdict, dataclass, replace
from typing import Any

import numpy as np
import pandas as pd

from favor.analyze.reasons import undisturbed
from favor.analyze.selection import Excluded, complete_rows, labels, numbers
from favor.errors import RequestError
from favor.metrics import metric

_BEST_QUARTER, _WORST_QUARTER = 0.25, 0.75


@dataclass(frozen=True)
class Flip:
    """Two models whose order flips: `cheaper_by_x` costs less by indicator x and more by indicator y.

    The factors say by how much (2.0: the other one costs twice as much by x); `strength` is the smaller of the two.
    """

    cheaper_by_x: str
    cheaper_by_y: str
    factor_x: float
    factor_y: float
    strength: float


@dataclass(frozen=True)
class PairDisagreement:
    """Two indicators over n models: how many pairs of models they rank differently, strongest flips first."""

    x: str
    y: str
    n: int
    pairs: int
    flipped: int
    share: float
    strongest: tuple[Flip, ...]


@dataclass(frozen=True)
class TwoFaced:
    """A model in the best quarter by one indicator and in the worst quarter by another.

    Its rank is one more than the number of models that cost less.
    """

    name: str
    best_by: str
    rank_best: int
    bad_by: str
    rank_bad: int
    of: int


@dataclass(frozen=True)
class DisagreementResult:
    """All pairs of indicators, the two-faced models, and the warning for a claim that rests on one indicator."""

    indicators: tuple[str, ...]
    pairs: tuple[PairDisagreement, ...]
    two_faced: tuple[TwoFaced, ...]
    warning: str | None
    excluded: Excluded

    def to_dict(self) -> dict[str, Any]:
        """Plain content for JSON."""
        return asdict(self)


def disagreement(table: pd.DataFrame, indicators: Sequence[str], *, strongest: int = 10) -> DisagreementResult:
    """The pairs of models that cost indicators rank differently, over the models that have all indicators undisturbed.

    >>> table = pd.DataFrame({"name": ["deep", "wide"], "params": [93e6, 102e6], "latency_p50": [0.64, 0.35]})
    >>> disagreement(table, ["params", "latency_p50"]).pairs[0].flipped
    1
    """
    if len(set(indicators)) < 2:
        raise RequestError("a disagreement needs two or more cost indicators, for example params and throughput")
    complete, excluded = complete_rows(table, indicators)
    usable = undisturbed(complete, indicators)
    excluded = replace(excluded, disturbed=len(complete) - len(usable))
    names = labels(usable)
    costs = {name: _log_cost(usable, name) for name in indicators}
    pairs = tuple(
        _pair_disagreement(x, y, names, costs[x], costs[y], strongest)
        for i, x in enumerate(indicators)
        for y in indicators[i + 1 :]
    )
    return DisagreementResult(tuple(indicators), pairs, _two_faced(names, costs), _warning(pairs), excluded)


def _log_cost(table: pd.DataFrame, name: str) -> np.ndarray:
    """Logarithm of the cost, so that lower is better and differences are factors."""
    if metric(name).better == "neither":
        raise RequestError(f"{name} has no better direction, so it is not a cost indicator")
    values = numbers(table, name)
    if (values <= 0).any():
        raise RequestError(f"{name} has values of zero or less, which have no meaningful ratio")
    return np.log(values) * metric(name).sign


def _pair_disagreement(
    x: str, y: str, names: np.ndarray, cost_x: np.ndarray, cost_y: np.ndarray, strongest: int
) -> PairDisagreement:
    n = len(names)
    flipped, kept = 0, []
    for i in range(n - 1):
        gap_x, gap_y = cost_x[i + 1 :] - cost_x[i], cost_y[i + 1 :] - cost_y[i]
        others = np.flatnonzero(gap_x * gap_y < 0)
        flipped += len(others)
        strength = np.minimum(np.abs(gap_x[others]), np.abs(gap_y[others]))
        # The strongest flips of each model include the strongest of all.
        for k in np.argsort(-strength, kind="stable")[:strongest]:
            kept.append((float(strength[k]), i, int(others[k]) + i + 1))
    kept.sort(key=lambda entry: -entry[0])
    pairs = n * (n - 1) // 2
    flips = tuple(_flip(names, cost_x, cost_y, i, j) for _, i, j in kept[:strongest])
    return PairDisagreement(x, y, n, pairs, flipped, flipped / pairs if pairs else 0.0, flips)


def _flip(names: np.ndarray, cost_x: np.ndarray, cost_y: np.ndarray, i: int, j: int) -> Flip:
    if cost_x[j] < cost_x[i]:
        i, j = j, i
    factor_x, factor_y = float(np.exp(cost_x[j] - cost_x[i])), float(np.exp(cost_y[i] - cost_y[j]))
    return Flip(str(names[i]), str(names[j]), factor_x, factor_y, min(factor_x, factor_y))


def _two_faced(names: np.ndarray, costs: dict[str, np.ndarray]) -> tuple[TwoFaced, ...]:
    """The models in the best quarter of one indicator and in the worst of another, the widest gap of ranks first."""
    n = len(names)
    cheaper = {name: np.searchsorted(np.sort(cost), cost, side="left") for name, cost in costs.items()}
    no_dearer = {name: np.searchsorted(np.sort(cost), cost, side="right") for name, cost in costs.items()}
    # Models of equal cost share the mean of their ranks, so that many equal models are neither best nor worst.
    middle = {name: (cheaper[name] + no_dearer[name] + 1) / 2 for name in costs}
    two_faced = [
        TwoFaced(str(names[i]), x, int(cheaper[x][i]) + 1, y, int(cheaper[y][i]) + 1, n)
        for x in costs
        for y in costs
        for i in range(n)
        if middle[x][i] <= _BEST_QUARTER * n and middle[y][i] > _WORST_QUARTER * n
    ]
    return tuple(sorted(two_faced, key=lambda entry: entry.rank_best - entry.rank_bad))


def _warning(pairs: tuple[PairDisagreement, ...]) -> str | None:
    worst = max(pairs, key=lambda pair: pair.share)
    if not worst.flipped:
        return None
    flip = worst.strongest[0]
    return (
        f"{worst.x} and {worst.y} rank {worst.flipped} of {worst.pairs} pairs differently ({worst.share:.0%}): "
        f"by {worst.x}, {flip.cheaper_by_y} costs {flip.factor_x:.2g} times as much as {flip.cheaper_by_x}; "
        f"by {worst.y}, {flip.cheaper_by_x} costs {flip.factor_y:.2g} times as much as {flip.cheaper_by_y}. "
        "Being efficient by one does not imply being efficient by the other."
    )
