"""From operators to kernels: classes, work and bytes."""

import functools
import itertools
from collections import Counter
from dataclasses import replace

import pytest
import torch
from hypothesis import given
from hypothesis import strategies as st
from torch import nn

from favor.simulation.calibration import shipped_calibration
from favor.simulation.devices import device
from favor.simulation.kernels import CLASSES, Kernel, kernels_of
from favor.simulation.networks import network
from favor.simulation.tiles import cuts
from favor.simulation.time_model import demands_on, estimate
from favor.trace.fake_device import trace_on
from favor.trace.operator_trace import trace_call

sides = st.integers(1, 3000)
sums = st.integers(0, 3000)


@given(sides, sides, sums, st.integers(1, 5))
def test_tiles_cover_the_product_and_waste_less_than_a_tile_on_each_side(rows, columns, inner, batch):
    for cut in cuts(rows, columns, inner, batch):
        assert cut.macs >= batch * rows * columns * inner
        assert cut.macs <= batch * (rows + 256) * (columns + 256) * (inner + 8)
        assert cut.tiles % batch == 0
        assert cut.slower >= 1


@given(sides, sides, sides, st.integers(1, 5))
def test_further_cuts_have_more_tiles_and_more_work(rows, columns, inner, batch):
    found = cuts(rows, columns, inner, batch)
    for fewer, more in itertools.pairwise(found):
        assert 1.15 * fewer.tiles < more.tiles
        assert fewer.macs * fewer.slower <= more.macs * more.slower
    assert all(cut.tiles < 1024 for cut in found[:-1]), "what keeps any GPU busy needs no other"


@given(sides, sides, sides)
def test_a_product_never_gets_cheaper_by_growing(rows, columns, inner):
    larger, smaller = (cuts(height, columns, inner)[0] for height in (rows + 256, rows))
    assert larger.macs * larger.slower > smaller.macs * smaller.slower


@pytest.mark.parametrize(("columns", "inner"), [(384, 384), (1152, 384), (1536, 384), (384, 1536)])
def test_few_images_are_cut_small_enough_to_keep_a_card_busy(columns, inner):
    """The products of a ViT-S: fewer images never take longer, as they did with tiles for many."""
    layer = nn.Linear(inner, columns)
    for name in ("v100", "a100", "rtx4090"):
        place, times = device(name).model_copy(update={"launch_us": 0.01}), []
        for images in range(1, 17):
            (kernel,) = kernels_of(trace_on("cuda", layer, (images, 197, 1, inner)).steps)
            times.append(estimate(place, [kernel], shipped_calibration()).seconds)
        assert all(few < many for few, many in itertools.pairwise(times))
        assert times[0] < 0.8 * times[3], "one image takes less than four"


def test_each_device_cuts_a_product_as_it_needs():
    """More tiles with more work are for the card that fewer would leave idle."""
    product = Kernel("gemm", macs=10**9, blocks=20, other_cuts=((15 * 10**8, 80),))
    small, large = (device("rtx3090").model_copy(update={"multiprocessors": units}) for units in (20, 80))
    for place, macs in ((small, 10**9), (large, 15 * 10**8)):
        at_peak = replace(product, macs=macs, blocks=place.multiprocessors, other_cuts=())
        demands = demands_on(place, [product])
        assert demands.matrix[0] == demands_on(place, [at_peak]).matrix[0]
        assert demands.tiles[0] == pytest.approx(1 / place.clock), "a tile for each multiprocessor"


def test_a_product_that_keeps_any_device_busy_is_cut_in_one_way():
    (cut,) = cuts(197 * 1024, 1536, 384)
    assert cut.macs == 197 * 1024 * 1536 * 384
    assert cut.tiles == 197 * 1024 // 256 * 12


def product_of(left: torch.Tensor, right: torch.Tensor) -> Kernel:
    (kernel,) = kernels_of(trace_call(lambda: left @ right, {"input": [left, right]}, "product").steps)
    return kernel


