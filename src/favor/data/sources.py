"""What a split of a data set is to the loader, whether it lives in memory or in files."""

from dataclasses import dataclass
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
    """The squares of a batch as uint8 (B, 3, S, S), their samples, and what was left out because it is broken."""

    images: Tensor
    samples: NDArray[np.int64]
    broken: tuple[BrokenImage, ...] = ()


class ImageSource(Protocol):
    """One split: labels that are known at once, images that are fetched by the batch."""

    @property
    def labels(self) -> NDArray[np.int64]: ...

    @property
    def in_memory(self) -> bool:
        """Whether images are decoded already, so that no worker processes are needed."""

    def __len__(self) -> int: ...

    def fetch(self, samples: NDArray[np.int64], cut: Cut) -> Fetched: ...


@dataclass(frozen=True)
class DataSet:
    """A data set that is ready to be used; `name` tells a cut of a known set apart from the whole."""

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
    """What the reader of a layout finds in a folder."""

    classes: tuple[str, ...]
    train: ImageSource
    evaluation: ImageSource
