"""One trace for every batch size: shapes, bytes and work that grow with the batch grow along a line.

One trace says where each line lies. It is made at a batch size so large that every number tells its two parts: what it
has of every image, and what of none. Where numbers are rounded, as the tokens of an expert are, they may still lie on
lines at every eighth batch size, which two traces give and a third confirms. At all other batch sizes the network is
traced when it is asked for, and at one image where that may be another pass: PyTorch saves copies that many need.
"""

from collections.abc import Callable, Sequence
from dataclasses import dataclass, fields, replace
from functools import cached_property, lru_cache
from typing import NamedTuple, Protocol

import numpy as np

from favor.simulate.kernels import runs_kernels
from favor.trace.operator_trace import Op, Step, Storage, TensorSpec, Trace
from favor.trace.rules import Work

MARK = 10_000_000_019
"""A prime batch size, larger than all that does not depend on the batch: 7 * MARK + 4096 is 7 for every image and 4096
more. Tensors of a trace hold no memory, so that it is too large only where one image takes a gigabyte."""
LONGEST = 1_000_000
"""No tensor has a longer side without the batch. What seems to is a rounded share of the marked batch: 129 tokens an
image, dealt out to 128 experts, are one for every image and 78 million more."""
EIGHTHS = (8, 16)
CONFIRMED_AT = 1000
_ROUNDS = 6


class _NotALineError(Exception):
    """Numbers with no line of whole numbers through them."""


class _Place(Protocol):
    """A batch size on lines that are told by the same number in one trace or more."""

    def __hash__(self) -> int: ...

    def number(self, told: tuple[int, ...]) -> int:
        """The number at the batch size."""

    def rounded(self, told: tuple[int, ...]) -> int:
        """The whole number that is nearest to the line, for numbers that are rounded at every batch size."""


@dataclass(frozen=True)
class _Marked:
    """A batch size on the lines that numbers at the marked batch tell.

    >>> _Marked(2).number((7 * MARK + 4096,))
    4110

    A number with more of no image than a hundredth of the mark may be a rounded share of the batch (65 tokens an image
    for 64 experts), which is on no line.
    """

    batch_size: int

    def number(self, told: tuple[int, ...]) -> int:
        per_image, fixed = divmod(told[0], MARK)
        if fixed > MARK // 2:
            per_image, fixed = per_image + 1, fixed - MARK
        if abs(fixed) > MARK // 100:
            raise _NotALineError
        return per_image * self.batch_size + fixed

    def rounded(self, told: tuple[int, ...]) -> int:
        # A transform has operations for every image, or is one of weights alone.
        return round(told[0] / MARK * self.batch_size) if told[0] >= MARK else told[0]


@dataclass(frozen=True)
class _Between:
    """A batch size on the lines through the numbers at two others.

    >>> _Between(24).number((17, 34))
    51
    """

    batch_size: int

    def number(self, told: tuple[int, ...]) -> int:
        (small, large), (at_small, at_large) = EIGHTHS, told
        more, rest = divmod((at_large - at_small) * (self.batch_size - small), large - small)
        if rest:
            raise _NotALineError
        return at_small + more

    def rounded(self, told: tuple[int, ...]) -> int:
        (small, large), (at_small, at_large) = EIGHTHS, told
        return at_small + round((at_large - at_small) * (self.batch_size - small) / (large - small))


class _Told(NamedTuple):
    """A step as all traces tell it."""

    ops: tuple[Op, ...]
    used: tuple[int, ...]


@dataclass(frozen=True)
class _Lines:
    """The lines that traces tell, and the batch sizes at which they hold: the multiples of `step`."""

    traces: tuple[Trace, ...]
    place: Callable[[int], _Place]
    step: int

    @cached_property
    def hold(self) -> bool:
        """Whether everything that the traces state lies on lines."""
        try:
            without_images = self._without_images
        except _NotALineError:
            return False
        specs = (spec for op in set(without_images.ops) for spec in (*op.inputs, *op.outputs))
        return all(abs(side) <= LONGEST for spec in specs for side in spec.shape)

    @cached_property
    def _without_images(self) -> Trace:
        return self.trace(0)

    def trace(self, batch_size: int) -> Trace:
        if len({(len(trace.steps), len(trace.storages)) for trace in self.traces}) > 1:
            raise _NotALineError
        steps = self._steps_at(batch_size, self._all_steps)
        return replace(self.traces[0], steps=steps, storages=self._storages(batch_size))

    def working_steps(self, batch_size: int) -> tuple[Step, ...]:
        return self._steps_at(batch_size, self._working)

    def _steps_at(self, batch_size: int, steps: Sequence[_Told]) -> tuple[Step, ...]:
        place = self.place(batch_size)
        made: dict[tuple[int, ...], Op] = {}
        found: list[Step] = []
        for step in steps:
            key = tuple(map(id, step.ops))  # of operators that the traces hold
            if key not in made:
                made[key] = _op(step.ops, place)
            found.append((made[key], step.used))
        return tuple(found)

    @cached_property
    def _all_steps(self) -> list[_Told]:
        every = zip(*(trace.steps for trace in self.traces), strict=True)
        return [_Told(tuple(op for op, _ in told), told[0][1]) for told in every]

    @cached_property
    def _working(self) -> list[_Told]:
        """The steps that run something."""
        return [step for step in self._all_steps if runs_kernels(step.ops[0])]

    def _storages(self, batch_size: int) -> tuple[Storage, ...]:
        place = self.place(batch_size)
        storages = zip(*(trace.storages for trace in self.traces), strict=True)
        return tuple(_storage(told, place) for told in storages)

    @cached_property
    def one_differs(self) -> bool:
        """Whether one image may be another pass: it needs no copy into order that it is in, and no sum of gradients."""
        first = self.traces[0]
        return first.forward_ops < len(first.steps) or any(op.name == "aten.clone.default" for op in first.ops)

    @cached_property
    def live(self) -> tuple[np.ndarray, np.ndarray]:
        """Live bytes during each operator: those of no image, and those of each."""
        first, last = EIGHTHS
        small, large = (
            np.array(replace(self.traces[0], storages=self._storages(batch_size)).live_bytes(), dtype=float)
            for batch_size in EIGHTHS
        )
        per_image = (large - small) / (last - first)
        return small - first * per_image, per_image


