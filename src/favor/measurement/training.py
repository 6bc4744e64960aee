"""Measuring training: the step, the hours per epoch at the reference batch, memory, energy."""

from dataclasses import dataclass, replace
from typing import Protocol

from favor.machine.footprint import carbon, money
from favor.machine.memory import LINEAR, BatchMemory, process_peak
from favor.machine.stopping import Estimate
from favor.measurement.bench import Bench, per_second, report_largest_batch, timing_method
from favor.measurement.job import MeasureJob
from favor.trace.workload import Call, Workload

MOST_OF_A_STEP = 0.95
"""The largest share of the update in a step for which the rest is extrapolated: beyond it, the rest is noise."""


class TrainingWorkload(Workload, Protocol):
    """Training steps whose optimizer update can be run alone."""

    def update_alone(self, batch_size: int) -> Call: ...


@dataclass(frozen=True)
class StepTime:
    """The time of a whole step at a batch size, and of the optimizer's update within it, in seconds."""

    batch_size: int
    step: Estimate
    update: float

    def accumulated(self, batch_size: int) -> Estimate:
        """The time of a step over more images by gradient accumulation: many batches, one update.

        >>> StepTime(8, Estimate(1.0, 0.9, 1.1), update=0.2).accumulated(16)
        Estimate(value=1.8, low=1.6, high=2.0)
        """
        repeats = batch_size / self.batch_size
        whole, least = self.step.times(repeats, plus=self.update * (1 - repeats)), self.step.low
        # With noise, the low end may be below the update; many batches take no less than one.
        return whole if whole.low is None or least is None else replace(whole, low=max(whole.low, least))

    @property
    def tells_the_update_apart(self) -> bool:
        """Whether the step is clearly longer than the update: with noise, both may seem equally long.

        >>> StepTime(1, Estimate(1.0, None, None), update=0.99).tells_the_update_apart
        False
        """
        return self.update <= MOST_OF_A_STEP * self.step.value


def measure_training(bench: Bench, workload: TrainingWorkload, job: MeasureJob) -> None:
    """Measure all of training; every figure is sent as soon as it is known."""
    batch_size = job.batch_size
    if batch_size is None:
        batch_size = bench.search("train_search", workload).best
        bench.channel.environment({"train_batch_size": batch_size})
        # A step of the reference batch accumulates them: memory at other sizes cannot be compared with it.
        bench.channel.conditions({"micro_batch_size": batch_size})
    call = workload.at(batch_size)
    timing = bench.time("train_step", call)
    update = bench.time("update", workload.update_alone(batch_size)).quantile(0.5).value
    times = StepTime(batch_size, timing.quantile(0.5), update)
    _report_times(bench, times, timing_method(timing, batch_size), job)
    process = f"resident peak of the process, building and steps of {batch_size} images"
    bench.channel.found("train_memory_process", process_peak(), process)
    energy = bench.energy_per_image("energy", call, batch_size)
    if energy is not None and bench.energy is not None:
        bench.channel.found("train_energy_per_image", energy, f"{bench.energy.method}; batch size {batch_size}")
        if job.grid_intensity is not None:
            grams = carbon(energy * job.epoch_images, job.grid_intensity)
            how = f"{_epoch(job)} at {job.grid_intensity:g} gCO2e/kWh"
            bench.channel.found("train_carbon_per_epoch", grams, how)
    del call
    _report_memory(bench, workload, batch_size, job)


def _report_times(bench: Bench, times: StepTime, method: str, job: MeasureJob) -> None:
    if job.batch_size is not None:
        bench.channel.found("train_step_time", times.step, method)
        bench.channel.found("train_throughput", per_second(times.batch_size, times.step), method)
    reference = max(job.reference_batch, times.batch_size)
    if reference > times.batch_size and not times.tells_the_update_apart:
        bench.channel.flag("update:unresolved")
        return
    at_reference = times.accumulated(reference)
    by_accumulation = f"{reference} images by accumulation, extrapolated from a step of {times.batch_size}: {method}"
    if job.batch_size is None:
        bench.channel.found("train_step_time", at_reference, by_accumulation)
        bench.channel.found("train_throughput", per_second(reference, at_reference), by_accumulation)
    hours = at_reference.times(job.epoch_images / reference / 3600)
    bench.channel.found("train_hours_per_epoch", hours, f"{_epoch(job)}, without data loading; {by_accumulation}")
    if job.price_per_hour is not None:
        cost = money(hours.value * 3600, job.price_per_hour)
        bench.channel.found("train_money_per_epoch", cost, f"{_epoch(job)} at {job.price_per_hour:g} an hour")


def _report_memory(bench: Bench, workload: TrainingWorkload, batch_size: int, job: MeasureJob) -> None:
    bench.channel.begin("memory")
    peak = bench.peak(workload, batch_size)
    what = f"weights, gradients, {job.optimizer} and {batch_size} images included"
    bench.channel.found("train_memory", peak.allocated, f"{peak.method}; {what}")
    if peak.reserved is not None:
        bench.channel.found("train_memory_reserved", peak.reserved, f"the allocator's peak at batch size {batch_size}")
    _report_reference_memory(bench, workload, batch_size, peak.allocated, job)
    if job.fit_memory is not None:
        report_largest_batch(bench, workload, job.fit_memory, "train_max_batch_size")


def _report_reference_memory(
    bench: Bench, workload: TrainingWorkload, batch_size: int, peak: int, job: MeasureJob
) -> None:
    """The memory of a step at the reference batch: as measured there, or by the line through two smaller batches."""
    if batch_size == job.reference_batch:
        measured = Estimate(peak, peak, peak)
        bench.channel.found("train_memory_reference_batch", measured, f"measured at batch size {batch_size}")
    if batch_size >= job.reference_batch:
        return
    other = batch_size // 2 if batch_size >= 2 * bench.smallest_batch(workload) else 2 * batch_size
    peaks = sorted([(batch_size, peak), (other, bench.peak(workload, other).allocated)])
    memory = BatchMemory(tuple(peaks), bench.always_held(workload, batch_size), verified=False)
    least, most = memory.peak_at(job.reference_batch)
    line = (
        f"{memory.fixed:.0f} B and {memory.per_image:.0f} B an image, from batch sizes {peaks[0][0]} and {peaks[1][0]}"
    )
    method = f"extrapolated to batch size {job.reference_batch}: {line}; high bounds what smaller batches do not show"
    # The workspaces of convolutions are not a line over the batch size.
    estimate = Estimate(least, (1 - LINEAR) * least, (1 + LINEAR) * most)
    bench.channel.found("train_memory_reference_batch", estimate, method)


def _epoch(job: MeasureJob) -> str:
    return f"an epoch of {job.epoch_images} images"
