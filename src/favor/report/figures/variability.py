"""How much a result varies from run to run: box plots over runs, the paper's and the reader's own (Figure 7)."""

from collections.abc import Sequence
from dataclasses import dataclass

import altair as alt
import pandas as pd

from favor.analyze.setting import QUALITY_CONDITIONS, RUN_CONDITIONS
from favor.metrics import METRICS
from favor.records.published import variability
from favor.report.figures.commands import QUICK
from favor.report.figures.figure import BENCHMARK, Figure
from favor.report.figures.theme import FIRST_SERIES, SECOND_SERIES, THIRD_SERIES, Rows, layered, one_plot

_PAPER, _RUNS, _INTERVALS = "8 runs of ViT, the paper", "your runs", "95 % intervals of single runs, yours"
_VARYING = (
    *("throughput", "latency_p50", "train_throughput", "train_step_time", "train_hours_per_epoch"),
    *("inference_memory", "train_memory", "energy_per_image", "top1"),
)
_SEED = "recipe.seed"
_ALIKE = ("name", "img_size", "batch_size", "processes", *QUALITY_CONDITIONS, *RUN_CONDITIONS)
_LEAST = 3
_ROW_HEIGHT = 34


@dataclass(frozen=True)
class Box:
    """A metric over runs, in % of the middle: ends, quartiles, and how many runs (or measurements) there are.

    Without quartiles only the ends are known.
    """

    metric: str
    source: str
    low: float
    high: float
    quartiles: tuple[float, float] | None
    runs: int

    @property
    def title(self) -> str:
        """The metric's title."""
        return METRICS[self.metric].title


def published_boxes() -> tuple[Box, ...]:
    """The paper's runs: it prints the range and the standard deviation, which stands in for the quartiles."""
    return tuple(
        Box(
            printed.metric,
            _PAPER,
            low=_percent(printed.low, (printed.low + printed.high) / 2),
            high=_percent(printed.high, (printed.low + printed.high) / 2),
            quartiles=(-printed.std_percent, printed.std_percent),
            runs=printed.runs,
        )
        for printed in variability()
    )


def own_boxes(table: pd.DataFrame) -> tuple[Box, ...]:
    """Training runs that differ only in the seed: for each metric, the largest such group of three or more.

    >>> table = pd.DataFrame({"name": "vit_s16", "source": "measured", "status": "ok", "recipe.seed": [0, 1, 2],
    ...                       "top1": [79.0, 80.0, 82.0]})
    >>> own_boxes(table)[0].high
    2.5
    """
    if _SEED not in table.columns:
        return ()
    measured = table[(table["source"] == "measured") & (table["status"] == "ok") & table[_SEED].notna()]
    alike = [column for column in _ALIKE if column in measured.columns]
    boxes = []
    for metric in [name for name in _VARYING if name in measured.columns]:
        groups = measured.dropna(subset=[metric]).groupby(alike, dropna=False)[metric]
        values = max((values for _, values in groups), key=len, default=pd.Series(dtype=float))
        if len(values) >= _LEAST and values.median():
            low, first, third, high = (
                _percent(float(at), float(values.median())) for at in values.quantile([0, 0.25, 0.75, 1])
            )
            boxes.append(Box(metric, _RUNS, low, high, (first, third), len(values)))
    return tuple(boxes)


def interval_boxes(table: pd.DataFrame) -> tuple[Box, ...]:
    """The median ends of the 95 % intervals of measurements, for each metric that three rows or more have one of.

    >>> table = pd.DataFrame({"source": "measured", "status": "ok", "throughput": [10.0] * 3,
    ...                       "throughput_low": [9.0] * 3, "throughput_high": [11.0] * 3})
    >>> interval_boxes(table)[0].low
    -10.0
    """
    boxes = []
    for metric in _VARYING:
        columns = [metric, f"{metric}_low", f"{metric}_high"]
        if not set(columns) <= set(table.columns):
            continue
        measured = table[(table["source"] == "measured") & (table["status"] == "ok")].dropna(subset=columns)
        measured = measured[measured[metric] > 0]
        if len(measured) >= _LEAST:
            low, high = (float((100 * (measured[end] / measured[metric] - 1)).median()) for end in columns[1:])
            boxes.append(Box(metric, _INTERVALS, float(f"{low:.4g}"), float(f"{high:.4g}"), None, len(measured)))
    return tuple(boxes)


def _percent(value: float, middle: float) -> float:
    return float(f"{100 * (value / middle - 1):.4g}")


def variability_figure(table: pd.DataFrame) -> Figure:
    """Figure 7."""
    own, intervals = own_boxes(table), interval_boxes(table)
    drawn = [
        *([f"your runs that differ only in the seed (up to {max(box.runs for box in own)} runs)"] if own else []),
        *([f"the 95 % intervals of {max(box.runs for box in intervals)} measurements, median"] if intervals else []),
    ]
    caption = (
        "Deviation from the middle of several runs: the line spans all of them, the box half of them; the paper's box "
        "is one standard deviation, and an interval has no box. Sources: published in the paper's A.4; "
        f"{'; '.join(drawn) or f'no measurements of your own yet (run {QUICK})'}. To repeat the paper's experiment on "
        "your machine, run: favor variability vit_s16."
    )
    info = (*own, *intervals, *published_boxes())
    height = _ROW_HEIGHT * len({box.metric for box in info})
    identity = ("benchmark-variability", BENCHMARK, "Figure 7", "Variability over runs")
    return Figure(*identity, caption, one_plot(_chart(info), height=height), None)


def _chart(info: Sequence[Box]) -> alt.LayerChart:
    values = [
        {
            "metric": box.title,
            "source": box.source,
            "runs": box.runs,
            "low": box.low,
            "high": box.high,
            **({} if box.quartiles is None else {"first": box.quartiles[0], "third": box.quartiles[1]}),
        }
        for box in info
    ]
    shown = list(dict.fromkeys(box.source for box in info))
    colors = {_RUNS: FIRST_SERIES, _PAPER: SECOND_SERIES, _INTERVALS: THIRD_SERIES}
    base = alt.Chart(Rows(values)).encode(
        y=alt.Y("metric:N", title=None, axis=alt.Axis(grid=True)),
        yOffset=alt.YOffset("source:N", scale=alt.Scale(domain=shown)),
        color=alt.Color(
            "source:N",
            scale=alt.Scale(domain=shown, range=[colors[name] for name in shown]),
            legend=alt.Legend(title=None, orient="bottom", columns=1, labelLimit=260),
        ),
        tooltip=[
            alt.Tooltip("metric:N", title="Metric"),
            alt.Tooltip("source:N", title="Of"),
            alt.Tooltip("low:Q", title="Lowest [%]"),
            alt.Tooltip("high:Q", title="Highest [%]"),
            alt.Tooltip("runs:Q", title="Runs or measurements"),
        ],
    )
    whiskers = base.mark_rule(strokeWidth=1.5).encode(
        x=alt.X("low:Q", title="Deviation from the middle [%]"), x2="high:Q"
    )
    boxes = base.transform_filter("isValid(datum.first)").mark_bar(height=9, opacity=0.55)
    return layered(whiskers, boxes.encode(x=alt.X("first:Q"), x2="third:Q"))
