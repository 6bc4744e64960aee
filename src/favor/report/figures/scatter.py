"""Models as points of two numbers: intervals, markers by class and image size, and names where there is room."""

from collections.abc import Collection, Mapping, Sequence
from dataclasses import dataclass
from typing import Any

import altair as alt
import numpy as np
import pandas as pd

from favor.analyze.flags import is_disturbed, marked
from favor.analyze.intervals import has_known_uncertainty
from favor.analyze.setting import column_of
from favor.report.class_style import class_style
from favor.report.figures.axes import Axis, x_axis, y_axis
from favor.report.figures.labels import Spot, place_labels
from favor.report.figures.theme import HEIGHT, SECOND_SERIES, Rows, class_encodings, layered

# Beyond this many points intervals only blur the picture and swell the page; then those of named points are drawn.
_MOST_INTERVALS = 250
_MOST_LABELS = 30
# A plot is laid out for two widths; which of the two sets of labels is shown is decided where it is drawn.
WIDE, NARROW = 600, 270
_NARROW_BELOW = 430


@dataclass(frozen=True)
class Point:
    """A model where it is drawn, in the axes' units, with its intervals where they are known.

    `flag` says why its accuracy is not that of our model. One of the numbers of a `doubtful` point was measured on a
    busy machine or contradicts others; one of an `unsure` point has no interval. A `named` point has its name beside it
    where there is room.
    """

    name: str
    class_title: str
    x: float
    y: float
    x_low: float | None
    x_high: float | None
    y_low: float | None
    y_high: float | None
    img_size: int | None
    simulated: bool
    flag: str | None
    doubtful: bool
    unsure: bool
    named: bool


@dataclass(frozen=True)
class Name:
    """A text that belongs to a place, in the axes' units."""

    text: str
    x: float
    y: float


@dataclass(frozen=True)
class Scatter:
    """Points of two axes; `base_size` is the usual image size, which labels omit."""

    x: Axis
    y: Axis
    points: tuple[Point, ...]
    base_size: int | None

    @property
    def classes(self) -> list[str]:
        """The titles of the classes that have a point."""
        return list(dict.fromkeys(point.class_title for point in self.points))

    @property
    def beyond(self) -> int:
        """How many points lie beyond the axes."""
        x, y = self.x, self.y
        return sum(not (x.low <= point.x <= x.high and y.low <= point.y <= y.high) for point in self.points)

    def marks_sentence(self) -> str:
        """What the marks on points mean, with a space before it; empty where there are none."""
        return marks_sentence([self])


def marks_sentence(scatters: Sequence[Scatter]) -> str:
    """The same of several drawings together."""
    points = [point for scatter in scatters for point in scatter.points]
    doubtful, unsure = sum(point.doubtful for point in points), sum(point.unsure for point in points)
    beyond = sum(scatter.beyond for scatter in scatters)
    said = {
        "Hollow: simulated.": any(point.simulated for point in points),
        f"Orange ring: {doubtful} measured on a busy machine, or contradictory.": doubtful,
        f"Blurred edge: {unsure} with a number without an interval.": unsure,
        f"{beyond} points beyond the axes are drawn at the edge.": beyond,
    }
    return "".join(f" {sentence}" for sentence, is_so in said.items() if is_so)


def scatter_of(
    rows: pd.DataFrame,
    x: Axis,
    y: Axis,
    *,
    base_size: int | None,
    flags: Mapping[str, str] | None = None,
    named: Collection[tuple[str, float, float]] = (),
) -> Scatter:
    """The rows as points. `named` lists what to label by name and place; plain ViTs always are."""
    ends = (f"{axis.column}{part}" for axis in (x, y) for part in ("", "_low", "_high", "_source"))
    drawn = rows[[column for column in dict.fromkeys(["name", "how", "img_size", *ends]) if column in rows.columns]]
    shown = (x.column, y.column)
    drawn = drawn.assign(
        doubtful=np.logical_or.reduce([marked(column_of(rows, f"{name}_flags"), is_disturbed) for name in shown]),
        unsure=~np.logical_and.reduce([has_known_uncertainty(rows, name) for name in shown]),
    )
    drawn = drawn.astype(object).where(drawn.notna(), None)
    points = (_point(row, x, y, flags or {}, named) for row in drawn.to_dict("records"))
    return Scatter(x, y, tuple(points), base_size)


def with_ends(rows: pd.DataFrame, column: str) -> list[float]:
    """A column's values and the ends of their intervals: the range that an axis must cover."""
    columns = [name for name in (column, f"{column}_low", f"{column}_high") if name in rows.columns]
    return [float(value) for name in columns for value in rows[name].dropna()]


