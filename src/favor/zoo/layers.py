"""Parts that many architectures share: embeddings, positions, MLP, layer scale, drop path."""

import math
from contextlib import AbstractContextManager, nullcontext
from functools import partial

import torch
import torch.nn.functional as F
from torch import Tensor, nn

from favor.errors import RequestError
from favor.zoo.slots import Tokens

LayerNorm = partial(nn.LayerNorm, eps=1e-6)
"""ViT's norm; PyTorch's default of 1e-5 is not what ViT's weights were trained with."""


class PatchEmbed(nn.Module):
    """Linear embedding of square patches. With `pad`, the image is padded with zeros to whole patches."""

    def __init__(
        self, in_chans: int, dim: int, img_size: tuple[int, int], patch_size: int = 16, pad: bool = False
    ) -> None:
        super().__init__()
        height, width = img_size
        self.padding = (0, -width % patch_size, 0, -height % patch_size)
        if any(self.padding) and not pad:
            raise RequestError(f"an image of {height} x {width} px is not made of whole patches of {patch_size} px")
        self.grid = (math.ceil(height / patch_size), math.ceil(width / patch_size))
        self.proj = nn.Conv2d(in_chans, dim, patch_size, stride=patch_size)

    def forward(self, images: Tensor) -> Tensor:
        if any(self.padding):
            images = F.pad(images, self.padding)
        return self.proj(images).flatten(2).transpose(1, 2)


