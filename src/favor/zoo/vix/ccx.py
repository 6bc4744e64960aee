"""CCX: the compact convolutional transformer CCT, in which X-formers take the place of its attention.

Convolutions and max pooling make the tokens, and a learned weighted mean over them takes the place of the class token.

Papers: Hassani et al., "Escaping the Big Data Paradigm with Compact Transformers", 2021, arXiv:2104.05704;
Jeevan and Sethi, "Resource-efficient Hybrid X-formers for Vision", 2021, arXiv:2107.02239, Tables 3 and 4
"""

import math
from collections.abc import Sequence
from dataclasses import replace
from functools import partial
from typing import Any, Unpack

from torch import Tensor, nn

from favor.zoo.encoder import Block, Encoder, Options, Size
from favor.zoo.pools import MeanPool
from favor.zoo.settings import Positive
from favor.zoo.slots import Flow
from favor.zoo.taxonomy import How
from favor.zoo.vix.setting import GRID, X_FORMERS, conv_strides, enter, x_mixer


class ConvPoolEmbed(nn.Module):
    """Three 3 x 3 convolutions without bias, each with a max pooling over 3 x 3 and a ReLU.

    The convolutions have the strides, as in the X-formers' code, or with `pooled` the poolings, as in CCT.
    """

    def __init__(
        self, in_chans: int, dim: int, img_size: tuple[int, int], strides: Sequence[int], pooled: bool = False
    ) -> None:
        super().__init__()
        self.grid = img_size
        widths = (in_chans, dim // 2, dim // 2, dim)
        layers: list[nn.Module] = []
        for before, after, stride in zip(widths, widths[1:], strides, strict=False):
            self.grid = (math.ceil(self.grid[0] / stride), math.ceil(self.grid[1] / stride))
            of_conv, of_pool = (1, stride) if pooled else (stride, 1)
            layers += [nn.Conv2d(before, after, 3, of_conv, padding=1, bias=False)]
            # CCT pools what the ReLU gave, which is the same, for more elements.
            layers += [nn.MaxPool2d(3, of_pool, padding=1), nn.ReLU()]
        self.layers = nn.Sequential(*layers)

    def forward(self, images: Tensor) -> Tensor:
        return self.layers(images).flatten(2).transpose(1, 2)


class CompactBlock(Block):
    """CCT's block: the residual of the MLP starts from the normalized tokens."""

    def forward(self, x: Tensor, flow: Flow) -> Tensor:
        x = self.norm2(x + self.drop_path(self.mixer(self.norm1(x))))
        return x + self.drop_path(self.mlp(x))


class CompactEncoder(Encoder):
    """An encoder whose head sees a mean of the tokens with learned weights."""

    def __init__(self, size: Size, **options: Any) -> None:
        super().__init__(size, pool=MeanPool(), block=CompactBlock, layer_scale=None, **options)
        self.attention_pool = nn.Linear(size.dim, 1)
        nn.init.trunc_normal_(self.attention_pool.weight, std=0.02)
        nn.init.zeros_(self.attention_pool.bias)

    def pooled(self, x: Tensor, flow: Flow) -> Tensor:
        x = self.norm(x)
        return (self.attention_pool(x).softmax(dim=1).mT @ x).squeeze(1)


def vix_ccx(
    size: Size,
    x: str = "t",
    mlp_ratio: float = 4.0,
    grid: Positive = GRID,
    k: Positive | None = None,
    pooled: bool = False,
    **options: Unpack[Options],
) -> nn.Module:
    return CompactEncoder(
        replace(size, mlp_ratio=mlp_ratio),
        embed=partial(ConvPoolEmbed, strides=conv_strides(options["img_size"], grid), pooled=pooled),
        mixer=x_mixer(x, k=k),
        **options,
    )


for _x in X_FORMERS.values():
    enter(
        vix_ccx,
        f"vix_cc{_x.letter}",
        f"CC{_x.letter.upper()}",
        how=How.HYBRID if _x.letter == "t" else _x.how,
        complexity=_x.complexity,
        changes="CCT with one token per pixel: three convolutions with max pooling embed the image, and a learned "
        "weighted mean of "
        f"the tokens goes to the head. Four blocks with {_x.says}.",
        notes=(
            *_x.notes,
            "512 hidden units in the MLPs give the paper's count. Its text says 256; its code passes a ratio under a "
            "misspelled name, which is ignored.",
        ),
        init_note="Initialized like our ViT, so that only the mixer makes a difference: linear layers and positions "
        "with a standard deviation of 0.02, convolutions with PyTorch's initialization. In the authors' code linear "
        "layers start with 0.02 too, positions with 0.2 and convolutions with Kaiming's initialization.",
        alias=_x.letter != "t",
        x=_x.letter,
    )
