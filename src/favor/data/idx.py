"""Fashion-MNIST in the idx format: a header with the shape, then the bytes."""

import gzip
import zlib
from pathlib import Path

import numpy as np
from numpy.typing import NDArray

from favor.data.in_memory import InMemory, rgb_of_grey
from favor.data.sources import Splits
from favor.errors import RequestError

FASHION_CLASSES = (
    *("T-shirt/top", "Trouser", "Pullover", "Dress", "Coat"),
    *("Sandal", "Shirt", "Sneaker", "Bag", "Ankle boot"),
)
_BYTES = 0x08  # idx's code for the type of its elements


def open_fashion_mnist(root: Path) -> Splits:
    """Fashion-MNIST, plain or compressed with gzip, its greyscale as RGB."""
    return Splits(FASHION_CLASSES, _split(root, "train"), _split(root, "t10k"))


def _split(root: Path, prefix: str) -> InMemory:
    images, labels = read_idx(root, f"{prefix}-images-idx3-ubyte"), read_idx(root, f"{prefix}-labels-idx1-ubyte")
    if images.ndim != 3 or labels.shape != images.shape[:1]:
        raise RequestError(f"{root}: {prefix} has images {images.shape} with labels {labels.shape}; get it again")
    if labels.max(initial=0) >= len(FASHION_CLASSES):
        raise RequestError(f"{root}: {prefix} has label {labels.max()} in a set of {len(FASHION_CLASSES)} classes")
    return InMemory(rgb_of_grey(images), labels.astype(np.int64))


def read_idx(root: Path, name: str) -> NDArray[np.uint8]:
    """The array in an idx file of bytes."""
    plain, compressed = root / name, root / f"{name}.gz"
    try:
        content = plain.read_bytes() if plain.is_file() else gzip.decompress(compressed.read_bytes())
    except FileNotFoundError:
        raise RequestError(f"{root}: neither {plain.name} nor {compressed.name}; get the whole set") from None
    except (gzip.BadGzipFile, EOFError, zlib.error) as error:
        raise RequestError(f"{compressed}: torn or not gzip ({error}); get it again") from error
    if len(content) < 4 or content[:2] != b"\0\0" or content[2] != _BYTES:
        raise RequestError(f"{root / name}: not an idx file of bytes; get it again")
    dimensions = content[3]
    header = 4 + 4 * dimensions
    shape = tuple(int.from_bytes(content[4 + 4 * k : 8 + 4 * k], "big") for k in range(dimensions))
    if len(content) != header + int(np.prod(shape)):
        raise RequestError(f"{root / name}: {len(content)} bytes do not fit the shape {shape}; get it again")
    return np.frombuffer(content, dtype=np.uint8, offset=header).reshape(shape)
