"""Sparse Sinkhorn attention: blocks of tokens attend to themselves and to a block that a learned sorting assigns.

Paper: Tay et al., "Sparse Sinkhorn Attention", 2020, arXiv:2002.11296

`sinkhorn_cait` is the form of the benchmark "Which Transformer to Favor": in the shell of CaiT (Touvron et al., "Going
deeper with Image Transformers", 2021, arXiv:2103.17239), where class attention after the last block reads the patches.
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
from favor.zoo.layers import LayerNorm, LayerScale, Mlp
from favor.zoo.registry import register, vit_sizes
from favor.zoo.settings import Positive
from favor.zoo.slots import Flow, PerToken, Tokens
from favor.zoo.taxonomy import How

TEMPERATURE = 0.75
ITERATIONS = 8


class BlockSortMixer(HeadMixer):
    """Softmax attention of a block to itself and to its block of the sorted sequence: O(N^1.5).

    A subclass says in `scores` how much each block wants each other.
    """

    fixed_tokens: ClassVar[bool] = True
    is_token: Tensor

    def __init__(self, dim: int, heads: int, tokens: Tokens, blocks: int | None = None, rotary: bool = False) -> None:
        super().__init__(dim, heads, tokens, rotary=rotary)
        if blocks is None:
            blocks = max(1, round(math.sqrt(tokens.count) / 2))
        if blocks > tokens.count:
            raise RequestError(f"{blocks} blocks are more than there are tokens, {tokens.count}")
        self.length = math.ceil(tokens.count / blocks)
        self.blocks = math.ceil(tokens.count / self.length)
        self.padding = self.blocks * self.length - tokens.count
        is_token = F.pad(torch.ones(tokens.count), (0, self.padding)).view(self.blocks, self.length)
        self.register_buffer("is_token", is_token, persistent=False)

    def scores(self, x: Tensor, q: Tensor, k: Tensor) -> Tensor:
        """Sorting scores [B, heads, blocks, blocks] from inputs [B, N, dim] and queries, keys in blocks."""
        raise NotImplementedError

    def forward(self, x: Tensor) -> Tensor:
        q, k, v = (self.in_blocks(part) for part in self.split(x))
        order = balanced(self.scores(x, q, k), noise=self.training).to(k.dtype)
        # the sorted block and the block itself by one product, which costs less than to join them afterwards
        own = torch.eye(self.blocks, dtype=order.dtype, device=order.device).expand_as(order)
        sorted_and_own = torch.stack([order, own], dim=3).flatten(2, 3)
        keys, values = (
            (sorted_and_own @ t.flatten(3)).view(*t.shape[:3], 2 * self.length, self.head_dim) for t in (k, v)
        )
        bias = None
        if self.padding:
            share = (order @ self.is_token.to(order.dtype)).clamp_min(1e-4)
            keys, values = (_rescale_sorted(t, share) for t in (keys, values))
            bias = torch.cat([share, self.is_token.to(share.dtype).expand_as(share)], dim=3).log()[..., None, :]
            bias = bias.flatten(1, 2)
        y = F.scaled_dot_product_attention(q.flatten(1, 2), keys.flatten(1, 2), values.flatten(1, 2), attn_mask=bias)
        return self.proj(self.join(y.view(q.shape).flatten(2, 3)[:, :, : x.shape[1]]))

    def in_blocks(self, x: Tensor) -> Tensor:
        """[B, heads, N, head_dim] -> [B, heads, blocks, length, head_dim], zeros behind the last token."""
        if self.padding:
            x = F.pad(x, (0, 0, 0, self.padding))
        return x.reshape(*x.shape[:2], self.blocks, self.length, self.head_dim)

    def _block_means(self, x: Tensor) -> Tensor:
        """Mean over the tokens of a block: [..., blocks, length, C] -> [..., blocks, C]."""
        return x.sum(dim=-2) / self.is_token.to(x.dtype).sum(dim=-1, keepdim=True)


class SinkhornMixer(BlockSortMixer):
    """The paper's sorting network: two layers look at each block as a whole and score its place."""

    def __init__(self, dim: int, heads: int, tokens: Tokens, blocks: int | None = None, rotary: bool = False) -> None:
        super().__init__(dim, heads, tokens, blocks, rotary)
        self.sort_hidden = nn.Linear(dim, dim)
        self.sort_places = SortPlaces(dim, heads, self.blocks)

    def scores(self, x: Tensor, q: Tensor, k: Tensor) -> Tensor:
        blocks = F.pad(x, (0, 0, 0, self.padding)).unflatten(1, (self.blocks, self.length))
        return F.relu(self.sort_places(F.relu(self.sort_hidden(self._block_means(blocks)))))


