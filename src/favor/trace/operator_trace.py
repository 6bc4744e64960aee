"""One operator trace per model: every ATen operator that runs, its work, its bytes, and the life of every storage.

The counter, the memory figure and the simulation all read this trace. It is made on whatever the tensors are: meta
tensors (no weight in memory), fake ones that pretend to be on a device (`favor.trace.fake_device`), or real ones.
"""

import weakref
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import AbstractContextManager, contextmanager, nullcontext
from dataclasses import dataclass
from itertools import accumulate
from typing import Any, Literal

import torch
from torch import Tensor, nn
from torch._ops import OpOverload
from torch._subclasses.fake_tensor import FakeTensor
from torch.utils._pytree import tree_leaves

from favor.errors import FavorError, WorkError
from favor.trace.dispatch import EagerMode
from favor.trace.meta_shortcuts import SHORTCUTS
from favor.trace.rules import NOTHING, Call, Kind, Rule, Work, find_rule
from favor.zoo.training import take_extra_losses

Phase = Literal["forward", "backward"]
Role = Literal["parameter", "buffer", "input", "gradient", "activation", "constant"]
Backward = Callable[[Tensor], None]

aten = torch.ops.aten


@dataclass(frozen=True, slots=True)
class TensorSpec:
    """A tensor as an operator saw it."""

    shape: tuple[int, ...]
    dtype: torch.dtype
    strides: tuple[int, ...]  # what a kernel costs depends on the order in which it finds its data


@dataclass(frozen=True, slots=True)
class Op:
    """What one operator call does; a view has work and bytes of 0.

    Calls that do the same have the same one in a trace: networks repeat their layers.
    """

    name: str
    kind: Kind
    phase: Phase
    inputs: tuple[TensorSpec, ...]
    outputs: tuple[TensorSpec, ...]
    work: Work
    bytes_read: int
    bytes_written: int


Step = tuple[Op, tuple[int, ...]]
"""A call and where it does it: the storages of its inputs and then of its outputs, as places in the trace's."""


@dataclass(frozen=True, slots=True)
class Storage:
    """A piece of memory and the first and last operator during which it was there (-1: before the first)."""

    size: int
    role: Role
    first: int
    last: int
    kept_for_backward: bool = False


@dataclass(frozen=True, slots=True)
class Trace:
    """What one forward pass, or one forward and backward pass, of a model does."""

    subject: str
    steps: tuple[Step, ...]
    storages: tuple[Storage, ...]
    forward_ops: int  # operators before the backward pass; all of them at inference

    @property
    def ops(self) -> tuple[Op, ...]:
        """What every call does."""
        return tuple(op for op, _ in self.steps)

    def live_bytes(self) -> list[int]:
        """Bytes of all storages that exist during each operator, weights and inputs included."""
        change = [0] * (len(self.steps) + 1)
        for storage in self.storages:
            if storage.last >= 0:
                change[max(storage.first, 0)] += storage.size
                change[storage.last + 1] -= storage.size
        return list(accumulate(change))[: len(self.steps)]

    @property
    def peak_bytes(self) -> int:
        """The most bytes that exist at one time."""
        return max(self.live_bytes(), default=0)


def trace(
    model: nn.Module,
    images: Tensor,
    *,
    training: bool = False,
    subject: str | None = None,
    backward: Backward = torch.autograd.backward,
) -> Trace:
    """Run a model once on images and write down every operator.

    Inference is a forward pass in eval mode without gradients; training is a forward pass in train mode, the cross
    entropy of the logits and the model's extra losses, and the backward pass. The model's modes are put back; gradients
    are dropped.

    >>> trace(nn.Linear(4, 2, device="meta"), torch.empty(3, 4, device="meta")).ops[-1].work.macs_matmul
    24
    """
    subject = subject or type(model).__name__
    recorder = _Recorder(subject)
    recorder.know((p for p in model.parameters()), "parameter")
    recorder.know((b for b in model.buffers()), "buffer")
    recorder.know([images], "input")
    # Networks that make tensors in their forward pass without naming a device would make real ones among meta ones.
    default_device: AbstractContextManager[Any] = torch.device("meta") if images.is_meta else nullcontext()
    with _mode(model, training), torch.set_grad_enabled(training), default_device, recorder:
        forward_ops = _run(model, images, training, recorder, backward)
        storages = recorder.storages(forward_ops)
    if training:
        model.zero_grad(set_to_none=True)
    return Trace(subject, tuple(recorder.steps), storages, forward_ops)


