"""What both phases measure with: the device, the clock, and the few things that are done with them."""

from dataclasses import dataclass

from favor.measure.best_batch import DoesNotFitError, Search, search_best_batch
from favor.measure.clock import Clock
from favor.measure.device import Device, Peak
from favor.measure.energy import EnergyMeter
from favor.measure.findings import Channel
from favor.measure.memory import BatchMemory, batch_memory, bytes_of, is_out_of_memory, largest_measured
from favor.measure.stopping import Estimate, StoppingRule
from favor.measure.timing import Timing, seconds_per_call, time_calls
from favor.measure.workload import Call, Workload

SAMPLE_SECONDS = 0.05
SHARE_OF_ROOM = 0.9
"""How much of the free memory a batch may be predicted to take: allocators lose some of it to fragments."""

LEAST_ENERGY_SECONDS = 3.0
LEAST_MEMORY_SECONDS = 20.0


@dataclass(frozen=True)
class Bench:
    """Where a measurement is made: every figure that it gives goes through here."""

    device: Device
    clock: Clock
    channel: Channel
    budget: float
    memory_limit: int | None = None
    energy: EnergyMeter | None = None

    def time(self, step: str, call: Call, *, least_samples: int = 10, sample_seconds: float = SAMPLE_SECONDS) -> Timing:
        """Time a call within the budget, and raise the flags of its timing under the step's name."""
        self.channel.begin(step)
        rule = StoppingRule(self.budget, least_samples=least_samples)
        timing = time_calls(call.run, self.device, self.clock, rule, sample_seconds)
        self.channel.flag(*(f"{step}:{flag}" for flag in timing.flags))
        return timing

    def peak(self, workload: Workload, batch_size: int) -> Peak:
        """The peak memory of one call, after one that warms up."""
        self.device.release()
        call = workload.at(batch_size)
        call.run()
        return self.device.peak_of(call.run, call.held)

    def memory_by_batch(self, workload: Workload) -> BatchMemory:
        """How the peak grows with the batch size, from as many passes as the budget holds."""
        start = self.clock.now()
        one = workload.at(1).held
        always = bytes_of(one) - bytes_of(one[-1:])

        def affordable(batch_size: int) -> bool:
            # Each pass takes about as long as all before it together.
            return 2 * (self.clock.now() - start) <= max(self.budget, LEAST_MEMORY_SECONDS)

        return batch_memory(lambda batch_size: self.peak(workload, batch_size).allocated, always, affordable)

    def room(self, workload: Workload) -> int:
        """Bytes that tensors may take, those that are there already among them."""
        return self.device.room(bytes_of(workload.at(1).held), self.memory_limit)

    def search(self, step: str, workload: Workload) -> Search:
        """Search the best batch size within the budget and the memory, and keep the curve on the record."""
        self.channel.begin(step)
        largest = self.memory_by_batch(workload).largest_batch(SHARE_OF_ROOM * self.room(workload))
        start = self.clock.now()
        rule = search_rule(self.budget)

        def throughput(batch_size: int) -> float:
            self.device.release()
            try:
                timing = time_calls(workload.at(batch_size).run, self.device, self.clock, rule, SAMPLE_SECONDS)
            except (MemoryError, RuntimeError) as error:
                if batch_size > 1 and is_out_of_memory(error):
                    raise DoesNotFitError from error
                raise
            return batch_size / timing.undisturbed

        def affordable(batch_size: int, seconds: float) -> bool:
            # It is called three times at least: for the first time, to see that it is warm, and to be timed.
            return self.clock.now() - start + 3 * seconds <= self.budget

        limit = None if largest is None else max(1, largest)
        found = search_best_batch(throughput, largest=limit, affordable=affordable)
        self.channel.environment({f"{step}_curve": found.curve_text(), f"{step}_ended": found.ended})
        self.device.release()
        return found

    def energy_per_image(self, step: str, call: Call, batch_size: int) -> float | None:
        """Joules per image over a window of half the budget; None without a meter, or if its counter stood still."""
        if self.energy is None:
            return None
        self.channel.begin(step)
        window = max(LEAST_ENERGY_SECONDS, self.budget / 2)
        self.energy.start()
        calls, start = 0, self.clock.now()
        while calls == 0 or self.clock.now() - start < window:
            seconds_per_call(call.run, 1, self.device, self.clock)
            calls += 1
        joules = self.energy.stop()
        return joules / (calls * batch_size) if joules > 0 else None


def search_rule(budget: float) -> StoppingRule:
    """When the timing of one batch size in a search stops: all are measured roughly, only the winner well."""
    return StoppingRule(budget / 20, relative_width=0.05, least_samples=3, least_seconds=0.1)


def report_largest_batch(bench: Bench, workload: Workload, limit: int) -> None:
    """Find the largest batch that fits into so many bytes, and say on what the figure rests."""
    bench.channel.begin("largest batch")
    memory = bench.memory_by_batch(workload)
    if memory.peaks[-1][1] > limit:
        largest = _largest_within_measured(bench, workload, memory, limit)
        bench.channel.found("max_batch_size", largest, "measured: its peak fits, that of one image more does not")
        return
    by_line, sure = memory.largest_batch(limit), memory.sure_batch(limit)
    line = f"{memory.fixed:.0f} B and {memory.per_image:.0f} B an image"
    if by_line is None or sure is None or not memory.verified:
        bench.channel.flag("max_batch_size:unverified")
        bench.channel.environment({"batch_memory": f"{line}, which no third measurement confirmed within the budget"})
        return
    method = f"line through exact peaks: {line}, verified at {memory.measured_to}; low fits whatever has not shown"
    bench.channel.found("max_batch_size", Estimate(by_line, sure, by_line), method)


def _largest_within_measured(bench: Bench, workload: Workload, memory: BatchMemory, limit: int) -> int:
    fits = max((batch_size for batch_size, peak in memory.peaks if peak <= limit), default=0)
    too_large = min(batch_size for batch_size, peak in memory.peaks if peak > limit)
    return largest_measured(lambda batch_size: bench.peak(workload, batch_size).allocated, limit, fits, too_large)


def per_second(count: float, seconds: Estimate) -> Estimate:
    """The rate of so many in a time, whose interval turns round.

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
