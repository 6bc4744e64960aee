"""Who is Pareto optimal by class, for speed and memory, at inference and in training (Table 7)."""

from dataclasses import dataclass

import altair as alt

from favor.report.figures.evidence import Evidence
from favor.report.figures.figure import BENCHMARK, Figure
from favor.report.figures.front_members import FrontMembers, front_members, sources_of
from favor.report.figures.style import class_encodings, one_plot
from favor.report.style import class_style
from favor.zoo.taxonomy import How

_ROW_HEIGHT = 17


@dataclass(frozen=True)
class TableRow:
    """A member of one front or more, in the taxonomy's order, and the fronts it is on."""

    name: str
    class_title: str
    fronts: tuple[str, ...]


@dataclass(frozen=True)
class ParetoTable:
    """The columns of the table and its rows."""

    columns: tuple[str, ...]
    rows: tuple[TableRow, ...]


def pareto_table(fronts: tuple[FrontMembers, ...]) -> ParetoTable:
    """The members of all fronts, each on one row."""
    on: dict[tuple[str, str], list[str]] = {}
    for front in fronts:
        for member in front.members:
            on.setdefault((member.how, member.name), []).append(_column(front))
    order = [how.key for how in How]
    ordered = sorted(on.items(), key=lambda entry: order.index(entry[0][0]))
    rows = tuple(TableRow(name, class_style(how).title, tuple(labels)) for (how, name), labels in ordered)
    return ParetoTable(tuple(_column(front) for front in fronts), rows)


def _column(front: FrontMembers) -> str:
    return f"{front.constraint.capitalize()}, {front.phase}"


def pareto_table_figure(evidence: Evidence) -> Figure:
    """Table 7."""
    fronts = front_members(evidence)
    info = pareto_table(fronts)
    caption = f"A marker where a model is on the Pareto front of a cost and accuracy. {sources_of(fronts)}"
    chart = one_plot(_chart(info), height=_ROW_HEIGHT * len(info.rows))
    return Figure("benchmark-pareto-table", BENCHMARK, "Table 7", "Pareto optimal models", caption, chart, None)


def _chart(info: ParetoTable) -> alt.Chart:
    values = [
        {
            "name": row.name,
            "class": row.class_title,
            "order": order,
            "front": front,
            "column": info.columns.index(front),
        }
        for order, row in enumerate(info.rows)
        for front in row.fronts
    ]
    return (
        alt.Chart(alt.Data(values=values))
        .mark_point(size=70, fillOpacity=0.85)
        .encode(
            x=alt.X(
                "front:N",
                title=None,
                sort=alt.EncodingSortField("column", op="min"),
                axis=alt.Axis(
                    orient="top", labelAngle=0, labelExpr="split(datum.label, ', ')", labelPadding=18, grid=True
                ),
            ),
            y=alt.Y(
                "name:N",
                title=None,
                sort=alt.EncodingSortField("order", op="min"),
                axis=alt.Axis(grid=True, labelLimit=140),
            ),
            tooltip=[alt.Tooltip("name:N", title="Model"), alt.Tooltip("front:N", title="On the front of")],
            **class_encodings((row.class_title for row in info.rows), legend_columns=1),
        )
    )
