"""Small sets in the layouts of the large ones."""

from pathlib import Path

import numpy as np
from PIL import Image


def save_image(path: Path, value: int, size: tuple[int, int] = (8, 8), mode: str = "RGB") -> None:
    """A picture of one brightness, (width, height) pixels large."""
    path.parent.mkdir(parents=True, exist_ok=True)
    Image.new(mode, size, value if mode == "L" else (value, value, value)).save(path)


def cifar_records(count: int, label_bytes: int, classes: int, seed: int = 0) -> np.ndarray:
    """Records of the binary version; the last label byte counts through the classes."""
    records = np.random.default_rng(seed).integers(0, 256, (count, label_bytes + 3072), dtype=np.uint8)
    records[:, label_bytes - 1] = np.arange(count) % classes
    return records
