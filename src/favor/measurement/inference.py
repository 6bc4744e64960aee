"""Measuring inference: latency at batch size 1, throughput at the best batch size, memory, energy."""

from favor.machine.footprint import carbon, money
from favor.machine.memory import process_peak
from favor.machine.stopping import are_too_few
from favor.measurement.bench import Bench, per_second, report_largest_batch, timing_method
from favor.measurement.job import MeasureJob
from favor.trace.workload import Workload

LATENCY_SAMPLES = 100
"""The fewest calls for a 99th percentile; slow models get as many as the budget allows, and a flag."""


def measure_inference(bench: Bench, workload: Workload, job: MeasureJob) -> None:
    """Measure all of inference; every figure is sent as soon as it is known."""
    _latency(bench, workload)
    bench.channel.found("memory_process", process_peak(), "resident peak of the process: building, timing at batch 1")
    _memory(bench, workload)
    if job.fit_memory is not None:
        report_largest_batch(bench, workload, job.fit_memory, "max_batch_size")
    batch_size = job.batch_size
    if batch_size is None:
        batch_size = bench.search("throughput_search", workload).best
        bench.channel.found("best_batch_size", batch_size, "searched: doubled, then refined; throughput_search_curve")
    _throughput(bench, workload, batch_size, job)


def _latency(bench: Bench, workload: Workload) -> None:
    timing = bench.time("latency", workload.at(1), least_samples=LATENCY_SAMPLES, sample_seconds=0.0)
    method = f"{len(timing.seconds)} calls at batch size 1, each waited for; 95 % interval by ranks"
    for metric, share in (("latency_p50", 0.5), ("latency_p90", 0.9), ("latency_p99", 0.99)):
        bench.channel.found(metric, timing.quantile(share), method)
        if are_too_few(len(timing.seconds), share):
            bench.channel.flag(f"{metric}:few")


def _memory(bench: Bench, workload: Workload) -> None:
    bench.channel.begin("memory")
    peak = bench.peak(workload, 1)
    bench.channel.found("inference_memory", peak.allocated, f"{peak.method}; weights and one image included")
    if peak.reserved is not None:
        bench.channel.found("memory_reserved", peak.reserved, "the allocator's peak at batch size 1")


def _throughput(bench: Bench, workload: Workload, batch_size: int, job: MeasureJob) -> None:
    call = workload.at(batch_size)
    timing = bench.time("throughput", call)
    throughput = per_second(batch_size, timing.quantile(0.5))
    bench.channel.found("throughput", throughput, timing_method(timing, batch_size))
    if job.price_per_hour is not None:
        cost = money(1 / throughput.value, job.price_per_hour)
        bench.channel.found("money_per_image", cost, f"one image at {job.price_per_hour:g} an hour")
    energy = bench.energy_per_image("energy", call, batch_size)
    if energy is not None and bench.energy is not None:
        bench.channel.found("energy_per_image", energy, f"{bench.energy.method}; batch size {batch_size}")
        if job.grid_intensity is not None:
            grams = carbon(energy, job.grid_intensity)
            bench.channel.found("carbon_per_image", grams, f"one image at {job.grid_intensity:g} gCO2e/kWh")
    del call
    if job.batch_size is None:
        bench.channel.begin("memory at the best batch size")
        peak = bench.peak(workload, batch_size)
        bench.channel.found("inference_memory_best_batch", peak.allocated, f"{peak.method}; batch size {batch_size}")
