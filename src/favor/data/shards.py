"""WebDataset shards: plain tar files in which `KEY.jpg` is an image and `KEY.cls` the number of its class.

The headers of all shards are read once; after that, an image takes one seek and one read, in any order.
"""

import os
import tarfile
from dataclasses import dataclass
from pathlib import Path

import numpy as np
from numpy.typing import NDArray

from favor.data.archive import TarHeader, is_plain_file
from favor.data.folder import EVALUATION_FOLDERS, IMAGE_ENDINGS, TRAIN_FOLDERS, first_folder
from favor.data.image_files import MOST_BYTES, ImageFiles
from favor.data.sources import Splits
from favor.errors import RequestError, one_line, shown
from favor.regular_file import open_regular

_MOST_CLASSES = 100_000


@dataclass(frozen=True)
class ShardPlaces:
    """Images as members of shards."""

    shards: tuple[str, ...]
    shard: NDArray[np.int32]
    offset: NDArray[np.int64]
    size: NDArray[np.int64]

    def __len__(self) -> int:
        return len(self.shard)

    def read(self, sample: int) -> bytes:
        with open_regular(Path(self.shards[self.shard[sample]])) as file:
            file.seek(int(self.offset[sample]))
            return file.read(int(self.size[sample]))

    def name(self, sample: int) -> str:
        return f"{self.shards[self.shard[sample]]} at byte {self.offset[sample]}"


def has_shards(root: Path) -> bool:
    """Whether the folder holds shards rather than class folders."""
    return bool(_shards_of(root, "train"))


def open_shards(root: Path) -> Splits:
    """Shards in `train/` and `val/`, or in one folder with `train` and `val` in their names."""
    train, evaluation = (_indexed(root, split) for split in ("train", "val"))
    classes = 1 + max(int(train.labels.max()), int(evaluation.labels.max()))
    return Splits(tuple(str(label) for label in range(classes)), train, evaluation)


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
