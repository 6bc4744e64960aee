"""Inference and training measured on a fake device: what is found, and what is kept when something goes wrong."""

import itertools
from dataclasses import replace

import pytest
import torch

from favor.machine import timing
from favor.machine.clock import WallClock
from favor.machine.device import find_device
from favor.machine.energy import EnergyError
from favor.machine.messages import Channel, Findings
from favor.machine.precision import Precision
from favor.machine.stopping import Estimate, StoppingRule
from favor.machine.timing import time_end_to_end
from favor.measurement.bench import Bench, per_second
from favor.measurement.inference import measure_inference
from favor.measurement.job import MeasureJob
from favor.measurement.training import StepTime, measure_training
from favor.trace.workload import Call, Training, build
from measurement.fakes import FakeClock, FakeDevice, FakeWork, fake_bench

FIXED, PER_IMAGE = 1000, 100


def a_job(**changes) -> MeasureJob:
    usual = {"name": "vit_s16", "phase": "inference", "img_size": 224, "precision": "fp32"}
    return MeasureJob(**usual | {"device": "cpu", "device_label": "cpu", "threads": 2} | changes)


@pytest.fixture(autouse=True)
def _quick_collector(monkeypatch):
    """Collecting the garbage of everything that tests have loaded would take most of the time here."""
    monkeypatch.setattr(timing.gc, "collect", lambda: 0)


class FakeMeter:
    """A counter that runs at 50 W."""

    method = "counter: fake"

    def __init__(self, clock: FakeClock) -> None:
        self.clock = clock

    def start(self) -> None:
        self.began = self.clock.now()

    def stop(self) -> float:
        return 50 * (self.clock.now() - self.began)


def saturating(batch: int) -> float:
    """8 ms for the first image and 2 ms for every other, slower per image from 64 on."""
    return 0.006 + 0.002 * batch * (1 + max(0, batch - 64) / 100)


def test_inference_gives_latency_throughput_and_memory():
    bench, device, findings = fake_bench()
    measure_inference(bench, FakeWork(device, saturating), a_job())
    value = {name: reading.value for name, reading in findings.metrics.items()}
    assert value["latency_p50"] == value["latency_p99"] == pytest.approx(0.008)
    assert value["best_batch_size"] in (48, 64, 80, 96)
    assert value["throughput"] == pytest.approx(value["best_batch_size"] / saturating(int(value["best_batch_size"])))
    assert value["inference_memory"] == FIXED + PER_IMAGE
    assert value["inference_memory_best_batch"] == FIXED + PER_IMAGE * value["best_batch_size"]
    assert findings.environment["throughput_search_ended"] == "no gain"
    assert "64:" in findings.environment["throughput_search_curve"]
    assert findings.flags == []


def test_a_given_batch_size_is_not_searched():
    bench, device, findings = fake_bench()
    work = FakeWork(device, saturating)
    measure_inference(bench, work, a_job(batch_size=16))
    assert set(work.calls) == {1, 16}
    assert "best_batch_size" not in findings.metrics
    assert findings.metrics["throughput"].value == pytest.approx(16 / saturating(16))


class Compiles(FakeWork):
    """Work that compiles for a minute in the first call of every batch size."""

    def at(self, batch_size: int) -> Call:
        call = super().at(batch_size)

        def run() -> None:
            if batch_size not in self.calls:
                self.device.queue(60.0)
            call.run()

        return Call(run, call.held)


def test_compiling_for_every_batch_size_is_not_paid_from_the_budget_of_the_search():
    bench, device, findings = fake_bench()
    measure_inference(bench, Compiles(device, saturating), a_job(runtime="compile"))
    assert findings.metrics["best_batch_size"].value in (48, 64, 80, 96)
    assert findings.environment["throughput_search_ended"] == "no gain"


def test_compiling_in_the_search_takes_half_the_time_limit_at_most():
    bench, device, findings = fake_bench()
    bench = replace(bench, time_limit=240.0)
    work = Compiles(device, saturating)
    bench.search("throughput_search", work)
    assert max(work.calls) == 16  # 1 and 2 compile in the memory passes; 4, 8 and 16 in the search
    assert findings.environment["throughput_search_ended"] == "budget"


