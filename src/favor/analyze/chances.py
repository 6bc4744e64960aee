"""The probability that a model is the best one, given the intervals of all numbers."""

from collections.abc import Mapping, Sequence
from typing import NamedTuple

import numpy as np
import pandas as pd

from favor.analyze.intervals import draw, has_known_uncertainty, says_nothing
from favor.analyze.limits import Limit
from favor.analyze.metric_column import MetricColumn
from favor.metrics import METRICS


class BestInDraws(NamedTuple):
    """For each row, the share of draws in which it is best.

    `is_known` says whether the share is a probability: whether the uncertainty of the row's numbers is known.
    `open_shares` is the share in which the row would be best if its uninformative numbers (`says_nothing`) had the best
    possible values; it is zero for a row without such numbers.
    """

    shares: np.ndarray
    is_known: np.ndarray
    open_shares: np.ndarray

    @property
    def probabilities(self) -> np.ndarray:
        """The shares; NaN where they are not probabilities."""
        return np.where(self.is_known, self.shares, np.nan)


def draw_best(rows: pd.DataFrame, objective: str, limits: Sequence[Limit], *, draws: int = 1000) -> BestInDraws | None:
    """How often each row is the best of those that meet all limits; None without rows or draws.

    A row with a number of unknown uncertainty takes part, but its share is no probability. Ties go to the earlier row.
    Draws in which no row meets the limits count for no row.

    >>> rows = pd.DataFrame({"top1": [80.0, 79.0], "top1_low": [79.0, 78.0], "top1_high": [81.0, 80.0]})
    >>> bool(draw_best(rows, "top1", ()).probabilities[0] > 0.85)
    True
    """
    involved = list(dict.fromkeys([objective, *(limit.column for limit in limits)]))
    if not len(rows) or not draws:
        return None
    known = np.logical_and.reduce([has_known_uncertainty(rows, column) for column in involved])
    rng = np.random.default_rng(0)
    drawn = {column: draw(rows, column, draws, rng) for column in involved}
    return BestInDraws(shares_of_best(drawn, objective, limits), known, _open_shares(rows, drawn, objective, limits))


def _open_shares(
    rows: pd.DataFrame, drawn: Mapping[str, np.ndarray], objective: str, limits: Sequence[Limit]
) -> np.ndarray:
    """The shares in which rows would be best if their uninformative numbers had the best possible values."""
    in_doubt = {column: says_nothing(rows, column) for column in drawn}
    is_open = np.logical_or.reduce(list(in_doubt.values()))
    if not is_open.any():
        return np.zeros(len(rows))
    perfect = {column: np.inf if MetricColumn.named(column).metric.better == "higher" else 0.0 for column in drawn}
    at_best = {column: np.where(in_doubt[column], perfect[column], values) for column, values in drawn.items()}
    least = _costs_within(drawn, objective, limits).min(axis=1, keepdims=True)
    costs = _costs_within(at_best, objective, limits)
    return np.where(is_open, ((costs <= least) & (costs < np.inf)).mean(axis=0), 0.0)


def shares_of_best(
    drawn: Mapping[str, np.ndarray], objective: str, limits: Sequence[Limit], possible: np.ndarray | None = None
) -> np.ndarray:
    """Share of draws in which each model is the best that meets all limits, of those that are possible at all.

    `drawn` has one row per draw and one column per model, for every column of numbers that decides.
    """
    costs = _costs_within(drawn, objective, limits)
    if possible is not None:
        costs = np.where(possible, costs, np.inf)
    best = costs.argmin(axis=1)[(costs < np.inf).any(axis=1)]
    return np.bincount(best, minlength=costs.shape[1]) / len(costs)


def _costs_within(drawn: Mapping[str, np.ndarray], objective: str, limits: Sequence[Limit]) -> np.ndarray:
    """The objective as a cost, by draw and model; infinite where a limit is not met."""
    costs = drawn[objective] * METRICS[objective].sign
    keeps = np.ones(costs.shape, dtype=bool)
    for limit in limits:
        keeps &= limit.kept_by(drawn[limit.column])
    return np.where(keeps, costs, np.inf)
