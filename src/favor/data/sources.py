"""The loader's interface to a split of a dataset, in memory or in files."""

from dataclasses import dataclass, replace
from typing import Protocol

import numpy as np
from numpy.typing import NDArray
from torch import Tensor

from favor.data.framing import Cut


@dataclass(frozen=True)
class BrokenImage:
    """An image that could not be read, and why."""

    place: str
    reason: str


@dataclass(frozen=True)
class Fetched:
    """The crops of a batch as uint8 (B, 3, S, S), their samples, and the broken images that were left out."""

    images: Tensor
    samples: NDArray[np.int64]
    broken: tuple[BrokenImage, ...] = ()

    def pin_memory(self) -> "Fetched":
        """The same in pinned memory, from which a GPU copies by itself; torch's `DataLoader` calls this."""
        return replace(self, images=self.images.pin_memory())


class ImageSource(Protocol):
    """One split: labels in memory, images fetched batch by batch."""

    @property
    def labels(self) -> NDArray[np.int64]: ...

    @property
    def in_memory(self) -> bool:
        """Whether images are already decoded, so that no worker processes are needed."""

    def __len__(self) -> int: ...

    def fetch(self, samples: NDArray[np.int64], cut: Cut) -> Fetched: ...


@dataclass(frozen=True)
class DataSet:
    """A loaded dataset; `name` distinguishes a subset of a known set from the whole."""

    name: str
    classes: tuple[str, ...]
    train: ImageSource
    evaluation: ImageSource
    place: str

    @property
    def num_classes(self) -> int:
        return len(self.classes)


@dataclass(frozen=True)
class Splits:
    """The splits and classes that a reader finds in a folder."""

    classes: tuple[str, ...]
    train: ImageSource
    evaluation: ImageSource
