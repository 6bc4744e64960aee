"""What both phases measure with: the device, the clock, and the meters."""

import math
from dataclasses import dataclass, replace
from typing import Protocol, runtime_checkable

from favor.machine.best_batch import Search, search_best_batch
from favor.machine.clock import Clock
from favor.machine.device import Device, Peak
from favor.machine.energy import EnergyError, EnergyMeter
from favor.machine.memory import (
    BatchMemory,
    batch_memory,
    bytes_of,
    is_out_of_memory,
    largest_measured,
    unless_it_does_not_fit,
)
from favor.machine.messages import Channel
from favor.machine.stopping import BUDGETS_FOR_WANTED_CALLS, Estimate, StoppingRule
from favor.machine.timing import Timing, seconds_per_call, time_calls, with_more_calls
from favor.text import cut_to_line
from favor.trace.workload import Call, Workload

SAMPLE_SECONDS = 0.05
SHARE_OF_ROOM = 0.9
"""The share of the free memory that a batch may be predicted to take: fragmentation costs the rest."""

LEAST_ENERGY_SECONDS = 3.0


@runtime_checkable
class FileWorkload(Workload, Protocol):
    """A workload outside of PyTorch: it measures its memory itself, and may support only some batch sizes."""

    @property
    def batch_sizes(self) -> tuple[int, ...] | None:
        """The batch sizes, each the double of the one before; None for any."""

    def peak(self, batch_size: int, *, roughly: bool) -> Peak: ...


@dataclass(frozen=True)
class Bench:
    """Makes the measurements: every figure goes through here."""

    device: Device
    clock: Clock
    channel: Channel
    budget: float
    memory_limit: int | None = None
    energy: EnergyMeter | None = None
    time_limit: float = math.inf

    def time(self, step: str, call: Call, *, least_samples: int = 10, sample_seconds: float = SAMPLE_SECONDS) -> Timing:
        """Time a call within the budget, and flag the record with the step's name where the timing is doubtful."""
        self.channel.begin(step)
        rule = StoppingRule(self.budget, least_samples=least_samples)
        timing = time_calls(call.run, self.device, self.clock, rule, sample_seconds)
        return self._flagged(step, timing)

    def time_single_calls(self, step: str, call: Call, *, least_samples: int, wanted: int) -> Timing:
        """Time single calls within the budget, or the `wanted` number of calls if four budgets are enough for them."""
        self.channel.begin(step)
        rule = StoppingRule(self.budget, least_samples=least_samples)
        timing = time_calls(call.run, self.device, self.clock, rule)
        longer = replace(rule, budget=BUDGETS_FOR_WANTED_CALLS * self.budget)
        return self._flagged(step, with_more_calls(timing, call.run, self.device, self.clock, longer, wanted))

    def _flagged(self, step: str, timing: Timing) -> Timing:
        self.channel.flag(*(f"{step}:{flag}" for flag in timing.flags))
        return timing

    def peak(self, workload: Workload, batch_size: int, *, roughly: bool = False) -> Peak:
        """The peak memory of one call after a warm-up call; `roughly` saves time where a rough value is enough."""
        self.device.release()
        if isinstance(workload, FileWorkload):
            return workload.peak(batch_size, roughly=roughly)
        call = workload.at(batch_size)
        call.run()
        return self.device.peak_of(call.run, call.held)

    def knows_memory(self, workload: Workload) -> bool:
        """Whether a peak can be measured: only PyTorch reports its memory on a GPU."""
        return self.device.kind == "cpu" or not isinstance(workload, FileWorkload)

    def smallest_batch(self, workload: Workload) -> int:
        """The smallest possible batch: 1, or 2 if a single image is refused (by batch norms in training)."""
        try:
            workload.at(1).run()
        except (RuntimeError, ValueError) as error:
            if is_out_of_memory(error):
                raise
            why = cut_to_line(f"{type(error).__name__}: {error}", longest=150)
        else:
            return 1
        self.device.release()
        workload.at(2).run()
        self.channel.environment({"smallest_batch": f"2, since 1 fails: {why}"})
        return 2

    def memory_by_batch(self, workload: Workload, smallest: int) -> BatchMemory:
        """How the peak grows with the batch size, from as many passes as budget and memory allow."""
        start = self.clock.now()
        held = workload.at(smallest).held

        def peak(batch_size: int) -> int:
            with unless_it_does_not_fit(batch_size, smallest):
                return self.peak(workload, batch_size, roughly=True).allocated

        def affordable(batch_size: int) -> bool:
            # Each pass takes about as long as all before it together.
            return 2 * (self.clock.now() - start) <= self.budget

        room = self._room(bytes_of(held))
        always = self.always_held(workload, smallest)
        return batch_memory(peak, always, affordable, smallest=smallest, room=room)

    def always_held(self, workload: Workload, batch_size: int) -> int:
        """The bytes that are allocated at every moment of a call, whatever the batch size."""
        held = workload.at(batch_size).held
        return bytes_of(held) - bytes_of(held[-1:])

    def _room(self, held: int) -> float:
        """Bytes that tensors may be predicted to take, including the `held` ones."""
        return SHARE_OF_ROOM * self.device.room(held, self.memory_limit)

    def search(self, step: str, workload: Workload) -> Search:
        """Search the best batch size within the budget and the memory, and keep the curve on the record.

        Compiling for a batch size is not part of the budget; all of it may take half the time limit.
        """
        self.channel.begin(step)
        smallest = self.smallest_batch(workload)
        limit = self._largest_to_try(workload, smallest)
        start, compiling = self.clock.now(), 0.0
        rule = search_rule(self.budget)

        def throughput(batch_size: int) -> float:
            nonlocal compiling
            self.device.release()
            with unless_it_does_not_fit(batch_size, smallest):
                began = self.clock.now()
                call = workload.at(batch_size)  # which runs a training step
                made = self.clock.now() - began
                timing = time_calls(call.run, self.device, self.clock, rule, SAMPLE_SECONDS)
            compiling += max(0.0, made + timing.first - 2 * timing.undisturbed)
            return batch_size / timing.undisturbed

        def affordable(batch_size: int, seconds: float) -> bool:
            # At least three calls: the first, one to check the warm-up, and one that is timed.
            is_within = self.clock.now() - start - compiling + 3 * seconds <= self.budget
            return is_within and compiling <= self.time_limit / 2

        sizes = workload.batch_sizes if isinstance(workload, FileWorkload) else None
        if sizes is not None:
            limit = max(sizes) if limit is None else min(limit, max(sizes))
        best = search_best_batch(
            throughput, smallest=smallest, largest=limit, affordable=affordable, powers_of_two=sizes is not None
        )
        self.channel.environment({f"{step}_curve": best.curve_text(), f"{step}_ended": best.ended})
        self.device.release()
        return best

    def _largest_to_try(self, workload: Workload, smallest: int) -> int | None:
        """The largest batch that is predicted to fit into memory; None if nothing is known to limit it."""
        if not self.knows_memory(workload):
            return None
        memory = self.memory_by_batch(workload, smallest)
        by_line = memory.largest_batch(self._room(bytes_of(workload.at(smallest).held)))
        known = [bound for bound in (by_line, memory.too_large and memory.too_large - 1) if bound is not None]
        return max(smallest, min(known)) if known else None

    def energy_per_image(self, step: str, call: Call, batch_size: int) -> float | None:
        """Joules per image over half the budget; None without a meter, or if it failed or did not advance."""
        if self.energy is None:
            return None
        self.channel.begin(step)
        try:
            joules, calls = self._joules(self.energy, call)
        except EnergyError as error:
            # Energy is an extra: without it the record is still complete, and says so.
            self.channel.flag(f"{step}:failed")
            self.channel.environment({"energy_failure": cut_to_line(str(error))})
            return None
        return joules / (calls * batch_size) if joules > 0 else None

    def _joules(self, meter: EnergyMeter, call: Call) -> tuple[float, int]:
        """The energy of the calls in half the budget, and their number."""
        window = max(LEAST_ENERGY_SECONDS, self.budget / 2)
        meter.start()
        calls, start = 0, self.clock.now()
        while calls == 0 or self.clock.now() - start < window:
            seconds_per_call(call.run, 1, self.device, self.clock)
            calls += 1
        return meter.stop(), calls