class ConvEmbed(nn.Module):
    """Three 3 x 3 convolutions in place of the linear embedding, as in the hybrid X-formers.

    `strides` shorten the grid: all ones keep one token per pixel.
    """

    def __init__(
        self, in_chans: int, dim: int, img_size: tuple[int, int], strides: tuple[int, int, int] = (1, 1, 1)
    ) -> None:
        super().__init__()
        widths = (in_chans, dim // 4, dim // 2, dim)
        self.grid = img_size
        for stride in strides:
            self.grid = (math.ceil(self.grid[0] / stride), math.ceil(self.grid[1] / stride))
        self.convs = nn.Sequential(
            *(nn.Conv2d(widths[i], widths[i + 1], 3, stride=strides[i], padding=1) for i in range(3))
        )

    def forward(self, images: Tensor) -> Tensor:
        return self.convs(images).flatten(2).transpose(1, 2)


class LearnedPositions(nn.Module):
    """A learned vector per patch, and for the class token where `class_position` is set."""

    def __init__(self, dim: int, tokens: Tokens, class_position: bool = False) -> None:
        super().__init__()
        self.tokens = tokens
        self.class_position = class_position and tokens.class_token
        self.weight = nn.Parameter(torch.empty(1, tokens.patches + self.class_position, dim))
        nn.init.trunc_normal_(self.weight, std=0.02)

    def forward(self, x: Tensor) -> Tensor:
        if self.tokens.class_token and not self.class_position:
            # one addition over the whole sequence costs less than taking the class token off and putting it back
            return x + F.pad(self.weight, (0, 0, 1, 0))
        return x + self.weight

    def resample(self, name: str, weight: Tensor) -> Tensor:
        """Bicubic interpolation of the patches' vectors; the class token's is kept."""
        first, patches = weight.split([int(self.class_position), weight.shape[1] - int(self.class_position)], dim=1)
        return torch.cat([first, resize_tokens(patches, self.tokens.grid)], dim=1)


class Rotary(nn.Module):
    """Rotary positions: queries and keys are turned by angles proportional to their place in the sequence.

    Paper: Su et al., "RoFormer: Enhanced Transformer with Rotary Position Embedding", 2021, arXiv:2104.09864
    """

    cos: Tensor
    sin: Tensor

    def __init__(self, head_dim: int, tokens: int, base: float = 10_000.0) -> None:
        super().__init__()
        if head_dim % 2:
            raise RequestError(
                f"rotary positions turn pairs of channels, so {head_dim} channels a head are one too many"
            )
        frequencies = base ** (-torch.arange(0, head_dim, 2, dtype=torch.float32) / head_dim)
        angles = torch.outer(torch.arange(tokens, dtype=torch.float32), frequencies).repeat_interleave(2, dim=-1)
        self.register_buffer("cos", angles.cos(), persistent=False)
        self.register_buffer("sin", angles.sin(), persistent=False)

    def forward(self, x: Tensor) -> Tensor:
        even, odd = x.unflatten(-1, (-1, 2)).unbind(-1)
        turned = torch.stack([-odd, even], dim=-1).flatten(-2)
        return x * self.cos.to(x.dtype) + turned * self.sin.to(x.dtype)


class Mlp(nn.Module):
    """Two linear layers with GELU between them."""

    def __init__(self, dim: int, hidden: int) -> None:
        super().__init__()
        self.fc1 = nn.Linear(dim, hidden)
        self.act = nn.GELU()
        self.fc2 = nn.Linear(hidden, dim)

    def forward(self, x: Tensor) -> Tensor:
        return self.fc2(self.act(self.fc1(x)))


class LayerScale(nn.Module):
    """A learned factor per channel on a residual branch (CaiT, DeiT III)."""

    def __init__(self, dim: int, init: float) -> None:
        super().__init__()
        self.gamma = nn.Parameter(torch.full((dim,), init))

    def forward(self, x: Tensor) -> Tensor:
        return x * self.gamma


class DropPath(nn.Module):
    """Stochastic depth: in training, a residual branch is dropped for a share `rate` of the images."""

    def __init__(self, rate: float) -> None:
        super().__init__()
        self.rate = rate

    def forward(self, x: Tensor) -> Tensor:
        if not self.training or self.rate == 0.0:
            return x
        keep = 1.0 - self.rate
        mask = x.new_empty((x.shape[0],) + (1,) * (x.ndim - 1)).bernoulli_(keep)
        return x * mask.div_(keep)


def check_image_size(images: Tensor, img_size: tuple[int, int]) -> None:
    """Refuse images [B, C, H, W] of another size than the model's."""
    if images.shape[-2:] != img_size:
        height, width = images.shape[-2:]
        built = f"{img_size[0]} x {img_size[1]}"
        raise RequestError(f"the model is built for images of {built} px, not {height} x {width}")


def source_grid(count: int, like: tuple[int, int]) -> tuple[int, int]:
    """The grid of `count` tokens with the aspect ratio of another grid.

    >>> source_grid(196, like=(24, 24))
    (14, 14)
    """
    height = _grid_height(count, like)
    if not is_grid(count, like):
        raise RequestError(f"{count} tokens do not form a grid of the aspect ratio of {like[0]} x {like[1]}")
    return height, count // height


def is_grid(count: int, like: tuple[int, int]) -> bool:
    """Whether so many tokens form a grid of the aspect ratio of another.

    >>> is_grid(196, like=(24, 24)), is_grid(197, like=(24, 24))
    (True, False)
    """
    height = _grid_height(count, like)
    return height > 0 and count % height == 0 and (count // height) * like[0] == height * like[1]


def _grid_height(count: int, like: tuple[int, int]) -> int:
    return round(math.sqrt(count * like[0] / like[1]))


def resize_tokens(values: Tensor, grid: tuple[int, int]) -> Tensor:
    """Interpolate [B, N, C] values on a token grid to another grid (bicubic, antialiased)."""
    old = source_grid(values.shape[1], grid)
    image = values.float().transpose(1, 2).unflatten(2, old)
    resized = F.interpolate(image, size=grid, mode="bicubic", antialias=True, align_corners=False)
    return resized.flatten(2).transpose(1, 2).to(values.dtype)


def resize_patches(values: Tensor, tokens: Tokens, keep_sums: bool = False) -> Tensor:
    """`resize_tokens` for [B, N, C] values whose class token, if `tokens` has one, keeps its own.

    With `keep_sums` the values are weights of a sum over the patches, and scaled such that it keeps its size.
    """
    first = int(tokens.class_token)
    patches = resize_tokens(values[:, first:], tokens.grid)
    if keep_sums:
        patches = patches * ((values.shape[1] - first) / tokens.patches)
    return torch.cat([values[:, :first], patches], dim=1)


def take_with_class_token(x: Tensor, index: Tensor) -> Tensor:
    """The class token and the patches at `index` [B, K], counted without it: [B, N, C] -> [B, 1 + K, C]."""
    return take_tokens(x, F.pad(index + 1, (1, 0)))


def stable_argsort(keys: Tensor) -> Tensor:
    """The order of integers along the last axis, equal ones as they come. ONNX has no stable sort, but unique keys."""
    if torch.compiler.is_exporting():
        length = keys.shape[-1]
        return (keys * length + torch.arange(length, device=keys.device)).argsort(dim=-1)
    return keys.argsort(dim=-1, stable=True)


def take_tokens(x: Tensor, index: Tensor) -> Tensor:
    """The tokens at `index` [B, K] of each image: [B, N, C] -> [B, K, C]."""
    B, N, C = x.shape
    rows = index + N * torch.arange(B, device=x.device)[:, None]
    return F.embedding(rows, x.reshape(B * N, C))  # copies whole rows: 8 times as fast as `gather` on a CPU


def full_precision(x: Tensor) -> AbstractContextManager[object]:
    """A context without autocast: sums over all tokens overflow float16, and their quotients are coarse in bfloat16."""
    return nullcontext() if x.is_meta else torch.autocast(x.device.type, enabled=False)


def widened(x: Tensor) -> Tensor:
    """At least float32."""
    return x if x.dtype is torch.float64 else x.float()
