"""Fake tensors made from memory are the ones that PyTorch makes."""

from collections.abc import Callable
from contextlib import nullcontext
from typing import Any

import pytest
import torch
from torch import Tensor, nn
from torch._subclasses.fake_tensor import FakeTensorMode

import favor
from favor.simulation.batch_scaling import MARK
from favor.trace import shape_cache
from favor.trace.fake_device import trace_on
from favor.trace.shape_cache import BY_META_KERNEL, DIRECT, ShapeCache

aten = torch.ops.aten
HALF, FULL = torch.float16, torch.float32


def on_gpu(*shape: int, dtype: torch.dtype = HALF) -> Tensor:
    return torch.empty(shape, dtype=dtype, device="cuda")


def turned(*shape: int, dtype: torch.dtype = HALF) -> Tensor:
    return on_gpu(*reversed(shape), dtype=dtype).permute(*reversed(range(len(shape))))


def channels_last(*shape: int, dtype: torch.dtype = HALF) -> Tensor:
    return on_gpu(*shape, dtype=dtype).contiguous(memory_format=torch.channels_last)


def norm_weights(dtype: torch.dtype = FULL) -> tuple[Tensor, ...]:
    return tuple(on_gpu(8, dtype=dtype) for _ in range(4))


CALLS: list[tuple[Any, Callable[[], tuple[Any, ...]]]] = [
    (aten.addmm.default, lambda: (on_gpu(5), on_gpu(3, 4), turned(4, 5))),
    (aten.addmm.default, lambda: (on_gpu(5), turned(3, 4), on_gpu(4, 5))),
    (aten.mm.default, lambda: (turned(3, 4), turned(4, 5))),
    (aten.bmm.default, lambda: (on_gpu(2, 3, 4), on_gpu(2, 5, 4).transpose(1, 2))),
    (aten._to_copy.default, lambda: (turned(3, 4, dtype=FULL),)),
    (aten.gelu.default, lambda: (on_gpu(3, 4),)),
    (aten.gelu.default, lambda: (turned(3, 4),)),
    *(
        (operator, call)
        for operator in (aten.add.Tensor, aten.sub.Tensor, aten.mul.Tensor, aten.div.Tensor)
        for call in (
            lambda: (on_gpu(3, 4), on_gpu(4, dtype=FULL)),
            lambda: (turned(3, 4), turned(3, 4)),
            lambda: (turned(3, 4), on_gpu(3, 4)),
            lambda: (channels_last(2, 8, 3, 3), on_gpu(8, 1, 1)),
            lambda: (on_gpu(3, 4, dtype=torch.int64), 2),
            lambda: (on_gpu(3, 4, dtype=torch.int64), 2.0),
        )
    ),
    (aten.detach.default, lambda: (on_gpu(3, 4),)),
    (aten.t.default, lambda: (on_gpu(3, 4),)),
    (aten.view.default, lambda: (on_gpu(2, 12)[:, :8], [2, 2, 4])),
    (aten._unsafe_view.default, lambda: (on_gpu(6, 4), [2, 3, 4])),
    (aten.expand.default, lambda: (on_gpu(1, 4), [3, -1])),
    (aten.permute.default, lambda: (on_gpu(2, 3, 4), [2, 0, 1])),
    (aten.transpose.int, lambda: (on_gpu(2, 3, 4), -1, -2)),
    (aten.slice.Tensor, lambda: (on_gpu(5, 4), 0, 1, 2**63 - 1, 2)),
    (aten.select.int, lambda: (on_gpu(5, 4), 1, -1)),
    (aten.unsqueeze.default, lambda: (on_gpu(5, 4), 1)),
    *(
        (aten.native_layer_norm.default, call)
        for call in (
            lambda: (on_gpu(2, 3, 8), [8], *norm_weights(HALF)[:2], 1e-5),
            lambda: (on_gpu(2, 3, 8, dtype=FULL), [8], *norm_weights()[:2], 1e-5),
            lambda: (on_gpu(2, 3, 8), [3, 8], None, None, 1e-5),
            lambda: (turned(2, 3, 8), [8], *norm_weights(HALF)[:2], 1e-5),
        )
    ),
    *(
        (
            aten.cudnn_batch_norm.default,
            lambda make=make, training=training: (make(), *norm_weights(), training, 0.1, 1e-5),
        )
        for training in (False, True)
        for make in (
            lambda: on_gpu(2, 8, 3, 3),
            lambda: channels_last(2, 8, 3, 3),
            lambda: on_gpu(2, 8, 3, 3, dtype=FULL),
            lambda: turned(2, 8, 3, 3),
        )
    ),
    (aten.cudnn_batch_norm.default, lambda: (on_gpu(2, 8, 3, 3), *norm_weights()[:2], None, None, True, 0.1, 1e-5)),
    (aten.native_layer_norm.default, lambda: (on_gpu(2, 8, dtype=torch.float64), [8], None, None, 1e-5)),
    # what only PyTorch tells at first, and is remembered then
    (aten.split.Tensor, lambda: (on_gpu(6, 4), 2)),
    (aten.relu_.default, lambda: (on_gpu(6, 4),)),
    (aten._scaled_dot_product_flash_attention.default, lambda: tuple(on_gpu(2, 3, 5, 8) for _ in range(3))),
    (aten.convolution.default, lambda: (
        channels_last(2, 8, 6, 6), on_gpu(4, 8, 3, 3), None, [1, 1], [1, 1], [1, 1], False, [0, 0], 1)),
    (aten.cat.default, lambda: ([on_gpu(2, 3), on_gpu(2, 5)], 1)),
    # and what is not remembered
    (aten.add.Tensor, lambda: (on_gpu(3, 4), torch.empty((), dtype=FULL))),
    (aten.view_as_real.default, lambda: (on_gpu(3, 4, dtype=torch.complex64),)),
]  # fmt: skip


