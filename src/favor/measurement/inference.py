"""Measuring inference: latency at batch size 1, throughput at the best batch size, memory, energy."""

import math
from collections.abc import Sequence
from statistics import fmean

from favor.machine.device import Peak
from favor.machine.footprint import carbon, money
from favor.machine.memory import process_peak
from favor.machine.stopping import BUDGETS_FOR_WANTED_CALLS, Estimate, least_count, quantile
from favor.measurement.bench import Bench, per_second, report_largest_batch, timing_method
from favor.measurement.job import MeasureJob
from favor.trace.workload import Call, Workload

LATENCY_SAMPLES = 100
QUANTILES = {"latency_p50": 0.5, "latency_p90": 0.9, "latency_p99": 0.99}


def measure_inference(bench: Bench, workload: Workload, job: MeasureJob) -> None:
    """Measure all of inference; every figure is sent as soon as it is known."""
    _latency(bench, workload)
    batch_size = report_memory_and_batch(bench, workload, job)
    call = workload.at(batch_size)
    timing = bench.time("throughput", call)
    throughput = per_second(batch_size, timing.quantile(0.5))
    bench.channel.found("throughput", throughput, timing_method(timing, batch_size))
    report_costs(bench, call, batch_size, throughput.value, job)
    del call
    report_memory_at_best_batch(bench, workload, batch_size, job)


def report_memory_and_batch(bench: Bench, workload: Workload, job: MeasureJob) -> int:
    """Report what one image takes; returns the batch size for the throughput, searched unless the job gives it."""
    made = "PyTorch's libraries, opening the file" if job.needs_file else "building"
    bench.channel.found("memory_process", process_peak(), f"resident peak of the process: {made}, timing at batch 1")
    if bench.knows_memory(workload):
        _memory(bench, workload)
        if job.fit_memory is not None:
            report_largest_batch(bench, workload, job.fit_memory, "max_batch_size")
    else:
        why = f"{job.runtime} does not report its memory on {bench.device.label}"
        bench.channel.environment({"inference_memory_missing": why})
    if job.batch_size is not None:
        return job.batch_size
    best = bench.search("throughput_search", workload).best
    bench.channel.found("best_batch_size", best, "searched: doubled, then refined; throughput_search_curve")
    return best


def _latency(bench: Bench, workload: Workload) -> None:
    wanted = least_count(QUANTILES["latency_p99"])
    timing = bench.time_single_calls("latency", workload.at(1), least_samples=LATENCY_SAMPLES, wanted=wanted)
    report_latency(bench, timing.seconds)


def report_latency(bench: Bench, seconds: Sequence[float]) -> None:
    """Report the quantiles; p90 and p99 only with an interval, otherwise the record says how many calls they need."""
    method = f"{len(seconds)} calls at batch size 1, each waited for; 95 % interval by ranks"
    for metric, share in QUANTILES.items():
        needed = least_count(share)
        if metric == "latency_p50" or len(seconds) >= needed:
            bench.channel.found(metric, quantile(seconds, share), method)
        else:
            budget = needed * fmean(seconds) / BUDGETS_FOR_WANTED_CALLS  # slow calls take most of the time
            why = (
                f"{len(seconds)} of the {needed} calls that its interval needs; --budget {math.ceil(budget)} is enough"
            )
            bench.channel.environment({f"{metric}_missing": why})


def _memory(bench: Bench, workload: Workload) -> None:
    bench.channel.begin("memory")
    peak = bench.peak(workload, 1)
    bench.channel.found("inference_memory", estimate_of(peak), f"{peak.method}; weights and one image included")
    if peak.reserved is not None:
        bench.channel.found("memory_reserved", peak.reserved, "the allocator's peak at batch size 1")


def report_costs(bench: Bench, call: Call, batch_size: int, throughput: float, job: MeasureJob) -> None:
    """Report money and energy per image, as far as they were asked for and can be measured."""
    if job.price_per_hour is not None:
        cost = money(1 / throughput, job.price_per_hour)
        bench.channel.found("money_per_image", cost, f"one image at {job.price_per_hour:g} an hour")
    energy = bench.energy_per_image("energy", call, batch_size)
    if energy is not None and bench.energy is not None:
        bench.channel.found("energy_per_image", energy, f"{bench.energy.method}; batch size {batch_size}")
        if job.grid_intensity is not None:
            grams = carbon(energy, job.grid_intensity)
            bench.channel.found("carbon_per_image", grams, f"one image at {job.grid_intensity:g} gCO2e/kWh")


def report_memory_at_best_batch(bench: Bench, workload: Workload, batch_size: int, job: MeasureJob) -> None:
    """Report the memory at the best batch size, if it was searched and the memory is known."""
    if job.batch_size is None and bench.knows_memory(workload):
        bench.channel.begin("memory at the best batch size")
        peak = bench.peak(workload, batch_size)
        method = f"{peak.method}; batch size {batch_size}"
        bench.channel.found("inference_memory_best_batch", estimate_of(peak), method)


def estimate_of(peak: Peak) -> Estimate:
    """A peak with the least and the most of several runs."""
    return Estimate(peak.allocated, peak.low, peak.high)
