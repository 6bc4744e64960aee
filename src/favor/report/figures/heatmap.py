"""Numbers from -1 to 1 (or shares from 0 to 1) in a grid, each with its value."""

from collections.abc import Sequence
from dataclasses import dataclass

import altair as alt

from favor.report.figures.theme import FIRST_SERIES, SECOND_SERIES, Rows, layered


@dataclass(frozen=True)
class Cell:
    """A value at a row and a column; `note` says what it is, when it is pointed at."""

    row: str
    column: str
    value: float
    note: str


def heatmap(cells: Sequence[Cell], *, form: str = ".2f") -> alt.LayerChart:
    """The grid; rows and columns stand in the order in which they first occur. Blue is above zero, orange below."""
    order = list(dict.fromkeys(name for cell in cells for name in (cell.column, cell.row)))
    values = [
        {
            "row": cell.row,
            "column": cell.column,
            "value": cell.value,
            "strength": abs(cell.value),
            "sign": "above" if cell.value >= 0 else "below",
            "note": cell.note,
            "row_order": order.index(cell.row),
            "column_order": order.index(cell.column),
        }
        for cell in cells
    ]
    base = alt.Chart(Rows(values)).encode(
        x=alt.X(
            "column:N",
            title=None,
            sort=alt.EncodingSortField("column_order", op="min"),
            axis=alt.Axis(labelAngle=-35, domain=False, ticks=False),
        ),
        y=alt.Y(
            "row:N",
            title=None,
            sort=alt.EncodingSortField("row_order", op="min"),
            axis=alt.Axis(domain=False, ticks=False, labelLimit=130),
        ),
        tooltip=[
            alt.Tooltip("row:N", title="Row"),
            alt.Tooltip("column:N", title="Column"),
            alt.Tooltip("value:Q", title="Value", format=form),
            alt.Tooltip("note:N", title="Of"),
        ],
    )
    color = alt.Color(
        "sign:N", scale=alt.Scale(domain=["above", "below"], range=[FIRST_SERIES, SECOND_SERIES]), legend=None
    )
    # Text must be legible on every cell in both themes, so that cells are never opaque.
    strength = alt.Opacity("strength:Q", scale=alt.Scale(domain=[0, 1], range=[0.06, 0.6]), legend=None)
    return layered(
        base.mark_rect(cornerRadius=2).encode(color=color, opacity=strength),
        base.mark_text(style="value").encode(text=alt.Text("value:Q", format=form)),
    )
