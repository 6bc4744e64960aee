"""What to measure next: chances, what measurements teach about other models, and when the answer is sure."""

import math

import pytest

from favor.analyze.limits import Limit
from favor.analyze.targeting import Candidate, Measured, outlook

LATENCY = "latency_p50"


def candidate(
    name: str, seconds: float, top1: float = 80.0, family: str | None = None, unsure: float = 0.0
) -> Candidate:
    predictors = {LATENCY: (math.log(seconds), math.log(seconds))}
    return Candidate(name, 224, family or name, {"top1": top1, "params": 1e7}, predictors, unsure)


def measured(seconds: float, budget: float = 20.0) -> Measured:
    return Measured({LATENCY: (seconds, 0.01)}, budget)


def test_the_model_that_is_predicted_to_be_fastest_comes_first_with_a_quarter_of_the_budget() -> None:
    found = outlook([candidate("slow", 0.4), candidate("fast", 0.05)], {}, LATENCY, (), 20.0)
    assert (found.following, found.budget) == (1, 5.0)
    assert found.likeliest == 1


def test_it_ends_when_no_other_model_is_likely() -> None:
    models = [candidate("fast", 0.05), candidate("slow", 0.4), candidate("slower", 0.8)]
    found = outlook(models, {0: measured(0.05), 1: measured(0.4)}, LATENCY, (), 20.0)
    assert found.following is None
    assert found.chances[0] > 0.95


def test_two_models_are_measured_before_it_ends_as_a_comparison_needs_two() -> None:
    found = outlook([candidate("fast", 0.01), candidate("slow", 10.0)], {0: measured(0.01)}, LATENCY, (), 20.0)
    assert found.following == 1 or found.chances[1] == 0


def test_close_contenders_are_measured_for_twice_as_long_until_the_budget_ends() -> None:
    models = [candidate("one", 0.05), candidate("other", 0.05)]
    near = {0: Measured({LATENCY: (0.050, 0.04)}, 5.0), 1: Measured({LATENCY: (0.051, 0.04)}, 5.0)}
    found = outlook(models, near, LATENCY, (), 20.0)
    assert (found.following in (0, 1), found.budget) == (True, 10.0)
    ended = outlook(models, {at: Measured(one.values, 20.0) for at, one in near.items()}, LATENCY, (), 20.0)
    assert ended.following is None
    assert max(ended.chances) < 0.95


def test_a_measurement_corrects_the_prediction_of_its_family_more_than_of_others() -> None:
    models = [candidate("a1", 0.1, family="a"), candidate("a2", 0.1, family="a"), candidate("b", 0.1, family="b")]
    models.append(candidate("c", 0.1, family="c"))
    found = outlook(models, {0: measured(0.03), 3: measured(0.1)}, LATENCY, (), 20.0)
    assert found.chances[1] > found.chances[2]


def test_the_most_accurate_model_within_a_limit_is_sought_where_nothing_is_preferred() -> None:
    limit = Limit.named("max_latency", 0.1)
    models = [
        candidate("giant", 5.0, top1=90.0),
        candidate("good", 0.08, top1=84.0),
        candidate("small", 0.01, top1=70.0),
    ]
    first = outlook(models, {}, "top1", [limit], 20.0)
    assert first.following == 1
    known = {1: measured(0.08), 2: measured(0.01)}
    assert outlook(models, known, "top1", [limit], 20.0).likeliest == 1


def test_a_failed_model_cannot_be_the_answer() -> None:
    models = [candidate("fast", 0.01), candidate("slow", 0.1)]
    found = outlook(models, {0: Measured({}, 5.0)}, LATENCY, (), 20.0)
    assert found.chances[0] == 0
    assert found.likeliest == 1


def test_no_model_is_likely_where_none_keeps_the_limits() -> None:
    limit = Limit.named("max_latency", 1e-9)
    models = [candidate("one", 0.1), candidate("other", 0.2)]
    found = outlook(models, {0: measured(0.1), 1: measured(0.2)}, LATENCY, [limit], 20.0)
    assert found.likeliest is None
    assert found.following is None


def test_a_model_without_a_simulation_stays_possible_for_longer() -> None:
    models = [candidate("fast", 0.05), candidate("known", 0.1), candidate("vague", 0.1, unsure=0.7)]
    found = outlook(models, {0: measured(0.05)}, LATENCY, (), 20.0)
    assert found.chances[2] > found.chances[1]


@pytest.mark.parametrize("metric", ["throughput"])
def test_higher_is_better_for_throughput(metric: str) -> None:
    models = [
        Candidate(name, 224, name, {"top1": 80.0}, {metric: (math.log(s),)}) for name, s in (("a", 0.1), ("b", 1.0))
    ]
    known = {0: Measured({metric: (10.0, 0.01)}, 20.0), 1: Measured({metric: (1.0, 0.01)}, 20.0)}
    assert outlook(models, known, metric, (), 20.0).likeliest == 0
