"""Fake tensors made from memory: what an operator put out for tensors of some form, it puts out for all of that form.

Networks repeat their layers, and PyTorch finds out at every call, in Python, what the outputs look like. Here it does
at the first call of a kind, and at all others the outputs are made directly. The commonest operators are quicker at
their first call, too: PyTorch has kernels for meta tensors that say what a GPU would put out, where fake tensors are
made by taking the operator apart. PyTorch has a memory for fake tensors, too; to ask it takes as long as most answers.
"""

from collections.abc import Callable, Sequence
from functools import cache
from typing import Any, TypeGuard

import torch
from torch import Tensor
from torch._ops import OpOverload
from torch._subclasses.fake_tensor import FakeTensor, FakeTensorMode, in_kernel_invocation_manager

from favor.trace.dispatch import EagerMode

Make = Callable[[Sequence[FakeTensor]], Any]
"""Makes an output from the tensors that an operator is given."""

_MOST = 100_000
_KNOWN: dict[Any, Make] = {}
"""Shared by all traces of a process: most networks have layers that another one has, too."""
_PLAIN = (int, float, bool, complex, str, type(None), torch.dtype, torch.device, torch.layout, torch.memory_format)
aten = torch.ops.aten
_BY_VALUES = frozenset({torch.Tag.data_dependent_output, torch.Tag.dynamic_output_shape, torch.Tag.inplace_view})


class _NotKnownError(Exception):
    """A call, or its outputs, that only PyTorch can tell."""


class Remembered(EagerMode):
    """Stands above a `FakeTensorMode`, asks it once for every kind of call, and answers from memory after that."""

    def __torch_dispatch__(
        self, func: OpOverload, types: Any, args: tuple[Any, ...] = (), kwargs: dict[str, Any] | None = None
    ) -> Any:
        kwargs = kwargs or {}
        if not _can_be_known(func):
            return func(*args, **kwargs)
        given: list[FakeTensor] = []
        try:
            kind = (func, torch.get_default_dtype(), _form(args, given), _form(tuple(kwargs.items()), given))
        except _NotKnownError:
            return func(*args, **kwargs)
        make = _KNOWN.get(kind)
        if make is not None:
            return make(given)
        result = _at_once(func, args, kwargs, given)
        if result is NotImplemented:
            result = func(*args, **kwargs)
        if given:
            _remember(kind, result, given)
        return result


@cache
def _can_be_known(func: OpOverload) -> bool:
    """Whether forms alone tell what an operator puts out: others' may ask for anything, and `out=` is resized."""
    is_own = func.namespace in ("aten", "prims")
    return is_own and _BY_VALUES.isdisjoint(func.tags) and not any(each.is_out for each in func._schema.arguments)


def fake(mode: FakeTensorMode, shape: Sequence[int], strides: Sequence[int], dtype: Any, place: Any) -> FakeTensor:
    """A fake tensor that nothing was asked about."""
    with in_kernel_invocation_manager(mode):
        made = torch.empty_strided(shape, strides, dtype=dtype, device="meta")
    return FakeTensor(mode, made, place)


def _layer_norm(x: Tensor, shape: list[int], weight: Tensor | None, bias: Tensor | None, eps: float) -> Any:
    fits = x.dtype != torch.float64 and [*x.shape[x.dim() - len(shape) :]] == [*shape]
    for each in (weight, bias):
        fits = fits and (each is None or (each.dtype == x.dtype and [*each.shape] == [*shape]))
    if not fits:
        return NotImplemented
    statistics = [*x.shape[: x.dim() - len(shape)], *(1 for _ in shape)]
    return x.new_empty(x.shape), *(x.new_empty(statistics, dtype=torch.float32) for _ in range(2))


def _batch_norm(x: Tensor, weight: Tensor, *others: Any) -> Any:
    *tensors, training, _, _ = others
    if any(each is not None and each.shape != x.shape[1:2] for each in (weight, *tensors)):
        return NotImplemented
    if not (x.is_contiguous() or x.is_contiguous(memory_format=torch.channels_last)):
        return NotImplemented
    statistics = [weight.new_empty(x.shape[1] if training else 0) for _ in range(2)]
    return torch.empty_like(x), *statistics, x.new_empty(0, dtype=torch.uint8)


