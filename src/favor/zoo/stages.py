"""Parts of the networks in stages, whose tokens stay a grid with the channels last: [B, H, W, dim].

In that layout linear layers and norms work on the tokens as they lie in memory, and a convolution sees them as an image
in PyTorch's channels-last format, so that nothing is copied between the two.
"""

from collections.abc import Iterator, Sequence

import torch
import torch.nn.functional as F
from torch import Tensor, nn

from favor.zoo.layers import LayerNorm
from favor.zoo.slots import NormFactory


class GridConv(nn.Conv2d):
    """A convolution of a token grid: [B, H, W, in] -> [B, H', W', out]."""

    def forward(self, x: Tensor) -> Tensor:
        return super().forward(x.permute(0, 3, 1, 2)).permute(0, 2, 3, 1)


class GridBatchNorm(nn.BatchNorm2d):
    """A batch norm of a token grid, per channel."""

    def forward(self, x: Tensor) -> Tensor:
        return super().forward(x.permute(0, 3, 1, 2)).permute(0, 2, 3, 1)


class ConvEmbedding(nn.Module):
    """A convolution that shrinks the grid, and a norm. Patches larger than the stride overlap."""

    def __init__(
        self, in_chans: int, dim: int, kernel: int, stride: int, padding: int = 0, norm: NormFactory = LayerNorm
    ) -> None:
        super().__init__()
        self.proj = GridConv(in_chans, dim, kernel, stride=stride, padding=padding)
        self.norm = norm(dim)

    def forward(self, x: Tensor) -> Tensor:
        return self.norm(self.proj(x))


class PatchMerging(nn.Module):
    """Four neighbors become one token of twice the width, as in Swin.

    Paper: Liu et al., "Swin Transformer: Hierarchical Vision Transformer using Shifted Windows", 2021, arXiv:2103.14030
    """

    def __init__(self, dim: int) -> None:
        super().__init__()
        self.norm = LayerNorm(4 * dim)
        self.reduction = nn.Linear(4 * dim, 2 * dim, bias=False)

    def forward(self, x: Tensor) -> Tensor:
        quarters = [x[:, row::2, column::2] for column in (0, 1) for row in (0, 1)]
        return self.reduction(self.norm(torch.cat(quarters, dim=-1)))


class GridAttention(nn.Module):
    """Softmax attention over all tokens of a grid."""

    def __init__(self, dim: int, heads: int, head_dim: int | None = None, qkv_bias: bool = True) -> None:
        super().__init__()
        self.heads = heads
        inner = heads * (head_dim or dim // heads)
        self.qkv = nn.Linear(dim, 3 * inner, bias=qkv_bias)
        self.proj = nn.Linear(inner, dim)

    def forward(self, x: Tensor) -> Tensor:
        q, k, v = self.qkv(x).flatten(1, 2).unflatten(-1, (3, self.heads, -1)).permute(2, 0, 3, 1, 4)
        return self.proj(F.scaled_dot_product_attention(q, k, v).transpose(1, 2).flatten(2)).view_as(x)


def as_grid(images: Tensor) -> Tensor:
    """[B, channels, H, W] -> [B, H, W, channels], laid out so in memory."""
    return images.permute(0, 2, 3, 1).contiguous()


def drop_path_rates(last: float, depths: Sequence[int]) -> Iterator[list[float]]:
    """Per stage the rates of its blocks, which grow linearly from 0 at the first block of all to `last`.

    >>> list(drop_path_rates(0.2, [1, 2]))
    [[0.0], [0.1, 0.2]]
    """
    total, done = sum(depths), 0
    for depth in depths:
        yield [last * (done + index) / max(total - 1, 1) for index in range(depth)]
        done += depth


def window_size(side: int) -> int:
    """The smallest window of 7 or more that tiles the last stage, and so all of them; the whole side if there is none.

    >>> [window_size(pixels // 32) for pixels in (224, 384, 448, 64)]
    [7, 12, 7, 2]
    """
    return next((window for window in range(7, side) if side % window == 0), side)


def init_linear_layers(model: nn.Module) -> None:
    """ViT's initial values of all linear layers."""
    for module in model.modules():
        if isinstance(module, nn.Linear):
            nn.init.trunc_normal_(module.weight, std=0.02)
            if module.bias is not None:
                nn.init.zeros_(module.bias)