@pytest.fixture(autouse=True)
def _nothing_known(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(shape_cache, "CACHE", {})


def described(result: Any, arguments: tuple[Any, ...]) -> list[Any]:
    """All that a trace can see of outputs: their form, and whether they lie in the storage of an argument."""
    flat = [leaf for each in arguments for leaf in (each if isinstance(each, list) else [each])]
    storages = [each.untyped_storage()._cdata for each in flat if isinstance(each, Tensor)]
    described = []
    for each in result if isinstance(result, (list, tuple)) else [result]:
        if not isinstance(each, Tensor):
            described.append(each)
            continue
        storage = each.untyped_storage()
        within = storages.index(storage._cdata) if storage._cdata in storages else None
        is_argument = any(each is argument for argument in flat)
        form = (each.shape, each.stride(), each.dtype, each.storage_offset(), each.device, storage.nbytes())
        described.append((type(each), form, within, is_argument))
    return [type(result), described]


@pytest.mark.parametrize(("operator", "arguments"), CALLS, ids=lambda value: str(value) if value in dir() else None)
def test_outputs_are_those_of_pytorch_at_the_first_call_and_at_the_next(operator, arguments):
    options = {"dtype": HALF} if operator is aten._to_copy.default else {}
    with FakeTensorMode():
        given = arguments()
        wanted = described(operator(*given, **options), given)
        with ShapeCache():
            for _ in range(2):
                anew = arguments()
                assert described(operator(*anew, **options), anew) == wanted


def test_every_operator_that_is_made_at_once_is_compared_with_pytorch():
    assert {operator for operator, _ in CALLS} >= BY_META_KERNEL | DIRECT.keys()


def test_the_second_call_asks_nobody_below(monkeypatch):
    asked = []
    dispatch = FakeTensorMode.dispatch

    def noted(self, func, *others):
        if func is not torch.ops.prim.device.default:
            asked.append(func)
        return dispatch(self, func, *others)

    with FakeTensorMode():
        first, second = on_gpu(3, 4), on_gpu(3, 4)
        monkeypatch.setattr(FakeTensorMode, "dispatch", noted)
        with ShapeCache():
            aten.relu.default(first)
            assert asked == [aten.relu.default]
            aten.relu.default(second)
            assert asked == [aten.relu.default]
            for others in (turned(3, 4), on_gpu(3, 4, dtype=FULL), torch.empty(3, 4, dtype=HALF), on_gpu(4, 4)[:3]):
                asked.clear()
                aten.relu.default(others)
                assert bool(asked) == (
                    not others.is_contiguous() or others.dtype != HALF or others.device != first.device
                )


@pytest.mark.parametrize(
    ("operator", "arguments"),
    [
        (aten.native_layer_norm.default, lambda: (on_gpu(2, 3, 8), [8], *norm_weights()[:2], 1e-5)),
        (aten.native_layer_norm.default, lambda: (on_gpu(2, 3, 7), [8], *norm_weights(HALF)[:2], 1e-5)),
        (aten.native_layer_norm.default, lambda: (on_gpu(2, 3, 8), [8], on_gpu(7), None, 1e-5)),
        (aten.cudnn_batch_norm.default, lambda: (on_gpu(2, 7, 3, 3), *norm_weights(), False, 0.1, 1e-5)),
        (aten.addmm.default, lambda: (on_gpu(5), on_gpu(3, 4), on_gpu(3, 5))),
        (aten.view.default, lambda: (on_gpu(3, 4), [5])),
    ],
)
def test_what_pytorch_refuses_is_refused(operator, arguments):
    with FakeTensorMode(), ShapeCache(), pytest.raises(RuntimeError):
        operator(*arguments())


def test_views_of_a_buffer_lie_where_their_own_source_does():
    with FakeTensorMode(), ShapeCache():
        buffer = on_gpu(4, 4)
        assert [buffer[rows : rows + 2].view(8).storage_offset() for rows in (0, 2)] == [0, 8]


def test_what_is_resized_by_each_call_is_resized():
    with FakeTensorMode(), ShapeCache():
        for _ in range(2):
            assert torch.mul(on_gpu(3), on_gpu(3), out=on_gpu(0)).shape == (3,)


def test_the_default_type_may_change():
    with FakeTensorMode(), ShapeCache():
        found = []
        for dtype in (FULL, torch.float64):
            torch.set_default_dtype(dtype)
            try:
                found.append((on_gpu(3, dtype=torch.int64) / 2).dtype)
            finally:
                torch.set_default_dtype(FULL)
    assert found == [FULL, torch.float64]


def test_operators_of_others_are_asked_every_time():
    with torch.library._scoped_library("favor_test", "FRAGMENT") as library:
        library.define("grown(Tensor x) -> Tensor")
        wanted = iter((3, 4))
        library.impl("grown", lambda x: x.new_empty(next(wanted)), "Meta")
        with FakeTensorMode() as mode, ShapeCache():
            mode.cache_enabled = False
            assert [torch.ops.favor_test.grown.default(on_gpu(2)).shape[0] for _ in range(2)] == [3, 4]


@pytest.mark.parametrize("number", [1, 1.0, True])
def test_numbers_that_are_equal_and_of_other_types_are_told_apart(number):
    with FakeTensorMode(), ShapeCache():
        for other in (True, 1, 1.0):
            on_gpu(3, dtype=torch.bool) + other
        assert (on_gpu(3, dtype=torch.bool) + number).dtype == (
            torch.empty(3, dtype=torch.bool, device="cuda") + number
        ).dtype
        assert (on_gpu(3, dtype=torch.bool) + number).dtype == {int: torch.int64, float: FULL, bool: torch.bool}[
            type(number)
        ]


def test_a_constant_keeps_its_value():
    with FakeTensorMode(), ShapeCache():
        for value in (2.0, 3.0):
            assert (torch.tensor(value) + 1).item() == value + 1


def test_a_full_memory_is_emptied(monkeypatch):
    monkeypatch.setattr(shape_cache, "MAX_ENTRIES", 3)
    with FakeTensorMode(), ShapeCache():
        for length in range(1, 9):
            on_gpu(length).relu()
            assert len(shape_cache.CACHE) <= 3


NETWORKS = ["vit_xs4", "swin_ti", "tome_xs4", "fastvit_t8", "gfnet_xs4"]


@pytest.mark.parametrize("training", [False, True], ids=["inference", "training"])
@pytest.mark.parametrize("name", NETWORKS)
def test_a_network_s_trace_is_the_same_without_memory(monkeypatch, name, training):
    with torch.device("meta"):
        model = favor.create_model(name)
    side = favor.card(name).image_sizes.default
    traces = [trace_of(model, side, training)]
    monkeypatch.setattr("favor.trace.fake_device.ShapeCache", nullcontext)
    traces.append(trace_of(model, side, training))
    assert traces[0] == traces[1]
    assert len(traces[0].ops) > 50


def trace_of(model: nn.Module, side: int, training: bool) -> Any:
    return trace_on("cuda", model, (2 if training else MARK, 3, side, side), training=training, autocast=HALF)
