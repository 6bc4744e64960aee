"""Augmentations of whole batches as tensors, with random numbers per sample.

3-Augment (Touvron et al., "DeiT III", 2022, arXiv:2204.07118): one of grayscale, solarization and Gaussian blur, then
color jitter. torchvision's v2 transforms draw once per batch, from a generator that depends on the process;
here the same operations take one random number per sample; the tests compare them with torchvision's.
"""

from dataclasses import dataclass, field

import numpy as np
import torch
from numpy.typing import NDArray
from torch import Tensor
from torch.nn import functional as F

from favor.data.draws import Draw, uniform
from favor.errors import RequestError

IMAGENET_MEAN = (0.485, 0.456, 0.406)
IMAGENET_STD = (0.229, 0.224, 0.225)
_LUMA = (0.299, 0.587, 0.114)
_SOLARIZE_FROM = 128 / 255
_BLUR_SIGMAS = (0.2, 2.0)  # pixels, as in the benchmark's code
_JITTER_ORDERS = np.array([(0, 1, 2), (0, 2, 1), (1, 0, 2), (1, 2, 0), (2, 0, 1), (2, 1, 0)])
_BLUR_REACH = 10  # pixels, five of the largest sigma; a Gaussian has 6e-7 of its weight beyond
_BLUR_BLOCK = 32
_PIXELS_AT_ONCE = 8 * 224**2
"""Pixels augmented together on a CPU: with more, memory takes most of the time."""
_BRIGHTNESS, _CONTRAST, _SATURATION = range(3)


@dataclass(frozen=True)
class Augmentation:
    """The augmentation of training images, as probabilities; at most one of grey, solarize and blur per image."""

    flip: float = 0.0
    grey: float = 0.0
    solarize: float = 0.0
    blur: float = 0.0
    color_jitter: float = 0.0
    cutmix: float = 0.0

    def __post_init__(self) -> None:
        for name in ("flip", "grey", "solarize", "blur", "color_jitter", "cutmix"):
            if not 0.0 <= getattr(self, name) <= 1.0:
                raise RequestError(f"augmentation: {name} must be from 0 to 1, not {getattr(self, name)}")
        if self.grey + self.solarize + self.blur > 1.0 + 1e-9:
            raise RequestError("augmentation: the probabilities of grey, solarize and blur add up to more than 1")


@dataclass(frozen=True)
class Normalization:
    """The mean and standard deviation of each channel, for values from 0 to 1."""

    mean: tuple[float, float, float] = IMAGENET_MEAN
    std: tuple[float, float, float] = IMAGENET_STD

    def __call__(self, images: Tensor) -> Tensor:
        mean, std = (torch.tensor(v, device=images.device).view(3, 1, 1) for v in (self.mean, self.std))
        return (images - mean).div_(std)


@dataclass(frozen=True)
class Batch:
    """Preprocessed images and their mixed labels: `labels` with weight `share`, `other_labels` with the rest."""

    images: Tensor
    labels: Tensor
    samples: NDArray[np.int64]
    other_labels: Tensor
    share: Tensor

    def __len__(self) -> int:
        return len(self.labels)

    def targets(self, num_classes: int, smoothing: float = 0.0) -> Tensor:
        """The target distribution over classes, with label smoothing.

        >>> one = torch.tensor([1])
        >>> Batch(torch.zeros(1, 3, 2, 2), one, np.array([0]), one, torch.ones(1)).targets(4, 0.2).round(decimals=2)
        tensor([[0.0500, 0.8500, 0.0500, 0.0500]])
        """
        targets = torch.full((len(self), num_classes), smoothing / num_classes, device=self.labels.device)
        weight = (1.0 - smoothing) * self.share.to(targets.dtype)
        targets.scatter_add_(1, self.labels[:, None], weight[:, None])
        targets.scatter_add_(1, self.other_labels[:, None], (1.0 - smoothing - weight)[:, None])
        return targets


