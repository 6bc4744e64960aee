"""Counts against closed forms, other counters and the reference figures."""

import csv
import os
import subprocess
import sys
from pathlib import Path

import pytest
import torch
from torch import Tensor, nn
from torch.utils.flop_counter import FlopCounterMode

from favor.errors import RequestError, WorkError
from favor.metrics import METRICS
from favor.trace.counts import METRIC_NAMES, count
from favor.trace.fake_device import on_meta
from favor.zoo.registry import create_model

WIDTHS = {"vit_ti16": (192, 3, 12), "vit_s16": (384, 6, 12), "vit_b16": (768, 12, 12), "vit_l16": (1024, 16, 24)}


def vit_macs(width: int, depth: int, img_size: int, classes: int) -> int:
    """Patches, then per block qkv, scores, values, projection and an MLP of ratio 4; the head sees one token."""
    patches = (img_size // 16) ** 2
    tokens = patches + 1
    block = (
        tokens * 3 * width * width + 2 * tokens * tokens * width + tokens * width * width + 8 * tokens * width * width
    )
    return patches * 3 * 256 * width + depth * block + width * classes


@pytest.mark.parametrize(
    ("name", "img_size", "classes"),
    [
        ("vit_ti16", 224, 1000),
        ("vit_s16", 224, 1000),
        ("vit_b16", 224, 1000),
        ("vit_l16", 224, 1000),
        ("vit_s16", 384, 10),
        ("vit_ti16", 64, 100),
        ("vit_b16", 512, 1000),
        ("vit_ti16", 1024, 1000),
    ],
)
def test_the_multiply_adds_of_vit_are_the_closed_form_to_the_unit(name, img_size, classes):
    width, _, depth = WIDTHS[name]
    found = count(name, img_size=img_size, num_classes=classes)
    assert found.macs_matmul == found.macs == vit_macs(width, depth, img_size, classes)


def test_a_rectangular_image_is_counted_by_its_patches():
    found = count("vit_ti16", img_size=(224, 112))
    tokens = 14 * 7 + 1
    block = tokens * 12 * 192 * 192 + 2 * tokens * tokens * 192
    assert found.macs_matmul == 98 * 768 * 192 + 12 * block + 192_000


@pytest.mark.parametrize("batch_size", [1, 4])
def test_a_training_step_of_vit_is_three_forward_passes_less_the_gradient_of_the_image(batch_size):
    forward = count("vit_ti16").macs_matmul
    found = count("vit_ti16", training=True, batch_size=batch_size)
    assert found.macs_matmul == 3 * forward - 196 * 768 * 192


def test_work_is_per_image_whatever_the_batch():
    one, eight = count("vit_ti16", img_size=64), count("vit_ti16", img_size=64, batch_size=8)
    for name in ("params", "weight_bytes", "macs_matmul", "flops", "ops_mixed", "activations"):
        assert getattr(eight, name) == getattr(one, name)


def test_weights_are_read_once_per_batch():
    network = nn.Sequential(nn.Flatten(), nn.Linear(48, 100), nn.ReLU(), nn.Linear(100, 10))
    one, eight = count(network, img_size=4), count(network, img_size=4, batch_size=8)
    assert one.bytes_moved - eight.bytes_moved == one.weight_bytes * 7 // 8


def test_the_operations_of_vit_are_all_of_its_arithmetic():
    width, heads, depth = WIDTHS["vit_s16"]
    tokens, found = 197, count("vit_s16")
    stream, scores, hidden = tokens * width, heads * tokens * tokens, tokens * 4 * width
    biases = 196 * width + depth * (3 * stream + stream + hidden + stream) + 1000
    norms = 7 * (2 * depth * stream + width)  # the last norm sees the class token only
    attention = depth * (2 * stream + 5 * scores)  # scaled queries and keys, softmax
    rest = depth * (5 * hidden + 2 * stream + 2 * stream) + stream  # gelu, layer scale, residuals, positions
    assert found.flops == 2 * found.macs_matmul + biases + norms + attention + rest


def test_the_benchmarks_convention_counts_multiply_adds_as_one_and_element_wise_operations():
    width, heads, depth = WIDTHS["vit_s16"]
    tokens, found = 197, count("vit_s16")
    stream, scores, hidden = tokens * width, heads * tokens * tokens, tokens * 4 * width
    norms = 5 * (2 * depth * stream + width)
    assert found.ops_mixed == found.macs_matmul + norms + stream + depth * (
        stream + 5 * scores + 8 * hidden + 2 * stream + 2 * stream
    )
    assert round(found.ops_mixed / 1e9, 2) == 4.66


REFERENCE = ("vit_ti16", "vit_s16", "vit_b16", "deit_s16", "resnet18", "resnet50", "swin_ti", "coat_ti")


@pytest.mark.parametrize("name", REFERENCE)
def test_the_benchmarks_convention_gives_the_benchmarks_figures(name):
    if "FAVOR_DATA" not in os.environ:
        pytest.skip("FAVOR_DATA does not point at the data, so the reference figures are not here")
    table = Path(os.environ["FAVOR_DATA"]).parent / "reference" / "models.csv"
    with table.open(newline="") as file:
        row = next(row for row in csv.DictReader(file) if row["name"] == name)
    found = count(name, img_size=224)
    assert found.params == int(row["params_1000_classes_224px"])
    assert found.ops_mixed / 1e9 == pytest.approx(float(row["gmacs_plus_elementwise_224px"]), rel=3e-4)


# ---- other counters


FVCORE_PRODUCTS = ("conv", "linear", "matmul", "bmm", "addmm", "einsum", "mm")


@pytest.mark.parametrize(
    "name",
    [
        "resnet18",
        "mobilenetv3_small_050",
        "convnext_atto",
        "vit_tiny_patch16_224",
        "swin_tiny_patch4_window7_224",
        "levit_128s",
        "xcit_nano_12_p16_224",
        "pvt_v2_b0",
        "edgenext_xx_small",
        "mixer_s32_224",
    ],
)
def test_products_and_activations_are_those_of_fvcore_to_the_unit(name):
    fvcore = pytest.importorskip("fvcore.nn")
    import timm

    timm.layers.set_fused_attn(False)  # fvcore sees nothing in fused attention
    try:
        model = timm.create_model(name).eval()
    finally:
        timm.layers.set_fused_attn(True)
    side = model.default_cfg["input_size"][-1]
    image = torch.ones(1, 3, side, side)
    analysis = fvcore.FlopCountAnalysis(model, image).unsupported_ops_warnings(False).uncalled_modules_warnings(False)
    expected = sum(value for operator, value in analysis.by_operator().items() if operator in FVCORE_PRODUCTS)
    activations = fvcore.ActivationCountAnalysis(model, image).unsupported_ops_warnings(False).total()
    found = count(model, img_size=side)
    assert (found.macs_matmul, found.activations) == (expected, activations)


@pytest.mark.parametrize(
    ("name", "training"),
    [("resnet18", False), ("resnet18", True), ("vit_ti16", False), ("vit_ti16", True), ("timm:convnext_atto", False)],
)
def test_products_equal_pytorchs_flop_counter_on_meta_tensors(name, training):
    # PyTorch's counter is wrong for the backward of depthwise convolutions, hence no training of ConvNeXt here.
    with torch.device("meta"):
        model = create_model(name, img_size=224)
    with FlopCounterMode(display=False) as counter, torch.set_grad_enabled(training):
        logits = model.train(training)(torch.empty(2, 3, 224, 224, device="meta"))
        if training:
            nn.functional.cross_entropy(logits, torch.zeros(2, dtype=torch.long, device="meta")).backward()
    assert 2 * 2 * count(name, img_size=224, training=training, batch_size=2).macs_matmul == counter.get_total_flops()


def test_the_backward_of_a_depthwise_convolution_is_twice_its_forward():
    network = nn.Sequential(nn.Conv2d(3, 8, 1, bias=False), nn.Conv2d(8, 8, 3, groups=8, bias=False), nn.Flatten())
    first, second = 8 * 64 * 3, 8 * 36 * 9
    assert count(network, img_size=8, training=True).macs_matmul == 2 * first + 3 * second


# ---- weights and the model's side


MEMORY_OF_COUNTING = """
import psutil, torch
before = psutil.Process().memory_info().rss
from favor.trace.counts import count
from favor.machine.memory import process_peak
assert count("vit_l16").params > 3e8
print(process_peak() - before)
"""


def test_counting_the_300_million_parameters_of_vit_l_takes_less_than_300_mb_above_torch():
    done = subprocess.run([sys.executable, "-c", MEMORY_OF_COUNTING], capture_output=True, text=True, check=True)
    assert 0 < int(done.stdout) < 300e6


def test_shared_parameters_count_once_and_frozen_ones_are_not_trainable():
    first, second = nn.Linear(6, 6, bias=False), nn.Linear(6, 6, bias=False)
    second.weight = first.weight
    network = nn.Sequential(nn.Flatten(), nn.Linear(12, 6, bias=False), first, second)
    network[1].requires_grad_(False)
    found = count(network, img_size=2)
    assert (found.params, found.params_trainable) == (72 + 36, 36)


def test_weights_in_bytes_have_persistent_buffers_and_no_others():
    network = nn.Sequential(nn.Conv2d(3, 4, 1, bias=False), nn.BatchNorm2d(4)).half()
    network.register_buffer("table", torch.zeros(100), persistent=False)
    # running mean and variance in half precision, and the number of batches as a 64-bit integer
    assert count(network, img_size=8).weight_bytes == 2 * (12 + 4 + 4) + 2 * (4 + 4) + 8


def test_counting_a_network_of_ones_own_leaves_it_as_it_is():
    network = nn.Sequential(nn.Conv2d(3, 4, 3), nn.BatchNorm2d(4), nn.Flatten(), nn.Linear(4 * 36, 2)).train()
    before = {name: tensor.clone() for name, tensor in network.state_dict().items()}
    found = count(network, img_size=8, training=True, batch_size=2)
    assert found.macs_matmul == 2 * 4 * 36 * 27 + 3 * 144 * 2
    assert network.training
    assert all(torch.equal(before[name], tensor) for name, tensor in network.state_dict().items())
    assert all(p.grad is None and p.device.type == "cpu" for p in network.parameters())


def test_half_of_the_fourier_operations_are_multiply_adds():
    class Fourier(nn.Module):
        def forward(self, x: Tensor) -> Tensor:
            return torch.fft.fft2(x.to(torch.complex64)).real

    found = count(Fourier(), img_size=8)
    fft = 5 * 3 * 64 * 6
    assert (found.macs_matmul, found.macs, found.flops) == (0, fft // 2, fft)


def test_a_product_of_integers_is_no_flop():
    class Indices(nn.Module):
        def forward(self, x: Tensor) -> Tensor:
            ones = torch.ones(8, 8, dtype=torch.long)
            return x.sum() + (ones @ ones + torch.addmm(ones, ones, ones)).sum()

    found = count(Indices(), img_size=8)
    assert (found.macs_matmul, found.activations) == (0, 0)
    assert found.flops == 3 * 64 + 1  # the sum of the image, and the sum of both sums


def test_the_operator_table_adds_up_to_the_counts():
    found = count("vit_ti16", training=True)
    assert sum(row.flops for row in found.by_operator) == found.flops
    assert sum(row.macs_matmul for row in found.by_operator) == found.macs_matmul
    assert sum(row.bytes_moved for row in found.by_operator) == found.bytes_moved
    assert {row.phase for row in found.by_operator} == {"forward", "backward"}
    assert found.by_operator[0].kind == "matmul"


def test_every_count_is_in_the_glossary():
    assert set(METRIC_NAMES) <= set(METRICS)


def test_a_network_for_gray_images_is_counted_with_one_channel():
    found = count(nn.Conv2d(1, 2, 3), img_size=5, in_chans=1)
    assert found.macs_matmul == 2 * 9 * 9


def test_wrong_requests_are_refused():
    with pytest.raises(RequestError, match="batch size must be 1 or more, not 0"):
        count("vit_ti16", batch_size=0)
    with pytest.raises(RequestError, match="batch size must be 2147483647 or less"):
        count("vit_ti16", batch_size=10**20)
    with pytest.raises(RequestError, match="unknown model 'vit_tj16'; did you mean"):
        count("vit_tj16")
    with pytest.raises(RequestError, match="num_classes is for models by name"):
        count(nn.Conv2d(3, 2, 1), num_classes=3)


@pytest.mark.parametrize("name", ["avit_s16", "switch_8_s16"])
def test_the_counts_that_come_with_the_package_say_their_operating_point(name):
    from favor.records import counted_records

    (record,) = (record for record in counted_records() if record.name == name)
    point = dict(count(name).operating_point)
    assert point
    assert point.items() <= record.conditions.items()


def test_a_model_whose_work_does_not_depend_on_the_image_has_no_operating_point():
    assert count("vit_ti16", img_size=32).operating_point == {}


def test_a_network_that_needs_values_is_told_to_have_an_operating_point():
    class Halting(nn.Module):
        def forward(self, x: Tensor) -> Tensor:
            return x * 2 if x.mean() > 0 else x

    with pytest.raises(WorkError, match="Halting reads the values of a tensor"):
        count(Halting(), img_size=8)


def test_a_copy_on_meta_counts_like_the_network_it_was_made_of():
    model = create_model("vit_ti16", img_size=32)
    assert count(on_meta(model), img_size=32).macs_matmul == count("vit_ti16", img_size=32).macs_matmul
