"""CIFAR-10 and CIFAR-100: the binary version, plain or compressed with xz, and the version in Python's pickle format.

A pickle is a program. These are read as data, and give only byte arrays and plain containers.
"""

import io
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any, Literal

import numpy as np
import torch
from numpy.typing import NDArray

from favor.data.archive import unxz
from favor.data.in_memory import InMemory
from favor.data.sources import Splits
from favor.errors import RequestError, shown
from favor.plain_pickle import Known, NotPickleError, NotPlainError, read_plain
from favor.regular_file import read_regular, read_text

_PIXELS = 3 * 32 * 32
_MOST_BYTES = 2**28  # CIFAR-100's training images have 154 MB


@dataclass(frozen=True)
class _Layout:
    """The files of CIFAR-10 or CIFAR-100; a binary record has `label_bytes` labels, the last one is the class."""

    train: tuple[str, ...]
    test: tuple[str, ...]
    names: str
    label_bytes: int
    pickled_label: bytes
    pickled_names: tuple[str, bytes]
    classes: tuple[str, ...]


CIFAR10_CLASSES = ("airplane", "automobile", "bird", "cat", "deer", "dog", "frog", "horse", "ship", "truck")
_CIFAR10 = _Layout(
    tuple(f"data_batch_{k}" for k in range(1, 6)),
    ("test_batch",),
    "batches.meta.txt",
    1,
    b"labels",
    ("batches.meta", b"label_names"),
    CIFAR10_CLASSES,
)
_CIFAR100 = _Layout(
    ("train",),
    ("test",),
    "fine_label_names.txt",
    2,
    b"fine_labels",
    ("meta", b"fine_label_names"),
    tuple(f"fine label {label}" for label in range(100)),
)


def open_cifar10(root: Path) -> Splits:
    """CIFAR-10, or a subset of it with the files `train` and `test`."""
    mini = any((root / f"train.bin{end}").exists() for end in ("", ".xz"))
    layout = _CIFAR10
    if mini:
        layout = replace(layout, train=("train",), test=("test",))
    return _open(root, layout)


def open_cifar100(root: Path) -> Splits:
    """CIFAR-100 with its 100 fine classes."""
    return _open(root, _CIFAR100)


def _open(root: Path, layout: _Layout) -> Splits:
    num_classes = len(layout.classes)
    pickled = (root / layout.train[0]).is_file()
    with ThreadPoolExecutor() as threads:  # xz takes most of the time, and releases the GIL
        read = _read_pickled if pickled else _read_binary
        parts = list(threads.map(lambda name: read(root, name, layout), (*layout.train, *layout.test)))
    train, test = _joined(parts[: len(layout.train)], root), _joined(parts[len(layout.train) :], root)
    for split in (train, test):
        for label in (int(split.labels.min()), int(split.labels.max())):
            if not 0 <= label < num_classes:
                raise RequestError(f"{root}: label {label} is out of range for {num_classes} classes")
    return Splits(_class_names(root, layout, pickled), train, test)


def _joined(parts: list[tuple[NDArray[np.uint8], NDArray[np.int64]]], root: Path) -> InMemory:
    images = np.concatenate([images for images, _ in parts])
    labels = np.concatenate([labels for _, labels in parts])
    if not len(images):
        raise RequestError(f"{root}: no images in its files")
    return InMemory(torch.from_numpy(images), labels)


def _read_binary(root: Path, name: str, layout: _Layout) -> tuple[NDArray[np.uint8], NDArray[np.int64]]:
    plain, compressed = root / f"{name}.bin", root / f"{name}.bin.xz"
    if plain.exists():
        path, content = plain, read_regular(plain, _MOST_BYTES)
    elif compressed.exists():
        path, content = compressed, read_regular(unxz(compressed), _MOST_BYTES)
    else:
        raise RequestError(f"{root}: no {plain.name}, {compressed.name} or {name}; download the whole set")
    record = layout.label_bytes + _PIXELS
    if len(content) % record:
        raise RequestError(
            f"{path}: {len(content)} bytes are not a whole number of records of {record}; download it again"
        )
    records = np.frombuffer(content, dtype=np.uint8).reshape(-1, record)
    images = records[:, layout.label_bytes :].reshape(-1, 3, 32, 32)
    return images, records[:, layout.label_bytes - 1].astype(np.int64)


