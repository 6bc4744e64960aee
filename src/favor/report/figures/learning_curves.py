"""The efficiency misnomer's Figures 2 and 3: learning curves of two schedules, and of two weight decays."""

from collections.abc import Collection, Sequence
from dataclasses import dataclass

import altair as alt
import pandas as pd

from favor.analyze.budget import FlipResult, LateFlip, over_budget
from favor.analyze.learning_curves import (
    BUDGETS,
    BudgetName,
    LearningCurve,
    learning_curves,
    that_differ_only_in,
    trained_datasets,
)
from favor.report.figures.commands import MISNOMER as RUN_MISNOMER
from favor.report.figures.commands import to_fill
from favor.report.figures.figure import MISNOMER, Figure
from favor.report.figures.theme import PANEL_HEIGHT, PANEL_WIDTH, Rows, layered, series_colors, several_plots
from favor.units import format_quantity

_DRAWN: tuple[BudgetName, ...] = ("epochs", "steps", "hours", "energy", "money")
_SCHEDULE = ("epochs", "minutes", "schedule", "min_lr", "warmup_epochs", "warmup_lr")
_TIE = 1.0  # points: a smaller lead is within the noise of 10,000 test images


@dataclass(frozen=True)
class CurvePlot:
    """The curves over one budget, and the runs whose order flips late."""

    budget: BudgetName
    curves: tuple[LearningCurve, ...]
    comparison: FlipResult | None


def curve_plots(curves: Sequence[LearningCurve]) -> tuple[CurvePlot, ...]:
    """A plot for every budget that all curves have."""
    known = [name for name in _DRAWN if all(getattr(curve.last, name) is not None for curve in curves)]
    return tuple(CurvePlot(name, tuple(curves), over_budget(curves, name, margin=_TIE).comparison) for name in known)


def schedules_figure(table: pd.DataFrame) -> Figure:
    """Figure 2."""
    identity = ("misnomer-schedules", MISNOMER, "Figure 2", "Short and long schedules")
    return _figure(identity, table, _SCHEDULE, "one model trained with two schedules")


def weight_decays_figure(table: pd.DataFrame) -> Figure:
    """Figure 3."""
    identity = ("misnomer-weight-decays", MISNOMER, "Figure 3", "Low and high weight decay")
    return _figure(identity, table, ("weight_decay",), "one model trained with two weight decays")


def _figure(identity: tuple[str, str, str, str], table: pd.DataFrame, differ: Collection[str], needs: str) -> Figure:
    groups = [
        group
        for dataset in trained_datasets(table)
        for group in that_differ_only_in(learning_curves(table, dataset), differ)
        if max(len(curve.points) for curve in group) > 1
    ]
    if not groups:
        return Figure(*identity, "Learning curves.", None, to_fill(needs, RUN_MISNOMER))
    # The model whose training runs were evaluated most often shows the most.
    curves = max(groups, key=lambda group: sum(len(curve.points) for curve in group))
    plots = curve_plots(curves)
    runs = sum(curve.seeds for curve in curves)
    unfinished = [curve.run for curve in curves if not curve.finished]
    caption = (
        f"Top-1 accuracy of {curves[0].name} on {curves[0].dataset}. {flip_sentence(plots)} "
        f"Sources: measured, {len(curves)} curves ({runs} training runs over all seeds)"
        f"{'; unfinished: ' + ', '.join(unfinished) if unfinished else ''}."
    )
    return Figure(*identity, caption, several_plots([_chart(plot) for plot in plots]), None)


def flip_sentence(plots: Sequence[CurvePlot]) -> str:
    """The strongest late flip over each budget, in words."""
    said = []
    for plot in plots:
        over = BUDGETS[plot.budget].title.lower()
        flips = plot.comparison.flips if plot.comparison is not None else ()
        said.append(f"Over {over}: {_said(flips[0], plot.budget)}." if flips else f"Over {over}: no late flip.")
    return " ".join(said)


def _said(flip: LateFlip, budget: BudgetName) -> str:
    until, end = (format_quantity(value, BUDGETS[budget].unit) for value in (flip.until, flip.final_budget))
    return (
        f"{flip.leads_early} leads until {until} (by up to {flip.early_lead:.1f} points) and is "
        f"{flip.final_deficit:.1f} points behind at {end}"
    )


def _chart(plot: CurvePlot) -> alt.LayerChart:
    entry = BUDGETS[plot.budget]
    unit, factor = entry.unit, 1.0
    if plot.budget == "hours" and max(curve.last.hours or 0.0 for curve in plot.curves) < 1:
        unit, factor = "min", 60.0
    values = [
        {
            "run": curve.run,
            "x": float(f"{getattr(point, plot.budget) * factor:.5g}"),
            "y": round(point.top1, 2),
            "seeds": curve.seeds,
        }
        for curve in plot.curves
        for point in curve.points
    ]
    title = entry.title if unit == plot.budget else f"{entry.title} [{unit}]"
    # Without a domain, names of runs stand in the data only.
    color = alt.Color(
        "run:N",
        sort=None,
        scale=alt.Scale(range=series_colors(len(plot.curves))),
        legend=alt.Legend(title=None, orient="bottom", columns=1, labelLimit=260),
    )
    base = alt.Chart(Rows(values)).encode(
        x=alt.X("x:Q", title=f"← {title}", axis=alt.Axis(tickCount=5, format="~s")),
        y=alt.Y("y:Q", title="Top-1 accuracy [%], higher is better →", scale=alt.Scale(zero=False)),
        color=color,
        tooltip=[
            alt.Tooltip("run:N", title="Training"),
            alt.Tooltip("x:Q", title=title),
            alt.Tooltip("y:Q", title="Top-1 accuracy [%]"),
            alt.Tooltip("seeds:Q", title="Seeds"),
        ],
    )
    points = base.mark_point(filled=True, size=45, opacity=1)
    return layered(base.mark_line(strokeWidth=1.8), points).properties(
        width=PANEL_WIDTH, height=PANEL_HEIGHT, title=entry.title
    )
