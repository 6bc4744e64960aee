"""From operators to the kernels of a compiled network: what `torch.compile` makes one pass over the data.

Products, attention, Fourier transforms, decompositions and sorts stay calls of libraries. All that lies between them
and hands tensors on, or reads the same one, becomes one kernel, which reads what comes from outside and writes what is
wanted outside.
"""

from collections import Counter, defaultdict
from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from math import prod

from favor.simulate.kernels import Kernel, Recent, kernels_of_call, runs_kernels
from favor.trace.operator_trace import Op, TensorSpec, Trace

_LIBRARIES = frozenset({"matmul", "convolution", "attention", "fourier", "linalg", "sort"})

_OPERATORS_PER_CONVOLUTION = 300
"""From so many on the compiler leaves the layout as it is, since there is little to gain."""
_GROUPED_COST, _OTHERS_COST = 1.358, 0.823
"""What the compiler takes convolutions of images with their channels last to cost, those with groups and most of the
others: `GraphLowering.decide_layout_opt` in PyTorch."""

Value = tuple[int, int]
"""A storage, and how often it had been written: what an operator in place makes of a tensor is another value."""


@dataclass(frozen=True, slots=True)
class _Call:
    """A call with the bytes of the values that it reads and writes.

    `depth` is how many library calls lie before it, one after the other. Calls of the same depth can be one kernel: no
    library call is between them, by any way.
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
        """What its lanes go through; of a table that it picks from, that is what it picks."""
        tensors = self.op.outputs if self.op.kind == "gather" else (*self.op.inputs, *self.op.outputs)
        return max(prod(spec.shape) for spec in tensors)


def fused_kernels_of(trace: Trace) -> tuple[Kernel, ...]:
    """The kernels of a trace once it is compiled, in an order in which they can run; its result is the last call's."""
    return tuple(_Graph(trace).kernels())


def wants_channels_last(trace: Trace) -> bool:
    """Whether the compiler would lay images out with their channels last, so that convolutions need not turn them."""
    convolutions = [op for op in trace.ops if op.kind == "convolution"]
    if len(trace.steps) >= _OPERATORS_PER_CONVOLUTION * len(convolutions):
        return False
    work: Counter[bool] = Counter()
    for op in convolutions:
        work[_is_grouped(op)] += op.work.macs_matmul
    return _GROUPED_COST * work[True] + _OTHERS_COST * work[False] <= work.total()


def _is_grouped(op: Op) -> bool:
    """Whether a convolution has groups of several channels; the weight of a transposed one is the other way round."""
    (data, weight), out = op.inputs[:2], op.outputs[0]
    return weight.shape[1] not in (1, data.shape[1], out.shape[1])


def _calls(trace: Trace) -> Iterator[_Call]:
    written: Counter[int] = Counter()
    depth_after: dict[Value, int] = {}
    for op, used in trace.steps:
        if not runs_kernels(op):
            continue
        sources, targets = used[: len(op.inputs)], used[len(op.inputs) :]
        reads = _bytes_read(op, [(each, written[each]) for each in sources])
        depth = max((depth_after.get(value, 0) for value in reads), default=0)
        written.update(set(targets))
        writes = _bytes_of(op.outputs, [(each, written[each]) for each in targets])
        call = _Call(op, used, reads, writes, depth)
        depth_after |= dict.fromkeys(writes, depth + call.is_library)
        yield call


def _bytes_read(op: Op, values: Sequence[Value]) -> dict[Value, int]:
    """The bytes of each value, no more than the trace says: of the target of a copy none, of a table what is picked.

    The target is among them all the same, since what the copy leaves of it is wanted with the rest.
    """
    targets = 1 if op.name.startswith("aten.copy_.") else 0
    asked = _bytes_of(op.inputs[targets:], values[targets:])
    share = min(1.0, op.bytes_read / max(1, sum(asked.values())))
    return dict.fromkeys(values[:targets], 0) | {value: round(share * size) for value, size in asked.items()}


def _bytes_of(specs: Sequence[TensorSpec], values: Sequence[Value]) -> dict[Value, int]:
    """The bytes of each value; what is spread along an axis is there once."""
    sizes: Counter[Value] = Counter()
    for spec, value in zip(specs, values, strict=True):
        lengths = (length for length, stride in zip(spec.shape, spec.strides, strict=True) if stride)
        sizes[value] += prod(lengths) * spec.dtype.itemsize
    return sizes


