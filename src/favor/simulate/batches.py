"""One trace for every batch size: shapes, bytes and work that grow with the batch grow along a line.

Two traces of a network at two batch sizes that run the same operators say where each line lies. Where numbers are
rounded up, as the capacity of an expert is, they may still lie on lines at every eighth batch size, which a third trace
confirms. At all other batch sizes the network is traced when it is asked for.
"""

from collections.abc import Callable
from dataclasses import dataclass, fields
from functools import cached_property, lru_cache

import numpy as np

from favor.measure.rules import Work
from favor.measure.trace import Op, Storage, TensorSpec, Trace
from favor.simulate.kernels import runs_kernels

_ROUNDS = 6
EVERY = (4, 7)  # no multiples of each other, so that rounding up to a multiple shows
EIGHTHS = (8, 16)
CONFIRMED_AT = 40


class _NotALineError(Exception):
    """Two numbers with no line of whole numbers through them."""


@dataclass(frozen=True)
class _Place:
    """A batch size on the lines through two others."""

    small: int
    large: int
    batch_size: int

    def number(self, at_small: int, at_large: int) -> int:
        more, rest = divmod((at_large - at_small) * (self.batch_size - self.small), self.large - self.small)
        if rest:
            raise _NotALineError
        return at_small + more

    def rounded(self, at_small: int, at_large: int) -> int:
        """The whole number that is nearest to the line."""
        share = (self.batch_size - self.small) / (self.large - self.small)
        return at_small + round((at_large - at_small) * share)


@dataclass(frozen=True)
class _Lines:
    """The lines through the traces at two batch sizes; they hold at every `step`-th batch size."""

    small: Trace
    large: Trace
    ends: tuple[int, int]
    step: int

    def holds_at(self, batch_size: int) -> bool:
        return batch_size % self.step == 0

    def trace(self, batch_size: int) -> Trace:
        return _between(self.small, self.large, _Place(*self.ends, batch_size))

    def working_ops(self, batch_size: int) -> tuple[Op, ...]:
        place = _Place(*self.ends, batch_size)
        return tuple(_op(one, other, place) for one, other in self._working)

    @cached_property
    def _working(self) -> list[tuple[Op, Op]]:
        return [pair for pair in zip(self.small.ops, self.large.ops, strict=True) if runs_kernels(pair[0])]

    @cached_property
    def live(self) -> tuple[np.ndarray, np.ndarray]:
        """Live bytes during each operator: those of no image, and those of each."""
        first, last = self.ends
        small, large = (np.array(trace.live_bytes(), dtype=float) for trace in (self.small, self.large))
        per_image = (large - small) / (last - first)
        return small - first * per_image, per_image


