"""Traces of a model on a device that is not here: fake tensors say that they are on it and hold no memory.

PyTorch lets fake tensors say `cuda` on a machine without a GPU, but three things need a hand there: autocast switches
itself off, attention is taken apart because no fused kernel fits a GPU that is not there, and the autograd engine asks
the driver for streams.
"""

import copy
import heapq
import itertools
import logging
from collections import defaultdict
from collections.abc import Callable, Iterator
from contextlib import AbstractContextManager, contextmanager, nullcontext
from typing import Any

import torch
from torch import Tensor, nn
from torch._ops import OpOverload
from torch._prims_common import suggest_memory_format
from torch._subclasses.fake_tensor import FakeTensorMode

from favor.errors import WorkError
from favor.trace.dispatch import EagerMode
from favor.trace.operator_trace import Trace, trace
from favor.trace.shape_cache import Remembered, fake

aten = torch.ops.aten

_FUSED_DIMENSIONS = 4  # images, heads, tokens, channels: what the fused kernels take

_MANY_IMAGES, _MANY_TENSORS = 2**31, 100_000

# Nodes of equal rank, as those of all weights are, run as they came, so that two traces of a network are alike.
_ARRIVALS = itertools.count()


def copy_onto(model: nn.Module, make: Callable[[Tensor], Tensor]) -> nn.Module:
    """A copy of a model whose every tensor is made anew by `make`; no value is copied, shared tensors stay shared.

    >>> copy_onto(nn.Linear(4, 2), lambda t: torch.empty_like(t, device="meta")).weight.device
    device(type='meta')
    """
    made: dict[int, Any] = {}
    for module in model.modules():
        for tensor in (*module._parameters.values(), *module._buffers.values(), *vars(module).values()):
            if isinstance(tensor, Tensor) and id(tensor) not in made:
                new = make(tensor)
                made[id(tensor)] = nn.Parameter(new, tensor.requires_grad) if isinstance(tensor, nn.Parameter) else new
    return copy.deepcopy(model, made)


def on_meta(model: nn.Module) -> nn.Module:
    """A copy of a model on the meta device."""
    return copy_onto(model, lambda tensor: torch.empty_like(tensor, device="meta", requires_grad=False))


def trace_on(
    device: str,
    model: nn.Module,
    image_shape: tuple[int, int, int, int],
    *,
    training: bool = False,
    autocast: torch.dtype | None = None,
    dtype: torch.dtype = torch.float32,
    channels_last: bool = False,
    subject: str | None = None,
) -> Trace:
    """The trace of a model as it would run on a device: `image_shape` is (batch, channels, height, width).

    `autocast` is the type of automatic mixed precision; None runs everything in the weights' own type, which the
    images' `dtype` has to fit. With `channels_last`, images and filters lie in memory in that order. On `cuda`
    attention is one operator, the one that PyTorch takes there: flash for half precision without a mask, else the
    memory-efficient one; tensors that are not images x heads x tokens x channels have none and are taken apart.
    """
    place = torch.device(f"{device}:0" if device == "cuda" else device)

    def make(tensor: Tensor) -> Tensor:
        made = fake(mode, tensor.shape, tensor.stride(), tensor.dtype, place)
        return made.contiguous(memory_format=torch.channels_last) if channels_last and tensor.dim() == 4 else made

    with (
        _no_log_of_failures(),
        FakeTensorMode() as mode,
        Remembered(),
        _kernels_of_cuda(device),
        _no_loop_over(image_shape[0]),
    ):
        mode.cache_enabled = False  # a second memory below the first, which forgets how large a storage was
        there = copy_onto(model, make)
        order = torch.channels_last if channels_last else torch.contiguous_format
        images = torch.empty(image_shape, device=place, dtype=dtype, memory_format=order)
        backward = _backward_without_engine if device == "cuda" else torch.autograd.backward
        with _autocast(device, autocast):
            return trace(there, images, training=training, subject=subject or type(model).__name__, backward=backward)


@contextmanager
def _no_log_of_failures() -> Iterator[None]:
    """PyTorch logs a page for an operator that fails; who asked for the trace is told in one line."""
    logger = logging.getLogger("torch._subclasses.fake_tensor")
    before = logger.level
    logger.setLevel(logging.CRITICAL)
    try:
        yield
    finally:
        logger.setLevel(before)


