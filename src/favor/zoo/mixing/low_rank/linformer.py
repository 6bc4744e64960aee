"""Linformer: project keys and values along the sequence to k << N tokens.

Paper: Wang et al., "Linformer: Self-Attention with Linear Complexity", 2020, arXiv:2006.04768
"""

from typing import ClassVar, Unpack

import torch
import torch.nn.functional as F
from torch import Tensor, nn

from favor.errors import RequestError
from favor.zoo.attention import HeadMixer
from favor.zoo.card_notes import LAYER_SCALE
from favor.zoo.encoder import Encoder, Options, Size
from favor.zoo.layers import resize_patches
from favor.zoo.registry import register, vit_sizes
from favor.zoo.settings import Positive
from favor.zoo.slots import Tokens
from favor.zoo.taxonomy import How


class LinformerMixer(HeadMixer):
    """Softmax attention of all queries over k projected keys: O(N k).

    With `share_kv` the keys are the values too, through one projection along the sequence; rotary positions turn them
    as keys only. `kv_heads` heads of keys and values, fewer than those of queries, are each used by several.
    """

    fixed_tokens: ClassVar[bool] = True

    def __init__(
        self,
        dim: int,
        heads: int,
        tokens: Tokens,
        k: int = 64,
        share_kv: bool = False,
        kv_heads: int | None = None,
        qkv_bias: bool = True,
        rotary: bool = False,
        head_dim: int | None = None,
    ) -> None:
        super().__init__(dim, heads, tokens, qkv_bias, rotary, head_dim)
        kv_heads = heads if kv_heads is None else kv_heads
        if kv_heads < 1 or heads % kv_heads:
            raise RequestError(f"{heads} heads of queries cannot share {kv_heads} heads of keys and values evenly")
        self.shares = heads // kv_heads
        self.widths = (heads, kv_heads) if share_kv else (heads, kv_heads, kv_heads)
        if sum(self.widths) != 3 * heads:
            self.qkv = nn.Linear(dim, sum(self.widths) * self.head_dim, bias=qkv_bias)
        self.project_keys = nn.Parameter(torch.empty(k, tokens.count))
        self.project_values = None if share_kv else nn.Parameter(torch.empty(k, tokens.count))
        for projection in (self.project_keys, self.project_values):
            if projection is not None:
                nn.init.normal_(projection, std=k**-0.5)

    def split(self, x: Tensor) -> tuple[Tensor, Tensor, Tensor]:
        """[B, N, dim] -> queries in heads, and keys and values in their own, maybe fewer heads."""
        parts = self.qkv(x).unflatten(-1, (-1, self.head_dim)).transpose(1, 2).split(self.widths, dim=1)
        q, k, v = parts[0], parts[1], parts[-1]
        return (q, k, v) if self.rotary is None else (self.rotary(q), self.rotary(k), v)

    def mix(self, q: Tensor, k: Tensor, v: Tensor) -> Tensor:
        keys = self.project_keys @ k
        if self.project_values is not None:
            values = self.project_values @ v
        else:
            values = keys if self.rotary is None else self.project_keys @ v
        if self.shares > 1:
            keys, values = (x.repeat_interleave(self.shares, dim=1) for x in (keys, values))
        return F.scaled_dot_product_attention(q, keys, values)

    def resample(self, name: str, weight: Tensor) -> Tensor:
        """Interpolate along the tokens, scaled such that each of the k sums keeps its size."""
        made, wanted = len(weight), len(self.project_keys)
        if made == weight.shape[1] < wanted:
            raise RequestError(
                f"{made} projected tokens, all of a small image, cannot be made {wanted} by interpolation"
            )
        return resize_patches(weight.unsqueeze(-1), self.tokens, keep_sums=True).squeeze(-1)


@register(
    vit_sizes("linformer_{size}16", "ti s b l", aliases=["linformer_vit_{word}_patch16", "Linformer-{letter}/16"]),
    title="Linformer",
    how=How.LOW_RANK,
    year=2020,
    paper="2006.04768",
    complexity="O(N)",
    changes="Keys and values are projected along the sequence to k tokens by two learned matrices per block.",
    notes=(
        "k = 64, fewer than the 197 tokens at 224 px; the heads of a block share their projections. An image with "
        "fewer than 64 tokens (112 px: 50) is projected to as many as it has, which saves nothing.",
        "The benchmark's implementation projects to k = 256, more tokens than there are, and has no bias on queries, "
        "keys and values (23,256,040 parameters and 5.18 G multiply-adds at S; here 22,362,088 and 4.47 G): "
        "`linformer_s16(k=256,more_than_tokens=True,qkv_bias=False)`.",
        LAYER_SCALE,
    ),
    miniature={"k": 8},
)
def linformer(
    size: Size,
    k: Positive = 64,
    qkv_bias: bool = True,
    more_than_tokens: bool = False,
    **options: Unpack[Options],
) -> nn.Module:
    def mixer(dim: int, heads: int, tokens: Tokens) -> LinformerMixer:
        projected = k if more_than_tokens else min(k, tokens.count)
        return LinformerMixer(dim, heads, tokens, k=projected, qkv_bias=qkv_bias)

    return Encoder(size, mixer=mixer, **options)
