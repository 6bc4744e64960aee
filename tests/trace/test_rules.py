"""Every rule against a formula written by hand."""

from collections.abc import Callable
from dataclasses import fields
from math import log2

import pytest
import torch
from hypothesis import given, settings
from hypothesis import strategies as st
from torch import Tensor, nn

from favor.errors import WorkError
from favor.trace.operator_trace import Op, trace
from favor.trace.rules import Call, Work, find_rule, rule
from favor.trace.rules.registry import RULES

aten = torch.ops.aten


class Function(nn.Module):
    """A function of one tensor as a network."""

    def __init__(self, function: Callable[[Tensor], object]) -> None:
        super().__init__()
        self.function = function

    def forward(self, x: Tensor) -> object:
        return self.function(x)


def meta(*shape: int, dtype: torch.dtype = torch.float32) -> Tensor:
    return torch.empty(shape, dtype=dtype, device="meta")


def ops_of(function: Callable[[Tensor], object], x: Tensor) -> list[Op]:
    return [op for op in trace(Function(function), x).ops if op.kind != "view"]


def work_of(function: Callable[[Tensor], object], x: Tensor) -> Work:
    works = [op.work for op in ops_of(function, x)]
    return Work(*(sum(getattr(work, field.name) for work in works) for field in fields(Work)))


# ---- lists of tensors, as optimizers update them


def test_a_list_costs_what_its_tensors_cost_one_by_one_and_is_written_in_place_or_anew():
    first, second, third = ([meta(3, 4), meta(5)] for _ in range(3))
    (added,) = ops_of(lambda x: torch._foreach_addcmul_(first, second, third, 0.5), meta(1))
    assert (added.kind, added.work.other_flops) == ("foreach", 2 * (12 + 5))
    assert (added.bytes_read, added.bytes_written) == (3 * 4 * 17, 4 * 17)
    (root,) = ops_of(lambda x: torch._foreach_sqrt(first), meta(1))
    assert (root.work.other_flops, root.bytes_read, root.bytes_written) == (17, 4 * 17, 4 * 17)


# ---- products


@pytest.mark.parametrize(
    ("function", "x", "macs", "outputs"),
    [
        (lambda x: x @ meta(4, 5), meta(3, 4), 3 * 4 * 5, 15),
        (lambda x: torch.bmm(x, meta(2, 4, 5)), meta(2, 3, 4), 2 * 3 * 4 * 5, 30),
        (lambda x: torch.matmul(x, meta(7, 4, 5)), meta(2, 7, 3, 4), 2 * 7 * 3 * 4 * 5, 210),
        (lambda x: torch.mv(x, meta(4)), meta(3, 4), 12, 3),
        (lambda x: torch.dot(x, meta(9)), meta(9), 9, 1),
        (lambda x: torch.addmm(meta(5), x, meta(4, 5)), meta(3, 4), 60, 15),
        (lambda x: torch.baddbmm(meta(2, 3, 5), x, meta(2, 4, 5)), meta(2, 3, 4), 120, 30),
        (lambda x: torch.addbmm(meta(3, 5), x, meta(2, 4, 5)), meta(2, 3, 4), 120, 15),
        (lambda x: torch.einsum("bnd,bmd->bnm", x, meta(2, 6, 4)), meta(2, 5, 4), 2 * 5 * 6 * 4, 60),
        (lambda x: nn.functional.linear(x, meta(5, 4), meta(5)), meta(2, 3, 4), 2 * 3 * 4 * 5, 30),
    ],
)
def test_a_matrix_product_has_as_many_multiply_adds_as_its_definition(function, x, macs, outputs):
    work = work_of(function, x)
    assert (work.macs_matmul, work.activations) == (macs, outputs)


def test_a_complex_multiply_add_is_four_real_ones():
    x = meta(3, 4, dtype=torch.complex64)
    assert work_of(lambda x: x @ meta(4, 5, dtype=torch.complex64), x).macs_matmul == 4 * 60


def test_a_bias_is_an_addition_per_output_and_not_a_multiply_add():
    work = work_of(lambda x: nn.functional.linear(x, meta(5, 4), meta(5)), meta(3, 4))
    assert (work.macs_matmul, work.other_flops, work.flops) == (60, 15, 135)