class SortPlaces(nn.Module):
    """Scores of a block for every place in the sorted sequence, for every head."""

    def __init__(self, dim: int, heads: int, places: int) -> None:
        super().__init__()
        self.weight = nn.Parameter(torch.empty(heads, places, dim))
        self.bias = nn.Parameter(torch.zeros(heads, places))
        nn.init.normal_(self.weight, std=dim**-0.5)

    def forward(self, blocks: Tensor) -> Tensor:
        heads, places, dim = self.weight.shape
        scores = F.linear(blocks, self.weight.view(-1, dim), self.bias.view(-1))
        return scores.unflatten(-1, (heads, places)).transpose(1, 2)

    def resample(self, name: str, weight: Tensor) -> Tensor:
        """Places follow each other down the image: interpolate along them."""
        channels = weight.unsqueeze(1) if name == "bias" else weight.transpose(1, 2)
        resized = F.interpolate(channels.float(), size=self.bias.shape[1], mode="linear", align_corners=True)
        return (resized.squeeze(1) if name == "bias" else resized.transpose(1, 2)).to(weight.dtype)


class PooledSinkhornMixer(BlockSortMixer):
    """The benchmark's sorting without parameters: the mean query of a block scores the mean keys of all blocks."""

    def scores(self, x: Tensor, q: Tensor, k: Tensor) -> Tensor:
        return F.relu(self._block_means(q) @ self._block_means(k).transpose(-2, -1) * self.scale)


def balanced(scores: Tensor, noise: bool) -> Tensor:
    """Gumbel-Sinkhorn: scores to a matrix whose rows and columns sum to one, a soft permutation.

    >>> balanced(torch.zeros(2, 2), noise=False).tolist()
    [[0.5, 0.5], [0.5, 0.5]]
    """
    logs = scores if scores.dtype == torch.float64 else scores.float()
    if noise:
        logs = logs - torch.empty_like(logs).exponential_().log()
    logs = logs / TEMPERATURE
    for _ in range(ITERATIONS):
        logs = logs.log_softmax(dim=-2)
        logs = logs.log_softmax(dim=-1)  # rows last: a sorted block is a mean of blocks
    return logs.exp()


def _rescale_sorted(x: Tensor, share: Tensor) -> Tensor:
    """Make the sorted half, a sum in which padding counted as zero, a mean over the tokens alone."""
    factor = torch.cat([share.reciprocal(), torch.ones_like(share)], dim=3)
    return x * factor[..., None]


class ClassAttention(nn.Module):
    """One query, of the class token, over all tokens."""

    def __init__(self, dim: int, heads: int) -> None:
        super().__init__()
        self.heads = heads
        self.q = nn.Linear(dim, dim)
        self.kv = nn.Linear(dim, 2 * dim)
        self.proj = nn.Linear(dim, dim)

    def forward(self, x: Tensor) -> Tensor:
        q = self.q(x[:, :1]).unflatten(2, (self.heads, -1)).transpose(1, 2)
        k, v = self.kv(x).unflatten(2, (2, self.heads, -1)).permute(2, 0, 3, 1, 4).unbind(0)
        return self.proj(F.scaled_dot_product_attention(q, k, v).transpose(1, 2).flatten(2))


