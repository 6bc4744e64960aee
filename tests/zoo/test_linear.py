"""Linear Transformer equals its explicit kernel matrix; and what holds for all kernel attentions."""

import pytest
import torch

import favor
from equality import images, largest_difference, mutated, with_order_one_weights
from favor.zoo.encoder import Size
from favor.zoo.mixing.kernel.linear import LinearMixer
from favor.zoo.registry import create_miniature
from favor.zoo.slots import Tokens

TOKENS = Tokens(4, 4, class_token=True)
KERNEL_FAMILIES = ("performer", "linear", "flt", "scatterbrain", "polysa", "slab", "hydra")
SMALL = Size(32, 1, 2)

kernel_families = pytest.mark.parametrize("family", KERNEL_FAMILIES)


def test_it_is_the_explicit_kernel_matrix() -> None:
    mixer = with_order_one_weights(LinearMixer(24, 3, TOKENS)).double()
    x = images(2, TOKENS.count, 24, dtype=torch.float64)
    q, k, v = mixer.split(x)
    phi_q, phi_k = (torch.where(x > 0, x + 1, x.exp()) for x in (q, k))
    matrix = phi_q @ phi_k.mT
    expected = mixer.proj(mixer.join(matrix @ v / (matrix.sum(dim=-1, keepdim=True) + 1e-6)))
    assert largest_difference(mixer(x), expected) < 1e-12
    with mutated(mixer):
        assert largest_difference(mixer(x), expected) > 1e-3


@pytest.mark.parametrize(
    ("name", "parameters"), [("linear_ti16", 5_721_832), ("linear_s16", 22_059_496), ("linear_b16", 86_585_320)]
)
def test_it_has_the_parameters_of_the_benchmark(name: str, parameters: int) -> None:
    with torch.device("meta"):
        model = favor.create_model(name)
    assert sum(parameter.numel() for parameter in model.parameters()) == parameters


@kernel_families
def test_sums_over_many_tokens_do_not_overflow_float16(family: str) -> None:
    torch.manual_seed(0)
    model = create_miniature(f"{family}_s16", img_size=640, size=SMALL)
    mixer = with_order_one_weights(model.blocks[0].mixer)
    x = 20 * images(1, mixer.tokens.count, 32)
    with torch.no_grad(), torch.autocast("cpu", dtype=torch.float16):
        assert mixer(x).isfinite().all()


@kernel_families
@pytest.mark.parametrize("tokens", [Tokens(4, 4, True), Tokens(7, 7, True), Tokens(14, 14, True), Tokens(10, 5, False)])
def test_takes_any_number_of_tokens(family: str, tokens: Tokens) -> None:
    if family == "slab":
        tokens = Tokens(tokens.height, tokens.width, class_token=False)
    torch.manual_seed(0)
    kind = type(create_miniature(f"{family}_s16").blocks[0].mixer)
    mixer = with_order_one_weights(kind(24, 3, tokens))
    y = mixer(images(2, tokens.count, 24))
    assert y.shape == (2, tokens.count, 24)
    assert y.isfinite().all()
