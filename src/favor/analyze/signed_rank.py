"""Wilcoxon's signed-rank test, exact also with ties, for which scipy tries every choice of signs."""

from collections.abc import Sequence

import numpy as np
import pandas as pd

_MOST_EXACT = 50  # differences; for more, the normal approximation is as good


def signed_rank_p(differences: Sequence[float] | np.ndarray) -> float:
    """The two-sided p-value; differences of zero are left out, and without any others it is 1.

    >>> signed_rank_p([1.0, 2.0, 3.0]), signed_rank_p([1.0, 1.0, -1.0])
    (0.25, 1.0)
    """
    others = np.array([difference for difference in differences if difference != 0])
    if not len(others):
        return 1.0
    if len(others) > _MOST_EXACT:
        from scipy import stats

        return float(stats.wilcoxon(others, method="asymptotic").pvalue)
    # Ranks of ties are halves, so their doubles are whole numbers, and sums of them can be counted.
    ranks = np.rint(2 * pd.Series(np.abs(others)).rank().to_numpy()).astype(int)
    ways = np.zeros(ranks.sum() + 1)
    ways[0] = 1
    for rank in ranks:
        ways[rank:] = ways[rank:] + ways[:-rank]
    chances, positive = ways / ways.sum(), ranks[others > 0].sum()
    return float(min(1.0, 2 * min(chances[: positive + 1].sum(), chances[positive:].sum())))