@dataclass(frozen=True)
class Batches:
    """The traces of one network at all batch sizes; `trace_at` makes the one that the lines do not give."""

    trace_at: Callable[[int], Trace]

    @cached_property
    def _lines(self) -> _Lines | None:
        every = _Lines(self.trace_at(EVERY[0]), self.trace_at(EVERY[1]), EVERY, step=1)
        if _are_lines(every):
            return every
        eighths = _Lines(self.trace_at(EIGHTHS[0]), self.trace_at(EIGHTHS[1]), EIGHTHS, step=EIGHTHS[0])
        is_confirmed = _are_lines(eighths) and eighths.trace(CONFIRMED_AT) == self.trace_at(CONFIRMED_AT)
        return eighths if is_confirmed else None

    def _lines_at(self, batch_size: int) -> _Lines | None:
        return self._lines if self._lines is not None and self._lines.holds_at(batch_size) else None

    @property
    def are_lines(self) -> bool:
        """Whether the traces at all batch sizes lie on lines."""
        return self._lines_at(1) is not None

    def at(self, batch_size: int) -> Trace:
        """The trace at a batch size."""
        lines = self._lines_at(batch_size)
        return self.trace_at(batch_size) if lines is None else lines.trace(batch_size)

    def working_ops(self, batch_size: int) -> tuple[Op, ...]:
        """The operators of the trace at a batch size that run something on the device."""
        lines = self._lines_at(batch_size)
        if lines is None:
            return tuple(op for op in self.trace_at(batch_size).ops if runs_kernels(op))
        return lines.working_ops(batch_size)

    def peak_bytes(self, batch_size: int) -> int:
        """The most bytes that exist at one time at a batch size."""
        lines = self._lines_at(batch_size)
        if lines is None:
            return self.trace_at(batch_size).peak_bytes
        fixed, per_image = lines.live
        return int((fixed + per_image * batch_size).max())

    def largest_batch(self, memory: float) -> int:
        """The largest batch whose live bytes fit, of those on lines where they are; 0 where not even one image does."""
        if self._lines is None:
            return self._largest_traced(memory)
        fixed, per_image = self._lines.live
        grows = per_image > 0
        largest = int(((memory - fixed[grows]) // per_image[grows]).min()) if (fixed <= memory).all() else 0
        on_line = max(0, largest // self._lines.step * self._lines.step)
        return on_line if on_line or self._lines.step == 1 else self._largest_traced(memory)

    def _largest_traced(self, memory: float) -> int:
        """The largest batch by traces alone, each at the batch that the one before would fill the memory with."""
        small, large = (self.peak_bytes(batch_size) for batch_size in EVERY)
        per_image = max(1.0, (large - small) / (EVERY[1] - EVERY[0]))
        fixed = small - EVERY[0] * per_image
        fitting, batch_size = 0, max(1, int((memory - fixed) // per_image))
        for _ in range(_ROUNDS):
            peak = self.peak_bytes(batch_size)
            fitting = max(fitting, batch_size if peak <= memory else 0)
            following = int((memory - fixed) / (peak - fixed) * batch_size)
            if following in (fitting, batch_size):
                following = batch_size - 1 if peak > memory else fitting
            if following <= fitting:
                break
            batch_size = following
        return fitting


def _are_lines(lines: _Lines) -> bool:
    """Whether everything that the two traces state lies on lines of whole numbers at every step."""
    try:
        lines.trace(lines.ends[1] + lines.step)
    except _NotALineError:
        return False
    return True


def _between(small: Trace, large: Trace, place: _Place) -> Trace:
    if len(small.ops) != len(large.ops) or len(small.storages) != len(large.storages):
        raise _NotALineError
    return Trace(
        small.subject,
        tuple(_op(one, other, place) for one, other in zip(small.ops, large.ops, strict=True)),
        tuple(_storage(one, other, place) for one, other in zip(small.storages, large.storages, strict=True)),
        small.forward_ops,
    )


def _op(one: Op, other: Op, place: _Place) -> Op:
    if one.name != other.name or len(one.inputs) != len(other.inputs) or len(one.outputs) != len(other.outputs):
        raise _NotALineError
    return Op(
        one.name,
        one.kind,
        one.phase,
        tuple(_spec(a, b, place) for a, b in zip(one.inputs, other.inputs, strict=True)),
        tuple(_spec(a, b, place) for a, b in zip(one.outputs, other.outputs, strict=True)),
        _work(one.work, other.work, place),
        place.number(one.bytes_read, other.bytes_read),
        place.number(one.bytes_written, other.bytes_written),
    )


_WORK = tuple(field.name for field in fields(Work))


def _work(one: Work, other: Work, place: _Place) -> Work:
    # A transform's operations are N log N, rounded to a whole number at every batch size.
    number = place.rounded if one.fft_flops else place.number
    return Work(*(number(getattr(one, name), getattr(other, name)) for name in _WORK))


def _spec(one: TensorSpec, other: TensorSpec, place: _Place) -> TensorSpec:
    if one.shape == other.shape and one.strides == other.strides:
        return one
    shape, strides = (_numbers(getattr(one, name), getattr(other, name), place) for name in ("shape", "strides"))
    return TensorSpec(shape, one.dtype, one.storage, strides)


def _storage(one: Storage, other: Storage, place: _Place) -> Storage:
    return Storage(place.number(one.size, other.size), one.role, one.first, one.last, one.kept_for_backward)


@lru_cache(maxsize=65536)
def _numbers(one: tuple[int, ...], other: tuple[int, ...], place: _Place) -> tuple[int, ...]:
    if len(one) != len(other):
        raise _NotALineError
    return tuple(place.number(a, b) for a, b in zip(one, other, strict=True))
