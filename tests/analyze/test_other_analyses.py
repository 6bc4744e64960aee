"""Matched comparisons, scaling, evolution, accuracy per parameter, memory from FLOPs, fronts by class, comparison."""

import itertools

import numpy as np
import pandas as pd
import pytest
from scipy import stats

from favor.analyze.accuracy_per_parameter import accuracy_per_parameter
from favor.analyze.compare import compare
from favor.analyze.evolution import evolution
from favor.analyze.intervals import accuracy_interval
from favor.analyze.matched import closest_pairs, matched, matched_every_way
from favor.analyze.memory_from_flops import memory_from_flops
from favor.analyze.scaling import depth_or_width, model_or_image
from favor.errors import RequestError


def two_families() -> pd.DataFrame:
    params = np.array([5e6, 10e6, 20e6, 40e6])
    return pd.DataFrame(
        {
            "name": [f"x{i}" for i in range(4)] + [f"y{i}" for i in range(4)],
            "family": ["x"] * 4 + ["y"] * 4,
            "params": [*params, *(params * 1.03)],
            "macs": [*params, *(params * 4.12)],
            "top1": [70.0, 75.0, 79.0, 81.0, 72.0, 77.1, 80.9, 83.0],
        }
    )


def test_families_are_matched_one_to_one_within_the_tolerance() -> None:
    comparison = matched(two_families(), "x", "y", "params")
    assert [(pair.base, pair.changed) for pair in comparison.effect.pairs] == [(f"x{i}", f"y{i}") for i in range(4)]
    assert comparison.effect.mean == pytest.approx(2.0)
    assert comparison.effect.verdict == "better"
    with pytest.raises(RequestError, match="within 1%"):
        matched(two_families(), "x", "y", "params", tolerance=0.01)


def test_what_is_held_equal_can_turn_the_answer() -> None:
    result = matched_every_way(two_families(), "x", "y")
    verdicts = {comparison.match: comparison.effect.verdict for comparison in result.comparisons}
    assert verdicts == {"parameter-matched": "better", "compute-matched": "undecided"}
    assert result.comparisons[1].effect.mean < 0
    assert result.missing == ("speed-matched: no throughput or latency_p50 with top1 on both sides",)
    assert result.verdict.startswith("undecided")
    with pytest.raises(RequestError, match="unknown family 'z'"):
        matched(two_families(), "x", "z", "params")


def test_as_many_pairs_as_possible_and_then_the_closest_are_taken() -> None:
    rng = np.random.default_rng(0)
    for _ in range(50):
        a, b, widest = rng.random(4), rng.random(3), 0.3
        taken = closest_pairs(a, b, widest)
        best = min(
            (-len(allowed), sum(abs(a[i] - b[j]) for i, j in allowed))
            for order in itertools.permutations(range(4), 3)
            for allowed in [[(i, j) for j, i in enumerate(order) if abs(a[i] - b[j]) <= widest]]
        )
        assert len(taken) == -best[0]
        assert sum(abs(a[i] - b[j]) for i, j in taken) == pytest.approx(best[1])


def scaled() -> pd.DataFrame:
    return pd.DataFrame(
        {
            "name": ["vit_ti16", "vit_ti16", "vit_s16"],
            "img_size": [224, 384, 224],
            "top1": [74.0, 77.0, 82.0],
            "throughput": [1000.0, 250.0, 400.0],
            "inference_memory": [1e8, 1.5e8, 2.0e8],
        }
    )


