"""Times on a fake device with a fake clock: warm-up, synchronization, throttling."""

import gc

import pytest

from favor.machine.stopping import StoppingRule
from favor.machine.timing import time_calls, warm_up, with_more_calls
from measurement.fakes import FakeClock, FakeDevice, FakeWork

RULE = StoppingRule(budget=20.0)


@pytest.fixture
def clock() -> FakeClock:
    return FakeClock()


@pytest.fixture
def device(clock) -> FakeDevice:
    return FakeDevice(clock)


def work(device, *factors, seconds=0.1):
    return FakeWork(device, lambda batch: seconds * batch, factors)


def test_warming_up_ends_when_the_last_three_times_are_like_the_three_before(clock, device):
    slow_start = work(device, 30, 10, 5, 3, 2, 1.5)
    found = warm_up(slow_start.at(1).run, device, clock, limit=60)
    assert found.settled
    assert found.seconds == pytest.approx(0.1)
    # After the first call: the medians of 1.5 1 1 and of 1 1 1 agree.
    assert len(slow_start.calls) == 11


def test_warming_up_ends_at_its_limit_and_says_that_times_had_not_settled(clock, device):
    ever_slower = FakeWork(device, lambda batch: 0.1, (1.2**n for n in range(200)))
    found = warm_up(ever_slower.at(1).run, device, clock, limit=5)
    assert not found.settled
    assert 5 <= clock.now() - 100 < 7.5


def test_two_slow_calls_that_agree_count_as_settled(clock, device):
    slow = work(device, seconds=4.0)
    assert warm_up(slow.at(1).run, device, clock, limit=5).settled
    assert len(slow.calls) == 3


def test_the_first_call_which_may_compile_does_not_use_up_the_warm_up(clock, device):
    compiled = work(device, 3000.0)
    found = warm_up(compiled.at(1).run, device, clock, limit=5)
    assert found.first > 10 * found.seconds
    assert found.settled
    assert found.seconds == pytest.approx(0.1)


def test_the_device_is_waited_for_or_its_work_would_look_free(clock, device):
    timing = time_calls(work(device).at(1).run, device, clock, RULE)
    assert timing.quantile(0.5).value == pytest.approx(0.1)
    assert timing.converged
    assert timing.flags == ()


def test_a_sample_is_as_many_calls_as_last_its_time(clock, device):
    timing = time_calls(work(device, seconds=0.004).at(1).run, device, clock, RULE, sample_seconds=0.05)
    assert timing.calls_per_sample == 13
    assert timing.quantile(0.5).value == pytest.approx(0.004)
    waits = device.synchronized
    assert waits < timing.calls_per_sample * len(timing.seconds)


def test_throttling_is_flagged_as_drift(clock, device):
    hot = FakeWork(device, lambda batch: 0.5, (1.0 + 0.02 * max(0, n - 6) for n in range(500)))
    assert "drift" in time_calls(hot.at(1).run, device, clock, RULE).flags


def test_a_budget_that_ends_too_early_is_flagged_as_wide(clock, device):
    scattered = FakeWork(device, lambda batch: 0.5, (1.0 + n % 2 for n in range(500)))
    assert "wide" in time_calls(scattered.at(1).run, device, clock, RULE).flags


def test_the_garbage_collector_is_off_while_timing_and_on_again_afterwards(clock, device):
    seen = []

    def run() -> None:
        seen.append(gc.isenabled())
        device.queue(0.1)

    time_calls(run, device, clock, RULE)
    assert seen[0]
    assert not seen[-1]
    assert gc.isenabled()


def test_more_calls_end_with_their_budget_if_the_machine_becomes_slow_meanwhile(clock, device):
    slowed = FakeWork(device, lambda batch: 0.1, [1.0] * 120 + [50.0] * 200)
    timing = time_calls(slowed.at(1).run, device, clock, RULE)
    start = clock.now()
    longer = with_more_calls(timing, slowed.at(1).run, device, clock, StoppingRule(budget=40.0), 368)
    assert 40 <= clock.now() - start < 46
    assert len(timing.seconds) < len(longer.seconds) < 368


def test_calls_are_added_until_a_median_that_was_known_is_known_again(clock, device):
    # The first 120 calls agree; the next ones alternate between two times, until enough of them are fast again.
    unsteady = FakeWork(device, lambda batch: 0.1, [1.0] * 120 + [1.0, 1.06] * 70 + [1.06] * 120 + [1.0] * 400)
    rule = StoppingRule(budget=20.0, least_samples=100)
    timing = time_calls(unsteady.at(1).run, device, clock, rule)
    assert timing.converged
    longer = with_more_calls(timing, unsteady.at(1).run, device, clock, StoppingRule(budget=80.0), 368)
    assert longer.converged
    assert len(longer.seconds) > 368
