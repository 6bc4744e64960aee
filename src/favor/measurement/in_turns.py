"""Inference timed in turns with other models: A, B, A, B ..., so that a noisy machine disturbs all of them alike.

A turn times single images and batches for half a second each. The record keeps what every round gave
(`environment.round_throughput`), so that two models can be compared round by round.
"""

import math
from collections.abc import Callable, Sequence

from favor.machine.environment import Glance, glance, is_busy, others_between
from favor.machine.messages import Round
from favor.machine.stopping import StoppingRule, has_drifted, least_count, quantile
from favor.machine.timing import seconds_per_call, warm_up
from favor.measurement.bench import Bench
from favor.measurement.inference import (
    report_costs,
    report_latency,
    report_memory_and_batch,
    report_memory_at_best_batch,
)
from favor.measurement.job import MeasureJob
from favor.records.rounds import rounds_text
from favor.trace.workload import Call, Workload

SECONDS_PER_PART = 0.5
LEAST_QUIET_ROUNDS = least_count(0.5)


def measure_in_turns(
    bench: Bench,
    workload: Workload,
    job: MeasureJob,
    processors: int,
    look: Callable[[], Glance] = glance,
) -> None:
    """Measure all of inference; latency and throughput in the turns that the parent grants."""
    single = workload.at(1)
    warm_up(single.run, bench.device, bench.clock, bench.budget / 4)
    batch_size = report_memory_and_batch(bench, workload, job)
    batch = workload.at(batch_size)
    seconds = warm_up(batch.run, bench.device, bench.clock, bench.budget / 4).seconds
    calls = max(1, math.ceil(SECONDS_PER_PART / seconds)) if seconds > 0 else 1
    rounds: list[Round] = []
    latencies: list[list[float]] = []
    while bench.channel.next_turn():
        before = look()
        _warm_again(bench, single, batch)
        latencies.append(_single_calls(bench, single))
        throughput = batch_size / seconds_per_call(batch.run, calls, bench.device, bench.clock)
        rounds.append(Round(throughput, quantile(latencies[-1], 0.5).value, others_between(before, look())))
        if bench.device.kind != "cpu":
            bench.device.release()  # for the others, which share its memory
        bench.channel.round(rounds[-1])
    if rounds:
        _report(bench, rounds, latencies, calls, batch_size, processors)
        report_costs(bench, batch, batch_size, quantile([turn.throughput for turn in rounds], 0.5).value, job)
    del batch
    report_memory_at_best_batch(bench, workload, batch_size, job)


def _warm_again(bench: Bench, single: Call, batch: Call) -> None:
    """Calls that do not count: meanwhile, other models have used the caches and the memory of an accelerator."""
    single.run()
    if bench.device.kind != "cpu":
        batch.run()


def _single_calls(bench: Bench, call: Call) -> list[float]:
    seconds: list[float] = []
    start = bench.clock.now()
    while not seconds or bench.clock.now() - start < SECONDS_PER_PART:
        seconds.append(seconds_per_call(call.run, 1, bench.device, bench.clock))
    return seconds


def _report(
    bench: Bench,
    rounds: Sequence[Round],
    latencies: Sequence[Sequence[float]],
    calls: int,
    batch_size: int,
    processors: int,
) -> None:
    """Report medians over the quiet rounds; if there are too few of them, over all, and flag the record."""
    busy = [number for number, turn in enumerate(rounds) if is_busy(turn.others, processors)]
    quiet = [number for number in range(len(rounds)) if number not in busy]
    used = quiet if len(quiet) >= LEAST_QUIET_ROUNDS else range(len(rounds))
    throughputs = [rounds[number].throughput for number in used]
    throughput = quantile(throughputs, 0.5)
    repeated = "" if calls == 1 else f" of {calls} calls"
    method = f"median of {len(throughputs)} rounds{repeated} in turns with other models, batch size {batch_size}"
    report_latency(bench, [seconds for number in used for seconds in latencies[number]])
    bench.channel.found("throughput", throughput, f"{method}; 95 % interval by ranks")
    raised = {
        "busy": len(quiet) < LEAST_QUIET_ROUNDS and bool(busy),
        "throughput:wide": not throughput.is_within(StoppingRule.relative_width),
        "throughput:drift": has_drifted(throughputs),
    }
    bench.channel.flag(*(flag for flag, is_raised in raised.items() if is_raised))
    bench.channel.environment(
        {
            "round_throughput": rounds_text([turn.throughput for turn in rounds]),
            "round_latency": rounds_text([turn.latency for turn in rounds]),
            "busy_rounds": " ".join(str(number + 1) for number in busy),
            "others_during": round(sum(turn.others for turn in rounds) / len(rounds), 3),
        }
    )
