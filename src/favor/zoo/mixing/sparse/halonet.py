"""HaloNet: a residual network in which blocks of pixels attend to themselves and to a halo around them.

Paper: Vaswani et al., "Scaling Local Self-Attention for Parameter Efficient Visual Backbones", 2021, arXiv:2103.12731
"""

import math
from collections.abc import Sequence

import torch
import torch.nn.functional as F
from torch import Tensor, nn

from favor.errors import RequestError
from favor.zoo.layers import DropPath
from favor.zoo.registry import ImageSizes, Variant, register
from favor.zoo.settings import FourPositive, Positive
from favor.zoo.taxonomy import How

BLOCK, HALO = 8, 3
HEADS = (4, 8, 8, 8)


class HaloAttention(nn.Module):
    """Blocked local attention with relative positions; every pixel of a block sees the block and its halo: O(N).

    With a stride, only every other pixel asks, which shortens the grid as a strided convolution does.
    """

    offsets: Tensor

    def __init__(self, dim: int, heads: int, stride: int = 1, block: int = BLOCK, halo: int = HALO) -> None:
        super().__init__()
        if dim % heads:
            raise RequestError(f"{dim} channels cannot be split into {heads} heads of equal size")
        if block % stride:
            raise RequestError(f"the stride must divide the block: {stride} does not divide {block}")
        self.heads = heads
        self.head_dim = dim // heads
        self.scale = self.head_dim**-0.5
        self.stride, self.block, self.halo = stride, block, halo
        self.window = block + 2 * halo
        self.q = nn.Conv2d(dim, dim, 1, bias=False)
        self.kv = nn.Conv2d(dim, 2 * dim, 1, bias=False)
        self.relative_rows = nn.Parameter(torch.empty(self.window + block - 1, self.head_dim))
        self.relative_columns = nn.Parameter(torch.empty(self.window + block - 1, self.head_dim))
        for table in (self.relative_rows, self.relative_columns):
            nn.init.trunc_normal_(table, std=self.scale)
        # the distance of a key from a query, both counted along one side of the window
        offsets = torch.arange(self.window) - torch.arange(0, block, stride)[:, None] + block - 1
        self.register_buffer("offsets", offsets, persistent=False)

    def forward(self, x: Tensor) -> Tensor:
        B, C, height, width = x.shape
        rows, columns = math.ceil(height / self.block), math.ceil(width / self.block)
        fill = (0, columns * self.block - width, 0, rows * self.block - height)
        queries = self.q(F.pad(x, fill)[:, :, :: self.stride, :: self.stride])
        side = self.block // self.stride
        q = queries.view(B, self.heads, self.head_dim, rows, side, columns, side).permute(0, 3, 5, 1, 4, 6, 2)
        q = q.reshape(-1, self.heads, side, side, self.head_dim)
        k, v = self._windows(self.kv(x), fill)
        y = F.scaled_dot_product_attention(q.flatten(2, 3), k, v, attn_mask=self._bias(q, (height, width), fill))
        y = y.view(B, rows, columns, self.heads, side, side, self.head_dim).permute(0, 3, 6, 1, 4, 2, 5)
        y = y.reshape(B, C, rows * side, columns * side)
        return y[:, :, : math.ceil(height / self.stride), : math.ceil(width / self.stride)]

    def _windows(self, kv: Tensor, fill: tuple[int, int, int, int]) -> tuple[Tensor, Tensor]:
        """Keys and values of every block and its halo: [B * blocks, heads, window^2, head_dim] each."""
        padded = F.pad(kv, [side + self.halo for side in fill])
        windows = padded.unfold(2, self.window, self.block).unfold(3, self.window, self.block)
        windows = windows.unflatten(1, (2, self.heads, self.head_dim)).permute(1, 0, 4, 5, 2, 6, 7, 3)
        k, v = windows.reshape(2, -1, self.heads, self.window**2, self.head_dim).unbind(0)
        return k, v

    def _bias(self, q: Tensor, size: tuple[int, int], fill: tuple[int, int, int, int]) -> Tensor:
        """Logits of the relative positions, and minus infinity for keys outside of the image.

        A key is inside when its row and its column are, so each side is masked on its own.
        """
        by_row = torch.einsum("nhyxd,ykd->nhyxk", q, self.relative_rows.to(q.dtype)[self.offsets]) * self.scale
        by_column = torch.einsum("nhyxd,xkd->nhyxk", q, self.relative_columns.to(q.dtype)[self.offsets]) * self.scale
        row_inside, column_inside = (
            F.pad(q.new_ones(side), (self.halo, self.halo + end)).unfold(0, self.window, self.block) > 0
            for side, end in zip(size, (fill[3], fill[1]), strict=True)
        )
        blocks = (-1, row_inside.shape[0], column_inside.shape[0])
        by_row = by_row.unflatten(0, blocks).masked_fill(~row_inside[:, None, None, None, None], -torch.inf)
        by_column = by_column.unflatten(0, blocks).masked_fill(~column_inside[:, None, None, None], -torch.inf)
        bias = by_row.unsqueeze(-1) + by_column.unsqueeze(-2)
        return bias.view(*q.shape[:2], q.shape[2] * q.shape[3], self.window**2)


