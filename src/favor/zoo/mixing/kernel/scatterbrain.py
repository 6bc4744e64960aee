"""Scatterbrain: Performer for all pairs of tokens, made exact for those pairs that hashing finds to be alike.

Paper: Chen et al., "Scatterbrain: Unifying Sparse and Low-rank Attention Approximation", 2021, arXiv:2110.15343
"""

import math
from functools import partial
from typing import Unpack

import torch
import torch.nn.functional as F
from torch import Tensor, nn

from favor.zoo.card_notes import LAYER_SCALE
from favor.zoo.encoder import Encoder, Options, Size
from favor.zoo.layers import full_precision, widened
from favor.zoo.mixing.kernel.performer import PerformerMixer, log_features
from favor.zoo.registry import register, vit_sizes
from favor.zoo.settings import NotNegative, Positive
from favor.zoo.slots import Tokens
from favor.zoo.taxonomy import How

SMALLEST_SUM = 1e-6
"""The largest term of a row is 1, so a smaller sum of weights is what rounding has left of a difference."""


class ScatterbrainMixer(PerformerMixer):
    """Low-rank weights phi(q) phi(k) plus, in clusters of c tokens, sparse exp(q k) - phi(q) phi(k): O(N (m + c) d).

    With a cluster of 0 tokens it is Performer, with one of all tokens softmax attention.
    """

    hash_direction: Tensor

    def __init__(
        self, dim: int, heads: int, tokens: Tokens, count: int = 64, cluster: int = 32, rotary: bool = False
    ) -> None:
        super().__init__(dim, heads, tokens, count=count, rotary=rotary)
        self.cluster = cluster
        self.register_buffer("hash_direction", torch.randn(self.head_dim + 2))

    def mix(self, q: Tensor, k: Tensor, v: Tensor) -> Tensor:
        if self.cluster == 0:
            return super().mix(q, k, v)
        with full_precision(q):
            q, k = widened(q) * self.root, widened(k) * self.root
            order_q, order_k = self.orders(q.detach(), k.detach())
            values = take_rows(widened(v), order_k)
            mixed = self.mix_sorted(take_rows(q, order_q), take_rows(k, order_k), values)
            return take_rows(mixed, order_q.argsort(dim=-1)).to(v.dtype)

    def mix_sorted(self, q: Tensor, k: Tensor, v: Tensor) -> Tensor:
        """Attention of queries and keys that are sorted such that those of one cluster are neighbors."""
        projection = self.projection.to(q.dtype)
        log_q = log_features(q, projection) - math.log(len(projection))
        log_k = log_features(k, projection)
        exact = self.clustered(q) @ self.clustered(k).mT
        padding = exact.shape[2] * exact.shape[3] - q.shape[2]
        if padding:
            exact[:, :, -1, :, -padding:] = float("-inf")

        # every row is divided by its largest term: both kinds of weights have to be on the same scale
        top_k = log_k.detach().amax(dim=-2, keepdim=True)
        log_q = log_q + top_k
        top_exact = exact.detach().amax(dim=-1, keepdim=True)
        top = torch.maximum(log_q.detach().amax(dim=-1, keepdim=True), top_exact.flatten(2, 3)[:, :, : q.shape[2]])
        phi_q, phi_k = (log_q - top).exp(), (log_k - top_k).exp()

        correction = (exact - self.clustered(top)).exp() - self.clustered(phi_q) @ self.clustered(phi_k).mT
        values_and_one = F.pad(v, (0, 1), value=1.0)
        sparse = (correction @ self.clustered(values_and_one)).flatten(2, 3)[:, :, : q.shape[2]]
        total, sums = (phi_q @ (phi_k.mT @ values_and_one) + sparse).split([v.shape[-1], 1], dim=-1)
        return total / sums.clamp_min(SMALLEST_SUM)

    def clustered(self, x: Tensor) -> Tensor:
        """[B, heads, N, d] -> [B, heads, clusters, tokens of a cluster, d], the last cluster padded with zeros."""
        width = math.ceil(x.shape[2] / max(1, x.shape[2] // self.cluster))
        return F.pad(x, (0, 0, 0, -x.shape[2] % width)).unflatten(2, (-1, width))

    def orders(self, q: Tensor, k: Tensor) -> tuple[Tensor, Tensor]:
        """Sort queries and keys by a hash in which those with a large product are near each other.

        One more channel each makes all lengths equal, so that the largest product is the smallest distance; the hash is
        the place along a random direction.
        """
        direction = self.hash_direction.to(q.dtype)
        squares_q, squares_k = q.square().sum(dim=-1), k.square().sum(dim=-1)
        longest = squares_q.amax(dim=-1, keepdim=True) + squares_k.amax(dim=-1, keepdim=True)
        hash_q = q @ direction[:-2] + direction[-2] * (longest - squares_q).sqrt()
        hash_k = k @ direction[:-2] + direction[-1] * (longest - squares_k).sqrt()
        return hash_q.argsort(dim=-1), hash_k.argsort(dim=-1)

    @torch.no_grad()
    def redraw(self) -> None:
        """Draw the directions of the features and of the hash anew."""
        super().redraw()
        self.hash_direction.normal_()


def take_rows(x: Tensor, order: Tensor) -> Tensor:
    """The rows of [B, heads, N, d] in the order [B, heads, N]."""
    starts = torch.arange(0, order.numel(), order.shape[-1], device=order.device)
    rows = (order.flatten(0, 1) + starts.unsqueeze(-1)).flatten()
    return x.reshape(-1, x.shape[-1]).index_select(0, rows).reshape(x.shape)


@register(
    vit_sizes("scatterbrain_{size}16", aliases=["Scatterbrain-{letter}/16"]),
    title="Scatterbrain",
    how=How.KERNEL,
    year=2021,
    paper="2110.15343",
    complexity="O(N)",
    changes="Adds a sparse matrix to Performer's low-rank attention, which makes the weights exact among tokens of the "
    "same cluster. Clusters are found by locality-sensitive hashing.",
    notes=(
        "64 features and clusters of 32 tokens: together fewer numbers per token than Performer's 128. Both are our "
        "choice: the benchmark has no figures for this architecture.",
        "One hash per block, with SMYRF's asymmetric transform as in the authors' code, which takes any number of "
        "hashes. Queries and keys are sorted by it and cut into clusters of equal size, the last one padded (197 "
        "tokens: 6 clusters of 33, with one empty slot).",
        "The products are O(N); sorting the hashes is O(N log N).",
        "Features are those of our Performer, exp(w x - |x|^2 / 2) for 64 directions w, so that the two models differ "
        "by the sparse part alone. The authors' code takes w and -w for half as many directions.",
        "Features and hash are redrawn each time training has progressed by 1 %; the authors' code draws the features "
        "once and the hash in every pass.",
        LAYER_SCALE,
    ),
)
def scatterbrain(size: Size, count: Positive = 64, cluster: NotNegative = 32, **options: Unpack[Options]) -> nn.Module:
    return Encoder(size, mixer=partial(ScatterbrainMixer, count=count, cluster=cluster), **options)