def test_the_search_stays_within_the_memory():
    bench, device, findings = fake_bench(memory=FIXED + 30 * PER_IMAGE)
    measure_inference(bench, FakeWork(device, lambda batch: 0.01), a_job())
    # 26 images take the nine tenths of the memory that a batch may be predicted to take.
    assert findings.metrics["best_batch_size"].value == 26
    assert findings.environment["throughput_search_ended"] == "memory"


def test_a_batch_that_was_predicted_to_fit_and_does_not_ends_the_search_without_failing():
    bench, device, findings = fake_bench(memory=FIXED + 100 * PER_IMAGE)
    device.room = lambda held, limit: 10**9
    measure_inference(bench, FakeWork(device, lambda batch: 0.01), a_job())
    assert 64 <= findings.metrics["best_batch_size"].value <= 100


@pytest.mark.parametrize("phase", ["inference", "training"])
def test_memory_that_ends_while_it_is_looked_at_bounds_the_search_and_fails_nothing(phase):
    # 20 images fit; the line's doubt about steeper ones would send the memory passes far beyond them
    bench, device, findings = fake_bench(memory=12_000)
    work = FakeWork(device, lambda batch: 0.2, fixed=10_000, per_image=100, always=100)
    measured = measure_inference if phase == "inference" else measure_training
    measured(bench, work, a_job(phase=phase))
    assert max(work.calls) == 8  # the nine tenths of the memory that a batch may be predicted to take
    assert "throughput" in findings.metrics or "train_throughput" in findings.metrics


def test_a_steeper_line_that_memory_does_not_hold_bounds_the_search_and_fails_nothing():
    bench, device, findings = fake_bench(memory=12_000)
    device.room = lambda held, limit: 10**9  # so that nothing but the attempt tells
    measure_inference(bench, FakeWork(device, lambda batch: 0.01, fixed=10_000, per_image=100, always=100), a_job())
    assert findings.metrics["best_batch_size"].value == 19  # of 20
    assert findings.environment["throughput_search_ended"] == "memory"


def test_the_largest_batch_in_more_memory_than_there_is_comes_from_the_line_below_it():
    bench, device, findings = fake_bench(memory=12_000)
    work = FakeWork(device, lambda batch: 0.01, fixed=10_000, per_image=100, always=100)
    measure_training(bench, work, a_job(phase="training", batch_size=4, fit_memory=50_000))
    found = findings.metrics["train_max_batch_size"]
    assert found.value == 400
    assert found.low < 100  # a steeper line could not be ruled out
    assert "max_batch_size" not in findings.metrics


def test_where_two_images_do_not_fit_there_is_no_line_and_the_search_stays_at_one():
    bench, device, findings = fake_bench(memory=FIXED + PER_IMAGE + 50)
    device.room = lambda held, limit: 10**9
    measure_inference(bench, FakeWork(device, saturating), a_job(fit_memory=10**6))
    assert findings.metrics["best_batch_size"].value == 1
    assert "max_batch_size" not in findings.metrics
    assert "max_batch_size:unverified" in findings.flags


class NeedsTwo(FakeWork):
    """Work that one image alone is refused in, as batch norm refuses it in training."""

    def at(self, batch_size: int) -> Call:
        if batch_size == 1:
            raise ValueError("Expected more than 1 value per channel when training")
        return super().at(batch_size)


def test_training_that_one_image_is_too_few_for_is_searched_from_two():
    bench, device, findings = fake_bench()
    request = a_job(phase="training", batch_size=None, fit_memory=FIXED + 3 * PER_IMAGE)
    measure_training(bench, NeedsTwo(device, saturating), request)
    assert findings.environment["smallest_batch"].startswith("2, since 1 fails: ValueError: Expected more than 1 value")
    assert findings.environment["train_search_curve"].startswith("2:")
    assert findings.metrics["train_max_batch_size"].value == 3


def test_where_not_even_the_two_images_that_training_needs_fit_the_largest_batch_is_zero():
    bench, device, findings = fake_bench()
    request = a_job(phase="training", batch_size=4, fit_memory=FIXED + PER_IMAGE)
    measure_training(bench, NeedsTwo(device, saturating), request)
    assert findings.metrics["train_max_batch_size"].value == 0


def test_work_that_fails_with_two_images_as_well_fails_with_its_own_error():
    bench, device, _ = fake_bench()

    def seconds(batch: int) -> float:
        raise ValueError(f"not with {batch}")

    with pytest.raises(ValueError, match="not with 2"):
        measure_training(bench, FakeWork(device, seconds), a_job(phase="training", batch_size=None))


