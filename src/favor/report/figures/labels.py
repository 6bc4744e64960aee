"""Label placement: where names fit beside their points without covering each other."""

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Literal

import numpy as np

from favor.report.figures.theme import LABEL_SIZE

_LETTER = 0.6 * LABEL_SIZE  # the width of a letter, on the safe side for the fonts of the theme
_LINE = 1.2 * LABEL_SIZE
_MARKER = 5.0
_GAP = 7.0
_MOST_COVERED = 1  # a name that would cover more points than this is left out

Align = Literal["left", "center", "right"]
Box = tuple[float, float, float, float]


@dataclass(frozen=True)
class Spot:
    """A point in pixels, from the upper left; `text` is its name, or empty for a point that only is in the way.

    A name avoids a `soft` spot, such as one on a line, if it can; a name that would cover several other spots is left
    out.
    """

    x: float
    y: float
    text: str = ""
    soft: bool = False


@dataclass(frozen=True)
class Placed:
    """Which of the spots gets its name, and where it starts from the point, in pixels."""

    index: int
    dx: float
    dy: float
    align: Align


def place_labels(spots: Sequence[Spot], width: float, height: float, *, outwards: Literal[-1, 1] = 1) -> list[Placed]:
    """Names for as many spots as there is room for, the earlier ones first; `outwards` is the side that is tried first.

    >>> place_labels([Spot(10, 50, "vit_s16"), Spot(12, 50, "swin_ti")], 300, 100)[0]
    Placed(index=0, dx=7.0, dy=-7.0, align='left')
    """
    points = np.array([[spot.x for spot in spots], [spot.y for spot in spots]])
    soft = np.array([spot.soft for spot in spots], dtype=bool)
    taken: list[Box] = []
    placed = []
    for index, spot in enumerate(spots):
        if not spot.text:
            continue
        choices = [
            (*_covered(box, points, soft, index), order, dx, dy, align, box)
            for order, (dx, dy, align) in enumerate(_offsets(outwards))
            if _inside(box := label_box(spot, dx, dy, align), width, height)
            and not any(_meet(box, other) for other in taken)
        ]
        if not choices:
            continue
        covered, _, _, dx, dy, align, box = min(choices)
        if covered <= _MOST_COVERED:
            taken.append(box)
            placed.append(Placed(index, dx, dy, align))
    return placed


def _offsets(outwards: Literal[-1, 1]) -> list[tuple[float, float, Align]]:
    """Where a name may start: up and outwards first, then the other corners, above, below and the sides."""
    near: Align = "left" if outwards == 1 else "right"
    far: Align = "right" if outwards == 1 else "left"
    return [
        (outwards * _GAP, -_GAP, near),
        (outwards * (_GAP + 2), 0.0, near),
        (0.0, -1.6 * _GAP, "center"),
        (-outwards * _GAP, -_GAP, far),
        (outwards * _GAP, _GAP, near),
        (-outwards * (_GAP + 2), 0.0, far),
        (0.0, 1.6 * _GAP, "center"),
        (-outwards * _GAP, _GAP, far),
    ]


def label_box(spot: Spot, dx: float, dy: float, align: Align) -> Box:
    """The rectangle of a name whose middle line is at the offset."""
    wide = _LETTER * len(spot.text)
    left = spot.x + dx - {"left": 0.0, "center": wide / 2, "right": wide}[align]
    return (left, spot.y + dy - _LINE / 2, left + wide, spot.y + dy + _LINE / 2)


def _meet(a: Box, b: Box) -> bool:
    return a[0] < b[2] and b[0] < a[2] and a[1] < b[3] and b[1] < a[3]


def _inside(box: Box, width: float, height: float) -> bool:
    return box[0] >= 0 and box[1] >= 0 and box[2] <= width and box[3] <= height


def _covered(box: Box, points: np.ndarray, soft: np.ndarray, own: int) -> tuple[int, int]:
    """How many points a name would cover, and how much of lines."""
    x, y = points
    hit = (box[0] - _MARKER < x) & (x < box[2] + _MARKER) & (box[1] - _MARKER < y) & (y < box[3] + _MARKER)
    hit[own] = False
    lines = int((hit & soft).sum())
    return int(hit.sum()) - lines, lines
