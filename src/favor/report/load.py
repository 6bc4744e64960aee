"""Load tests on the page: latency over rate, throughput over batch size, and the breakpoints of the curves."""

from collections.abc import Iterable, Sequence
from dataclasses import dataclass

import altair as alt

from favor.analyze.load_curves import (
    ChangeOfPlaces,
    LoadComparison,
    LoadCurve,
    by_query_size,
    compare_loads,
    curve_at,
)
from favor.records.schema import Record
from favor.report.figure_specs import Drawing, drawing_of
from favor.report.figures.figure import Figure
from favor.report.figures.theme import PANEL_HEIGHT, PANEL_WIDTH, Rows, layered, series_colors, several_plots
from favor.report.setting_text import setting_text
from favor.units import format_number, format_quantity

_QUANTILES = {"p50": "median", "p90": "p90", "p99": "p99"}
_GROUP = "Load"


@dataclass(frozen=True)
class LoadSection:
    """The load tests of one setting as the page shows them: a table, sentences on breakpoints, and plots."""

    title: str
    setting: str
    rows: tuple[tuple[str, str, str, str, str], ...]
    breakpoints: tuple[str, ...]
    drawing: Drawing


def load_sections(records: Iterable[Record]) -> tuple[LoadSection, ...]:
    """A section for every setting in which loads were tested; none without load tests."""
    return tuple(_section(number, compared) for number, compared in enumerate(load_comparisons(records)))


def load_comparisons(records: Iterable[Record]) -> tuple[LoadComparison, ...]:
    """The load tests of records by setting; the last test of a model counts."""
    groups: dict[tuple[str, str, float | None], dict[str, LoadCurve]] = {}
    for record in records:
        if record.task == "load" and record.status == "ok" and record.load is not None and "max_qps" in record.metrics:
            limit, scenario = record.conditions.get("p99_limit"), str(record.conditions.get("scenario"))
            key = (setting_text(record), scenario, float(limit) if isinstance(limit, int | float) else None)
            groups.setdefault(key, {})[record.name] = _curve(record)
    return tuple(compare_loads(*key, list(curves.values())) for key, curves in groups.items())


def _curve(record: Record) -> LoadCurve:
    assert record.load is not None  # noqa: S101 - filtered before
    reading = record.metrics["max_qps"]
    batch, wait = record.conditions.get("largest_batch", 1), record.conditions.get("longest_wait", 0.0)
    largest, longest, points = int(batch), float(wait), record.load.rates
    is_multi_stream = record.conditions.get("scenario") == "multi-stream"
    return LoadCurve(
        name=record.name,
        max_qps=reading.value,
        low=reading.low,
        high=reading.high,
        largest_batch=largest,
        longest_wait=longest,
        rates=by_query_size(points) if is_multi_stream else curve_at(points, largest, longest),
        batches=record.load.batches,
    )


def _section(number: int, compared: LoadComparison) -> LoadSection:
    limit = "without a limit" if compared.limit is None else f"p99 within {format_quantity(compared.limit, 's')}"
    title = f"{compared.scenario.capitalize()}, {limit}"
    batching = "each query size" if compared.scenario == "multi-stream" else "the batching of the largest load"
    caption = (
        f"Left: latency of the answers at each rate that was tried, with {batching}. "
        "Right: images per second of each batch size. Sources: measured; short runs of MLCommons' load generator, not "
        "results of MLPerf."
    )
    plots = [plot for plot in (_latencies(compared), _batches(compared)) if plot is not None]
    figure = Figure(f"load-{number}", _GROUP, "", title, caption, several_plots(plots), None)
    return LoadSection(
        title, compared.setting, tuple(map(_row, compared.curves)), breakpoints(compared), drawing_of(figure)
    )


def _row(curve: LoadCurve) -> tuple[str, str, str, str, str]:
    low, high = curve.low, curve.high
    interval = "unknown" if low is None or high is None else f"{format_number(low)} to {format_number(high)}"
    wait = f", waiting {format_quantity(curve.longest_wait, 's')}" if curve.longest_wait else ""
    ends = curve.gains_end_at
    largest = max((point.batch_size for point in curve.batches), default=1)
    return (
        curve.name,
        format_quantity(curve.max_qps, "img/s"),
        interval,
        f"up to {curve.largest_batch}{wait}",
        f"still gaining at {largest}" if ends is None else str(ends),
    )


