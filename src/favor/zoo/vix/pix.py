"""PiX and hybrid PiX: the pooling-based transformer PiT, in which X-formers take the place of softmax attention.

Between its two stages a separable convolution halves the grid and doubles the width.

Papers: Heo et al., "Rethinking Spatial Dimensions of Vision Transformers", 2021, arXiv:2103.16302;
Jeevan and Sethi, "Resource-efficient Hybrid X-formers for Vision", 2021, arXiv:2107.02239, Table 5
"""

import math
from dataclasses import replace
from functools import partial
from typing import Unpack

import torch
from torch import Tensor, nn

from favor.errors import RequestError
from favor.zoo.encoder import Block, Options, Size
from favor.zoo.layers import LayerNorm, LearnedPositions, Mlp, check_image_size
from favor.zoo.settings import Positive
from favor.zoo.slots import EmbedFactory, Flow, MixerFactory, Tokens
from favor.zoo.stages import GridConv, drop_path_rates, init_linear_layers
from favor.zoo.taxonomy import How
from favor.zoo.training import tokens_and_places
from favor.zoo.vix.plain import embedding
from favor.zoo.vix.setting import GRID, NYSTROM, PERFORMER, SOFTMAX, enter, x_former


class PoolingLayer(nn.Module):
    """Halves the grid and doubles the width by a separable convolution; the class token has a linear layer."""

    def __init__(self, dim: int, tokens: Tokens) -> None:
        super().__init__()
        self.grid = tokens.grid
        self.depthwise = GridConv(dim, 2 * dim, 3, stride=2, padding=1, groups=dim)
        self.pointwise = nn.Linear(2 * dim, 2 * dim)
        self.class_token = nn.Linear(dim, 2 * dim)

    def forward(self, x: Tensor) -> Tensor:
        patches = self.pointwise(self.depthwise(x[:, 1:].unflatten(1, self.grid))).flatten(1, 2)
        return torch.cat([self.class_token(x[:, :1]), patches], dim=1)


class PiX(nn.Module):
    """Two stages of blocks with any mixer, a class token, and learned positions at the entrance."""

    def __init__(self, size: Size, mixer: MixerFactory, embed: EmbedFactory, **options: Unpack[Options]) -> None:
        super().__init__()
        if size.depth < 2:
            raise RequestError(f"two stages need 2 blocks at least, not {size.depth}")
        self.img_size = options["img_size"]
        self.patch_embed = embed(options["in_chans"], size.dim, options["img_size"])
        height, width = self.patch_embed.grid
        fine = Tokens(height, width, class_token=True)
        coarse = Tokens(math.ceil(fine.height / 2), math.ceil(fine.width / 2), class_token=True)
        self.class_token = nn.Parameter(torch.zeros(1, 1, size.dim))
        self.positions = LearnedPositions(size.dim, fine, class_position=True)
        # the MLPs of both stages have the same number of hidden units
        wide = replace(size, dim=2 * size.dim, mlp_ratio=size.mlp_ratio / 2)
        first, second = drop_path_rates(options["drop_path"], (size.depth // 2, size.depth - size.depth // 2))
        self.fine = blocks(size, fine, mixer, first)
        self.pool = PoolingLayer(size.dim, fine)
        self.coarse = blocks(wide, coarse, mixer, second)
        self.norm = LayerNorm(wide.dim)
        self.head = nn.Linear(wide.dim, options["num_classes"])
        init_linear_layers(self)
        nn.init.normal_(self.class_token, std=1e-6)

    def forward(self, images: Tensor) -> Tensor:
        check_image_size(images, self.img_size)
        x = self.patch_embed(images)
        x = self.positions(torch.cat([self.class_token.expand(x.shape[0], -1, -1), x], dim=1))
        flow = Flow()
        for block in self.fine:
            x = block(x, flow)
        x = self.pool(x)
        for block in self.coarse:
            x = block(x, flow)
        return self.head(self.norm(x[:, 0]))

    def no_weight_decay(self) -> set[str]:
        """The class token and the positions."""
        return tokens_and_places(self)


def blocks(size: Size, tokens: Tokens, mixer: MixerFactory, drop_path: list[float]) -> nn.ModuleList:
    """A stage: one block for each rate of drop path."""
    return nn.ModuleList(
        Block(size, tokens, mixer=mixer, mlp=Mlp, norm=LayerNorm, layer_scale=None, drop_path=rate)
        for rate in drop_path
    )


def vix_pix(
    size: Size, x: str = "t", hybrid: bool = False, grid: Positive = GRID, **options: Unpack[Options]
) -> nn.Module:
    if size.dim % size.heads:
        raise RequestError(f"{size.dim} channels cannot be split into {size.heads} heads of equal size")
    mixer = partial(x_former(x).mixer, head_dim=size.dim // size.heads)
    return PiX(size, mixer, embedding(options["img_size"], hybrid, grid), **options)


for _hybrid in (False, True):
    for _x in (SOFTMAX, PERFORMER, NYSTROM):
        enter(
            vix_pix,
            f"vix_{'hybrid_' if _hybrid else ''}pi{_x.letter}",
            f"{'Hybrid ' if _hybrid else ''}Pi{_x.letter.upper()}",
            how=How.HYBRID if _x is SOFTMAX else _x.how,
            complexity=_x.complexity,
            changes="PiT on pixels that "
            + ("three 3 x 3 convolutions embed" if _hybrid else "a linear layer embeds")
            + f": two blocks of width 128, a pooling to a quarter of the patches, two of width 256, with {_x.says}.",
            notes=(
                *_x.notes,
                "32 channels per head and 256 hidden units in the MLPs of both stages give the paper's count.",
            ),
            alias=_hybrid or _x is not SOFTMAX,
            x=_x.letter,
            hybrid=_hybrid,
        )