@pytest.mark.parametrize(("budget", "largest"), [(1.0, 2), (2.0, 4), (20.0, 32)])
def test_memory_passes_stay_within_the_budget(budget, largest):
    bench, device, _ = fake_bench(budget)
    work = FakeWork(device, lambda batch: 0.1 * batch, fixed=10_000, per_image=100, always=100)
    start = device.clock.now()
    memory = bench.memory_by_batch(work, smallest=1)
    assert memory.measured_to == largest
    assert device.clock.now() - start <= budget


def test_a_model_of_which_no_image_fits_raises_what_the_device_raised():
    bench, device, findings = fake_bench(memory=FIXED)
    with pytest.raises(RuntimeError, match="needs 1100 of 1000 bytes"):
        measure_inference(bench, FakeWork(device, saturating), a_job())
    assert findings.metrics == {}


def test_a_crash_in_the_search_keeps_the_latency():
    bench, device, findings = fake_bench()

    def seconds(batch: int) -> float:
        if batch == 8:
            raise ZeroDivisionError
        return 0.01

    with pytest.raises(ZeroDivisionError):
        measure_inference(bench, FakeWork(device, seconds), a_job(batch_size=8))
    assert findings.step == "throughput"
    assert "latency_p50" in findings.metrics
    assert "throughput" not in findings.metrics


def test_a_device_that_throttles_is_flagged():
    bench, device, findings = fake_bench()
    hot = FakeWork(device, lambda batch: 0.5, (1.0 + 0.02 * max(0, n - 10) for n in range(10**4)))
    measure_inference(bench, hot, a_job(batch_size=1))
    assert "latency:drift" in findings.flags


def test_a_high_quantile_is_given_with_its_interval_or_not_at_all_and_the_record_says_what_it_needs():
    bench, device, findings = fake_bench()
    measure_inference(bench, FakeWork(device, lambda batch: 0.5), a_job(batch_size=1))
    assert findings.metrics["latency_p90"].high is not None
    assert "latency_p99" not in findings.metrics
    why = findings.environment["latency_p99_missing"]
    assert why == "40 of the 368 calls that its interval needs; --budget 46 is enough"
    with_budget, device, found = fake_bench(budget=46)
    measure_inference(with_budget, FakeWork(device, lambda batch: 0.5), a_job(batch_size=1))
    assert found.metrics["latency_p99"].low is not None
    assert found.metrics["latency_p99"].high is not None
    assert not [key for key in found.environment if key.endswith("_missing")]


def test_the_budget_that_a_missing_quantile_needs_allows_for_calls_that_other_programs_slow_down():
    bench, device, findings = fake_bench(budget=1)
    slow = itertools.cycle((1, 1, 1, 1, 100))
    measure_inference(bench, FakeWork(device, lambda batch: 0.01, slow), a_job(batch_size=1))
    why = str(findings.environment["latency_p99_missing"])
    enough = int(why.partition("--budget ")[2].split()[0])
    assert enough == 20
    with_budget, device, found = fake_bench(budget=enough)
    slow = itertools.cycle((1, 1, 1, 1, 100))
    measure_inference(with_budget, FakeWork(device, lambda batch: 0.01, slow), a_job(batch_size=1))
    assert "latency_p99" in found.metrics


def test_latency_may_take_four_budgets_where_that_is_enough_for_p99_and_no_longer_where_it_is_not():
    def seconds_of_latency(per_call: float) -> float:
        bench, device, _ = fake_bench(budget=1.0)
        work = FakeWork(device, lambda batch: per_call)
        measure_inference(bench, work, a_job(batch_size=2))
        return per_call * work.calls.count(1)

    assert 3.6 < seconds_of_latency(0.010) < 4.5
    assert seconds_of_latency(0.015) < 2.0


def test_the_largest_batch_beyond_what_was_measured_comes_from_a_verified_line():
    bench, device, findings = fake_bench()
    measure_inference(bench, FakeWork(device, saturating), a_job(batch_size=1, fit_memory=FIXED + 777 * PER_IMAGE))
    found = findings.metrics["max_batch_size"]
    assert (found.value, found.low, found.high) == (777, 777, 777)
    assert "verified at 4" in found.method


