"""From operators to the fused kernels of a compiled model, approximating `torch.compile`.

Matrix products, convolutions, attention, Fourier transforms, decompositions and sorts stay library calls. Connected
operators between them become one fused kernel, which reads its external inputs and writes its external outputs.
"""

from collections import Counter, defaultdict
from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from math import prod

from favor.simulation.kernels import Kernel, ReuseDistances, kernels_of_call, memory_order, runs_kernels
from favor.trace.operator_trace import Op, TensorSpec, Trace

_LIBRARIES = frozenset({"matmul", "convolution", "attention", "fourier", "linalg", "sort"})

_OPERATORS_PER_CONVOLUTION = 300
"""Above this number the compiler keeps the memory format, since there is little to gain."""
_GROUPED_COST, _OTHERS_COST = 1.358, 0.823
"""The compiler's cost factors for channels last, of grouped convolutions and of most others
(`GraphLowering.decide_layout_opt` in PyTorch)."""

Value = tuple[int, int]
"""A storage and its version: an in-place operator makes a new value."""


@dataclass(frozen=True, slots=True)
class _Call:
    """A call with the bytes of the values that it reads and writes.

    `depth` is the number of library calls on the longest path to it. Calls of the same depth can be fused: no library
    call lies between them.
    """

    op: Op
    used: tuple[int, ...]
    reads: Mapping[Value, int]
    writes: Mapping[Value, int]
    depth: int

    @property
    def is_library(self) -> bool:
        return self.op.kind in _LIBRARIES

    @property
    def elements(self) -> int:
        """The elements that CUDA cores process; for a gather, those that are gathered."""
        tensors = self.op.outputs if self.op.kind == "gather" else (*self.op.inputs, *self.op.outputs)
        return max(prod(spec.shape) for spec in tensors)


def fused_kernels_of(trace: Trace) -> tuple[Kernel, ...]:
    """The kernels of a compiled trace in a valid order; the result of the trace is that of its last call."""
    return tuple(_Graph(trace).kernels())


def wants_channels_last(trace: Trace) -> bool:
    """Whether the compiler would choose channels last, so that convolutions need no transposes."""
    convolutions = [op for op in trace.ops if op.kind == "convolution"]
    if len(trace.steps) >= _OPERATORS_PER_CONVOLUTION * len(convolutions):
        return False
    work: Counter[bool] = Counter()
    for op in convolutions:
        work[_is_grouped(op)] += op.work.macs_matmul
    return _GROUPED_COST * work[True] + _OTHERS_COST * work[False] <= work.total()


def _is_grouped(op: Op) -> bool:
    """Whether a convolution has groups of several channels; a transposed one has its weight transposed."""
    (data, weight), out = op.inputs[:2], op.outputs[0]
    return weight.shape[1] not in (1, data.shape[1], out.shape[1])


def _fused_class(calls: Sequence[_Call]) -> str:
    """The class of a fused kernel: that of the operator which the compiler finds hardest to fuse."""
    names = {name for call in calls if (name := _hard_to_fuse(call.op)) is not None}
    return next((name for name in _HARDEST_FIRST if name in names), "fused")


_HARDEST_FIRST = (
    *("fused_group_norm", "fused_reduction_long", "fused_pool", "fused_reduction", "fused_norm", "fused_transpose"),
)
_LONG = 1024
"""Sums of more numbers than the compiler keeps in registers at once."""


def _hard_to_fuse(op: Op) -> str | None:
    """The class of a fused kernel with this operator; None if it is computed element by element."""
    if op.kind == "norm":
        if "group_norm" in op.name:
            return "fused_group_norm"
        return None if "batch_norm" in op.name else "fused_norm"
    if op.kind == "softmax":
        return "fused_norm"
    if op.kind in ("pool", "resize"):
        return "fused_pool"
    if op.kind == "reduction":
        summed = prod(op.inputs[0].shape) // max(1, prod(op.outputs[0].shape))
        return "fused_reduction_long" if summed > _LONG else "fused_reduction"
    return "fused_transpose" if _changes_order(op) else None


def _changes_order(op: Op) -> bool:
    """Whether an operator reads a large tensor in another order than it writes: its reads or its writes are strided."""
    out = op.outputs[0] if op.outputs else None
    if out is None or len(out.shape) < 2:
        return False
    large = [spec for spec in op.inputs if 2 * prod(spec.shape) > prod(out.shape)]
    return any(len(spec.shape) == len(out.shape) and memory_order(spec) != memory_order(out) for spec in large)


def _calls(trace: Trace) -> Iterator[_Call]:
    written: Counter[int] = Counter()
    depth_after: dict[Value, int] = {}
    for op, used in trace.steps:
        if not runs_kernels(op):
            continue
        sources, targets = used[: len(op.inputs)], used[len(op.inputs) :]
        reads = _bytes_read(op, [(storage, written[storage]) for storage in sources])
        depth = max((depth_after.get(value, 0) for value in reads), default=0)
        written.update(set(targets))
        writes = _bytes_of(op.outputs, [(storage, written[storage]) for storage in targets])
        call = _Call(op, used, reads, writes, depth)
        depth_after |= dict.fromkeys(writes, depth + call.is_library)
        yield call


