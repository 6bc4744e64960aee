"""Traces at every batch size from one trace: shapes, bytes and work are linear in the batch size.

One trace at a huge prime batch size gives all lines: each size splits into a per-image and a constant part. Where sizes
are rounded, as the number of tokens of an expert is, they may still be linear over the multiples of eight; two traces
give those lines and a third confirms them. At all other batch sizes the model is traced on demand. So is a single
image if it may run other operators: PyTorch skips copies that a batch needs.
"""

from collections.abc import Callable, Sequence
from dataclasses import dataclass, fields, replace
from functools import cached_property, lru_cache
from typing import NamedTuple, Protocol

import numpy as np

from favor.simulation.kernels import runs_kernels
from favor.trace.operator_trace import Op, Step, Storage, TensorSpec, Trace
from favor.trace.rules import Work

MARK = 10_000_000_019
"""A prime batch size, larger than every size that does not depend on the batch: 7 * MARK + 4096 is 7 per image plus a
constant 4096. Tensors of a trace hold no memory, so it overflows only where one image takes a gigabyte."""
LONGEST = 1_000_000
"""The longest side that a tensor has without the batch. A longer one is a rounded share of the huge batch: 129 tokens
per image, distributed over 128 experts, look like one per image plus 78 million."""
EIGHTHS = (8, 16)
CONFIRMED_AT = 1000
_ROUNDS = 6


class _NotALineError(Exception):
    """Sizes that are not linear in the batch size with integer coefficients."""


class _AtBatch(Protocol):
    """Evaluates lines at one batch size, given the same size in one or more traces."""

    def __hash__(self) -> int: ...

    def size(self, traced: tuple[int, ...]) -> int:
        """The size at the batch size."""

    def rounded(self, traced: tuple[int, ...]) -> int:
        """The nearest integer to the line, for sizes that are rounded at every batch size."""


@dataclass(frozen=True)
class _Marked:
    """Evaluates lines from sizes at the batch size `MARK`.

    >>> _Marked(2).size((7 * MARK + 4096,))
    4110

    A constant part above a hundredth of the mark may be a rounded share of the batch (65 tokens per image for 64
    experts), which is not linear.
    """

    batch_size: int

    def size(self, traced: tuple[int, ...]) -> int:
        per_image, fixed = divmod(traced[0], MARK)
        if fixed > MARK // 2:
            per_image, fixed = per_image + 1, fixed - MARK
        if abs(fixed) > MARK // 100:
            raise _NotALineError
        return per_image * self.batch_size + fixed

    def rounded(self, traced: tuple[int, ...]) -> int:
        # A Fourier transform has operations per image, or transforms weights alone.
        return round(traced[0] / MARK * self.batch_size) if traced[0] >= MARK else traced[0]


@dataclass(frozen=True)
class _Between:
    """Evaluates the lines through the sizes at two batch sizes.

    >>> _Between(24).size((17, 34))
    51
    """

    batch_size: int

    def size(self, traced: tuple[int, ...]) -> int:
        (small, large), (at_small, at_large) = EIGHTHS, traced
        more, rest = divmod((at_large - at_small) * (self.batch_size - small), large - small)
        if rest:
            raise _NotALineError
        return at_small + more

    def rounded(self, traced: tuple[int, ...]) -> int:
        (small, large), (at_small, at_large) = EIGHTHS, traced
        return at_small + round((at_large - at_small) * (self.batch_size - small) / (large - small))


class _TracedStep(NamedTuple):
    """The same step in all traces."""

    ops: tuple[Op, ...]
    storages: tuple[int, ...]


@dataclass(frozen=True)
class _Lines:
    """The lines through traces, and the batch sizes at which they hold: the multiples of `step`."""

    traces: tuple[Trace, ...]
    at_batch: Callable[[int], _AtBatch]
    step: int

    @cached_property
    def hold(self) -> bool:
        """Whether all sizes of the traces are linear in the batch size."""
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

    def _steps_at(self, batch_size: int, steps: Sequence[_TracedStep]) -> tuple[Step, ...]:
        at_batch = self.at_batch(batch_size)
        ops: dict[tuple[int, ...], Op] = {}
        scaled: list[Step] = []
        for step in steps:
            key = tuple(map(id, step.ops))  # the traces keep the operators alive
            if key not in ops:
                ops[key] = _op(step.ops, at_batch)
            scaled.append((ops[key], step.storages))
        return tuple(scaled)

    @cached_property
    def _all_steps(self) -> list[_TracedStep]:
        steps = zip(*(trace.steps for trace in self.traces), strict=True)
        return [_TracedStep(tuple(op for op, _ in step), step[0][1]) for step in steps]

    @cached_property
    def _working(self) -> list[_TracedStep]:
        """The steps that run kernels."""
        return [step for step in self._all_steps if runs_kernels(step.ops[0])]

    def _storages(self, batch_size: int) -> tuple[Storage, ...]:
        at_batch = self.at_batch(batch_size)
        storages = zip(*(trace.storages for trace in self.traces), strict=True)
        return tuple(_storage(traced, at_batch) for traced in storages)

    @cached_property
    def one_differs(self) -> bool:
        """Whether one image may run other operators: it needs no copy to be contiguous, and no sum of gradients."""
        first = self.traces[0]
        return first.forward_ops < len(first.steps) or any(op.name == "aten.clone.default" for op in first.ops)

    @cached_property
    def live(self) -> tuple[np.ndarray, np.ndarray]:
        """Live bytes during each operator: the constant part and the part per image."""
        first, last = EIGHTHS
        small, large = (
            np.array(replace(self.traces[0], storages=self._storages(batch_size)).live_bytes(), dtype=float)
            for batch_size in EIGHTHS
        )
        per_image = (large - small) / (last - first)
        return small - first * per_image, per_image