@dataclass(frozen=True)
class Key:
    """The seed, epoch and samples that the random numbers belong to."""

    seed: int
    epoch: int
    samples: NDArray[np.int64] = field(repr=False)

    def uniform(self, draw: Draw, low: float = 0.0, high: float = 1.0) -> NDArray[np.float64]:
        return low + (high - low) * uniform(self.seed, self.epoch, self.samples, draw)

    def of(self, part: slice) -> "Key":
        """The key of some of the samples."""
        return Key(self.seed, self.epoch, self.samples[part])


def augmented(
    squares: Tensor, labels: Tensor, key: Key, augmentation: Augmentation, normalization: Normalization
) -> Batch:
    """Augment a training batch of uint8 images (B, 3, S, S)."""
    images = torch.empty(squares.shape, device=squares.device)
    at_once = _PIXELS_AT_ONCE if squares.device.type == "cpu" else squares.numel()
    count = max(1, at_once // (squares.shape[-2] * squares.shape[-1]))
    for first in range(0, len(squares), count):
        part = slice(first, first + count)
        images[part] = _augmented_alone(squares[part], key.of(part), augmentation, normalization)
    other, share = labels, torch.ones(len(labels), device=labels.device)
    if augmentation.cutmix:
        images, share = cutmixed(images, key, augmentation.cutmix)
        other = labels.roll(1)
    return Batch(images.contiguous(), labels, key.samples, other, share)


def _augmented_alone(squares: Tensor, key: Key, augmentation: Augmentation, normalization: Normalization) -> Tensor:
    """The augmentations that take one image each."""
    images = flipped(squares, key, augmentation.flip).float().div_(255)
    images = three_augmented(images, key, augmentation)
    if augmentation.color_jitter:
        images = color_jittered(images, key, augmentation.color_jitter)
    return normalization(images)


def flipped(images: Tensor, key: Key, probability: float) -> Tensor:
    """Flip each image horizontally with this probability."""
    which = key.uniform(Draw.FLIP) < probability
    return torch.where(_per_image(which, images), images.flip(-1), images) if which.any() else images


def three_augmented(images: Tensor, key: Key, augmentation: Augmentation) -> Tensor:
    """Apply at most one of grayscale, solarization and blur to each image."""
    choice = key.uniform(Draw.THREE_AUGMENT)
    limits = np.cumsum([0.0, augmentation.grey, augmentation.solarize, augmentation.blur])
    if augmentation.grey + augmentation.solarize + augmentation.blur > 1.0 - 1e-9:
        limits[-1] = 1.0  # three thirds may sum to less than 1
    grey, solarized, blurred_ = (np.flatnonzero((limits[k] <= choice) & (choice < limits[k + 1])) for k in range(3))
    sigmas = key.uniform(Draw.BLUR_SIGMA, *_BLUR_SIGMAS)
    images = images.clone()
    for which, change in (
        (grey, lambda x: luma(x).expand_as(x)),
        (solarized, lambda x: torch.where(x >= _SOLARIZE_FROM, 1.0 - x, x)),
        (blurred_, lambda x: blurred(x, torch.from_numpy(sigmas[blurred_]).to(x))),
    ):
        if len(which):
            index = torch.from_numpy(which).to(images.device)
            images.index_copy_(0, index, change(images.index_select(0, index)))
    return images


def luma(images: Tensor) -> Tensor:
    """The brightness of each pixel, (B, 1, H, W)."""
    red, green, blue = images.unbind(1)
    return (_LUMA[0] * red + _LUMA[1] * green + _LUMA[2] * blue)[:, None]


def blurred(images: Tensor, sigmas: Tensor) -> Tensor:
    """Gaussian blur with one sigma in pixels per image; pixels outside of the image have no weight."""
    rows = _blurred_along(images, sigmas).transpose(-1, -2)
    return _blurred_along(rows, sigmas).transpose(-1, -2)


def _blurred_along(images: Tensor, sigmas: Tensor) -> Tensor:
    """Blur along the last dimension (B, C, H, W).

    Matrix products of overlapping blocks, since a convolution with a different kernel per image is slow.
    """
    width = images.shape[-1]
    inside = torch.arange(_BLUR_BLOCK, device=images.device, dtype=images.dtype)
    around = torch.arange(-_BLUR_REACH, _BLUR_BLOCK + _BLUR_REACH, device=images.device, dtype=images.dtype)
    distance = (around[:, None] - inside) / sigmas[:, None, None]
    weights = torch.exp(-0.5 * distance**2) * ((around[:, None] - inside).abs() <= _BLUR_REACH)

    def summed(values: Tensor) -> Tensor:
        padding = (_BLUR_REACH, _BLUR_REACH + -width % _BLUR_BLOCK)
        blocks = F.pad(values, padding).unfold(-1, len(around), _BLUR_BLOCK)
        products = blocks.reshape(len(values), -1, len(around)) @ weights
        return products.reshape(*values.shape[:-1], -1)[..., :width]

    return summed(images) / summed(torch.ones_like(images[:, :1, :1]))


def color_jittered(images: Tensor, key: Key, strength: float) -> Tensor:
    """Brightness, contrast and saturation by factors in 1 +- strength, in an order drawn for each image.

    Each blends the image with another one: black, its mean gray, or its grayscale version.
    """
    factors = np.stack(
        [key.uniform(d, 1 - strength, 1 + strength) for d in (Draw.BRIGHTNESS, Draw.CONTRAST, Draw.SATURATION)]
    )
    orders = _JITTER_ORDERS[(key.uniform(Draw.JITTER_ORDER) * len(_JITTER_ORDERS)).astype(np.int64)]
    images = images.clone()
    for operation in orders.T:
        factor = _per_image(factors[operation, np.arange(len(images))].astype(np.float32), images)
        grey = luma(images)
        mean_gray = grey.mean((2, 3), keepdim=True)
        reference = grey * _per_image(operation == _SATURATION, images) + mean_gray * _per_image(
            operation == _CONTRAST, images
        )
        torch.lerp(reference.expand_as(images), images, factor, out=images).clamp_(0.0, 1.0)
    return images


def cutmixed(images: Tensor, key: Key, probability: float) -> tuple[Tensor, Tensor]:
    """Replace a box of each image by that of its neighbor in the batch; returns the share of its own pixels too.

    Yun et al., "CutMix", 2019, arXiv:1905.04899, with alpha = 1: the share is uniform. The box is clipped at the
    border, and the share counts the remaining pixels.
    """
    height, width = images.shape[-2:]
    side = np.sqrt(1.0 - key.uniform(Draw.CUTMIX_SHARE)) * (key.uniform(Draw.CUTMIX) < probability)
    top, bottom = _box(key.uniform(Draw.CUTMIX_TOP), side, height)
    left, right = _box(key.uniform(Draw.CUTMIX_LEFT), side, width)
    rows, columns = np.arange(height), np.arange(width)
    in_rows = (top[:, None] <= rows) & (rows < bottom[:, None])
    in_columns = (left[:, None] <= columns) & (columns < right[:, None])
    inside = torch.from_numpy(in_rows[:, None, :, None] & in_columns[:, None, None, :]).to(images.device)
    share = 1.0 - (bottom - top) * (right - left) / (height * width)
    return torch.where(inside, images.roll(1, 0), images), torch.from_numpy(share).float().to(images.device)


def _box(
    center: NDArray[np.float64], side: NDArray[np.float64], length: int
) -> tuple[NDArray[np.int64], NDArray[np.int64]]:
    """Start and end of a box along one side of the image."""
    middle, extent = (center * length).astype(np.int64), (side * length).astype(np.int64)
    start = middle - extent // 2
    return np.clip(start, 0, length), np.clip(start + extent, 0, length)


def _per_image(values: NDArray, images: Tensor) -> Tensor:
    """One value per image, reshaped to broadcast over images."""
    return torch.from_numpy(values).to(images.device).view(-1, 1, 1, 1)
