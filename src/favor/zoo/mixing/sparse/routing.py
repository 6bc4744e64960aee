"""Routing Transformer: every token attends to the tokens of its clusters, which online k-means finds.

Paper: Roy et al., "Efficient Content-Based Sparse Attention with Routing Transformers", 2020, arXiv:2003.05997
"""

import math
from functools import partial
from typing import ClassVar, Unpack

import torch
import torch.nn.functional as F
from torch import Tensor, nn

from favor.errors import RequestError
from favor.zoo.attention import HeadMixer
from favor.zoo.card_notes import LAYER_SCALE
from favor.zoo.encoder import Encoder, Options, Size
from favor.zoo.registry import register, vit_sizes
from favor.zoo.settings import Positive
from favor.zoo.slots import Tokens
from favor.zoo.taxonomy import How
from favor.zoo.training import ExtraLosses

DECAY = 0.999
"""How much of a centroid stays at a training step."""
COMMITMENT = 1e-4
"""Weight of the loss that draws queries and keys to their centroids."""


class RoutingMixer(HeadMixer):
    """Softmax attention inside clusters of about sqrt(N) queries and keys each: O(N^1.5)."""

    fixed_tokens: ClassVar[bool] = True
    centroids: Tensor

    def __init__(self, dim: int, heads: int, tokens: Tokens, clusters: int | None = None, rotary: bool = False) -> None:
        super().__init__(dim, heads, tokens, qkv_bias=False, rotary=rotary)
        self.proj = nn.Linear(dim, dim, bias=False)
        if clusters is None:
            clusters = math.ceil(tokens.count / round(math.sqrt(tokens.count)))
        if clusters > tokens.count:
            raise RequestError(f"{clusters} clusters are more than there are tokens, {tokens.count}")
        self.members = math.ceil(tokens.count / clusters)
        self.register_buffer("centroids", F.normalize(torch.randn(heads, clusters, self.head_dim), dim=-1))
        self.extra_losses = ExtraLosses()

    def mix(self, q: Tensor, k: Tensor, v: Tensor) -> Tensor:
        B, heads, N, d = q.shape
        q, k, v = q.contiguous(), k.contiguous(), v.contiguous()
        near_q, near_k = self._closeness(q), self._closeness(k)
        if self.training:
            self.extra_losses["commitment"] = COMMITMENT * (self._distance(near_q) + self._distance(near_k)) / 2
            self._move_centroids(q, near_q, k, near_k)
        # every cluster takes the same number of queries and of keys, so that the work has a fixed shape
        chosen_q = near_q.detach().topk(self.members, sorted=False).indices
        chosen_k = near_k.detach().topk(self.members, sorted=False).indices
        heads_of_images = torch.arange(B * heads, device=q.device).view(B, heads, 1, 1)
        rows_q, rows_k = heads_of_images * N + chosen_q, heads_of_images * N + chosen_k

        def take(x: Tensor, rows: Tensor) -> Tensor:
            return F.embedding(rows.flatten(1, 2), x.view(-1, d))

        y = F.scaled_dot_product_attention(take(q, rows_q), take(k, rows_k), take(v, rows_k))
        return _mean_over_clusters(y.reshape(-1, d), rows_q.flatten(), B * heads * N).view(B, heads, N, d)

    def _closeness(self, x: Tensor) -> Tensor:
        """Cosine of every token with every centroid, times the centroid's length: [B, heads, clusters, N]."""
        centroids = self.centroids.to(x.dtype)
        return (centroids @ x.transpose(-2, -1)) / x.norm(dim=-1)[:, :, None].clamp_min(1e-6)

    def _distance(self, closeness: Tensor) -> Tensor:
        """Mean squared difference, per channel, of the unit-length tokens and their nearest centroids."""
        nearest, cluster = closeness.max(dim=2)
        lengths = self.centroids.square().sum(dim=-1).expand(closeness.shape[0], -1, -1).gather(2, cluster)
        return (1.0 - 2.0 * nearest + lengths).mean() / self.head_dim

    @torch.no_grad()
    def _move_centroids(self, q: Tensor, near_q: Tensor, k: Tensor, near_k: Tensor) -> None:
        """One step of online k-means on the sphere: a centroid follows the mean direction of its tokens."""
        tokens = F.normalize(torch.cat([q, k], dim=2).float(), dim=-1)
        cluster = torch.cat([near_q, near_k], dim=3).argmax(dim=2)
        member = F.one_hot(cluster, self.centroids.shape[1]).to(tokens.dtype)
        total = (member.transpose(-2, -1) @ tokens).sum(dim=0)
        moved = self.centroids.lerp(F.normalize(total, dim=-1).to(self.centroids.dtype), 1.0 - DECAY)
        empty = member.sum(dim=(0, 2)) == 0
        self.centroids.copy_(torch.where(empty[..., None], self.centroids, moved))

    def resample(self, name: str, weight: Tensor) -> Tensor:
        """Centroids for another number of clusters lie between the old ones, on the sphere."""
        clusters = self.centroids.shape[1]
        between = F.interpolate(weight.float().transpose(1, 2), size=clusters, mode="linear", align_corners=True)
        return F.normalize(between.transpose(1, 2), dim=-1).to(weight.dtype)


def _mean_over_clusters(y: Tensor, rows: Tensor, count: int) -> Tensor:
    """Add up what a token got in its clusters, divided by their number; a token without a cluster gets zero."""
    clusters = torch.zeros(count, dtype=y.dtype, device=y.device).index_add(0, rows, torch.ones_like(y[:, 0]))
    total = torch.zeros(count, y.shape[1], dtype=y.dtype, device=y.device).index_add(0, rows, y)
    return total / clusters.clamp_min(1.0)[:, None]


@register(
    vit_sizes("routing_{size}16", "ti s b l", aliases=["routing_vit_{word}_patch16", "Routing ViT-{letter}/16"]),
    title="Routing Transformer",
    how=How.SPARSE,
    year=2020,
    paper="2003.05997",
    complexity="O(N^1.5)",
    changes="Queries and keys are clustered by k-means; attention runs inside each cluster.",
    notes=(
        "Clusters are balanced: each takes the w = round(sqrt(N)) queries and the w keys of an image that are closest "
        "to its centroid. 197 tokens make 15 clusters of 14. There is no padding. A token in several clusters gets the "
        "mean of their outputs; a token in none gets zero, so only its residual passes.",
        "Centroids are buffers: drawn at random, updated in training by a moving average (0.999), fixed in eval mode.",
        "Training adds a commitment loss: 1e-4 times the mean squared difference, per channel, of unit-length queries "
        "and keys from their nearest centroids, as in the benchmark. The authors' weight is 1e-4 too, but their "
        "queries and keys are as long as the square root of their width, and the losses of both are added: 128 times "
        "as much at 64 channels per head.",
        "All heads route, as in the benchmark; the paper gives half of the heads to local attention. Queries and keys "
        "have a projection each, as in the benchmark; in the authors' models they share one.",
        "Clusters are chosen by queries and keys of unit length, but attention uses them unnormalized, as in the "
        "benchmark: with one cluster it is softmax attention. The paper's listing normalizes them for both.",
        "No bias on queries, keys, values or the projection, as in the authors' code and the benchmark.",
        LAYER_SCALE,
    ),
)
def routing(size: Size, clusters: Positive | None = None, **options: Unpack[Options]) -> nn.Module:
    return Encoder(size, mixer=partial(RoutingMixer, clusters=clusters), **options)
