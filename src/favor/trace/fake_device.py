"""Traces of a model on a fake device: fake tensors claim to be on `cuda` and hold no memory.

Without a GPU, PyTorch needs help in three places: autocast switches itself off, attention is decomposed because no
fused kernel supports a missing GPU, and the autograd engine asks the driver for streams.
"""

import copy
import heapq
import itertools
import logging
from collections import OrderedDict, defaultdict
from collections.abc import Callable, Iterator
from contextlib import AbstractContextManager, contextmanager, nullcontext
from types import FunctionType
from typing import Any

import torch
from torch import Tensor, nn
from torch._ops import OpOverload
from torch._prims_common import suggest_memory_format
from torch._subclasses.fake_tensor import FakeTensorMode

from favor.errors import WorkError
from favor.trace.dispatch import EagerMode
from favor.trace.operator_trace import Trace, trace
from favor.trace.shape_cache import ShapeCache, fake

aten = torch.ops.aten

_FUSED_DIMENSIONS = 4  # the fused kernels take images x heads x tokens x channels

_MANY_IMAGES = 2**31
MANY_TENSORS = 100_000
"""A pass on a huge batch that makes more tensors from others loops over its images."""

# Nodes of equal rank, such as those of all weights, run in order of arrival, so that traces are reproducible.
_ARRIVALS = itertools.count()


def copy_onto(model: nn.Module, make: Callable[[Tensor], Tensor]) -> nn.Module:
    """A copy of a model in which `make` replaces every tensor; no value is copied, shared tensors stay shared.

    >>> copy_onto(nn.Linear(4, 2), lambda t: torch.empty_like(t, device="meta")).weight.device
    device(type='meta')
    """
    made: dict[int, Any] = {}
    for module in model.modules():
        for tensor in (*module._parameters.values(), *module._buffers.values(), *vars(module).values()):
            if isinstance(tensor, Tensor) and id(tensor) not in made:
                new = make(tensor)
                made[id(tensor)] = nn.Parameter(new, tensor.requires_grad) if isinstance(tensor, nn.Parameter) else new
    return _copied(model, made)


_KEPT = (type(None), bool, int, float, complex, str, type, FunctionType, torch.dtype, torch.device)
"""What `copy.deepcopy` returns as it is."""


def _copied(model: nn.Module, made: dict[int, Any]) -> nn.Module:
    """Like `copy.deepcopy(model, made)`, in a quarter of the time: modules are copied attribute by attribute."""
    plain = [module for module in model.modules() if _is_copied_by_attributes(type(module))]
    made |= {id(module): type(module).__new__(type(module)) for module in plain}
    for module in plain:
        vars(made[id(module)]).update(_copied_items(module.__getstate__(), made))
    return copy.deepcopy(model, made)


def _copied_items(items: dict[str, Any], made: dict[int, Any]) -> Iterator[tuple[str, Any]]:
    for name, value in items.items():
        if isinstance(value, _KEPT):
            yield name, value
        elif type(value) in (dict, OrderedDict) and id(value) not in made:
            made[id(value)] = copied = type(value)()
            copied.update(_copied_items(value, made))
            yield name, copied
        else:
            yield name, copy.deepcopy(value, made)


