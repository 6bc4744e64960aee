"""Shortcuts give what PyTorch gives, and stand back where they cannot."""

import pytest
import torch
from torch import Tensor, nn

from favor.trace.counts import count
from favor.trace.meta_shortcuts import SHORTCUTS, SkipInitialization
from favor.zoo.registry import create_model

aten = torch.ops.aten


def meta(*shape: int, dtype: torch.dtype = torch.float32) -> Tensor:
    return torch.empty(shape, dtype=dtype, device="meta")


def described(result: object) -> list[tuple[object, ...]]:
    tensors = result if isinstance(result, tuple) else (result,)
    return [(tuple(t.shape), t.stride(), t.dtype, t.device) for t in tensors]


CALLS = [
    (aten.native_layer_norm.default, (meta(2, 5, 8), [8], meta(8), meta(8), 1e-6)),
    (aten.native_layer_norm.default, (meta(2, 5, 8), [5, 8], None, None, 1e-6)),
    (aten.native_layer_norm.default, (meta(2, 8, 5).transpose(1, 2), [8], None, None, 1e-6)),
    (aten.native_layer_norm.default, (meta(2, 10, 16)[:, ::2, :8], [8], None, None, 1e-6)),
    (aten.native_batch_norm.default, (meta(2, 5, 8, 8), meta(5), meta(5), meta(5), meta(5), False, 0.1, 1e-5)),
    (aten.native_batch_norm.default, (meta(2, 5, 8, 8), meta(5), meta(5), meta(5), meta(5), True, 0.1, 1e-5)),
    (aten._softmax.default, (meta(2, 3, 4), -1, False)),
    (aten._safe_softmax.default, (meta(2, 3, 4), -1)),
    (aten.addmm.default, (meta(7), meta(3, 5), meta(7, 5).t())),
    (aten.add.Tensor, (meta(2, 3), meta(2, 3))),
    (aten.add.Tensor, (meta(2, 4, 3), meta(4, 1))),
    (aten.add.Tensor, (meta(2, 1, 3), meta(3, 1, 1).permute(2, 1, 0))),
    (aten.mul.Tensor, (meta(2, 3), meta(3))),
    (aten.mul.Tensor, (meta(2, 3), 2)),
    (aten.mul.Scalar, (meta(2, 3), 0.5)),
    (aten.mul.Scalar, (meta(2, 9, 3, 4).permute(2, 0, 3, 1)[0], 0.5)),
    (aten.gelu.default, (meta(3, 2, 5).transpose(0, 2),)),
    (aten.gelu.default, (meta(3, 2, 5)[:, :1],)),
    (aten.gelu.default, (meta(3, 1).expand(3, 4),)),
    *((getattr(aten, name).default, (meta(2, 3),)) for name in ("gelu", "silu", "hardswish", "sigmoid", "relu")),
]


@pytest.mark.parametrize(("operator", "arguments"), CALLS)
def test_a_shortcut_gives_the_shapes_strides_and_types_that_pytorch_gives(operator, arguments):
    assert described(SHORTCUTS[operator](*arguments)) == described(operator(*arguments))


def test_every_shortcut_that_makes_a_tensor_is_compared_with_pytorch():
    in_place = {operator for operator in SHORTCUTS if str(operator.overloadpacket).endswith("_")}
    twins = {aten.sub.Tensor, aten.div.Tensor}  # the same function as for add and mul
    assert set(SHORTCUTS) - in_place - twins == {operator for operator, _ in CALLS}


@pytest.mark.parametrize(
    ("operator", "arguments"),
    [
        (aten.native_layer_norm.default, (meta(2, 8, dtype=torch.float16), [8], None, None, 1e-6)),
        (aten._softmax.default, (meta(2, 3, dtype=torch.float16), -1, True)),
        (aten._softmax.default, (meta(2, 3), -1, True)),
        (aten._safe_softmax.default, (meta(2, 3), -1, torch.float64)),
        (aten.addmm.default, (meta(7), meta(3, 5), meta(6, 7))),
        (aten.addmm.default, (meta(3, 7), meta(3, 5), meta(5, 7))),
        (aten.add.Tensor, (meta(3), meta(2, 3))),
        (aten.add.Tensor, (meta(1, 3), meta(2, 3))),
        (aten.add.Tensor, (meta(2, 3), 1j)),
        (aten.add.Tensor, (meta(3, 2).t(), meta(2, 3))),
        (aten.gelu.default, (meta(3, 2, dtype=torch.float16),)),
    ],
)
def test_a_shortcut_declines_what_it_does_not_know(operator, arguments):
    assert SHORTCUTS[operator](*arguments) is NotImplemented


@pytest.mark.parametrize("name", ["vit_ti16", "resnet18", "swin_ti", "efficientvit_b1"])
def test_counts_are_the_same_without_shortcuts(name, monkeypatch):
    with_shortcuts = count(name)
    monkeypatch.setattr("favor.trace.operator_trace.SHORTCUTS", {})
    assert count(name) == with_shortcuts


def test_a_network_built_uninitialized_is_the_same_network():
    def described_network(network: nn.Module) -> list[tuple[str, torch.Size, torch.dtype, bool]]:
        return [(n, t.shape, t.dtype, t.requires_grad) for n, t in network.state_dict(keep_vars=True).items()]

    with torch.device("meta"), SkipInitialization():
        empty = create_model("swin_ti")
    with torch.device("meta"):
        initialized = create_model("swin_ti")
    assert described_network(empty) == described_network(initialized)


def test_building_uninitialized_leaves_real_tensors_alone():
    with SkipInitialization():
        assert torch.zeros(3).add_(2).mul_(2).tolist() == [4, 4, 4]
