"""The largest load is found in virtual time, on servers whose queues have a known answer."""

import math
from collections import Counter

import pytest

from favor.measurement import sequential_test
from favor.measurement.load_search import GRID, Batching, OutOfTimeError, RateSearch
from favor.measurement.sequential_test import LateAnswers
from favor.queueing import TOLERATED, batch_taken, largest_load, late_share
from measurement.fake_traffic import FakeTraffic
from measurement.fakes import FakeClock

SERVICE, LIMIT = 0.010, 0.050
ALONE = (Batching(1),)
BATCHES = {1: 0.010, 2: 0.012, 4: 0.016, 8: 0.025}


def waits_longer(rate: float, service: float, seconds: float) -> float:
    """The share of queries that wait longer in an M/D/1 queue, by Erlang's closed form."""
    terms = range(int(seconds / service + 1e-9) + 1)
    behind = [rate * (seconds - term * service) for term in terms]
    total = sum(math.exp(x) * (-x) ** term / math.factorial(term) for term, x in zip(terms, behind, strict=True))
    return 1 - (1 - rate * service) * total


def exact_rate(service: float = SERVICE, limit: float = LIMIT) -> float:
    """The rate at which exactly 1 % of the answers of an M/D/1 queue are late."""
    low, high = 0.0, 1 / service
    for _ in range(60):
        middle = (low + high) / 2
        low, high = (middle, high) if waits_longer(middle, service, limit - service) < TOLERATED else (low, middle)
    return low


def search(seconds, budget, batchings=ALONE, limit=LIMIT, seed=1, first=50.0):
    clock = FakeClock()
    traffic = FakeTraffic(clock, seconds, seed)
    highest = max(batch / time for batch, time in seconds.items())
    found = RateSearch(traffic, limit, budget, clock).run(first, highest, list(batchings))
    return found, clock.now() - 100.0, traffic


@pytest.mark.parametrize("load", [0.3, 0.56, 0.8, 0.9])
@pytest.mark.parametrize("limit", [0.035, 0.05])
def test_without_batching_the_late_share_is_erlang_s_closed_form(load: float, limit: float) -> None:
    rate = load / SERVICE
    expected = waits_longer(rate, SERVICE, limit - SERVICE)
    assert late_share(rate, {1: SERVICE}, limit) == pytest.approx(expected, rel=2e-3)


def test_the_late_share_with_batches_is_that_of_a_simulated_queue() -> None:
    rate, limit = 215.0, 0.05
    answers = LateAnswers(limit, rate)
    FakeTraffic(FakeClock(), BATCHES).poisson(
        rate, Batching(8), 200.0, 100.0, lambda *each: bool(answers.add(*each)) and False
    )
    simulated = answers.late / len(answers.latencies)
    assert late_share(rate, BATCHES, limit) == pytest.approx(simulated, rel=0.5)
    # half of the share is a few percent of the rate, which is what the estimate is for
    assert (
        late_share(0.9 * rate, BATCHES, limit)
        < simulated / 1.5
        < simulated * 1.5
        < late_share(1.15 * rate, BATCHES, limit)
    )


def test_the_estimated_load_is_zero_where_one_image_takes_longer_than_the_limit() -> None:
    assert largest_load({1: 0.06, 2: 0.07}, 0.05).rate == 0.0


def test_the_estimate_takes_the_batch_that_serves_most() -> None:
    gaining, losing = largest_load(BATCHES, 0.1), largest_load({1: 0.010, 2: 0.030}, 0.1)
    assert gaining.largest_batch == 8
    assert losing.largest_batch == 1
    assert losing.rate == pytest.approx(exact_rate(limit=0.1), rel=0.01)


@pytest.mark.parametrize("seed", [1, 2, 3])
def test_the_search_finds_the_largest_load_of_a_queue_with_a_closed_form(seed: int) -> None:
    found, _, _ = search({1: SERVICE}, budget=2500.0, seed=seed)
    assert found.finished
    assert found.rate.value == pytest.approx(exact_rate(), rel=0.1)
    assert found.rate.low < exact_rate() * 1.02
    assert found.rate.high > exact_rate() * 0.98


def test_the_search_ends_within_its_budget_and_a_probe_that_is_decided_ends_at_once() -> None:
    found, taken, _ = search({1: SERVICE}, budget=120.0, first=90.0)
    assert taken <= 120.0
    far_above = found.points[0]
    assert not far_above.kept
    assert far_above.decided
    assert far_above.answers / far_above.rate < 120.0 / 8 / 2


def test_two_searches_ask_the_same_rates_and_agree_within_5_percent() -> None:
    rates = []
    for faster in (1.0, 0.995):
        found, _, traffic = search(
            {batch: faster * time for batch, time in BATCHES.items()}, 120.0, [Batching(8)], first=190 / faster
        )
        rates.append(found.rate.value)
        assert all(
            math.log(rate, GRID) == pytest.approx(round(math.log(rate, GRID)), abs=1e-6) for rate in traffic.rates
        )
    assert rates[0] == pytest.approx(rates[1], rel=0.05)


def test_a_batching_that_serves_more_replaces_the_first() -> None:
    found, _, _ = search(BATCHES, 800.0, [Batching(1), Batching(8)])
    assert found.batching == Batching(8)
    alone, _, _ = search(BATCHES, 800.0, [Batching(1)])
    assert found.rate.value > 2 * alone.rate.value


def test_a_slow_moment_during_one_probe_does_not_end_the_search_below_the_largest_load() -> None:
    clock = FakeClock()
    traffic = FakeTraffic(clock, BATCHES, jitter=lambda: 3.0 if clock.now() < 105.0 else 1.0)
    found = RateSearch(traffic, LIMIT, 800.0, clock).run(190.0, 320.0, [Batching(8)])
    assert not found.points[0].kept  # at the rate that theory expects
    quiet, _, _ = search(BATCHES, 800.0, [Batching(8)], first=190.0)
    assert found.rate.value == pytest.approx(quiet.rate.value, rel=0.03)


