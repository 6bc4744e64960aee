"""The efficiency misnomer's Figures 1 and 5a: accuracy over three costs, a curve for each kind or family of models."""

from collections.abc import Mapping
from dataclasses import dataclass

import altair as alt
import pandas as pd

from favor.analyze.comparison import DEFAULT_SCOPE, Scope
from favor.analyze.setting import column_of
from favor.report.figures.axes import Axis, axis_of, x_axis, y_axis
from favor.report.figures.commands import LAPTOP, to_fill
from favor.report.figures.commands import MISNOMER as RUN_MISNOMER
from favor.report.figures.evidence import LEAST_TO_DRAW, Evidence, evidence_of, sound_numbers, sources_sentence
from favor.report.figures.figure import MISNOMER, Figure
from favor.report.figures.misnomer import INDICATORS
from favor.report.figures.theme import PANEL_HEIGHT, PANEL_WIDTH, Rows, layered, series_colors, several_plots

# Models that differ in size alone; a ViT that is deeper is in Figure 4.
KINDS = {
    **dict.fromkeys(("vit_xs4_w64", "vit_xs4", "vit_xs4_w128", "vit_xs4_w160"), "Transformer"),
    **dict.fromkeys(("universal_xs4_w96", "universal_xs4_w160"), "Universal Transformer"),
    **dict.fromkeys(("switch_xs4_w64", "switch_xs4"), "Switch Transformer"),
    **{f"vit_{size}16": "Transformer" for size in ("ti", "s", "b")},
    **{f"universal_{size}16": "Universal Transformer" for size in ("ti", "s", "b")},
    **{f"switch_8_{size}16": "Switch Transformer" for size in ("ti", "s", "b")},
}
_MOST_FAMILIES = 7  # more colors cannot be told apart
OTHERS = "other families"
"""Families of one model, drawn as dots."""


@dataclass(frozen=True)
class Placed:
    """A model in the axes' units; `series` is its kind or family."""

    name: str
    series: str
    x: float
    y: float


@dataclass(frozen=True)
class CostPlot:
    """Accuracy over one cost."""

    x: Axis
    y: Axis
    points: tuple[Placed, ...]

    @property
    def series(self) -> set[str]:
        """The kinds or families of the models."""
        return {point.series for point in self.points}


def cost_plots(rows: pd.DataFrame, series: Mapping[str, str]) -> tuple[CostPlot, ...]:
    """A plot for each cost that two or more series have, of the models in `series`."""
    rows = rows[rows["name"].isin(list(series)) & rows["top1"].notna()]
    plots = []
    for cost in INDICATORS:
        known = rows[rows[cost].notna()] if cost in rows.columns else rows[:0]
        if len({series[name] for name in known["name"]}) < LEAST_TO_DRAW:
            continue
        x, y = axis_of(cost, known[cost]), axis_of("top1", known["top1"])
        points = (
            Placed(name, series[name], x.shown(value), y.shown(top1))
            for name, value, top1 in zip(known["name"], known[cost], known["top1"], strict=True)
        )
        plots.append(CostPlot(x, y, tuple(sorted(points, key=lambda point: (point.series, point.x)))))
    return tuple(plots)


def quality_figure(table: pd.DataFrame, scope: Scope = DEFAULT_SCOPE) -> Figure:
    """Figure 1, with quality: plain ViT, one that shares its weights over the depth, and one with sparse experts."""
    identity = ("misnomer-quality", MISNOMER, "Figure 1", "Accuracy over three costs")
    rows, left_out = _rows(evidence_of(table[table["name"].isin(list(KINDS))], [*INDICATORS, "top1"], scope=scope))
    plots = cost_plots(rows, KINDS)
    if not plots:
        missing = to_fill("accuracies of ViT, Universal Transformer and Switch", RUN_MISNOMER)
        return Figure(*identity, "Accuracy over costs.", None, missing + left_out)
    said = "ViT, and what shared weights (Universal Transformer) and sparse experts (Switch) change of it, in widths."
    return _figure(identity, said + left_out, rows, plots)


def families_figure(table: pd.DataFrame, scope: Scope = DEFAULT_SCOPE) -> Figure:
    """Figure 5a."""
    identity = ("misnomer-families", MISNOMER, "Figure 5a", "Families over three costs")
    rows, left_out = _rows(evidence_of(table, [*INDICATORS, "top1"], scope=scope))
    plots = cost_plots(rows, families_of(rows))
    if not plots:
        missing = to_fill("accuracies of two or more models of two or more families", LAPTOP, RUN_MISNOMER)
        return Figure(*identity, "Families over costs.", None, missing + left_out)
    return _figure(identity, f"Lines connect the models of a family.{left_out}", rows, plots)


def families_of(rows: pd.DataFrame) -> dict[str, str]:
    """By the name of a model with an accuracy, its family; OTHERS unless the family has two or more such models."""
    trained = rows[rows["top1"].notna() & column_of(rows, "family").notna()]
    models = column_of(trained, "family").value_counts()
    largest = set(models[models >= LEAST_TO_DRAW].index[:_MOST_FAMILIES])
    named = zip(trained["name"], column_of(trained, "family"), strict=True)
    return {name: family if family in largest else OTHERS for name, family in named}


def _rows(evidence: Evidence) -> tuple[pd.DataFrame, str]:
    """The models with an accuracy at the image size that most is compared at, and which costs are left out."""
    rows = evidence.everything([*INDICATORS, "top1"])
    rows = rows[rows["top1"].notna()] if "top1" in rows.columns else rows[:0].assign(top1=float("nan"))
    if evidence.base_size is not None:
        rows = rows[rows["img_size"] == evidence.base_size]
    return sound_numbers(rows, INDICATORS)


def _figure(identity: tuple[str, str, str, str], said: str, rows: pd.DataFrame, plots: tuple[CostPlot, ...]) -> Figure:
    drawn = rows[rows["name"].isin([point.name for plot in plots for point in plot.points])]
    caption = f"{said} {sources_sentence(drawn, [*(plot.x.column for plot in plots), 'top1'])}"
    return Figure(*identity, caption, several_plots([_chart(plot) for plot in plots]), None)


def _chart(plot: CostPlot) -> alt.LayerChart:
    shown = [OTHERS, *dict.fromkeys(KINDS.values())]
    order = {series: shown.index(series) if series in shown else len(shown) for series in plot.series}
    values = [{"name": p.name, "series": p.series, "order": order[p.series], "x": p.x, "y": p.y} for p in plot.points]
    colors = series_colors(len(plot.series))
    legend = alt.Legend(title=None, orient="bottom", columns=2)
    base = alt.Chart(Rows(values)).encode(
        x=x_axis(plot.x),
        y=y_axis(plot.y),
        # Without a domain, names of families stand in the data only.
        color=alt.Color(
            "series:N",
            sort=alt.EncodingSortField("order", op="min"),
            scale=alt.Scale(range=colors),
            legend=legend,
        ),
    )
    points = base.mark_point(filled=True, size=55, opacity=1).encode(
        tooltip=[
            alt.Tooltip("name:N", title="Model"),
            alt.Tooltip("series:N", title="Curve"),
            alt.Tooltip("x:Q", title=plot.x.described()),
            alt.Tooltip("y:Q", title=plot.y.described()),
        ]
    )
    lines = base.transform_filter(alt.datum.series != OTHERS).mark_line(strokeWidth=1.6)
    return layered(lines, points).properties(width=PANEL_WIDTH, height=PANEL_HEIGHT, title=plot.x.title)