def trace_call(run: Callable[[], object], held: Mapping[Role, Sequence[Tensor]], subject: str) -> Trace:
    """Write down every operator of any other call, such as an optimizer's step; `held` are the tensors there before.

    >>> weight = torch.empty(4, device="meta")
    >>> trace_call(lambda: weight.mul_(2.0), {"parameter": [weight]}, "scale").peak_bytes
    16
    """
    recorder = _Recorder(subject)
    for role, tensors in held.items():
        recorder.know(tensors, role)
    with recorder:
        run()
    steps = tuple(recorder.steps)
    return Trace(subject, steps, recorder.storages(len(steps)), len(steps))


def _run(model: nn.Module, images: Tensor, training: bool, recorder: "_Recorder", backward: Backward) -> int:
    """Run the passes; returns how many operators came before the backward pass."""
    try:
        outputs = model(images)
        if not training:
            return len(recorder.steps)
        value = sum(take_extra_losses(model).values(), loss(outputs, images.shape[0]))
        forward_ops = len(recorder.steps)
        # What only the forward pass needed must be able to go while the backward pass runs.
        del outputs
        recorder.phase = "backward"
        backward(value)
    except FavorError:
        raise
    except Exception as error:  # the network is foreign code: whatever it raises is told as its failure
        raise WorkError(
            f"{recorder.subject} failed in its {recorder.phase} pass on images of {tuple(images.shape)}: "
            f"{type(error).__name__}: {error}"
        ) from error
    recorder.know((p.grad for p in model.parameters() if p.grad is not None), "gradient")
    return forward_ops


def loss(outputs: object, batch_size: int) -> Tensor:
    """Cross entropy of every output that is a table of logits; the sum of the elements where there is none."""
    tensors = [leaf for leaf in tree_leaves(outputs) if isinstance(leaf, Tensor) and leaf.requires_grad]
    if not tensors:
        raise WorkError("no output of the model depends on a parameter, so there is nothing to train")
    tables = [tensor for tensor in tensors if tensor.dim() == 2 and tensor.shape[0] == batch_size]
    if not tables:
        return sum((tensor.sum() for tensor in tensors[1:]), tensors[0].sum())
    logits = [table for table in tables if table.shape == tables[0].shape]
    labels = torch.zeros(batch_size, dtype=torch.long, device=logits[0].device)
    losses = [nn.functional.cross_entropy(table, labels) for table in logits]
    return sum(losses[1:], losses[0])


@contextmanager
def _mode(model: nn.Module, training: bool) -> Iterator[None]:
    before = [(module, module.training) for module in model.modules()]
    model.train(training)
    try:
        yield
    finally:
        for module, was_training in before:
            module.training = was_training


# What these put out depends, or may depend, on the values, which neither meta nor fake tensors have.
_NEED_VALUES = frozenset(
    {
        aten._local_scalar_dense,
        aten.is_nonzero,
        aten.equal,
        aten.nonzero,
        aten.masked_select,
        aten._unique2,
        aten.unique_dim,
        aten.unique_consecutive,
        aten.bincount,
        aten.index,
    }
)


def _needs_values(func: OpOverload, inputs: list[Tensor]) -> bool:
    if not any(tensor.is_meta or isinstance(tensor, FakeTensor) for tensor in inputs):
        return False
    # A mask as an index picks as many elements as are true in it; other indices pick as many as they are.
    return func.overloadpacket is not aten.index or any(tensor.dtype == torch.bool for tensor in inputs[1:])


_DEVICE = torch.ops.prim.device.default


@dataclass(frozen=True, slots=True)
class _Plan:
    """What to do at every call of an operator, found out at the first; without a rule it is not written down."""

    name: str
    rule: Rule | None
    may_need_values: bool
    shortcut: Callable[..., Any] | None


def _plan(func: OpOverload, subject: str) -> _Plan:
    # Tensors are asked for their device, and optimizers tell the profiler what they do; nothing runs.
    if func is _DEVICE or func.namespace == "profiler":
        return _Plan(str(func), None, may_need_values=False, shortcut=None)
    return _Plan(str(func), find_rule(func, subject), func.overloadpacket in _NEED_VALUES, SHORTCUTS.get(func))


class _Death(weakref.ref):
    """A weak reference that knows which storage it stood for."""

    __slots__ = ("address", "index")
    address: int
    index: int