def test_the_largest_batch_within_what_was_measured_is_measured():
    bench, device, findings = fake_bench()
    measure_inference(bench, FakeWork(device, saturating), a_job(batch_size=1, fit_memory=FIXED + 3 * PER_IMAGE))
    found = findings.metrics["max_batch_size"]
    assert found.value == 3
    assert found.method.startswith("measured")


def test_energy_carbon_and_money_of_inference_are_those_of_one_image():
    bench, device, findings = fake_bench()
    bench = type(bench)(device, device.clock, bench.channel, bench.budget, energy=FakeMeter(device.clock))
    request = a_job(batch_size=4, grid_intensity=360.0, price_per_hour=3.6)
    measure_inference(bench, FakeWork(device, lambda batch: 0.1 * batch), request)
    assert findings.metrics["energy_per_image"].value == pytest.approx(50 * 0.1)
    assert findings.metrics["energy_per_image"].method.startswith("counter: fake")
    assert findings.metrics["carbon_per_image"].value == pytest.approx(5.0 / 3.6e6 * 360)
    assert findings.metrics["money_per_image"].value == pytest.approx(0.1 * 3.6 / 3600)


def test_without_a_meter_no_energy_and_no_carbon_is_put_down():
    bench, device, findings = fake_bench()
    measure_inference(bench, FakeWork(device, saturating), a_job(batch_size=4, grid_intensity=400.0))
    assert not {"energy_per_image", "carbon_per_image"} & findings.metrics.keys()


@pytest.mark.parametrize("failing", ["start", "stop"])
@pytest.mark.parametrize("phase", ["inference", "training"])
def test_a_meter_that_fails_is_flagged_and_everything_else_is_measured(phase, failing):
    bench, device, findings = fake_bench()
    meter = FakeMeter(device.clock)

    def fail():
        raise EnergyError("the tracker gave nothing")

    setattr(meter, failing, fail)
    bench = type(bench)(device, device.clock, bench.channel, bench.budget, energy=meter)
    measured = measure_inference if phase == "inference" else measure_training
    measured(bench, FakeWork(device, saturating), a_job(phase=phase, grid_intensity=400.0))
    assert {"inference_memory_best_batch", "train_memory"} & findings.metrics.keys()
    assert not [name for name in findings.metrics if "energy" in name or "carbon" in name]
    assert "energy:failed" in findings.flags
    assert findings.environment["energy_failure"] == "the tracker gave nothing"


def test_work_that_fails_while_its_energy_is_measured_is_no_failure_of_the_meter():
    bench, device, _ = fake_bench()
    bench = type(bench)(device, device.clock, bench.channel, bench.budget, energy=FakeMeter(device.clock))

    def crash():
        raise torch.OutOfMemoryError("too large")

    with pytest.raises(torch.OutOfMemoryError):
        bench.energy_per_image("energy", Call(crash, ()), 4)


def test_a_counter_that_stands_still_gives_no_energy():
    bench, device, findings = fake_bench()
    meter = FakeMeter(device.clock)
    meter.stop = lambda: 0.0
    bench = type(bench)(device, device.clock, bench.channel, bench.budget, energy=meter)
    measure_inference(bench, FakeWork(device, saturating), a_job(batch_size=4))
    assert "energy_per_image" not in findings.metrics


def test_a_training_step_at_a_given_batch_is_timed_as_it_is_and_the_epoch_by_accumulation():
    bench, device, findings = fake_bench()
    request = a_job(phase="training", batch_size=8, epoch_images=36_000, reference_batch=80, price_per_hour=2.0)
    measure_training(bench, FakeWork(device, lambda batch: 0.1 + 0.05 * batch), request)
    value = {name: reading.value for name, reading in findings.metrics.items()}
    assert value["train_step_time"] == pytest.approx(0.5)
    assert value["train_throughput"] == pytest.approx(16)
    assert value["train_memory"] == FIXED + 8 * PER_IMAGE
    # 10 times forward and backward of 0.4 s and one update of 0.1 s make a step of 80 images; 450 of them an epoch.
    assert value["train_hours_per_epoch"] == pytest.approx(450 * 4.1 / 3600)
    assert value["train_money_per_epoch"] == pytest.approx(2 * 450 * 4.1 / 3600)
    assert "by accumulation, extrapolated from a step of 8" in findings.metrics["train_hours_per_epoch"].method
    assert "extrapolated" not in findings.metrics["train_step_time"].method