def test_the_larger_model_is_weighed_against_the_larger_image() -> None:
    by_speed = model_or_image(scaled(), "vit_ti16", "vit_s16", "throughput")
    assert by_speed.larger_model.cost_factor == pytest.approx(2.5)
    assert by_speed.larger_image.cost_factor == pytest.approx(4.0)
    assert by_speed.larger_image.gain_per_doubling == pytest.approx(1.5)
    assert by_speed.verdict == "larger model"
    by_memory = model_or_image(scaled(), "vit_ti16", "vit_s16", "inference_memory")
    assert by_memory.verdict == "larger model"
    turned = model_or_image(scaled().assign(top1=[74.0, 81.0, 82.0]), "vit_ti16", "vit_s16", "inference_memory")
    assert turned.verdict == "larger image"
    with pytest.raises(RequestError, match="vit_ti16@512"):
        model_or_image(scaled(), "vit_ti16", "vit_s16", "throughput", img_size=512)


def test_depth_and_width_cross_where_their_curves_do() -> None:
    cost = np.array([1.0, 10.0, 100.0])
    table = pd.DataFrame(
        {
            "name": ["d0", "d1", "d2", "w0", "w1", "w2"],
            "params": [*cost, *cost],
            "latency_p50": [*cost, *(cost / 10)],
            "top1": [30.0, 50.0, 70.0, 40.0, 50.0, 60.0],
        }
    )
    result = depth_or_width(table, ["d0", "d1", "d2"], ["w0", "w1", "w2"], ["params", "latency_p50"])
    by_params, by_latency = result.curves
    assert [round(cost, 1) for cost in by_params.crossings] == [10.0]
    assert (by_params.leads, by_latency.leads) == (("width", "depth"), ("width",))
    assert result.verdict == "who is ahead depends: by params width, depth from 10 on; by latency_p50 width"
    alone = depth_or_width(table, ["d0", "d1", "d2"], ["w0", "w1", "w2"], ["latency_p50"])
    assert alone.verdict == "width is ahead by every indicator"
    same = depth_or_width(table, ["d0", "d1", "d2"], ["d0", "d1", "d2"], ["params"])
    assert same.verdict == "who is ahead depends: by params neither is ahead"
    assert by_params.quality_gap == pytest.approx(0.0, abs=0.1)
    with pytest.raises(RequestError, match="share no range"):
        depth_or_width(table.assign(params=[*cost, *(cost * 1e6)]), ["d0", "d1"], ["w0", "w1"], ["params"])


def test_the_front_of_a_year_holds_the_models_up_to_it() -> None:
    table = pd.DataFrame(
        {
            "name": ["old", "mid", "weak", "new", "undated"],
            "year": [2020, 2021, 2021, 2022, None],
            "top1": [80.0, 78.0, 70.0, 82.0, 99.0],
            "throughput": [100.0, 150.0, 90.0, 120.0, 999.0],
        }
    )
    fronts = evolution(table)
    assert [front.year for front in fronts] == [2020, 2021, 2022]
    assert [set(front.members) for front in fronts] == [{"old"}, {"old", "mid"}, {"mid", "new"}]
    assert fronts[2].dropped == ("old",)


def test_accuracy_per_parameter_is_ordered_by_accuracy_and_set_against_the_median() -> None:
    table = pd.DataFrame({"name": list("abc"), "top1": [80.0, 70.0, 75.0], "params": [20e6, 5e6, 15e6]})
    result = accuracy_per_parameter(table)
    assert [model.name for model in result.models] == ["b", "c", "a"]
    assert result.median == pytest.approx(5e-6)
    assert result.models[0].of_median == pytest.approx(2.8)


def memory_table(n: int = 40) -> pd.DataFrame:
    rng = np.random.default_rng(0)
    giga = rng.uniform(1, 20, n)
    return pd.DataFrame({"ops_mixed": giga * 1e9, "train_memory": (25.43 * giga + 25.5 + rng.normal(0, 5, n)) * 1e9})


def test_the_line_of_memory_over_flops_has_the_intervals_of_least_squares() -> None:
    table = memory_table()
    fit = memory_from_flops(table)
    expected = stats.linregress(table["ops_mixed"] / 1e9, table["train_memory"] / 1e9)
    assert (fit.slope, fit.intercept) == (pytest.approx(expected.slope), pytest.approx(expected.intercept))
    estimate = fit.predict(10e9)
    assert estimate.low < 279.8e9 < estimate.high
    assert estimate.high - estimate.low == pytest.approx(2 * stats.t.ppf(0.975, 38) * fit.residual * 1e9, rel=0.03)