@dataclass(frozen=True)
class Batches:
    """The traces of one model at all batch sizes; `trace_at` traces it where it is not linear."""

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
        """The lines from the trace at batch size `MARK`; None if it cannot be traced."""
        try:
            return _Lines((self.trace_at(MARK),), _Marked, step=1)
        except RuntimeError:
            # Large images overflow the sizes of tensors. A model that fails at every batch size fails again later.
            return None

    def _lines_at(self, batch_size: int) -> _Lines | None:
        lines = self._lines
        if lines is None or batch_size % lines.step or (batch_size == 1 and lines.one_differs):
            return None
        return lines

    @property
    def are_lines(self) -> bool:
        """Whether traces are linear at all batch sizes, apart from a single image that differs."""
        return self._lines is not None and self._lines.step == 1

    def at(self, batch_size: int) -> Trace:
        """The trace at a batch size."""
        lines = self._lines_at(batch_size)
        return self.trace_at(batch_size) if lines is None else lines.trace(batch_size)

    def working_steps(self, batch_size: int) -> tuple[Step, ...]:
        """The steps of the trace at a batch size that run kernels."""
        lines = self._lines_at(batch_size)
        if lines is None:
            return tuple(step for step in self.trace_at(batch_size).steps if runs_kernels(step[0]))
        return lines.working_steps(batch_size)

    def peak_bytes(self, batch_size: int) -> int:
        """The peak of live bytes at a batch size."""
        lines = self._lines_at(batch_size)
        if lines is None:
            return self.trace_at(batch_size).peak_bytes
        fixed, per_image = lines.live
        return int((fixed + per_image * batch_size).max())

    def largest_batch(self, memory: float) -> int:
        """The largest batch whose live bytes fit, among linear batch sizes if any fits; 0 if one image does not fit."""
        if self._lines is None:
            return self._largest_traced(memory)
        fixed, per_image = self._lines.live
        grows = per_image > 0
        largest = int(((memory - fixed[grows]) // per_image[grows]).min()) if (fixed <= memory).all() else 0
        on_line = max(0, largest // self._lines.step * self._lines.step)
        return on_line if on_line or self._lines.step == 1 else self._largest_traced(memory)

    def _largest_traced(self, memory: float) -> int:
        """The largest batch by tracing: each trace is at the batch size predicted to fill the memory."""
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


def _op(traced: Sequence[Op], at_batch: _AtBatch) -> Op:
    """An operator at a batch size, from the same operator in all traces."""
    first = traced[0]
    if len({(op.name, len(op.inputs), len(op.outputs)) for op in traced}) > 1:
        raise _NotALineError
    return Op(
        first.name,
        first.kind,
        first.phase,
        tuple(_spec(specs, at_batch) for specs in zip(*(op.inputs for op in traced), strict=True)),
        tuple(_spec(specs, at_batch) for specs in zip(*(op.outputs for op in traced), strict=True)),
        _work(tuple(op.work for op in traced), at_batch),
        at_batch.size(tuple(op.bytes_read for op in traced)),
        at_batch.size(tuple(op.bytes_written for op in traced)),
    )


_WORK = tuple(field.name for field in fields(Work))


@lru_cache(maxsize=65536)  # layers repeat
def _work(traced: tuple[Work, ...], at_batch: _AtBatch) -> Work:
    # The N log N operations of a Fourier transform are rounded to an integer at every batch size.
    evaluate = at_batch.rounded if traced[0].fft_flops else at_batch.size
    return Work(*(evaluate(tuple(getattr(work, name) for work in traced)) for name in _WORK))


def _spec(traced: Sequence[TensorSpec], at_batch: _AtBatch) -> TensorSpec:
    first = traced[0]
    shape, strides = (
        _numbers(tuple(getattr(spec, name) for spec in traced), at_batch) for name in ("shape", "strides")
    )
    return TensorSpec(shape, first.dtype, strides)


def _storage(traced: Sequence[Storage], at_batch: _AtBatch) -> Storage:
    first = traced[0]
    size = at_batch.size(tuple(storage.size for storage in traced))
    return Storage(size, first.role, first.first, first.last, first.kept_for_backward)


@lru_cache(maxsize=65536)
def _numbers(traced: tuple[tuple[int, ...], ...], at_batch: _AtBatch) -> tuple[int, ...]:
    if len({len(numbers) for numbers in traced}) > 1:
        raise _NotALineError
    return tuple(at_batch.size(numbers) for numbers in zip(*traced, strict=True))
