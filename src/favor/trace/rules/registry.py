"""The registry of rules: operator -> kind, work and memory traffic."""

from collections.abc import Callable, Iterable, Sequence
from dataclasses import dataclass
from typing import Any, Literal

import torch
from torch import Tensor
from torch._ops import OpOverload, OpOverloadPacket

from favor.errors import WorkError

Kind = Literal[
    "matmul",
    "convolution",
    "attention",
    "fourier",
    "linalg",
    "softmax",
    "norm",
    "elementwise",
    "foreach",
    "reduction",
    "pool",
    "resize",
    "sort",
    "gather",
    "scatter",
    "copy",
    "random",
    "factory",
    "view",
]


@dataclass(frozen=True, slots=True)
class Work:
    """The arithmetic of one operator call.

    >>> Work(macs_matmul=10, other_flops=3).flops
    23
    """

    macs_matmul: int = 0  # multiply-adds of matrix, convolution and attention products
    fft_flops: int = 0
    other_flops: int = 0  # every other operation on floating-point numbers
    mixed_ops: int = 0  # what the benchmark's convention adds to the multiply-adds
    activations: int = 0  # elements that matrix products and convolutions output

    @property
    def flops(self) -> int:
        """All arithmetic: a multiply-add is two."""
        return 2 * self.macs_matmul + self.fft_flops + self.other_flops


NOTHING = Work()


@dataclass(slots=True)
class Call:
    """One call of an operator as its rule sees it; `inputs` and `outputs` are its tensors, in order."""

    args: tuple[Any, ...]
    kwargs: dict[str, Any]
    inputs: list[Tensor]
    outputs: list[Tensor]

    def value(self, position: int, name: str, default: Any = None) -> Any:
        """An argument by its place in the operator's schema; arguments left at their default are not passed."""
        if position < len(self.args):
            return self.args[position]
        return self.kwargs.get(name, default)


Traffic = Callable[[Call], tuple[int, int]]
WorkOf = Callable[[Call], Work]


def tensor_bytes(tensor: Tensor) -> int:
    """Bytes of memory behind a tensor: an expanded one has no more than its storage holds."""
    return min(tensor.numel() * tensor.element_size(), tensor.untyped_storage().nbytes())


def read_all_write_all(call: Call) -> tuple[int, int]:
    """Every distinct input is read once, every output written once."""
    seen: set[int] = set()
    read = 0
    for tensor in call.inputs:
        if id(tensor) not in seen:
            seen.add(id(tensor))
            read += tensor_bytes(tensor)
    return read, sum(map(tensor_bytes, call.outputs))


def update_lists(call: Call) -> tuple[int, int]:
    """All tensors of the lists are read; those of the first are written if the operator returns nothing."""
    read, written = read_all_write_all(call)
    return read, written if call.outputs else sum(map(tensor_bytes, call.args[0]))


def write_only(call: Call) -> tuple[int, int]:
    """Outputs are written, nothing is read: factories, random numbers, fills."""
    return 0, sum(map(tensor_bytes, call.outputs))


def no_traffic(call: Call) -> tuple[int, int]:
    """Views touch no memory."""
    return 0, 0


@dataclass(frozen=True, slots=True)
class Rule:
    """The kind of an operator, its work and its memory traffic."""

    kind: Kind
    work: WorkOf
    traffic: Traffic


RULES: dict[OpOverload | OpOverloadPacket, Rule] = {}
"""The rules by operator; `add_rule` and `rule` add to them."""


def no_work(call: Call) -> Work:
    """For operators that move, make or re-label data and compute nothing."""
    return NOTHING


def add_rule(
    operators: Iterable[OpOverload | OpOverloadPacket], kind: Kind, work: WorkOf, traffic: Traffic = read_all_write_all
) -> None:
    """Register a rule for operators; a packet (`aten.add`) stands for all of its overloads that have no own rule."""
    for operator in operators:
        if operator in RULES:
            raise ValueError(f"{operator} has a rule already")
        RULES[operator] = Rule(kind, work, traffic)


def rule(
    *operators: OpOverload | OpOverloadPacket, kind: Kind, traffic: Traffic = read_all_write_all
) -> Callable[[WorkOf], WorkOf]:
    """Decorate a function from a call to its work as the rule for operators."""

    def decorate(work: WorkOf) -> WorkOf:
        add_rule(operators, kind, work, traffic)
        return work

    return decorate


def named(*names: str) -> list[OpOverloadPacket]:
    """The ATen operators of these names, with their in-place twins; names that this torch does not have are left out.

    >>> named("relu")
    [<OpOverloadPacket(op='aten.relu')>, <OpOverloadPacket(op='aten.relu_')>]
    """
    known = torch.ops.aten
    wanted = [twin for name in names for twin in (name, name + "_")]
    return [getattr(known, name) for name in wanted if hasattr(known, name)]


_VIEW = Rule("view", no_work, no_traffic)


def find_rule(operator: OpOverload, subject: str) -> Rule:
    """The rule for an operator; `subject` is the model that called it, for the error's text."""
    rule = RULES.get(operator) or RULES.get(operator.overloadpacket)
    if rule is not None:
        return rule
    if operator.is_view:  # the schema says so: the output aliases an input that is not written to
        return _VIEW
    raise WorkError(
        f"no counting rule for operator {operator}, called by {subject}; favor does not count it as zero: "
        f"add one with @favor.trace.rules.rule({operator.namespace}.{operator.overloadpacket.__name__}, kind=...) "
        "(docs/counting.md, 'Adding a rule')"
    )


def elements(tensors: Sequence[Tensor]) -> int:
    """Elements of all tensors together."""
    return sum(tensor.numel() for tensor in tensors)


def is_arithmetic(call: Call) -> bool:
    """Whether floating-point or complex numbers take part; index arithmetic on integers is no FLOP."""
    return any(t.dtype.is_floating_point or t.dtype.is_complex for t in (*call.outputs, *call.inputs))
