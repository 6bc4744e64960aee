"""One cost against another: training time and memory against inference time, memory against operations."""

from dataclasses import dataclass

import altair as alt
import pandas as pd

from favor.analyze import correlate, memory_from_flops
from favor.analyze.memory_from_flops import MemoryFit
from favor.errors import RequestError
from favor.records.published import VRAM_FORMULA, correlations
from favor.report.figures.axes import INFERENCE_TIME, Axis, axis_of, quantity, x_axis, y_axis
from favor.report.figures.commands import FULL, to_fill
from favor.report.figures.evidence import Evidence, sources_sentence
from favor.report.figures.figure import BENCHMARK, Figure
from favor.report.figures.fronts import TRAINING_MEMORIES, TRAINING_TIMES, first_known
from favor.report.figures.scatter import Scatter, scatter_layers, scatter_of, with_ends
from favor.report.figures.theme import Rows, layered, one_plot

_LEAST = 3  # with fewer points neither a correlation nor a line is defined
_LINE_POINTS = 25
_PUBLISHED_RANGE = 60.0  # GFLOP up to which the paper's own line is drawn where there is nothing else


@dataclass(frozen=True)
class Relation:
    """Two costs over the models that have both, with Pearson's correlation and its 95 % interval where defined."""

    scatter: Scatter
    n: int
    pearson: float | None
    low: float | None
    high: float | None

    def sentence(self) -> str:
        """The correlation in words."""
        if self.pearson is None:
            return f"{self.n} points."
        interval = f" (95 % interval {self.low:.2f} to {self.high:.2f})" if self.low is not None else ""
        return f"Pearson's correlation is {self.pearson:.2f}{interval} over {self.n} points."


def relation(rows: pd.DataFrame, x: str, y: str, base_size: int | None) -> Relation:
    """The relation of two costs over rows that have both."""
    pair = correlate(rows, [x, y], draws=0).pair(x, y)
    axes = (axis_of(x, with_ends(rows, x)), axis_of(y, with_ends(rows, y)))
    scatter = scatter_of(rows, *axes, base_size=base_size)
    return Relation(scatter, pair.n, pair.pearson, pair.pearson_low, pair.pearson_high)


def training_time_relation(evidence: Evidence) -> Figure:
    """Figure 17: fine-tuning time against the time of inference."""
    time = first_known(evidence, TRAINING_TIMES, "throughput")
    return _relation_figure(
        evidence, "training-time-inference-time", "Figure 17", "Fine-tuning time and inference time", time
    )


def training_memory_relation(evidence: Evidence) -> Figure:
    """Figure 19: training memory against the time of inference."""
    memory = first_known(evidence, TRAINING_MEMORIES, "throughput")
    return _relation_figure(
        evidence, "training-memory-inference-time", "Figure 19", "Training memory and inference time", memory
    )


def _relation_figure(evidence: Evidence, name: str, source: str, title: str, cost: str) -> Figure:
    time = INFERENCE_TIME.name
    rows = evidence.rows([time, cost])
    identity = (f"benchmark-{name}", BENCHMARK, source, title)
    said = _published_correlation("train_memory" if cost in TRAINING_MEMORIES else "finetune_time", time)
    if len(rows) < _LEAST:
        needs = f"throughput and {quantity(cost).title.lower()} of three or more models"
        return Figure(*identity, said, None, to_fill(needs, FULL))
    info = relation(rows, time, cost, evidence.base_size)
    caption = f"{info.sentence()} {said}{info.scatter.marks_sentence()} {sources_sentence(rows, [time, cost])}"
    return Figure(*identity, caption, one_plot(scatter_layers(info.scatter)), None)


def _published_correlation(x: str, y: str) -> str:
    """What the benchmark's table prints for two metrics."""
    printed = next(entry for entry in correlations() if {entry.x, entry.y} == {x, y} and entry.place == "Table 2")
    return f"The paper found {printed.value:.2f} ({printed.place})."


@dataclass(frozen=True)
class LinePoint:
    """A place of a line with its interval, in the axes' units."""

    x: float
    y: float
    low: float | None
    high: float | None


@dataclass(frozen=True)
class MemoryLine:
    """Training memory against operations: the points (none where only the paper's line is known) and the line."""

    x: Axis
    y: Axis
    scatter: Scatter | None
    line: tuple[LinePoint, ...]


