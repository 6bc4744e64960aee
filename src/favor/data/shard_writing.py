"""Write a dataset as WebDataset shards: `KEY.jpg` and `KEY.cls` in tar files of limited size.

Each split is shuffled once, so that readers that go through the shards in order see all classes mixed. The key is the
number of the sample: favor visits the samples of shards in the order, and with the random numbers, of the set itself.

A shard appears under its name when it is complete, and then in the index. A killed run goes on after the last one.
The content depends on the dataset and the limit only, so that two runs into one folder do no harm.
"""

import io
import os
import tarfile
from collections.abc import Callable, Iterable, Iterator
from dataclasses import dataclass
from pathlib import Path
from typing import BinaryIO

import msgspec
import numpy as np
from msgspec.structs import replace
from numpy.typing import NDArray
from PIL import Image

from favor.data.broken import BrokenImages
from favor.data.decoding import FORMATS, UndecodableImageError, format_of
from favor.data.draws import order
from favor.data.image_files import ImageFiles, broken_image
from favor.data.in_memory import InMemory
from favor.data.shard_index import (
    INDEX_NAME,
    POSITION,
    SPLITS,
    Shard,
    ShardIndex,
    Split,
    positions_file,
    read_index,
    shard_file,
)
from favor.data.sources import DataSet, ImageSource
from favor.errors import RequestError
from favor.regular_file import UnreadableFileError

LEAST_SHARD_BYTES = 2**15
_ENDINGS = {form: form.lower() for form in FORMATS} | {"JPEG": "jpg", "MPO": "jpg"}  # MPO: a JPEG with more after it
_BLOCK = tarfile.BLOCKSIZE


@dataclass(frozen=True)
class _Entry:
    """An encoded image on its way into a shard."""

    sample: int
    label: int
    content: bytes
    ending: str

    @property
    def bytes_in_tar(self) -> int:
        """Two headers, the class, and the image in whole blocks."""
        return 3 * _BLOCK + -(-len(self.content) // _BLOCK) * _BLOCK


def write_shards(
    data: DataSet, name: str, into: Path, shard_bytes: int, broken: BrokenImages, on_visit: Callable[[int], None]
) -> ShardIndex:
    """Write what is missing, and return the complete index; `on_visit` gets the number of samples visited since."""
    if shard_bytes < LEAST_SHARD_BYTES:
        raise RequestError(f"--shard-size must be at least {LEAST_SHARD_BYTES:,} bytes, not {shard_bytes:,}")
    samples = (len(data.train), len(data.evaluation))
    into.mkdir(parents=True, exist_ok=True)
    index = _begun(into, ShardIndex(data=name, classes=data.classes, samples=samples, shard_bytes=shard_bytes))
    for split, source in zip(SPLITS, (data.train, data.evaluation), strict=True):
        if len(source):
            (into / split).mkdir(exist_ok=True)
        done = _intact(into, split, index)
        visited = sum(shard.visited for shard in done)
        on_visit(visited)
        remaining = _Remaining(source, order(0, 0, len(source))[visited:], broken)
        while remaining.count:
            before = remaining.count
            shard = _write(shard_file(into, split, len(done)), remaining.up_to(shard_bytes, on_visit))
            done = (*done, replace(shard, visited=before - remaining.count))
            index = replace(index, **{split: done})
            _replace(into / INDEX_NAME, msgspec.json.encode(index))
    return index


def _begun(into: Path, wanted: ShardIndex) -> ShardIndex:
    """The index of an earlier run with the same data and limit, or an empty one."""
    index = read_index(into)
    if index is None:
        if next(into.iterdir(), None) is not None:
            raise RequestError(f"{into}: this folder is not empty; choose another one with -o DIR")
        _replace(into / INDEX_NAME, msgspec.json.encode(wanted))
        return wanted
    if replace(index, train=(), val=()) != wanted:
        raise RequestError(
            f"{into}: holds other shards ({index.data}, {index.samples[0]:,} + {index.samples[1]:,} images, "
            f"--shard-size {index.shard_bytes}); choose another folder with -o DIR"
        )
    return index


def _intact(into: Path, split: Split, index: ShardIndex) -> tuple[Shard, ...]:
    """The shards before the first one that is missing or has another size than the index says."""
    shards = index.shards(split)
    for number, shard in enumerate(shards):
        file = shard_file(into, split, number)
        sizes = [part.stat().st_size if part.is_file() else -1 for part in (file, positions_file(file))]
        if sizes != [shard.bytes, shard.images * POSITION.itemsize]:
            return shards[:number]
    return shards


class _Remaining:
    """The samples of a split that are in no shard yet."""

    def __init__(self, source: ImageSource, samples: NDArray[np.int64], broken: BrokenImages) -> None:
        self.count = len(samples)
        self._entries = (_entry(source, int(sample), broken) for sample in samples)
        self._waiting: _Entry | None = None

    def up_to(self, shard_bytes: int, on_visit: Callable[[int], None]) -> Iterator[_Entry]:
        """The next images that fit into a shard, at least one."""
        room = shard_bytes - tarfile.RECORDSIZE  # a tar file ends with zeros, up to a whole record
        size = 0
        while self.count:
            self._waiting = self._waiting or next(self._entries)
            if self._waiting is not None:
                size += self._waiting.bytes_in_tar
                if room < size != self._waiting.bytes_in_tar:
                    return
                yield self._waiting
                self._waiting = None
            self.count -= 1
            on_visit(1)


def _entry(source: ImageSource, sample: int, broken: BrokenImages) -> _Entry | None:
    """An image as it is in its file, or as PNG if it comes from memory; None if it is broken."""
    label = int(source.labels[sample])
    if isinstance(source, InMemory):
        buffer = io.BytesIO()
        Image.fromarray(source.images[sample].permute(1, 2, 0).numpy()).save(buffer, "PNG")
        return _Entry(sample, label, buffer.getvalue(), "png")
    if not isinstance(source, ImageFiles):
        raise TypeError(f"{type(source).__name__} has neither files nor images in memory")
    try:
        content = source.places.read(sample)
        return _Entry(sample, label, content, _ENDINGS[format_of(content)])
    except (UnreadableFileError, UndecodableImageError) as error:
        broken.add([broken_image(source.places.name(sample), error)])
        return None


def _write(file: Path, entries: Iterable[_Entry]) -> Shard:
    positions: list[tuple[int, int, int, int]] = []

    def fill(part: BinaryIO) -> None:
        with tarfile.open(fileobj=part, mode="w", format=tarfile.USTAR_FORMAT) as tar:
            for entry in entries:
                positions.append((tar.offset + _BLOCK, len(entry.content), entry.sample, entry.label))
                for ending, content in ((entry.ending, entry.content), ("cls", str(entry.label).encode())):
                    header = tarfile.TarInfo(f"{entry.sample:09d}.{ending}")
                    header.size = len(content)
                    tar.addfile(header, io.BytesIO(content))

    _replace(file, fill)
    _replace(positions_file(file), np.array(positions, dtype=POSITION).tobytes())
    return Shard(images=len(positions), bytes=file.stat().st_size, visited=0)


def _replace(file: Path, content: bytes | Callable[[BinaryIO], None]) -> None:
    """Write a file that is there as a whole or not at all."""
    part = file.with_name(f".{file.name}.{os.getpid()}")
    try:
        with part.open("wb") as opened:
            if callable(content):
                content(opened)
            else:
                opened.write(content)
            opened.flush()
            os.fsync(opened.fileno())
        part.replace(file)
    finally:
        part.unlink(missing_ok=True)