def _bytes_read(op: Op, values: Sequence[Value]) -> dict[Value, int]:
    """The bytes read of each value, at most the trace's figure: none of a copy's target, what is gathered of a table.

    The target is listed all the same, because the part that the copy does not overwrite is still needed.
    """
    targets = 1 if op.name.startswith("aten.copy_.") else 0
    asked = _bytes_of(op.inputs[targets:], values[targets:])
    share = min(1.0, op.bytes_read / max(1, sum(asked.values())))
    return dict.fromkeys(values[:targets], 0) | {value: round(share * size) for value, size in asked.items()}


def _bytes_of(specs: Sequence[TensorSpec], values: Sequence[Value]) -> dict[Value, int]:
    """The bytes of each value; a broadcast axis counts once."""
    sizes: Counter[Value] = Counter()
    for spec, value in zip(specs, values, strict=True):
        lengths = (length for length, stride in zip(spec.shape, spec.strides, strict=True) if stride)
        sizes[value] += prod(lengths) * spec.dtype.itemsize
    return sizes


class _Graph:
    """The calls, with the producer and the consumers of every value."""

    def __init__(self, trace: Trace):
        self._sizes = [storage.size for storage in trace.storages]
        self._calls = list(_calls(trace))
        self._producers = {value: index for index, call in enumerate(self._calls) for value in call.writes}
        self._consumers: defaultdict[Value, list[int]] = defaultdict(list)
        for index, call in enumerate(self._calls):
            for value in call.reads:
                self._consumers[value].append(index)
        self._results = self._calls[-1].writes if self._calls else {}

    def kernels(self) -> Iterator[Kernel]:
        """All kernels, in a valid order."""
        reuse = ReuseDistances()
        # Inputs of a library call have at most its depth and come before it, so this order is valid.
        for members in sorted(self._groups(), key=lambda group: (self._calls[group[0]].depth, group[0])):
            first = self._calls[members[0]]
            if first.is_library:
                yield from self._library_kernels(first, reuse)
            else:
                yield self._fused_kernel(members, reuse)

    def _groups(self) -> Iterable[list[int]]:
        """Groups of calls that are one kernel each; a library call is a group of its own."""
        leader = list(range(len(self._calls)))

        def lead(index: int) -> int:
            while leader[index] != index:
                leader[index] = index = leader[leader[index]]
            return index

        for value, readers in self._consumers.items():
            together: defaultdict[int, list[int]] = defaultdict(list)
            for index in (*readers, *([self._producers[value]] if value in self._producers else [])):
                if not self._calls[index].is_library:
                    together[self._calls[index].depth].append(index)
            for first, *others in together.values():
                for other in others:
                    leader[lead(other)] = lead(first)
        groups: defaultdict[int, list[int]] = defaultdict(list)
        for index in range(len(self._calls)):
            groups[lead(index)].append(index)
        return groups.values()

    def _library_kernels(self, call: _Call, reuse: ReuseDistances) -> Iterator[Kernel]:
        op, used = call.op, call.used
        distances = reuse.touch(used, op.bytes_read + op.bytes_written)
        for kernel in kernels_of_call(op, tuple(map(used.index, used[: len(op.inputs)]))):
            if kernel.group != "bias" or not self._has_only_fused_consumers(call):
                yield kernel.after(distances)

    def _has_only_fused_consumers(self, call: _Call) -> bool:
        """Whether all consumers are fused kernels, which can add the bias; the caller and library calls cannot."""
        readers = [self._calls[index] for value in call.writes for index in self._consumers[value]]
        return call.writes is not self._results and not any(reader.is_library for reader in readers)

    def _fused_kernel(self, members: Sequence[int], reuse: ReuseDistances) -> Kernel:
        calls = [self._calls[index] for index in members]
        read, written = self._bytes_in(calls, set(members)), self._bytes_out(calls, set(members))
        used = tuple({storage: None for call in calls for storage in call.used})
        distances = dict(zip(used, reuse.touch(used, read.total() + written), strict=True))
        reads = tuple((size, distances[storage]) for storage, size in read.items() if size)
        group = _fused_class(calls)
        if group == "fused_group_norm":  # statistics and result are two passes
            reads = tuple((2 * size, distance) for size, distance in reads)
        return Kernel(group, lanes=max(call.elements for call in calls), reads=reads, written=written)

    def _bytes_in(self, calls: Sequence[_Call], inside: set[int]) -> Counter[int]:
        """The bytes of each storage that a fused kernel reads, each part once."""
        read: Counter[int] = Counter()
        for call in calls:
            for value, size in call.reads.items():
                if self._producers.get(value) not in inside:
                    storage, _ = value
                    read[storage] = min(read[storage] + size, self._sizes[storage])
        return read

    def _bytes_out(self, calls: Sequence[_Call], inside: set[int]) -> int:
        """The bytes of the storages that are read outside of the kernel; repeated writes count once."""
        made: Counter[int] = Counter()
        wanted: set[int] = set()
        for call in calls:
            for value, size in call.writes.items():
                storage, _ = value
                made[storage] += size
                if call.writes is self._results or not inside.issuperset(self._consumers[value]):
                    wanted.add(storage)
        return sum(min(made[storage], self._sizes[storage]) for storage in wanted)