def test_a_load_that_no_rate_keeps_is_zero() -> None:
    found, _, _ = search({1: 0.06}, budget=120.0, first=5.0)
    assert found.rate.value == 0.0
    assert not any(point.kept for point in found.points)


def test_a_budget_that_is_too_short_says_so() -> None:
    found, _, _ = search(BATCHES, 2.0, [Batching(8), Batching(4)], first=150.0)
    assert not found.finished


@pytest.mark.parametrize("budget", range(20, 120, 7))
def test_the_share_of_a_probe_that_the_end_of_the_budget_shortened_decides_nothing(budget: int) -> None:
    found, _, _ = search(BATCHES, float(budget), [Batching(8)], first=150.0, limit=0.1)
    (point,) = [point for point in found.points if point.rate == found.rate.value]
    assert point.decided or point.answers > 0.7 * point.rate * budget / 8


@pytest.mark.parametrize(("left", "tried"), [(0.1, False), (5.0, True)])
def test_one_answer_in_time_at_the_end_of_the_budget_does_not_show_that_a_rate_is_kept(
    left: float, tried: bool
) -> None:
    clock = FakeClock()
    search = RateSearch(traffic := FakeTraffic(clock, {1: 0.001}), 10.0, 100.0, clock)
    clock.sleep(85.0 - left)
    found = search.run(10.0, 10.0, [Batching(1)])
    assert (found.rate.value, found.finished) == (0.0, False)
    assert len(traffic.rates) == tried


def test_a_batching_that_serves_more_is_kept_where_the_budget_ends_soon_after() -> None:
    class EndsSoon(FakeTraffic):
        probes = 0

        def poisson(self, rate: float, batching: Batching, *rest) -> bool:
            self.probes += batching == Batching(8)
            if self.probes == 2:
                raise OutOfTimeError
            return super().poisson(rate, batching, *rest)

    clock = FakeClock()
    found = RateSearch(EndsSoon(clock, BATCHES), LIMIT, 800.0, clock).run(50.0, 320.0, [Batching(1), Batching(8)])
    assert not found.finished
    assert found.batching == Batching(8)
    alone, _, _ = search(BATCHES, 800.0, [Batching(1)])
    assert found.rate.value == pytest.approx(alone.rate.value * GRID**2)


def test_a_slow_model_whose_probes_are_never_decided_says_so() -> None:
    slow, _, _ = search({1: 0.1}, 120.0, limit=0.5, first=5.0)
    assert slow.finished
    assert (slow.rate.low, slow.rate.high) == (None, None)
    assert not slow.decided
    longer, _, _ = search({1: 0.1}, 12_000.0, limit=0.5, first=5.0)
    assert longer.decided
    assert None not in (longer.rate.low, longer.rate.high)


def test_the_curve_has_points_at_lower_rates_too() -> None:
    found, _, _ = search({1: SERVICE}, budget=120.0)
    lowest = min(point.rate for point in found.points)
    assert lowest < 0.3 * found.rate.value
    by_rate = sorted(found.points, key=lambda point: point.rate)
    assert by_rate[0].p99 < by_rate[-1].p99
    assert all(point.p50 <= point.p90 <= point.p99 for point in found.points)


@pytest.mark.parametrize(("factor", "right"), [(0.85, "kept"), (1.2, "exceeded")])
def test_the_sequential_test_errs_in_few_cases_although_late_answers_come_in_bursts(factor: float, right: str) -> None:
    rate = factor * exact_rate()
    verdicts: Counter[str] = Counter()
    for seed in range(40):
        answers = LateAnswers(LIMIT, rate)
        traffic = FakeTraffic(FakeClock(), {1: SERVICE}, seed)
        traffic.poisson(rate, Batching(1), 400.0, 10.0, lambda *each, kept=answers: kept.add(*each) != "open")
        verdicts[answers.verdict] += 1
    wrong = sum(verdicts.values()) - verdicts[right] - verdicts["open"]
    assert verdicts[right] >= 36
    assert wrong <= 2


def test_a_test_that_took_bursts_for_single_answers_would_err_more_often(monkeypatch: pytest.MonkeyPatch) -> None:
    """The mutation that must fail: independent answers are assumed, as the plain test of Wald does."""
    monkeypatch.setattr(sequential_test, "MOST_ASSUMED", 1.0)
    rate, kept = 1.2 * exact_rate(), 0
    for seed in range(40):
        answers = LateAnswers(LIMIT, rate)
        traffic = FakeTraffic(FakeClock(), {1: SERVICE}, seed)
        traffic.poisson(rate, Batching(1), 400.0, 10.0, lambda *each, told=answers: told.add(*each) != "open")
        kept += answers.verdict == "kept"
    assert kept > 2


def test_a_server_waits_until_a_batch_is_full_or_the_oldest_has_waited_long_enough() -> None:
    batching = Batching(largest=8, wait=0.02)
    assert batching.take(0, 0.0) == 0
    assert batching.take(7, 0.019) == 0
    assert batching.take(7, 0.02) == 4
    assert batching.take(9, 0.0) == 8


@pytest.mark.parametrize("waiting", [1, 2, 3, 7, 8, 19])
def test_a_batch_is_a_power_of_two_that_waits_and_is_allowed(waiting: int) -> None:
    taken = batch_taken(waiting, 8)
    assert taken <= min(waiting, 8)
    assert (taken & (taken - 1)) == 0
    assert 2 * taken > min(waiting, 8)
