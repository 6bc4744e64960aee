"""CvX: the convolutional vision transformer CvT, in which X-formers take the place of its convolutional attention.

Three stages of one, one and two blocks, each behind a 3 x 3 convolution, all of the same width; no positions.

Papers: Wu et al., "CvT: Introducing Convolutions to Vision Transformers", 2021, arXiv:2103.15808;
Jeevan and Sethi, "Resource-efficient Hybrid X-formers for Vision", 2021, arXiv:2107.02239, Tables 3 and 4
"""

import math
from collections.abc import Sequence
from functools import partial
from typing import ClassVar, Unpack

import torch
import torch.nn.functional as F
from torch import Tensor, nn

from favor.errors import RequestError
from favor.zoo.encoder import Block, Options, Size
from favor.zoo.layers import Mlp, check_image_size
from favor.zoo.settings import Positive
from favor.zoo.slots import Flow, InitializesItself, MixerFactory, Tokens
from favor.zoo.stages import GridBatchNorm, GridConv, as_grid, drop_path_rates, init_linear_layers
from favor.zoo.taxonomy import How
from favor.zoo.vix.setting import GRID, X_FORMERS, conv_strides, enter, x_former


class ChannelNorm(nn.Module):
    """A layer norm whose parameters are bare, as in the authors' code, so that the paper's count leaves them out."""

    def __init__(self, dim: int) -> None:
        super().__init__()
        self.gain = nn.Parameter(torch.ones(dim))
        self.shift = nn.Parameter(torch.zeros(dim))

    def forward(self, x: Tensor) -> Tensor:
        return F.layer_norm(x, self.gain.shape, self.gain, self.shift)


class SeparableProjection(nn.Module):
    """A depthwise 3 x 3 convolution of the grid, a batch norm and a linear layer: [B, H, W, dim] -> [B, N, out]."""

    def __init__(self, dim: int, out: int, stride: int) -> None:
        super().__init__()
        self.conv = GridConv(dim, dim, 3, stride=stride, padding=1, groups=dim, bias=False)
        self.norm = GridBatchNorm(dim)
        self.linear = nn.Linear(dim, out, bias=False)

    def forward(self, grid: Tensor) -> Tensor:
        return self.linear(self.norm(self.conv(grid)).flatten(1, 2))


class SeparableAttention(nn.Module):
    """Softmax attention with separable projections, of which keys and values share the convolution: O(N^2)."""

    fixed_tokens: ClassVar[bool] = False

    def __init__(self, dim: int, heads: int, tokens: Tokens, head_dim: int = 64, key_stride: int = 2) -> None:
        super().__init__()
        self.tokens = tokens
        self.heads = heads
        self.query = SeparableProjection(dim, heads * head_dim, stride=1)
        self.key_value = SeparableProjection(dim, 2 * heads * head_dim, stride=key_stride)
        self.proj = nn.Linear(heads * head_dim, dim)

    def forward(self, x: Tensor) -> Tensor:
        grid = x.unflatten(1, self.tokens.grid)
        q = self.query(grid).unflatten(-1, (self.heads, -1)).transpose(1, 2)
        k, v = self.key_value(grid).unflatten(-1, (2, self.heads, -1)).permute(2, 0, 3, 1, 4).unbind(0)
        return self.proj(F.scaled_dot_product_attention(q, k, v).transpose(1, 2).flatten(2))


class CvX(nn.Module):
    """Three stages of blocks with any mixer; the head sees the mean of the tokens."""

    def __init__(self, size: Size, mixer: MixerFactory, strides: Sequence[int], **options: Unpack[Options]) -> None:
        super().__init__()
        if size.depth < 3:
            raise RequestError(f"three stages need 3 blocks at least, not {size.depth}")
        depths = (1, 1, size.depth - 2)
        self.img_size = height, width = options["img_size"]
        self.stages = nn.ModuleList()
        channels = options["in_chans"]
        rates = drop_path_rates(options["drop_path"], depths)
        for stride, stage_rates in zip(strides, rates, strict=True):
            height, width = math.ceil(height / stride), math.ceil(width / stride)
            tokens = Tokens(height, width, class_token=False)
            self.stages.append(Stage(channels, size, tokens, stride, mixer, stage_rates))
            channels = size.dim
        self.head = nn.Linear(size.dim, options["num_classes"])
        init_linear_layers(self)
        for module in self.modules():
            if isinstance(module, InitializesItself):
                module.init_weights()

    def forward(self, images: Tensor) -> Tensor:
        check_image_size(images, self.img_size)
        grid = as_grid(images)
        for stage in self.stages:
            grid = stage(grid)
        return self.head(grid.mean(dim=(1, 2)))


class Stage(nn.Module):
    """A convolution, a norm, and blocks: [B, H, W, in] -> [B, H', W', dim]."""

    def __init__(
        self,
        in_chans: int,
        size: Size,
        tokens: Tokens,
        stride: int,
        mixer: MixerFactory,
        drop_path: list[float],
    ) -> None:
        super().__init__()
        self.tokens = tokens
        self.embed = GridConv(in_chans, size.dim, 3, stride=stride, padding=1)
        self.norm = ChannelNorm(size.dim)
        self.blocks = nn.ModuleList(
            Block(size, tokens, mixer=mixer, mlp=Mlp, norm=ChannelNorm, layer_scale=None, drop_path=rate)
            for rate in drop_path
        )

    def forward(self, grid: Tensor) -> Tensor:
        x = self.norm(self.embed(grid)).flatten(1, 2)
        flow = Flow()
        for block in self.blocks:
            x = block(x, flow)
        return x.unflatten(1, self.tokens.grid)


def vix_cvx(
    size: Size,
    x: str = "t",
    head_dim: Positive = 64,
    key_stride: Positive = 2,
    grid: Positive = GRID,
    **options: Unpack[Options],
) -> nn.Module:
    own: MixerFactory = partial(SeparableAttention, head_dim=head_dim, key_stride=key_stride)
    return CvX(size, own if x == "t" else x_former(x).mixer, conv_strides(options["img_size"], grid), **options)


for _x in X_FORMERS.values():
    _base = _x.letter == "t"
    enter(
        vix_cvx,
        f"vix_cv{_x.letter}",
        f"Cv{_x.letter.upper()}",
        how=How.HYBRID if _base else _x.how,
        complexity=_x.complexity,
        changes="CvT with one token per pixel in all three stages, each after a 3 x 3 convolution, with "
        + ("its own separable convolutions before attention." if _base else f"{_x.says} in place of its own."),
        notes=(
            *(
                (
                    "64 channels per head, 256 in all, give the paper's count. The X-formers have 128, so the "
                    "comparison is not at equal width.",
                    "Keys and values with stride 2, CvT's default; the count is the same with stride 1.",
                )
                if _base
                else _x.notes
            ),
            "The parameters of its norms are bare, so the paper's count leaves them out too.",
            "Its norms over channels add 1e-5 to the variance; the authors' add 1e-5 to the standard deviation.",
        ),
        layer_norm=False,
        alias=not _base,
        x=_x.letter,
    )
