"""How well speed on one device predicts speed on another, and the front on each (Figures 10 and 11, Table 6)."""

from collections.abc import Collection
from dataclasses import dataclass
from itertools import count

import altair as alt
import numpy as np
import pandas as pd

from favor.analyze import correlate_devices
from favor.analyze.reasons import undisturbed
from favor.analyze.setting import Setting
from favor.errors import RequestError
from favor.records.published import correlations
from favor.report.figures.axes import axis_of, x_axis, y_axis
from favor.report.figures.commands import QUICK, to_fill
from favor.report.figures.evidence import LEAST_TO_DRAW, Evidence
from favor.report.figures.figure import BENCHMARK, Figure
from favor.report.figures.heatmap import Cell, heatmap
from favor.report.figures.scatter import Scatter, marks_sentence, scatter_layers, scatter_of, with_ends
from favor.report.figures.theme import Rows, one_plot
from favor.report.figures.trade_off import TradeOff, trade_off, trade_off_panels

_FILL = to_fill(
    "throughput on two devices",
    QUICK,
    "favor import timm benchmark-infer-amp-nchw-pt240-cu124-rtx3090.csv --study mine",
)
MOST_DEVICES = 6


@dataclass(frozen=True)
class TwoDevices:
    """The models that both settings know, and the line of best fit in logarithms, from its left end to its right.

    The line leaves out the `disturbed` models; None if fewer than two others have different throughputs.
    """

    scatter: Scatter
    line: tuple[tuple[float, float], tuple[float, float]] | None
    exponent: float | None
    disturbed: int

    def sentence(self) -> str:
        """The line in words."""
        if self.exponent is None:
            return "without a line, because fewer than two are neither busy nor contradictory"
        less = f", fitted without {self.disturbed} busy or contradictory" if self.disturbed else ""
        return f"with the line of best fit (power {self.exponent:.2f}{less})"


def two_devices(rows: pd.DataFrame, x_title: str, y_title: str, base_size: int | None) -> TwoDevices:
    """Throughput of the columns `throughput` and `other` against each other.

    >>> speeds = {"throughput": [1.0, 100.0], "other": [10.0, 1000.0]}
    >>> rows = pd.DataFrame({"name": ["a", "b"], "how": None, "img_size": 224, **speeds})
    >>> round(two_devices(rows, "cpu", "gpu", 224).exponent, 6)
    1.0
    """
    x = axis_of("throughput", with_ends(rows, "throughput"), title=f"Throughput, {x_title}")
    y = axis_of("throughput", with_ends(rows, "other"), title=f"Throughput, {y_title}", column="other")
    scatter = scatter_of(rows, x, y, base_size=base_size)
    sound = undisturbed(rows, ["throughput", "other"])
    disturbed = len(rows) - len(sound)
    if sound["throughput"].nunique() < LEAST_TO_DRAW:
        return TwoDevices(scatter, None, None, disturbed)
    logs = np.log(sound["throughput"].to_numpy(dtype=float)), np.log(sound["other"].to_numpy(dtype=float))
    exponent, offset = (float(part) for part in np.polyfit(*logs, deg=1))
    ends = (float(sound["throughput"].min()), float(sound["throughput"].max()))
    first, last = ((x.shown(end), y.shown(float(np.exp(offset) * end**exponent))) for end in ends)
    return TwoDevices(scatter, (first, last), exponent, disturbed)


def device_relation_figure(evidence: Evidence) -> Figure:
    """Figure 10: the two settings that share the most models, the reader's own first."""
    identity = ("benchmark-two-devices", BENCHMARK, "Figure 10", "Throughput on two devices")
    pair = _pair(evidence)
    if pair is None:
        return Figure(*identity, "Throughput on one device against another.", None, _FILL)
    first, second, rows = pair
    info = two_devices(rows, first.short, second.short, evidence.base_size)
    caption = (
        f"{len(rows)} points, each a model at one image size, {info.sentence()}."
        f"{info.scatter.marks_sentence()} Sources: {_source(rows, 'throughput')}; {_source(rows, 'other')}."
    )
    return Figure(*identity, caption, one_plot(_relation_chart(info)), None)


def _pair(evidence: Evidence) -> tuple[Setting, Setting, pd.DataFrame] | None:
    settings = evidence.settings("throughput")[:MOST_DEVICES]
    frames = {setting: evidence.rows_in(setting, ["throughput"]) for setting in settings}
    best = None
    for i, first in enumerate(settings):
        for second in settings[i + 1 :]:
            columns = [c for c in frames[second].columns if c.startswith("throughput")]
            other = frames[second][["name", "img_size", *columns]].rename(
                columns={column: column.replace("throughput", "other", 1) for column in columns}
            )
            rows = frames[first].merge(other, on=["name", "img_size"])
            if len(rows) > max(LEAST_TO_DRAW, 0 if best is None else len(best[2])):
                best = (first, second, rows)
    return best


