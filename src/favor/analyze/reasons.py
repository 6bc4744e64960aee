"""The reasons for a favored model: which models it dominates, and where others are better."""

from collections.abc import Hashable, Sequence

import numpy as np
import pandas as pd

from favor.analyze.flags import flags_on, is_disturbed, marked
from favor.analyze.intervals import has_known_uncertainty
from favor.analyze.recommendation import GivesUp
from favor.analyze.setting import column_of
from favor.metrics import METRICS


def dominated_by(favored: pd.Series, rows: pd.DataFrame, metrics: Sequence[str]) -> tuple[str, ...]:
    """Names of the rows that are better than the favored one in no metric and worse in one.

    Only metrics that the favored model has count; with fewer than two the result is empty.

    >>> rows = pd.DataFrame({"name": ["a", "b"], "top1": [82.0, 80.0], "params": [20e6, 22e6]})
    >>> dominated_by(rows.iloc[0], rows, ["top1", "params"])
    ('b',)
    """
    known = [metric for metric in metrics if pd.notna(favored[metric])]
    if len(known) < 2:
        return ()
    complete = rows.dropna(subset=known)
    worse = (complete[known].to_numpy(dtype=float) - favored[known].to_numpy(dtype=float)) * _signs(known)
    return tuple(complete["name"][(worse >= 0).all(axis=1) & (worse > 0).any(axis=1)])


def without_intervals(
    names: Sequence[str], at: Hashable, rows: pd.DataFrame, metrics: Sequence[str]
) -> tuple[str, ...]:
    """Those of the names whose comparison with the row at an index uses a number without an interval.

    >>> rows = pd.DataFrame({"name": ["a", "b"], "throughput": [9.0, 8.0], "params": [20e6, 22e6]})
    >>> without_intervals(["b"], 0, rows, ["throughput", "params"]), without_intervals(["b"], 0, rows, ["params"])
    (('b',), ())
    """
    known = np.logical_and.reduce([has_known_uncertainty(rows, metric) for metric in metrics])
    lacking = set(rows["name"] if not known[rows.index.get_loc(at)] else rows["name"][~known])
    return tuple(name for name in names if name in lacking)


def undisturbed(rows: pd.DataFrame, metrics: Sequence[str]) -> pd.DataFrame:
    """The rows without a disturbed number, which would prove nothing."""
    for metric in metrics:
        rows = rows[~marked(column_of(rows, f"{metric}_flags"), is_disturbed)]
    return rows


def disturbed_rows(records: pd.DataFrame, metric: str) -> np.ndarray:
    """Mask of the rows of a table of records, not yet compared, whose number of a metric was disturbed."""
    return marked((flags_on(metric, flags) for flags in column_of(records, "flags")), is_disturbed)


def given_up(pool: pd.DataFrame, metrics: Sequence[str]) -> tuple[GivesUp, ...]:
    """Where another row of the pool is better than its first one, by metric, and which row is the best there."""
    reasons = []
    for metric in metrics:
        values = pool[metric].to_numpy(dtype=float)
        if np.isnan(values[0]):
            continue
        best = int(np.nanargmin(values * _signs([metric])))
        if values[best] != values[0]:
            unit, name = METRICS[metric].unit, str(pool["name"].iloc[best])
            reasons.append(GivesUp(metric, unit, float(values[0]), float(values[best]), name))
    return tuple(reasons)


def _signs(metrics: Sequence[str]) -> np.ndarray:
    """Factors that make lower better in every metric."""
    return np.array([METRICS[metric].sign for metric in metrics])
