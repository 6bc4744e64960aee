"""From operators to the kernels of a compiled network: what `torch.compile` makes one pass over the data.

Products, attention, Fourier transforms and sorts stay calls of libraries. All that lies between them and hands tensors
on becomes one kernel, which reads what comes from outside and writes what is wanted outside.
"""

from collections import Counter, defaultdict
from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from math import prod

from favor.measure.trace import Op, Step, TensorSpec, Trace
from favor.simulate.kernels import Kernel, Recent, kernels_of_call, runs_kernels

_LIBRARIES = frozenset({"matmul", "convolution", "attention", "fourier", "sort"})
_FEW_CONVOLUTIONS = 300
_GROUPED_COST, _OTHERS_COST = 1.358, 0.8
"""What the compiler takes channels-last convolutions to cost: those with groups, and the mean of what it has for the
others. A network with more than so many operators to a convolution is left as it is."""

_CALLER = -1
"""Who reads the result of the last call: no call of the network's."""

Value = tuple[int, int]
"""A storage, and how often it had been written: what an operator in place makes of a tensor is another value."""


@dataclass(frozen=True, slots=True)
class _Call:
    """A call with the bytes of the values that it reads and writes.

    `depth` is how many library calls lie before it, one after the other. Calls that hand values on and have the same
    depth can be one kernel: no library call is between them, by any way.
    """

    op: Op
    used: tuple[int, ...]
    reads: Mapping[Value, int]
    writes: Mapping[Value, int]
    depth: int

    @property
    def is_library(self) -> bool:
        return self.op.kind in _LIBRARIES


def fused_kernels_of(steps: Sequence[Step]) -> tuple[Kernel, ...]:
    """The kernels of a trace's steps once they are compiled."""
    return tuple(_Graph(list(_calls(steps))).kernels())


def wants_channels_last(trace: Trace) -> bool:
    """Whether the compiler would lay the images out with their channels last, to spare convolutions turning them."""
    work: Counter[bool] = Counter()
    convolutions = [op for op in trace.ops if op.kind == "convolution"]
    for op in convolutions:
        data, weight = op.inputs[:2]
        is_grouped = 1 < weight.shape[1] < data.shape[1]
        work[is_grouped] += op.work.macs_matmul
    if len(trace.steps) >= _FEW_CONVOLUTIONS * len(convolutions):
        return False
    return _GROUPED_COST * work[True] + _OTHERS_COST * work[False] <= work.total()


def _calls(steps: Sequence[Step]) -> Iterator[_Call]:
    written: Counter[int] = Counter()
    depth_after: dict[Value, int] = {}
    for op, used in steps:
        if not runs_kernels(op):
            continue
        sources, targets = used[: len(op.inputs)], used[len(op.inputs) :]
        reads = _sizes(op.inputs, [(each, written[each]) for each in sources])
        written.update(set(targets))
        writes = _sizes(op.outputs, [(each, written[each]) for each in targets])
        depth = max((depth_after.get(value, 0) for value in reads), default=0)
        call = _Call(op, used, reads, writes, depth)
        depth_after |= dict.fromkeys(writes, depth + call.is_library)
        yield call


def _sizes(specs: Sequence[TensorSpec], values: Sequence[Value]) -> dict[Value, int]:
    sizes: Counter[Value] = Counter()
    for spec, value in zip(specs, values, strict=True):
        sizes[value] += prod(spec.shape) * spec.dtype.itemsize
    return sizes


class _Graph:
    """Calls, and which of them make and which read each value."""

    def __init__(self, calls: Sequence[_Call]):
        self._calls = calls
        self._producers = {value: place for place, call in enumerate(calls) for value in call.writes}
        self._consumers: defaultdict[Value, list[int]] = defaultdict(list)
        for place, call in enumerate(calls):
            for value in call.reads:
                self._consumers[value].append(place)
        for value in calls[-1].writes if calls else ():
            self._consumers[value].append(_CALLER)

    def kernels(self) -> Iterator[Kernel]:
        """All kernels, about in the order in which they run."""
        recent = Recent()
        for members in sorted(self._groups(), key=max):
            if self._calls[members[0]].is_library:
                yield from self._library_kernels(self._calls[members[0]], recent)
            else:
                yield self._fused_kernel(members, recent)

    def _groups(self) -> Iterable[list[int]]:
        """The calls that are one kernel each; a library call is by itself."""
        leader = list(range(len(self._calls)))

        def lead(place: int) -> int:
            while leader[place] != place:
                leader[place] = place = leader[leader[place]]
            return place

        for place, call in enumerate(self._calls):
            for value in call.reads:
                source = self._producers.get(value)
                if source is not None and self._is_fused_with(self._calls[source], call):
                    leader[lead(source)] = lead(place)
        groups: defaultdict[int, list[int]] = defaultdict(list)
        for place in range(len(self._calls)):
            groups[lead(place)].append(place)
        return groups.values()

    @staticmethod
    def _is_fused_with(source: _Call, call: _Call) -> bool:
        return not source.is_library and not call.is_library and source.depth == call.depth

    def _library_kernels(self, call: _Call, recent: Recent) -> Iterator[Kernel]:
        op, used = call.op, call.used
        distances = recent.touch(used, op.bytes_read + op.bytes_written)
        after = [each for value in call.writes for each in self._consumers[value]]
        is_added_later = all(each != _CALLER and not self._calls[each].is_library for each in after)
        for kernel in kernels_of_call(op, tuple(map(used.index, used[: len(op.inputs)]))):
            # A bias is added by the pass that reads the result next, where there is one.
            if kernel.group != "bias" or not is_added_later:
                yield kernel.after(distances)

    def _fused_kernel(self, members: Sequence[int], recent: Recent) -> Kernel:
        inside = set(members)
        calls = [self._calls[place] for place in members]
        read: Counter[Value] = Counter()
        for value, size in (each for call in calls for each in call.reads.items()):
            source = self._producers.get(value)
            if source not in inside:
                # Parts of a tensor are read one by one, and what is read more than once is there already.
                whole = size if source is None else max(size, self._calls[source].writes[value])
                read[value] = min(read[value] + size, whole)
        made = (each for call in calls for each in call.writes.items())
        written = sum(size for value, size in made if not inside.issuperset(self._consumers[value]))
        tensors = (spec for call in calls for spec in (*call.op.inputs, *call.op.outputs))
        used = tuple({each: None for call in calls for each in call.used})
        distances = dict(zip(used, recent.touch(used, read.total() + written), strict=True))
        reads = tuple((size, distances[storage]) for (storage, _), size in read.items())
        return Kernel("elementwise", lanes=max(prod(spec.shape) for spec in tensors), reads=reads, written=written)
