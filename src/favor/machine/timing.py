"""Timing a call: warmed up until its time has settled, synchronized, repeated until the median is known."""

import gc
import math
import statistics
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager
from dataclasses import dataclass, replace
from typing import Protocol, TypeVar

from favor.machine.clock import Clock
from favor.machine.stopping import Estimate, StoppingRule, collect, has_drifted, is_met, quantile

Batch = TypeVar("Batch")

SETTLED = 0.05
MOST_WARM_UP_CALLS = 100


class Synchronizes(Protocol):
    """A device that can be synchronized."""

    def synchronize(self) -> None: ...


@dataclass(frozen=True)
class WarmUp:
    """How long a call takes after warm-up, whether its time had settled by then, and how long the first one took."""

    seconds: float
    settled: bool
    first: float


@dataclass(frozen=True)
class Timing:
    """The time of a call: one figure per sample, each the mean of `calls_per_sample` calls.

    `first` are the seconds of the very first call, which may compile; it is no sample.
    """

    seconds: tuple[float, ...]
    calls_per_sample: int
    settled: bool
    converged: bool
    first: float

    def quantile(self, share: float) -> Estimate:
        """A quantile of the samples with its 95 % interval."""
        return quantile(self.seconds, share)

    @property
    def undisturbed(self) -> float:
        """The fastest sample: other load only ever slows a call down, so this is best for comparisons."""
        return min(self.seconds)

    @property
    def flags(self) -> tuple[str, ...]:
        """Reasons to distrust the timing: `unsettled`, `wide`, `drift` (see docs/protocol.md)."""
        raised = {"unsettled": not self.settled, "wide": not self.converged, "drift": has_drifted(self.seconds)}
        return tuple(flag for flag, is_raised in raised.items() if is_raised)


def time_calls(
    run: Callable[[], None],
    device: Synchronizes,
    clock: Clock,
    rule: StoppingRule,
    sample_seconds: float = 0.0,
) -> Timing:
    """Time a call after a warm-up, which may take an extra quarter of the rule's budget.

    A sample is as many calls as take `sample_seconds`, at least one: an asynchronous device is synchronized once
    per sample.
    """
    warm = warm_up(run, device, clock, rule.budget / 4)
    calls = max(1, math.ceil(sample_seconds / warm.seconds)) if warm.seconds > 0 else 1
    with _no_garbage_collection():
        samples = collect(lambda: seconds_per_call(run, calls, device, clock), rule, clock)
    return Timing(samples.seconds, calls, warm.settled, samples.converged, warm.first)


def with_more_calls(
    timing: Timing, run: Callable[[], None], device: Synchronizes, clock: Clock, rule: StoppingRule, wanted: int
) -> Timing:
    """The timing with single calls added until it has the `wanted` number, unless they would exceed the rule's budget.

    Calls are added until the median is known well enough again. If other load slows them down, they end with the
    budget.
    """
    missing = wanted - len(timing.seconds)
    if missing <= 0 or missing * timing.quantile(0.5).value > rule.budget:
        return timing
    start, seconds = clock.now(), list(timing.seconds)
    with _no_garbage_collection():
        while clock.now() - start < rule.budget:
            if len(seconds) >= wanted and (is_met(seconds, rule) or not timing.converged):
                break
            seconds.append(seconds_per_call(run, 1, device, clock))
    return replace(timing, seconds=tuple(seconds), converged=is_met(seconds, rule))


def warm_up(run: Callable[[], None], device: Synchronizes, clock: Clock, limit: float) -> WarmUp:
    """Call until the last three times are within 5 % of the three before, or for `limit` seconds; at least twice.

    The first call does not count: it compiles, loads kernels and asks the system for memory.
    """
    first = seconds_per_call(run, 1, device, clock)
    start = clock.now()
    seconds: list[float] = []
    while True:
        seconds.append(seconds_per_call(run, 1, device, clock))
        if len(seconds) >= 6 and _settled(seconds, 3):
            return WarmUp(statistics.median(seconds[-3:]), settled=True, first=first)
        if clock.now() - start >= limit or len(seconds) >= MOST_WARM_UP_CALLS:
            # Slow calls leave only a few times to compare.
            return WarmUp(seconds[-1], settled=_settled(seconds, min(3, len(seconds) // 2)), first=first)


def _settled(seconds: Sequence[float], count: int) -> bool:
    if count == 0:
        return False
    last, before = statistics.median(seconds[-count:]), statistics.median(seconds[-2 * count : -count])
    return abs(last - before) <= SETTLED * before


def seconds_per_call(run: Callable[[], None], calls: int, device: Synchronizes, clock: Clock) -> float:
    """The mean time of a number of calls, from an idle device to an idle device."""
    device.synchronize()
    start = clock.now()
    for _ in range(calls):
        run()
    device.synchronize()
    return (clock.now() - start) / calls


@contextmanager
def _no_garbage_collection() -> Iterator[None]:
    """Turn off Python's garbage collector, which would interrupt some calls and not others."""
    gc.collect()
    gc.disable()
    try:
        yield
    finally:
        gc.enable()


@dataclass(frozen=True)
class EndToEnd:
    """A training step with its data: `step_time` includes the wait for the batch, `idle_time` is that wait."""

    step_time: Estimate
    idle_time: float


def time_end_to_end(
    step: Callable[[Batch], None],
    batches: Iterator[Batch],
    step_time: float,
    device: Synchronizes,
    clock: Clock,
    rule: StoppingRule,
) -> EndToEnd:
    """Time steps that take their batches from a loader; `step_time` is that of a step with its data in memory.

    Training calls this: the difference between the two is the time that the device waits for data. The
    loader must not run dry.
    """
    samples = collect(lambda: seconds_per_call(lambda: step(next(batches)), 1, device, clock), rule, clock)
    measured = quantile(samples.seconds, 0.5)
    return EndToEnd(measured, max(0.0, measured.value - step_time))