_AT_ONCE: dict[OpOverload, Callable[..., Any]] = {
    aten.native_layer_norm.default: _layer_norm,
    aten.cudnn_batch_norm.default: _batch_norm,
}
_BY_KERNEL = frozenset(
    {
        *(aten.addmm.default, aten.mm.default, aten.bmm.default, aten._to_copy.default, aten.gelu.default),
        *(aten.add.Tensor, aten.sub.Tensor, aten.mul.Tensor, aten.div.Tensor, aten.detach.default, aten.t.default),
        *(aten.view.default, aten._unsafe_view.default, aten.expand.default, aten.permute.default),
        *(aten.transpose.int, aten.slice.Tensor, aten.select.int, aten.unsqueeze.default),
    }
)


def _at_once(func: OpOverload, args: tuple[Any, ...], kwargs: dict[str, Any], given: Sequence[FakeTensor]) -> Any:
    """What an operator puts out, without asking the mode below, where all is on a GPU and stays there."""
    run = func if func in _BY_KERNEL else _AT_ONCE.get(func)
    if run is None or "device" in kwargs or {tensor.fake_device.type for tensor in given} != {"cuda"}:
        return NotImplemented
    mode, place = given[0].fake_mode, given[0].fake_device
    with in_kernel_invocation_manager(mode):
        result = run(*args, **kwargs)
    if isinstance(result, tuple):
        return tuple(FakeTensor(mode, each, place) for each in result)
    return result if result is NotImplemented else FakeTensor(mode, result, place)


def _form(values: Sequence[Any], given: list[FakeTensor]) -> tuple[Any, ...]:
    """What a call is known by: plain values as they are, tensors by their form; these are gathered on the way."""
    form: list[Any] = []
    for value in values:
        if isinstance(value, Tensor):
            if not _is_known_by_form(value):
                raise _NotKnownError
            given.append(value)
            form.append((value.shape, value.stride(), value.dtype, value.storage_offset(), value.fake_device))
        elif isinstance(value, (list, tuple)):
            form.append(_form(value, given))
        elif isinstance(value, _PLAIN):
            form.append((type(value), value))  # 1, 1.0 and True are equal, and their results are not
        else:
            raise _NotKnownError
    return tuple(form)


def _is_known_by_form(tensor: Any) -> TypeGuard[FakeTensor]:
    """Whether a tensor is no more than its form: a constant has a value, too, which may be asked for later."""
    return type(tensor) is FakeTensor and tensor.constant is None and not (tensor.is_conj() or tensor.is_neg())


def _remember(kind: Any, result: Any, given: Sequence[FakeTensor]) -> None:
    if len(_KNOWN) >= _MOST:
        _KNOWN.clear()
    try:
        _KNOWN[kind] = _maker(result, given)
    except _NotKnownError:
        return


def _maker(result: Any, given: Sequence[FakeTensor]) -> Make:
    if not isinstance(result, (list, tuple)):
        return _maker_of_one(result, given)
    new = [each.untyped_storage()._cdata for each in result if isinstance(each, Tensor)]
    new = [storage for storage in new if storage not in {each.untyped_storage()._cdata for each in given}]
    if len(new) > len(set(new)):  # outputs that lie in one new storage
        raise _NotKnownError
    together, makers = type(result), [_maker_of_one(each, given) for each in result]
    return lambda given: together([make(given) for make in makers])


def _maker_of_one(output: Any, given: Sequence[FakeTensor]) -> Make:
    if isinstance(output, _PLAIN):
        return lambda given: output
    if not _is_known_by_form(output):
        raise _NotKnownError
    mode, storage = output.fake_mode, output.untyped_storage()
    shape, strides, dtype, place = output.shape, output.stride(), output.dtype, output.fake_device
    for index, tensor in enumerate(given):
        if tensor is output:
            return lambda given: given[index]
        if tensor.untyped_storage()._cdata == storage._cdata:
            return _maker_of_view(output, tensor, index)
    if fake(mode, shape, strides, dtype, place).untyped_storage().nbytes() != storage.nbytes():
        raise _NotKnownError  # part of something larger
    return lambda given: fake(given[0].fake_mode, shape, strides, dtype, place)


def _maker_of_view(output: FakeTensor, source: FakeTensor, index: int) -> Make:
    if output.dtype != source.dtype:
        raise _NotKnownError
    shape, strides, offset, place = output.shape, output.stride(), output.storage_offset(), output.fake_device

    def view(given: Sequence[FakeTensor]) -> FakeTensor:
        mode = given[index].fake_mode
        with in_kernel_invocation_manager(mode):
            made = torch.as_strided(given[index], shape, strides, offset)
        return FakeTensor(mode, made, place)

    return view
