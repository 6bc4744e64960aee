"""CvT: queries, keys and values come from convolutions of the token grid, in three stages of ever coarser grids.

Paper: Wu et al., "CvT: Introducing Convolutions to Vision Transformers", 2021, arXiv:2103.15808
"""

from collections.abc import Sequence
from typing import Unpack

import torch
import torch.nn.functional as F
from torch import Tensor, nn

from favor.zoo.encoder import Options
from favor.zoo.layers import DropPath, Mlp
from favor.zoo.registry import ImageSizes, Variant, register
from favor.zoo.settings import Positive
from favor.zoo.stages import ConvEmbedding, GridBatchNorm, GridConv, as_grid, init_linear_layers
from favor.zoo.taxonomy import How
from favor.zoo.training import tokens_and_places


class ConvProjection(nn.Module):
    """A depthwise convolution before a linear projection: each token is projected together with its neighbors.

    A stride above one leaves fewer tokens. The class token, which has no neighbors, passes the convolution by.
    """

    def __init__(self, dim: int, stride: int) -> None:
        super().__init__()
        self.conv = GridConv(dim, dim, 3, stride=stride, padding=1, groups=dim, bias=False)
        self.norm = GridBatchNorm(dim)
        self.proj = nn.Linear(dim, dim)

    def forward(self, class_token: Tensor, grid: Tensor) -> Tensor:
        x = self.norm(self.conv(grid)).flatten(1, 2)
        if class_token.shape[1]:
            x = torch.cat([class_token, x], dim=1)
        return self.proj(x)


class ConvAttention(nn.Module):
    """Softmax attention with convolutional projections; `key_stride` squeezes keys and values."""

    def __init__(self, dim: int, heads: int, key_stride: int = 2) -> None:
        super().__init__()
        self.heads = heads
        self.scale = dim**-0.5
        self.query = ConvProjection(dim, stride=1)
        self.key = ConvProjection(dim, stride=key_stride)
        self.value = ConvProjection(dim, stride=key_stride)
        self.proj = nn.Linear(dim, dim)

    def forward(self, x: Tensor, grid: tuple[int, int]) -> Tensor:
        """[B, N, dim], of which the last tokens are the grid -> [B, N, dim]."""
        class_token, patches = x.tensor_split([x.shape[1] - grid[0] * grid[1]], dim=1)
        patches = patches.unflatten(1, grid).contiguous()  # one copy here, or one in each of the convolutions
        q, k, v = (
            projection(class_token, patches).unflatten(2, (self.heads, -1)).transpose(1, 2)
            for projection in (self.query, self.key, self.value)
        )
        y = F.scaled_dot_product_attention(q, k, v, scale=self.scale)
        return self.proj(y.transpose(1, 2).flatten(2))


Three = tuple[Positive, Positive, Positive]
"""One number per stage."""


class ConvBlock(nn.Module):
    """ViT's block with convolutional attention."""

    def __init__(self, dim: int, heads: int, drop_path: float) -> None:
        super().__init__()
        self.norm1 = nn.LayerNorm(dim)
        self.attn = ConvAttention(dim, heads)
        self.norm2 = nn.LayerNorm(dim)
        self.mlp = Mlp(dim, 4 * dim)
        self.drop_path = DropPath(drop_path)

    def forward(self, x: Tensor, grid: tuple[int, int]) -> Tensor:
        x = x + self.drop_path(self.attn(self.norm1(x), grid))
        return x + self.drop_path(self.mlp(self.norm2(x)))


class Stage(nn.Module):
    """A coarser grid of wider tokens, and blocks on it: [B, H, W, in] -> [B, N, dim] and the new grid."""

    def __init__(
        self,
        in_chans: int,
        dim: int,
        heads: int,
        embedding: tuple[int, int, int],
        drop_path: Sequence[float],
        class_token: bool,
    ) -> None:
        super().__init__()
        kernel, stride, padding = embedding
        self.embed = ConvEmbedding(in_chans, dim, kernel, stride, padding, norm=nn.LayerNorm)
        self.class_token = nn.Parameter(torch.empty(1, 1, dim)) if class_token else None
        self.blocks = nn.ModuleList(ConvBlock(dim, heads, rate) for rate in drop_path)
        if self.class_token is not None:
            nn.init.trunc_normal_(self.class_token, std=0.02)

    def forward(self, x: Tensor) -> tuple[Tensor, tuple[int, int]]:
        x = self.embed(x)
        grid = (x.shape[1], x.shape[2])
        x = x.flatten(1, 2)
        if self.class_token is not None:
            x = torch.cat([self.class_token.expand(x.shape[0], -1, -1), x], dim=1)
        for block in self.blocks:
            x = block(x, grid)
        return x, grid


class CvT(nn.Module):
    """Three stages, without positions; the class token joins in the last one."""

    def __init__(
        self, depths: Sequence[int], dims: Sequence[int], heads: Sequence[int], **options: Unpack[Options]
    ) -> None:
        super().__init__()
        rates = [[options["drop_path"] * i / max(depth - 1, 1) for i in range(depth)] for depth in depths]
        in_chans = (options["in_chans"], *dims[:-1])
        embeddings = ((7, 4, 2), (3, 2, 1), (3, 2, 1))
        last = len(dims) - 1
        self.stages = nn.ModuleList(
            Stage(in_chans[i], dims[i], heads[i], embeddings[i], rates[i], class_token=i == last)
            for i in range(len(dims))
        )
        self.norm = nn.LayerNorm(dims[-1])
        self.head = nn.Linear(dims[-1], options["num_classes"])
        init_linear_layers(self)

    def forward(self, images: Tensor) -> Tensor:
        x = as_grid(images)
        for stage in self.stages:
            tokens, grid = stage(x)
            x = tokens[:, -grid[0] * grid[1] :].unflatten(1, grid)
        return self.head(self.norm(tokens[:, 0]))

    def no_weight_decay(self) -> set[str]:
        """The class token."""
        return tokens_and_places(self)


@register(
    [
        Variant("cvt_13", {"depths": (1, 2, 10)}, aliases=("CvT-13",)),
        Variant("cvt_21", {"depths": (1, 4, 16)}, aliases=("CvT-21",)),
    ],
    title="CvT",
    how=How.HYBRID,
    year=2021,
    paper="2103.15808",
    complexity="O(N^2)",
    changes="Queries, keys and values are projected by depthwise separable convolutions, keys and values with stride "
    "2. Overlapping convolutions embed the tokens of three stages; there are no positions.",
    image_sizes=ImageSizes(multiple_of=1, at_least=32),
    notes=(
        "Logits are divided by the square root of the block's width, not of a head's, as in the authors' code.",
        "The MLP uses GELU, as in the benchmark; the authors' code uses the approximation x sigmoid(1.702 x).",
        "Drop path grows from 0 to its rate within every stage, as in the benchmark; the authors' configurations have "
        "it in the last stage only (0, 0, 0.1).",
        "The query convolution of the last block learns nothing: only the class token is read, and it bypasses the "
        "convolution.",
    ),
    idle_parameters=[f"stages.2.blocks.{last}.attn.query.{part}.*" for last in (9, 15, 1) for part in ("conv", "norm")],
    miniature={"depths": (1, 1, 2), "dims": (16, 24, 48), "heads": (1, 2, 4)},
)
def cvt(
    depths: Three,
    dims: Three = (64, 192, 384),
    heads: Three = (1, 3, 6),
    **options: Unpack[Options],
) -> nn.Module:
    return CvT(depths, dims, heads, **options)
