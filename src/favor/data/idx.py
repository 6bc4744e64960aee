"""Fashion-MNIST in the idx format: a header with the shape, then the bytes."""

import gzip
import io
import math
import zlib
from pathlib import Path

import numpy as np
from numpy.typing import NDArray

from favor.data.in_memory import InMemory, rgb_of_gray
from favor.data.sources import Splits
from favor.errors import RequestError, one_line
from favor.regular_file import read_regular

FASHION_CLASSES = (
    *("T-shirt/top", "Trouser", "Pullover", "Dress", "Coat"),
    *("Sandal", "Shirt", "Sneaker", "Bag", "Ankle boot"),
)
_BYTES = 0x08  # idx's type code for bytes
_SIDE = 28
_MOST_BYTES = 2**26  # the training images have 47 MB


def open_fashion_mnist(root: Path) -> Splits:
    """Fashion-MNIST, plain or compressed with gzip, converted from grayscale to RGB."""
    return Splits(FASHION_CLASSES, _split(root, "train"), _split(root, "t10k"))


def _split(root: Path, prefix: str) -> InMemory:
    images, labels = read_idx(root, f"{prefix}-images-idx3-ubyte", 3), read_idx(root, f"{prefix}-labels-idx1-ubyte", 1)
    if images.shape != (len(labels), _SIDE, _SIDE) or not len(labels):
        raise RequestError(f"{root}: {prefix} has images {images.shape} but labels {labels.shape}; download it again")
    if labels.max() >= len(FASHION_CLASSES):
        raise RequestError(
            f"{root}: {prefix} has label {labels.max()}, out of range for {len(FASHION_CLASSES)} classes"
        )
    return InMemory(rgb_of_gray(images), labels.astype(np.int64))


def read_idx(root: Path, name: str, dimensions: int) -> NDArray[np.uint8]:
    """The array in an idx file of bytes."""
    path = root / name
    if path.exists():
        content = read_regular(path, _MOST_BYTES)
    elif (compressed := root / f"{name}.gz").exists():
        path, content = compressed, _gunzipped(compressed)
    else:
        raise RequestError(f"{root}: neither {name} nor {name}.gz; download the whole set")
    header = 4 + 4 * dimensions
    if len(content) < header or content[:4] != bytes([0, 0, _BYTES, dimensions]):
        raise RequestError(f"{path}: not an idx file of bytes in {dimensions} dimensions; download it again")
    shape = tuple(int.from_bytes(content[4 + 4 * k : 8 + 4 * k], "big") for k in range(dimensions))
    if len(content) != header + math.prod(shape):
        raise RequestError(f"{path}: {len(content)} bytes do not fit the shape {shape}; download it again")
    return np.frombuffer(content, dtype=np.uint8, offset=header).reshape(shape)


def _gunzipped(path: Path) -> bytes:
    packed = read_regular(path, _MOST_BYTES)
    try:
        with gzip.GzipFile(fileobj=io.BytesIO(packed)) as file:
            content = file.read(_MOST_BYTES + 1)
    except (gzip.BadGzipFile, EOFError, zlib.error) as error:
        raise RequestError(f"{path}: truncated or not gzip ({one_line(error)}); download it again") from error
    if len(content) > _MOST_BYTES:
        raise RequestError(f"{path}: more than {_MOST_BYTES // 10**6} MB unpacked; download it again")
    return content
