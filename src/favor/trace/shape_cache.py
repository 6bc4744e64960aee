"""The shape cache: outputs of operators on fake tensors, cached by input signature.

Models repeat their layers, and at every call PyTorch computes in Python what the outputs look like. Here it does so
once per signature; after that the outputs are allocated directly. The most common operators are faster at their first
call, too: PyTorch's kernels for meta tensors replace the decomposition of the operator. PyTorch's own cache of fake
tensors is not used: a lookup there takes about as long as computing the outputs.
"""

from collections.abc import Callable, Sequence
from functools import cache
from typing import Any, TypeGuard

import torch
from torch import Tensor
from torch._ops import OpOverload
from torch._subclasses.fake_tensor import FakeTensor, FakeTensorMode, in_kernel_invocation_manager

from favor.trace.dispatch import EagerMode

MakeOutput = Callable[[Sequence[FakeTensor]], Any]
"""Makes the output of an operator from its input tensors."""

MAX_ENTRIES = 100_000
CACHE: dict[Any, MakeOutput] = {}
"""Shared by all traces of a process: most models have layers in common with others."""
_PLAIN = (int, float, bool, complex, str, type(None), torch.dtype, torch.device, torch.layout, torch.memory_format)
aten = torch.ops.aten
_VALUE_DEPENDENT = frozenset({torch.Tag.data_dependent_output, torch.Tag.dynamic_output_shape, torch.Tag.inplace_view})


class _NotCacheableError(Exception):
    """A call whose outputs do not follow from its signature."""


class ShapeCache(EagerMode):
    """Sits above a `FakeTensorMode` and calls it once per signature."""

    def __torch_dispatch__(
        self, func: OpOverload, types: Any, args: tuple[Any, ...] = (), kwargs: dict[str, Any] | None = None
    ) -> Any:
        kwargs = kwargs or {}
        if not _is_cacheable(func):
            return func(*args, **kwargs)
        given: list[FakeTensor] = []
        try:
            signature = (
                func,
                torch.get_default_dtype(),
                _signature(args, given),
                _signature(tuple(kwargs.items()), given),
            )
        except _NotCacheableError:
            return func(*args, **kwargs)
        make = CACHE.get(signature)
        if make is not None:
            return make(given)
        result = _direct_outputs(func, args, kwargs, given)
        if result is NotImplemented:
            result = func(*args, **kwargs)
        if given:
            _store(signature, result, given)
        return result


@cache
def _is_cacheable(func: OpOverload) -> bool:
    """Whether the outputs follow from the signature. Foreign operators may read values, and `out=` is resized."""
    is_own = func.namespace in ("aten", "prims")
    return (
        is_own
        and _VALUE_DEPENDENT.isdisjoint(func.tags)
        and not any(argument.is_out for argument in func._schema.arguments)
    )


def fake(mode: FakeTensorMode, shape: Sequence[int], strides: Sequence[int], dtype: Any, device: Any) -> FakeTensor:
    """A fake tensor with a new storage."""
    with in_kernel_invocation_manager(mode):
        made = torch.empty_strided(shape, strides, dtype=dtype, device="meta")
    return FakeTensor(mode, made, device)


def _layer_norm(x: Tensor, shape: list[int], weight: Tensor | None, bias: Tensor | None, eps: float) -> Any:
    fits = x.dtype != torch.float64 and [*x.shape[x.dim() - len(shape) :]] == [*shape]
    for tensor in (weight, bias):
        fits = fits and (tensor is None or (tensor.dtype == x.dtype and [*tensor.shape] == [*shape]))
    if not fits:
        return NotImplemented
    statistics = [*x.shape[: x.dim() - len(shape)], *(1 for _ in shape)]
    return x.new_empty(x.shape), *(x.new_empty(statistics, dtype=torch.float32) for _ in range(2))


def _batch_norm(x: Tensor, weight: Tensor, *others: Any) -> Any:
    *tensors, training, _, _ = others
    if any(tensor is not None and tensor.shape != x.shape[1:2] for tensor in (weight, *tensors)):
        return NotImplemented
    if not (x.is_contiguous() or x.is_contiguous(memory_format=torch.channels_last)):
        return NotImplemented
    statistics = [weight.new_empty(x.shape[1] if training else 0) for _ in range(2)]
    return torch.empty_like(x), *statistics, x.new_empty(0, dtype=torch.uint8)


