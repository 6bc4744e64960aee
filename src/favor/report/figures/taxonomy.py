"""The taxonomy: where and how each architecture of the records changes ViT (Figure 2)."""

from collections.abc import Iterable
from dataclasses import dataclass

import altair as alt
import pandas as pd

from favor.report.figures.figure import BENCHMARK, Figure
from favor.report.figures.theme import Rows, class_encodings, layered, one_plot
from favor.zoo.taxonomy import How, Where

_LINE_LENGTH = 52  # letters that fit beside a marker on a phone
_LINE_HEIGHT = 15
_INDENT = 18


@dataclass(frozen=True)
class Strategy:
    """A strategy and its architectures, the oldest first."""

    how: str
    title: str
    architectures: tuple[str, ...]


@dataclass(frozen=True)
class Place:
    """A part of ViT and the strategies that change it."""

    title: str
    strategies: tuple[Strategy, ...]


@dataclass(frozen=True)
class Taxonomy:
    """All places in the taxonomy's order; a strategy without an architecture in the records has none."""

    places: tuple[Place, ...]

    @property
    def architectures(self) -> int:
        """How many architectures there are."""
        return sum(len(strategy.architectures) for place in self.places for strategy in place.strategies)


def taxonomy_of(table: pd.DataFrame) -> Taxonomy:
    """The families of a table by where and how they change ViT."""
    known = table[["how", "family", "title", "year"]].dropna(subset=["how", "family"]).drop_duplicates()
    by_strategy = {str(how): _titles(rows) for how, rows in known.groupby("how")}
    return Taxonomy(
        tuple(
            Place(
                where.title,
                tuple(Strategy(how.key, how.title, by_strategy.get(how.key, ())) for how in How if how.where is where),
            )
            for where in Where
        )
    )


def _titles(rows: pd.DataFrame) -> tuple[str, ...]:
    """The families' titles, the oldest first; a family whose models have titles of their own is not an architecture."""
    families = rows.groupby("family").agg(titles=("title", "nunique"), title=("title", "first"), year=("year", "min"))
    alike = families[families["titles"] == 1].sort_values(["year", "title"], na_position="last")
    return tuple(str(title) for title in alike["title"])


def taxonomy_figure(table: pd.DataFrame) -> Figure:
    """Figure 2."""
    info = taxonomy_of(table)
    caption = (
        f"{info.architectures} architectures by the part of ViT that they change and by how they change it, oldest "
        "first. Source: the models' cards in the records."
    )
    rows = _rows(info)
    chart = one_plot(_chart(rows), height=_LINE_HEIGHT * len(rows))
    return Figure("benchmark-taxonomy", BENCHMARK, "Figure 2", "The taxonomy", caption, chart, None)


@dataclass(frozen=True)
class _Row:
    kind: str
    text: str
    class_title: str


def _rows(info: Taxonomy) -> list[_Row]:
    """The lines of the drawing, from the top."""
    rows = []
    for place in info.places:
        rows.append(_Row("place", place.title, ""))
        for strategy in place.strategies:
            rows.append(_Row("strategy", strategy.title, strategy.title))
            rows += [_Row("architectures", line, strategy.title) for line in _wrapped(strategy.architectures)]
        rows.append(_Row("space", "", ""))
    return rows[:-1]


def _wrapped(words: Iterable[str], longest: int = _LINE_LENGTH) -> list[str]:
    """Names on lines that are not too long; a name is never broken.

    >>> _wrapped(["ViT", "DeiT", "ResNet"], longest=10)
    ['ViT, DeiT,', 'ResNet']
    """
    lines: list[str] = []
    for word in words:
        if lines and len(lines[-1]) + len(word) + 2 <= longest:
            lines[-1] += f", {word}"
        else:
            lines = [*lines[:-1], f"{lines[-1]},"] if lines else lines
            lines.append(word)
    return lines


def _chart(rows: list[_Row]) -> alt.LayerChart:
    y = alt.Y("line:Q", axis=None, scale=alt.Scale(domain=[-0.5, len(rows) - 0.5], reverse=True, nice=False))

    def lines(kind: str) -> alt.Chart:
        values = [
            {"line": line, "text": row.text, "class": row.class_title}
            for line, row in enumerate(rows)
            if row.kind == kind
        ]
        return alt.Chart(Rows(values)).encode(y=y)

    def text(kind: str, style: str, indent: int) -> alt.Chart:
        mark = lines(kind).mark_text(style=style, align="left", baseline="middle")
        return mark.encode(text="text:N", x=alt.value(indent))

    looks = {name: channel.legend(None) for name, channel in class_encodings(row.class_title for row in rows).items()}
    markers = lines("strategy").mark_point(size=60, fillOpacity=0.85).encode(x=alt.value(_INDENT // 2 + 2), **looks)
    return layered(
        text("place", "heading", 0),
        markers,
        text("strategy", "label", _INDENT + 4),
        text("architectures", "soft-label", _INDENT + 4),
    )