class _Recorder(EagerMode):
    """Sees every operator below autograd and autocast, and writes it down."""

    def __init__(self, subject: str) -> None:
        super().__init__()
        self.steps: list[Step] = []
        self.phase: Phase = "forward"
        self.subject = subject
        self._plans: dict[OpOverload, _Plan] = {}
        self._ops: dict[Op, Op] = {}
        self._index_by_address: dict[int, int] = {}
        self._deaths: list[_Death] = []
        self._sizes: list[int] = []
        self._roles: list[Role] = []
        self._first: list[int] = []
        self._last: list[int | None] = []

    def know(self, tensors: Iterator[Tensor] | Sequence[Tensor], role: Role) -> None:
        """Give the storages of tensors a role."""
        for tensor in tensors:
            self._roles[self._storage(tensor, "constant", -1)] = role

    def storages(self, forward_ops: int) -> tuple[Storage, ...]:
        """All storages seen; what was alive at the end of the forward pass and used after it was kept for backward."""
        end = len(self.steps) - 1
        lasts = [end if last is None else last for last in self._last]
        return tuple(
            Storage(size, role, first, last, role == "activation" and first < forward_ops <= last)
            for size, role, first, last in zip(self._sizes, self._roles, self._first, lasts, strict=True)
        )

    def __torch_dispatch__(
        self, func: OpOverload, types: Any, args: tuple[Any, ...] = (), kwargs: dict[str, Any] | None = None
    ) -> Any:
        if func is _DEVICE and type(args[0]) is FakeTensor:
            return args[0].fake_device  # which autocast asks all the time, and PyTorch takes long to tell
        kwargs = kwargs or {}
        plan = self._plans.get(func)
        if plan is None:
            plan = self._plans[func] = _plan(func, self.subject)
        if plan.rule is None:
            return func(*args, **kwargs)
        inputs = _tensors((*args, *kwargs.values()) if kwargs else args)
        if plan.may_need_values and _needs_values(func, inputs):
            raise WorkError(
                f"{self.subject} asks for the values of a tensor ({func}), which tensors without memory do not have: "
                "its work depends on the image; give it an operating point that fixes it, or trace it on real tensors"
            )
        result = NotImplemented
        if plan.shortcut is not None and type(inputs[0]) is not FakeTensor and inputs[0].is_meta:
            result = plan.shortcut(*args, **kwargs)
        if result is NotImplemented:
            result = func(*args, **kwargs)
        outputs = _tensors(result if isinstance(result, (list, tuple)) else (result,))
        work, read, written = NOTHING, 0, 0
        if plan.rule.kind != "view":
            call = Call(args, kwargs, inputs, outputs)
            work = plan.rule.work(call)
            read, written = plan.rule.traffic(call)
        op = Op(plan.name, plan.rule.kind, self.phase, _specs(inputs), _specs(outputs), work, read, written)
        here = len(self.steps)
        places = [self._storage(tensor, "constant", -1) for tensor in inputs]
        places += [self._storage(tensor, "activation", here) for tensor in outputs]
        self.steps.append((self._ops.setdefault(op, op), tuple(places)))
        return result

    def _storage(self, tensor: Tensor, role: Role, first: int) -> int:
        """The index of a tensor's storage; a new one is entered with the role and the first operator given."""
        storage = tensor.untyped_storage()
        address = storage._cdata
        index = self._index_by_address.get(address)
        if index is None:
            index = self._index_by_address[address] = len(self._sizes)
            self._sizes.append(storage.nbytes())
            self._roles.append(role)
            self._first.append(first)
            self._last.append(None)
            death = _Death(storage, self._bury)
            death.address, death.index = address, index
            self._deaths.append(death)
        return index

    def _bury(self, death: Any) -> None:
        # An address is used again for the next storage, so it must be forgotten with the one that it belonged to.
        self._last[death.index] = len(self.steps) - 1
        self._index_by_address.pop(death.address, None)


def _specs(tensors: list[Tensor]) -> tuple[TensorSpec, ...]:
    return tuple([TensorSpec(tuple(tensor.shape), tensor.dtype, tensor.stride()) for tensor in tensors])


def _tensors(values: Sequence[Any]) -> list[Tensor]:
    found: list[Tensor] = []
    for value in values:
        if isinstance(value, Tensor):
            found.append(value)
        elif isinstance(value, (list, tuple)):
            found.extend(item for item in value if isinstance(item, Tensor))
    return found