def _point(
    row: Mapping[Any, Any], x: Axis, y: Axis, flags: Mapping[str, str], named: Collection[tuple[str, float, float]]
) -> Point:
    name, shown_x, shown_y = str(row["name"]), x.shown(row[x.column]), y.shown(row[y.column])
    return Point(
        name=name,
        class_title=class_style(row.get("how")).title,
        x=shown_x,
        y=shown_y,
        x_low=_end(row, x, "low"),
        x_high=_end(row, x, "high"),
        y_low=_end(row, y, "low"),
        y_high=_end(row, y, "high"),
        img_size=None if row.get("img_size") is None else int(row["img_size"]),
        simulated="simulated" in (row.get(f"{x.column}_source"), row.get(f"{y.column}_source")),
        flag=flags.get(name),
        doubtful=bool(row["doubtful"]),
        unsure=bool(row["unsure"]),
        named=(name, shown_x, shown_y) in named,
    )


def _end(row: Mapping[Any, Any], axis: Axis, end: str) -> float | None:
    value = row.get(f"{axis.column}_{end}")
    return None if value is None else axis.shown(value)


def scatter_layers(
    info: Scatter,
    *,
    below: Sequence[alt.Chart] = (),
    in_the_way: Sequence[tuple[float, float]] = (),
    widths: Sequence[int] = (WIDE, NARROW),
    height: int = HEIGHT,
    classes: Collection[str] | None = None,
) -> alt.LayerChart:
    """The drawing, with other layers below the points; names keep off what is `in_the_way`, in the axes' units.

    `classes` are those of the legend, where it is also that of other drawings: colors are given out by their order.
    """
    x, y = x_axis(info.x), y_axis(info.y)
    layers = [*_interval_layers(info, x, y), *below, *_rings(info, x, y)]
    layers.append(_point_layer(info, x, y, classes or info.classes))
    names, others = _names(info)
    layers += name_layers(names, info.x, info.y, others=others, in_the_way=in_the_way, widths=widths, height=height)
    return layered(*layers)


def _rings(info: Scatter, x: alt.X, y: alt.Y) -> list[alt.Chart]:
    """The rings around doubtful points."""
    values = [{"x": point.x, "y": point.y} for point in info.points if point.doubtful]
    ring = alt.Chart(Rows(values)).mark_point(
        shape="circle", size=240, filled=False, stroke=SECOND_SERIES, opacity=1, clip=True
    )
    return [ring.encode(x=x, y=y)] if values else []


def _point_layer(info: Scatter, x: alt.X, y: alt.Y, legend_classes: Collection[str]) -> alt.Chart:
    sizes = sorted({point.img_size for point in info.points if point.img_size is not None})
    encodings = class_encodings(legend_classes)
    tooltip = [
        alt.Tooltip("name:N", title="Model"),
        alt.Tooltip("class:N", title="Class"),
        alt.Tooltip("x:Q", title=info.x.described()),
        alt.Tooltip("y:Q", title=info.y.described()),
        alt.Tooltip("px:Q", title="Image size [px]"),
    ]
    if len(sizes) > 1:
        legend = alt.Legend(title="Image size [px]", orient="bottom", values=_few(sizes), symbolType="circle")
        scale = alt.Scale(domain=[sizes[0], sizes[-1]], range=[35, 130])
        encodings["size"] = alt.Size("px:Q", scale=scale, legend=legend)
    if any(point.simulated for point in info.points):
        encodings["fillOpacity"] = hollow("simulated")
        tooltip.append(alt.Tooltip("simulated:N", title="Simulated"))
    if any(point.unsure for point in info.points):
        encodings["strokeWidth"] = _if_unsure(5, 1.2)
        encodings["strokeOpacity"] = _if_unsure(0.25, 1)
    if any(point.flag is not None for point in info.points):
        encodings["opacity"] = alt.when(alt.datum.decides == "no").then(alt.value(0.35)).otherwise(alt.value(1))
        tooltip.append(alt.Tooltip("flag:N", title="Accuracy of another configuration"))
    titles = Rows([{"how": number, "class": title} for number, title in enumerate(info.classes)])
    places = {title: number for number, title in enumerate(info.classes)}
    values = [_point_data(point, places[point.class_title], encodings) for point in info.points]
    return (
        alt.Chart(Rows(values))
        .transform_lookup("how", from_=alt.LookupData(titles, key="how", fields=["class"]))
        .mark_point(size=60, strokeWidth=1.2, fillOpacity=0.85, clip=True)
        .encode(x=x, y=y, tooltip=tooltip, **encodings)
    )


def _if_unsure(blurred: float, sharp: float) -> Any:
    """The look of a marker's edge, blurred where the field says so."""
    return alt.when(alt.datum.unsure == 1).then(alt.value(blurred)).otherwise(alt.value(sharp))


def hollow(field: str) -> Any:
    """The opacity of a marker's inside: none where the field says "yes"."""
    return alt.when(alt.datum[field] == "yes").then(alt.value(0)).otherwise(alt.value(0.85))


