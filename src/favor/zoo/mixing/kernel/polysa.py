"""Poly-SA: self-attention as a polynomial of third order in the tokens, with element-wise products instead of N x N.

Paper: Babiloni et al., "Linear Complexity Self-Attention with 3rd Order Polynomials", 2023,
DOI 10.1109/TPAMI.2022.3231971
"""

from typing import ClassVar, Unpack

import torch
from torch import Tensor, nn

from favor.zoo.attention import HeadMixer
from favor.zoo.card_notes import LAYER_SCALE_SET
from favor.zoo.encoder import Encoder, Options, Size
from favor.zoo.layers import LayerNorm, resize_patches
from favor.zoo.registry import register, vit_sizes
from favor.zoo.slots import Tokens
from favor.zoo.taxonomy import How


class PolyMixer(HeadMixer):
    """q * expand(norm(pool(k * v))), with a learned weight a token for pooling and one for expanding: O(N d)."""

    fixed_tokens: ClassVar[bool] = True

    def __init__(self, dim: int, heads: int, tokens: Tokens, rotary: bool = False) -> None:
        super().__init__(dim, heads, tokens, rotary=rotary)
        self.pool = nn.Parameter(torch.empty(heads, tokens.count))
        self.expand = nn.Parameter(torch.empty(heads, tokens.count))
        self.norm = LayerNorm(self.head_dim)
        for weight in (self.pool, self.expand):
            nn.init.trunc_normal_(weight, std=0.02)

    def mix(self, q: Tensor, k: Tensor, v: Tensor) -> Tensor:
        pooled = self.norm(self.pool.unsqueeze(1) @ (k * v))
        return q * (self.expand.unsqueeze(2) * pooled)

    def resample(self, name: str, weight: Tensor) -> Tensor:
        """Interpolate along the tokens; pooling weights are scaled such that the pooled sum keeps its size."""
        return resize_patches(weight.unsqueeze(-1), self.tokens, keep_sums=name == "pool").squeeze(-1)


@register(
    vit_sizes("polysa_{size}16", "ti s b l", aliases=["polysa_vit_{word}_patch16", "PolySA-{letter}/16"]),
    title="Poly-SA",
    how=How.KERNEL,
    year=2023,
    paper="10.1109/TPAMI.2022.3231971",
    complexity="O(N)",
    changes="Keys times values are pooled over the tokens with learned weights, normalized, expanded with learned "
    "weights and multiplied with the queries, channel by channel.",
    notes=(
        "One pooling and one expanding weight per head and token, and a LayerNorm on the pooled vector, as in the "
        "benchmark's implementation.",
        LAYER_SCALE_SET,
    ),
)
def polysa(size: Size, **options: Unpack[Options]) -> nn.Module:
    return Encoder(size, mixer=PolyMixer, **options)
