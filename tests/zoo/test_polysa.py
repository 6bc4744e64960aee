"""Poly-SA without the norm on the pooled term equals its explicit kernel matrix, one for every channel."""

import pytest
import torch
from torch import nn

import favor
from equality import images, largest_difference, mutated, with_order_one_weights
from favor.zoo.encoder import Size
from favor.zoo.mixing.kernel.polysa import PolyMixer
from favor.zoo.slots import Tokens
from favor.zoo.weights import load_weights

TOKENS = Tokens(4, 4, class_token=True)


def test_without_the_norm_it_is_the_explicit_kernel_matrix_of_every_channel() -> None:
    mixer = with_order_one_weights(PolyMixer(24, 3, TOKENS)).double()
    mixer.norm = nn.Identity()
    x = images(2, TOKENS.count, 24, dtype=torch.float64)
    q, k, v = mixer.split(x)
    matrices = torch.einsum("hi,bhic,bhjc,hj->bhcij", mixer.expand, q, k, mixer.pool)
    expected = mixer.proj(mixer.join(torch.einsum("bhcij,bhjc->bhic", matrices, v)))
    assert largest_difference(mixer(x), expected) < 1e-12
    with mutated(mixer):
        assert largest_difference(mixer(x), expected) > 1e-3


def test_the_norm_makes_the_pooled_term_independent_of_the_scale_of_the_values() -> None:
    mixer = with_order_one_weights(PolyMixer(24, 3, TOKENS)).double()
    q, k, v = mixer.split(images(2, TOKENS.count, 24, dtype=torch.float64))
    assert largest_difference(mixer.mix(q, k, 7 * v), mixer.mix(q, k, v)) < 1e-4
    assert largest_difference(mixer.mix(7 * q, k, v), mixer.mix(q, k, v)) > 0.1


def test_weights_of_224_px_are_resampled_to_384_px() -> None:
    small = favor.create_model("polysa_s16", size=Size(48, 2, 3))
    large = favor.create_model("polysa_s16", size=Size(48, 2, 3), img_size=384)
    for name in ("pool", "expand"):
        nn.init.constant_(small.blocks[0].mixer.get_parameter(name), 0.5)
    loaded = load_weights(large, small.state_dict())
    assert "blocks.0.mixer.pool" in loaded.resampled
    mixer = large.blocks[0].mixer
    assert mixer.expand.shape == (3, 24 * 24 + 1)
    assert torch.allclose(mixer.expand, torch.full_like(mixer.expand, 0.5))
    assert torch.allclose(mixer.pool[:, 1:].sum(dim=1), torch.full((3,), 0.5 * 196))
    assert torch.equal(mixer.pool[:, 0], torch.full((3,), 0.5))


@pytest.mark.parametrize(
    ("name", "parameters"), [("polysa_ti16", 5_737_552), ("polysa_s16", 22_089_400), ("polysa_b16", 86_643_592)]
)
def test_it_has_the_parameters_of_the_benchmark(name: str, parameters: int) -> None:
    with torch.device("meta"):
        model = favor.create_model(name)
    assert sum(parameter.numel() for parameter in model.parameters()) == parameters