def matrix(rows: int, columns: int, dtype: torch.dtype = torch.float32) -> torch.Tensor:
    return torch.empty(rows, columns, device="meta", dtype=dtype)


def test_small_tiles_are_priced_for_what_they_read():
    """A product that every cut divides evenly is slower of 128 x 128 tiles than of 256 x 128, slowest of 32 x 32."""
    kernel = product_of(matrix(256, 256), matrix(256, 1024))
    assert (kernel.macs, kernel.blocks) == (256 * 256 * 1024, 8)
    assert kernel.other_cuts[0] == (round(kernel.macs * (1 + 24 * 2 / 128) / (1 + 24 * (1 / 256 + 1 / 128))), 16)
    assert kernel.other_cuts[-1] == (round(kernel.macs * (1 + 24 * 2 / 32) / (1 + 24 * (1 / 256 + 1 / 128))), 256)


def test_parts_of_a_sum_are_priced_for_being_joined():
    kernel = product_of(matrix(256, 65536), matrix(65536, 128))
    assert kernel.blocks == 1
    assert kernel.other_cuts[0] == (round(kernel.macs * (1 + 128 / 65536)), 2)
    short = product_of(matrix(256, 1000), matrix(1000, 128))
    assert (round(short.macs * (1 + 128 / 1000)), 2) not in short.other_cuts, "no part is shorter than 512"


def test_a_convolution_has_other_cuts_too():
    (convolution,) = (kernel for kernel in on_gpu(nn.Conv2d(16, 256, 3, padding=1), **HALF) if kernel.group == "conv")
    assert convolution.other_cuts


def test_an_empty_sum_is_a_product_of_nothing():
    kernel = product_of(matrix(16, 0), matrix(0, 64))
    assert (kernel.group, kernel.macs) == ("gemm_full", 0)


@pytest.mark.parametrize(
    ("left", "right", "group"),
    [
        (matrix(16, 64, torch.float16), matrix(64, 32, torch.float16), "gemm"),
        (matrix(16, 63, torch.float16), matrix(63, 32, torch.float16), "gemm_unaligned"),
        (matrix(16, 64, torch.float16), matrix(64, 31, torch.float16), "gemm_unaligned"),
        # The gradient of a weight sums over tokens, and no line is of them.
        (matrix(63, 16, torch.float16).T, matrix(63, 32, torch.float16), "gemm"),
    ],
)
def test_products_are_aligned_where_their_lines_are(left, right, group):
    assert product_of(left, right).group == group


def test_the_tensors_of_a_list_are_one_kernel():
    weights = [torch.empty(3, 4, device="meta"), torch.empty(50, device="meta")]
    run = functools.partial(torch._foreach_lerp_, weights, [each.clone() for each in weights], 0.1)
    (kernel,) = kernels_of(trace_call(run, {"parameter": weights}, "step").steps)
    assert (kernel.group, kernel.lanes, kernel.written) == ("elementwise", 62, 4 * 62)
    assert kernel.bytes_moved == 3 * 4 * 62


def on_gpu(model: nn.Module, channels_last: bool = False, **options):
    return kernels_of(trace_on("cuda", model.eval(), (2, 16, 32, 32), channels_last=channels_last, **options).steps)


def groups(kernels) -> list[str]:
    return [kernel.group for kernel in kernels]


HALF = {"autocast": torch.float16}


def test_a_convolution_in_mixed_precision_turns_its_data_and_adds_its_bias_apart():
    found = on_gpu(nn.Conv2d(16, 32, 3, padding=1), **HALF)
    assert groups(found) == ["cast", "cast", "cast", "conv", "layout", "bias"]
    convolution, layout, bias = found[3:]
    assert convolution.macs >= 2 * 32 * 32 * 32 * 16 * 9
    assert layout.bytes_moved == 2 * (2 * 16 * 32 * 32 + 2 * 32 * 32 * 32) * 2
    assert bias.bytes_moved == 2 * (2 * 32 * 32 * 32) * 2


