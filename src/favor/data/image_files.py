"""Large sets: images are decoded from their files on demand."""

import os
from collections.abc import Callable
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Protocol

import numpy as np
import torch
from numpy.typing import NDArray
from torch.nn import functional as F

from favor.data.decoding import MOST_BYTES, UndecodableImageError, check_size, decoded
from favor.data.framing import CropMode, Cut, bordered, reflected, start
from favor.data.in_memory import InMemory
from favor.data.sources import BrokenImage, Fetched, ImageSource
from favor.errors import RequestError
from favor.regular_file import UnreadableFileError, read_regular

SMALL_SET, LONG_SIDE = 2**28, 1.5
"""Bytes that a dataset may take in memory, and the assumed ratio of the longer to the shorter side of its images."""


class Places(Protocol):
    """Where the images are: files of a folder, or members of archives."""

    def __len__(self) -> int: ...

    def read(self, sample: int) -> bytes: ...

    def name(self, sample: int) -> str: ...


class FolderPlaces:
    """Files below a folder."""

    def __init__(self, root: Path, relative: list[str]) -> None:
        self.root = root
        # One block of bytes rather than a million strings: worker processes share it without copying.
        encoded = [os.fsencode(path) for path in relative]
        self._names = b"".join(encoded)
        self._ends = np.cumsum([len(name) for name in encoded], dtype=np.int64)

    def __len__(self) -> int:
        return len(self._ends)

    def read(self, sample: int) -> bytes:
        return read_regular(self._path(sample), MOST_BYTES)

    def name(self, sample: int) -> str:
        return str(self._path(sample))

    @property
    def relative(self) -> list[str]:
        """The paths below the folder."""
        return [self._name(sample) for sample in range(len(self))]

    def _path(self, sample: int) -> Path:
        return self.root / self._name(sample)

    def _name(self, sample: int) -> str:
        start = int(self._ends[sample - 1]) if sample else 0
        return os.fsdecode(self._names[start : int(self._ends[sample])])


@dataclass(frozen=True)
class ImageFiles:
    """Encoded images and their labels."""

    places: Places
    labels: NDArray[np.int64]
    in_memory: bool = False
    upright: bool = False
    """Whether photos are rotated by their EXIF orientation: users' own are, known sets are read as timm reads them."""

    def __len__(self) -> int:
        return len(self.labels)

    def fetch(self, samples: NDArray[np.int64], cut: Cut) -> Fetched:
        """The crops of these samples, without broken images."""
        return _fetched(samples, cut, lambda sample: _resized_or_broken(self, sample, cut))


class SmallSet:
    """Image files that are decoded and resized once, then kept in memory."""

    in_memory = True

    def __init__(self, files: ImageFiles) -> None:
        self.labels, self._files = files.labels, files
        self._kept: dict[tuple[int, int, CropMode], NDArray[np.uint8] | BrokenImage] = {}
        self._room = 2 * SMALL_SET  # panoramas take more than was estimated

    def __len__(self) -> int:
        return len(self.labels)

    def fetch(self, samples: NDArray[np.int64], cut: Cut) -> Fetched:
        """The crops of these samples, without broken images."""
        return _fetched(samples, cut, lambda sample: self._resized(sample, cut))

    def _resized(self, sample: int, cut: Cut) -> NDArray[np.uint8] | BrokenImage:
        key = (sample, cut.side, cut.mode)
        image = self._kept.get(key)
        if image is None:
            image = _resized_or_broken(self._files, sample, cut)
            size = 0 if isinstance(image, BrokenImage) else image.nbytes
            if size <= self._room:
                self._room -= size
                self._kept[key] = image
        return image


def upright(source: ImageSource) -> ImageSource:
    """The same images, rotated by their EXIF orientation; images in memory have none."""
    return replace(source, upright=True) if isinstance(source, ImageFiles) else source


def in_memory_if_small(source: ImageSource, side: int) -> ImageSource:
    """A source that keeps its images in memory, resized to a shorter side, if they take little of it."""
    small = len(source) * 3 * LONG_SIDE * side**2 <= SMALL_SET
    return SmallSet(source) if small and isinstance(source, ImageFiles) else source


