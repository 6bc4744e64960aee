"""Memory: the exact peak of live tensor bytes on a CPU, the process's peak, and the largest batch that fits."""

import math
import resource
import sys
from collections.abc import Callable, Iterable, Iterator
from contextlib import contextmanager
from dataclasses import dataclass, replace
from itertools import pairwise
from pathlib import Path
from typing import Any

import psutil
import torch
from torch import Tensor
from torch.autograd import DeviceType
from torch.autograd.profiler import profile

from favor.machine.best_batch import DoesNotFitError

LINEAR = 0.01
HIDDEN = 0.05
"""The search ends when no unseen line can be steeper by more than this share."""
LARGEST_TRIED = 1024
_CPU_ALLOCATOR_MESSAGES = ("can't allocate memory", "not enough memory")


@dataclass(frozen=True)
class BatchMemory:
    """How the peak grows with the batch size: measured `peaks` as (batch size, bytes), extrapolated by their last line.

    The bytes at each moment of a pass are a line over the batch size, and the peak is the highest line: a steeper one
    may appear only beyond the last measurement. It cannot start below `always`, the bytes that are allocated at every
    moment, which bounds its slope. `verified` is whether the last measurement was within 1 % of the line
    through the two before it. `too_large` is a batch size that was tried and did not fit.

    >>> memory = BatchMemory(((1, 107), (2, 114), (4, 128)), always=98, verified=True)
    >>> memory.per_image, memory.fixed
    (7.0, 100.0)
    """

    peaks: tuple[tuple[int, int], ...]
    always: int
    verified: bool
    too_large: int | None = None

    @property
    def measured_to(self) -> int:
        """The largest batch size that was measured."""
        return self.peaks[-1][0]

    @property
    def per_image(self) -> float:
        """Bytes per additional image, by the last line; 0 if there is only one measurement."""
        if len(self.peaks) == 1:
            return 0.0
        (smaller, low), (larger, high) = self.peaks[-2:]
        return (high - low) / (larger - smaller)

    @property
    def fixed(self) -> float:
        """Bytes that do not depend on the batch size, by the last line."""
        batch_size, peak = self.peaks[-1]
        return peak - self.per_image * batch_size

    @property
    def steepest(self) -> float:
        """The most bytes per image that an unseen line can have."""
        return self.per_image + (self.fixed - self.always) / self.measured_to

    def peak_at(self, batch_size: int) -> tuple[float, float]:
        """The peak at a batch size by the last line, and the most that an unseen line can make it.

        >>> BatchMemory(((1, 107), (2, 114), (4, 128)), always=98, verified=True).peak_at(10)
        (170.0, 173.0)
        """
        by_line = self.fixed + self.per_image * batch_size
        return by_line, max(by_line, self.always + self.steepest * batch_size)

    def largest_batch(self, memory: float) -> int | None:
        """The largest batch whose peak fits into so many bytes, by the lines; 0 if not even the smallest does.

        Between two measurements the straight line is never below the peak. None if the peak did not grow with the
        batch.

        >>> BatchMemory(((1, 107), (2, 114), (4, 128)), always=98, verified=True).largest_batch(170)
        10
        """
        if memory < self.peaks[0][1]:
            return 0
        for (smaller, low), (larger, high) in pairwise(self.peaks):
            if memory < high:
                return smaller + int((memory - low) * (larger - smaller) // (high - low))
        return int((memory - self.fixed) // self.per_image) if self.per_image > 0 else None

    def sure_batch(self, memory: float) -> int | None:
        """The batch that fits even if an unseen line is as steep as possible.

        >>> BatchMemory(((1, 107), (2, 114), (4, 128)), always=98, verified=True).sure_batch(170)
        9
        """
        by_lines = self.largest_batch(memory)
        if by_lines is None or by_lines <= self.measured_to:
            return by_lines
        return max(self.measured_to, min(by_lines, int((memory - self.always) // self.steepest)))


def live_tensor_peak(run: Callable[[], None], held: Iterable[Tensor]) -> int:
    """The peak bytes of tensors on the CPU while `run` runs, from the allocator's events.

    `held` are the tensors allocated before: weights, images, the optimizer's state. The figure is the same on
    every run, since it counts requested bytes, not what the system hands out.
    """
    live = peak = bytes_of(held)
    with profile(use_kineto=True, profile_memory=True) as events:
        run()
    for change in _cpu_allocations(events):
        live += change
        peak = max(peak, live)
    return peak


def _cpu_allocations(events: profile) -> list[int]:
    """The bytes of every allocation, negative when freed, in chronological order."""
    results: Any = events.kineto_results  # PyTorch's type stubs cover its events only in part
    recorded = [event for event in results.events() if event.name() == "[memory]"]
    on_cpu = [event for event in recorded if event.device_type() == DeviceType.CPU]
    return [event.nbytes() for event in sorted(on_cpu, key=lambda event: event.start_ns())]


def bytes_of(tensors: Iterable[Tensor]) -> int:
    """The bytes of the storages behind tensors, each storage once."""
    storages = {tensor.untyped_storage().data_ptr(): tensor.untyped_storage().nbytes() for tensor in tensors}
    return sum(storages.values())


def process_peak() -> int:
    """The peak resident memory of this process since it was started, in bytes."""
    if sys.platform == "linux":
        # Not getrusage, whose peak includes that of the parent from which this process was forked.
        status = Path("/proc/self/status").read_text()
        return int(status.partition("VmHWM:")[2].split()[0]) * 1024
    return resource.getrusage(resource.RUSAGE_SELF).ru_maxrss


def limit_process_memory(limit: int) -> bool:
    """Limit this process's memory to `limit` bytes; False if the system has no such limit.

    The limit is on private memory, most of which a library may have reserved without using it: only what is added
    from now on counts.
    """
    if sys.platform != "linux":
        return False
    usage = psutil.Process().memory_info()
    room = limit - usage.rss
    if room <= 0:
        raise MemoryError(f"the memory limit of {limit} bytes is below the {usage.rss} of Python and PyTorch")
    resource.setrlimit(resource.RLIMIT_DATA, (usage.data + room, resource.RLIM_INFINITY))
    return True


def is_out_of_memory(error: BaseException) -> bool:
    """Whether an error means that memory is exhausted, on any device."""
    if isinstance(error, MemoryError | torch.OutOfMemoryError):
        return True
    text = str(error)
    return isinstance(error, RuntimeError) and any(message in text for message in _CPU_ALLOCATOR_MESSAGES)


@contextmanager
def unless_it_does_not_fit(batch_size: int, smallest: int) -> Iterator[None]:
    """Turn an out-of-memory error into DoesNotFitError, except at the smallest batch."""
    try:
        yield
    except (MemoryError, RuntimeError) as error:
        if batch_size > smallest and is_out_of_memory(error):
            raise DoesNotFitError from error
        raise


def largest_measured(peak: Callable[[int], int], memory: float, fits: int, too_large: int) -> int:
    """The largest batch whose measured peak is within so many bytes, by bisection between `fits` and `too_large`.

    >>> largest_measured(lambda batch: 100 * batch, 1234, fits=1, too_large=64)
    12
    """
    while too_large - fits > 1:
        middle = (fits + too_large) // 2
        if peak(middle) <= memory:
            fits = middle
        else:
            too_large = middle
    return fits


def batch_memory(
    peak: Callable[[int], int],
    always: int,
    affordable: Callable[[int], bool] = lambda batch_size: True,
    *,
    smallest: int = 1,
    room: float = math.inf,
) -> BatchMemory:
    """Fit the line through the peaks of two batch sizes and verify it at their double.

    A small batch may peak in the optimizer's update, a large one between forward and backward pass. So the
    batch is doubled until a line is verified and no unseen line can be much steeper. Doubling also ends when
    `affordable` says that there is no time, when the line exceeds `room` bytes, and after `peak` has raised
    DoesNotFitError, which at the smallest batch is passed on.
    """
    memory = BatchMemory(((smallest, peak(smallest)),), always, verified=False)
    while not (memory.verified and memory.steepest <= (1 + HIDDEN) * memory.per_image):
        double = 2 * memory.measured_to
        predicted = memory.fixed + memory.per_image * double
        # A line needs two measurements, so there is always time for the second.
        has_line = len(memory.peaks) > 1
        if predicted > room or double > LARGEST_TRIED or (has_line and not affordable(double)):
            return memory
        try:
            measured = peak(double)
        except DoesNotFitError:
            return replace(memory, too_large=double)
        verified = has_line and memory.per_image > 0 and abs(predicted - measured) <= LINEAR * measured
        memory = BatchMemory((*memory.peaks, (double, measured)), always, verified)
    return memory
