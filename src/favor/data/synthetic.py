"""Synthetic images to test pipelines and throughput: noise with a pattern for each class."""

import numpy as np
import torch

from favor.data.in_memory import InMemory
from favor.data.sources import Splits

_CLASSES, _SIDE, _TRAIN, _EVALUATION = 10, 32, 2048, 512


def open_synthetic() -> Splits:
    """2,048 training and 512 evaluation images, 10 classes, 32x32; the same on every machine."""
    rng = np.random.default_rng(0)
    patterns = rng.integers(0, 256, (_CLASSES, 3, 4, 4)).repeat(_SIDE // 4, axis=2).repeat(_SIDE // 4, axis=3)

    def split(count: int) -> InMemory:
        labels = np.arange(count) % _CLASSES
        noise = rng.integers(0, 256, (count, 3, _SIDE, _SIDE))
        return InMemory(torch.from_numpy(((patterns[labels] + noise) // 2).astype(np.uint8)), labels)

    return Splits(tuple(f"pattern {k}" for k in range(_CLASSES)), split(_TRAIN), split(_EVALUATION))
