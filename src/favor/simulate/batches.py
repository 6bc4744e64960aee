"""One trace for every batch size: shapes, bytes and work that grow with the batch grow along a line.

Two traces of a network at two batch sizes that run the same operators say where each line lies. Where a number does
not lie on a line of whole numbers, or the operators differ, the network is traced at the batch size that is asked for.
"""

from collections.abc import Callable
from dataclasses import dataclass, fields
from functools import cached_property, lru_cache

import numpy as np

from favor.measure.rules import Work
from favor.measure.trace import Op, Storage, TensorSpec, Trace

_ROUNDS = 6

SMALL, LARGE = 4, 7  # no multiples of each other, so that rounding up to a multiple shows


class _NotALineError(Exception):
    """Two numbers with no line of whole numbers through them."""


@dataclass(frozen=True)
class Batches:
    """The traces of one network at all batch sizes; `trace_at` makes the one that the lines do not give."""

    trace_at: Callable[[int], Trace]

    @cached_property
    def _ends(self) -> tuple[Trace, Trace]:
        return self.trace_at(SMALL), self.trace_at(LARGE)

    @cached_property
    def are_lines(self) -> bool:
        """Whether everything that the two traces state lies on lines."""
        try:
            _between(*self._ends, 2 * LARGE)
        except _NotALineError:
            return False
        return True

    def at(self, batch_size: int) -> Trace:
        """The trace at a batch size."""
        return _between(*self._ends, batch_size) if self.are_lines else self.trace_at(batch_size)

    def peak_bytes(self, batch_size: int) -> int:
        """The most bytes that exist at one time at a batch size."""
        if not self.are_lines:
            return self.trace_at(batch_size).peak_bytes
        fixed, per_image = self._live
        return int((fixed + per_image * batch_size).max())

    def largest_batch(self, memory: float) -> int:
        """The largest batch whose live bytes fit; 0 where not even one image does."""
        fixed, per_image = self._live
        if not self.are_lines:
            return self._largest_traced(memory, fixed.max(), per_image.max())
        if (fixed + per_image > memory).any():
            return 0
        grows = per_image > 0
        return int(((memory - fixed[grows]) // per_image[grows]).min())

    def _largest_traced(self, memory: float, fixed: float, per_image: float) -> int:
        """The largest batch by traces alone, each at the batch that the one before would fill the memory with."""
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

    @cached_property
    def _live(self) -> tuple[np.ndarray, np.ndarray]:
        """Live bytes during each operator: those of no image, and those of each."""
        small, large = (np.array(trace.live_bytes(), dtype=float) for trace in self._ends)
        if len(small) != len(large):  # no lines: the peaks alone say how memory grows
            small, large = small.max(keepdims=True), large.max(keepdims=True)
        per_image = (large - small) / (LARGE - SMALL)
        return small - SMALL * per_image, per_image


def _between(small: Trace, large: Trace, batch_size: int) -> Trace:
    """The trace at a batch size on the lines through two traces."""
    if len(small.ops) != len(large.ops) or len(small.storages) != len(large.storages):
        raise _NotALineError
    return Trace(
        small.subject,
        tuple(_op(one, other, batch_size) for one, other in zip(small.ops, large.ops, strict=True)),
        tuple(_storage(one, other, batch_size) for one, other in zip(small.storages, large.storages, strict=True)),
        small.forward_ops,
    )


def _op(one: Op, other: Op, batch_size: int) -> Op:
    if one.name != other.name or len(one.inputs) != len(other.inputs) or len(one.outputs) != len(other.outputs):
        raise _NotALineError
    return Op(
        one.name,
        one.kind,
        one.phase,
        tuple(_spec(a, b, batch_size) for a, b in zip(one.inputs, other.inputs, strict=True)),
        tuple(_spec(a, b, batch_size) for a, b in zip(one.outputs, other.outputs, strict=True)),
        Work(*(_line(getattr(one.work, name), getattr(other.work, name), batch_size) for name in _WORK)),
        _line(one.bytes_read, other.bytes_read, batch_size),
        _line(one.bytes_written, other.bytes_written, batch_size),
    )


_WORK = tuple(field.name for field in fields(Work))


def _spec(one: TensorSpec, other: TensorSpec, batch_size: int) -> TensorSpec:
    if one.shape == other.shape and one.strides == other.strides:
        return one
    return TensorSpec(
        _lines(one.shape, other.shape, batch_size),
        one.dtype,
        one.storage,
        _lines(one.strides, other.strides, batch_size),
    )


def _storage(one: Storage, other: Storage, batch_size: int) -> Storage:
    size = _line(one.size, other.size, batch_size)
    return Storage(size, one.role, one.first, one.last, one.kept_for_backward)


@lru_cache(maxsize=65536)
def _lines(one: tuple[int, ...], other: tuple[int, ...], batch_size: int) -> tuple[int, ...]:
    if len(one) != len(other):
        raise _NotALineError
    return tuple(_line(a, b, batch_size) for a, b in zip(one, other, strict=True))


def _line(at_small: int, at_large: int, batch_size: int) -> int:
    """The number at a batch size on the line through those at the two."""
    slope, rest = divmod(at_large - at_small, LARGE - SMALL)
    if rest:
        raise _NotALineError
    return at_small + slope * (batch_size - SMALL)
