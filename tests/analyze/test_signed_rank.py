"""Wilcoxon's signed-rank test."""

import numpy as np
import pytest
from scipy import stats

from favor.analyze.signed_rank import signed_rank_p


@pytest.mark.parametrize("count", [1, 2, 5, 9, 30])
def test_without_ties_it_is_scipys_exact_test(count: int) -> None:
    differences = np.random.default_rng(count).normal(0.3, 1.0, count)
    assert signed_rank_p(differences) == pytest.approx(stats.wilcoxon(differences, method="exact").pvalue, rel=1e-12)


@pytest.mark.parametrize("seed", range(5))
def test_with_ties_it_is_the_share_of_all_signs_that_are_as_extreme(seed: int) -> None:
    differences = np.random.default_rng(seed).integers(-2, 4, 9).astype(float)
    assert signed_rank_p(differences) == pytest.approx(stats.wilcoxon(differences).pvalue, rel=1e-12)


def test_zeros_say_nothing_and_many_differences_are_approximated() -> None:
    assert signed_rank_p([0.0, 0.0]) == 1.0
    assert signed_rank_p([0.0, 1.0, 2.0]) == signed_rank_p([1.0, 2.0])
    many = np.random.default_rng(0).normal(0.1, 1.0, 200)
    assert signed_rank_p(many) == pytest.approx(stats.wilcoxon(many, method="asymptotic").pvalue)