def memory_line(rows: pd.DataFrame, fit: MemoryFit, base_size: int | None) -> MemoryLine:
    """The line of a fit over the range of its points, with the interval for one more model."""
    operations = rows["ops_mixed"]
    step = (operations.max() - operations.min()) / (_LINE_POINTS - 1)
    counts = [float(operations.min() + step * index) for index in range(_LINE_POINTS)]
    estimates = [fit.predict(count) for count in counts]
    heights = [end for estimate in estimates for end in (max(estimate.low, 0.0), estimate.high)]
    x, y = axis_of("ops_mixed", counts, title="Operations"), axis_of(fit.memory, [*rows[fit.memory], *heights])
    x, y = (_linear(axis) for axis in (x, y))
    line = tuple(
        LinePoint(x.shown(count), y.shown(estimate.memory), y.shown(max(estimate.low, 0.0)), y.shown(estimate.high))
        for count, estimate in zip(counts, estimates, strict=True)
    )
    return MemoryLine(x, y, scatter_of(rows, x, y, base_size=base_size), line)


def published_memory_line() -> MemoryLine:
    """The line that the paper prints."""
    gigabytes = [VRAM_FORMULA.slope * ops + VRAM_FORMULA.intercept for ops in (0.0, _PUBLISHED_RANGE)]
    x = _linear(axis_of("ops_mixed", [0.0, _PUBLISHED_RANGE * 1e9], title="Operations"))
    y = _linear(axis_of("train_memory", [0.0, gigabytes[1] * 1e9]))
    ends = zip((0.0, _PUBLISHED_RANGE), gigabytes, strict=True)
    return MemoryLine(x, y, None, tuple(LinePoint(ops, y.shown(memory * 1e9), None, None) for ops, memory in ends))


def _linear(axis: Axis) -> Axis:
    """The axis from zero and not logarithmic, on which a straight line is one."""
    return Axis(axis.column, axis.title, axis.unit, axis.factor, axis.better, False, 0.0, axis.high)


def memory_from_operations(evidence: Evidence) -> Figure:
    """Figure 20: training memory from the operations of a forward pass."""
    identity = ("benchmark-memory-operations", BENCHMARK, "Figure 20", "Training memory from operations")
    memory = first_known(evidence, TRAINING_MEMORIES, "ops_mixed")
    rows = evidence.rows(["ops_mixed", memory])
    said = (
        f"The paper's line is memory [GB] = {VRAM_FORMULA.slope} G operations + {VRAM_FORMULA.intercept:.2f} "
        f"({VRAM_FORMULA.conditions})."
    )
    try:
        fit = memory_from_flops(rows, memory=memory)
    except RequestError:
        drawn = f"{said} No model in the records has both metrics, so only this line is drawn. To add yours, run: "
        caption = drawn + f"{FULL}. Source: published in the paper's {VRAM_FORMULA.place}."
        return Figure(*identity, caption, one_plot(_memory_chart(published_memory_line())), None)
    own = (
        f"Fitted to {fit.n} points: memory [GB] = {fit.slope:.3g} G operations {fit.intercept:+.3g} "
        f"(correlation {fit.correlation:.2f}; band: 95 % interval for one more model)."
    )
    info = memory_line(rows, fit, evidence.base_size)
    marks = "" if info.scatter is None else info.scatter.marks_sentence()
    caption = f"{own} {said}{marks} {sources_sentence(rows, ['ops_mixed', memory])}"
    return Figure(*identity, caption, one_plot(_memory_chart(info)), None)


def _memory_chart(info: MemoryLine) -> alt.LayerChart:
    x, y = x_axis(info.x), y_axis(info.y)
    values = [{"x": at.x, "y": at.y, "low": at.low, "high": at.high} for at in info.line]
    line = alt.Chart(Rows(values))
    drawn = [line.mark_line(style="reference").encode(x=x, y=y)]
    if info.scatter is None:
        return layered(*drawn)
    band = line.mark_area(style="band", line=False).encode(x=x, y=y_axis(info.y, "low"), y2="high:Q")
    return scatter_layers(info.scatter, below=[band, *drawn])