def test_the_memory_at_the_reference_batch_is_extrapolated_by_the_exact_line_and_says_so():
    bench, device, findings = fake_bench()
    measure_training(bench, FakeWork(device, lambda batch: 0.01), a_job(phase="training", batch_size=8))
    found = findings.metrics["train_memory_reference_batch"]
    assert found.value == FIXED + 2048 * PER_IMAGE
    assert 0.98 * found.value < found.low < found.value <= found.high <= 1.2 * found.value
    assert "extrapolated to batch size 2048" in found.method


def test_the_memory_at_the_reference_batch_is_the_measured_one_if_that_is_the_batch():
    bench, device, findings = fake_bench()
    request = a_job(phase="training", batch_size=8, reference_batch=8)
    measure_training(bench, FakeWork(device, lambda batch: 0.01), request)
    found = findings.metrics["train_memory_reference_batch"]
    assert found.value == found.low == found.high == findings.metrics["train_memory"].value
    assert "extrapolated" not in found.method


def test_the_extrapolated_memory_of_a_real_step_is_what_a_step_of_that_size_takes():
    cpu, findings = find_device("cpu"), Findings()
    bench = Bench(cpu, WallClock(), Channel(findings.take), budget=0.01)
    work = Training(
        build("vit_xs4", "training", 32, 10), 32, cpu.torch_device, Precision.named("fp32", "cpu"), False, "lamb"
    )
    measure_training(bench, work, a_job(name="vit_xs4", phase="training", batch_size=4, reference_batch=64))
    found = findings.metrics["train_memory_reference_batch"]
    assert found.value == pytest.approx(bench.peak(work, 64).allocated, rel=1e-3)


def test_a_training_step_at_the_best_batch_is_one_of_the_reference_batch_by_accumulation():
    bench, device, findings = fake_bench()
    work = FakeWork(device, lambda batch: 0.1 + 0.05 * batch * (1 + max(0, batch - 32)))
    measure_training(bench, work, a_job(phase="training", batch_size=None, reference_batch=320))
    batch = findings.environment["train_batch_size"]
    assert 20 <= batch <= 40
    assert findings.conditions["micro_batch_size"] == batch
    once = work.seconds(batch) - 0.1
    assert findings.metrics["train_step_time"].value == pytest.approx(once * 320 / batch + 0.1)
    assert "extrapolated" in findings.metrics["train_step_time"].method


@pytest.mark.parametrize("batch_size", [1, None])
def test_a_step_that_is_hardly_more_than_its_update_is_not_multiplied(batch_size):
    bench, device, findings = fake_bench()
    work = FakeWork(device, lambda batch: 0.102 * batch**2)  # of one image the update takes 0.1 s
    measure_training(bench, work, a_job(phase="training", batch_size=batch_size, price_per_hour=1.0))
    assert "update:unresolved" in findings.flags
    assert not {"train_hours_per_epoch", "train_money_per_epoch"} & findings.metrics.keys()
    assert ("train_step_time" in findings.metrics) == (batch_size == 1)
    assert "train_memory" in findings.metrics


def test_the_update_counts_once_however_often_gradients_are_gathered():
    times = StepTime(8, Estimate(1.0, 0.9, 1.2), update=0.2)
    assert times.accumulated(8) == times.step
    assert times.accumulated(80).value == pytest.approx(10 * 0.8 + 0.2)
    assert times.accumulated(80).high == pytest.approx(10 * 1.0 + 0.2)


def test_a_noisy_step_over_many_batches_takes_at_least_as_long_as_over_one():
    assert StepTime(8, Estimate(1.0, 0.3, 1.5), update=0.5).accumulated(80) == Estimate(5.5, 0.3, 10.5)


def test_a_rate_has_the_interval_of_its_time_turned_round():
    assert per_second(10, Estimate(2.0, 1.0, 5.0)) == Estimate(5.0, 2.0, 10.0)


def test_the_wait_for_data_is_what_a_step_with_its_loader_takes_longer():
    clock = FakeClock()
    device = FakeDevice(clock)

    def loader():
        for batch in itertools.count():
            clock.sleep(0.3)
            yield batch

    taken = []

    def step(batch: int) -> None:
        taken.append(batch)
        device.queue(0.5)

    found = time_end_to_end(step, loader(), 0.5, device, clock, StoppingRule(budget=20))
    assert found.step_time.value == pytest.approx(0.8)
    assert found.idle_time == pytest.approx(0.3)
    assert taken == list(range(len(taken)))
