"""Synthesizer, factorized random: learned attention weights that are the same for every image.

Paper: Tay et al., "Synthesizer: Rethinking Self-Attention in Transformer Models", 2020, arXiv:2005.00743
"""

from functools import partial
from typing import ClassVar, Unpack

import torch
from torch import Tensor, nn

from favor.errors import RequestError
from favor.zoo.card_notes import LAYER_SCALE
from favor.zoo.encoder import Encoder, Options, Size
from favor.zoo.layers import resize_patches
from favor.zoo.registry import register, vit_sizes
from favor.zoo.settings import Positive
from favor.zoo.slots import Tokens
from favor.zoo.taxonomy import How


class FactorizedRandomMixer(nn.Module):
    """softmax(R1 R2^T) v with two learned N x k matrices a head: O(N^2)."""

    fixed_tokens: ClassVar[bool] = True

    def __init__(self, dim: int, heads: int, tokens: Tokens, k: int = 8) -> None:
        super().__init__()
        if dim % heads:
            raise RequestError(f"{dim} channels cannot be split into {heads} heads of equal size")
        self.heads = heads
        self.tokens = tokens
        self.r1 = nn.Parameter(torch.randn(heads, tokens.count, k))
        self.r2 = nn.Parameter(torch.randn(heads, tokens.count, k))
        self.value = nn.Linear(dim, dim)
        self.proj = nn.Linear(dim, dim)

    def forward(self, x: Tensor) -> Tensor:
        weights = (self.r1 @ self.r2.transpose(-2, -1)).softmax(dim=-1)
        v = self.value(x).unflatten(-1, (self.heads, -1))
        return self.proj(torch.einsum("hnm,bmhd->bnhd", weights.to(v.dtype), v).flatten(2))

    def resample(self, name: str, weight: Tensor) -> Tensor:
        """Interpolate along the patches; the class token's vector is kept."""
        return resize_patches(weight, self.tokens)


@register(
    vit_sizes(
        "synthesizer_fr_{size}16",
        "ti s b l",
        aliases=["synthesizer_fr_vit_{word}_patch16", "Synthesizer FR-{letter}/16"],
    ),
    title="Synthesizer-FR",
    how=How.FIXED,
    year=2020,
    paper="2005.00743",
    complexity="O(N^2)",
    changes="No queries and keys: the attention weights are softmax(R1 R2^T) with learned R1 and R2, one pair per "
    "head.",
    notes=(
        "k = 8, as in the paper; R1 and R2 are drawn from the standard normal distribution, as in the benchmark.",
        "The benchmark's implementation rounds the 197 rows of R1 and R2 up to 200 and never uses the last three: "
        "4,947,688, 18,741,736 and 72,871,912 parameters at Ti, S and B, instead of 4,945,960, 18,738,280 and "
        "72,865,000.",
        LAYER_SCALE,
    ),
    miniature={"k": 4},
)
def synthesizer_fr(size: Size, k: Positive = 8, **options: Unpack[Options]) -> nn.Module:
    return Encoder(size, mixer=partial(FactorizedRandomMixer, k=k), **options)