def _read_pickled(root: Path, name: str, layout: _Layout) -> tuple[NDArray[np.uint8], NDArray[np.int64]]:
    path = root / name
    if not path.exists():
        raise RequestError(f"{root}: no {name}; download the whole set")
    content = unpickled_arrays(path)
    data, labels = content.get(b"data"), content.get(layout.pickled_label)
    if not isinstance(data, np.ndarray) or data.dtype != np.uint8 or data.ndim != 2 or data.shape[1] != _PIXELS:
        raise RequestError(f"{path}: its data are not rows of {_PIXELS} bytes; download it again")
    if not isinstance(labels, list) or len(labels) != len(data) or not all(type(label) is int for label in labels):
        raise RequestError(f"{path}: its labels do not match its {len(data)} images; download it again")
    for label in labels:
        if not 0 <= label < len(layout.classes):
            raise RequestError(f"{path}: label {shown(label)} is out of range for {len(layout.classes)} classes")
    return data.reshape(-1, 3, 32, 32), np.array(labels, dtype=np.int64)


def _class_names(root: Path, layout: _Layout, pickled: bool) -> tuple[str, ...]:
    if pickled:
        file, key = layout.pickled_names
        found = unpickled_arrays(root / file).get(key, []) if (root / file).is_file() else []
        listed = found if isinstance(found, list) else []
        texts = (name.decode("latin1") if isinstance(name, bytes) else name for name in listed)
        names = tuple(name for name in texts if isinstance(name, str))
    else:
        path = root / layout.names
        names = tuple(read_text(path, _MOST_BYTES).split()) if path.exists() else ()
    for name in names:
        if not name.isprintable():
            raise RequestError(f"{root}: {shown(name)} is not a valid class name; download the set again")
    # Without the file of names, not plain numbers: the digit 3 is not a cat.
    return names if len(names) == len(layout.classes) else layout.classes


def unpickled_arrays(path: Path) -> dict[bytes, Any]:
    """The dict in a pickle of byte arrays, numbers, strings and containers; all else is refused, not executed."""
    try:
        content = read_plain(io.BytesIO(read_regular(path, _MOST_BYTES)), _ARRAYS)
    except NotPlainError as error:
        raise RequestError(f"{path}: refused: the pickle {error}") from error
    except NotPickleError as error:
        raise RequestError(f"{path}: truncated or not a pickle ({error}); download it again") from error
    if not isinstance(content, dict) or not all(isinstance(key, str | bytes) for key in content):
        raise RequestError(f"{path}: holds {shown(content)}, not values by name; this is not a CIFAR file")
    return {
        key.encode(errors="replace") if isinstance(key, str) else key: (
            value.values if isinstance(value, _Array) else value
        )
        for key, value in content.items()
    }


class _Bytes:
    """Stands for uint8, the only dtype of CIFAR's arrays."""

    def __init__(self, arguments: tuple[object, ...]) -> None:
        if arguments[:1] != ("u1",):
            raise NotPlainError(f"has an array of type {shown(arguments[0] if arguments else None)}; CIFAR's are bytes")

    def set_state(self, state: object) -> None:
        """Ignore the file's dtype state: bytes need none."""


class _Array:
    """Stands for an array in a pickle, so that numpy gets only a shape and bytes."""

    def __init__(self, _: tuple[object, ...]) -> None:
        self.values: NDArray[np.uint8] | None = None

    def set_state(self, state: object) -> None:
        match state:
            case (_, (int(rows), int(columns)), _Bytes(), by_columns, bytes() | str() as content):
                # The authors' files are from Python 2, whose strings are bytes: latin1 keeps every byte.
                raw = content.encode("latin1") if isinstance(content, str) else content
                if rows < 0 or columns < 0 or rows * columns != len(raw):
                    raise NotPlainError(f"has {len(raw):,} bytes for an array of shape {shown((rows, columns))}")
                order: Literal["C", "F"] = "F" if by_columns else "C"
                self.values = np.frombuffer(raw, dtype=np.uint8).reshape((rows, columns), order=order)
            case _:
                raise NotPlainError("has an array that is not a table of bytes")


_ARRAYS: Known = {
    "numpy.core.multiarray._reconstruct": _Array,
    "numpy._core.multiarray._reconstruct": _Array,
    "numpy.dtype": _Bytes,
    "numpy.ndarray": None,
}
"""The names in a pickle of arrays. numpy's own constructors can make an object from any memory address."""
