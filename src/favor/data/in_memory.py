"""Small sets, decoded once: uint8 images of one size in one tensor."""

from dataclasses import dataclass

import numpy as np
import torch
from numpy.typing import NDArray
from torch import Tensor

from favor.data.framing import Cut, cut_batch
from favor.data.sources import Fetched
from favor.errors import RequestError


@dataclass(frozen=True)
class InMemory:
    """Images (N, 3, H, W) and their labels."""

    images: Tensor
    labels: NDArray[np.int64]
    in_memory: bool = True

    def __post_init__(self) -> None:
        if self.images.dtype != torch.uint8 or self.images.ndim != 4 or self.images.shape[1] != 3:
            raise RequestError(
                f"images must be uint8 of shape (N, 3, H, W), not {self.images.dtype} {self.images.shape}"
            )
        if len(self.images) != len(self.labels):
            raise RequestError(f"{len(self.images)} images but {len(self.labels)} labels")

    def __len__(self) -> int:
        return len(self.labels)

    def fetch(self, samples: NDArray[np.int64], cut: Cut) -> Fetched:
        """The crops of these samples; none is broken, since all were decoded."""
        chosen = self.images.index_select(0, torch.from_numpy(samples))
        return Fetched(cut_batch(chosen, cut), samples)


def rgb_of_gray(grey: NDArray[np.uint8]) -> Tensor:
    """Grayscale images (N, H, W) as RGB (N, 3, H, W)."""
    return torch.from_numpy(np.repeat(grey[:, None], 3, axis=1))
