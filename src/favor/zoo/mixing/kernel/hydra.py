"""Hydra: as many heads as channels, so that attention is one global sum and a gate.

Paper: Bolya et al., "Hydra Attention: Efficient Attention with Many Heads", 2022, arXiv:2209.07484
"""

from typing import Unpack

import torch.nn.functional as F
from torch import Tensor, nn

from favor.zoo.attention import HeadMixer
from favor.zoo.card_notes import LAYER_SCALE
from favor.zoo.encoder import Encoder, Options, Size
from favor.zoo.registry import register, vit_sizes
from favor.zoo.slots import Tokens
from favor.zoo.taxonomy import How


class HydraMixer(HeadMixer):
    """Cosine-similarity attention with one channel a head: O(N d)."""

    def __init__(self, dim: int, heads: int, tokens: Tokens, rotary: bool = False) -> None:
        # the norm of a query or key runs over all heads, so the shell's frame keeps the channels together
        super().__init__(dim, 1, tokens, rotary=rotary)

    def mix(self, q: Tensor, k: Tensor, v: Tensor) -> Tensor:
        summary = (F.normalize(k, dim=-1) * v).sum(dim=-2, keepdim=True)
        return F.normalize(q, dim=-1) * summary


@register(
    vit_sizes("hydra_{size}16", "ti s b l", aliases=["hydra_vit_{word}_patch16", "Hydra-{letter}/16"]),
    title="Hydra",
    how=How.KERNEL,
    year=2022,
    paper="2209.07484",
    complexity="O(N)",
    changes="As many heads as channels, with cosine similarity instead of the softmax: all tokens are summed into one "
    "vector, which gates every query.",
    notes=(
        "Used in all blocks; the paper also studies it in the last blocks only.",
        LAYER_SCALE,
    ),
)
def hydra(size: Size, **options: Unpack[Options]) -> nn.Module:
    return Encoder(size, mixer=HydraMixer, **options)
