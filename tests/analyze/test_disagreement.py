"""Where indicators disagree, against the definition."""

import itertools

import numpy as np
import pandas as pd
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from favor.analyze.disagreement import disagreement
from favor.errors import RequestError

positive = st.integers(1, 6).map(float)


@given(st.lists(st.tuples(positive, positive), min_size=2, max_size=15))
@settings(max_examples=100, deadline=None)
def test_flips_are_the_pairs_that_two_indicators_order_differently(costs: list[tuple[float, float]]) -> None:
    table = pd.DataFrame(costs, columns=["params", "throughput"]).assign(name=[f"m{i}" for i in range(len(costs))])
    pair = disagreement(table, ["params", "throughput"], strongest=1000).pairs[0]
    expected = {
        frozenset((f"m{i}", f"m{j}"))
        for i, j in itertools.combinations(range(len(costs)), 2)
        # more throughput is less cost
        if (costs[i][0] - costs[j][0]) * (costs[j][1] - costs[i][1]) < 0
    }
    assert pair.flipped == len(expected)
    assert {frozenset((flip.cheaper_by_x, flip.cheaper_by_y)) for flip in pair.strongest} == expected
    for flip in pair.strongest:
        assert flip.factor_x > 1
        assert flip.factor_y > 1
    assert [flip.strength for flip in pair.strongest] == sorted(
        (flip.strength for flip in pair.strongest), reverse=True
    )


def test_the_warning_names_the_strongest_flip_and_is_none_where_all_agree() -> None:
    table = pd.DataFrame({"name": ["deep", "wide"], "params": [90e6, 100e6], "latency_p50": [0.6, 0.3]})
    warning = disagreement(table, ["params", "latency_p50"]).warning
    assert warning is not None
    assert (
        "by params, wide costs 1.1 times as much as deep; by latency_p50, deep costs 2 times as much as wide" in warning
    )
    assert disagreement(table.assign(latency_p50=[0.3, 0.6]), ["params", "latency_p50"]).warning is None


def test_a_model_best_by_one_and_bad_by_another_is_named() -> None:
    n = 8
    params, latency = np.arange(1.0, n + 1), np.arange(1.0, n + 1)
    latency[0] = 99.0  # the smallest model is the slowest
    table = pd.DataFrame({"name": [f"m{i}" for i in range(n)], "params": params, "latency_p50": latency})
    found = disagreement(table, ["params", "latency_p50"]).two_faced
    assert [(entry.name, entry.best_by, entry.rank_best, entry.bad_by, entry.rank_bad) for entry in found] == [
        ("m0", "params", 1, "latency_p50", n)
    ]


def test_ratios_of_zero_are_refused() -> None:
    with pytest.raises(RequestError, match="zero or less"):
        disagreement(pd.DataFrame({"name": ["a", "b"], "params": [0.0, 1.0], "macs": [1.0, 2.0]}), ["params", "macs"])


def test_models_that_cost_the_same_are_neither_best_nor_worst() -> None:
    names = [f"m{i}" for i in range(4)]
    table = pd.DataFrame({"name": names, "params": [5.0] * 4, "latency_p50": [9.0, 1.0, 2.0, 3.0]})
    assert disagreement(table, ["params", "latency_p50"]).two_faced == ()
    told_apart = disagreement(table.assign(params=[4.0, 5.0, 5.0, 5.0]), ["params", "latency_p50"]).two_faced
    assert [(entry.name, entry.rank_best, entry.rank_bad) for entry in told_apart] == [("m0", 1, 4)]
