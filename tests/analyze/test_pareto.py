"""The Pareto front against its definition, its counts, its probabilities and its distances."""

import numpy as np
import pandas as pd
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from hypothesis.extra import numpy as arrays

from favor.analyze.dominance import least_value_below, nondominated
from favor.analyze.pareto import pareto
from favor.errors import RequestError


def is_dominated(point: np.ndarray, others: np.ndarray, strict: bool) -> bool:
    """The definition, written as it is said."""
    if strict:
        return bool((others < point).all(axis=1).any())
    return bool(((others <= point).all(axis=1) & (others < point).any(axis=1)).any())


def by_definition(costs: np.ndarray, strict: bool) -> np.ndarray:
    """The front by the O(n^2) definition."""
    return np.array([not is_dominated(point, costs, strict) for point in costs])


few_values = st.integers(0, 4).map(float)  # few different values make ties and duplicates common
any_values = st.floats(-1e6, 1e6, allow_nan=False)


@st.composite
def cost_tables(draw: st.DrawFn) -> np.ndarray:
    shape = (draw(st.integers(1, 40)), draw(st.integers(2, 5)))
    return draw(arrays.arrays(float, shape, elements=draw(st.sampled_from([few_values, any_values]))))


@given(cost_tables(), st.booleans())
@settings(max_examples=150, deadline=None)
def test_the_front_is_what_the_definition_says(costs: np.ndarray, strict: bool) -> None:
    assert nondominated(costs, strict=strict).tolist() == by_definition(costs, strict).tolist()


@pytest.mark.parametrize("strict", [False, True])
@pytest.mark.parametrize("dimensions", [2, 3, 4, 5])
@pytest.mark.parametrize("kind", ["uniform", "ties", "all on the front"])
def test_the_front_of_a_large_table_is_what_the_definition_says(kind: str, dimensions: int, strict: bool) -> None:
    rng = np.random.default_rng(dimensions)
    costs = rng.random((1500, dimensions))
    if kind == "ties":
        costs = np.floor(costs * 6)
    elif kind == "all on the front":
        costs /= costs.sum(axis=1, keepdims=True)
    assert nondominated(costs, strict=strict).tolist() == by_definition(costs, strict).tolist()


def test_the_two_rules_differ_on_a_tie_in_one_metric() -> None:
    costs = np.array([[1.0, 2.0], [1.0, 3.0]])
    assert nondominated(costs).tolist() == [True, False]
    assert nondominated(costs, strict=True).tolist() == [True, True]


@given(cost_tables(), st.integers(0, 2**32 - 1))
@settings(max_examples=100, deadline=None)
def test_the_front_does_not_depend_on_the_order_of_rows(costs: np.ndarray, seed: int) -> None:
    order = np.random.default_rng(seed).permutation(len(costs))
    assert nondominated(costs)[order].tolist() == nondominated(costs[order]).tolist()


@given(cost_tables())
@settings(max_examples=100, deadline=None)
def test_the_least_value_below_is_found_as_by_looking_at_all_points(costs: np.ndarray) -> None:
    points, values = costs[:, :-1], costs[:, -1]
    expected = [min([v for p, v in zip(points, values, strict=True) if (p <= t).all()], default=np.inf) for t in points]
    assert least_value_below(points, values, points).tolist() == expected


def table_of(**columns: list[object]) -> pd.DataFrame:
    names = [f"m{i}" for i in range(len(next(iter(columns.values()))))]
    return pd.DataFrame({"name": names, **columns})


def test_directions_come_from_the_glossary_and_can_be_given() -> None:
    table = table_of(top1=[80.0, 82.0, 79.0], throughput=[100.0, 50.0, 120.0])
    assert set(pareto(table, ["top1", "throughput"]).members) == {"m0", "m1", "m2"}
    assert pareto(table, ["top1", "throughput"], better={"throughput": "lower"}).members == ("m1",)


