"""GFNet's filter is a circular convolution on the token grid."""

import math

import pytest
import torch
from torch import Tensor

import favor
from equality import images, largest_difference, mutated, with_order_one_weights
from favor.errors import RequestError
from favor.zoo.encoder import Size
from favor.zoo.mixing.fourier.gfnet import GlobalFilter
from favor.zoo.slots import Flow, Tokens

GRIDS = [(4, 4), (5, 5), (3, 6), (6, 3), (1, 2)]


def spectrum(kernel: Tensor) -> Tensor:
    """The DFT of a [H, W, C] kernel by its definition, as far as a real signal needs it: [H, W // 2 + 1, C, 2]."""
    height, width, _ = kernel.shape
    rows = torch.outer(torch.arange(height), torch.arange(height)).double() / height
    columns = torch.outer(torch.arange(width // 2 + 1), torch.arange(width)).double() / width
    angles = -2 * math.pi * (rows[:, None, :, None] + columns[None, :, None, :])
    real = torch.einsum("klnm,nmc->klc", angles.cos(), kernel)
    imaginary = torch.einsum("klnm,nmc->klc", angles.sin(), kernel)
    return torch.stack([real, imaginary], dim=-1)


def circular_convolution(x: Tensor, kernel: Tensor) -> Tensor:
    """[B, H, W, C] images, each shifted by every place of the kernel and weighted with what stands there."""
    height, width, _ = kernel.shape
    return sum(
        x.roll((row, column), dims=(1, 2)) * kernel[row, column] for row in range(height) for column in range(width)
    )


def filter_of(kernel: Tensor) -> GlobalFilter:
    height, width, channels = kernel.shape
    part = GlobalFilter(channels, 1, Tokens(height, width, class_token=False)).double()
    with torch.no_grad():
        part.weight.copy_(spectrum(kernel))
    return part


@pytest.mark.parametrize("grid", GRIDS)
def test_it_is_the_circular_convolution_with_the_kernel_whose_spectrum_it_has(grid: tuple[int, int]) -> None:
    kernel = images(*grid, 5, dtype=torch.float64)
    part = filter_of(kernel)
    x = images(2, grid[0] * grid[1], 5, seed=2, dtype=torch.float64)
    expected = circular_convolution(x.unflatten(1, grid), kernel).flatten(1, 2)
    with torch.no_grad():
        assert largest_difference(part(x), expected) < 1e-12
        with mutated(part):
            assert largest_difference(part(x), expected) > 1e-3


@pytest.mark.parametrize("grid", GRIDS)
def test_whatever_its_weights_are_it_is_a_convolution(grid: tuple[int, int]) -> None:
    part = with_order_one_weights(GlobalFilter(5, 1, Tokens(*grid, class_token=False))).double()
    impulse = torch.zeros(1, *grid, 5, dtype=torch.float64)
    impulse[:, 0, 0] = 1.0
    x = images(2, grid[0] * grid[1], 5, dtype=torch.float64)
    with torch.no_grad():
        kernel = part(impulse.flatten(1, 2)).unflatten(1, grid)[0]
        expected = circular_convolution(x.unflatten(1, grid), kernel).flatten(1, 2)
        assert largest_difference(part(x), expected) < 1e-12
    assert kernel.abs().max() > 1e-2


@pytest.mark.parametrize(
    ("old", "new"), [((6, 6), (10, 10)), ((7, 7), (12, 12)), ((10, 10), (7, 7)), ((6, 3), (10, 5))]
)
def test_at_another_size_it_is_the_same_kernel_around_its_centre(old: tuple[int, int], new: tuple[int, int]) -> None:
    kernels = [torch.zeros(*grid, 5, dtype=torch.float64) for grid in (old, new)]
    for row in (-1, 0, 1):
        for column in (-1, 0, 1):
            for kernel in kernels:
                kernel[row, column] = images(5, seed=10 + 3 * row + column, dtype=torch.float64)
    source, expected = (filter_of(kernel).weight.detach() for kernel in kernels)
    target = GlobalFilter(5, 1, Tokens(*new, class_token=False))
    resampled = target.resample("weight", source)
    assert largest_difference(resampled, expected) < 1e-12
    assert largest_difference(resampled * 1.03, expected) > 1e-3


def test_weights_of_another_image_size_load_and_those_of_another_shape_do_not() -> None:
    size = Size(48, 2, 3)
    source = favor.create_model("gfnet_s16", size=size, img_size=64)
    loaded = favor.load_weights(favor.create_model("gfnet_s16", size=size, img_size=112), source.state_dict())
    assert {"blocks.0.mixer.weight", "positions.weight"} <= set(loaded.resampled)
    with pytest.raises(RequestError, match="aspect ratio"):
        favor.load_weights(
            favor.create_model("gfnet_s16", size=size, img_size=(64, 112)), source.state_dict(), (64, 64)
        )


def test_filter_and_mlp_share_one_residual_branch() -> None:
    model = with_order_one_weights(favor.create_model("gfnet_s16", size=Size(48, 2, 3), img_size=64)).double()
    block = model.blocks[1]
    x = images(2, 16, 48, dtype=torch.float64)
    with torch.no_grad():
        expected = x + block.mlp(block.norm2(block.mixer(block.norm1(x))))
        assert largest_difference(block(x, Flow()), expected) < 1e-12
        with mutated(block.mixer):
            assert largest_difference(block(x, Flow()), expected) < 1e-4, "the norm after the filter takes a factor out"
        with mutated(block.mlp):
            assert largest_difference(block(x, Flow()), expected) > 1e-3


def test_a_class_token_is_refused() -> None:
    with pytest.raises(RequestError, match="class token"):
        GlobalFilter(8, 1, Tokens(4, 4, class_token=True))


def test_sizes_and_parameters_are_those_of_the_paper_and_the_benchmark() -> None:
    expected = {"ti": (256, 12, 7_511_784), "s": (384, 19, 24_869_608), "b": (512, 19, 43_120_616)}
    for size, (dim, depth, count) in expected.items():
        with torch.device("meta"):
            model = favor.create_model(f"gfnet_{size}16")
        assert (model.head.in_features, len(model.blocks)) == (dim, depth)
        assert sum(p.numel() for p in model.parameters()) == count
    assert favor.card("GFNet-S/16").name == favor.card("gfnet_small_patch16").name == "gfnet_s16"