class ClassBlock(nn.Module):
    """Class attention and an MLP that change the class token alone."""

    def __init__(self, size: Size, layer_scale: float) -> None:
        super().__init__()
        self.norm1 = LayerNorm(size.dim)
        self.attention = ClassAttention(size.dim, size.heads)
        self.ls1 = LayerScale(size.dim, layer_scale)
        self.norm2 = LayerNorm(size.dim)
        self.mlp = Mlp(size.dim, size.hidden)
        self.ls2 = LayerScale(size.dim, layer_scale)

    def forward(self, class_token: Tensor, patches: Tensor) -> Tensor:
        tokens = torch.cat([class_token, patches], dim=1)
        class_token = class_token + self.ls1(self.attention(self.norm1(tokens)))
        return class_token + self.ls2(self.mlp(self.norm2(class_token)))


class ClassAttentionPool(nn.Module):
    """The end of CaiT: a class token that the blocks have not seen reads the patches in two blocks of its own."""

    wants_class_token = False

    def __init__(self, size: Size) -> None:
        super().__init__()
        self.class_token = nn.Parameter(torch.empty(1, 1, size.dim))
        self.blocks = nn.ModuleList(ClassBlock(size, layer_scale=1e-4) for _ in range(2))
        nn.init.trunc_normal_(self.class_token, std=0.02)

    def forward(self, x: Tensor, norm: PerToken, flow: Flow) -> Tensor:
        class_token = self.class_token.expand(x.shape[0], -1, -1)
        for block in self.blocks:
            class_token = block(class_token, x)
        return norm(class_token[:, 0])


SHARED_NOTES = (
    "sqrt(N) / 2 blocks, a number that the paper leaves open: 7 at 224 px, about 28 tokens (two rows of patches) each.",
    "Sorted keys and values come from the soft permutation, as in the paper; the benchmark's code keeps only the "
    "largest entry of each row of a plain softmax and never runs the Sinkhorn balancing.",
    "Eight balancing steps at temperature 0.75, the benchmark's setting; Gumbel noise in training only.",
)


@register(
    vit_sizes("sinkhorn_{size}16", "ti s b l", aliases=["Sinkhorn ViT-{letter}/16"]),
    title="Sinkhorn Transformer",
    how=How.SPARSE,
    year=2020,
    paper="2002.11296",
    complexity="O(N^1.5)",
    changes="Tokens attend to their own block of the sequence, and to one that a learned sorting assigns to it.",
    notes=(
        *SHARED_NOTES,
        "197 tokens are padded to 7 blocks of 29. Padding is masked: it is never a key, and sorted keys and values are "
        "means over tokens only, scaled down by the share of padding in them.",
        "The sorting network sees the mean of a block instead of the paper's sum, and scores positions for each head.",
        LAYER_SCALE,
    ),
)
def sinkhorn(size: Size, blocks: Positive | None = None, **options: Unpack[Options]) -> nn.Module:
    return Encoder(size, mixer=partial(SinkhornMixer, blocks=blocks), **options)


@register(
    vit_sizes(
        "sinkhorn_cait_{size}16",
        aliases=["sinkhorn_cait_{word}_bmax32_patch16", "Sinkhorn Cait-{letter}-Bmax-32/16"],
    ),
    title="Sinkhorn CaiT",
    how=How.SPARSE,
    year=2020,
    paper="2002.11296",
    complexity="O(N^1.5)",
    changes="Sinkhorn attention on the patches; a class token reads them in two blocks of class attention at the end.",
    notes=(
        *SHARED_NOTES,
        "196 patches make 7 blocks of 28 without padding, the benchmark's blocks of at most 32 at 224 px; where the "
        "patches cannot be divided evenly, padding is masked.",
        "Blocks are sorted by the products of their mean queries and keys, without parameters, as in the benchmark.",
        "LayerScale starts at 1e-4 in all blocks, the benchmark's setting; CaiT-S24's starts at 1e-5.",
    ),
)
def sinkhorn_cait(size: Size, blocks: Positive | None = None, **options: Unpack[Options]) -> nn.Module:
    mixer = partial(PooledSinkhornMixer, blocks=blocks)
    return Encoder(size, mixer=mixer, pool=ClassAttentionPool(size), **options)