def test_members_are_ordered_best_first_in_the_first_metric() -> None:
    table = table_of(top1=[80.0, 82.0, 79.0], params=[5.0, 9.0, 4.0])
    assert pareto(table, ["top1", "params"]).members == ("m1", "m0", "m2")
    assert pareto(table, ["params", "top1"]).members == ("m2", "m0", "m1")


def test_failed_and_missing_rows_are_left_out_and_counted() -> None:
    table = table_of(
        top1=[80.0, None, 99.0, 70.0, 85.0],
        params=[5.0, 1.0, 1.0, 9.0, np.nan],
        status=["ok", "ok", "failed", "ok", "ok"],
    )
    before = table.copy(deep=True)
    result = pareto(table, ["top1", "params"])
    assert result.members == ("m0",)
    assert (result.excluded.failed, result.excluded.missing) == (1, 2)
    assert result.rows.tolist() == [0, 3]
    pd.testing.assert_frame_equal(table, before)


@given(cost_tables(), st.booleans())
@settings(max_examples=100, deadline=None)
def test_improving_by_the_distance_and_a_little_more_ends_the_dominance_and_less_does_not(
    costs: np.ndarray, strict: bool
) -> None:
    costs = np.round(costs * 4) / 4  # steps far above the margin below
    table = pd.DataFrame(costs, columns=[f"c{k}" for k in range(costs.shape[1])]).assign(name="m")
    metrics = [f"c{k}" for k in range(costs.shape[1])]
    result = pareto(table, metrics, better=dict.fromkeys(metrics, "lower"), strict=strict)
    for i in np.flatnonzero(~result.member):
        for k in range(len(metrics)):
            moved, others = costs[i].copy(), np.delete(costs, i, axis=0)
            moved[k] -= result.distance[i, k] + 0.01
            assert not is_dominated(moved, others, strict)
            moved[k] += 0.02
            assert is_dominated(moved, others, strict)
    assert (result.distance[result.member] == 0).all()


def test_a_row_with_a_wide_interval_is_on_the_front_in_some_draws_only() -> None:
    table = table_of(
        top1=[80.0, 79.9, 60.0],
        top1_low=[79.0, 78.9, 59.9],
        top1_high=[81.0, 80.9, 60.1],
        params=[10.0, 10.0, 10.0],
    )
    result = pareto(table, ["top1", "params"])
    assert result.probability is not None
    assert result.member.tolist() == [True, False, False]
    assert 0.5 < result.probability[0] < 0.7
    assert result.probability[0] + result.probability[1] == pytest.approx(1.0)
    assert result.probability[2] == 0.0


def test_the_probability_is_the_same_for_the_same_seed_and_none_without_intervals() -> None:
    table = table_of(top1=[80.0, 79.9], top1_low=[79.0, 79.0], top1_high=[81.0, 81.0], params=[9.0, 9.0])
    once, again = (pareto(table, ["top1", "params"], seed=3).probability for _ in range(2))
    other = pareto(table, ["top1", "params"], seed=4).probability
    assert once is not None
    assert again is not None
    assert other is not None
    assert once.tolist() == again.tolist() != other.tolist()
    assert pareto(table.drop(columns=["top1_low", "top1_high"]), ["top1", "params"]).probability is None


def test_nonsense_is_refused_with_what_to_ask() -> None:
    table = table_of(top1=[80.0], params=[5.0], best_batch_size=[8.0])
    with pytest.raises(RequestError, match="two or more"):
        pareto(table, ["top1"])
    with pytest.raises(RequestError, match="best_batch_size has no better direction"):
        pareto(table, ["top1", "best_batch_size"])
    with pytest.raises(RequestError, match="did you mean 'params'"):
        pareto(table, ["top1", "param"], better={"param": "lower"})


def test_an_empty_table_has_an_empty_front() -> None:
    result = pareto(table_of(top1=[np.nan], params=[5.0]), ["top1", "params"])
    assert result.members == ()
    assert result.excluded.missing == 1
    assert result.to_dict()["points"] == []