@contextmanager
def _autocast(device: str, dtype: torch.dtype | None) -> Iterator[None]:
    """Automatic mixed precision that does not ask whether the device is there, as `torch.autocast` does."""
    if dtype is None:
        yield
        return
    was_enabled, was_dtype = torch.is_autocast_enabled(device), torch.get_autocast_dtype(device)
    torch.set_autocast_enabled(device, True)
    torch.set_autocast_dtype(device, dtype)
    torch.autocast_increment_nesting()
    try:
        yield
    finally:
        if torch.autocast_decrement_nesting() == 0:
            torch.clear_autocast_cache()
        torch.set_autocast_enabled(device, was_enabled)
        torch.set_autocast_dtype(device, was_dtype)


def _no_loop_over(images: int) -> AbstractContextManager[object]:
    """Refuses a batch without end, which tells how everything grows, to networks that take it image by image."""
    return _NoLoop() if images >= _MANY_IMAGES else nullcontext()


class _NoLoop(EagerMode):
    def __init__(self) -> None:
        super().__init__()
        self._tensors = 0

    def __torch_dispatch__(
        self, func: OpOverload, types: Any, args: tuple[Any, ...] = (), kwargs: dict[str, Any] | None = None
    ) -> Any:
        self._tensors += _pieces(func, args)
        if self._tensors > _MANY_TENSORS:
            raise WorkError("the network goes through its images one by one, and there is no end of them")
        return func(*args, **(kwargs or {}))


def _pieces(func: OpOverload, args: tuple[Any, ...]) -> int:
    """How many tensors an operator makes of its first argument; fake ones ask for their device all the time."""
    if func is torch.ops.prim.device.default:
        return 0
    if func is aten.unbind.int:
        return args[0].shape[args[1] if len(args) > 1 else 0]
    if func is aten.split.Tensor:
        return args[0].shape[args[2] if len(args) > 2 else 0] // max(1, args[1])
    return 1


@contextmanager
def _kernels_of_cuda(device: str) -> Iterator[None]:
    """Attention and batch norms as on a GPU that is not there; on a CPU PyTorch's own choice needs no device."""
    if device != "cuda":
        yield
        return
    with torch.library._scoped_library("aten", "IMPL") as library:
        # Below autocast, which has cast the arguments by then, and above autograd, which knows the fused operators.
        library.impl("scaled_dot_product_attention", _attention_on_cuda, "AutogradCUDA")
        library.impl("_batch_norm_impl_index", _batch_norm_on_cuda, "AutogradCUDA")
        yield


def _attention_on_cuda(
    query: Tensor,
    key: Tensor,
    value: Tensor,
    attn_mask: Tensor | None = None,
    dropout_p: float = 0.0,
    is_causal: bool = False,
    scale: float | None = None,
    enable_gqa: bool = False,
) -> Tensor:
    if enable_gqa and query.shape[-3] != key.shape[-3]:
        repeats = query.shape[-3] // key.shape[-3]
        key, value = key.repeat_interleave(repeats, -3), value.repeat_interleave(repeats, -3)
    if query.dim() != _FUSED_DIMENSIONS:
        return aten._scaled_dot_product_attention_math(
            query, key, value, attn_mask, dropout_p, is_causal, None, scale=scale
        )[0]
    half = query.dtype in (torch.float16, torch.bfloat16)
    if half and attn_mask is None:
        return aten._scaled_dot_product_flash_attention(query, key, value, dropout_p, is_causal, scale=scale)[0]
    mask = attn_mask
    if mask is not None:
        if mask.dtype == torch.bool:
            mask = torch.zeros_like(mask, dtype=query.dtype).masked_fill(~mask, float("-inf"))
        mask = mask.expand(*query.shape[:-1], key.shape[-2])
    keeps_sums = torch.is_grad_enabled() and any(t.requires_grad for t in (query, key, value))
    return aten._scaled_dot_product_efficient_attention(
        query, key, value, mask, keeps_sums, dropout_p, is_causal, scale=scale
    )[0]