def test_channels_last_and_pointwise_convolutions_turn_nothing():
    assert "layout" not in groups(on_gpu(nn.Conv2d(16, 32, 3), channels_last=True, **HALF))
    assert "layout" not in groups(on_gpu(nn.Conv2d(16, 32, 1), **HALF))


@pytest.mark.parametrize(
    ("layer", "group"),
    [
        (nn.Conv2d(16, 16, 3, groups=16), "depthwise_small"),
        (nn.Conv2d(16, 16, 5, groups=16), "depthwise_middle"),
        (nn.Conv2d(16, 16, 7, groups=16), "depthwise_large"),
        (nn.Conv2d(16, 16, 9, groups=16), "depthwise_huge"),
        (nn.Conv2d(16, 16, 3, groups=2), "conv_grouped"),
        (nn.Conv2d(16, 8, 4, stride=4), "conv_patch"),
        (nn.ConvTranspose2d(16, 8, 2, stride=2), "conv_patch"),
        (nn.BatchNorm2d(16), "batch_norm"),
        (nn.GroupNorm(4, 16), "group_norm"),
        (nn.Softmax(-1), "softmax"),
        (nn.GELU(), "activation"),
        (nn.Upsample(scale_factor=2, mode="bilinear"), "resize"),
        (nn.Upsample(scale_factor=2, mode="nearest"), "rearrange"),
        (nn.AvgPool2d(2), "pool"),
        (nn.Linear(32, 64), "gemm"),
        (nn.Linear(32, 63), "gemm_unaligned"),
    ],
    ids=lambda value: value if isinstance(value, str) else type(value).__name__,
)
def test_an_operator_is_in_its_class(layer, group):
    assert group in groups(on_gpu(layer, **HALF))


def test_bilinear_resizing_is_as_many_steps_as_images_times_channels():
    (resize,) = [k for k in on_gpu(nn.Upsample(scale_factor=2, mode="bilinear")) if k.group == "resize"]
    assert resize.steps == 2 * 16
    last = on_gpu(nn.Upsample(scale_factor=2, mode="bilinear"), channels_last=True)
    assert all(kernel.steps == 0 for kernel in last)


def test_norms_read_their_data_twice_where_statistics_or_gradients_are_a_pass_of_their_own():
    norm = nn.BatchNorm2d(16)
    data = 2 * 16 * 32 * 32 * 4
    (whole,) = on_gpu(norm)
    assert whole.reads[0][0] == pytest.approx(data, rel=0.01)
    trace = trace_on("cuda", norm.train(), (2, 16, 32, 32), training=True)
    forward, backward = (kernel for kernel in kernels_of(trace.steps) if kernel.group == "batch_norm")
    assert forward.reads[0][0] == pytest.approx(2 * data, rel=0.01)
    assert sum(size for size, _ in backward.reads) == pytest.approx(2 * 2 * data, rel=0.01)


def test_a_long_sum_is_cut_into_parts_where_its_tiles_would_leave_a_gpu_idle():
    found = cuts(384, 384, 65536)
    assert found[0].tiles == 9
    in_parts = [cut for cut in found if cut.macs == found[0].macs and cut.slower < 1.1 * found[0].slower]
    assert [cut.tiles for cut in in_parts] == [9, 18, 36, 72, 144, 288], "at little more than the products themselves"
    (cut,) = cuts(65536, 4096, 65536)
    assert cut.tiles == 65536 // 256 * 4096 // 128, "there are enough tiles"


def test_float32_products_stay_off_the_half_precision_units():
    (product,) = on_gpu(nn.Linear(32, 64))
    assert (product.group, product.unit) == ("gemm_full", "fp32")
    assert [k.unit for k in on_gpu(nn.Conv2d(16, 32, 3, bias=False))] == ["tf32"]


