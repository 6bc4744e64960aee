"""Routing attention with one cluster is softmax attention; with more, tokens meet those of their cluster only."""

import math

import pytest
import torch
import torch.nn.functional as F

import favor
from equality import images, largest_difference, mutated, with_order_one_weights
from favor.zoo.encoder import Size
from favor.zoo.mixing.sparse.routing import RoutingMixer
from favor.zoo.slots import Tokens
from favor.zoo.training import take_extra_losses
from favor.zoo.weights import load_weights

TOKENS = Tokens(4, 4, class_token=True)


def softmax_attention(mixer: RoutingMixer, x: torch.Tensor) -> torch.Tensor:
    q, k, v = mixer.split(x)
    return mixer.proj(mixer.join((q @ k.transpose(-2, -1) * mixer.scale).softmax(dim=-1) @ v))


def clustered_attention(mixer: RoutingMixer, x: torch.Tensor) -> torch.Tensor:
    """The same by loops: each cluster's attention on its own, tokens get the mean over their clusters."""
    q, k, v = mixer.split(x)
    y = torch.zeros_like(q)
    for image in range(q.shape[0]):
        for head in range(q.shape[1]):
            times = torch.zeros(q.shape[2], 1, dtype=x.dtype)
            for centroid in mixer.centroids[head].to(x.dtype):
                near_q = (F.normalize(q[image, head], dim=-1) @ centroid).argsort(descending=True)[: mixer.members]
                near_k = (F.normalize(k[image, head], dim=-1) @ centroid).argsort(descending=True)[: mixer.members]
                logits = q[image, head, near_q] @ k[image, head, near_k].T * mixer.scale
                y[image, head, near_q] += logits.softmax(dim=-1) @ v[image, head, near_k]
                times[near_q] += 1
            y[image, head] /= times.clamp_min(1)
    return mixer.proj(mixer.join(y))


def test_one_cluster_is_softmax_attention() -> None:
    mixer = with_order_one_weights(RoutingMixer(24, 3, TOKENS, clusters=1)).double().eval()
    x = images(2, TOKENS.count, 24, dtype=torch.float64)
    assert largest_difference(mixer(x), softmax_attention(mixer, x)) < 1e-12
    with mutated(mixer):
        assert largest_difference(mixer(x), softmax_attention(mixer, x)) > 1e-3


@pytest.mark.parametrize("clusters", [None, 2, 7])
def test_it_equals_the_attention_of_each_cluster_on_its_own(clusters: int | None) -> None:
    mixer = with_order_one_weights(RoutingMixer(24, 3, TOKENS, clusters=clusters)).double().eval()
    x = images(2, TOKENS.count, 24, dtype=torch.float64)
    assert largest_difference(mixer(x), clustered_attention(mixer, x)) < 1e-12
    assert largest_difference(mixer(x), softmax_attention(mixer, x)) > 1e-2, "clusters make a difference"
    with mutated(mixer):
        assert largest_difference(mixer(x), clustered_attention(mixer, x)) > 1e-3


@pytest.mark.parametrize(("count", "clusters", "members"), [(17, 5, 4), (50, 8, 7), (197, 15, 14), (577, 25, 24)])
def test_clusters_have_about_the_root_of_the_tokens(count: int, clusters: int, members: int) -> None:
    mixer = RoutingMixer(12, 3, Tokens(1, count - 1, class_token=True))
    assert (mixer.centroids.shape[1], mixer.members) == (clusters, members)
    assert mixer(images(1, count, 12)).isfinite().all()


def test_centroids_move_in_training_only_and_towards_their_tokens() -> None:
    mixer = with_order_one_weights(RoutingMixer(24, 3, TOKENS))
    x = images(4, TOKENS.count, 24)
    before = mixer.centroids.clone()
    mixer.eval()(x)
    assert torch.equal(mixer.centroids, before)
    losses = []
    mixer.train()
    for _ in range(200):
        mixer(x)
        losses.append(take_extra_losses(mixer)["commitment"].item())
    assert not torch.equal(mixer.centroids, before)
    assert losses[-1] < 0.95 * losses[0]