def test_memory_at_two_batch_sizes_is_no_line() -> None:
    table = memory_table(4).assign(batch_size=[64, 64, 2048, 2048])
    with pytest.raises(RequestError, match="64, 2048"):
        memory_from_flops(table)
    assert memory_from_flops(table.assign(batch_size=64)).batch_size == 64


def side_by_side(**columns: list[object]) -> pd.DataFrame:
    return pd.DataFrame({"name": ["a", "b"], "img_size": [224.0, 224.0], **columns})


def test_two_models_are_judged_only_where_a_test_allows_it() -> None:
    table = side_by_side(
        params=[22e6, 28e6],
        params_source=["measured", "measured"],
        top1=[82.5, 82.4],
        throughput=[100.0, 90.0],
        throughput_low=[99.0, 89.0],
        throughput_high=[101.0, 91.0],
        inference_memory=[1e9, 2e9],
        macs=[1e9, None],
    )
    comparison = compare(table, "a", "b", dataset="imagenet-1k")
    verdicts = {entry.metric: entry.verdict for entry in comparison.metrics}
    assert verdicts == {"params": "a", "top1": "undecided", "throughput": "a", "inference_memory": "a"}
    assert comparison.only_a == ("macs",)
    by_metric = {entry.metric: entry for entry in comparison.metrics}
    assert by_metric["throughput"].p is not None
    assert by_metric["throughput"].p < 1e-6
    assert by_metric["params"].test == "counted"


def test_numbers_of_two_settings_are_not_judged() -> None:
    table = side_by_side(
        throughput=[100.0, 90.0],
        throughput_low=[99.0, 89.0],
        throughput_high=[101.0, 91.0],
        throughput_setting=["cpu, fp32", "rtx3090, amp"],
    )
    entry = compare(table, "a", "b").metrics[0]
    assert (entry.verdict, entry.p) == ("untested", None)
    assert "rtx3090, amp differ" in entry.test
    with pytest.raises(RequestError, match="unknown model"):
        compare(table, "a", "c")


def test_the_interval_of_an_accuracy_covers_what_a_test_set_would_show() -> None:
    rng = np.random.default_rng(0)
    hits = 0
    for accuracy in 100 * rng.binomial(10_000, 0.8254, 400) / 10_000:
        low, high = accuracy_interval(accuracy, 10_000)
        hits += low <= 82.54 <= high
    assert 368 <= hits <= 392


@pytest.mark.parametrize("params", [0.0, -1.0])
def test_accuracy_per_parameter_refuses_a_model_without_parameters(params: float) -> None:
    table = pd.DataFrame({"name": ["a", "empty"], "top1": [80.0, 81.0], "params": [5e6, params]})
    with pytest.raises(RequestError, match="empty has none"):
        accuracy_per_parameter(table)


def test_an_accuracy_of_another_configuration_is_shown_and_not_judged() -> None:
    table = side_by_side(top1=[82.5, 70.0], params=[22e6, 28e6], params_source=["measured", "measured"])
    assert {entry.metric: entry.verdict for entry in compare(table, "a", "b", dataset="imagenet-1k").metrics} == {
        "params": "a",
        "top1": "a",
    }
    flagged = compare(table, "a", "b", dataset="imagenet-1k", flags={"b": "no token is dropped", "c": "other"})
    assert flagged.flagged == {"b": "no token is dropped"}
    by_metric = {entry.metric: entry for entry in flagged.metrics}
    assert (by_metric["top1"].verdict, by_metric["top1"].p, by_metric["params"].verdict) == ("untested", None, "a")
    assert "the accuracy of b is flagged" in by_metric["top1"].test
