"""The papers' figures on their way into the page: Vega-Lite specifications, packed, with their captions."""

import base64
import gzip
from collections.abc import Mapping, Sequence
from contextlib import suppress
from dataclasses import dataclass
from functools import cache
from importlib.metadata import version
from itertools import groupby

import altair as alt
import msgspec
import pandas as pd
import vl_convert
from altair.utils.schemapi import debug_mode

from favor.analyze.comparison import DEFAULT_SCOPE, Scope
from favor.atomic_file import write_whole
from favor.cache_folder import cache_folder
from favor.errors import FavorError
from favor.regular_file import read_regular
from favor.report.figures import Figure, all_figures, theme
from favor.report.progress import Track, unseen

_REPRODUCIBLE = 0  # a packed text carries no time of its packing
_LONGEST_LIBRARY = 2**24  # bytes; it has a megabyte
_LEVEL = 6  # the highest takes twice as long to save one percent


@dataclass(frozen=True)
class Drawing:
    """A figure as the page shows it: its packed specification, or what to run to fill it.

    One of several plots is `wide`, so that they can stand beside each other.
    """

    id: str
    source: str
    title: str
    caption: str
    spec: str | None
    missing: str | None
    wide: bool = False


def drawings_of(
    table: pd.DataFrame, scope: Scope = DEFAULT_SCOPE, track: Track = unseen
) -> list[tuple[str, list[Drawing]]]:
    """All figures of a table by their group, in the order in which they are given."""
    # Altair checks every point against its schema, which takes longer than all the rest; the tests check the charts.
    with debug_mode(False):
        figures = all_figures(table, scope, track)
    return [
        (group, [drawing_of(figure) for figure in of_group])
        for group, of_group in groupby(figures, key=lambda figure: figure.group)
    ]


def has_chart(groups: Sequence[tuple[str, Sequence[Drawing]]]) -> bool:
    """Whether any figure has something to draw, and so needs the charts' library."""
    return any(drawing.spec is not None for _, drawings in groups for drawing in drawings)


def chart_themes() -> dict[str, object]:
    """Vega-Lite's configuration for the light and the dark page."""
    return {"light": theme(dark=False), "dark": theme(dark=True)}


@cache
def chart_library() -> str:
    """Vega, Vega-Lite and Vega-Embed as one script, which gives the page `vegaEmbed`.

    Bundling takes seconds, so the script is kept in the cache folder.
    """
    kept = cache_folder() / f"charts-{version('vl-convert-python')}.js"
    with suppress(FavorError, UnicodeDecodeError):
        return read_regular(kept, _LONGEST_LIBRARY).decode()
    library = vl_convert.javascript_bundle("window.vegaEmbed = vegaEmbed;")
    with suppress(OSError, FavorError):  # without a cache, the next page takes as long as this one
        kept.parent.mkdir(parents=True, exist_ok=True)
        write_whole(kept, library.encode())
    return library


def packed(text: str) -> str:
    """A text compressed and in letters that HTML leaves alone.

    >>> gzip.decompress(base64.b64decode(packed("a text"))).decode()
    'a text'
    """
    return base64.b64encode(gzip.compress(text.encode(), compresslevel=_LEVEL, mtime=_REPRODUCIBLE)).decode()


def drawing_of(figure: Figure) -> Drawing:
    """A figure with its chart packed."""
    about = (figure.id, figure.source, figure.title, figure.caption)
    if figure.chart is None:
        return Drawing(*about, spec=None, missing=figure.missing)
    spec = specification(figure.chart)
    return Drawing(
        *about,
        spec=packed(specification_json(spec)),
        missing=None,
        wide="concat" in spec,
    )


def specification(chart: alt.TopLevelMixin) -> dict[str, object]:
    """A chart's Vega-Lite specification, without Altair's own look, which would hide the page's theme."""
    return {key: value for key, value in chart.to_dict(validate=False).items() if key != "config"}


def specification_json(spec: Mapping[str, object]) -> str:
    """A specification as JSON; what is not a number is null, which Vega leaves out.

    >>> specification_json({"x": float("nan"), "y": [1.0, float("inf")]})
    '{"x":null,"y":[1.0,null]}'
    """
    return msgspec.json.encode(spec, enc_hook=float).decode()  # numbers of NumPy are floats
