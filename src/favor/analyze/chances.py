"""The probability that a model is the best one, given the intervals of all numbers."""

from collections.abc import Sequence

import numpy as np
import pandas as pd

from favor.analyze.intervals import draw, has_intervals
from favor.analyze.limits import Limit
from favor.metrics import METRICS


def chance_of_being_best(
    rows: pd.DataFrame, objective: str, limits: Sequence[Limit], *, draws: int = 1000, seed: int = 0
) -> np.ndarray | None:
    """Share of draws in which each row is the best of those that meet all limits; None without any interval.

    Ties go to the earlier row. Draws in which no row meets the limits count for no row.

    >>> rows = pd.DataFrame({"top1": [80.0, 79.0], "top1_low": [79.0, 78.0], "top1_high": [81.0, 80.0]})
    >>> bool(chance_of_being_best(rows, "top1", ())[0] > 0.85)
    True
    """
    involved = dict.fromkeys([objective, *(limit.metric for limit in limits)])
    if not len(rows) or not any(has_intervals(rows, metric) for metric in involved):
        return None
    rng = np.random.default_rng(seed)
    drawn = {metric: draw(rows, metric, draws, rng) for metric in involved}
    cost = drawn[objective] * (-1 if METRICS[objective].better == "higher" else 1)
    keeps = np.ones(cost.shape, dtype=bool)
    for limit in limits:
        keeps &= limit.kept_by(drawn[limit.metric])
    best = np.where(keeps, cost, np.inf).argmin(axis=1)[keeps.any(axis=1)]
    return np.bincount(best, minlength=len(rows)) / draws