@dataclass(frozen=True)
class Batches:
    """The traces of one network at all batch sizes; `trace_at` makes the one that the lines do not give."""

    trace_at: Callable[[int], Trace]

    @cached_property
    def _lines(self) -> _Lines | None:
        every = self._marked_lines()
        if every is not None and every.hold:
            return every
        eighths = _Lines((self.trace_at(EIGHTHS[0]), self.trace_at(EIGHTHS[1])), _Between, step=EIGHTHS[0])
        is_confirmed = eighths.hold and eighths.trace(CONFIRMED_AT) == self.trace_at(CONFIRMED_AT)
        return eighths if is_confirmed else None

    def _marked_lines(self) -> _Lines | None:
        """The lines that the marked batch tells; None where it cannot be traced."""
        try:
            return _Lines((self.trace_at(MARK),), _Marked, step=1)
        except RuntimeError:
            # Large images overflow the sizes of tensors there. What fails at every batch size fails again, and is told.
            return None

    def _lines_at(self, batch_size: int) -> _Lines | None:
        lines = self._lines
        if lines is None or batch_size % lines.step or (batch_size == 1 and lines.one_differs):
            return None
        return lines

    @property
    def are_lines(self) -> bool:
        """Whether the traces at all batch sizes lie on lines, but for that of one image where it differs."""
        return self._lines is not None and self._lines.step == 1

    def at(self, batch_size: int) -> Trace:
        """The trace at a batch size."""
        lines = self._lines_at(batch_size)
        return self.trace_at(batch_size) if lines is None else lines.trace(batch_size)

    def working_steps(self, batch_size: int) -> tuple[Step, ...]:
        """The steps of the trace at a batch size that run something on the device."""
        lines = self._lines_at(batch_size)
        if lines is None:
            return tuple(step for step in self.trace_at(batch_size).steps if runs_kernels(step[0]))
        return lines.working_steps(batch_size)

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
        small, large = (self.peak_bytes(batch_size) for batch_size in EIGHTHS)
        per_image = max(1.0, (large - small) / (EIGHTHS[1] - EIGHTHS[0]))
        fixed = small - EIGHTHS[0] * per_image
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


def _op(told: Sequence[Op], place: _Place) -> Op:
    """An operator at a place, from what it is in every trace."""
    one = told[0]
    if len({(op.name, len(op.inputs), len(op.outputs)) for op in told}) > 1:
        raise _NotALineError
    return Op(
        one.name,
        one.kind,
        one.phase,
        tuple(_spec(specs, place) for specs in zip(*(op.inputs for op in told), strict=True)),
        tuple(_spec(specs, place) for specs in zip(*(op.outputs for op in told), strict=True)),
        _work(tuple(op.work for op in told), place),
        place.number(tuple(op.bytes_read for op in told)),
        place.number(tuple(op.bytes_written for op in told)),
    )


_WORK = tuple(field.name for field in fields(Work))


@lru_cache(maxsize=65536)  # layers repeat
def _work(told: tuple[Work, ...], place: _Place) -> Work:
    # A transform's operations are N log N, rounded to a whole number at every batch size.
    number = place.rounded if told[0].fft_flops else place.number
    return Work(*(number(tuple(getattr(work, name) for work in told)) for name in _WORK))


def _spec(told: Sequence[TensorSpec], place: _Place) -> TensorSpec:
    one = told[0]
    shape, strides = (_numbers(tuple(getattr(spec, name) for spec in told), place) for name in ("shape", "strides"))
    return TensorSpec(shape, one.dtype, strides)


def _storage(told: Sequence[Storage], place: _Place) -> Storage:
    one = told[0]
    size = place.number(tuple(storage.size for storage in told))
    return Storage(size, one.role, one.first, one.last, one.kept_for_backward)


@lru_cache(maxsize=65536)
def _numbers(told: tuple[tuple[int, ...], ...], place: _Place) -> tuple[int, ...]:
    if len({len(numbers) for numbers in told}) > 1:
        raise _NotALineError
    return tuple(place.number(numbers) for numbers in zip(*told, strict=True))
