"""Who is Pareto optimal by class, for speed and memory, at inference and in training (Table 7)."""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass

import altair as alt

from favor.report.class_style import class_style
from favor.report.figures.evidence import Evidence
from favor.report.figures.figure import BENCHMARK, Figure
from favor.report.figures.front_members import CLASS_ORDER, FrontMembers, Member, front_members, sources_of
from favor.report.figures.theme import class_encodings, one_plot

_ROW_HEIGHT = 17


@dataclass(frozen=True)
class TableRow:
    """A model, or a family, on one front or more, in the taxonomy's order, and the fronts it is on.

    `models` are those that put a family there; none where it is the paper that does.
    """

    name: str
    class_title: str
    fronts: tuple[str, ...]
    models: tuple[str, ...] = ()


@dataclass(frozen=True)
class ParetoTable:
    """The columns of the table and its rows."""

    columns: tuple[str, ...]
    rows: tuple[TableRow, ...]


def pareto_table(fronts: tuple[FrontMembers, ...], titles: Mapping[str, str]) -> ParetoTable:
    """The members of all fronts, each on one row; `titles` names families.

    The paper has families. Where a front is the paper's, the reader's models are therefore their families as well, or
    one family would have several rows.
    """
    by_family = any(front.metric is None for front in fronts)
    found: dict[tuple[str, str], list[tuple[FrontMembers, Member]]] = {}
    for front in fronts:
        for member in front.members:
            key = (member.how, member.family if by_family else member.name)
            found.setdefault(key, []).append((front, member))
    ordered = sorted(found, key=lambda key: CLASS_ORDER.index(key[0]))
    rows = tuple(_row(found[key], by_family, titles) for key in ordered)
    return ParetoTable(tuple(_column(front) for front in fronts), rows)


def _row(places: Sequence[tuple[FrontMembers, Member]], by_family: bool, titles: Mapping[str, str]) -> TableRow:
    own = [member for front, member in places if front.metric is not None]
    the_papers = [member.name for front, member in places if front.metric is None]
    name = the_papers[0] if the_papers else titles.get(own[0].family, own[0].family) if by_family else own[0].name
    fronts = dict.fromkeys(_column(front) for front, _ in places)
    models = dict.fromkeys(member.name for member in own if by_family)
    return TableRow(name, class_style(places[0][1].how).title, tuple(fronts), tuple(models))


def _column(front: FrontMembers) -> str:
    return f"{front.constraint.capitalize()}, {front.phase}"


def pareto_table_figure(evidence: Evidence) -> Figure:
    """Table 7."""
    fronts = front_members(evidence)
    info = pareto_table(fronts, evidence.titles)
    who = "a family has a model" if any(front.metric is None for front in fronts) else "a model is"
    caption = f"A marker where {who} on the Pareto front of a cost and accuracy. {sources_of(fronts)}"
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
            "models": ", ".join(row.models) or row.name,
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
            tooltip=[alt.Tooltip("models:N", title="Model"), alt.Tooltip("front:N", title="On the front of")],
            **class_encodings((row.class_title for row in info.rows), legend_columns=1),
        )
    )
