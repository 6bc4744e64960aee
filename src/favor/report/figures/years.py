"""How the Pareto front of throughput and accuracy moved over the years (Figure 13)."""

from dataclasses import dataclass

import altair as alt
import pandas as pd

from favor.analyze import evolution
from favor.errors import RequestError
from favor.report.figures.axes import Axis, axis_of, x_axis, y_axis
from favor.report.figures.commands import QUICK, to_fill
from favor.report.figures.evidence import LEAST_TO_DRAW, Evidence, sources_sentence
from favor.report.figures.figure import BENCHMARK, Figure
from favor.report.figures.theme import Rows, layered, one_plot, series_colors
from favor.report.figures.trade_off import FrontPoint


@dataclass(frozen=True)
class YearFront:
    """The front of all models published up to a year, from the lowest throughput up."""

    year: int
    corners: tuple[FrontPoint, ...]
    added: tuple[str, ...]


@dataclass(frozen=True)
class Years:
    """The fronts of the years, oldest first, a year without a change left out."""

    x: Axis
    y: Axis
    fronts: tuple[YearFront, ...]


def years_of(rows: pd.DataFrame) -> Years:
    """The fronts of models at one image size, so that a name is one point."""
    x, y = axis_of("throughput", rows["throughput"]), axis_of("top1", rows["top1"])
    places = zip(rows["name"], rows["throughput"], rows["top1"], strict=True)
    at = {str(name): (x.shown(throughput), y.shown(top1)) for name, throughput, top1 in places}
    fronts = tuple(
        YearFront(
            front.year,
            tuple(sorted((FrontPoint(name, *at[name]) for name in front.members), key=lambda corner: corner.x)),
            front.added,
        )
        for front in evolution(rows)
        if front.added or front.dropped
    )
    return Years(x, y, fronts)


def years_figure(evidence: Evidence) -> Figure:
    """Figure 13."""
    identity = ("benchmark-years", BENCHMARK, "Figure 13", "The front over the years")
    rows = evidence.rows(["throughput", "top1"])
    rows = rows[~rows["name"].isin(list(evidence.flags)) & rows["year"].notna()]
    rows = rows[rows["img_size"] == evidence.base_size] if evidence.base_size is not None else rows
    if len(rows) < LEAST_TO_DRAW:
        needs = "throughput, an accuracy and the year of two or more models"
        return Figure(*identity, "The front of each year.", None, to_fill(needs, QUICK))
    try:
        info = years_of(rows)
    except RequestError as refused:
        return Figure(*identity, "The front of each year.", None, f"Not drawn: {refused}.")
    added = "; ".join(f"{front.year}: {', '.join(front.added[:4])}" for front in info.fronts if front.added)
    caption = (
        f"Each front holds all models published up to its year. New models: {added}. "
        f"{sources_sentence(rows, ['throughput', 'top1'])}"
    )
    return Figure(*identity, caption, one_plot(_chart(info)), None)


def _chart(info: Years) -> alt.LayerChart:
    # Later fronts lie on earlier ones for long stretches: the older, the wider, so that all can be seen.
    widths = [1.3 + 0.9 * place for place in reversed(range(len(info.fronts)))]
    values = [
        {"year": str(front.year), "name": corner.name, "x": corner.x, "y": corner.y, "width": width}
        for front, width in zip(info.fronts, widths, strict=True)
        for corner in front.corners
    ]
    years = [str(front.year) for front in info.fronts]
    scale = alt.Scale(domain=years, range=series_colors(len(years)))
    base = alt.Chart(Rows(values)).encode(
        x=x_axis(info.x),
        y=y_axis(info.y),
        color=alt.Color("year:N", scale=scale, legend=alt.Legend(title="Up to", orient="bottom", columns=5)),
    )
    lines = base.mark_line(interpolate="step-before", clip=True).encode(
        order="x:Q", strokeWidth=alt.StrokeWidth("width:Q", scale=None)
    )
    points = base.mark_point(filled=True, size=40, opacity=1, clip=True).encode(
        tooltip=[alt.Tooltip("name:N", title="Model"), alt.Tooltip("year:N", title="On the front of")]
    )
    return layered(lines, points)
