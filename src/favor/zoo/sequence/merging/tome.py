"""ToMe: merge the r most similar pairs of tokens in every block.

Paper: Bolya et al., "Token Merging: Your ViT But Faster", 2022, arXiv:2210.09461
"""

from typing import ClassVar, Unpack

import torch
import torch.nn.functional as F
from torch import Tensor, nn

from favor.zoo.encoder import Encoder, Options, Size
from favor.zoo.layers import take_tokens
from favor.zoo.registry import register, vit_sizes
from favor.zoo.settings import NotNegative
from favor.zoo.slots import Flow, Place, Reducer, Seen, Tokens
from favor.zoo.taxonomy import How


class MergeSimilar(Reducer):
    """Bipartite soft matching: tokens at even places may each merge into their most similar token at an odd place."""

    place: ClassVar[Place] = Place.BETWEEN

    def __init__(self, r: int, class_token: bool = True) -> None:
        super().__init__()
        self.r = r
        self.class_token = class_token

    def between(self, x: Tensor, seen: Seen, flow: Flow) -> Tensor:
        # half of the tokens at most can merge, and a class token, which is the first, stays as it is
        r = min(self.r, (x.shape[1] - self.class_token) // 2)
        if r <= 0:
            return x
        sizes = flow.sizes if flow.sizes is not None else x.new_ones(x.shape[:2])
        with torch.no_grad():  # places have no gradient
            rest, merged, target = match(seen.keys.mean(dim=1), r, self.class_token)
        tokens, flow.sizes = merge(x, sizes, rest, merged, target)
        return tokens


def match(keys: Tensor, r: int, class_token: bool = True) -> tuple[Tensor, Tensor, Tensor]:
    """The places of the tokens that stay [B, N - r], of the r that merge, and into which of the former [B, r].

    By cosine; first stay even tokens, a class token in front, then all odd ones.
    """
    keys = F.normalize(keys, dim=-1)
    scores = keys[:, ::2] @ keys[:, 1::2].transpose(-2, -1)
    if class_token:
        scores[:, 0] = -torch.inf  # it never merges away
    best, partner = scores.max(dim=-1)
    order = best.argsort(dim=-1, descending=True)
    merged, kept = order[:, :r], order[:, r:].sort(dim=-1).values
    odd = torch.arange(1, keys.shape[1], 2, device=keys.device).expand(keys.shape[0], -1)
    return torch.cat([2 * kept, odd], dim=1), 2 * merged, kept.shape[1] + partner.gather(1, merged)


def merge(x: Tensor, sizes: Tensor, rest: Tensor, merged: Tensor, target: Tensor) -> tuple[Tensor, Tensor]:
    """The tokens that stay, as means with those merged into them, and their new sizes: [B, N - r, C], [B, N - r]."""
    old, more = sizes.gather(1, rest), sizes.gather(1, merged)
    new = old.scatter_add(1, target, more)
    tokens = take_tokens(x, rest) * (old / new)[..., None]
    added = take_tokens(x, merged) * (more / new.gather(1, target))[..., None]
    rows = target + rest.shape[1] * torch.arange(x.shape[0], device=x.device)[:, None]
    return tokens.flatten(0, 1).index_add(0, rows.flatten(), added.flatten(0, 1)).view_as(tokens), new


@register(
    [
        *vit_sizes("tome_r8_{size}16", "ti s b l", aliases=["tome_vit_{word}_r8_patch16", "ToMe-{letter}-R-8/16"], r=8),
        *vit_sizes("tome_r13_{size}16", aliases=["tome_vit_{word}_r13_patch16", "ToMe-{letter}-R-13/16"], r=13),
    ],
    title="ToMe",
    how=How.MERGING,
    year=2022,
    paper="2210.09461",
    complexity="O(N^2)",
    changes="Every block merges r pairs of similar tokens before its MLP; attention weighs tokens by their size.",
    notes=(
        "Tokens are merged in training too, as in the benchmark; the paper also merges the tokens of models that were "
        "trained without it. Attention weighs tokens by their size in training as well, as in the benchmark; the "
        "authors' code does so by default and advises against it in training.",
        "At the benchmark's sizes LayerScale starts at 1e-4, the benchmark's setting. The authors' code has none: its "
        "block, which takes the place of timm's, leaves it out.",
        "The class token has no position and starts with a standard deviation of 1e-6, as in the benchmark. In timm "
        "0.4.12, which the authors' code patches, it has a position and starts with 0.02.",
    ),
    miniature={"r": 2},
)
def tome(size: Size, r: NotNegative = 8, **options: Unpack[Options]) -> nn.Module:
    def reducer(index: int, dim: int, tokens: Tokens) -> Reducer:
        return MergeSimilar(r, tokens.class_token)

    return Encoder(size, reducer=reducer, **options)
