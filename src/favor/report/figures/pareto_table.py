"""Which families are Pareto optimal for speed and memory, in inference and training, by paper and records (Table 7)."""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass

import altair as alt

from favor.report.class_style import class_style
from favor.report.figures.evidence import Evidence
from favor.report.figures.figure import BENCHMARK, Figure
from favor.report.figures.front_members import (
    CLASS_ORDER,
    FrontMembers,
    Member,
    both_fronts,
    sources_of,
    why_none_is_yours,
)
from favor.report.figures.theme import Rows, class_encodings, one_plot

_ROW_HEIGHT = 17


PAPER, OWN = "the paper", "your records"


@dataclass(frozen=True)
class Place:
    """A column of the table, and whose numbers (the paper's, the records') fill it."""

    column: str
    by: str


@dataclass(frozen=True)
class TableRow:
    """A family on one front or more, in the taxonomy's order, and the fronts it is on.

    `models` are those of the records that put it there.
    """

    name: str
    class_title: str
    places: tuple[Place, ...]
    models: tuple[str, ...] = ()


@dataclass(frozen=True)
class ParetoTable:
    """The columns of the table and its rows."""

    columns: tuple[str, ...]
    rows: tuple[TableRow, ...]


def pareto_table(fronts: tuple[FrontMembers, ...], titles: Mapping[str, str]) -> ParetoTable:
    """The families with a model on any of the fronts, each on one row; `titles` names families."""
    by_family: dict[tuple[str, str], list[tuple[FrontMembers, Member]]] = {}
    for front in fronts:
        for member in front.members:
            by_family.setdefault((member.how, member.family), []).append((front, member))
    ordered = sorted(by_family, key=lambda key: CLASS_ORDER.index(key[0]))
    columns = dict.fromkeys(_column(front) for front in fronts)
    return ParetoTable(tuple(columns), tuple(_row(by_family[key], titles) for key in ordered))


def _row(places: Sequence[tuple[FrontMembers, Member]], titles: Mapping[str, str]) -> TableRow:
    own = [member for front, member in places if front.metric is not None]
    the_papers = [member.name for front, member in places if front.metric is None]
    name = the_papers[0] if the_papers else titles.get(own[0].family, own[0].family)
    at = dict.fromkeys(Place(_column(front), PAPER if front.metric is None else OWN) for front, _ in places)
    models = dict.fromkeys(member.name for member in own)
    return TableRow(name, class_style(places[0][1].how).title, tuple(at), tuple(models))


def _column(front: FrontMembers) -> str:
    return f"{front.constraint.capitalize()}, {front.phase}"


def pareto_table_figure(evidence: Evidence) -> Figure:
    """Table 7."""
    fronts = both_fronts(evidence)
    info = pareto_table(fronts, evidence.titles)
    is_any_yours = fronts[-1].metric is not None
    both = " Hollow, left: the paper, on an A100. Filled, right: your records."
    yours = both if is_any_yours else why_none_is_yours(evidence)
    caption = (
        f"A marker where a family has a model on the Pareto front of a cost and accuracy.{yours} {sources_of(fronts)}"
    )
    chart = one_plot(_chart(info), height=_ROW_HEIGHT * len(info.rows))
    return Figure("benchmark-pareto-table", BENCHMARK, "Table 7", "Pareto optimal models", caption, chart, None)


def _chart(info: ParetoTable) -> alt.Chart:
    values = [
        {
            "name": row.name,
            "class": row.class_title,
            "order": order,
            "front": place.column,
            "by": place.by,
            "column": info.columns.index(place.column),
            "models": (place.by == OWN and ", ".join(row.models)) or row.name,
        }
        for order, row in enumerate(info.rows)
        for place in row.places
    ]
    return (
        alt.Chart(Rows(values))
        .mark_point(size=70)
        .encode(
            x=alt.X(
                "front:N",
                title=None,
                sort=alt.EncodingSortField("column", op="min"),
                axis=alt.Axis(
                    orient="top", labelAngle=0, labelExpr="split(datum.label, ', ')", labelPadding=18, grid=True
                ),
            ),
            xOffset=alt.XOffset("by:N", scale=alt.Scale(domain=[PAPER, OWN])),
            y=alt.Y(
                "name:N",
                title=None,
                sort=alt.EncodingSortField("order", op="min"),
                axis=alt.Axis(grid=True, labelLimit=140),
            ),
            fillOpacity=alt.when(alt.datum.by == PAPER).then(alt.value(0)).otherwise(alt.value(0.85)),
            tooltip=[
                alt.Tooltip("models:N", title="Model"),
                alt.Tooltip("front:N", title="On the front of"),
                alt.Tooltip("by:N", title="By"),
            ],
            **class_encodings((row.class_title for row in info.rows), legend_columns=1),
        )
    )