def _is_copied_by_attributes(module: type[nn.Module]) -> bool:
    """Whether a copy of such a module is a new object with copied attributes, as of most modules."""
    return (
        not hasattr(module, "__deepcopy__")
        and not hasattr(module, "__slots__")
        and module.__reduce_ex__ is object.__reduce_ex__
        and module.__getstate__ is nn.Module.__getstate__
        and module.__setstate__ is nn.Module.__setstate__
    )


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

    `autocast` is the type of automatic mixed precision; with None everything runs in the type of the weights, and the
    images' `dtype` has to be the same. `channels_last` sets the memory format of images and filters. On `cuda`
    attention is the fused operator that PyTorch would choose: flash for half precision without a mask, else the
    memory-efficient one. Tensors that do not have four dimensions are decomposed.
    """
    fake_device = torch.device(f"{device}:0" if device == "cuda" else device)

    def make(tensor: Tensor) -> Tensor:
        made = fake(mode, tensor.shape, tensor.stride(), tensor.dtype, fake_device)
        return made.contiguous(memory_format=torch.channels_last) if channels_last and tensor.dim() == 4 else made

    with (
        _no_log_of_failures(),
        FakeTensorMode() as mode,
        ShapeCache(),
        _kernels_of_cuda(device),
        _no_loop_over(image_shape[0]),
    ):
        mode.cache_enabled = False  # it would forget the sizes of storages
        copied = copy_onto(model, make)
        order = torch.channels_last if channels_last else torch.contiguous_format
        images = torch.empty(image_shape, device=fake_device, dtype=dtype, memory_format=order)
        backward = backward_without_engine if device == "cuda" else torch.autograd.backward
        with _autocast(device, autocast):
            return trace(copied, images, training=training, subject=subject or type(model).__name__, backward=backward)


@contextmanager
def _no_log_of_failures() -> Iterator[None]:
    """Silence the page that PyTorch logs for an operator that fails; the caller reports the failure in one line."""
    logger = logging.getLogger("torch._subclasses.fake_tensor")
    before = logger.level
    logger.setLevel(logging.CRITICAL)
    try:
        yield
    finally:
        logger.setLevel(before)


@contextmanager
def _autocast(device: str, dtype: torch.dtype | None) -> Iterator[None]:
    """Like `torch.autocast`, but without the check whether the device exists."""
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
    """For a huge batch, which shows how sizes grow with it: refuse models that loop over their images."""
    return _NoLoop() if images >= _MANY_IMAGES else nullcontext()


class _NoLoop(EagerMode):
    def __init__(self) -> None:
        super().__init__()
        self._tensors = 0

    def __torch_dispatch__(
        self, func: OpOverload, types: Any, args: tuple[Any, ...] = (), kwargs: dict[str, Any] | None = None
    ) -> Any:
        self._tensors += _pieces(func, args)
        if self._tensors > MANY_TENSORS:
            raise WorkError(
                "the model loops over the images of a batch, so its trace does not scale with the batch size"
            )
        return func(*args, **(kwargs or {}))


def _pieces(func: OpOverload, args: tuple[Any, ...]) -> int:
    """How many tensors an operator makes of its first argument; 0 for the frequent query of a fake tensor's device."""
    if func is torch.ops.prim.device.default:
        return 0
    if func is aten.unbind.int:
        return args[0].shape[args[1] if len(args) > 1 else 0]
    if func is aten.split.Tensor:
        return args[0].shape[args[2] if len(args) > 2 else 0] // max(1, args[1])
    return 1


@contextmanager
def _kernels_of_cuda(device: str) -> Iterator[None]:
    """Let attention and batch norms use the kernels of a GPU; on a CPU PyTorch's own choice is right."""
    if device != "cuda":
        yield
        return
    with torch.library._scoped_library("aten", "IMPL") as library:
        # Between autocast, which has cast the arguments already, and autograd, which knows the fused operators.
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
    flash, efficient = torch.backends.cuda.flash_sdp_enabled(), torch.backends.cuda.mem_efficient_sdp_enabled()
    if query.dim() != _FUSED_DIMENSIONS or not (flash or efficient):
        return aten._scaled_dot_product_attention_math(
            query, key, value, attn_mask, dropout_p, is_causal, None, scale=scale
        )[0]
    half = query.dtype in (torch.float16, torch.bfloat16)
    if flash and half and attn_mask is None:
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
    """cuDNN's batch norm wherever PyTorch uses it for small batches.

    PyTorch switches to its own kernel above 65535 images. A trace at a huge batch, which shows how sizes grow with it,
    needs the usual operators.
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


def backward_without_engine(loss: Tensor) -> None:
    """The backward pass in Python, in the order of the autograd engine, which would ask the driver for streams.

    Nodes are released as soon as they have run, so saved tensors are freed at the same moment as in the engine.
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
    """Run the newest node that has all its gradients, and pass its results on."""
    node = heapq.heappop(ready)[2]
    results = _run(node, gradients.pop(node, {}))
    edges = node.next_functions
    del node  # frees its saved tensors before the results are passed on, as in the engine
    for (following, index), gradient in zip(edges, results, strict=True):
        if following is None:
            continue
        if gradient is not None:
            _add(gradients.setdefault(following, {}), following, index, gradient)
        waiting[following] -= 1
        if waiting[following] == 0:
            del waiting[following]
            heapq.heappush(ready, (-following._sequence_nr(), next(_ARRIVALS), following))


def _consumers(root: Any) -> dict[Any, int]:
    """The number of gradients that each node below the root waits for."""
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
    arguments = [arrived.get(index) for index in range(len(node._input_metadata))]
    is_python = isinstance(node, torch.autograd.function.BackwardCFunction)
    results = node.apply(*arguments) if is_python else node(*arguments)
    return tuple(results) if isinstance(results, (tuple, list)) else (results,)


def _keep(leaf: Tensor, gradient: Tensor) -> None:
    """Store a leaf's gradient without a copy, which the engine's node would make when called from Python."""
    leaf.grad = gradient.detach() if leaf.grad is None else leaf.grad + gradient


def _add(gradients: dict[int, Tensor], node: Any, index: int, gradient: Tensor) -> None:
    """Add a gradient to those that have arrived, in the shape and type that the node expects, as the engine does."""
    expected = node._input_metadata[index]
    if gradient.shape != expected.shape:
        gradient = gradient.sum_to_size(expected.shape)
    if gradient.dtype != expected.dtype:
        gradient = gradient.to(expected.dtype)
    gradients[index] = gradients[index] + gradient if index in gradients else gradient
