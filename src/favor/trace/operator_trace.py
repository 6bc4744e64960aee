"""The operator trace of a model: every ATen operator that runs, its work, its bytes, and the lifetime of every storage.

Counts, memory estimates and simulations all read this trace. Tensors may be meta tensors (no weight in memory), fake
tensors on a device that is not here (`favor.trace.fake_device`), or real ones.
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
    strides: tuple[int, ...]  # the cost of a kernel depends on the memory layout


@dataclass(frozen=True, slots=True)
class Op:
    """One operator call; a view has work and bytes of 0. Equal calls share one `Op`, since models repeat layers."""

    name: str
    kind: Kind
    phase: Phase
    inputs: tuple[TensorSpec, ...]
    outputs: tuple[TensorSpec, ...]
    work: Work
    bytes_read: int
    bytes_written: int


Step = tuple[Op, tuple[int, ...]]
"""A call and its storages, those of the inputs before those of the outputs, as indices into `Trace.storages`."""


@dataclass(frozen=True, slots=True)
class Storage:
    """A block of memory, and the first and last operator during which it exists (-1: before the first)."""

    size: int
    role: Role
    first: int
    last: int
    kept_for_backward: bool = False


@dataclass(frozen=True, slots=True)
class Trace:
    """All operators of one forward pass, or of one forward and backward pass."""

    subject: str
    steps: tuple[Step, ...]
    storages: tuple[Storage, ...]
    forward_ops: int  # operators before the backward pass; all of them at inference

    @property
    def ops(self) -> tuple[Op, ...]:
        """The operator calls, without their storages."""
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
        """The peak of `live_bytes`."""
        return max(self.live_bytes(), default=0)


def trace(
    model: nn.Module,
    images: Tensor,
    *,
    training: bool = False,
    subject: str | None = None,
    backward: Backward = torch.autograd.backward,
) -> Trace:
    """Run a model once on images and record every operator.

    Inference is a forward pass in eval mode without gradients. Training is a forward pass in train mode, the cross
    entropy of the logits plus the model's extra losses, and the backward pass. Afterwards the modes of the model are
    restored and its gradients dropped.

    >>> trace(nn.Linear(4, 2, device="meta"), torch.empty(3, 4, device="meta")).ops[-1].work.macs_matmul
    24
    """
    subject = subject or type(model).__name__
    recorder = _Recorder(subject)
    recorder.assign_role((p for p in model.parameters()), "parameter")
    recorder.assign_role((b for b in model.buffers()), "buffer")
    recorder.assign_role([images], "input")
    # A forward pass that creates tensors without naming a device must create meta tensors, not real ones.
    default_device: AbstractContextManager[Any] = torch.device("meta") if images.is_meta else nullcontext()
    with _mode(model, training), torch.set_grad_enabled(training), default_device, recorder:
        forward_ops = _run(model, images, training, recorder, backward)
        storages = recorder.storages(forward_ops)
    if training:
        model.zero_grad(set_to_none=True)
    return Trace(subject, tuple(recorder.steps), storages, forward_ops)


def trace_call(run: Callable[[], object], held: Mapping[Role, Sequence[Tensor]], subject: str) -> Trace:
    """Record every operator of a call, such as an optimizer step; `held` are the tensors that exist before it.

    >>> weight = torch.empty(4, device="meta")
    >>> trace_call(lambda: weight.mul_(2.0), {"parameter": [weight]}, "scale").peak_bytes
    16
    """
    recorder = _Recorder(subject)
    for role, tensors in held.items():
        recorder.assign_role(tensors, role)
    with recorder:
        run()
    steps = tuple(recorder.steps)
    return Trace(subject, steps, recorder.storages(len(steps)), len(steps))


def _run(model: nn.Module, images: Tensor, training: bool, recorder: "_Recorder", backward: Backward) -> int:
    """Run the passes; returns the number of operators before the backward pass."""
    try:
        outputs = model(images)
        if not training:
            return len(recorder.steps)
        value = sum(take_extra_losses(model).values(), loss(outputs, images.shape[0]))
        forward_ops = len(recorder.steps)
        # Tensors that only the forward pass needs must be freed during the backward pass.
        del outputs
        recorder.phase = "backward"
        backward(value)
    except FavorError:
        raise
    except Exception as error:  # foreign code may raise anything; it is reported as the failure of the model
        raise WorkError(
            f"{recorder.subject} failed in its {recorder.phase} pass on images of {tuple(images.shape)}: "
            f"{type(error).__name__}: {error}"
        ) from error
    recorder.assign_role((p.grad for p in model.parameters() if p.grad is not None), "gradient")
    return forward_ops


def loss(outputs: object, batch_size: int) -> Tensor:
    """Cross entropy of every output that is a table of logits; the sum of all elements if there is none."""
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


# The outputs of these depend, or may depend, on values, which neither meta nor fake tensors have.
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
    # A boolean index selects as many elements as are true; other indices have a known number of elements.
    return func.overloadpacket is not aten.index or any(tensor.dtype == torch.bool for tensor in inputs[1:])


_DEVICE = torch.ops.prim.device.default


@dataclass(frozen=True, slots=True)
class _Plan:
    """How to record the calls of an operator, decided at the first; without a rule they are not recorded."""

    name: str
    rule: Rule | None
    may_need_values: bool
    shortcut: Callable[..., Any] | None


def _plan(func: OpOverload, subject: str) -> _Plan:
    # Queries of a tensor's device and notes of optimizers to the profiler run nothing.
    if func is _DEVICE or func.namespace == "profiler":
        return _Plan(str(func), None, may_need_values=False, shortcut=None)
    return _Plan(str(func), find_rule(func, subject), func.overloadpacket in _NEED_VALUES, SHORTCUTS.get(func))


class _StorageRef(weakref.ref):
    """A weak reference that knows which storage it referred to."""

    __slots__ = ("address", "index")
    address: int
    index: int


class _Recorder(EagerMode):
    """Records every operator, below autograd and autocast."""

    def __init__(self, subject: str) -> None:
        super().__init__()
        self.steps: list[Step] = []
        self.phase: Phase = "forward"
        self.subject = subject
        self._plans: dict[OpOverload, _Plan] = {}
        self._ops: dict[Op, Op] = {}
        self._index_by_address: dict[int, int] = {}
        self._references: list[_StorageRef] = []
        self._sizes: list[int] = []
        self._roles: list[Role] = []
        self._first: list[int] = []
        self._last: list[int | None] = []

    def assign_role(self, tensors: Iterator[Tensor] | Sequence[Tensor], role: Role) -> None:
        """Assign a role to the storages of tensors."""
        for tensor in tensors:
            self._roles[self._storage(tensor, "constant", -1)] = role

    def storages(self, forward_ops: int) -> tuple[Storage, ...]:
        """All storages; activations that outlive the forward pass were kept for the backward pass."""
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
            return args[0].fake_device  # autocast asks for it all the time, and PyTorch is slow to answer
        kwargs = kwargs or {}
        plan = self._plans.get(func)
        if plan is None:
            plan = self._plans[func] = _plan(func, self.subject)
        if plan.rule is None:
            return func(*args, **kwargs)
        inputs = _tensors((*args, *kwargs.values()) if kwargs else args)
        if plan.may_need_values and _needs_values(func, inputs):
            raise WorkError(
                f"{self.subject} reads the values of a tensor ({func}), which tensors without memory do not have: "
                "its work depends on the image; give it a fixed operating point, or trace it on real tensors"
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
        storages = [self._storage(tensor, "constant", -1) for tensor in inputs]
        storages += [self._storage(tensor, "activation", here) for tensor in outputs]
        self.steps.append((self._ops.setdefault(op, op), tuple(storages)))
        return result

    def _storage(self, tensor: Tensor, role: Role, first: int) -> int:
        """The index of a tensor's storage; a new storage gets the given role and first operator."""
        storage = tensor.untyped_storage()
        address = storage._cdata
        index = self._index_by_address.get(address)
        if index is None:
            index = self._index_by_address[address] = len(self._sizes)
            self._sizes.append(storage.nbytes())
            self._roles.append(role)
            self._first.append(first)
            self._last.append(None)
            reference = _StorageRef(storage, self._forget)
            reference.address, reference.index = address, index
            self._references.append(reference)
        return index

    def _forget(self, reference: Any) -> None:
        # The address will be reused by another storage.
        self._last[reference.index] = len(self.steps) - 1
        self._index_by_address.pop(reference.address, None)


def _specs(tensors: list[Tensor]) -> tuple[TensorSpec, ...]:
    return tuple([TensorSpec(tuple(tensor.shape), tensor.dtype, tensor.stride()) for tensor in tensors])


def _tensors(values: Sequence[Any]) -> list[Tensor]:
    tensors: list[Tensor] = []
    for value in values:
        if isinstance(value, Tensor):
            tensors.append(value)
        elif isinstance(value, (list, tuple)):
            tensors.extend(item for item in value if isinstance(item, Tensor))
    return tensors
