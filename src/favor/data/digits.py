"""scikit-learn's digits: 1,797 real handwritten digits that need no download."""

import numpy as np
import torch

from favor.data.draws import Draw, uniform
from favor.data.framing import resized
from favor.data.in_memory import InMemory, rgb_of_gray
from favor.data.sources import Splits

SIDE = 32
_EVALUATION_IMAGES = 360


def open_digits() -> Splits:
    """1,437 training and 360 evaluation images, a fixed random split, upsampled from 8x8 to 32x32."""
    from sklearn.datasets import load_digits

    grey, labels = load_digits(return_X_y=True)
    images = rgb_of_gray((grey.reshape(-1, 8, 8) * (255 / 16)).round().astype(np.uint8))
    images = resized(images, (SIDE, SIDE))
    # Consecutive images are by the same writer, so a split by position would evaluate on unseen writers.
    shuffled = np.argsort(uniform(0, 0, np.arange(len(labels)), Draw.SPLIT), kind="stable")
    evaluation, train = shuffled[:_EVALUATION_IMAGES], shuffled[_EVALUATION_IMAGES:]
    return Splits(
        tuple(str(digit) for digit in range(10)),
        *(InMemory(images[torch.from_numpy(part)], labels[part].astype(np.int64)) for part in (train, evaluation)),
    )
