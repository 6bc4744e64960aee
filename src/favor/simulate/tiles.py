"""How a matrix product is cut into tiles: what is computed in vain at the edges, and how many tiles there are."""

from collections.abc import Iterator
from functools import lru_cache
from math import ceil
from typing import NamedTuple

# Rows and columns of the output that one thread block makes, as the libraries' kernels have them.
_TILES = ((256, 128), (128, 256), (128, 128), (256, 64), (128, 64), (64, 128), (64, 64), (128, 32), (64, 32), (32, 32))
_REUSE = 24  # a tile of n x n reads 2/n operands per product; at this side it takes twice as long as without reading
_LEAST_PART = 512  # a sum is cut into parts of at least so many products
_JOINING = 128  # and to put a part's result to the others takes as long as so many products more
_ENOUGH = 1024  # tiles that keep any GPU busy to the end
_WORTH_TRYING = 1.15  # times as many tiles


class Cut(NamedTuple):
    """A way to cut a product: the products computed, padded edges included, the tiles, and what reading adds to them.

    `slower` is how many times as long products take as they do in the largest tiles.
    """

    macs: int
    tiles: int
    slower: float


@lru_cache(maxsize=65536)
def cuts(rows: int, columns: int, inner: int, batch: int = 1) -> tuple[Cut, ...]:
    """The ways to cut `batch` products of (rows x inner) with (inner x columns), the one that computes least first.

    Small tiles waste less at the edges and read their operands more often, and a sum that is cut into parts is put
    together again. Either gives more tiles: the further ones are for GPUs that the first would leave idle, and there
    are none of them where it keeps any GPU busy. Cuts with more work and fewer tiles are not among them, though one may
    fit better into a GPU's last round: they would save 0.3 % in the mean.

    >>> [cut.tiles for cut in cuts(65536, 1024, 64)]
    [2048]
    >>> [cut.tiles for cut in cuts(197, 384, 1536)][:4]
    [3, 6, 12, 24]
    """
    kept: list[Cut] = []
    for cut in sorted(_all(rows, columns, inner, batch), key=lambda cut: cut.macs * cut.slower):
        if not kept or _WORTH_TRYING * kept[-1].tiles < cut.tiles:
            kept.append(cut)
        if kept[-1].tiles >= _ENOUGH:
            break
    return tuple(kept)


def _all(rows: int, columns: int, inner: int, batch: int) -> Iterator[Cut]:
    depth = 8 * ceil(inner / 8)
    for height, width in _TILES:
        tiles = batch * ceil(rows / height) * ceil(columns / width)
        reading = _reading(height, width) / _reading(*_TILES[0])
        parts = 1
        while parts == 1 or (parts * _LEAST_PART <= inner and parts * tiles <= _ENOUGH):
            joining = 1 + _JOINING * (parts - 1) / max(1, inner)
            yield Cut(tiles * height * width * depth, tiles * parts, reading * joining)
            parts *= 2


def _reading(height: int, width: int) -> float:
    return 1 + _REUSE * (1 / height + 1 / width)
