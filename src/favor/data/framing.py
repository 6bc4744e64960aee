"""Cropping: how an image of any size becomes a square of the model's image size.

Training: the shorter side is resized, then a random square is cropped ("simple random crop" of DeiT III: borders
padded by reflection first). Evaluation: the shorter side is resized, then the center is cropped; some of timm's weights
need the image squashed to a square, or with a border.
"""

from dataclasses import dataclass
from typing import Literal

import numpy as np
import torch
from numpy.typing import NDArray
from torch import Tensor
from torch.nn import functional as F

from favor.data.draws import Draw, uniform
from favor.errors import RequestError

Interpolation = Literal["bicubic", "bilinear"]
CropMode = Literal["center", "squash", "border"]
Color = tuple[int, int, int]
_LONGEST_SIDE = 2**16  # pixels; a file may name any side and crop ratio


@dataclass(frozen=True)
class Framing:
    """The crop: its side, the padding in training, and the center crop's share of the side in evaluation.

    `mode` says what is resized before the center is cropped, in evaluation: the shorter side ("center"), both sides to
    the same length ("squash"), or the longer side ("border", in the color `fill`, up to a square).
    """

    img_size: int
    padding: int = 0
    crop_ratio: float = 1.0
    interpolation: Interpolation = "bicubic"
    mode: CropMode = "center"
    fill: Color | None = None

    def __post_init__(self) -> None:
        if self.img_size < 1 or self.padding < 0 or not 0.0 < self.crop_ratio <= 1.0:
            raise RequestError(f"{self} is not valid: the side must be 1 or more, the crop ratio in (0, 1]")
        if self.img_size > _LONGEST_SIDE * self.crop_ratio:
            raise RequestError(f"{self} is not valid: images would be resized to more than {_LONGEST_SIDE:,} pixels")
        if self.mode == "border" and self.fill is None:
            raise RequestError(f"{self} is not valid: a border needs a color (`fill`)")

    @property
    def evaluation_side(self) -> int:
        """The length that the shorter side is resized to, in evaluation; squashed or bordered, the longer side.

        >>> Framing(224, crop_ratio=0.875).evaluation_side
        256
        """
        return round(self.img_size / self.crop_ratio)


@dataclass(frozen=True)
class Cut:
    """The crops of a batch: one position per image, as shares of the possible range.

    `may_reduce` allows decoding JPEGs at a reduced scale, where that leaves more pixels than the crop needs.
    """

    side: int
    img_size: int
    padding: int
    top: NDArray[np.float64]
    left: NDArray[np.float64]
    interpolation: Interpolation = "bicubic"
    may_reduce: bool = False
    mode: CropMode = "center"
    fill: Color | None = None

    def shape_of(self, height: int, width: int) -> tuple[int, int]:
        """The shape that an image is resized to before the crop.

        >>> cut = center_cut(Framing(50, mode="border", fill=(0, 0, 0)), 1)
        >>> cut.shape_of(100, 200)
        (25, 50)
        """
        if self.mode == "squash":
            return self.side, self.side
        if self.mode == "border":
            scale = max(height, width) / self.side
            return max(1, round(height / scale)), max(1, round(width / scale))
        return resized_shape(height, width, self.side)


def random_cut(framing: Framing, seed: int, epoch: int, samples: NDArray[np.int64]) -> Cut:
    """The random crops of training, drawn per sample."""
    top = uniform(seed, epoch, samples, Draw.CROP_TOP)
    left = uniform(seed, epoch, samples, Draw.CROP_LEFT)
    return Cut(framing.img_size, framing.img_size, framing.padding, top, left, framing.interpolation, may_reduce=True)


def center_cut(framing: Framing, count: int) -> Cut:
    """The center crops of evaluation, from whole images, so that accuracies compare with published ones."""
    center, sides = np.full(count, 0.5), (framing.evaluation_side, framing.img_size)
    return Cut(*sides, 0, center, center, framing.interpolation, mode=framing.mode, fill=framing.fill)


def resized_shape(height: int, width: int, side: int) -> tuple[int, int]:
    """The shape with the given shorter side and the same aspect ratio.

    >>> resized_shape(100, 200, 50)
    (50, 100)
    """
    shorter = min(height, width)
    return max(side, round(height * side / shorter)), max(side, round(width * side / shorter))


def start(share: NDArray[np.float64], length: int, cut: Cut) -> NDArray[np.int64]:
    """Where the crop starts along a side of that length; negative is in the padding.

    >>> start(np.array([0.0, 0.5, 0.99]), 32, Cut(32, 32, 4, np.zeros(3), np.zeros(3))).tolist()
    [-4, 0, 4]
    """
    room = length + 2 * cut.padding - cut.img_size
    return np.floor(share * (room + 1)).astype(np.int64) - cut.padding


def reflected(position: NDArray[np.int64], length: int) -> NDArray[np.int64]:
    """Positions outside of an image reflected at its borders, without repeating the border.

    >>> reflected(np.array([-2, -1, 0, 3, 4, 5]), 4).tolist()
    [2, 1, 0, 3, 2, 1]
    """
    if length == 1:
        return np.zeros_like(position)
    period = 2 * (length - 1)
    folded = np.abs(position) % period
    return np.where(folded < length, folded, period - folded)


def cut_batch(images: Tensor, cut: Cut) -> Tensor:
    """The crops of a batch of uint8 images of one size (B, 3, H, W)."""
    count, _, height, width = images.shape
    shape = cut.shape_of(height, width)
    if shape != (height, width):
        images = resized(images, shape, cut.interpolation)
    images = bordered(images, cut)
    shape = (images.shape[2], images.shape[3])
    along = np.arange(cut.img_size)
    rows = reflected(start(cut.top, shape[0], cut)[:, None] + along, shape[0])
    columns = reflected(start(cut.left, shape[1], cut)[:, None] + along, shape[1])
    if shape == (cut.img_size, cut.img_size) and cut.padding == 0:
        return images
    which = torch.arange(count, device=images.device)[:, None]
    # Rows first, then columns: whole rows are copied at once, which is faster than pixel by pixel.
    images = images.transpose(1, 2)[which, torch.from_numpy(rows).to(images.device)]
    index = torch.from_numpy(columns).to(images.device)[:, None, None, :].expand(-1, cut.img_size, 3, -1)
    return images.gather(3, index).transpose(1, 2).contiguous()


def bordered(images: Tensor, cut: Cut) -> Tensor:
    """Images (B, 3, H, W) centered in a border, if the cut has one and they are smaller than the crop."""
    count, _, height, width = images.shape
    if cut.fill is None or min(height, width) >= cut.img_size:
        return images
    shape = max(height, cut.img_size), max(width, cut.img_size)
    squares = torch.tensor(cut.fill, dtype=torch.uint8, device=images.device)[:, None, None].repeat(count, 1, *shape)
    top, left = (shape[0] - height) // 2, (shape[1] - width) // 2
    squares[:, :, top : top + height, left : left + width] = images
    return squares


def resized(images: Tensor, shape: tuple[int, int], interpolation: Interpolation = "bicubic") -> Tensor:
    """Resize uint8 images (B, 3, H, W), antialiased when shrinking, as PIL does."""
    values = F.interpolate(images.float(), shape, mode=interpolation, antialias=True)
    return values.round_().clamp_(0, 255).to(torch.uint8)
