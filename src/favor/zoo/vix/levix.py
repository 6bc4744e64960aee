"""LeViX: one stage of LeViT, in which X-formers take the place of its attention.

Three convolutions embed the pixels. There are no positions, no class token, and outside of LeViT's attention no norm.

Papers: Graham et al., "LeViT: a Vision Transformer in ConvNet's Clothing for Faster Inference", 2021, arXiv:2104.01136;
Jeevan and Sethi, "Resource-efficient Hybrid X-formers for Vision", 2021, arXiv:2107.02239, Tables 3 and 4
"""

from functools import partial
from typing import ClassVar, Unpack

import torch.nn.functional as F
from torch import Tensor, nn

from favor.errors import RequestError
from favor.zoo.encoder import Encoder, Options, Size
from favor.zoo.layers import ConvEmbed
from favor.zoo.pools import MeanPool
from favor.zoo.positions import NoPositions
from favor.zoo.settings import Positive
from favor.zoo.slots import Tokens
from favor.zoo.taxonomy import How
from favor.zoo.vix.setting import GRID, X_FORMERS, conv_strides, enter, x_former


class BatchNormLinear(nn.Module):
    """A linear layer and a batch norm over all tokens of all images."""

    def __init__(self, dim: int, dim_out: int, bias: bool) -> None:
        super().__init__()
        self.linear = nn.Linear(dim, dim_out, bias=bias)
        self.norm = nn.BatchNorm1d(dim_out)

    def forward(self, x: Tensor) -> Tensor:
        return self.norm(self.linear(x).flatten(0, 1)).unflatten(0, x.shape[:2])


class LeViTAttention(nn.Module):
    """Softmax attention with batch norms behind all projections and a GELU before the last: O(N^2)."""

    fixed_tokens: ClassVar[bool] = False

    def __init__(self, dim: int, heads: int, tokens: Tokens) -> None:
        super().__init__()
        if dim % heads:
            raise RequestError(f"{dim} channels cannot be split into {heads} heads of equal size")
        self.heads = heads
        self.qkv = BatchNormLinear(dim, 3 * dim, bias=False)
        self.act = nn.GELU()
        self.proj = BatchNormLinear(dim, dim, bias=True)

    def init_weights(self) -> None:
        """A block starts as the identity in its attention, as in LeViT."""
        nn.init.zeros_(self.proj.norm.weight)

    def forward(self, x: Tensor) -> Tensor:
        q, k, v = self.qkv(x).unflatten(-1, (3, self.heads, -1)).permute(2, 0, 3, 1, 4).unbind(0)
        y = F.scaled_dot_product_attention(q, k, v).transpose(1, 2).flatten(2)
        return self.proj(self.act(y))


def no_norm(dim: int) -> nn.Module:
    """LeViX has none."""
    return nn.Identity()


def vix_levix(size: Size, x: str = "t", grid: Positive = GRID, **options: Unpack[Options]) -> nn.Module:
    return Encoder(
        size,
        embed=partial(ConvEmbed, strides=conv_strides(options["img_size"], grid)),
        positions=NoPositions(),
        mixer=LeViTAttention if x == "t" else x_former(x).mixer,
        norm=no_norm,
        pool=MeanPool(),
        layer_scale=None,
        **options,
    )


for _x in X_FORMERS.values():
    _base = _x.letter == "t"
    enter(
        vix_levix,
        f"vix_levi{_x.letter}",
        f"LeVi{_x.letter.upper()}",
        how=How.HYBRID if _base else _x.how,
        complexity=_x.complexity,
        changes="One stage of LeViT on pixels that three convolutions embed, without positions, with "
        + ("its own attention." if _base else f"{_x.says} and no norm."),
        notes=(
            *(("LeViT's positional bias is left out, as in the paper: the X-formers cannot use it.",) if _base else ()),
            *_x.notes,
            "GELU in the MLPs, as in the authors' code"
            + (", and in the attention, as in vit-pytorch's LeViT" if _base else "")
            + "; LeViT itself uses Hardswish.",
            *(("Table 3 prints 662,410 parameters, a misprint: Table 4 implies 622,410.",) if _x.letter == "p" else ()),
        ),
        layer_norm=False,
        alias=not _base,
        x=_x.letter,
    )
