"""Large sets: images are decoded from their files on demand."""

import io
import os
import warnings
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
from favor.errors import RequestError, one_line
from favor.regular_file import UnreadableFileError, read_regular

FORMATS = ("JPEG", "PNG", "WEBP", "BMP", "TIFF", "PPM", "GIF")
"""The formats that are decoded. Pillow detects formats by content, and for some of them starts other programs."""
MOST_PIXELS = 89_478_485
"""Pillow's threshold for decompression bombs; the largest image of ImageNet has 60 million pixels."""
MOST_BYTES = 4 * MOST_PIXELS


class UndecodableImageError(Exception):
    """Bytes that are not a usable image, and why."""


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
        self._relative = np.array([os.fsencode(path) for path in relative], dtype=np.bytes_)

    def __len__(self) -> int:
        return len(self._relative)

    def read(self, sample: int) -> bytes:
        return read_regular(self._path(sample), MOST_BYTES)

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
        """The crops of these samples, without broken images."""
        squares, kept, broken = [], [], []
        for position, sample in enumerate(samples):
            try:
                squares.append(_square(decoded(self.places.read(int(sample))), cut, position))
                kept.append(sample)
            except (UnreadableFileError, UndecodableImageError) as error:
                broken.append(_broken(self.places.name(int(sample)), error))
        shape = (0, 3, cut.img_size, cut.img_size)
        images = torch.from_numpy(np.stack(squares)) if squares else torch.empty(shape, dtype=torch.uint8)
        return Fetched(images, np.array(kept, dtype=np.int64), tuple(broken))


def decoded(encoded: bytes) -> Image.Image:
    """The image as RGB; grayscale gets three equal channels, 16 bits become 8."""
    try:
        with warnings.catch_warnings(action="ignore"), Image.open(io.BytesIO(encoded), formats=FORMATS) as image:
            _check_size(image.width, image.height)
            return _rgb(image)
    except UndecodableImageError:
        raise
    except UnidentifiedImageError as error:  # Pillow's message shows an object's address
        raise UndecodableImageError(f"not an image in one of the formats {', '.join(FORMATS)}") from error
    except Exception as error:  # Pillow's plugins may raise anything on malformed bytes
        raise UndecodableImageError(f"{type(error).__name__}: {one_line(error)}") from error


def _rgb(image: Image.Image) -> Image.Image:
    if image.mode.startswith("I"):  # PIL would clip these at 255, which makes them white
        grey = np.asarray(image).astype(np.int64) >> 8
        return Image.fromarray(grey.clip(0, 255).astype(np.uint8)).convert("RGB")
    if image.mode == "F":
        raise UndecodableImageError("its pixels are floats, whose range is unknown")
    return image.convert("RGB")


def decode_all(files: ImageFiles, side: int) -> tuple[InMemory, tuple[BrokenImage, ...]]:
    """All images of a set of squares of one size, in memory, and the broken ones."""
    images, labels, broken = [], [], []
    for sample, label in enumerate(files.labels):
        try:
            images.append(np.asarray(decoded(files.places.read(sample))))
            labels.append(label)
        except (UnreadableFileError, UndecodableImageError) as error:
            broken.append(_broken(files.places.name(sample), error))
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


def _square(image: Image.Image, cut: Cut, position: int) -> NDArray[np.uint8]:
    """The crop of one image as (3, S, S)."""
    height, width = resized_shape(image.height, image.width, cut.side)
    _check_size(width, height)
    if (height, width) != (image.height, image.width):
        image = image.resize((width, height), Image.Resampling[cut.interpolation.upper()])
    along = np.arange(cut.img_size)
    rows = reflected(start(cut.top[position : position + 1], height, cut) + along, height)
    columns = reflected(start(cut.left[position : position + 1], width, cut) + along, width)
    return np.ascontiguousarray(np.asarray(image)[rows[:, None], columns].transpose(2, 0, 1))


def _check_size(width: int, height: int) -> None:
    if width * height > MOST_PIXELS:
        megapixels = f"{width * height / 1e6:,.0f} megapixels"
        raise UndecodableImageError(
            f"{width} x {height} pixels; {megapixels} exceed the limit of {MOST_PIXELS / 1e6:.0f}"
        )


def _broken(place: str, error: UnreadableFileError | UndecodableImageError) -> BrokenImage:
    reason = error.why if isinstance(error, UnreadableFileError) else str(error)
    return BrokenImage(place if place.isprintable() else repr(place), reason)
