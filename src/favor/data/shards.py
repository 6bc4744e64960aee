"""WebDataset shards: plain tar files in which `KEY.jpg` is an image and `KEY.cls` the number of its class.

An image takes one read, in any order. The headers of all shards are read once, unless there is an index.
"""

import os
import tarfile
from dataclasses import dataclass, field
from pathlib import Path
from typing import BinaryIO

import numpy as np
from numpy.typing import NDArray

from favor.data.archive import TarHeader, is_plain_file
from favor.data.class_folders import EVALUATION_FOLDERS, IMAGE_ENDINGS, TRAIN_FOLDERS, first_folder, folders_in
from favor.data.decoding import MOST_BYTES
from favor.data.image_files import ImageFiles
from favor.data.shard_index import POSITION, SPLITS, ShardIndex, Split, positions_file, read_positions, shard_file
from favor.data.sources import Splits
from favor.errors import RequestError, one_line, shown
from favor.regular_file import UnreadableFileError, open_regular

_MOST_CLASSES = 100_000
_MOST_OPEN = 128


class _OpenFiles:
    """Files kept open between reads: on a shared file system, opening one takes longer than reading an image."""

    def __init__(self) -> None:
        self._files: dict[str, BinaryIO] = {}

    def read(self, path: str, offset: int, size: int) -> bytes:
        file = self._files.pop(path, None) or open_regular(Path(path))
        self._files[path] = file  # at the end: the first one is the longest unused
        if len(self._files) > _MOST_OPEN:
            self._files.pop(next(iter(self._files))).close()
        try:
            content = os.pread(file.fileno(), size, offset)  # unlike a seek, safe after a fork
        except OSError as error:
            raise UnreadableFileError(Path(path), f"cannot be read: {error.strerror}") from error
        if len(content) < size:
            raise UnreadableFileError(Path(path), "the shard ends before the image does")
        return content

    def __getstate__(self) -> dict[str, object]:
        return {"_files": {}}  # a worker that is not forked opens its own


@dataclass(frozen=True)
class ShardPlaces:
    """Images as members of shards."""

    shards: tuple[str, ...]
    shard: NDArray[np.int32]
    offset: NDArray[np.int64]
    size: NDArray[np.int64]
    _files: _OpenFiles = field(default_factory=_OpenFiles)

    def __len__(self) -> int:
        return len(self.shard)

    def read(self, sample: int) -> bytes:
        return self._files.read(self.shards[self.shard[sample]], int(self.offset[sample]), int(self.size[sample]))

    def name(self, sample: int) -> str:
        return f"{self.shards[self.shard[sample]]} at byte {self.offset[sample]}"


def has_shards(root: Path) -> bool:
    """Whether the folder holds shards rather than class folders."""
    # Beside class folders, ILSVRC2012_img_val.tar is the archive that they were unpacked from.
    has_folders = folders_in(first_folder(root, EVALUATION_FOLDERS) or root)
    return bool(_shards_of(root, "train") or (_shards_of(root, "val") and not has_folders))


def open_shards(root: Path) -> Splits:
    """Shards in `train/` and `val/`, or in one folder with `train` and `val` in their names."""
    train, evaluation = (_indexed(root, split) for split in ("train", "val"))
    return Splits(numbered_classes(1 + max(int(train.labels.max()), int(evaluation.labels.max()))), train, evaluation)


def open_evaluation_shards(root: Path) -> Splits:
    """The same, but the training images may be missing."""
    if _shards_of(root, "train"):
        return open_shards(root)
    evaluation = _indexed(root, "val")
    nothing = ShardPlaces((), np.empty(0, np.int32), np.empty(0, np.int64), np.empty(0, np.int64))
    training = ImageFiles(nothing, np.empty(0, dtype=np.int64))
    return Splits(numbered_classes(1 + int(evaluation.labels.max())), training, evaluation)


def numbered_classes(count: int) -> tuple[str, ...]:
    """The classes of shards without class names: their numbers.

    >>> numbered_classes(3)
    ('0', '1', '2')
    """
    return tuple(str(label) for label in range(count))


def open_indexed(root: Path, index: ShardIndex) -> Splits:
    """Shards that `favor shards` wrote, with the samples in the order of the dataset."""
    if not index.is_complete:
        done, of = (sum(counts) for counts in ((s.visited for s in (*index.train, *index.val)), index.samples))
        raise RequestError(
            f"{root}: only {done:,} of {of:,} images are in the shards; run `favor shards {index.data} -o {root}` again"
        )
    for name in index.classes:
        if not name.isprintable():
            raise RequestError(f"{root}: the index names a class {shown(name)}, which is not a valid name")
    return Splits(index.classes, *(_positioned(root, split, index) for split in SPLITS))