@pytest.mark.parametrize(
    ("layer", "group"),
    [
        (nn.Conv2d(16, 16, 3, padding=1), "conv_full_3x3"),
        (nn.Conv2d(16, 16, 3, stride=2, padding=1), "conv_full"),
        (nn.Conv2d(16, 16, 1), "conv_full_pointwise"),
        (nn.Conv2d(16, 16, (1, 9), padding=(0, 4)), "conv_full"),
        (nn.Conv2d(16, 16, 3, padding=1, groups=2), "conv_full_3x3"),
        (nn.Conv2d(16, 16, 3, stride=2, padding=1, groups=2), "conv_full"),
        (nn.Conv2d(16, 16, 1, groups=2), "conv_full_pointwise"),
    ],
    ids=["3x3", "strided", "pointwise", "1x9", "grouped", "grouped strided", "grouped pointwise"],
)
def test_a_convolution_in_float32_is_in_its_class(layer, group):
    assert group in groups(on_gpu(layer))


def test_a_grouped_convolution_pads_its_channels_for_matrix_units_only():
    layer = nn.Conv2d(16, 16, 3, groups=4, bias=False)
    exact = 2 * 30**2 * layer.weight.numel()
    (lanes,) = on_gpu(layer)
    (matrix,) = [kernel for kernel in on_gpu(layer, **HALF) if kernel.group == "conv_grouped"]
    assert (lanes.group, lanes.macs, lanes.padded) == ("conv_full_3x3", exact, matrix.macs)
    assert matrix.macs == 16 * exact, "4 x 4 channels become 16 x 16"


def test_a_vit_in_mixed_precision_has_one_attention_and_four_products_a_block(small_vit):
    found = Counter(groups(kernels_of(small_vit.batches().trace_at(2).steps)))
    assert found["attention_flash"] == 4
    assert found["gemm"] + found["gemm_unaligned"] == 4 * 4 + 1


def test_attention_over_stretches_of_tokens_has_no_fused_kernel():
    class Attention(nn.Module):
        def forward(self, x):
            x = x.unflatten(2, self.stretches)
            return nn.functional.scaled_dot_product_attention(x, x, x)

    model = Attention()
    model.stretches = (32,)
    assert groups(on_gpu(model, **HALF)).count("attention_flash") == 1
    model.stretches = (4, 8)
    apart = groups(on_gpu(model, **HALF))
    assert not {"attention_efficient", "attention_flash"} & set(apart)
    assert sum(group.startswith("bmm") for group in apart) == 2
    assert "softmax" in apart


def test_reuse_is_told_by_the_bytes_touched_since(small_vit):
    found = kernels_of(small_vit.batches().trace_at(2).steps)
    weight_casts = [kernel for kernel in found if kernel.group == "cast"]
    assert weight_casts[0].reads[0][1] == float("inf"), "a weight has not been touched before"
    reused = [distance for kernel in found for _, distance in kernel.reads if distance < float("inf")]
    assert min(reused) >= 0
    assert max(reused) <= sum(kernel.bytes_moved for kernel in found)


@pytest.mark.parametrize("phase", ["inference", "training"])
@pytest.mark.parametrize("name", ["vit_xs4", "resnet18", "vix_fnet"])
def test_every_kernel_is_in_a_known_class_and_products_are_no_less_than_counted(name, phase):
    trace = network(name, phase, "amp").batches().trace_at(2)
    found = kernels_of(trace.steps)
    assert {kernel.group for kernel in found} <= set(CLASSES)
    counted = sum(op.work.macs_matmul for op in trace.ops)
    assert sum(k.macs + (k.lanes if k.group.startswith("depthwise") else 0) for k in found) >= 0.99 * counted


def test_what_is_read_twice_at_once_is_read_once():
    """The two products do the same to tensors of one form, but the first one's are one."""
    x, y = torch.empty(4, 6, device="meta"), torch.empty(4, 6, device="meta")
    found = kernels_of(trace_call(lambda: (x * x, x * y), {"input": [x, y]}, "squares").steps)
    assert [len(kernel.reads) for kernel in found] == [1, 2]
