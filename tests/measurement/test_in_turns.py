"""Models in turns on a fake device: what each round gives, which rounds count, and when they end."""

from queue import SimpleQueue

import pytest

from favor.machine import timing
from favor.machine.environment import Glance
from favor.machine.messages import END_OF_ROUNDS, TURN, Channel, Findings, Round
from favor.measurement.bench import Bench
from favor.measurement.head_to_head import RoundsEnd, order_is_known
from favor.measurement.in_turns import measure_in_turns
from measurement.fakes import FakeClock, FakeDevice, FakeWork
from measurement.test_phases import a_job

PER_IMAGE = 0.1


@pytest.fixture(autouse=True)
def _quick_collector(monkeypatch):
    monkeypatch.setattr(timing.gc, "collect", lambda: 0)


def in_turns(turns, busy=(), **changes):
    """The findings of so many turns; in the `busy` ones, counted from 1, others slow every call down."""
    clock, findings, granted = FakeClock(), Findings(), SimpleQueue()
    for _ in range(turns):
        granted.put(TURN)
    granted.put(END_OF_ROUNDS)
    device = FakeDevice(clock)
    bench = Bench(device, clock, Channel(findings.take, granted), budget=2.0)
    looks = []

    def is_busy_turn() -> bool:
        return len(looks) % 2 == 1 and (len(looks) + 1) // 2 in busy

    def look() -> Glance:
        """Each turn begins and ends with a look."""
        others = (looks[-1].machine if looks else 0.0) + (10.0 if is_busy_turn() else 0.0)
        looks.append(Glance(clock.now(), others, 0.0))
        return looks[-1]

    work = FakeWork(device, lambda batch: PER_IMAGE * batch * (3 if is_busy_turn() else 1))
    measure_in_turns(bench, work, a_job(batch_size=1, in_turns=True, **changes), 2, look)
    return findings


def test_every_turn_is_a_round_with_its_throughput_latency_and_load():
    found = in_turns(8)
    assert len(found.rounds) == 8
    assert all(each.throughput == pytest.approx(10) and each.latency == pytest.approx(0.1) for each in found.rounds)
    assert found.environment["round_throughput"] == " ".join(["10"] * 8)
    assert found.environment["round_latency"] == " ".join(["0.1"] * 8)
    assert found.environment["busy_rounds"] == ""
    assert found.metrics["throughput"].value == pytest.approx(10)
    assert None not in (found.metrics["throughput"].low, found.metrics["throughput"].high)
    assert found.metrics["latency_p50"].value == pytest.approx(0.1)
    assert found.metrics["inference_memory"].value > 0
    assert found.flags == []


def test_busy_rounds_are_kept_but_do_not_count():
    found = in_turns(10, busy=(2, 5))
    assert found.environment["busy_rounds"] == "2 5"
    assert found.environment["round_throughput"] == "10 3.3333 10 10 3.3333 10 10 10 10 10"
    throughput, latency = found.metrics["throughput"], found.metrics["latency_p50"]
    assert (throughput.low, throughput.high) == (pytest.approx(10), pytest.approx(10))
    assert latency.high == pytest.approx(0.1)
    assert "median of 8 rounds" in throughput.method
    assert found.flags == []


def test_with_too_few_quiet_rounds_the_record_is_busy():
    found = in_turns(8, busy=(1, 2, 3))
    assert "busy" in found.flags
    assert "median of 8 rounds" in found.metrics["throughput"].method
    assert found.metrics["throughput"].low == pytest.approx(10 / 3)


def test_money_is_reported_as_without_turns():
    assert in_turns(6, price_per_hour=3.6).metrics["money_per_image"].value == pytest.approx(1e-4)


def rounds(*values, others=0.0):
    return Findings(rounds=[Round(value, 0.1, others) for value in values])


def test_rounds_end_when_the_fastest_is_known_and_not_before_six_quiet_ones():
    fast, slow = [12.0, 12.5, 11.8, 12.1, 12.2, 12.0], [10.0, 10.4, 9.8, 10.1, 10.2, 10.0]
    end = RoundsEnd(100.0, FakeClock(), processors=2)
    assert not end([rounds(*fast[:5]), rounds(*slow[:5])])
    assert end([rounds(*fast), rounds(*slow)])
    assert not end([rounds(*fast, others=1.0), rounds(*slow)])


def test_rounds_that_leave_the_order_open_end_with_their_time():
    clock = FakeClock()
    end = RoundsEnd(30.0, clock, processors=2)
    open_order = [rounds(12.0, 10.0, 12.0, 10.0, 12.0, 10.0), rounds(10.0, 12.0, 10.0, 12.0, 10.0, 12.0)]
    assert not end(open_order)
    clock.sleep(29.0)
    assert not end(open_order)
    clock.sleep(1.0)
    assert end(open_order)


def test_models_that_are_equally_fast_within_two_percent_need_no_more_rounds():
    even = dict.fromkeys(range(8), 12.0)
    assert order_is_known([even, {number: 12.0 + 0.1 * (-1) ** number for number in range(8)}])
    assert not order_is_known([even, {number: 12.0 + 1.0 * (-1) ** number for number in range(8)}])


def test_load_that_slows_all_models_for_some_rounds_does_not_hide_their_order():
    slowed = [1.0, 1.0, 0.4, 0.4, 0.4, 1.0, 1.0, 0.5]
    fast, slow = ({number: speed * factor for number, factor in enumerate(slowed)} for speed in (12.0, 10.0))
    assert order_is_known([fast, slow])


def test_with_one_model_left_the_rounds_end():
    failed = rounds(12.0)
    failed.status = "failed"
    assert RoundsEnd(100.0, FakeClock(), processors=2)([failed, rounds(10.0)])