DIRECT: dict[OpOverload, Callable[..., Any]] = {
    aten.native_layer_norm.default: _layer_norm,
    aten.cudnn_batch_norm.default: _batch_norm,
}
"""Operators whose outputs are written down here."""
BY_META_KERNEL = frozenset(
    {
        *(aten.addmm.default, aten.mm.default, aten.bmm.default, aten._to_copy.default, aten.gelu.default),
        *(aten.add.Tensor, aten.sub.Tensor, aten.mul.Tensor, aten.div.Tensor, aten.detach.default, aten.t.default),
        *(aten.view.default, aten._unsafe_view.default, aten.expand.default, aten.permute.default),
        *(aten.transpose.int, aten.slice.Tensor, aten.select.int, aten.unsqueeze.default),
    }
)
"""Operators whose outputs come from PyTorch's kernels for meta tensors."""


def _direct_outputs(
    func: OpOverload, args: tuple[Any, ...], kwargs: dict[str, Any], given: Sequence[FakeTensor]
) -> Any:
    """The outputs without the mode below, if all tensors are on a GPU and stay there; else `NotImplemented`."""
    run = func if func in BY_META_KERNEL else DIRECT.get(func)
    if run is None or "device" in kwargs or {tensor.fake_device.type for tensor in given} != {"cuda"}:
        return NotImplemented
    mode, device = given[0].fake_mode, given[0].fake_device
    with in_kernel_invocation_manager(mode):
        result = run(*args, **kwargs)
    if isinstance(result, tuple):
        return tuple(FakeTensor(mode, output, device) for output in result)
    return result if result is NotImplemented else FakeTensor(mode, result, device)


def _signature(values: Sequence[Any], given: list[FakeTensor]) -> tuple[Any, ...]:
    """The signature of a call: plain values as they are, tensors by shape, strides, type, offset and device.

    Tensors are appended to `given` in order.
    """
    signature: list[Any] = []
    for value in values:
        if isinstance(value, Tensor):
            if not _is_known_by_signature(value):
                raise _NotCacheableError
            given.append(value)
            signature.append((value.shape, value.stride(), value.dtype, value.storage_offset(), value.fake_device))
        elif isinstance(value, (list, tuple)):
            signature.append(_signature(value, given))
        elif isinstance(value, _PLAIN):
            signature.append((type(value), value))  # 1, 1.0 and True are equal, but their results are not
        else:
            raise _NotCacheableError
    return tuple(signature)


def _is_known_by_signature(tensor: Any) -> TypeGuard[FakeTensor]:
    """Whether a tensor is described by its signature alone: a constant has a value, which may be read later."""
    return type(tensor) is FakeTensor and tensor.constant is None and not (tensor.is_conj() or tensor.is_neg())


def _store(signature: Any, result: Any, given: Sequence[FakeTensor]) -> None:
    if len(CACHE) >= MAX_ENTRIES:
        CACHE.clear()
    try:
        CACHE[signature] = _maker(result, given)
    except _NotCacheableError:
        return


def _maker(result: Any, given: Sequence[FakeTensor]) -> MakeOutput:
    if not isinstance(result, (list, tuple)):
        return _maker_of_one(result, given)
    inputs = {tensor.untyped_storage()._cdata for tensor in given}
    outputs = [output.untyped_storage()._cdata for output in result if isinstance(output, Tensor)]
    new = [storage for storage in outputs if storage not in inputs]
    if len(new) > len(set(new)):  # outputs share a new storage
        raise _NotCacheableError
    sequence, makers = type(result), [_maker_of_one(output, given) for output in result]
    return lambda given: sequence([make(given) for make in makers])


def _maker_of_one(output: Any, given: Sequence[FakeTensor]) -> MakeOutput:
    if isinstance(output, _PLAIN):
        return lambda given: output
    if not _is_known_by_signature(output):
        raise _NotCacheableError
    mode, storage = output.fake_mode, output.untyped_storage()
    shape, strides, dtype, device = output.shape, output.stride(), output.dtype, output.fake_device
    for index, tensor in enumerate(given):
        if tensor is output:
            return lambda given: given[index]
        if tensor.untyped_storage()._cdata == storage._cdata:
            return _maker_of_view(output, tensor, index)
    if fake(mode, shape, strides, dtype, device).untyped_storage().nbytes() != storage.nbytes():
        raise _NotCacheableError  # a view of a larger storage
    return lambda given: fake(given[0].fake_mode, shape, strides, dtype, device)


def _maker_of_view(output: FakeTensor, source: FakeTensor, index: int) -> MakeOutput:
    if output.dtype != source.dtype:
        raise _NotCacheableError
    shape, strides, offset, device = output.shape, output.stride(), output.storage_offset(), output.fake_device

    def view(given: Sequence[FakeTensor]) -> FakeTensor:
        mode = given[index].fake_mode
        with in_kernel_invocation_manager(mode):
            made = torch.as_strided(given[index], shape, strides, offset)
        return FakeTensor(mode, made, device)

    return view
