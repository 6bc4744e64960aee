"""The index of the shards that `favor shards` wrote: how many images each has, and the names of the classes.

`index.json` counts; beside each `train/000000.tar`, `train/000000.positions` says where its images are. With both,
a set of millions of images is opened without reading the headers of its tar files.
"""

import os
from pathlib import Path
from typing import Annotated, Literal

import msgspec
import numpy as np
from numpy.typing import NDArray

from favor.data.decoding import MOST_BYTES
from favor.errors import RequestError, one_line
from favor.regular_file import read_regular

INDEX_NAME = "index.json"
POSITION = np.dtype([("offset", "<i8"), ("size", "<i8"), ("sample", "<i4"), ("label", "<i4")])
"""An image in a shard: its first byte and length, its number in the dataset, and its class."""
Split = Literal["train", "val"]
SPLITS: tuple[Split, Split] = ("train", "val")
_MOST_INDEX_BYTES = 2**26
_Count = Annotated[int, msgspec.Meta(ge=0, le=2**40)]
_Text = Annotated[str, msgspec.Meta(max_length=1000)]


class Shard(msgspec.Struct, frozen=True, forbid_unknown_fields=True):
    """A complete shard; `visited` counts its images and the broken ones that were left out."""

    images: _Count
    bytes: _Count
    visited: _Count


class ShardIndex(msgspec.Struct, frozen=True, forbid_unknown_fields=True, kw_only=True):
    """The shards of both splits, and the dataset and limit that they were written with."""

    format: Literal["favor-shards-1"] = "favor-shards-1"
    data: _Text
    classes: Annotated[tuple[_Text, ...], msgspec.Meta(max_length=100_000)]
    samples: tuple[_Count, _Count]
    shard_bytes: _Count
    train: Annotated[tuple[Shard, ...], msgspec.Meta(max_length=1_000_000)] = ()
    val: Annotated[tuple[Shard, ...], msgspec.Meta(max_length=1_000_000)] = ()

    def shards(self, split: Split) -> tuple[Shard, ...]:
        return self.train if split == "train" else self.val

    @property
    def is_complete(self) -> bool:
        """Whether every sample has been visited."""
        return self.samples == tuple(sum(shard.visited for shard in self.shards(split)) for split in SPLITS)


def shard_file(root: Path, split: Split, number: int) -> Path:
    """The file of a shard; its positions are beside it."""
    return root / split / f"{number:06d}.tar"


def positions_file(shard: Path) -> Path:
    return shard.with_suffix(".positions")


def read_index(root: Path) -> ShardIndex | None:
    """The index of a folder; None if it has none."""
    file = root / INDEX_NAME
    if not os.path.lexists(file):
        return None
    try:
        return msgspec.json.decode(read_regular(file, _MOST_INDEX_BYTES), type=ShardIndex)
    except (msgspec.DecodeError, UnicodeDecodeError, RecursionError) as error:
        raise RequestError(
            f"{file}: not an index of shards ({one_line(error)}); delete it to read the shards without it"
        ) from error


def read_positions(file: Path, shard: Shard, classes: int) -> NDArray[np.void]:
    """Where the images of a shard are, checked against its size and the number of classes."""
    content = read_regular(file, shard.images * POSITION.itemsize)
    if len(content) != shard.images * POSITION.itemsize:
        raise RequestError(f"{file}: {len(content):,} bytes do not fit {shard.images:,} images; write the shards again")
    positions = np.frombuffer(content, dtype=POSITION)
    fits = (positions["offset"] >= 0) & (positions["size"] >= 0) & (positions["size"] <= min(MOST_BYTES, shard.bytes))
    fits &= positions["offset"] <= shard.bytes - positions["size"]
    fits &= (positions["sample"] >= 0) & (positions["label"] >= 0) & (positions["label"] < classes)
    if not fits.all():
        raise RequestError(
            f"{file}: image {int(np.argmin(fits))} is outside its shard or has no valid class; write the shards again"
        )
    return positions
