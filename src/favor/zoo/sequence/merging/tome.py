"""ToMe: merge the r most similar pairs of tokens in every block.

Paper: Bolya et al., "Token Merging: Your ViT But Faster", 2022, arXiv:2210.09461
"""

from typing import ClassVar, Unpack

import torch
import torch.nn.functional as F
from torch import Tensor, nn

from favor.zoo.encoder import Encoder, Options, Size
from favor.zoo.registry import register, vit_sizes
from favor.zoo.slots import Flow, Place, Reducer, Seen, Tokens
from favor.zoo.taxonomy import How


class MergeSimilar(Reducer):
    """Bipartite soft matching: tokens at even places may each merge into their most similar token at an odd place."""

    place: ClassVar[Place] = Place.BETWEEN

    def __init__(self, r: int) -> None:
        super().__init__()
        self.r = r

    def between(self, x: Tensor, seen: Seen, flow: Flow) -> Tensor:
        # half of the tokens at most can merge, and the class token, which is the first, stays as it is
        r = min(self.r, (x.shape[1] - 1) // 2)
        if r <= 0:
            return x
        sizes = flow.sizes if flow.sizes is not None else x.new_ones(x.shape[:2])
        kept, merged, target = match(seen.keys.mean(dim=1), r)
        weighted = merge(torch.cat([x * sizes[..., None], sizes[..., None]], dim=-1), kept, merged, target)
        tokens, new_sizes = weighted[..., :-1], weighted[..., -1]
        flow.sizes = new_sizes
        return tokens / new_sizes[..., None]


def match(keys: Tensor, r: int) -> tuple[Tensor, Tensor, Tensor]:
    """Which even tokens stay [B, n - r], which r merge [B, r], and into which odd tokens [B, r]; all by cosine."""
    keys = F.normalize(keys, dim=-1)
    scores = keys[:, ::2] @ keys[:, 1::2].transpose(-2, -1)
    scores[:, 0] = -torch.inf  # the class token never merges away
    best, target = scores.max(dim=-1)
    order = best.argsort(dim=-1, descending=True)
    merged, kept = order[:, :r], order[:, r:].sort(dim=-1).values  # in place order, so that the class token stays first
    return kept, merged, target.gather(1, merged)


def merge(x: Tensor, kept: Tensor, merged: Tensor, target: Tensor) -> Tensor:
    """Add the merged even tokens onto their odd targets: [B, N, C] -> [B, N - r, C]."""
    even, odd = x[:, ::2], x[:, 1::2]

    def take(index: Tensor) -> Tensor:
        return even.gather(1, index[..., None].expand(-1, -1, x.shape[-1]))

    odd = odd.scatter_add(1, target[..., None].expand(-1, -1, x.shape[-1]), take(merged))
    return torch.cat([take(kept), odd], dim=1)


@register(
    [
        *vit_sizes("tome_r8_{size}16", aliases=["tome_vit_{word}_r8_patch16"], r=8),
        *vit_sizes("tome_r13_{size}16", aliases=["tome_vit_{word}_r13_patch16"], r=13),
    ],
    title="ToMe",
    how=How.MERGING,
    year=2022,
    paper="2210.09461",
    complexity="O(N^2)",
    changes="Every block merges r pairs of similar tokens between attention and MLP; attention weighs tokens by their size.",
    notes=("Merging is trained with, as the benchmark does; the paper also applies it to trained models.",),
    miniature={"r": 2},
)
def tome(size: Size, r: int = 8, **options: Unpack[Options]) -> nn.Module:
    def reducer(index: int, dim: int, tokens: Tokens) -> Reducer:
        return MergeSimilar(r)

    return Encoder(size, reducer=reducer, **options)