def decode_all(files: ImageFiles, side: int) -> tuple[InMemory, tuple[BrokenImage, ...]]:
    """All images of a set of squares of one size, in memory, and the broken ones."""
    images, labels, broken = [], [], []
    for sample, label in enumerate(files.labels):
        try:
            images.append(decoded(files.places.read(sample), upright=files.upright).pixels)
            labels.append(label)
        except (UnreadableFileError, UndecodableImageError) as error:
            broken.append(broken_image(files.places.name(sample), error))
        else:
            height, width, _ = images[-1].shape
            if (height, width) != (side, side):
                raise RequestError(
                    f"{files.places.name(sample)}: {width} x {height} pixels where the images of this set have "
                    f"{side} x {side}; use folder:PATH for other images"
                )
    if not images:
        first = broken[0]
        raise RequestError(f"none of the {len(files)} images could be read; the first: {first.place} ({first.reason})")
    stacked = torch.from_numpy(np.stack(images)).permute(0, 3, 1, 2).contiguous()
    return InMemory(stacked, np.array(labels, dtype=np.int64)), tuple(broken)


def _resized(files: ImageFiles, sample: int, cut: Cut) -> NDArray[np.uint8]:
    """The decoded image, resized as the cut requires, as (H, W, 3).

    It differs from Pillow's by at most 2 of 255 levels: torch's kernel for bytes with channels last is several times
    faster.
    """
    image = decoded(files.places.read(sample), cut.side if cut.may_reduce else None, files.upright)
    height, width = cut.shape_of(image.height, image.width)
    check_size(width, height)
    result = torch.from_numpy(image.pixels).permute(2, 0, 1)[None]  # channels last
    if (height, width) != image.pixels.shape[:2]:
        result = F.interpolate(result, (height, width), mode=cut.interpolation, antialias=True)
    return bordered(result, cut)[0].permute(1, 2, 0).numpy()


def _resized_or_broken(files: ImageFiles, sample: int, cut: Cut) -> NDArray[np.uint8] | BrokenImage:
    try:
        return _resized(files, sample, cut)
    except (UnreadableFileError, UndecodableImageError) as error:
        return broken_image(files.places.name(sample), error)


def _cropped(image: NDArray[np.uint8], cut: Cut, position: int) -> NDArray[np.uint8]:
    """The crop of one image as (S, S, 3)."""
    height, width, _ = image.shape
    along = np.arange(cut.img_size)
    rows = reflected(start(cut.top[position : position + 1], height, cut) + along, height)
    columns = reflected(start(cut.left[position : position + 1], width, cut) + along, width)
    return _taken(_taken(image, rows, 0), columns, 1)


def _fetched(
    samples: NDArray[np.int64], cut: Cut, resized: Callable[[int], NDArray[np.uint8] | BrokenImage]
) -> Fetched:
    """The crops of resized images, and those that are broken."""
    squares = np.empty((len(samples), 3, cut.img_size, cut.img_size), dtype=np.uint8)
    kept: list[int] = []
    broken: list[BrokenImage] = []
    for position, sample in enumerate(samples.tolist()):
        image = resized(sample)
        if isinstance(image, BrokenImage):
            broken.append(image)
            continue
        squares[len(kept)] = _cropped(image, cut, position).transpose(2, 0, 1)
        kept.append(sample)
    return Fetched(torch.from_numpy(squares[: len(kept)]), np.array(kept, dtype=np.int64), tuple(broken))


def _taken(pixels: NDArray[np.uint8], positions: NDArray[np.int64], axis: int) -> NDArray[np.uint8]:
    """These rows or columns; all between two reflected borders are copied at once, which is much faster than `take`."""
    first, last = int(positions.argmin()), int(positions.argmax())
    if last - first != positions[last] - positions[first]:  # reflected more than once
        return pixels.take(positions, axis)
    between = slice(int(positions[first]), int(positions[last]) + 1)
    inner = pixels[between] if axis == 0 else pixels[:, between]
    if len(positions) == last - first + 1:
        return inner
    before, after = positions[:first], positions[last + 1 :]
    if axis == 0:
        return np.concatenate([pixels[before], inner, pixels[after]])
    return np.concatenate([pixels[:, before], inner, pixels[:, after]], axis=1)


def broken_image(place: str, error: UnreadableFileError | UndecodableImageError) -> BrokenImage:
    """An image that could not be read, with a name that can be printed."""
    reason = error.why if isinstance(error, UnreadableFileError) else str(error)
    return BrokenImage(place if place.isprintable() else repr(place), reason)