def search_rule(budget: float) -> StoppingRule:
    """The stopping rule for one batch size of a search: rough for all, since the winner is measured again."""
    return StoppingRule(budget / 20, relative_width=0.05, least_samples=3, least_seconds=0.1)


def report_largest_batch(bench: Bench, workload: Workload, limit: int, metric: str) -> None:
    """Find the largest batch that fits into so many bytes, with the method of the figure."""
    bench.channel.begin("largest batch")
    memory = bench.memory_by_batch(workload, bench.smallest_batch(workload))
    if memory.peaks[-1][1] > limit:
        largest = _largest_within_measured(bench, workload, memory, limit)
        bench.channel.found(metric, largest, "measured: its peak fits, that of one image more does not")
        return
    by_line, sure = memory.largest_batch(limit), memory.sure_batch(limit)
    line = f"{memory.fixed:.0f} B and {memory.per_image:.0f} B an image"
    if by_line is None or sure is None or not memory.verified:
        bench.channel.flag(f"{metric}:unverified")
        why = "which no third measurement confirmed within the budget and the memory of the device"
        bench.channel.environment({"batch_memory": f"{line}, {why}"})
        return
    method = f"line through exact peaks: {line}, verified at {memory.measured_to}; low fits even if memory grows faster"
    bench.channel.found(metric, Estimate(by_line, sure, by_line), method)


def _largest_within_measured(bench: Bench, workload: Workload, memory: BatchMemory, limit: int) -> int:
    fits = max((batch_size for batch_size, peak in memory.peaks if peak <= limit), default=None)
    if fits is None:
        return 0
    too_large = min(batch_size for batch_size, peak in memory.peaks if peak > limit)
    return largest_measured(lambda batch_size: bench.peak(workload, batch_size).allocated, limit, fits, too_large)


def per_second(count: float, seconds: Estimate) -> Estimate:
    """The rate of so many items in a time; the ends of its interval swap.

    >>> per_second(8, Estimate(2.0, 1.6, 4.0))
    Estimate(value=4.0, low=2.0, high=5.0)
    """
    return Estimate(
        count / seconds.value,
        None if seconds.high is None else count / seconds.high,
        None if seconds.low is None else count / seconds.low,
    )


def timing_method(timing: Timing, batch_size: int) -> str:
    """How a time was taken, in one line."""
    calls = "" if timing.calls_per_sample == 1 else f" of {timing.calls_per_sample} calls"
    return f"median of {len(timing.seconds)} sample(s){calls}, batch size {batch_size}; 95 % interval by ranks"