def _point_data(point: Point, how: int, encodings: Collection[str]) -> dict[str, Any]:
    """The point's fields that are drawn or shown; points are many, so the class is a number, and nothing is idle."""
    data: dict[str, Any] = {"name": point.name, "how": how, "x": point.x, "y": point.y}
    if point.img_size is not None:
        data["px"] = point.img_size
    if "fillOpacity" in encodings:
        data["simulated"] = "yes" if point.simulated else "no"
    if point.unsure:
        data["unsure"] = 1
    if "opacity" in encodings:
        data["decides"] = "yes" if point.flag is None else "no"
    if point.flag is not None:
        data["flag"] = point.flag
    return data


def _few(sizes: Sequence[int]) -> list[int]:
    """At most four sizes for a legend: the ends and what is between.

    >>> _few([160, 192, 224, 256, 288, 384])
    [160, 192, 224, 384]
    """
    step = max(1, (len(sizes) - 1) // 3)
    return sorted({*sizes[::step][:3], sizes[-1]})


def _interval_layers(info: Scatter, x: alt.X, y: alt.Y) -> list[alt.Chart]:
    drawn = [point for point in info.points if len(info.points) <= _MOST_INTERVALS or point.named]
    across = [
        {"low": point.x_low, "high": point.x_high, "y": point.y}
        for point in drawn
        if point.x_low is not None and point.x_high is not None
    ]
    up = [
        {"low": point.y_low, "high": point.y_high, "x": point.x}
        for point in drawn
        if point.y_low is not None and point.y_high is not None
    ]
    layers = []
    if across:
        rules = alt.Chart(Rows(across)).mark_rule(style="interval", clip=True)
        layers.append(rules.encode(x=x_axis(info.x, "low"), x2="high:Q", y=y))
    if up:
        rules = alt.Chart(Rows(up)).mark_rule(style="interval", clip=True)
        layers.append(rules.encode(x=x, y=y_axis(info.y, "low"), y2="high:Q"))
    return layers


def name_layers(
    names: Sequence[Name],
    x: Axis,
    y: Axis,
    *,
    others: Sequence[tuple[float, float]] = (),
    in_the_way: Sequence[tuple[float, float]] = (),
    widths: Sequence[int] = (WIDE, NARROW),
    height: int = HEIGHT,
) -> list[alt.Chart]:
    """The names that have room, the first ones first, laid out for each width; only one of the layers is ever seen."""
    layers = []
    for width in widths:
        values = _placed(names, x, y, others, in_the_way, width, height)
        fits = f"width < {_NARROW_BELOW} ? {'1 : 0' if width < _NARROW_BELOW else '0 : 1'}"
        text = alt.Chart(Rows(values)).mark_text(
            style="label",
            baseline="middle",
            fillOpacity=1 if len(widths) == 1 else alt.ExprRef(fits),
            dx=alt.ExprRef("datum.dx"),
            dy=alt.ExprRef("datum.dy"),
            align=alt.ExprRef("datum.align"),
        )
        if values:
            layers.append(text.encode(x=x_axis(x), y=y_axis(y), text="name:N"))
    return layers


def _placed(
    names: Sequence[Name],
    x: Axis,
    y: Axis,
    others: Sequence[tuple[float, float]],
    in_the_way: Sequence[tuple[float, float]],
    width: int,
    height: int,
) -> list[dict[str, Any]]:
    def spot(at_x: float, at_y: float, text: str = "", soft: bool = False) -> Spot:
        return Spot(x.place(at_x) * width, (1 - y.place(at_y)) * height, text, soft)

    spots = [
        *(spot(name.x, name.y, name.text) for name in names),
        *(spot(*point) for point in others),
        *(spot(*point, soft=True) for point in in_the_way),
    ]
    placed = place_labels(spots, width, height, outwards=1 if x.better == "higher" else -1)
    return [
        {
            "name": names[place.index].text,
            "x": names[place.index].x,
            "y": names[place.index].y,
            "dx": place.dx,
            "dy": place.dy,
            "align": place.align,
        }
        for place in placed
    ]


def _names(info: Scatter) -> tuple[list[Name], list[tuple[float, float]]]:
    """What to name, and the other points: the named points, their ends first, then other plain ViTs."""
    named = sorted((point for point in info.points if point.named), key=lambda point: point.x)
    ends_first = [*named[:1], *named[1:][-1:], *named[1:-1]]
    plain = [point for point in info.points if point.name.startswith("vit_") and not point.named]
    chosen = [*ends_first, *plain][:_MOST_LABELS]
    there = set(chosen)
    others = [(point.x, point.y) for point in info.points if point not in there]
    return [Name(_label(point, info.base_size), point.x, point.y) for point in chosen], others


def _label(point: Point, base_size: int | None) -> str:
    return point.name if point.img_size in (None, base_size) else f"{point.name}@{point.img_size}"
