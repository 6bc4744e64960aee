"""How much a measurement varies: the paper's ranges over eight runs, and the records' own intervals (Figure 7)."""

from collections.abc import Sequence
from dataclasses import dataclass

import altair as alt
import pandas as pd

from favor.metrics import METRICS
from favor.records.published import variability
from favor.report.figures.commands import QUICK
from favor.report.figures.figure import BENCHMARK, Figure
from favor.report.figures.theme import FIRST_SERIES, SECOND_SERIES, layered, one_plot

_PAPER, _OWN = "8 runs of ViT, the paper", "95 % interval, your records"
_VARYING = (
    *("throughput", "latency_p50", "train_throughput", "train_step_time", "train_hours_per_epoch"),
    *("inference_memory", "train_memory", "energy_per_image"),
)
_LEAST = 3
_ROW_HEIGHT = 34


@dataclass(frozen=True)
class Spread:
    """The width of a metric's range in % of its value: of the paper's runs, or of the records' intervals.

    Of the records there is a width for every model: their quartiles and the median.
    """

    metric: str
    title: str
    source: str
    low: float
    middle: float
    high: float
    models: int


def published_spreads() -> tuple[Spread, ...]:
    """The ranges that the paper prints; its standard deviation stands in no interval and is left out."""
    return tuple(
        Spread(
            each.metric,
            METRICS[each.metric].title,
            _PAPER,
            each.range_percent,
            each.range_percent,
            each.range_percent,
            1,
        )
        for each in variability()
    )


def own_spreads(table: pd.DataFrame, metrics: Sequence[str] = _VARYING) -> tuple[Spread, ...]:
    """The widths of measured intervals, in % of the value, for each metric that three rows or more have one of.

    >>> table = pd.DataFrame({"source": "measured", "status": "ok", "throughput": [10.0] * 3,
    ...                       "throughput_low": [9.0] * 3, "throughput_high": [11.0] * 3})
    >>> own_spreads(table)[0].middle
    20.0
    """
    spreads = []
    for metric in metrics:
        columns = [metric, f"{metric}_low", f"{metric}_high"]
        if not set(columns) <= set(table.columns):
            continue
        measured = table[(table["source"] == "measured") & (table["status"] == "ok")].dropna(subset=columns)
        measured = measured[measured[metric] > 0]
        if len(measured) < _LEAST:
            continue
        widths = 100 * (measured[f"{metric}_high"] - measured[f"{metric}_low"]) / measured[metric]
        low, middle, high = (float(f"{value:.4g}") for value in widths.quantile([0.25, 0.5, 0.75]))
        spreads.append(Spread(metric, METRICS[metric].title, _OWN, low, middle, high, len(measured)))
    return tuple(spreads)


def variability_figure(table: pd.DataFrame) -> Figure:
    """Figure 7."""
    own, published = own_spreads(table), published_spreads()
    told = (
        f"the records' 95 % intervals ({max(spread.models for spread in own)} measurements): median and quartiles"
        if own
        else f"no measurements of your own yet (run {QUICK})"
    )
    caption = (
        "Width of the range in % of the value. Sources: published in the paper's A.4 (eight runs of one ViT); "
        f"{told}. To repeat the paper's experiment on your machine, run: favor variability vit_s16."
    )
    info = (*own, *published)
    height = _ROW_HEIGHT * len({spread.metric for spread in info})
    identity = ("benchmark-variability", BENCHMARK, "Figure 7", "Variability of measurements")
    return Figure(*identity, caption, one_plot(_chart(info), height=height), None)


def _chart(info: Sequence[Spread]) -> alt.LayerChart:
    values = [
        {
            "metric": spread.title,
            "source": spread.source,
            "models": spread.models,
            "low": spread.low,
            "middle": spread.middle,
            "high": spread.high,
        }
        for spread in info
    ]
    shown = list(dict.fromkeys(spread.source for spread in info))
    colours = {_OWN: FIRST_SERIES, _PAPER: SECOND_SERIES}
    title = "Range [%], lower is better"
    base = alt.Chart(alt.Data(values=values)).encode(
        y=alt.Y("metric:N", title=None, axis=alt.Axis(grid=True)),
        yOffset=alt.YOffset("source:N", scale=alt.Scale(domain=shown)),
        color=alt.Color(
            "source:N",
            scale=alt.Scale(domain=shown, range=[colours[name] for name in shown]),
            legend=alt.Legend(title=None, orient="bottom", columns=1, labelLimit=260),
        ),
    )
    quartiles = base.mark_rule(strokeWidth=4, opacity=0.4).encode(x=alt.X("low:Q", title=f"← {title}"), x2="high:Q")
    points = base.mark_point(filled=True, size=60, opacity=1).encode(
        x=alt.X("middle:Q"),
        tooltip=[
            alt.Tooltip("metric:N", title="Metric"),
            alt.Tooltip("source:N", title="Of"),
            alt.Tooltip("middle:Q", title="Range [%]"),
            alt.Tooltip("models:Q", title="Measurements"),
        ],
    )
    return layered(quartiles, points)
