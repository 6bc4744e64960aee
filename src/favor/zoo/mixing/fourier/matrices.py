"""Fourier transforms as products with real matrices: the form in which models are exported.

OpenVINO 2026.4 misreads ONNX's DFT along an axis that is not the last. For the grids of vision transformers the
products are small.
"""

import math

import numpy as np
import torch
from torch import Tensor


def waves(frequencies: int, places: int, like: Tensor) -> tuple[Tensor, Tensor]:
    """cos and sin of 2 pi k n / places for frequencies k and places n: [frequencies, places] each."""
    turns = np.outer(np.arange(frequencies), np.arange(places)) % places / places
    angles = 2 * math.pi * turns
    cos, sin = (torch.tensor(wave, dtype=like.dtype, device=like.device) for wave in (np.cos(angles), np.sin(angles)))
    return cos, sin


def grid_spectrum(x: Tensor) -> tuple[Tensor, Tensor]:
    """Real and imaginary part of `torch.fft.rfft2` over the grid of x [B, H, W, C]: [B, H, W // 2 + 1, C] each."""
    height, width = x.shape[1:3]
    cos, sin = waves(width // 2 + 1, width, x)
    return _along_height(cos @ x, -(sin @ x), *waves(height, height, x))


def grid_signal(real: Tensor, imaginary: Tensor, width: int) -> Tensor:
    """The inverse of `grid_spectrum`, as `torch.fft.irfft2`."""
    height, kept = real.shape[1:3]
    cos, sin = waves(height, height, real)
    real, imaginary = _along_height(real, imaginary, cos, -sin)
    # all but the first and, for an even width, the last stand for their mirror image too
    twice = torch.full((kept, 1), 2.0, dtype=real.dtype, device=real.device)
    twice[0] = 1.0
    if width % 2 == 0:
        twice[-1] = 1.0
    cos, sin = waves(kept, width, real)
    return ((cos * twice).mT @ real - (sin * twice).mT @ imaginary) / (height * width)


def _along_height(real: Tensor, imaginary: Tensor, cos: Tensor, sin: Tensor) -> tuple[Tensor, Tensor]:
    """(cos - i sin) (real + i imaginary) over the first axis of the grid."""
    r, i = real.flatten(2), imaginary.flatten(2)
    return (cos @ r + sin @ i).view_as(real), (cos @ i - sin @ r).view_as(real)
