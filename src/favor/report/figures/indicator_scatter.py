"""The efficiency misnomer's Figure 5b: cost indicators against each other."""

from collections.abc import Sequence
from dataclasses import dataclass
from itertools import combinations

import altair as alt
import pandas as pd

from favor.analyze import correlate
from favor.report.class_style import class_style
from favor.report.figures.axes import Axis, axis_of, quantity, x_axis, y_axis
from favor.report.figures.commands import QUICK, to_fill
from favor.report.figures.evidence import sound_numbers, sources_sentence
from favor.report.figures.figure import MISNOMER, Figure
from favor.report.figures.misnomer import INDICATORS
from favor.report.figures.theme import PANEL_HEIGHT, PANEL_WIDTH, Rows, class_encodings, several_plots

_LEAST = 5  # models: a correlation of fewer says nothing


@dataclass(frozen=True)
class IndicatorPoint:
    """A model by two indicators, in the axes' units."""

    name: str
    class_title: str
    x: float
    y: float


@dataclass(frozen=True)
class IndicatorPair:
    """The models by two indicators, and how well one ranks them as the other (Spearman)."""

    x: Axis
    y: Axis
    points: tuple[IndicatorPoint, ...]
    spearman: float | None


def indicator_pairs(rows: pd.DataFrame) -> tuple[IndicatorPair, ...]:
    """Each pair of indicators that five or more models have."""
    pairs = []
    for first, second in combinations([name for name in INDICATORS if name in rows.columns], 2):
        known = rows.dropna(subset=[first, second])
        if len(known) < _LEAST:
            continue
        x, y = axis_of(first, known[first]), axis_of(second, known[second])
        points = tuple(
            IndicatorPoint(name, class_style(how).title, x.shown(one), y.shown(other))
            for name, how, one, other in zip(known["name"], known["how"], known[first], known[second], strict=True)
        )
        pairs.append(IndicatorPair(x, y, points, correlate(known, [first, second], draws=0).pairs[0].spearman))
    return tuple(pairs)


def indicator_scatter_figure(rows: pd.DataFrame) -> Figure:
    """Figure 5b."""
    identity = ("misnomer-indicator-scatter", MISNOMER, "Figure 5b", "Indicators against each other")
    rows, left_out = sound_numbers(rows, INDICATORS)
    pairs = indicator_pairs(rows)
    if not pairs:
        return Figure(*identity, "Indicators.", None, to_fill("two costs of five or more models", QUICK) + left_out)
    shown = list(dict.fromkeys(axis.column for pair in pairs for axis in (pair.x, pair.y)))
    sentences = [
        f"{quantity(pair.x.column).title.lower()} and {quantity(pair.y.column).title.lower()} {pair.spearman:+.2f}"
        for pair in pairs
        if pair.spearman is not None
    ]
    drawn = rows[rows["name"].isin([point.name for pair in pairs for point in pair.points])]
    classes = [point.class_title for pair in pairs for point in pair.points]
    caption = f"Rank correlation (Spearman): {', '.join(sentences)}.{left_out} {sources_sentence(drawn, shown)}"
    return Figure(*identity, caption, several_plots([_chart(pair, classes) for pair in pairs]), None)


def _chart(pair: IndicatorPair, classes: Sequence[str]) -> alt.Chart:
    """One pair; `classes` are those of all pairs, since the plots share their legend."""
    values = [{"name": p.name, "class": p.class_title, "x": p.x, "y": p.y} for p in pair.points]
    return (
        alt.Chart(Rows(values))
        .mark_point(size=55, fillOpacity=0.85)
        .encode(
            x=x_axis(pair.x),
            y=y_axis(pair.y),
            tooltip=[
                alt.Tooltip("name:N", title="Model"),
                alt.Tooltip("x:Q", title=pair.x.described()),
                alt.Tooltip("y:Q", title=pair.y.described()),
            ],
            **class_encodings(classes),
        )
        .properties(width=PANEL_WIDTH, height=PANEL_HEIGHT, title=f"{pair.x.title} and {pair.y.title.lower()}")
    )
