"""Wave-ViT: a wavelet transform, which loses nothing, makes the keys and values of attention fewer.

Paper: Yao et al., "Wave-ViT: Unifying Wavelet and Transformers for Visual Representation Learning", 2022,
arXiv:2207.04978
"""

import math
from collections.abc import Sequence
from typing import Unpack

import torch
import torch.nn.functional as F
from torch import Tensor, nn

from favor.zoo.encoder import Options
from favor.zoo.layers import DropPath, LayerNorm, Mlp
from favor.zoo.registry import ImageSizes, Variant, register
from favor.zoo.settings import FourPositive, Positive
from favor.zoo.stages import (
    ConvEmbedding,
    GridAttention,
    GridBatchNorm,
    GridConv,
    as_grid,
    drop_path_rates,
    init_linear_layers,
)
from favor.zoo.taxonomy import How


def haar(x: Tensor) -> Tensor:
    """The orthonormal Haar transform: [B, H, W, C] -> [B, H/2, W/2, 4 C], averages first, then the three details."""
    sums, differences = x[:, 0::2] + x[:, 1::2], x[:, 0::2] - x[:, 1::2]
    bands = [
        sums[:, :, 0::2] + sums[:, :, 1::2],
        differences[:, :, 0::2] + differences[:, :, 1::2],
        sums[:, :, 0::2] - sums[:, :, 1::2],
        differences[:, :, 0::2] - differences[:, :, 1::2],
    ]
    return torch.cat(bands, dim=-1) * 0.5


def inverse_haar(x: Tensor) -> Tensor:
    """[B, H, W, 4 C] -> [B, 2 H, 2 W, C]."""
    average, rows, columns, both = (x * 0.5).chunk(4, dim=-1)
    even, odd = average + rows, average - rows
    even_detail, odd_detail = columns + both, columns - both
    upper = torch.stack([even + even_detail, even - even_detail], dim=3)
    lower = torch.stack([odd + odd_detail, odd - odd_detail], dim=3)
    return torch.stack([upper, lower], dim=2).flatten(3, 4).flatten(1, 2)


