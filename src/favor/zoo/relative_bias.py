"""A learned bias on the attention weights, per head and relative position, as in Swin.

Paper: Liu et al., "Swin Transformer: Hierarchical Vision Transformer using Shifted Windows", 2021, arXiv:2103.14030
"""

import math

import torch
import torch.nn.functional as F
from torch import Tensor, nn

from favor.errors import RequestError


class RelativeBias(nn.Module):
    """[1, heads, N, N] for the N tokens of a grid: one learned number per head and offset of key from query."""

    index: Tensor

    def __init__(self, grid: tuple[int, int], heads: int) -> None:
        super().__init__()
        self.grid = grid
        height, width = grid
        self.table = nn.Parameter(torch.empty((2 * height - 1) * (2 * width - 1), heads))
        nn.init.trunc_normal_(self.table, std=0.02)
        rows = torch.arange(height).repeat_interleave(width)
        columns = torch.arange(width).repeat(height)
        down = rows[:, None] - rows + height - 1
        right = columns[:, None] - columns + width - 1
        self.register_buffer("index", (down * (2 * width - 1) + right).flatten(), persistent=False)

    def forward(self) -> Tensor:
        tokens = self.grid[0] * self.grid[1]
        return self.table.T.index_select(1, self.index).view(1, -1, tokens, tokens)

    def resample(self, name: str, weight: Tensor) -> Tensor:
        """Bicubic interpolation of the table, seen as an image of offsets."""
        old = _source_grid(weight.shape[0], self.grid)
        image = weight.float().T.reshape(1, -1, 2 * old[0] - 1, 2 * old[1] - 1)
        size = (2 * self.grid[0] - 1, 2 * self.grid[1] - 1)
        resized = F.interpolate(image, size=size, mode="bicubic", align_corners=True)
        return resized.flatten(2)[0].T.to(weight.dtype).contiguous()


def _source_grid(offsets: int, like: tuple[int, int]) -> tuple[int, int]:
    """The grid with so many offsets and the aspect ratio of another grid.

    >>> _source_grid(27 * 27, like=(24, 24))
    (14, 14)
    """
    divisor = math.gcd(*like)
    height, width = like[0] // divisor, like[1] // divisor
    for scale in range(1, offsets + 1):
        count = (2 * scale * height - 1) * (2 * scale * width - 1)
        if count == offsets:
            return scale * height, scale * width
        if count > offsets:
            break
    raise RequestError(f"{offsets} offsets are not those of a grid of the aspect ratio of {like[0]} x {like[1]}")
