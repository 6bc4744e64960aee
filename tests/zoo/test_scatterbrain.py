"""Scatterbrain with full sparse support is softmax attention, with none Performer, and in between both at once."""

import numpy as np
import pytest
import torch
from torch import Tensor

import favor
from equality import images, largest_difference, mutated, with_order_one_weights
from favor.zoo.attention import Attention
from favor.zoo.encoder import Size
from favor.zoo.mixing.kernel.performer import PerformerMixer
from favor.zoo.mixing.kernel.scatterbrain import ScatterbrainMixer
from favor.zoo.slots import Tokens
from favor.zoo.training import tell_progress

TOKENS = Tokens(7, 7, class_token=True)


def scatterbrain(cluster: int, count: int = 64, seed: int = 0) -> ScatterbrainMixer:
    torch.manual_seed(seed)
    return with_order_one_weights(ScatterbrainMixer(24, 3, TOKENS, count=count, cluster=cluster)).double()


def tokens_in(cluster: ScatterbrainMixer, q: Tensor, k: Tensor) -> Tensor:
    """[B, heads, N, N] True where query and key are of the same cluster."""
    order_q, order_k = cluster.orders(q * cluster.root, k * cluster.root)
    width = cluster.clustered(q).shape[3]
    cluster_q, cluster_k = (order.argsort(dim=-1) // width for order in (order_q, order_k))
    return cluster_q.unsqueeze(-1) == cluster_k.unsqueeze(-2)


def test_with_full_support_it_is_softmax_attention() -> None:
    mixer = scatterbrain(cluster=TOKENS.count)
    softmax = Attention(24, 3, TOKENS).double()
    softmax.load_state_dict({name: mixer.state_dict()[name] for name in softmax.state_dict()})
    x = images(2, TOKENS.count, 24, dtype=torch.float64)
    assert largest_difference(mixer(x), softmax(x)) < 1e-11
    with mutated(mixer):
        assert largest_difference(mixer(x), softmax(x)) > 1e-3


def test_without_support_it_is_performer() -> None:
    mixer = scatterbrain(cluster=0)
    performer = PerformerMixer(24, 3, TOKENS, count=64).double()
    performer.load_state_dict({name: mixer.state_dict()[name] for name in performer.state_dict()})
    x = images(2, TOKENS.count, 24, dtype=torch.float64)
    assert largest_difference(mixer(x), performer(x)) < 1e-12
    with mutated(mixer):
        assert largest_difference(mixer(x), performer(x)) > 1e-3


@pytest.mark.parametrize("cluster", [5, 8, 20])
def test_it_is_the_explicit_matrix_that_is_exact_in_clusters_and_low_rank_elsewhere(cluster: int) -> None:
    mixer = scatterbrain(cluster)
    x = images(2, TOKENS.count, 24, dtype=torch.float64)
    q, k, v = mixer.split(x)
    scaled_q, scaled_k = q * 8**-0.25, k * 8**-0.25
    phi_q, phi_k = (
        (x @ mixer.projection.T - x.square().sum(dim=-1, keepdim=True) / 2).exp() / 8 for x in (scaled_q, scaled_k)
    )
    matrix = torch.where(tokens_in(mixer, q, k), (scaled_q @ scaled_k.mT).exp(), phi_q @ phi_k.mT)
    expected = mixer.proj(mixer.join(matrix @ v / matrix.sum(dim=-1, keepdim=True)))
    assert largest_difference(mixer(x), expected) < 1e-10
    with mutated(mixer):
        assert largest_difference(mixer(x), expected) > 1e-3


def test_the_hash_is_a_place_along_one_direction_of_vectors_of_equal_length_with_the_same_products() -> None:
    mixer = scatterbrain(cluster=8)
    q, k, _ = mixer.split(images(2, TOKENS.count, 24, dtype=torch.float64))
    lengths_q, lengths_k = q.square().sum(dim=-1, keepdim=True), k.square().sum(dim=-1, keepdim=True)
    length = lengths_q.amax(dim=2, keepdim=True) + lengths_k.amax(dim=2, keepdim=True)
    nothing = torch.zeros_like(lengths_q)
    longer_q = torch.cat([q, (length - lengths_q).sqrt(), nothing], dim=-1)
    longer_k = torch.cat([k, nothing, (length - lengths_k).sqrt()], dim=-1)
    assert largest_difference(longer_q @ longer_k.mT, q @ k.mT) < 1e-12
    assert largest_difference(longer_q.norm(dim=-1), longer_k.norm(dim=-1)) < 1e-12
    found = mixer.orders(q, k)
    for order, vectors in zip(found, (longer_q, longer_k), strict=True):
        assert torch.equal(order, (vectors @ mixer.hash_direction).argsort(dim=-1))
        assert not torch.equal(order, (vectors[..., :-2] @ mixer.hash_direction[:-2]).argsort(dim=-1))


def test_the_error_against_softmax_attention_falls_with_the_root_of_the_number_of_features() -> None:
    counts = (64, 256, 1024, 4096)
    q, k, v = (
        scale * images(2, 3, TOKENS.count, 8, seed=seed, dtype=torch.float64)
        for seed, scale in enumerate((0.5, 0.5, 1.0))
    )
    errors: dict[float, list[float]] = {1.0: [], 1.3: []}
    for count in counts:
        mixed = [scatterbrain(8, count, seed).mix(q, k, v) for seed in range(8)]
        for factor, found in errors.items():
            exact = torch.nn.functional.scaled_dot_product_attention(factor * q, k, v)
            found.append(float((torch.stack(mixed) - exact).square().mean().sqrt()))
    rates = {factor: np.polyfit(np.log(counts), np.log(found), 1)[0] for factor, found in errors.items()}
    assert rates[1.0] == pytest.approx(-0.5, abs=0.1)
    assert rates[1.3] > -0.3, "another attention must be noticed"


def test_the_hash_brings_queries_and_keys_with_large_products_together() -> None:
    mixer = scatterbrain(cluster=8)
    q, k, _ = mixer.split(images(8, TOKENS.count, 24, dtype=torch.float64))
    together, products = tokens_in(mixer, q, k), q @ k.mT
    assert products[together].mean() > products[~together].mean() + 0.2


def test_it_is_closer_to_softmax_attention_than_performer_with_as_many_features() -> None:
    x = 1.5 * images(4, TOKENS.count, 24, dtype=torch.float64)
    errors: dict[int, list[float]] = {0: [], 12: []}
    for cluster, found in errors.items():
        for seed in range(8):
            mixer = scatterbrain(cluster, seed=seed)
            q, k, v = mixer.split(x)
            exact = torch.nn.functional.scaled_dot_product_attention(q, k, v)
            found.append(float((mixer.mix(q, k, v) - exact).detach().square().mean()))
    assert sum(errors[12]) < 0.9 * sum(errors[0])


@pytest.mark.parametrize(
    ("tokens", "clusters", "width"), [(17, 1, 17), (50, 1, 50), (197, 6, 33), (577, 18, 33), (3137, 96, 33)]
)
def test_all_tokens_are_in_clusters_of_equal_size(tokens: int, clusters: int, width: int) -> None:
    mixer = ScatterbrainMixer(24, 3, TOKENS, cluster=32)
    assert mixer.clustered(torch.zeros(1, 3, tokens, 8)).shape == (1, 3, clusters, width, 8)


@pytest.mark.parametrize("scale", [1e-3, 1.0, 30.0])
def test_queries_and_keys_of_any_length_give_means_of_the_values_and_finite_gradients(scale: float) -> None:
    torch.manual_seed(0)
    mixer = ScatterbrainMixer(24, 3, TOKENS, cluster=8)
    q, k = (scale * images(2, 3, 50, 8, seed=seed) for seed in (0, 1))
    q.requires_grad_()
    ones = torch.ones(2, 3, 50, 8)
    assert largest_difference(mixer.mix(q, k, ones), ones) < 1e-3
    values = images(2, 3, 50, 8, seed=2)
    mixed = mixer.mix(q, k, values)
    assert (mixed <= values.amax(dim=2, keepdim=True) + 1e-3).all()
    assert (mixed >= values.amin(dim=2, keepdim=True) - 1e-3).all()
    assert (mixed - mixed.mean(dim=2, keepdim=True)).abs().max() > scale / 100, "tokens get different means"
    mixed.square().sum().backward()
    assert q.grad is not None
    assert q.grad.isfinite().all()


def test_features_and_hash_are_drawn_anew_in_training_only() -> None:
    mixer = ScatterbrainMixer(24, 3, TOKENS)
    names = ("projection", "hash_direction")
    before = {name: mixer.get_buffer(name).clone() for name in names}
    for training in (False, True):
        mixer.train(training)
        tell_progress(mixer, 0.1)
        tell_progress(mixer, 0.2)
        assert all(torch.equal(mixer.get_buffer(name), before[name]) is not training for name in names)
    assert set(names) <= set(mixer.state_dict())


def test_its_features_have_64_directions_and_none_is_the_opposite_of_another_as_the_card_says() -> None:
    """The authors take w and -w of 32 directions; here they are those of Performer."""
    directions = favor.create_model("scatterbrain_s16", size=Size(192, 1, 3), img_size=64).blocks[0].mixer.projection
    assert directions.shape == (64, 64)
    units = torch.nn.functional.normalize(directions, dim=1)
    assert (units @ units.mT).min() > -0.99
    assert "w and -w" in " ".join(favor.card("scatterbrain_s16").notes)


def test_it_has_the_parameters_of_vit() -> None:
    with torch.device("meta"):
        model = favor.create_model("scatterbrain_s16")
    assert sum(parameter.numel() for parameter in model.parameters()) == 22_059_496
