"""How a matrix product is cut into tiles: what is computed in vain at the edges, and how many tiles there are."""

from dataclasses import dataclass
from functools import lru_cache
from math import ceil

# Rows and columns of the output that one thread block makes, as the libraries' kernels have them.
_TILES = ((256, 128), (128, 256), (128, 128), (256, 64), (128, 64), (64, 128), (64, 64), (128, 32), (64, 32), (32, 32))
_PART, _ENOUGH = 4096, 512  # sums of at least two such parts are cut into them, until there are enough tiles
_REUSE = 24  # a tile of n x n reads 2/n operands per product; at this side it takes twice as long as without reading


@dataclass(frozen=True, slots=True)
class Tiling:
    """The products that are computed, those at padded edges included, and the tiles that they are cut into."""

    macs: int
    tiles: int


@lru_cache(maxsize=65536)
def tiling(rows: int, columns: int, inner: int, batch: int = 1) -> Tiling:
    """The tiling of `batch` products of (rows x inner) with (inner x columns) that takes least.

    Small tiles waste less at the edges and read their operands more often. A long sum, as that of a weight's gradient
    over all images, is cut into parts where the tiles alone would leave most of a GPU idle.

    >>> tiling(1024, 1024, 64)
    Tiling(macs=67108864, tiles=32)
    >>> tiling(1024, 96, 64).macs / (1024 * 128 * 64)
    1.0
    >>> tiling(384, 384, 65536).tiles
    144
    """
    depth = 8 * ceil(inner / 8)
    candidates = (
        (ceil(rows / height), ceil(columns / width), height, width, 1 + _REUSE * (1 / height + 1 / width))
        for height, width in _TILES
    )
    down, across, height, width, _ = min(candidates, key=lambda tile: tile[0] * tile[1] * tile[2] * tile[3] * tile[4])
    tiles = batch * down * across
    parts = max(1, min(inner // _PART, ceil(_ENOUGH / tiles)))
    return Tiling(batch * down * height * across * width * depth, tiles * parts)
