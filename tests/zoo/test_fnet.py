"""FNet is the real part of the two DFT matrices, over tokens and over channels."""

import math

import pytest
import torch
from torch import Tensor

import favor
from equality import images, largest_difference, mutated
from favor.zoo.mixing.fourier.fnet import FNetMixer
from favor.zoo.slots import Tokens


def dft(n: int) -> Tensor:
    """The matrix with exp(-2 pi i j k / n) in row j and column k."""
    angles = torch.outer(torch.arange(n), torch.arange(n)).double() * (-2 * math.pi / n)
    return torch.complex(angles.cos(), angles.sin())


@pytest.mark.parametrize("tokens", [1, 2, 16, 17, 50, 197])
@pytest.mark.parametrize("channels", [1, 2, 24, 25])
def test_it_is_the_real_part_of_the_dft_over_tokens_and_channels(tokens: int, channels: int) -> None:
    mixer = FNetMixer(channels, 1, Tokens(1, tokens, class_token=False))
    x = images(2, tokens, channels, dtype=torch.float64)
    expected = (dft(tokens) @ x.to(torch.complex128) @ dft(channels)).real
    assert largest_difference(mixer(x), expected) < 1e-10
    with mutated(mixer):
        assert largest_difference(mixer(x), expected) > 1e-3


def test_its_gradient_is_the_same_transform_because_the_matrices_are_symmetric() -> None:
    mixer = FNetMixer(24, 1, Tokens(4, 4, class_token=True))
    x, gradient = images(2, 17, 24, dtype=torch.float64), images(2, 17, 24, seed=2, dtype=torch.float64)
    x.requires_grad_()
    mixer(x).backward(gradient)
    assert largest_difference(x.grad, mixer(gradient)) < 1e-10


def test_half_precision_keeps_its_type_and_is_finite() -> None:
    for dtype in (torch.float16, torch.bfloat16):
        y = FNetMixer(24, 1, Tokens(4, 4, class_token=True))(images(2, 17, 24, dtype=dtype))
        assert y.dtype is dtype
        assert y.isfinite().all()


def test_parameters_are_those_of_the_benchmark_and_none_is_in_the_mixer() -> None:
    expected = {"ti": 3_943_144, "s": 14_963_176, "b": 58_236_904}
    for size, count in expected.items():
        with torch.device("meta"):
            model = favor.create_model(f"fnet_{size}16")
        assert sum(p.numel() for p in model.parameters()) == count
        assert not list(model.blocks[0].mixer.parameters())
    assert favor.card("FNet-S/16").name == favor.card("fnet_vit_small_patch16").name == "fnet_s16"
