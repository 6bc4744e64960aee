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
"""How much steeper, as a share, a line that has not shown may be for the search to end."""
LARGEST_TRIED = 1024
_CPU_ALLOCATOR_MESSAGES = ("can't allocate memory", "not enough memory")


@dataclass(frozen=True)
class BatchMemory:
    """How the peak grows with the batch size: measured `peaks` as (batch size, bytes), and their last line beyond.

    Every moment of a pass has a line of its own and the peak is the highest of them, so that a steeper one may show
    only beyond the last measurement. It cannot start below `always`, the bytes that are there at every moment, which
    is what makes it known how steep it can be. `verified` is whether the last measurement was within 1 % of the line
    through the two before it. `too_large` is the batch size that was tried and that the device does not hold.

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
        """Bytes that one more image takes, by the last line; 0 where a single measurement tells no line."""
        if len(self.peaks) == 1:
            return 0.0
        (smaller, low), (larger, high) = self.peaks[-2:]
        return (high - low) / (larger - smaller)

    @property
    def fixed(self) -> float:
        """Bytes that no image takes, by the last line."""
        batch_size, peak = self.peaks[-1]
        return peak - self.per_image * batch_size

    @property
    def steepest(self) -> float:
        """The most bytes that one more image can take in a line that has not shown."""
        return self.per_image + (self.fixed - self.always) / self.measured_to

    def largest_batch(self, memory: float) -> int | None:
        """The largest batch whose peak fits into so many bytes, by the lines; 0 where not even the smallest does.

        Between two measurements the straight line is never below the peak. None where the peak did not grow with the
        batch, so that nothing can be told.

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
        """The batch that fits even if a line that has not shown is as steep as it can be.

        >>> BatchMemory(((1, 107), (2, 114), (4, 128)), always=98, verified=True).sure_batch(170)
        9
        """
        by_lines = self.largest_batch(memory)
        if by_lines is None or by_lines <= self.measured_to:
            return by_lines
        return max(self.measured_to, min(by_lines, int((memory - self.always) // self.steepest)))


def live_tensor_peak(run: Callable[[], None], held: Iterable[Tensor]) -> int:
    """The most bytes that tensors on the CPU take at one time while `run` runs, from the allocator's own events.

    `held` are the tensors that are there before: weights, images, the optimizer's state. The figure is the same on
    every run, since it counts what is asked for, not what the system hands out.
    """
    live = peak = bytes_of(held)
    with profile(use_kineto=True, profile_memory=True) as events:
        run()
    for change in _cpu_allocations(events):
        live += change
        peak = max(peak, live)
    return peak


def _cpu_allocations(events: profile) -> list[int]:
    """The bytes of every allocation, negative when freed, in the order of time."""
    results: Any = events.kineto_results  # whose events PyTorch's stubs know only in part
    recorded = [event for event in results.events() if event.name() == "[memory]"]
    on_cpu = [event for event in recorded if event.device_type() == DeviceType.CPU]
    return [event.nbytes() for event in sorted(on_cpu, key=lambda event: event.start_ns())]


def bytes_of(tensors: Iterable[Tensor]) -> int:
    """The bytes of the storages behind tensors, each storage once."""
    storages = {tensor.untyped_storage().data_ptr(): tensor.untyped_storage().nbytes() for tensor in tensors}
    return sum(storages.values())


def process_peak() -> int:
    """The most bytes of this process that have been in main memory at one time, since it was started."""
    if sys.platform == "linux":
        # Not getrusage, whose peak begins with that of the parent from which this process was forked.
        status = Path("/proc/self/status").read_text()
        return int(status.partition("VmHWM:")[2].split()[0]) * 1024
    return resource.getrusage(resource.RUSAGE_SELF).ru_maxrss


def limit_process_memory(limit: int) -> bool:
    """Let this process's memory not grow beyond `limit` bytes; False where the system has no such limit.

    The limit is on private memory, most of which a library may have asked for without using it: what counts is what
    is added from here on.
    """
    if sys.platform != "linux":
        return False
    usage = psutil.Process().memory_info()
    room = limit - usage.rss
    if room <= 0:
        raise MemoryError(f"the memory limit of {limit} bytes is below the {usage.rss} that Python and PyTorch take")
    resource.setrlimit(resource.RLIMIT_DATA, (usage.data + room, resource.RLIM_INFINITY))
    return True


def is_out_of_memory(error: BaseException) -> bool:
    """Whether an error says that memory is exhausted, on whichever device."""
    if isinstance(error, MemoryError | torch.OutOfMemoryError):
        return True
    text = str(error)
    return isinstance(error, RuntimeError) and any(message in text for message in _CPU_ALLOCATOR_MESSAGES)


@contextmanager
def unless_it_does_not_fit(batch_size: int, smallest: int) -> Iterator[None]:
    """Turn an error that says that memory is exhausted into DoesNotFitError, except at the smallest batch."""
    try:
        yield
    except (MemoryError, RuntimeError) as error:
        if batch_size > smallest and is_out_of_memory(error):
            raise DoesNotFitError from error
        raise


def largest_measured(peak: Callable[[int], int], memory: float, fits: int, too_large: int) -> int:
    """The largest batch whose measured peak is within so many bytes, between one that fits and one that does not.

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

    A small batch may have its peak in the optimizer's update, a large one between forward and backward pass. So the
    batch is doubled until a line is verified and leaves no room for one that is much steeper. It is not doubled where
    `affordable` says that there is no time, where the line leads beyond the `room` in bytes, nor after `peak` has
    raised DoesNotFitError, which at the smallest batch is the caller's.
    """
    found = BatchMemory(((smallest, peak(smallest)),), always, verified=False)
    while not (found.verified and found.steepest <= (1 + HIDDEN) * found.per_image):
        double = 2 * found.measured_to
        predicted = found.fixed + found.per_image * double
        # The second measurement is what makes a line, so there is always time for it.
        has_line = len(found.peaks) > 1
        if predicted > room or double > LARGEST_TRIED or (has_line and not affordable(double)):
            return found
        try:
            measured = peak(double)
        except DoesNotFitError:
            return replace(found, too_large=double)
        verified = has_line and found.per_image > 0 and abs(predicted - measured) <= LINEAR * measured
        found = BatchMemory((*found.peaks, (double, measured)), always, verified)
    return found