@settings(max_examples=40, deadline=None)
@given(
    batch=st.integers(1, 3),
    groups=st.integers(1, 3),
    channels=st.tuples(st.integers(1, 3), st.integers(1, 3)),
    side=st.integers(5, 9),
    kernel=st.integers(1, 3),
    stride=st.integers(1, 3),
    padding=st.integers(0, 2),
    dilation=st.integers(1, 2),
)
def test_a_convolution_multiplies_one_filter_per_output_element(
    batch, groups, channels, side, kernel, stride, padding, dilation
):
    channels_in, channels_out = channels[0] * groups, channels[1] * groups
    conv = nn.Conv2d(channels_in, channels_out, kernel, stride, padding, dilation, groups, bias=False, device="meta")
    out_side = (side + 2 * padding - dilation * (kernel - 1) - 1) // stride + 1
    outputs = batch * channels_out * out_side**2
    work = work_of(conv, meta(batch, channels_in, side, side))
    assert (work.macs_matmul, work.activations) == (outputs * channels[0] * kernel**2, outputs)


def test_a_depthwise_convolution_costs_its_kernel_per_output():
    conv = nn.Conv2d(8, 8, 3, padding=1, groups=8, device="meta")
    work = work_of(conv, meta(2, 8, 7, 7))
    assert (work.macs_matmul, work.other_flops) == (2 * 8 * 49 * 9, 2 * 8 * 49)


