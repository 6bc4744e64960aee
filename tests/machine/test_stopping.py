"""When timing stops, and what is known then."""

import math
import random
import statistics

import pytest
from hypothesis import given
from hypothesis import strategies as st

from favor.machine.stopping import Estimate, StoppingRule, collect, has_drifted, interval_ranks, least_count, quantile
from measurement.fakes import FakeClock

times = st.lists(st.floats(1e-6, 1e3), min_size=1, max_size=60)


def sampler(clock: FakeClock, seconds):
    def take() -> float:
        taken = next(seconds)
        clock.sleep(taken)
        return taken

    return take


def endless(*values: float):
    while True:
        yield from values


def binomial_cdf(count: int, share: float, successes: int) -> float:
    return sum(math.comb(count, k) * share**k * (1 - share) ** (count - k) for k in range(successes + 1))


@pytest.mark.parametrize("share", [0.5, 0.9, 0.99])
@pytest.mark.parametrize("count", [1, 5, 6, 20, 99, 400])
def test_the_ranks_enclose_the_quantile_with_95_percent_and_no_narrower_ones_do(count, share):
    lower, upper = interval_ranks(count, share)
    tail = 0.025 + 1e-12
    assert lower == 0 or binomial_cdf(count, share, lower - 1) <= tail
    assert binomial_cdf(count, share, lower) > 0.025 - 1e-12
    assert upper == count + 1 or 1 - binomial_cdf(count, share, upper - 1) <= tail
    assert 1 - binomial_cdf(count, share, upper - 2) > 0.025 - 1e-12


def test_the_interval_of_the_median_holds_it_in_95_percent_of_experiments():
    draw = random.Random(0)  # noqa: S311 - noise, not secrets
    true_median = math.exp(0.0)
    hits = 0
    for _ in range(600):
        found = quantile([draw.lognormvariate(0.0, 1.0) for _ in range(25)], 0.5)
        hits += found.low <= true_median <= found.high
    assert 0.93 <= hits / 600 <= 0.99


@given(times, st.sampled_from([0.5, 0.9, 0.99]))
def test_a_quantile_lies_within_its_interval_and_within_the_values(values, share):
    found = quantile(values, share)
    assert min(values) <= found.value <= max(values)
    assert found.low is None or found.low <= found.value
    assert found.high is None or found.high >= found.value


@given(times)
def test_the_half_quantile_is_the_median(values):
    assert quantile(values, 0.5).value == pytest.approx(statistics.median(values), rel=1e-12)


def test_five_samples_cannot_tell_an_interval():
    assert quantile([1.0, 1.0, 1.0, 1.0, 1.0], 0.5) == Estimate(1.0, None, None)


def test_steady_times_stop_before_the_budget_ends():
    clock = FakeClock()
    samples = collect(sampler(clock, endless(0.1, 0.101)), StoppingRule(budget=60), clock)
    assert samples.converged
    assert clock.now() - 100 < 5


def test_scattered_times_use_the_whole_budget_and_say_so():
    clock = FakeClock()
    samples = collect(sampler(clock, endless(0.1, 0.2)), StoppingRule(budget=10), clock)
    assert not samples.converged
    assert 10 <= clock.now() - 100 < 10.3


def test_one_sample_is_taken_however_long_it_lasts():
    clock = FakeClock()
    samples = collect(sampler(clock, endless(500.0)), StoppingRule(budget=10), clock)
    assert samples.seconds == (500.0,)
    assert not samples.converged


def test_as_many_samples_are_taken_as_the_rule_wants_at_least():
    clock = FakeClock()
    samples = collect(sampler(clock, endless(0.05)), StoppingRule(budget=60, least_samples=100), clock)
    assert 100 <= len(samples.seconds) < 125


def test_fast_calls_are_timed_for_a_second_at_least():
    clock = FakeClock()
    collect(sampler(clock, endless(0.0001)), StoppingRule(budget=60), clock)
    assert 1.0 <= clock.now() - 100 < 1.5


def test_a_machine_that_slows_down_has_drifted_and_a_noisy_one_has_not():
    noise = [1.0, 1.04, 0.97, 1.02, 0.99] * 8
    throttled = [time * (1.0 if index < 20 else 1.3) for index, time in enumerate(noise)]
    assert has_drifted(throttled)
    assert not has_drifted(noise)


def test_a_drift_of_less_than_five_percent_is_let_pass():
    assert not has_drifted([1.0] * 20 + [1.04] * 20)
    assert has_drifted([1.0] * 20 + [1.06] * 20)


def test_few_samples_whose_halves_fall_apart_have_drifted():
    assert has_drifted([1.0] * 5 + [2.0] * 5)
    assert has_drifted([1.0] * 6 + [2.0] * 5)  # the sample in the middle belongs to neither half
    assert has_drifted([2.0] * 4 + [1.0] * 4)
    assert not has_drifted([1.0] * 4 + [2.0, 2.0, 2.0, 0.9])
    assert not has_drifted([1.0] * 3 + [2.0] * 3)  # three and three fall apart by chance in 1 of 10 cases


@given(st.permutations([1.0, 1.2, 1.4, 1.6, 1.8, 2.0, 2.2, 2.4]))
def test_eight_samples_drift_only_if_one_half_is_all_slower_than_the_other(order):
    assert has_drifted(order) == (max(order[:4]) < min(order[4:]) or max(order[4:]) < min(order[:4]))


@pytest.mark.parametrize("share", [0.1, 0.5, 0.9, 0.99])
def test_an_interval_has_both_ends_from_the_least_count_on_and_not_before(share):
    enough = least_count(share)
    assert None not in (quantile(range(enough), share).low, quantile(range(enough), share).high)
    one_less = quantile(range(enough - 1), share)
    assert None in (one_less.low, one_less.high)


def test_an_estimate_scales_with_its_interval():
    assert Estimate(2.0, 1.0, 3.0).times(2.0, plus=1.0) == Estimate(5.0, 3.0, 7.0)