class _Graph:
    """Calls, and which of them make and which read each value."""

    def __init__(self, trace: Trace):
        self._sizes = [storage.size for storage in trace.storages]
        self._calls = list(_calls(trace))
        self._producers = {value: place for place, call in enumerate(self._calls) for value in call.writes}
        self._consumers: defaultdict[Value, list[int]] = defaultdict(list)
        for place, call in enumerate(self._calls):
            for value in call.reads:
                self._consumers[value].append(place)
        self._results = self._calls[-1].writes if self._calls else {}

    def kernels(self) -> Iterator[Kernel]:
        """All kernels, in an order in which they can run."""
        recent = Recent()
        # A library call reads what is made by calls before it, so that no group of its depth that it needs comes later.
        for members in sorted(self._groups(), key=lambda group: (self._calls[group[0]].depth, group[0])):
            first = self._calls[members[0]]
            if first.is_library:
                yield from self._library_kernels(first, recent)
            else:
                yield self._fused_kernel(members, recent)

    def _groups(self) -> Iterable[list[int]]:
        """The calls that are one kernel each; a library call is by itself."""
        leader = list(range(len(self._calls)))

        def lead(place: int) -> int:
            while leader[place] != place:
                leader[place] = place = leader[leader[place]]
            return place

        for value, readers in self._consumers.items():
            together: defaultdict[int, list[int]] = defaultdict(list)
            for place in (*readers, *([self._producers[value]] if value in self._producers else [])):
                if not self._calls[place].is_library:
                    together[self._calls[place].depth].append(place)
            for first, *others in together.values():
                for other in others:
                    leader[lead(other)] = lead(first)
        groups: defaultdict[int, list[int]] = defaultdict(list)
        for place in range(len(self._calls)):
            groups[lead(place)].append(place)
        return groups.values()

    def _library_kernels(self, call: _Call, recent: Recent) -> Iterator[Kernel]:
        op, used = call.op, call.used
        distances = recent.touch(used, op.bytes_read + op.bytes_written)
        for kernel in kernels_of_call(op, tuple(map(used.index, used[: len(op.inputs)]))):
            if kernel.group != "bias" or not self._is_read_by_passes_alone(call):
                yield kernel.after(distances)

    def _is_read_by_passes_alone(self, call: _Call) -> bool:
        """Whether whoever reads a result can add a bias to it; the caller and other libraries cannot."""
        readers = [self._calls[place] for value in call.writes for place in self._consumers[value]]
        return call.writes is not self._results and not any(reader.is_library for reader in readers)

    def _fused_kernel(self, members: Sequence[int], recent: Recent) -> Kernel:
        calls = [self._calls[place] for place in members]
        read, written = self._bytes_in(calls, set(members)), self._bytes_out(calls, set(members))
        used = tuple({each: None for call in calls for each in call.used})
        distances = dict(zip(used, recent.touch(used, read.total() + written), strict=True))
        reads = tuple((size, distances[storage]) for storage, size in read.items() if size)
        return Kernel("elementwise", lanes=max(call.elements for call in calls), reads=reads, written=written)

    def _bytes_in(self, calls: Sequence[_Call], inside: set[int]) -> Counter[int]:
        """The bytes of each storage that a kernel of some calls reads: all parts, and none of it twice."""
        read: Counter[int] = Counter()
        for call in calls:
            for value, size in call.reads.items():
                if self._producers.get(value) not in inside:
                    storage, _ = value
                    read[storage] = min(read[storage] + size, self._sizes[storage])
        return read

    def _bytes_out(self, calls: Sequence[_Call], inside: set[int]) -> int:
        """The bytes of the storages that somebody outside reads; what is written in parts or again counts once."""
        made: Counter[int] = Counter()
        wanted: set[int] = set()
        for call in calls:
            for value, size in call.writes.items():
                storage, _ = value
                made[storage] += size
                if call.writes is self._results or not inside.issuperset(self._consumers[value]):
                    wanted.add(storage)
        return sum(min(made[storage], self._sizes[storage]) for storage in wanted)
