"""The geometry under the Pareto front: which points have another one below them in every coordinate.

Everything is a question of one kind: for each target, the least value among the points that are not above it in any
coordinate. It is answered by divide and conquer, O(n log^(d-2) n) sorted sweeps for d coordinates, so that a front that
holds every point costs little more than a small one.
"""

import numpy as np

_PAIRS_AT_ONCE = 1 << 15  # below this, comparing all pairs in the cache beats splitting further
_STRONG_POINTS = 64  # compared with everyone first: on real data they rule out nearly all other points
_WORTH_A_PASS = 1e-3  # the share of points that a strong one must rule out for the next to be tried


def nondominated(costs: np.ndarray, *, strict: bool = False) -> np.ndarray:
    """Mask of the rows that no other row dominates; lower is better in every column.

    >>> nondominated(np.array([[1.0, 2.0], [2.0, 1.0], [2.0, 2.0], [1.0, 2.0]])).tolist()
    [True, True, False, True]
    """
    candidates = np.flatnonzero(~_ruled_out_by_strong_points(costs))
    remaining = costs[candidates]
    dominated = _strictly_dominated(remaining) if strict else _dominated(remaining)
    mask = np.zeros(len(costs), dtype=bool)
    mask[candidates[~dominated]] = True
    return mask


def least_value_below(points: np.ndarray, values: np.ndarray, targets: np.ndarray) -> np.ndarray:
    """For each target, the least of `values` among the points that are <= it in every coordinate; inf without any.

    >>> least_value_below(np.array([[1.0], [3.0]]), np.array([7.0, 5.0]), np.array([[0.0], [2.0], [4.0]])).tolist()
    [inf, 7.0, 5.0]
    """
    least = np.full(len(targets), np.inf)
    _lower_to_values_below(points, values, targets, least, np.arange(len(targets)))
    return least


def _ruled_out_by_strong_points(costs: np.ndarray) -> np.ndarray:
    """Mask of rows that are worse in every column than one of the rows with the lowest sums of scaled costs.

    Worse in every column means dominated under both rules, and what dominates by a ruled-out row is dominated by the
    one that ruled it out, so such rows can be forgotten.
    """
    ruled_out = np.zeros(len(costs), dtype=bool)
    if len(costs) <= 4 * _STRONG_POINTS:
        return ruled_out
    low, high = costs.min(axis=0), costs.max(axis=0)
    scaled_sum = ((costs - low) / np.where(high > low, high - low, 1.0)).sum(axis=1)
    columns = np.ascontiguousarray(costs.T)
    for strong in costs[np.argpartition(scaled_sum, _STRONG_POINTS)[:_STRONG_POINTS]]:
        worse = columns[0] > strong[0]
        for column, bound in zip(columns[1:], strong[1:], strict=True):
            worse &= column > bound
        if worse.any():
            ruled_out[np.flatnonzero(~ruled_out)[worse]] = True
            columns = columns[:, ~worse]
        if worse.mean() < _WORTH_A_PASS:
            break
    return ruled_out


def _dominated(costs: np.ndarray) -> np.ndarray:
    """Standard rule. In lexicographic order only an earlier, different row that is nowhere worse can dominate."""
    order = np.lexsort(costs.T[::-1])
    ordered = costs[order]
    differs = np.ones(len(costs), dtype=bool)
    differs[1:] = (ordered[1:] != ordered[:-1]).any(axis=1)
    distinct = ordered[differs]
    place = np.arange(len(distinct), dtype=float)
    earlier = np.column_stack([place + 1, distinct[:, 1:-1]])
    targets = np.column_stack([place, distinct[:, 1:-1]])
    dominated_distinct = least_value_below(earlier, distinct[:, -1], targets) <= distinct[:, -1]
    dominated = np.empty(len(costs), dtype=bool)
    dominated[order] = dominated_distinct[np.cumsum(differs) - 1]
    return dominated


def _strictly_dominated(costs: np.ndarray) -> np.ndarray:
    """Strict rule: `a < b` is `nextafter(a) <= b`, which makes it the same question."""
    return least_value_below(np.nextafter(costs[:, :-1], np.inf), costs[:, -1], costs[:, :-1]) < costs[:, -1]


def _lower_to_values_below(
    points: np.ndarray, values: np.ndarray, targets: np.ndarray, least: np.ndarray, into: np.ndarray
) -> None:
    """Lower `least[into]` to the least value of the points below each target; splits the last coordinate."""
    if not len(points) or not len(targets):
        return
    if points.shape[1] == 1:
        _sweep(points[:, 0], values, targets[:, 0], least, into)
        return
    if len(points) * len(targets) <= _PAIRS_AT_ONCE:
        _compare_all_pairs(points, values, targets, least, into)
        return
    split = _split_value(points[:, -1], targets[:, -1])
    if split is None:
        _lower_to_values_below(points[:, :-1], values, targets[:, :-1], least, into)
        return
    low_points, low_targets = points[:, -1] <= split, targets[:, -1] <= split
    high_points, high_targets = ~low_points, ~low_targets
    _lower_to_values_below(points[low_points], values[low_points], targets[low_targets], least, into[low_targets])
    _lower_to_values_below(points[high_points], values[high_points], targets[high_targets], least, into[high_targets])
    # A low point is below a high target in this coordinate already.
    _lower_to_values_below(
        points[low_points, :-1], values[low_points], targets[high_targets, :-1], least, into[high_targets]
    )


def _split_value(points: np.ndarray, targets: np.ndarray) -> float | None:
    """A value near the median that leaves something above it; None where all values are the same."""
    values = np.concatenate([points, targets])
    highest = values.max()
    middle = np.partition(values, len(values) // 2)[len(values) // 2]
    if middle < highest:
        return float(middle)
    below = values[values < highest]
    return float(below.max()) if len(below) else None


def _sweep(points: np.ndarray, values: np.ndarray, targets: np.ndarray, least: np.ndarray, into: np.ndarray) -> None:
    """One coordinate: sort the points, keep the running minimum of their values, look each target up."""
    order = np.argsort(points, kind="stable")
    running = np.concatenate([[np.inf], np.minimum.accumulate(values[order])])
    lowest = running[np.searchsorted(points[order], targets, side="right")]
    least[into] = np.minimum(least[into], lowest)


def _compare_all_pairs(
    points: np.ndarray, values: np.ndarray, targets: np.ndarray, least: np.ndarray, into: np.ndarray
) -> None:
    below = points[:, :1] <= targets[:, 0]
    for k in range(1, points.shape[1]):
        below &= points[:, k : k + 1] <= targets[:, k]
    lowest = np.where(below, values[:, None], np.inf).min(axis=0)
    least[into] = np.minimum(least[into], lowest)