class HaloBlock(nn.Module):
    """ResNet's bottleneck with attention in the middle."""

    def __init__(self, in_dim: int, dim: int, out_dim: int, heads: int, stride: int, drop_path: float) -> None:
        super().__init__()
        self.reduce = _conv_norm(in_dim, dim)
        self.attention = HaloAttention(dim, heads, stride)
        self.attention_norm = nn.BatchNorm2d(dim)
        self.expand = _conv_norm(dim, out_dim)
        self.drop_path = DropPath(drop_path)
        changes_shape = stride > 1 or in_dim != out_dim
        self.shortcut = _conv_norm(in_dim, out_dim, stride) if changes_shape else nn.Identity()

    def forward(self, x: Tensor) -> Tensor:
        y = F.relu(self.reduce(x))
        y = F.relu(self.attention_norm(self.attention(y)))
        return F.relu(self.shortcut(x) + self.drop_path(self.expand(y)))


def _conv_norm(in_dim: int, out_dim: int, stride: int = 1) -> nn.Sequential:
    return nn.Sequential(nn.Conv2d(in_dim, out_dim, 1, stride=stride, bias=False), nn.BatchNorm2d(out_dim))


class HaloNet(nn.Module):
    """A stem of ResNet, four stages of halo blocks, the mean over all pixels, and the head."""

    def __init__(
        self, width: int, expansion: float, depths: Sequence[int], num_classes: int, in_chans: int, drop_path: float
    ) -> None:
        super().__init__()
        if int(width * expansion) < 1:
            raise RequestError(f"an expansion of {width} channels by {expansion} leaves none; 0.5 would do")
        self.stem = nn.Sequential(
            nn.Conv2d(in_chans, width, 7, stride=2, padding=3, bias=False),
            nn.BatchNorm2d(width),
            nn.ReLU(),
            nn.MaxPool2d(3, stride=2, padding=1),
        )
        rates = iter(torch.linspace(0, drop_path, sum(depths), device="cpu").tolist())
        blocks: list[nn.Module] = []
        in_dim = width
        for stage, (depth, heads) in enumerate(zip(depths, HEADS, strict=True)):
            dim = width * 2**stage
            out_dim = int(dim * expansion)
            for index in range(depth):
                stride = 2 if stage > 0 and index == 0 else 1
                blocks.append(HaloBlock(in_dim, dim, out_dim, heads, stride, next(rates)))
                in_dim = out_dim
        self.blocks = nn.Sequential(*blocks)
        self.head = nn.Linear(in_dim, num_classes)
        self._init_weights()

    def forward(self, images: Tensor) -> Tensor:
        return self.head(self.blocks(self.stem(images)).mean(dim=(2, 3)))

    def _init_weights(self) -> None:
        for module in self.modules():
            if isinstance(module, nn.Conv2d):
                nn.init.kaiming_normal_(module.weight, mode="fan_out", nonlinearity="relu")
        for module in self.modules():
            if isinstance(module, HaloAttention):
                for projection in (module.q, module.kv):
                    nn.init.trunc_normal_(projection.weight, std=projection.in_channels**-0.5)
        nn.init.trunc_normal_(self.head.weight, std=0.02)
        nn.init.zeros_(self.head.bias)


@register(
    [
        Variant(
            "halonet_h0",
            {"expansion": 0.5, "depths": (3, 3, 7, 3)},
            aliases=("HaloNet-H0",),
            notes=(
                "5,496,104 parameters; the benchmark's own implementation, without norms and residuals, has 6,764,744.",
            ),
        ),
        Variant(
            "halonet_h1",
            {"expansion": 1.0, "depths": (3, 3, 10, 3)},
            aliases=("HaloNet-H1",),
            notes=(
                "8,094,056 parameters; the benchmark's own implementation, without norms and residuals, has 9,430,696.",
            ),
        ),
    ],
    title="HaloNet",
    how=How.SPARSE,
    year=2021,
    paper="2103.12731",
    complexity="O(N)",
    changes="A ResNet with attention of 8 x 8 pixels to their 14 x 14 neighborhood in place of convolutions; strided "
    "queries shorten the grid.",
    image_sizes=ImageSizes(multiple_of=32, at_least=32),
    notes=(
        "Grids that are not made of whole blocks, such as 14 x 14 and 7 x 7 at 224 px, are padded. Padding and what "
        "lies outside of the image are masked, where the paper pads with zeros.",
        "Batch norm, ReLU and residuals as in ResNet; 4, 8, 8, 8 heads. Relative positions are by row and by column, "
        "shared by the heads and scaled as the other logits are.",
    ),
    miniature={"width": 16, "depths": (1, 1, 1, 1)},
)
def halonet(
    expansion: float,
    depths: FourPositive,
    width: Positive = 64,
    *,
    num_classes: int,
    img_size: tuple[int, int],
    in_chans: int,
    drop_path: float,
) -> nn.Module:
    return HaloNet(width, expansion, depths, num_classes, in_chans, drop_path)
