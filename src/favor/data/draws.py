"""Random numbers that belong to a sample, not to a process: a hash of seed, epoch, sample and purpose.

So a sample is augmented in the same way in the same epoch, however many processes, workers and micro-batches share
the work, and wherever a run is resumed.
"""

from enum import IntEnum

import numpy as np
from numpy.typing import NDArray

_GOLDEN = 0x9E3779B97F4A7C15
_WORD = (1 << 64) - 1


class Draw(IntEnum):
    """The purpose of a random number; the values affect published results, so new ones go to the end."""

    ORDER = 0
    CROP_TOP = 1
    CROP_LEFT = 2
    FLIP = 3
    THREE_AUGMENT = 4
    BLUR_SIGMA = 5
    JITTER_ORDER = 6
    BRIGHTNESS = 7
    CONTRAST = 8
    SATURATION = 9
    CUTMIX = 10
    CUTMIX_SHARE = 11
    CUTMIX_TOP = 12
    CUTMIX_LEFT = 13
    SPLIT = 14
    DROP_PATH = 15


def uniform(seed: int, epoch: int, samples: NDArray[np.int64], draw: Draw) -> NDArray[np.float64]:
    """One number in [0, 1) per sample.

    >>> uniform(0, 1, np.array([7, 8]), Draw.FLIP).round(4).tolist()
    [0.4995, 0.3502]
    """
    # A float64 holds 53 bits exactly, so that 1 is never drawn.
    return (_bits(seed, epoch, samples, draw) >> np.uint64(11)).astype(np.float64) * 2.0**-53


def order(seed: int, epoch: int, count: int) -> NDArray[np.int64]:
    """The order in which an epoch visits the samples: each once.

    >>> order(0, 1, 5).tolist()
    [1, 0, 2, 3, 4]
    """
    return np.argsort(_bits(seed, epoch, np.arange(count), Draw.ORDER), kind="stable")


def _bits(seed: int, epoch: int, samples: NDArray[np.int64], draw: Draw) -> NDArray[np.uint64]:
    """64 random bits per sample: splitmix64's finalizer, chained over the parts of the key."""
    key = _mixed(np.array([seed & _WORD], dtype=np.uint64))
    for part in (epoch, int(draw)):
        key = _mixed(key ^ np.uint64((part + 1) * _GOLDEN & _WORD))
    return _mixed(key ^ (samples.astype(np.uint64) + np.uint64(1)) * np.uint64(_GOLDEN))


def _mixed(z: NDArray[np.uint64]) -> NDArray[np.uint64]:
    z = z + np.uint64(_GOLDEN)
    z = (z ^ (z >> np.uint64(30))) * np.uint64(0xBF58476D1CE4E5B9)
    z = (z ^ (z >> np.uint64(27))) * np.uint64(0x94D049BB133111EB)
    return z ^ (z >> np.uint64(31))