def test_a_centroid_moves_by_a_thousandth_to_the_mean_direction_of_its_tokens_and_stays_without_any() -> None:
    mixer = with_order_one_weights(RoutingMixer(24, 3, TOKENS, clusters=3)).double().train()
    direction = F.normalize(images(3, 8, dtype=torch.float64), dim=-1)
    mixer.centroids.copy_(torch.stack([direction, -direction, 1e-9 * direction.roll(1, dims=-1)], dim=1))
    before = mixer.centroids.clone()
    x = images(2, TOKENS.count, 24, dtype=torch.float64)
    q, k, _ = mixer.split(x)
    mixer(x)
    unit = F.normalize(torch.cat([q, k], dim=2), dim=-1).float().double()
    for head in range(3):
        tokens = unit[:, head].flatten(0, 1)
        along = tokens @ direction[head]
        for cluster, members in enumerate((tokens[along > 0], tokens[along < 0])):
            expected = 0.999 * before[head, cluster] + 0.001 * F.normalize(members.sum(dim=0), dim=0)
            assert largest_difference(mixer.centroids[head, cluster], expected) < 1e-8
            assert largest_difference(mixer.centroids[head, cluster], before[head, cluster]) > 1e-5
        assert torch.equal(mixer.centroids[head, 2], before[head, 2]), "no token is nearest to it"


def test_the_commitment_loss_is_the_distance_to_the_nearest_centroid() -> None:
    mixer = with_order_one_weights(RoutingMixer(24, 3, TOKENS)).double()
    with torch.no_grad():
        mixer.centroids.mul_(torch.linspace(0.5, 1.5, 5, dtype=torch.float64)[:, None])
    centroids = mixer.centroids.clone()
    x = images(2, TOKENS.count, 24, dtype=torch.float64)
    q, k, _ = mixer.split(x)
    mixer(x)
    unit = F.normalize(torch.cat([q, k], dim=2), dim=-1)
    nearest = (unit @ centroids.transpose(-2, -1)).argmax(dim=-1)
    chosen = centroids[torch.arange(3)[:, None], nearest]
    assert mixer.extra_losses["commitment"].item() == pytest.approx(1e-4 * F.mse_loss(unit, chosen).item(), rel=1e-9)


def test_the_authors_commitment_loss_is_128_times_ours_at_64_channels_per_head_as_the_card_says() -> None:
    """Their channels have variance 1, so that a token is as long as the root of its width, and both losses count."""
    mixer = with_order_one_weights(RoutingMixer(128, 2, TOKENS)).double()
    centroids = mixer.centroids.clone()
    q, k, _ = mixer.split(images(2, TOKENS.count, 128, dtype=torch.float64))
    mixer.mix(q, k, k)
    authors = 0.0
    for tokens in (q, k):
        unit = F.normalize(tokens, dim=-1)
        chosen = centroids[torch.arange(2)[:, None], (unit @ centroids.transpose(-2, -1)).argmax(dim=-1)]
        authors += 1e-4 * F.mse_loss(math.sqrt(64) * unit, math.sqrt(64) * chosen).item()
    assert authors == pytest.approx(128 * mixer.extra_losses["commitment"].item(), rel=1e-9)
    assert "128 times as much at 64 channels per head" in " ".join(favor.card("routing_s16").notes)


def test_weights_go_to_another_image_size_with_centroids_between_the_old_ones() -> None:
    small = favor.create_model("routing_s16", size=Size(48, 2, 3), img_size=64)
    large = favor.create_model("routing_s16", size=Size(48, 2, 3), img_size=128)
    loaded = load_weights(large, small.state_dict())
    assert "blocks.0.mixer.centroids" in loaded.resampled
    centroids = large.blocks[0].mixer.centroids
    assert torch.allclose(centroids.norm(dim=-1), torch.ones(centroids.shape[:2]), atol=1e-5)


def test_it_has_the_parameters_of_the_benchmark() -> None:
    for name, expected in {"routing_ti16": 5_712_616, "routing_s16": 22_041_064, "routing_b16": 86_548_456}.items():
        with torch.device("meta"):
            model = favor.create_model(name)
        assert sum(parameter.numel() for parameter in model.parameters()) == expected, name
