"""Hydra equals its explicit kernel matrix, one for every channel."""

import pytest
import torch

import favor
from equality import images, largest_difference, mutated, with_order_one_weights
from favor.zoo.mixing.kernel.hydra import HydraMixer
from favor.zoo.slots import Tokens

TOKENS = Tokens(4, 4, class_token=True)


def test_it_is_the_explicit_kernel_matrix_of_every_channel() -> None:
    mixer = with_order_one_weights(HydraMixer(24, 3, TOKENS)).double()
    x = images(2, TOKENS.count, 24, dtype=torch.float64)
    q, k, v = mixer.qkv(x).chunk(3, dim=-1)
    q, k = (x / x.square().sum(dim=-1, keepdim=True).sqrt() for x in (q, k))
    matrices = torch.einsum("bic,bjc->bcij", q, k)
    expected = mixer.proj(torch.einsum("bcij,bjc->bic", matrices, v))
    assert largest_difference(mixer(x), expected) < 1e-12
    with mutated(mixer):
        assert largest_difference(mixer(x), expected) > 1e-3


def test_a_token_of_zeros_has_a_finite_gradient() -> None:
    mixer = HydraMixer(24, 3, TOKENS, rotary=False)
    x = torch.zeros(1, TOKENS.count, 24, requires_grad=True)
    mixer(x).sum().backward()
    assert x.grad is not None
    assert x.grad.isfinite().all()


@pytest.mark.parametrize(
    ("name", "parameters"), [("hydra_ti16", 5_721_832), ("hydra_s16", 22_059_496), ("hydra_b16", 86_585_320)]
)
def test_it_has_the_parameters_of_the_benchmark(name: str, parameters: int) -> None:
    with torch.device("meta"):
        model = favor.create_model(name)
    assert sum(parameter.numel() for parameter in model.parameters()) == parameters
