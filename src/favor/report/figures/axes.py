"""The axes of figures: a metric in a unit that fits its values, its direction, and the range that is drawn."""

import math
from collections.abc import Iterable, Sequence
from dataclasses import dataclass
from typing import Literal

import altair as alt

from favor.metrics import METRICS, Metric

INFERENCE_TIME = Metric(
    "speed", "1/throughput", "Time per image", "s", "lower", "One over the throughput at the best batch size."
)
"""The benchmark's tables and plots of time; its name is the one that they use."""

_LOG_FROM = 12  # a wider range than this between least and greatest cannot be read on a linear axis
_PADDING = 0.06
_MANY, _TAIL, _FAR = 200, 0.01, 0.35
_MOST_DECADES = 3  # beyond, ticks at 2 and 5 are too many

# For each stored unit the multiples that are written, the largest first.
_MULTIPLES: dict[str, tuple[tuple[float, str], ...]] = {
    "B": ((2.0**30, "GiB"), (2.0**20, "MiB"), (2.0**10, "KiB")),
    "1": ((1e9, "G"), (1e6, "M"), (1e3, "k")),
    "s": ((1.0, "s"), (1e-3, "ms"), (1e-6, "µs")),
}


@dataclass(frozen=True)
class Axis:
    """A metric at an axis: a value of `column` by `factor` is in `unit`. `low` and `high` are the range drawn."""

    column: str
    title: str
    unit: str
    factor: float
    better: Literal["lower", "higher", "neither"]
    log: bool
    low: float
    high: float

    def shown(self, value: float) -> float:
        """A stored value in the axis's unit, to the digits that can be seen."""
        return float(f"{value / self.factor:.4g}")

    def place(self, shown: float) -> float:
        """The position of a shown value between the axis's ends, from 0 to 1."""
        if self.log:
            return math.log(shown / self.low) / math.log(self.high / self.low)
        return (shown - self.low) / (self.high - self.low)

    def described(self) -> str:
        """Title with unit and direction."""
        unit = f" [{self.unit}]" if self.unit else ""
        return f"{self.title}{unit}" + ("" if self.better == "neither" else f", {self.better} is better")

    def arrowed(self) -> str:
        """The description with an arrow towards the better end."""
        return {"higher": f"{self.described()} →", "lower": f"← {self.described()}", "neither": self.described()}[
            self.better
        ]


def quantity(name: str) -> Metric:
    """The quantity of a name: a metric of the glossary, or the time per image.

    >>> quantity("1/throughput").unit
    's'
    """
    return INFERENCE_TIME if name == INFERENCE_TIME.name else METRICS[name]


def axis_of(metric: str, values: Iterable[float], *, title: str | None = None, column: str | None = None) -> Axis:
    """The axis on which a metric's values are drawn; the column has the metric's name unless another one is given.

    >>> axis_of("params", [5e6, 22e6]).described()
    'Parameters [M], lower is better'
    """
    entry = quantity(metric)
    known = [float(value) for value in values if math.isfinite(value)]
    factor, unit = _multiple(entry.unit, max(known, default=1.0))
    shown = sorted(value / factor for value in known) or [1.0]
    log = shown[0] > 0 and shown[-1] / shown[0] > _LOG_FROM
    low, high = _range(*_near(shown, log), log)
    return Axis(column or metric, title or entry.title, unit, factor, entry.better, log, low, high)


def _multiple(unit: str, greatest: float) -> tuple[float, str]:
    """The largest multiple of a unit that leaves the greatest value at one or more."""
    multiples = _MULTIPLES.get(unit, ((1.0, unit),))
    fitting = next(((factor, text) for factor, text in multiples if greatest >= factor), multiples[-1])
    return (1.0, "") if unit == "1" and greatest < 1e3 else fitting


def _near(ordered: Sequence[float], log: bool) -> tuple[float, float]:
    """The range to draw; if there are many values, without those far from the central 98 % of them."""
    if len(ordered) < _MANY:
        return ordered[0], ordered[-1]
    scaled = [math.log(value) for value in ordered] if log else ordered
    cut = int(_TAIL * len(ordered))
    low, high = scaled[cut], scaled[-1 - cut]
    margin = _FAR * (high - low)
    near = [place for place, value in enumerate(scaled) if low - margin <= value <= high + margin]
    return ordered[near[0]], ordered[near[-1]]


def _range(least: float, greatest: float, log: bool) -> tuple[float, float]:
    if least == greatest:
        return (least * 0.9, greatest * 1.1) if least else (-1.0, 1.0)
    if log:
        margin = (greatest / least) ** _PADDING
        return least / margin, greatest * margin
    margin = (greatest - least) * _PADDING
    # A quantity that cannot be negative is not drawn as if it could.
    return (least - margin if least >= margin or least < 0 else 0.0), greatest + margin


def log_ticks(low: float, high: float) -> alt.Axis:
    """Ticks at 1, 2 and 5 of every power of ten, since Vega would rule every digit; fewer where those are many."""
    first, last = math.floor(math.log10(low)), math.ceil(math.log10(high))
    steps = (1, 2, 5) if math.log10(high / low) <= _MOST_DECADES else (1,)
    marks = [float(f"{step * 10.0**power:.3g}") for power in range(first, last + 1) for step in steps]
    return alt.Axis(values=[mark for mark in marks if low <= mark <= high], format="~s" if low >= 1 else "~g")


def factor_scale(factors: Iterable[float]) -> tuple[alt.Scale, alt.Axis]:
    """A log scale for factors of cost, with room around them and around one, and its ticks."""
    low, high = _range(min(1.0, *factors), max(1.0, *factors), log=True)
    return alt.Scale(type="log", domain=[low, high], nice=False), log_ticks(low, high)


def _ticks(axis: Axis) -> alt.Axis:
    return log_ticks(axis.low, axis.high) if axis.log else alt.Axis(tickCount=5)


def x_axis(axis: Axis, field: str = "x") -> alt.X:
    """The encoding of an axis at the bottom."""
    return alt.X(f"{field}:Q", title=axis.arrowed(), scale=_scale(axis), axis=_ticks(axis))


def y_axis(axis: Axis, field: str = "y") -> alt.Y:
    """The encoding of an axis at the left; its title reads upwards, so that an arrow to the right points up."""
    return alt.Y(f"{field}:Q", title=axis.arrowed(), scale=_scale(axis), axis=_ticks(axis))


def _scale(axis: Axis) -> alt.Scale:
    return alt.Scale(type="log" if axis.log else "linear", domain=[axis.low, axis.high], nice=False, clamp=True)
