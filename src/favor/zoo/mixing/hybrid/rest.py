"""ResT: attention over keys and values of a grid that a depthwise convolution has shrunk, with heads that interact.

Paper: Zhang and Yang, "ResT: An Efficient Transformer for Visual Recognition", 2021, arXiv:2105.13677
"""

from collections.abc import Sequence
from typing import Unpack

import torch
import torch.nn.functional as F
from torch import Tensor, nn

from favor.zoo.encoder import Options
from favor.zoo.layers import DropPath, Mlp
from favor.zoo.registry import ImageSizes, Variant, register
from favor.zoo.settings import FourPositive
from favor.zoo.stages import GridBatchNorm, GridConv, as_grid, drop_path_rates, init_linear_layers
from favor.zoo.taxonomy import How


class MixHeads(nn.Linear):
    """A 1 x 1 convolution across the heads of attention logits [B, heads, N, K]."""

    def forward(self, logits: Tensor) -> Tensor:
        rows = logits.flatten(2)
        return torch.baddbmm(self.bias[:, None], self.weight.expand(rows.shape[0], -1, -1), rows).view_as(logits)


class EfficientAttention(nn.Module):
    """EMSA: IN(softmax(conv(Q K^T))) V with keys and values of a grid shrunk by `reduction`.

    The convolution lets the heads interact; the instance norm gives each its diversity back. One head needs neither.
    """

    def __init__(self, dim: int, heads: int, reduction: int) -> None:
        super().__init__()
        self.heads = heads
        self.q = nn.Linear(dim, dim)
        self.kv = nn.Linear(dim, 2 * dim)
        self.proj = nn.Linear(dim, dim)
        self.shrink: nn.Module = nn.Identity()
        if reduction > 1:
            conv = GridConv(dim, dim, reduction + 1, stride=reduction, padding=reduction // 2, groups=dim)
            self.shrink = nn.Sequential(conv, nn.LayerNorm(dim))
        self.mix_heads = MixHeads(heads, heads) if heads > 1 else None

    def forward(self, x: Tensor) -> Tensor:
        """[B, H, W, dim] -> [B, H, W, dim]."""
        q = self.q(x).flatten(1, 2).unflatten(-1, (self.heads, -1)).transpose(1, 2)
        k, v = self.kv(self.shrink(x)).flatten(1, 2).unflatten(-1, (2, self.heads, -1)).permute(2, 0, 3, 1, 4)
        if self.mix_heads is None:
            y = F.scaled_dot_product_attention(q, k, v)
        else:
            weights = self.mix_heads(q * q.shape[-1] ** -0.5 @ k.transpose(-2, -1)).softmax(dim=-1)
            # a layer norm over the matrix of a head is the instance norm of that head
            y = F.layer_norm(weights, weights.shape[-2:]) @ v
        return self.proj(y.transpose(1, 2).flatten(2)).view_as(x)


class PixelAttention(nn.Module):
    """Positions for grids of any size: each token is weighed by a sigmoid of its surroundings."""

    def __init__(self, dim: int) -> None:
        super().__init__()
        self.conv = GridConv(dim, dim, 3, padding=1, groups=dim)

    def forward(self, x: Tensor) -> Tensor:
        return x * self.conv(x).sigmoid()


class Block(nn.Module):
    """ViT's block with EMSA, on a grid."""

    def __init__(self, dim: int, heads: int, reduction: int, drop_path: float) -> None:
        super().__init__()
        self.norm1 = nn.LayerNorm(dim)
        self.attn = EfficientAttention(dim, heads, reduction)
        self.norm2 = nn.LayerNorm(dim)
        self.mlp = Mlp(dim, 4 * dim)
        self.drop_path = DropPath(drop_path)

    def forward(self, x: Tensor) -> Tensor:
        x = x + self.drop_path(self.attn(self.norm1(x)))
        return x + self.drop_path(self.mlp(self.norm2(x)))


def _stem(in_chans: int, dim: int) -> nn.Sequential:
    half = dim // 2
    return nn.Sequential(
        GridConv(in_chans, half, 3, stride=2, padding=1, bias=False),
        GridBatchNorm(half),
        nn.ReLU(),
        GridConv(half, half, 3, padding=1, bias=False),
        GridBatchNorm(half),
        nn.ReLU(),
        GridConv(half, dim, 3, stride=2, padding=1, bias=False),
        PixelAttention(dim),
    )


def _shrink(in_chans: int, dim: int) -> nn.Sequential:
    conv = GridConv(in_chans, dim, 3, stride=2, padding=1)
    return nn.Sequential(conv, GridBatchNorm(dim), PixelAttention(dim))


class ResT(nn.Module):
    """Four stages on grids of a quarter to a thirty-second of the image's side."""

    def __init__(
        self,
        depths: Sequence[int],
        dims: Sequence[int],
        heads: Sequence[int],
        reductions: Sequence[int],
        **options: Unpack[Options],
    ) -> None:
        super().__init__()
        stages: list[nn.Module] = []
        for i, rates in enumerate(drop_path_rates(options["drop_path"], depths)):
            stages.append(_shrink(dims[i - 1], dims[i]) if i else _stem(options["in_chans"], dims[0]))
            stages.extend(Block(dims[i], heads[i], reductions[i], rate) for rate in rates)
        self.stages = nn.Sequential(*stages)
        self.norm = nn.LayerNorm(dims[-1])
        self.head = nn.Linear(dims[-1], options["num_classes"])
        init_linear_layers(self)
        for module in self.modules():
            if isinstance(module, nn.Conv2d):
                nn.init.trunc_normal_(module.weight, std=0.02)

    def forward(self, images: Tensor) -> Tensor:
        return self.head(self.norm(self.stages(as_grid(images))).mean(dim=(1, 2)))


@register(
    [
        Variant("rest_lite", {"depths": (2, 2, 2, 2)}, aliases=("ResT-Lite",)),
        Variant("rest_s", {"depths": (2, 2, 6, 2)}, aliases=("rest_small", "ResT-S")),
    ],
    title="ResT",
    how=How.HYBRID,
    year=2021,
    paper="2105.13677",
    complexity="O(N^2)",
    changes="A strided depthwise convolution shrinks the grid of keys and values by 8, 4, 2 and 1 per side in the four "
    "stages; a 1 x 1 convolution mixes the heads' logits; positions are the sigmoid of a depthwise convolution.",
    image_sizes=ImageSizes(multiple_of=1, at_least=32),
    notes=(
        "A stage of one head has neither head mixing nor instance norm, as in the authors' code.",
        "The head mixing has a bias, as in the authors' code. It has no effect, because a softmax ignores a constant "
        "added to all logits.",
    ),
    idle_parameters=("*.mix_heads.bias",),
    miniature={"depths": (1, 1, 1, 1), "dims": (16, 16, 32, 32), "heads": (1, 2, 2, 4)},
)
def rest(
    depths: FourPositive,
    dims: FourPositive = (64, 128, 256, 512),
    heads: FourPositive = (1, 2, 4, 8),
    reductions: FourPositive = (8, 4, 2, 1),
    **options: Unpack[Options],
) -> nn.Module:
    return ResT(depths, dims, heads, reductions, **options)