class WaveletAttention(nn.Module):
    """All tokens attend to the filtered wavelet bands; the bands, transformed back, join them before the last layer."""

    def __init__(self, dim: int, heads: int, reduction: int) -> None:
        super().__init__()
        self.heads = heads
        self.q = nn.Linear(dim, dim)
        self.reduce = nn.Sequential(nn.Linear(dim, dim // 4), GridBatchNorm(dim // 4), nn.ReLU())
        self.filter = nn.Sequential(GridConv(dim, dim, 3, padding=1), GridBatchNorm(dim), nn.ReLU())
        self.shrink = GridConv(dim, dim, reduction, stride=reduction) if reduction > 1 else nn.Identity()
        self.kv = nn.Sequential(nn.LayerNorm(dim), nn.Linear(dim, 2 * dim))
        self.proj = nn.Linear(dim + dim // 4, dim)

    def forward(self, x: Tensor) -> Tensor:
        """[B, H, W, dim] -> [B, H, W, dim]."""
        bands = self.filter(haar(self.reduce(x)))
        q = self.q(x).flatten(1, 2).unflatten(-1, (self.heads, -1)).transpose(1, 2)
        k, v = self.kv(self.shrink(bands)).flatten(1, 2).unflatten(-1, (2, self.heads, -1)).permute(2, 0, 3, 1, 4)
        y = F.scaled_dot_product_attention(q, k, v).transpose(1, 2).reshape(x.shape)
        return self.proj(torch.cat([y, inverse_haar(bands)], dim=-1))


class ConvMlp(nn.Module):
    """An MLP with a depthwise convolution between its layers, which tells the tokens where they are."""

    def __init__(self, dim: int, hidden: int) -> None:
        super().__init__()
        self.fc1 = nn.Linear(dim, hidden)
        self.conv = GridConv(hidden, hidden, 3, padding=1, groups=hidden)
        self.act = nn.GELU()
        self.fc2 = nn.Linear(hidden, dim)

    def forward(self, x: Tensor) -> Tensor:
        return self.fc2(self.act(self.conv(self.fc1(x))))


class Block(nn.Module):
    """Attention, over wavelet bands or all tokens, and a convolutional MLP."""

    def __init__(self, dim: int, attention: nn.Module, mlp_ratio: int, drop_path: float) -> None:
        super().__init__()
        self.norm1 = LayerNorm(dim)
        self.attn = attention
        self.norm2 = LayerNorm(dim)
        self.mlp = ConvMlp(dim, mlp_ratio * dim)
        self.drop_path = DropPath(drop_path)

    def forward(self, x: Tensor) -> Tensor:
        x = x + self.drop_path(self.attn(self.norm1(x)))
        return x + self.drop_path(self.mlp(self.norm2(x)))


class ClassBlock(nn.Module):
    """One query, the mean of the tokens, asks them and itself: [B, N, dim] -> [B, dim]."""

    def __init__(self, dim: int, heads: int, mlp_ratio: int) -> None:
        super().__init__()
        self.heads = heads
        self.norm1 = LayerNorm(dim)
        self.q = nn.Linear(dim, dim)
        self.kv = nn.Linear(dim, 2 * dim)
        self.proj = nn.Linear(dim, dim)
        self.norm2 = LayerNorm(dim)
        self.mlp = Mlp(dim, mlp_ratio * dim)

    def forward(self, tokens: Tensor) -> Tensor:
        mean = tokens.mean(dim=1, keepdim=True)
        x = self.norm1(torch.cat([mean, tokens], dim=1))
        q = self.q(x[:, :1]).unflatten(-1, (self.heads, -1)).transpose(1, 2)
        k, v = self.kv(x).unflatten(-1, (2, self.heads, -1)).permute(2, 0, 3, 1, 4)
        y = mean + self.proj(F.scaled_dot_product_attention(q, k, v).transpose(1, 2).flatten(2))
        return (y + self.mlp(self.norm2(y))).squeeze(1)


def _stem(in_chans: int, hidden: int, dim: int) -> nn.Sequential:
    layers: list[nn.Module] = []
    for channels, kernel, stride in ((in_chans, 7, 2), (hidden, 3, 1), (hidden, 3, 1)):
        conv = GridConv(channels, hidden, kernel, stride=stride, padding=kernel // 2, bias=False)
        layers += [conv, GridBatchNorm(hidden), nn.ReLU()]
    return nn.Sequential(*layers, ConvEmbedding(hidden, dim, 3, 2, padding=1, norm=nn.LayerNorm))


class WaveViT(nn.Module):
    """Four stages: wavelet attention where it has a reduction, attention over all tokens where it has none."""

    def __init__(
        self,
        stem_dim: int,
        dims: Sequence[int],
        depths: Sequence[int],
        heads: Sequence[int],
        mlp_ratios: Sequence[int],
        reductions: Sequence[int | None],
        **options: Unpack[Options],
    ) -> None:
        super().__init__()
        stages: list[nn.Module] = []
        for i, rates in enumerate(drop_path_rates(options["drop_path"], depths)):
            dim, reduction = dims[i], reductions[i]
            if i == 0:
                stages.append(_stem(options["in_chans"], stem_dim, dim))
            else:
                embedding = ConvEmbedding(dims[i - 1], dim, 3, 2, padding=1, norm=nn.LayerNorm)
                stages += [LayerNorm(dims[i - 1]), embedding]
            for rate in rates:
                attention = (
                    GridAttention(dim, heads[i]) if reduction is None else WaveletAttention(dim, heads[i], reduction)
                )
                stages.append(Block(dim, attention, mlp_ratios[i], rate))
        self.stages = nn.Sequential(*stages)
        self.summary = ClassBlock(dims[-1], heads[-1], mlp_ratios[-1])
        self.norm = LayerNorm(dims[-1])
        self.head = nn.Linear(dims[-1], options["num_classes"])
        init_linear_layers(self)
        for module in self.modules():
            if isinstance(module, nn.Conv2d):
                fan_out = math.prod(module.kernel_size) * module.out_channels // module.groups
                nn.init.normal_(module.weight, std=math.sqrt(2.0 / fan_out))
                if module.bias is not None:
                    nn.init.zeros_(module.bias)
            elif isinstance(module, WaveletAttention):
                # The authors write this layer as a 1 x 1 convolution, and it starts as one.
                reduce = module.reduce.get_submodule("0")
                assert isinstance(reduce, nn.Linear)  # noqa: S101 - for the type checker
                nn.init.normal_(reduce.weight, std=math.sqrt(2.0 / reduce.out_features))

    def forward(self, images: Tensor) -> Tensor:
        return self.head(self.norm(self.summary(self.stages(as_grid(images)).flatten(1, 2))))


@register(
    [Variant("wavevit_s", aliases=("WaveViT-S", "Wave-ViT-S"))],
    title="Wave-ViT",
    how=How.SPARSE,
    year=2022,
    paper="2207.04978",
    complexity="O(N^2)",
    changes="In the first two of four stages, keys and values are the Haar wavelet bands of the tokens, convolved and "
    "shrunk to 1/8 and 1/4 of the grid's side; the inverse transform brings the details back.",
    image_sizes=ImageSizes(multiple_of=32, at_least=32),
    notes=(
        "Without token labeling and its second head, as in the benchmark.",
        "Norms have the authors' epsilons: 1e-5 after the embeddings and before keys and values, 1e-6 elsewhere.",
        "The reductions of keys and values start as the 1 x 1 convolutions that they are in the authors' code, with a "
        "standard deviation of sqrt(2 / outputs): 0.35 and 0.25 in the first two stages.",
        "The wavelet transform is implemented as additions; in the benchmark's implementation it is a convolution and "
        "counted as one.",
    ),
    miniature={
        "stem_dim": 8,
        "dims": (16, 24, 32, 32),
        "depths": (1, 1, 1, 1),
        "heads": (2, 2, 4, 4),
        "mlp_ratios": (2, 2, 2, 2),
    },
)
def wavevit(
    stem_dim: Positive = 32,
    dims: FourPositive = (64, 128, 320, 448),
    depths: FourPositive = (3, 4, 6, 3),
    heads: FourPositive = (2, 4, 10, 14),
    mlp_ratios: FourPositive = (8, 8, 4, 4),
    reductions: tuple[Positive | None, Positive | None, Positive | None, Positive | None] = (4, 2, None, None),
    **options: Unpack[Options],
) -> nn.Module:
    return WaveViT(stem_dim, dims, depths, heads, mlp_ratios, reductions, **options)