def _source(rows: pd.DataFrame, column: str) -> str:
    sources = " and ".join(str(source) for source in rows[f"{column}_source"].unique())
    return f"{sources} ({'; '.join(str(text) for text in rows[f'{column}_setting'].unique())})"


def _relation_chart(info: TwoDevices) -> alt.LayerChart:
    values = [{"x": x, "y": y} for x, y in info.line or ()]
    line = alt.Chart(Rows(values)).mark_line(style="reference", clip=True)
    return scatter_layers(info.scatter, below=[line.encode(x=x_axis(info.scatter.x), y=y_axis(info.scatter.y))])


def device_fronts_figure(evidence: Evidence) -> Figure:
    """Figure 11: the front of throughput and accuracy on each device."""
    identity = ("benchmark-fronts-by-device", BENCHMARK, "Figure 11", "The front on each device")
    fronts: dict[str, TradeOff] = {}
    drawn = []
    for setting in evidence.settings("throughput")[:MOST_DEVICES]:
        rows = evidence.rows_in(setting, ["throughput", "top1"])
        if len(rows) < LEAST_TO_DRAW:
            continue
        info = trade_off(rows, "throughput", base_size=evidence.base_size, flags=evidence.flags)
        fronts[_free(setting.short, fronts)] = info
        sources = " and ".join(str(source) for source in rows["throughput_source"].unique())
        drawn.append(f"{setting.short} {sources}, {len(rows)} points")
    if len(fronts) < LEAST_TO_DRAW:
        return Figure(*identity, "The front on each device.", None, _FILL)
    marks = marks_sentence([info.scatter for info in fronts.values()])
    unequal = next((info.unequal for info in fronts.values() if info.unequal), None)
    refused = f" The accuracies cannot be compared: {unequal}." if unequal else ""
    said = f"Pareto fronts (dotted) of throughput and accuracy.{refused}{marks}"
    caption = f"{said} Sources: throughput on {'; '.join(drawn)}."
    return Figure(*identity, caption, trade_off_panels(fronts), None)


def _free(title: str, taken: Collection[str]) -> str:
    """A title, numbered where others have it already: two machines may both be called cpu.

    >>> _free("cpu, fp32", ["cpu, fp32"])
    'cpu, fp32 (2)'
    """
    titles = (title if number == 1 else f"{title} ({number})" for number in count(1))
    return next(one for one in titles if one not in taken)


def device_correlation_figure(evidence: Evidence) -> Figure:
    """Table 6: Pearson's correlation below the diagonal, Spearman's above, of the records or else of the paper."""
    identity = ("benchmark-device-correlation", BENCHMARK, "Table 6", "Correlation of speed between devices")
    cells, source = _own_cells(evidence), "from the records, at equal image size"
    if not cells:
        cells, source = _published_cells(), "published in the paper's Table 6; two devices in the records give your own"
    caption = f"Pearson's correlation below the diagonal, Spearman's above. Sources: {source}."
    return Figure(*identity, caption, one_plot(heatmap(cells), height=_height(cells)), None)


def _own_cells(evidence: Evidence) -> list[Cell]:
    if len(evidence.settings("throughput")) < LEAST_TO_DRAW:
        return []
    try:
        result = correlate_devices(evidence.table, "throughput", draws=0)
    except RequestError:  # no setting names a device
        return []
    names = result.columns[:MOST_DEVICES]
    cells = []
    for i, first in enumerate(names):
        for second in names[i + 1 :]:
            pair = result.pair(first, second)
            if pair.pearson is not None and pair.spearman is not None:
                cells.append(Cell(second, first, pair.pearson, f"Pearson, {pair.n} models"))
                cells.append(Cell(first, second, pair.spearman, f"Spearman, {pair.n} models"))
    return cells


def _published_cells() -> list[Cell]:
    printed = [entry for entry in correlations() if entry.between == "devices" and entry.place == "Table 6"]
    return [
        Cell(entry.y, entry.x, entry.value, "Pearson, the paper")
        if entry.kind == "pearson"
        else Cell(entry.x, entry.y, entry.value, "Spearman, the paper")
        for entry in printed
    ]


def _height(cells: list[Cell]) -> int:
    return max(120, 46 * len({cell.row for cell in cells}))
