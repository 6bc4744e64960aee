"""The papers' figures on their way into the page: Vega-Lite specifications, packed, with their captions."""

import base64
import gzip
import json
from collections.abc import Sequence
from dataclasses import dataclass
from itertools import groupby

import altair as alt
import pandas as pd
import vl_convert

from favor.report.figures import Figure, all_figures, theme

_REPRODUCIBLE = 0  # a packed text carries no time of its packing


@dataclass(frozen=True)
class Drawing:
    """A figure as the page shows it: its packed specification, or what to run to fill it."""

    id: str
    source: str
    title: str
    caption: str
    spec: str | None
    missing: str | None


def drawings_of(table: pd.DataFrame) -> list[tuple[str, list[Drawing]]]:
    """All figures of a table by their group, in the order in which they are given."""
    return [
        (group, [_drawing(figure) for figure in figures])
        for group, figures in groupby(all_figures(table), key=lambda figure: figure.group)
    ]


def has_chart(groups: Sequence[tuple[str, Sequence[Drawing]]]) -> bool:
    """Whether any figure has something to draw, and so needs the charts' library."""
    return any(drawing.spec is not None for _, drawings in groups for drawing in drawings)


def chart_themes() -> dict[str, object]:
    """Vega-Lite's configuration for the light and the dark page."""
    return {"light": theme(dark=False), "dark": theme(dark=True)}


def chart_library() -> str:
    """Vega, Vega-Lite and Vega-Embed as one script, which gives the page `vegaEmbed`."""
    return vl_convert.javascript_bundle("window.vegaEmbed = vegaEmbed;")


def packed(text: str) -> str:
    """A text compressed and in letters that HTML leaves alone.

    >>> gzip.decompress(base64.b64decode(packed("a text"))).decode()
    'a text'
    """
    return base64.b64encode(gzip.compress(text.encode(), mtime=_REPRODUCIBLE)).decode()


def _drawing(figure: Figure) -> Drawing:
    spec = None if figure.chart is None else packed(json.dumps(_specification(figure.chart), separators=(",", ":")))
    return Drawing(figure.id, figure.source, figure.title, figure.caption, spec, figure.missing)


def _specification(chart: alt.TopLevelMixin) -> dict[str, object]:
    specification = chart.to_dict()
    # Altair's own look would stand between the chart and the page's theme.
    specification.pop("config", None)
    return specification
