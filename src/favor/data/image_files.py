"""Large sets: images are decoded from their files whenever they are asked for."""

import io
import os
from dataclasses import dataclass
from pathlib import Path
from typing import Protocol

import numpy as np
import torch
from numpy.typing import NDArray
from PIL import Image, UnidentifiedImageError

from favor.data.framing import Cut, reflected, resized_shape, start
from favor.data.in_memory import InMemory
from favor.data.sources import BrokenImage, Fetched
from favor.errors import RequestError

# What PIL raises on files that are not images, are torn, or claim to be absurdly large.
_DECODING_ERRORS = (OSError, SyntaxError, ValueError, Image.DecompressionBombError)


class Places(Protocol):
    """Where the images are: files of a folder, or pieces of archives."""

    def __len__(self) -> int: ...

    def read(self, sample: int) -> bytes: ...

    def name(self, sample: int) -> str: ...


class FolderPlaces:
    """Files below a folder."""

    def __init__(self, root: Path, relative: list[str]) -> None:
        self.root = root
        # One block of bytes rather than a million texts: worker processes share it without copying.
        self._relative = np.array([os.fsencode(path) for path in relative], dtype=np.bytes_)

    def __len__(self) -> int:
        return len(self._relative)

    def read(self, sample: int) -> bytes:
        return self._path(sample).read_bytes()

    def name(self, sample: int) -> str:
        return str(self._path(sample))

    def _path(self, sample: int) -> Path:
        return self.root / os.fsdecode(bytes(self._relative[sample]))


@dataclass(frozen=True)
class ImageFiles:
    """Encoded images and their labels."""

    places: Places
    labels: NDArray[np.int64]
    in_memory: bool = False

    def __len__(self) -> int:
        return len(self.labels)

    def fetch(self, samples: NDArray[np.int64], cut: Cut) -> Fetched:
        """The squares of these samples, without those that are broken."""
        squares, kept, broken = [], [], []
        for position, sample in enumerate(samples):
            try:
                squares.append(_square(decoded(self.places.read(int(sample))), cut, position))
                kept.append(sample)
            except _DECODING_ERRORS as error:
                broken.append(_broken(self.places.name(int(sample)), error))
        shape = (0, 3, cut.img_size, cut.img_size)
        images = torch.from_numpy(np.stack(squares)) if squares else torch.empty(shape, dtype=torch.uint8)
        return Fetched(images, np.array(kept, dtype=np.int64), tuple(broken))


def decoded(encoded: bytes) -> Image.Image:
    """The image in RGB, whatever it is stored as; greyscale gets three equal channels, 16 bits become 8."""
    with Image.open(io.BytesIO(encoded)) as image:
        if image.mode.startswith("I"):  # PIL would cut these off at 255, which makes them white
            grey = np.asarray(image).astype(np.int64) >> 8
            return Image.fromarray(grey.clip(0, 255).astype(np.uint8)).convert("RGB")
        if image.mode == "F":
            raise ValueError("pixels are floats, of which nobody says what is white")
        return image.convert("RGB")


def decode_all(files: ImageFiles) -> tuple[InMemory, tuple[BrokenImage, ...]]:
    """All images of a set whose images have one size, in memory, and those that are broken."""
    images, labels, broken = [], [], []
    for sample, label in enumerate(files.labels):
        try:
            images.append(np.asarray(decoded(files.places.read(sample))))
            labels.append(label)
        except _DECODING_ERRORS as error:
            broken.append(_broken(files.places.name(sample), error))
        else:
            if images[-1].shape != images[0].shape:
                size, usual = images[-1].shape[:2], images[0].shape[:2]
                raise RequestError(
                    f"{files.places.name(sample)}: {size} pixels where the images of this set have {usual}; "
                    "use folder:PATH for images of several sizes"
                )
    if not images:
        raise RequestError(f"none of the {len(files)} images could be read; the first: {broken[:1]}")
    stacked = torch.from_numpy(np.stack(images)).permute(0, 3, 1, 2).contiguous()
    return InMemory(stacked, np.array(labels, dtype=np.int64)), tuple(broken)


def _square(image: Image.Image, cut: Cut, position: int) -> NDArray[np.uint8]:
    """The square of one image as (3, S, S)."""
    height, width = resized_shape(image.height, image.width, cut.side)
    if (height, width) != (image.height, image.width):
        image = image.resize((width, height), Image.Resampling.BICUBIC)
    along = np.arange(cut.img_size)
    rows = reflected(start(cut.top[position : position + 1], height, cut) + along, height)
    columns = reflected(start(cut.left[position : position + 1], width, cut) + along, width)
    return np.ascontiguousarray(np.asarray(image)[rows[:, None], columns].transpose(2, 0, 1))


def _broken(place: str, error: BaseException) -> BrokenImage:
    if isinstance(error, UnidentifiedImageError):  # its own text names an object in memory
        return BrokenImage(place, "UnidentifiedImageError: no image of a known format")
    return BrokenImage(place, f"{type(error).__name__}: {error}".splitlines()[0])
