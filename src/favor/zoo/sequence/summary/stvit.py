"""STViT: a few semantic tokens, pooled in windows, stand for all tokens through most of Swin's third stage.

Paper: Chang et al., "Making Vision Transformers Efficient from A Token Sparsification View", 2023, arXiv:2303.08685,
in the form STViT-R, which recovers the image's tokens at the end of the stage.
"""

from collections.abc import Sequence
from typing import ClassVar, Unpack

import torch
import torch.nn.functional as F
from torch import Tensor, nn

from favor.errors import RequestError
from favor.zoo.attention import HeadMixer
from favor.zoo.encoder import Options
from favor.zoo.layers import DropPath, LayerNorm, LayerScale, Mlp, check_image_size, resize_tokens
from favor.zoo.registry import ImageSizes, Variant, register
from favor.zoo.relative_bias import RelativeBias
from favor.zoo.settings import FourPositive, Positive
from favor.zoo.slots import Tokens
from favor.zoo.stages import ConvEmbedding, PatchMerging, as_grid, drop_path_rates, init_linear_layers, window_size
from favor.zoo.taxonomy import How
from favor.zoo.training import tokens_and_places

Grid = tuple[int, int]
SEMANTIC_BLOCKS = 6
"""What the third stage is made of: see SemanticStage."""