def breakpoints(compared: LoadComparison) -> tuple[str, ...]:
    """Where two models change places, in words."""
    return tuple(map(_sentence, compared.changes))


def _sentence(change: ChangeOfPlaces) -> str:
    if change.by == "throughput":
        return f"In batches of {change.at:.0f}, {change.after} overtakes {change.before}: more images per second."
    return f"At {format_quantity(change.at, 'img/s')}, {change.after} overtakes {change.before}: a lower p99."


def _color(curves: Sequence[LoadCurve]) -> alt.Color:
    return alt.Color(
        "model:N",
        sort=None,
        scale=alt.Scale(range=series_colors(len(curves))),
        legend=alt.Legend(title=None, orient="bottom", columns=1, labelLimit=260),
    )


def _latencies(compared: LoadComparison) -> alt.LayerChart | None:
    values = [
        {
            "model": curve.name,
            "rate": point.rate,
            "batch": point.largest_batch,
            "place": place,
            "quantile": title,
            "ms": 1000 * getattr(point, name),
        }
        for curve in compared.curves
        for place, point in enumerate(curve.rates)
        for name, title in _QUANTILES.items()
    ]
    if not values:
        return None
    base = alt.Chart(Rows(values)).encode(
        x=alt.X("rate:Q", title="Rate [img/s] →", axis=alt.Axis(tickCount=5, format="~s")),
        y=alt.Y(
            "ms:Q",
            title="← Latency [ms]",
            scale=alt.Scale(type="log", nice=False),
            axis=alt.Axis(format="~g", tickCount=5),
        ),
        color=_color(compared.curves),
        tooltip=[
            alt.Tooltip("model:N", title="Model"),
            alt.Tooltip("quantile:N", title="Quantile"),
            alt.Tooltip("rate:Q", title="Rate [img/s]", format=",.3r"),
            alt.Tooltip("batch:Q", title="Largest batch"),
            alt.Tooltip("ms:Q", title="Latency [ms]", format=",.3r"),
        ],
    )
    dashes = alt.StrokeDash(
        "quantile:N",
        sort=None,
        scale=alt.Scale(domain=list(_QUANTILES.values()), range=[[1, 3], [5, 3], [1, 0]]),
        legend=alt.Legend(title=None, orient="bottom", columns=3, symbolType="stroke", symbolSize=200),
    )
    layers = [
        base.mark_line(strokeWidth=1.8).encode(strokeDash=dashes, order="place:Q"),
        base.mark_point(filled=True, size=25, opacity=1),
    ]
    if compared.limit is not None:
        at = alt.Chart(Rows([{"limit": 1000 * compared.limit}]))
        layers.append(at.mark_rule(style="reference").encode(y=alt.Y("limit:Q", title="← Latency [ms]")))
    return layered(*layers).properties(width=PANEL_WIDTH, height=PANEL_HEIGHT, title="Latency against rate")


def _batches(compared: LoadComparison) -> alt.LayerChart:
    values = [
        {
            "model": curve.name,
            "batch": point.batch_size,
            "throughput": point.throughput,
            "ms": 1000 * point.latency,
            "ends": "gains end here" if point.batch_size == curve.gains_end_at else "",
        }
        for curve in compared.curves
        for point in curve.batches
    ]
    sizes = sorted({point.batch_size for curve in compared.curves for point in curve.batches})
    base = alt.Chart(Rows(values)).encode(
        x=alt.X("batch:Q", title="Batch size →", scale=alt.Scale(type="log", base=2), axis=alt.Axis(values=sizes)),
        y=alt.Y("throughput:Q", title="Throughput [img/s] →", axis=alt.Axis(format="~s", tickCount=5)),
        color=_color(compared.curves),
        tooltip=[
            alt.Tooltip("model:N", title="Model"),
            alt.Tooltip("batch:Q", title="Batch size"),
            alt.Tooltip("throughput:Q", title="Throughput [img/s]", format=",.3r"),
            alt.Tooltip("ms:Q", title="Time of the batch [ms]", format=",.3r"),
            alt.Tooltip("ends:N", title="Breakpoint"),
        ],
    )
    ends = base.transform_filter("datum.ends !== ''").mark_point(size=160, strokeWidth=1.8)
    return layered(base.mark_line(strokeWidth=1.8), base.mark_point(filled=True, size=45, opacity=1), ends).properties(
        width=PANEL_WIDTH, height=PANEL_HEIGHT, title="Throughput against batch; a ring where gains end"
    )
