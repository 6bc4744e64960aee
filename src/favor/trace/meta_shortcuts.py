"""Shortcuts for common operators on meta tensors, and a way to skip initialization.

On meta tensors PyTorch decomposes these operators in Python, which takes a hundred times as long as allocating an empty
tensor. A shortcut returns exactly what PyTorch returns (tests compare them), or `NotImplemented`.
"""

from collections.abc import Callable
from typing import Any

import torch
from torch import Tensor
from torch._ops import OpOverload

from favor.trace.dispatch import EagerMode

aten = torch.ops.aten


def _like(x: Tensor, *_: Any, **__: Any) -> Any:
    return torch.empty_like(x) if x.dtype == torch.float32 else NotImplemented


def _itself(x: Tensor, *_: Any, **__: Any) -> Any:
    return x


def _like_first(x: Tensor, y: Any, **_: Any) -> Any:
    """The second operand is a number, or broadcasts to the shape of the first."""
    if not isinstance(y, Tensor):
        return _like(x) if isinstance(y, (int, float)) else NotImplemented
    if y.dtype != torch.float32 or not _is_plain(x) or y.dim() > x.dim():
        return NotImplemented
    fits = all(own in (1, other) for own, other in zip(reversed(y.shape), reversed(x.shape), strict=False))
    return torch.empty_like(x) if fits else NotImplemented


def _is_plain(x: Tensor) -> bool:
    return x.dtype == torch.float32 and x.is_contiguous()


def _softmax(x: Tensor, dim: int, *others: Any) -> Any:
    return torch.empty_like(x) if _is_plain(x) and others != (True,) else NotImplemented


def _safe_softmax(x: Tensor, dim: int, dtype: torch.dtype | None = None) -> Any:
    return torch.empty_like(x) if _is_plain(x) and dtype is None else NotImplemented


def _layer_norm(x: Tensor, shape: list[int], weight: Tensor | None, bias: Tensor | None, eps: float) -> Any:
    if any(t is not None and t.dtype != torch.float32 for t in (x, weight, bias)):
        return NotImplemented
    statistics = [*x.shape[: x.dim() - len(shape)], *(1 for _ in shape)]
    return x.new_empty(x.shape), x.new_empty(statistics), x.new_empty(statistics)


def _batch_norm(
    x: Tensor,
    weight: Tensor | None,
    bias: Tensor | None,
    mean: Tensor | None,
    variance: Tensor | None,
    training: bool,
    momentum: float,
    eps: float,
) -> Any:
    if not _is_plain(x) or any(t is not None and t.dtype != torch.float32 for t in (weight, bias, mean, variance)):
        return NotImplemented
    return torch.empty_like(x), x.new_empty(x.shape[1]), x.new_empty(x.shape[1])


def _addmm(bias: Tensor, left: Tensor, right: Tensor) -> Any:
    fits = left.shape[1] == right.shape[0] and bias.shape == right.shape[1:] and bias.dtype == left.dtype == right.dtype
    return left.new_empty((left.shape[0], right.shape[1])) if fits else NotImplemented


SHORTCUTS: dict[OpOverload, Callable[..., Any]] = {
    aten.native_layer_norm.default: _layer_norm,
    aten.native_batch_norm.default: _batch_norm,
    aten._softmax.default: _softmax,
    aten._safe_softmax.default: _safe_softmax,
    aten.addmm.default: _addmm,
    **dict.fromkeys((getattr(aten, name).default for name in ["gelu", "silu", "hardswish", "sigmoid", "relu"]), _like),
    **dict.fromkeys((getattr(aten, name).default for name in ["gelu_", "silu_", "hardswish_", "sigmoid_"]), _itself),
    **dict.fromkeys((getattr(aten, name).Tensor for name in ["add", "sub", "mul", "div"]), _like_first),
    aten.mul.Scalar: _like_first,
}


class SkipInitialization(EagerMode):
    """Builds models on meta tensors without initializing weights: meta tensors hold no values."""

    def __torch_dispatch__(
        self, func: OpOverload, types: Any, args: tuple[Any, ...] = (), kwargs: dict[str, Any] | None = None
    ) -> Any:
        if func in _INITIALIZERS and args[0].is_meta:
            return args[0]
        return func(*args, **(kwargs or {}))


_INITIALIZERS = frozenset(
    {
        *(aten.normal_.default, aten.uniform_.default, aten.zero_.default, aten.fill_.Scalar, aten.fill_.Tensor),
        *(aten.erfinv_.default, aten.mul_.Tensor, aten.add_.Tensor, aten.clamp_.default, aten.copy_.default),
    }
)
