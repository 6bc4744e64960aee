"""Accuracy for each parameter, model by model in the order of accuracy (Figures 3 and 15)."""

import math
from dataclasses import dataclass

import altair as alt
import pandas as pd

from favor.analyze import accuracy_per_parameter
from favor.report.class_style import class_style
from favor.report.figures.commands import LAPTOP, to_fill
from favor.report.figures.evidence import LEAST_TO_DRAW, Evidence, sources_sentence
from favor.report.figures.figure import BENCHMARK, Figure
from favor.report.figures.theme import Rows, class_color, layered, one_plot

MOST_BARS = 60
_PER_MILLION = 1e6
_ROW_HEIGHT = 14


@dataclass(frozen=True)
class Bar:
    """A model's accuracy in % and its accuracy per million parameters; `order` counts from the most accurate."""

    name: str
    class_title: str
    order: int
    top1: float
    per_million: float


@dataclass(frozen=True)
class ParameterBars:
    """The models farthest from the common level, the most accurate first; `grouped` are as near to it and not drawn."""

    bars: tuple[Bar, ...]
    median: float
    grouped: int


def parameter_bars(rows: pd.DataFrame, most: int = MOST_BARS) -> ParameterBars:
    """The bars; of more models than fit, those near the median are left out, as the paper's Figure 3 groups them."""
    result = accuracy_per_parameter(rows)
    by_name = {str(name): class_style(how).title for name, how in zip(rows["name"], rows["how"], strict=True)}
    unusual = sorted(result.models, key=lambda model: -abs(math.log(model.of_median)))[:most]
    shown = sorted(unusual, key=lambda model: -model.top1)
    bars = tuple(
        Bar(model.name, by_name[model.name], order, model.top1, float(f"{model.per_parameter * _PER_MILLION:.4g}"))
        for order, model in enumerate(shown)
    )
    return ParameterBars(bars, result.median * _PER_MILLION, len(result.models) - len(bars))


def accuracy_per_parameter_figure(evidence: Evidence) -> Figure:
    """Figures 3 and 15."""
    identity = ("benchmark-accuracy-per-parameter", BENCHMARK, "Figures 3 and 15", "Accuracy per parameter")
    rows = evidence.rows(["params", "top1"])
    rows = rows[rows["img_size"] == evidence.base_size] if evidence.base_size is not None else rows
    if len(rows) < LEAST_TO_DRAW:
        needs = "parameters and an accuracy of two or more models"
        return Figure(*identity, "Accuracy per parameter.", None, to_fill(needs, LAPTOP))
    info = parameter_bars(rows)
    left_out = f" {info.grouped} models close to the median are left out." if info.grouped else ""
    caption = (
        f"Bars: accuracy per million parameters; dots: accuracy; models are ordered by accuracy. The median is "
        f"{info.median:.2g} % per million.{left_out} {sources_sentence(rows, ['params', 'top1'])}"
    )
    return Figure(*identity, caption, one_plot(_chart(info), height=_ROW_HEIGHT * len(info.bars)), None)


def _chart(info: ParameterBars) -> alt.LayerChart:
    values = [
        {"name": bar.name, "class": bar.class_title, "order": bar.order, "top1": bar.top1, "ratio": bar.per_million}
        for bar in info.bars
    ]
    base = alt.Chart(Rows(values)).encode(
        y=alt.Y("name:N", title=None, sort=alt.EncodingSortField("order", op="min"), axis=alt.Axis(labelLimit=130)),
        tooltip=[
            alt.Tooltip("name:N", title="Model"),
            alt.Tooltip("class:N", title="Class"),
            alt.Tooltip("top1:Q", title="Top-1 accuracy [%]"),
            alt.Tooltip("ratio:Q", title="% per million parameters"),
        ],
    )
    ratio = alt.X("ratio:Q", title="[% per M parameters], higher is better →")
    top1 = alt.X(
        "top1:Q",
        title="● Top-1 accuracy [%], higher is better →",
        scale=alt.Scale(zero=False),
        axis=alt.Axis(orient="top"),
    )
    bars = base.mark_bar(opacity=0.75).encode(x=ratio, color=class_color(bar.class_title for bar in info.bars))
    dots = base.mark_point(style="label", filled=True, size=22, opacity=1).encode(x=top1)
    return layered(bars, dots).resolve_scale(x="independent")