def _positioned(root: Path, split: Split, index: ShardIndex) -> ImageFiles:
    files = [shard_file(root, split, number) for number in range(len(index.shards(split)))]
    found = []
    for file, shard in zip(files, index.shards(split), strict=True):
        with open_regular(file) as opened:
            size = os.fstat(opened.fileno()).st_size
        if size != shard.bytes:
            raise RequestError(f"{file}: has {size:,} bytes where the index says {shard.bytes:,}; copy it again")
        found.append(read_positions(positions_file(file), shard, len(index.classes)))
    positions = np.concatenate(found) if found else np.empty(0, POSITION)
    if not len(positions) and (split == "val" or index.samples[0]):
        raise RequestError(f"{root}: no images in the shards of {split}")
    which = np.repeat(np.arange(len(files), dtype=np.int32), [len(part) for part in found])
    by_sample = np.argsort(positions["sample"], kind="stable")
    positions = positions[by_sample]
    if (np.diff(positions["sample"]) == 0).any():
        raise RequestError(f"{root}: the shards of {split} hold an image twice; write them again")
    places = ShardPlaces(tuple(map(str, files)), which[by_sample], positions["offset"], positions["size"])
    return ImageFiles(places, positions["label"].astype(np.int64))


def _shards_of(root: Path, split: str) -> list[Path]:
    folder = first_folder(root, TRAIN_FOLDERS if split == "train" else EVALUATION_FOLDERS)
    return sorted(folder.glob("*.tar")) if folder else sorted(root.glob(f"*{split}*.tar"))


def _indexed(root: Path, split: str) -> ImageFiles:
    shards = _shards_of(root, split)
    if not shards:
        raise RequestError(f"{root}: no shards in {split}/ and none named *{split}*.tar")
    which: list[int] = []
    pieces: list[tuple[int, int]] = []
    labels: list[int] = []
    for number, shard in enumerate(shards):
        images, classes = _members(shard)
        if images.keys() != classes.keys():
            key = min(images.keys() ^ classes.keys())
            named = key if key.isprintable() else shown(key)
            raise RequestError(f"{shard}: {named} is an image without a class (.cls) or a class without an image")
        for key, piece in images.items():
            which.append(number)
            pieces.append(piece)
            labels.append(classes[key])
    if not labels:
        raise RequestError(f"{root}: no images in the shards of {split}")
    offset, size = np.array(pieces, dtype=np.int64).T
    places = ShardPlaces(tuple(str(shard) for shard in shards), np.array(which, dtype=np.int32), offset, size)
    return ImageFiles(places, np.array(labels, dtype=np.int64))


def _members(shard: Path) -> tuple[dict[str, tuple[int, int]], dict[str, int]]:
    """The positions of a shard's images, and their classes."""
    images: dict[str, tuple[int, int]] = {}
    classes: dict[str, int] = {}
    try:
        with open_regular(shard) as opened, tarfile.open(fileobj=opened, mode="r:", tarinfo=TarHeader) as tar:
            for member in tar:
                if member.isdir():
                    continue
                if not is_plain_file(member) or not 0 <= member.size <= MOST_BYTES:
                    raise RequestError(
                        f"{shard}: {shown(member.name)} is not a plain file of at most {MOST_BYTES:,} bytes"
                    )
                folder, file = os.path.split(member.name)
                stem, _, ending = file.partition(".")  # WebDataset's rule: the key ends at the first dot
                key = f"{folder}/{stem}"
                if f".{ending.lower()}" in IMAGE_ENDINGS:
                    images[key] = (member.offset_data, member.size)
                elif ending == "cls":
                    content = tar.extractfile(member)
                    classes[key] = _class_number(content.read(40) if content else b"", shard, member.name)
    except (tarfile.TarError, RecursionError) as error:  # tarfile calls itself for every extended header in a row
        raise RequestError(
            f"{shard}: truncated or not a plain tar file ({one_line(error)}); download it again"
        ) from error
    return images, classes


def _class_number(text: bytes, shard: Path, name: str) -> int:
    number = int(text) if text.strip().isdigit() else _MOST_CLASSES
    if number >= _MOST_CLASSES:
        raise RequestError(f"{shard}: {shown(name)} holds {text!r}, not a class number below {_MOST_CLASSES:,}")
    return number
