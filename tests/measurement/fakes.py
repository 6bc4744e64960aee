"""A clock that tests turn, a device that does nothing but take time and memory, and work that runs on both."""

from collections.abc import Callable, Iterable
from itertools import chain, repeat

import torch
from torch import Tensor

from favor.machine.device import Peak
from favor.machine.messages import Channel, Findings
from favor.measurement.bench import Bench
from favor.trace.workload import Call


class FakeClock:
    """Time passes only when someone lets it."""

    def __init__(self) -> None:
        self.time = 100.0

    def now(self) -> float:
        return self.time

    def sleep(self, seconds: float) -> None:
        self.time += seconds


class FakeDevice:
    """A device of so many bytes; work is queued and takes its time when the device is waited for, as on a GPU."""

    kind = "fake"
    name = "Fake Device 1"
    label = "fake1"
    torch_device = torch.device("cpu")

    def __init__(self, clock: FakeClock, memory: int = 10**6) -> None:
        self.clock, self.memory = clock, memory
        self.queued = 0.0
        self.synchronized = 0

    def queue(self, seconds: float) -> None:
        self.queued += seconds

    def synchronize(self) -> None:
        self.clock.sleep(self.queued)
        self.queued = 0.0
        self.synchronized += 1

    def peak_of(self, run: Callable[[], None], held: Iterable[Tensor]) -> Peak:
        self.allocated = 0
        run()
        self.synchronize()
        return Peak(self.allocated, None, "fake")

    def total_memory(self) -> int:
        return self.memory

    def free_memory(self) -> int:
        return self.memory

    def room(self, held: int, limit: int | None) -> int:
        return min(self.memory, limit or self.memory)

    def release(self) -> None:
        self.queued = 0.0

    def limit_memory(self, limit: int) -> str | None:
        return None


class FakeWork:
    """Calls that take `seconds(batch)` times the next factor, and `fixed + batch * per_image` bytes.

    Of the fixed bytes `always` are there between calls, too: all of them unless told.
    """

    def __init__(
        self,
        device: FakeDevice,
        seconds: Callable[[int], float],
        factors: Iterable[float] = (),
        fixed: int = 1000,
        per_image: int = 100,
        always: int | None = None,
    ) -> None:
        self.device, self.seconds, self.fixed, self.per_image = device, seconds, fixed, per_image
        self.always = fixed if always is None else always
        self.factors = chain(factors, repeat(1.0))
        self.calls: list[int] = []

    def at(self, batch_size: int) -> Call:
        def run() -> None:
            needed = self.fixed + batch_size * self.per_image
            if needed > self.device.memory:
                raise torch.OutOfMemoryError(f"needs {needed} of {self.device.memory} bytes")
            self.device.allocated = needed
            self.calls.append(batch_size)
            self.device.queue(self.seconds(batch_size) * next(self.factors))

        # What is always there, and the images last: as a real workload has it.
        return Call(run, (torch.empty(self.always, dtype=torch.uint8), torch.empty(0, dtype=torch.uint8)))

    def update_alone(self, batch_size: int) -> Call:
        return Call(lambda: self.device.queue(0.1), ())


def fake_bench(budget: float = 20.0, memory: int = 10**6) -> tuple[Bench, FakeDevice, Findings]:
    """A bench whose device, clock and memory are pretended, and what it finds."""
    clock, findings = FakeClock(), Findings()
    device = FakeDevice(clock, memory)
    return Bench(device, clock, Channel(findings.take), budget), device, findings
