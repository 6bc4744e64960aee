"""Linformer: project keys and values along the sequence to k << N tokens.

Paper: Wang et al., "Linformer: Self-Attention with Linear Complexity", 2020, arXiv:2006.04768
"""

from functools import partial
from typing import ClassVar, Unpack

import torch
import torch.nn.functional as F
from torch import Tensor, nn

from favor.zoo.attention import HeadMixer
from favor.zoo.encoder import Encoder, Options, Size
from favor.zoo.layers import resize_tokens
from favor.zoo.registry import register, vit_sizes
from favor.zoo.slots import Tokens
from favor.zoo.taxonomy import How


class LinformerMixer(HeadMixer):
    """Softmax attention of all queries over k projected keys: O(N k)."""

    fixed_tokens: ClassVar[bool] = True

    def __init__(self, dim: int, heads: int, tokens: Tokens, k: int = 64, rotary: bool = False) -> None:
        super().__init__(dim, heads, tokens, rotary=rotary)
        self.project_keys = nn.Parameter(torch.empty(k, tokens.count))
        self.project_values = nn.Parameter(torch.empty(k, tokens.count))
        for projection in (self.project_keys, self.project_values):
            nn.init.normal_(projection, std=k**-0.5)

    def mix(self, q: Tensor, k: Tensor, v: Tensor) -> Tensor:
        return F.scaled_dot_product_attention(q, self.project_keys @ k, self.project_values @ v)

    def resample(self, name: str, weight: Tensor) -> Tensor:
        """Interpolate along the tokens, scaled such that each of the k sums keeps its size."""
        first = int(self.tokens.class_token)
        patches = resize_tokens(weight[:, first:].T[None], self.tokens.grid)[0].T
        patches = patches * ((weight.shape[1] - first) / self.tokens.patches)
        return torch.cat([weight[:, :first], patches], dim=1)


@register(
    vit_sizes("linformer_{size}16", "ti s b l", aliases=["linformer_vit_{word}_patch16", "Linformer-{letter}/16"]),
    title="Linformer",
    how=How.LOW_RANK,
    year=2020,
    paper="2006.04768",
    complexity="O(N)",
    changes="Keys and values are projected along the sequence to k tokens by two learned matrices a block.",
    notes=(
        "k = 64, less than the 197 tokens at 224 px; the heads of a block share their projections.",
        "The benchmark's own implementation projects to k = 256, more tokens than there are, and has no bias on "
        "queries, keys and values (23,256,040 parameters at S instead of 22,362,088).",
    ),
    miniature={"k": 8},
)
def linformer(size: Size, k: int = 64, **options: Unpack[Options]) -> nn.Module:
    return Encoder(size, mixer=partial(LinformerMixer, k=k), **options)