def _batch_norm_on_cuda(
    data: Tensor,
    weight: Tensor | None,
    bias: Tensor | None,
    running_mean: Tensor | None,
    running_var: Tensor | None,
    training: bool,
    momentum: float,
    eps: float,
    cudnn_enabled: bool,
) -> tuple[Tensor, Tensor, Tensor, Tensor, int]:
    """cuDNN's batch norm where PyTorch takes it, but whatever the batch: PyTorch's own for more than 65535 images.

    So a trace at a batch that no GPU holds, which tells how everything grows with the batch, has the usual operators.
    """
    is_mixed = data.dtype != torch.float16 or (weight is not None and weight.dtype == torch.float32)
    is_tracked = running_mean is not None and running_var is not None
    has_weights = weight is not None and bias is not None
    fits = data.dtype != torch.bfloat16 and is_mixed and has_weights and (is_tracked or training) and data.dim() > 2
    others = (weight, bias, running_mean, running_var, training, momentum, eps)
    if fits and cudnn_enabled:
        in_order = data.contiguous(memory_format=suggest_memory_format(data))
        return (*aten.cudnn_batch_norm(in_order, *others), 1)
    return (*aten.native_batch_norm(data, *others), data.new_empty(0, dtype=torch.uint8), 0)


def _backward_without_engine(loss: Tensor) -> None:
    """The backward pass in Python, in the engine's order: the engine asks the driver for streams of the GPU.

    Nodes are let go as soon as they have run, so what they saved is freed when it would be.
    """
    root: Any = loss.grad_fn
    waiting = _consumers(root)
    gradients: dict[Any, dict[int, Tensor]] = {root: {0: torch.ones_like(loss)}}
    ready = [(-root._sequence_nr(), next(_ARRIVALS), root)]
    loss.detach_()
    del root
    with torch.no_grad():
        while ready:
            _run_next(ready, waiting, gradients)


def _run_next(
    ready: list[tuple[int, int, Any]], waiting: dict[Any, int], gradients: dict[Any, dict[int, Tensor]]
) -> None:
    """Run the node that was made last among those that have all their gradients, and hand its results on."""
    node = heapq.heappop(ready)[2]
    results = _run(node, gradients.pop(node, {}))
    edges = node.next_functions
    del node  # and with it what it saved, as the engine does before it hands the results on
    for (following, place), gradient in zip(edges, results, strict=True):
        if following is None:
            continue
        if gradient is not None:
            _add(gradients.setdefault(following, {}), following, place, gradient)
        waiting[following] -= 1
        if waiting[following] == 0:
            del waiting[following]
            heapq.heappush(ready, (-following._sequence_nr(), next(_ARRIVALS), following))


def _consumers(root: Any) -> dict[Any, int]:
    """How many gradients each node below the root has to wait for."""
    counts: dict[Any, int] = defaultdict(int)
    seen, stack = {root}, [root]
    while stack:
        for following, _ in stack.pop().next_functions:
            if following is not None:
                counts[following] += 1
                if following not in seen:
                    seen.add(following)
                    stack.append(following)
    return counts


def _run(node: Any, arrived: dict[int, Tensor]) -> tuple[Tensor | None, ...]:
    if not arrived:
        return (None,) * len(node.next_functions)
    if hasattr(node, "variable"):
        _keep(node.variable, arrived[0])
        return ()
    arguments = [arrived.get(place) for place in range(len(node._input_metadata))]
    is_python = isinstance(node, torch.autograd.function.BackwardCFunction)
    results = node.apply(*arguments) if is_python else node(*arguments)
    return tuple(results) if isinstance(results, (tuple, list)) else (results,)


def _keep(leaf: Tensor, gradient: Tensor) -> None:
    """Keep a leaf's gradient as it is: called from Python, the engine's own node would copy it."""
    leaf.grad = gradient.detach() if leaf.grad is None else leaf.grad + gradient


def _add(gradients: dict[int, Tensor], node: Any, place: int, gradient: Tensor) -> None:
    """Sum a gradient into what has arrived; the engine brings it to the shape and type that the node expects."""
    expected = node._input_metadata[place]
    if gradient.shape != expected.shape:
        gradient = gradient.sum_to_size(expected.shape)
    if gradient.dtype != expected.dtype:
        gradient = gradient.to(expected.dtype)
    gradients[place] = gradients[place] + gradient if place in gradients else gradient
