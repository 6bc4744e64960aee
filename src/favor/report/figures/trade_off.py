"""Quality against one cost: the points, the Pareto front, and the front of the high-resolution models alone."""

from collections.abc import Collection, Iterator, Mapping, Sequence
from dataclasses import dataclass
from itertools import pairwise
from typing import Literal

import altair as alt
import pandas as pd

from favor.analyze import pareto
from favor.analyze.trainings import unequal_lengths
from favor.report.figures.axes import Axis, axis_of, x_axis, y_axis
from favor.report.figures.scatter import NARROW, WIDE, Scatter, scatter_layers, scatter_of, with_ends
from favor.report.figures.theme import HEIGHT, PANEL_HEIGHT, PANEL_WIDTH, Rows, several_plots

_STEPS = 24  # parts in which each piece of a front is passed to the placing of names


@dataclass(frozen=True)
class FrontPoint:
    """A corner of a front, in the axes' units."""

    name: str
    x: float
    y: float


@dataclass(frozen=True)
class TradeOff:
    """All points of two metrics; fronts from the lowest x to the highest. `high_resolution` is empty without such.

    Training runs of `unequal` length make no front.
    """

    scatter: Scatter
    front: tuple[FrontPoint, ...]
    high_resolution: tuple[FrontPoint, ...]
    unequal: str | None = None

    @property
    def step(self) -> Literal["step-before", "step-after"]:
        """How a front goes from corner to corner: between two of them only the worse quality is reached."""
        return "step-before" if self.scatter.x.better == "higher" else "step-after"


def trade_off(
    rows: pd.DataFrame,
    cost: str,
    *,
    base_size: int | None,
    flags: Mapping[str, str] | None = None,
) -> TradeOff:
    """The trade-off of rows that have both metrics; `flags` says which models make no front, and why.

    >>> rows = pd.DataFrame({"name": ["a", "b"], "how": ["fixed", "sparse"], "img_size": 224, "params": [5e6, 9e6],
    ...                      "top1": [80.0, 79.0]})
    >>> [point.name for point in trade_off(rows, "params", base_size=224).front]
    ['a']
    """
    x, y = axis_of(cost, with_ends(rows, cost)), axis_of("top1", with_ends(rows, "top1"))
    admitted = rows[~rows["name"].isin(list(flags or {}))]
    unequal = unequal_lengths(admitted)
    admitted = admitted[:0] if unequal else admitted
    front = _front(admitted, x, y)
    large = admitted[admitted["img_size"] > base_size] if base_size is not None else admitted[:0]
    named = {(corner.name, corner.x, corner.y) for corner in front}
    scatter = scatter_of(rows, x, y, base_size=base_size, flags=flags, named=named)
    return TradeOff(scatter, front, _front(large, x, y), unequal)


def _front(rows: pd.DataFrame, x: Axis, y: Axis) -> tuple[FrontPoint, ...]:
    if not len(rows):
        return ()
    members = pareto(rows, [x.column, y.column], draws=0).front
    corners = [FrontPoint(one.name, x.shown(one.values[x.column]), y.shown(one.values[y.column])) for one in members]
    return tuple(sorted(corners, key=lambda corner: (corner.x, corner.y)))


def trade_off_panels(infos: Mapping[str, TradeOff]) -> alt.ConcatChart:
    """Several drawings by their titles, with one legend of all their classes."""
    classes = {title for info in infos.values() for title in info.scatter.classes}
    return several_plots(
        trade_off_layers(info, widths=(PANEL_WIDTH,), height=PANEL_HEIGHT, classes=classes).properties(
            width=PANEL_WIDTH, height=PANEL_HEIGHT, title=title
        )
        for title, info in infos.items()
    )


def trade_off_layers(
    info: TradeOff,
    *,
    widths: Sequence[int] = (WIDE, NARROW),
    height: int = HEIGHT,
    classes: Collection[str] | None = None,
) -> alt.LayerChart:
    """The drawing: intervals, fronts, points, and names along the front; `widths` are those it may be drawn at."""
    x, y = x_axis(info.scatter.x), y_axis(info.scatter.y)
    fronts = []
    for corners, style in ((info.high_resolution, "high-resolution-front"), (info.front, "front")):
        if corners:
            values = [{"x": corner.x, "y": corner.y} for corner in corners]
            line = alt.Chart(Rows(values)).mark_line(style=style, interpolate=info.step, clip=True)
            fronts.append(line.encode(x=x, y=y, order="x:Q"))
    way = list(_along(info))
    return scatter_layers(info.scatter, below=fronts, in_the_way=way, widths=widths, height=height, classes=classes)


def _along(info: TradeOff) -> Iterator[tuple[float, float]]:
    """Points along the front's steps, for names to keep off."""
    for left, right in pairwise(info.front):
        corner = (left.x, right.y) if info.step == "step-before" else (right.x, left.y)
        for start, end in (((left.x, left.y), corner), (corner, (right.x, right.y))):
            for step in range(_STEPS + 1):
                share = step / _STEPS
                yield start[0] + share * (end[0] - start[0]), start[1] + share * (end[1] - start[1])