def test_a_transposed_convolution_multiplies_one_filter_per_input_element():
    conv = nn.ConvTranspose2d(6, 4, 3, stride=2, groups=2, device="meta")
    assert work_of(conv, meta(2, 6, 5, 5)).macs_matmul == 2 * 6 * 25 * (4 // 2) * 9


def test_a_convolution_of_one_or_three_dimensions_is_counted():
    assert work_of(nn.Conv1d(2, 3, 5, device="meta"), meta(1, 2, 9)).macs_matmul == 3 * 5 * 2 * 5
    assert work_of(nn.Conv3d(2, 3, 2, device="meta"), meta(1, 2, 4, 4, 4)).macs_matmul == 3 * 27 * 2 * 8


def test_convolution_backward_counts_only_the_gradients_that_are_asked_for():
    network = nn.Sequential(nn.Conv2d(3, 4, 3, device="meta"), nn.Conv2d(4, 5, 3, device="meta"))
    first, second = 4 * 36 * 27, 5 * 16 * 36
    backward = [op for op in trace(network, meta(1, 3, 8, 8), training=True).ops if op.phase == "backward"]
    found = [op.work.macs_matmul for op in backward if "convolution" in op.name]
    assert found == [2 * second, first], "the image wants no gradient"


# ---- attention


def attention(q: Tensor) -> Tensor:
    return nn.functional.scaled_dot_product_attention(q, q[..., :5, :], q[..., :5, :])


def test_fused_attention_equals_its_parts_in_every_count():
    shape = (2, 3, 7, 4)
    parts, fused = work_of(attention, meta(*shape)), work_of(attention, torch.ones(shape))
    assert [op.kind for op in ops_of(attention, torch.ones(shape))] == ["attention"]
    assert "attention" not in {op.kind for op in ops_of(attention, meta(*shape))}
    assert fused.macs_matmul == 2 * (2 * 3 * 7 * 5 * 4)
    assert (fused.macs_matmul, fused.flops, fused.activations) == (parts.macs_matmul, parts.flops, parts.activations)


def test_the_mask_of_fused_attention_is_an_addition_per_score():
    q, mask = torch.ones(1, 2, 6, 4), torch.zeros(6, 6)
    masked = work_of(lambda q: nn.functional.scaled_dot_product_attention(q, q, q, attn_mask=mask), q)
    assert (
        masked.other_flops - work_of(lambda q: nn.functional.scaled_dot_product_attention(q, q, q), q).other_flops == 72
    )


@pytest.mark.parametrize(
    "name",
    [
        "_scaled_dot_product_flash_attention",
        "_scaled_dot_product_flash_attention_for_cpu",
        "_scaled_dot_product_efficient_attention",
        "_scaled_dot_product_cudnn_attention",
        "_scaled_dot_product_attention_math_for_mps",
        "_scaled_dot_product_fused_attention_overrideable",
    ],
)
def test_every_fused_attention_counts_both_products(name):
    q, k, v = torch.ones(2, 3, 7, 4), torch.ones(2, 3, 5, 4), torch.ones(2, 3, 5, 8)
    operator = getattr(aten, name)
    found = find_rule(getattr(operator, operator.overloads()[0]), "test")
    assert found.kind == "attention"
    assert found.work(Call((q, k, v), {}, [q, k, v], [])).macs_matmul == 2 * 3 * 7 * 5 * (4 + 8)


@pytest.mark.parametrize(
    "name",
    [
        "_scaled_dot_product_flash_attention_backward",
        "_scaled_dot_product_flash_attention_for_cpu_backward",
        "_scaled_dot_product_efficient_attention_backward",
        "_scaled_dot_product_cudnn_attention_backward",
        "_scaled_dot_product_fused_attention_overrideable_backward",
    ],
)
def test_every_fused_attention_backward_counts_five_products(name):
    grad, q, k, v = torch.ones(2, 3, 7, 8), torch.ones(2, 3, 7, 4), torch.ones(2, 3, 5, 4), torch.ones(2, 3, 5, 8)
    operator = getattr(aten, name)
    work = find_rule(getattr(operator, operator.overloads()[0]), "test").work(Call((), {}, [grad, q, k, v], []))
    scores, probabilities, values, queries, keys = (2 * 3 * 7 * 5 * width for width in (4, 8, 8, 4, 4))
    assert work.macs_matmul == scores + probabilities + values + queries + keys


# ---- Fourier transforms


@given(length=st.integers(2, 64), batch=st.integers(1, 4))
@settings(max_examples=20, deadline=None)
def test_a_complex_transform_of_n_points_is_5_n_log_n_and_a_real_one_half(length, batch):
    cost = 5 * batch * length * log2(length)
    work = work_of(lambda x: torch.fft.fft(x), meta(batch, length, dtype=torch.complex64))
    assert work.fft_flops == round(cost)
    assert work_of(lambda x: torch.fft.rfft(x), meta(batch, length)).fft_flops == round(cost / 2)


def test_a_two_dimensional_transform_and_its_inverse_cost_the_same():
    forth = work_of(lambda x: torch.fft.rfft2(x, dim=(1, 2)), meta(2, 14, 14, 8))
    back = work_of(lambda x: torch.fft.irfft2(x, s=(14, 14), dim=(1, 2)), meta(2, 14, 8, 8, dtype=torch.complex64))
    assert forth.fft_flops == back.fft_flops == round(2.5 * 2 * 14 * 14 * 8 * log2(196))


# ---- element by element


@pytest.mark.parametrize(
    ("function", "flops", "mixed"),
    [
        (lambda x: x + 1, 1, 1),
        (lambda x: x * 2, 1, 1),
        (lambda x: x / 3, 1, 1),
        (lambda x: x**2, 1, 3),
        (torch.exp, 1, 20),
        (torch.log, 1, 20),
        (torch.sigmoid, 4, 22),
        (nn.functional.gelu, 5, 8),
        (nn.functional.silu, 5, 0),
        (nn.functional.relu, 1, 0),
        (nn.functional.hardswish, 5, 0),
        (torch.tanh, 1, 0),
        (lambda x: x.clamp(0, 1), 1, 0),
        (lambda x: torch.softmax(x, -1), 5, 5),
        (lambda x: torch.log_softmax(x, -1), 5, 5),
        (lambda x: nn.functional.layer_norm(x, (6,), meta(6), meta(6)), 7, 5),
        (lambda x: nn.functional.layer_norm(x, (6,)), 5, 4),
        (lambda x: nn.functional.group_norm(x, 3, meta(6), meta(6)), 7, 5),
        (lambda x: nn.functional.batch_norm(x, meta(6), meta(6), meta(6), meta(6)), 2, 2),
        (lambda x: torch.where(x > 0, x, x), 2, 0),
    ],
)  # fmt: skip
def test_an_element_wise_operator_has_its_price_per_element(function, flops, mixed):
    x = meta(4, 6)
    work = work_of(function, x)
    assert (work.other_flops, work.mixed_ops) == (24 * flops, 24 * mixed)


def test_an_operator_in_place_costs_what_its_twin_costs():
    assert work_of(lambda x: x.add_(1).mul_(2), meta(4, 6)) == work_of(lambda x: x.add(1).mul(2), meta(4, 6))


def test_broadcasting_costs_per_output_element():
    assert work_of(lambda x: x + meta(4, 1, 6), meta(5, 6)).other_flops == 4 * 5 * 6


def test_a_complex_product_is_six_operations_and_a_complex_sum_two():
    z = meta(5, dtype=torch.complex64)
    assert work_of(lambda z: z * z, z).other_flops == 30
    assert work_of(lambda z: z + z, z).other_flops == 10


def test_index_arithmetic_is_no_flop():
    indices = meta(7, dtype=torch.int64)
    assert work_of(lambda i: (i * 3 + 1).clamp(0, 5).sum(), indices) == Work()
    assert work_of(lambda x: (x * 3 + 1).clamp(0, 5).sum(), indices.float()).other_flops == 4 * 7


@pytest.mark.parametrize(
    ("function", "flops", "mixed"),
    [
        (lambda x: x.sum(-1), 24, 24 - 4),
        (lambda x: x.mean(-1), 24, 24),
        (lambda x: x.amax(-1), 24, 0),
        (lambda x: x.argmax(-1), 24, 0),
        (lambda x: torch.linalg.vector_norm(x, dim=-1), 48, 48 - 4),
        (lambda x: x.var(-1), 96, 0),
        (lambda x: x.cumsum(-1), 24, 24 * 5 // 2),
        (lambda x: x.sort(-1), 24 * 3, 0),
        (lambda x: x.argsort(0), 24 * 2, 0),
        (lambda x: x.topk(2, -1), 24 + 8, 0),
    ],
)
def test_a_reduction_is_priced_by_its_input(function, flops, mixed):
    work = work_of(function, meta(4, 6))
    assert (work.other_flops, work.mixed_ops) == (flops, mixed)


@pytest.mark.parametrize(
    ("function", "flops", "mixed"),
    [
        (lambda x: nn.functional.avg_pool2d(x, 2), 2 * 16 * 4, 2 * 64),
        (lambda x: nn.functional.max_pool2d(x, 3, 2, 1), 2 * 16 * 9, 0),
        (lambda x: nn.functional.adaptive_avg_pool2d(x, 2), 2 * 64, 2 * 64),
        (lambda x: nn.functional.adaptive_avg_pool2d(x, 1), 2 * 64, 2 * 64),
        (lambda x: nn.functional.interpolate(x, scale_factor=2, mode="bilinear"), 2 * 256 * 7, 2 * 256 * 4),
        (lambda x: nn.functional.interpolate(x, scale_factor=2, mode="nearest"), 0, 2 * 256),
        (lambda x: nn.functional.interpolate(x, size=4, mode="bilinear", antialias=True), 2 * 16 * 31, 2 * 16 * 4),
        (lambda x: nn.functional.grid_sample(x, meta(1, 3, 3, 2), align_corners=False), 2 * 9 * 7 + 5 * 18, 2 * 9 * 4),
    ],
)
def test_pooling_and_resizing_are_priced_by_their_taps(function, flops, mixed):
    work = work_of(function, meta(1, 2, 8, 8))
    assert (work.other_flops, work.mixed_ops) == (flops, mixed)


def test_a_scatter_that_adds_costs_an_addition_per_source_element():
    index = meta(4, 6, dtype=torch.int64)
    assert work_of(lambda x: meta(4, 9).scatter_add(1, index, x), meta(4, 6)).other_flops == 24
    assert work_of(lambda x: meta(4, 9).scatter_reduce(1, index, x, "mean"), meta(4, 6)).other_flops == 24
    assert work_of(lambda x: meta(4, 9).scatter(1, index, x), meta(4, 6)).other_flops == 0


def test_dense_linear_algebra_follows_the_textbook():
    assert work_of(torch.linalg.inv, meta(3, 6, 6)).other_flops >= 3 * 2 * 6**3
    assert work_of(lambda x: torch.linalg.qr(x)[0], meta(6, 4)).other_flops == 2 * (2 * 6 * 16 - 2 * 64 // 3)


@pytest.mark.filterwarnings("ignore:torch.triangular_solve is deprecated")
@pytest.mark.parametrize("columns", [1, 5])
def test_a_solve_with_known_factors_costs_its_triangular_solves_only(columns):
    """n^2 operations per column and triangle: a matrix that was factored before is not factored again."""
    n, batch = 4, 3
    matrices, right = torch.eye(n).repeat(batch, 1, 1), torch.ones(batch, n, columns)
    pivots = torch.arange(1, n + 1, dtype=torch.int32).repeat(batch, 1)
    one_triangle = batch * n**2 * columns
    for function, triangles in (
        (lambda x: torch.linalg.lu_solve(matrices, pivots, x), 2),
        (lambda x: torch.cholesky_solve(x, matrices), 2),
        (lambda x: torch.linalg.solve_triangular(matrices, x, upper=True), 1),
        (lambda x: torch.triangular_solve(x, matrices)[0], 1),
    ):
        assert work_of(function, right).other_flops == triangles * one_triangle


# ---- bytes


def traffic_of(function: Callable[[Tensor], object], x: Tensor) -> tuple[int, int]:
    ops = ops_of(function, x)
    return sum(op.bytes_read for op in ops), sum(op.bytes_written for op in ops)


@pytest.mark.parametrize(
    ("function", "read", "written"),
    [
        (lambda x: x + 1, 96, 96),
        (lambda x: x + x, 96, 96),  # the same tensor is read once
        (lambda x: x.add_(1), 96, 96),
        (lambda x: x.half(), 96, 48),
        (lambda x: x.clone(), 96, 96),
        (lambda x: x.zero_(), 0, 96),
        (lambda x: torch.cat([x, x[:2]]), 96 + 48, 144),
        (lambda x: x @ meta(6, 5), 96 + 120, 80),
        (lambda x: meta(4, 6).copy_(x), 96, 96),
        (lambda x: torch.zeros_like(x), 0, 96),
        (lambda x: torch.rand_like(x), 0, 96),
        (lambda x: x[meta(2, dtype=torch.int64)], 48 + 16, 48),
        (lambda x: x.gather(1, meta(4, 2, dtype=torch.int64)), 32 + 64, 32),
        (lambda x: x[:, :1].expand(4, 1000) + 1, 96, 16000),  # an expanded tensor has no more than its storage
        (lambda x: x.t().unsqueeze(0).view(6, 4)[1:], 0, 0),
        (lambda x: torch.empty_like(x), 0, 0),
    ],
)
def test_an_operator_reads_and_writes_the_bytes_of_its_tensors(function, read, written):
    assert traffic_of(function, meta(4, 6)) == (read, written)


def test_a_view_has_neither_work_nor_bytes():
    ops = trace(Function(lambda x: x.view(2, 12).transpose(0, 1).unbind(1)[0].detach()), meta(4, 6)).ops
    assert len(ops) >= 3
    assert {(op.kind, op.work, op.bytes_read, op.bytes_written) for op in ops} == {("view", Work(), 0, 0)}


# ---- strictness


@torch.library.custom_op("favor_test::twist", mutates_args=())
def twist(x: Tensor) -> Tensor:
    return x.flip(0)


@twist.register_fake
def _(x: Tensor) -> Tensor:
    return torch.empty_like(x)


def test_an_operator_without_a_rule_is_an_error_that_names_it_the_model_and_the_remedy():
    with pytest.raises(WorkError, match=r"favor_test\.twist\.default.*called by Function.*@favor\.trace\.rules\.rule"):
        trace(Function(twist), meta(4))


def test_a_rule_of_ones_own_makes_an_operator_count():
    operator = torch.ops.favor_test.twist
    try:

        @rule(operator, kind="copy")
        def _twist(call: Call) -> Work:
            return Work(other_flops=3 * call.inputs[0].numel())

        assert work_of(twist, meta(4)).other_flops == 12
        with pytest.raises(ValueError, match="has a rule already"):
            rule(operator, kind="copy")(_twist)
    finally:
        RULES.pop(operator, None)


def test_an_error_in_the_backward_pass_is_strict_too():
    class Twisted(torch.autograd.Function):
        @staticmethod
        def forward(ctx, x):
            return x * 2

        @staticmethod
        def backward(ctx, grad):
            return twist(grad)

    network = nn.Sequential(nn.Linear(4, 3, device="meta"), Function(Twisted.apply))
    assert trace(network, meta(2, 4)).ops
    with pytest.raises(WorkError, match=r"favor_test\.twist"):
        trace(network, meta(2, 4), training=True)
