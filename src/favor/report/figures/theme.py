"""The look of all charts: a theme for light and dark pages, and how classes of the taxonomy are encoded.

Charts name styles (`front`, `label`, ...) and carry no color but the classes' own: a theme is all that changes.
"""

from collections.abc import Iterable, Mapping, Sequence
from typing import Any

import altair as alt

from favor.report.class_style import CLASS_STYLES, UNKNOWN_CLASS, ClassStyle

HEIGHT = 340
PANEL_WIDTH, PANEL_HEIGHT = 280, 220
LABEL_SIZE = 10

_FONT = "system-ui, -apple-system, 'Segoe UI', Roboto, 'Liberation Sans', 'DejaVu Sans', sans-serif"
_INK = {"text": ("#20242a", "#e6e8eb"), "soft": ("#5b626c", "#a3abb6"), "grid": ("#e6e8eb", "#2b3038")}
# Series that are not classes (depth and width, the reader's and the paper's), in colors that everybody can tell apart.
FIRST_SERIES, SECOND_SERIES, THIRD_SERIES = "#2276c4", "#cf5f0c", "#00877d"
_SERIES = ("#8a8f99", FIRST_SERIES, THIRD_SERIES, "#7a5fd8", "#cc3a78", SECOND_SERIES, "#a97c00", "#4d8f22")


class Rows(alt.Data):
    """A chart's data. Altair copies inline data whenever it puts charts together; these rows are shared instead."""

    def __init__(self, rows: Sequence[Mapping[str, Any]]) -> None:
        super().__init__(values=rows)

    def __deepcopy__(self, _: object) -> "Rows":
        return self

    def to_dict(self, validate: bool = True, **_: Any) -> dict[str, Any]:
        """The rows as they are: they hold nothing that Altair would have to translate."""
        return {"values": self["values"]}


def theme(dark: bool) -> dict[str, Any]:
    """Vega-Lite's `config` for a light or a dark page; the background stays the page's own."""
    text, soft, grid = (colors[dark] for colors in _INK.values())
    label = {"color": text, "fontSize": LABEL_SIZE}
    return {
        "background": None,
        "font": _FONT,
        "view": {"stroke": None},
        "axis": {
            "labelColor": soft,
            "titleColor": text,
            "gridColor": grid,
            "domainColor": soft,
            "tickColor": grid,
            "labelFontSize": 11,
            "titleFontSize": 11,
            "titleFontWeight": 500,
            "titlePadding": 8,
            "labelLimit": 150,
        },
        "axisBand": {"grid": False},
        "legend": {
            "labelColor": text,
            "titleColor": soft,
            "labelFontSize": 11,
            "titleFontSize": 11,
            "titleFontWeight": 500,
            "symbolStrokeWidth": 1,
            "symbolSize": 70,
            "labelLimit": 170,
            "rowPadding": 3,
            # Legends below a plot stand under each other, so that they fit on a phone.
            "layout": {"bottom": {"direction": "vertical", "anchor": "start"}},
            "symbolBaseFillColor": soft,
            "symbolBaseStrokeColor": soft,
        },
        "title": {"color": text, "fontSize": 12, "fontWeight": 600, "anchor": "start", "offset": 8},
        "text": label,
        "style": {
            "front": {"color": text, "strokeWidth": 1.4, "strokeDash": [1, 3], "strokeCap": "round"},
            "high-resolution-front": {"color": soft, "strokeWidth": 1.2, "strokeDash": [6, 4]},
            "interval": {"color": soft, "strokeWidth": 1, "opacity": 0.45},
            "reference": {"color": soft, "strokeWidth": 1.2, "strokeDash": [4, 3]},
            "link": {"color": soft, "strokeWidth": 1},
            "band": {"color": soft, "opacity": 0.16},
            "label": label,
            "soft-label": {**label, "color": soft},
            "heading": {**label, "fontSize": 12, "fontWeight": 600},
            "value": {**label, "fontSize": 11},
            "empty-value": {"color": grid},
        },
    }


def class_encodings(titles: Iterable[str], *, legend_columns: int = 2) -> dict[str, Any]:
    """Marker and color by the field `class`, in the taxonomy's order, with one legend of those that are there.

    A legend starts where the plot does: beside long names, a phone has room for one column only. With more room,
    `columns` may be raised.
    """
    shown = _styles_of(titles)
    domain = [style.title for style in shown]
    legend = alt.Legend(title=None, orient="bottom", columns=legend_columns)
    colors = alt.Scale(domain=domain, range=[style.color for style in shown])
    return {
        "shape": alt.Shape("class:N", scale=alt.Scale(domain=domain, range=[s.path for s in shown]), legend=legend),
        "fill": alt.Fill("class:N", scale=colors, legend=legend),
        "stroke": alt.Stroke("class:N", scale=colors, legend=legend),
    }


def class_color(titles: Iterable[str]) -> alt.Color:
    """Color alone by the field `class`, for bars."""
    shown = _styles_of(titles)
    scale = alt.Scale(domain=[style.title for style in shown], range=[style.color for style in shown])
    return alt.Color("class:N", scale=scale, legend=alt.Legend(title=None, orient="bottom", columns=1))


def _styles_of(titles: Iterable[str]) -> list[ClassStyle]:
    there = set(titles)
    return [style for style in (*CLASS_STYLES.values(), UNKNOWN_CLASS) if style.title in there]


def series_colors(count: int) -> list[str]:
    """So many colors for series that are not classes; they repeat if there are more series than colors."""
    return [_SERIES[place % len(_SERIES)] for place in range(count)]


def layered(*layers: alt.Chart) -> alt.LayerChart:
    """Charts on top of each other, the first at the bottom."""
    return alt.LayerChart(layer=list(layers))


def one_plot(chart: alt.LayerChart | alt.Chart, height: int = HEIGHT) -> alt.LayerChart | alt.Chart:
    """A chart as wide as what it stands in."""
    return chart.properties(
        width="container", height=height, autosize=alt.AutoSizeParams(type="fit-x", contains="padding")
    )


def several_plots(plots: Iterable[alt.LayerChart | alt.Chart], *, beside: int = 76) -> alt.ConcatChart:
    """Plots below each other, each narrow enough for a phone; with room, `columns` may be raised.

    `beside` is the room that a plot takes besides its width, for the labels of its axis and the gap to the next.
    """
    return alt.concat(*plots, columns=1).properties(spacing=24, usermeta={"beside": beside})