def to_windows(x: Tensor, window: Grid) -> Tensor:
    """[B, H, W, C] -> [B * windows, tokens of a window, C]."""
    B, H, W, C = x.shape
    h, w = window
    return x.view(B, H // h, h, W // w, w, C).transpose(2, 3).reshape(-1, h * w, C)


def from_windows(x: Tensor, window: Grid, grid: Grid) -> Tensor:
    """[B * windows, tokens of a window, C] -> [B, H, W, C]."""
    (h, w), (H, W) = window, grid
    return x.view(-1, H // h, W // w, h, w, x.shape[-1]).transpose(2, 3).reshape(-1, H, W, x.shape[-1])


class WindowAttention(HeadMixer):
    """Swin's attention within windows, which are shifted by half a window where `shift` is set."""

    fixed_tokens: ClassVar[bool] = True
    apart: Tensor

    def __init__(self, dim: int, heads: int, grid: Grid, window: Grid, shift: bool) -> None:
        super().__init__(dim, heads, Tokens(*window, class_token=False))
        self.grid, self.window = grid, window
        # where one window covers a whole side, there is nothing to shift it against
        down, right = (window[i] // 2 if shift and grid[i] > window[i] else 0 for i in (0, 1))
        self.shift = (down, right)
        self.bias = RelativeBias(window, heads)
        if any(self.shift):
            self.register_buffer("apart", _apart(grid, window, self.shift), persistent=False)

    def forward(self, x: Tensor) -> Tensor:
        """[B, H, W, dim] -> [B, H, W, dim]."""
        if any(self.shift):
            x = x.roll((-self.shift[0], -self.shift[1]), dims=(1, 2))
        x = from_windows(super().forward(to_windows(x, self.window)), self.window, self.grid)
        return x.roll(self.shift, dims=(1, 2)) if any(self.shift) else x

    def mix(self, q: Tensor, k: Tensor, v: Tensor) -> Tensor:
        bias = self.bias().to(q.dtype)
        if any(self.shift):
            bias = bias.masked_fill(self.apart[:, None], float("-inf")).repeat(
                q.shape[0] // self.apart.shape[0], 1, 1, 1
            )
        return F.scaled_dot_product_attention(q, k, v, attn_mask=bias)


def _apart(grid: Grid, window: Grid, shift: Grid) -> Tensor:
    """[windows, N, N]: True for two tokens that only the shift around the border has brought into one window."""
    wrapped = [torch.arange(grid[i]) >= grid[i] - shift[i] for i in (0, 1)]
    region = 2 * wrapped[0][:, None].long() + wrapped[1].long()
    region = to_windows(region[None, :, :, None], window)[:, :, 0]
    return region[:, :, None] != region[:, None, :]


class CrossAttention(nn.Module):
    """Softmax attention of some tokens over others."""

    def __init__(self, dim: int, heads: int) -> None:
        super().__init__()
        self.heads = heads
        self.q = nn.Linear(dim, dim)
        self.kv = nn.Linear(dim, 2 * dim)
        self.proj = nn.Linear(dim, dim)

    def forward(self, x: Tensor, others: Tensor) -> Tensor:
        """[B, N, dim], [B, K, dim] -> [B, N, dim]."""
        return self.attend(x, self.kv(others))

    def attend(self, x: Tensor, kv: Tensor) -> Tensor:
        """Attention over keys and values that are there already: [B, K, 2 dim]."""
        q = self.q(x).unflatten(-1, (self.heads, -1)).transpose(1, 2)
        k, v = kv.unflatten(-1, (2, self.heads, -1)).permute(2, 0, 3, 1, 4)
        return self.proj(F.scaled_dot_product_attention(q, k, v).transpose(1, 2).flatten(2))


class _Branches(nn.Module):
    """What all blocks share: two norms, an MLP, drop path and mostly LayerScale on both branches."""

    def __init__(self, dim: int, drop_path: float, layer_scale: bool = True) -> None:
        super().__init__()
        self.norm1 = LayerNorm(dim)
        self.ls1 = LayerScale(dim, 1e-5) if layer_scale else nn.Identity()
        self.norm2 = LayerNorm(dim)
        self.mlp = Mlp(dim, 4 * dim)
        self.ls2 = LayerScale(dim, 1e-5) if layer_scale else nn.Identity()
        self.drop_path = DropPath(drop_path)

    def add_mlp(self, x: Tensor) -> Tensor:
        return x + self.drop_path(self.ls2(self.mlp(self.norm2(x))))


class SwinBlock(_Branches):
    """Window attention and MLP on a grid."""

    def __init__(
        self,
        dim: int,
        heads: int,
        grid: Grid,
        window: Grid,
        drop_path: float,
        shift: bool = False,
        layer_scale: bool = True,
    ) -> None:
        super().__init__(dim, drop_path, layer_scale)
        self.attn = WindowAttention(dim, heads, grid, window, shift)

    def forward(self, x: Tensor) -> Tensor:
        return self.add_mlp(x + self.drop_path(self.ls1(self.attn(self.norm1(x)))))


class CrossBlock(_Branches):
    """Attention of some tokens over others, and MLP."""

    def __init__(self, dim: int, heads: int, drop_path: float) -> None:
        super().__init__(dim, drop_path)
        self.attn = CrossAttention(dim, heads)

    def forward(self, x: Tensor, others: Tensor) -> Tensor:
        return self.add_mlp(x + self.drop_path(self.ls1(self.attn(self.norm1(x), self.norm1(others)))))


class PoolBlock(_Branches):
    """The first semantic tokens: what the maxima of a window's parts find in the window and a margin around it."""

    rows: Tensor
    columns: Tensor

    def __init__(self, dim: int, heads: int, grid: Grid, window: Grid, samples: int, drop_path: float) -> None:
        super().__init__(dim, drop_path)
        self.grid, self.window, self.samples = grid, window, samples
        self.attn = CrossAttention(dim, heads)
        self.register_buffer("rows", _with_margin(grid[0], window[0]), persistent=False)
        self.register_buffer("columns", _with_margin(grid[1], window[1]), persistent=False)

    def forward(self, x: Tensor) -> Tensor:
        """[B, H, W, dim] -> [B, semantic H, semantic W, dim]."""
        windowed = to_windows(x, self.window).unflatten(1, self.window).permute(0, 3, 1, 2)
        pool = maxima_of_parts if torch.compiler.is_exporting() else F.adaptive_max_pool2d
        pooled = pool(windowed, self.samples)
        pooled = self.norm1(pooled.flatten(2).transpose(1, 2))
        # norm and projection look at one token each: before the overlapping windows copy tokens, they cost half
        around = self.attn.kv(self.norm1(x))[:, self.rows[:, None, :, None], self.columns[None, :, None, :]]
        kv = torch.cat([self.attn.kv(pooled), around.flatten(3, 4).flatten(0, 2)], dim=1)
        y = self.ls1(self.attn.attend(pooled, kv))
        windows = (len(self.rows), len(self.columns))
        semantic_grid = (windows[0] * self.samples, windows[1] * self.samples)
        return self.add_mlp(from_windows(y, (self.samples, self.samples), semantic_grid))


def maxima_of_parts(x: Tensor, samples: int) -> Tensor:
    """`adaptive_max_pool2d` of operators that ONNX has: [..., H, W] -> [..., samples, samples].

    >>> maxima_of_parts(torch.arange(9.0).view(1, 3, 3), 2).tolist()
    [[[4.0, 5.0], [7.0, 8.0]]]
    """
    for axis in (-2, -1):
        side = x.shape[axis]
        # part i is from floor(i side / samples) to ceil((i + 1) side / samples); parts overlap where it does not divide
        parts = [(i * side // samples, -(-(i + 1) * side // samples)) for i in range(samples)]
        x = torch.stack([x.narrow(axis, first, end - first).amax(axis) for first, end in parts], dim=axis)
    return x


def _with_margin(side: int, window: int) -> Tensor:
    """[windows, window + margin]: per window its places and those around it, moved inwards at the border.

    >>> _with_margin(14, 7)[:, [0, -1]].tolist()
    [[0, 9], [4, 13]]
    """
    width = min(window + 3 * window // 7, side)
    starts = (torch.arange(side // window) * window - (width - window) // 2).clamp(0, side - width)
    return starts[:, None] + torch.arange(width)


class SemanticStage(nn.Module):
    """Swin block, semantic tokens from windows and from all tokens, two blocks on them alone, and the way back."""

    def __init__(
        self, dim: int, heads: int, grid: Grid, window: Grid, samples: int, drop_path: Sequence[float]
    ) -> None:
        super().__init__()
        self.samples = samples
        self.semantic_grid = (grid[0] // window[0] * samples, grid[1] // window[1] * samples)
        self.swin = SwinBlock(dim, heads, grid, window, drop_path[0], layer_scale=False)
        self.pool = PoolBlock(dim, heads, grid, window, samples, drop_path[1])
        self.centres = nn.Parameter(torch.empty(1, self.semantic_grid[0] * self.semantic_grid[1], dim))
        self.look_at_all = CrossBlock(dim, heads, drop_path[2])
        self.mix_within_windows = CrossBlock(dim, heads, drop_path[3])
        self.mix = CrossBlock(dim, heads, drop_path[4])
        self.recover = CrossBlock(dim, heads, drop_path[5])
        nn.init.trunc_normal_(self.centres, std=0.02)

    def forward(self, x: Tensor) -> Tensor:
        """[B, H, W, dim] -> [B, H, W, dim]."""
        x = self.swin(x)
        image = x.flatten(1, 2)
        semantic = self.pool(x).flatten(1, 2)
        semantic = self.look_at_all(semantic + self.centres, torch.cat([semantic, image], dim=1))
        window = (self.samples, self.samples)
        within = to_windows(semantic.unflatten(1, self.semantic_grid), window)
        semantic = from_windows(self.mix_within_windows(within, within), window, self.semantic_grid).flatten(1, 2)
        semantic = self.mix(semantic, semantic)
        return self.recover(image, semantic).view_as(x)

    def resample(self, name: str, weight: Tensor) -> Tensor:
        """Bicubic interpolation of the centres on the grid of semantic tokens."""
        return resize_tokens(weight, self.semantic_grid)


class STViT(nn.Module):
    """Swin in four stages, the third with semantic tokens."""

    def __init__(
        self,
        dim: int,
        depths: Sequence[int],
        heads: Sequence[int],
        samples: int,
        **options: Unpack[Options],
    ) -> None:
        super().__init__()
        self.img_size = height, width = options["img_size"]
        window = (window_size(height // 32), window_size(width // 32))
        if depths[2] != SEMANTIC_BLOCKS:
            raise RequestError(f"the third of STViT's depths is {SEMANTIC_BLOCKS}, one block a step, not {depths[2]}")
        if samples >= min(window):
            raise RequestError(
                f"{samples} x {samples} semantic tokens are not fewer than the {window[0]} x {window[1]} tokens of a "
                "window that they stand for; ask for fewer samples or a larger image"
            )
        stages: list[nn.Module] = [ConvEmbedding(options["in_chans"], dim, 4, 4)]
        for i, rates in enumerate(drop_path_rates(options["drop_path"], depths)):
            if i:
                stages.append(PatchMerging(dim))
                dim *= 2
            grid = (height // (4 << i), width // (4 << i))
            if i == 2:
                stages.append(SemanticStage(dim, heads[i], grid, window, samples, rates))
            else:
                stages.extend(
                    SwinBlock(dim, heads[i], grid, window, rate, shift=j % 2 == 1) for j, rate in enumerate(rates)
                )
        self.stages = nn.Sequential(*stages)
        self.norm = LayerNorm(dim)
        self.head = nn.Linear(dim, options["num_classes"])
        init_linear_layers(self)

    def forward(self, images: Tensor) -> Tensor:
        check_image_size(images, self.img_size)
        return self.head(self.norm(self.stages(as_grid(images))).mean(dim=(1, 2)))

    def no_weight_decay(self) -> set[str]:
        """The biases of relative positions, as in Swin."""
        return tokens_and_places(self)


@register(
    [Variant("stvit_swin_ti", aliases=("stvit_swin_tiny_p4_w7", "STViT-Swin-Ti-W-7/4", "STViT-Swin-Ti"))],
    title="STViT",
    how=How.SUMMARY,
    year=2023,
    paper="2303.08685",
    complexity="O(N^2)",
    changes="In the third stage of Swin, 3 x 3 semantic tokens per window are pooled, learn from their surroundings "
    "and from all tokens, and pass two blocks alone; attention brings what they learned back to the image's tokens.",
    image_sizes=ImageSizes(multiple_of=32, at_least=128),
    notes=(
        "Images have at least 128 px: in smaller ones a window has no more tokens than the 9 that would represent "
        "them.",
        "Windows are the smallest of 7 or more tokens per side that tile the last stage: 7 at 224 px, 12 at 384 px, as "
        "in Swin.",
        "Surroundings are wider than a window by 3/7 of it, 10 x 10 at 224 px, as in the authors' code.",
        "The pooled tokens have no residual around their first attention, as in the authors' code.",
        "Patches of 4 x 4 px and a LayerNorm embed the image, as in Swin and the benchmark: 4,896 parameters and 14.5 "
        "M multiply-adds. The authors' stem, two convolutions of 3 x 3 and stride 2 with batch norm and Hardswish, "
        "has 43,056 and 146 M.",
        "Semantic tokens have learned centers, 36 x 384 parameters at 224 px, as in the benchmark; in the authors' "
        "code that is the option `--use_global`, which is off by default.",
        "LayerScale starts at 1e-5 in all blocks but the Swin block of the third stage, as in the benchmark; the "
        "authors' Swin blocks have none by default.",
        "The epsilon of the norms is 1e-6, as in the benchmark; 1e-5 in the authors' code.",
        "Keys and values are projected once per token, before the overlapping windows are cut out of them: 3.41 G "
        "multiply-adds instead of the benchmark's 3.47 G, for the same outputs.",
    ),
    miniature={"dim": 16, "depths": (2, 1, 6, 1), "heads": (2, 2, 4, 4), "img_size": 128},
)
def stvit(
    dim: Positive = 96,
    depths: FourPositive = (2, 2, 6, 2),
    heads: FourPositive = (3, 6, 12, 24),
    samples: Positive = 3,
    **options: Unpack[Options],
) -> nn.Module:
    return STViT(dim, depths, heads, samples, **options)
