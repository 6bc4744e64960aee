"""Limits that a model must meet, and how far to relax them if none does."""

import math
from collections.abc import Iterable, Sequence
from dataclasses import dataclass, replace
from typing import Literal

import numpy as np
import pandas as pd

from favor.analyze.intervals import Z, deviations, is_linear
from favor.analyze.metric_column import MetricColumn
from favor.analyze.selection import numbers_or_nan
from favor.errors import RequestError
from favor.metrics import METRICS
from favor.units import checked_number, format_outward, format_quantity, parse_quantity

# The limits that can be asked for, and their metrics. The page asks for those of `LIMITED`, and for recorded others.
LIMITED = {
    "min_accuracy": "top1",
    "max_memory": "inference_memory",
    "max_latency": "latency_p50",
    "max_params": "params",
}
ALL_LIMITED = {**LIMITED, "max_p99": "latency_p99", "max_process_memory": "memory_process", "qps": "max_qps"}

_TESTED = {
    "max_memory": "the tensors of a forward pass. To limit the whole process, use --max-process-memory.",
    "max_latency": "the median of single images; --max-p99 limits the 99th percentile",
    "max_p99": "the 99th percentile of single images",
    "max_process_memory": "peak resident memory of the process at inference",
}


@dataclass(frozen=True)
class Limit:
    """One limit, named as the user's option is (`max_memory`), in the stored unit of its metric.

    `device` is None on the device that the models are ranked on, and the name of any further one. `p99` are the
    seconds within which 99 % of the answers come at a load.
    """

    option: str
    metric: str
    bound: Literal["min", "max"]
    value: float
    device: str | None = None
    p99: float | None = None

    @classmethod
    def named(cls, option: str, value: float) -> "Limit":
        """The limit of an option; the option's name says which way it bounds.

        >>> Limit.named("min_accuracy", 82.0)
        Limit(option='min_accuracy', metric='top1', bound='min', value=82.0, device=None, p99=None)
        """
        return cls(option, ALL_LIMITED[option], "max" if option.startswith("max") else "min", value)

    @classmethod
    def parsed(cls, option: str, value: str | float, what: str) -> "Limit":
        """The limit of an option whose value is a text with a unit, or a number; `what` names the option in errors.

        >>> Limit.parsed("max_latency", "50ms", "--max-latency").value
        0.05
        """
        unit = METRICS[ALL_LIMITED[option]].unit
        number = parse_quantity(value, unit, what) if isinstance(value, str) else checked_number(value, unit, what)
        return cls.named(option, number)

    @property
    def unit(self) -> str:
        """The unit of the limit's value."""
        return METRICS[self.metric].unit

    @property
    def column(self) -> str:
        """The column of the numbers that the limit is about."""
        return str(MetricColumn(self.metric, self.device))

    @property
    def tested(self) -> str | None:
        """Which number is tested, where the option alone does not tell.

        >>> Limit.named("max_p99", 0.05).tested
        'the 99th percentile of single images'
        """
        if self.p99 is not None:
            return f"the largest load with 99 % of the answers within {format_quantity(self.p99, 's')}"
        return _TESTED.get(self.option)

    def __str__(self) -> str:
        """The option as people name it.

        >>> str(Limit("max_latency", "latency_p50", "max", 0.05, "t4"))
        'max_latency on t4'
        """
        return self.option if self.device is None else f"{self.option} on {self.device}"

    def values_of(self, rows: pd.DataFrame) -> np.ndarray:
        """The rows' numbers that the limit is about, NaN where unknown."""
        return numbers_or_nan(rows, self.column)

    def kept_by(self, values: np.ndarray) -> np.ndarray:
        """Mask of the values that meet the limit; an unknown value does not."""
        return values >= self.value if self.bound == "min" else values <= self.value

    def excess(self, values: np.ndarray) -> np.ndarray:
        """How far values violate the limit, as the logarithm of a factor (0: not at all), so that limits add up.

        An accuracy is judged by its error: 81 % instead of 82 % is an error of 19 instead of 18.
        """
        if self.metric in ("top1", "top5"):
            allowed, actual = 100 - self.value, 100 - values
        elif self.bound == "max":
            allowed, actual = self.value, values
        else:
            allowed, actual = 1 / max(self.value, math.ulp(1.0)), 1 / np.maximum(values, math.ulp(1.0))
        excess = np.log(np.maximum(actual, math.ulp(1.0)) / max(allowed, math.ulp(1.0)))
        return np.where(self.kept_by(values), 0.0, np.maximum(excess, math.ulp(1.0)))


def under_load(limits: Iterable[Limit]) -> tuple[Limit, ...]:
    """The limits, with a load and its latency combined: queries wait for each other, so latency depends on the load.

    >>> [str(limit) for limit in under_load([Limit.named("max_p99", 0.05), Limit.named("qps", 20.0)])]
    ['qps']
    """
    asked = tuple(limits)
    by_option = {limit.option: limit for limit in asked}
    if "qps" not in by_option:
        return asked
    if "max_p99" not in by_option:
        raise RequestError("--qps needs a latency limit for 99 % of the answers; add --max-p99, for example 50ms")
    p99 = by_option["max_p99"].value
    return tuple(
        replace(limit, p99=p99) if limit.option == "qps" else limit for limit in asked if limit.option != "max_p99"
    )


@dataclass(frozen=True)
class RelaxedLimit:
    """A limit moved just far enough: from its value to the model's, by the difference; in the metric's unit."""

    option: str
    metric: str
    unit: str
    limit: float
    to: float
    by: float

    @property
    def text(self) -> str:
        """The new limit as people write it, rounded to the side that admits the model."""
        return format_outward(self.to, self.unit, 1 if self.to > self.limit else -1)

    @property
    def rounded(self) -> float:
        """The new limit if it is written as in `text`."""
        return parse_quantity(self.text, self.unit)


@dataclass(frozen=True)
class Relaxation:
    """All the limits that have to move, and the model that is then favored.

    `undecided_between` are the models that the answer is then undecided between, if none is favored.
    """

    name: str
    img_size: int | None
    limits: tuple[RelaxedLimit, ...]
    undecided_between: tuple[str, ...] = ()

    def applied_to(self, limits: Sequence[Limit]) -> tuple[Limit, ...]:
        """The limits, moved as far as people would write them."""
        moved = {one.option: one.rounded for one in self.limits}
        return tuple(replace(limit, value=moved.get(str(limit), limit.value)) for limit in limits)

    def at_interval_ends(self, rows: pd.DataFrame, limits: Sequence[Limit]) -> "Relaxation":
        """The limits at the far ends of the model's intervals: it meets them with a probability of 97.5 %, not 50 %."""
        size = math.nan if self.img_size is None else self.img_size
        position = int(np.flatnonzero((rows["name"] == self.name) & rows["img_size"].isin([size]))[0])
        by_option = {str(limit): limit for limit in limits}
        moved = []
        for one in self.limits:
            limit = by_option[one.option]
            below, above = (Z * float(side[position]) for side in deviations(rows, limit.column))
            shift = above if limit.bound == "max" else -below
            to = one.to + shift if is_linear(limit.column) else one.to * math.exp(shift)
            moved.append(replace(one, to=to, by=abs(to - one.limit)))
        return replace(self, limits=tuple(moved))


@dataclass(frozen=True)
class Relax:
    """Ways out if no model meets all limits: moving one limit alone, or several as little as possible.

    `unknown` counts the models without a number for a limit, which are not considered.
    """

    each: tuple[Relaxation, ...]
    together: Relaxation | None
    unknown: int


def relax(rows: pd.DataFrame, limits: Sequence[Limit]) -> Relax:
    """The nearest model by moving each limit alone (where that suffices), and by moving limits together.

    Rows without a number for a limit are counted and not considered.
    """
    values = {limit: limit.values_of(rows) for limit in limits}
    known = np.logical_and.reduce([np.isfinite(values[limit]) for limit in limits])
    if not len(rows) or not known.any():
        return Relax((), None, len(rows))
    kept = {limit: limit.kept_by(values[limit]) for limit in limits}
    excess = {limit: limit.excess(values[limit]) for limit in limits}
    single = []
    for limit in limits:
        others_kept = np.logical_and.reduce([known, *(kept[other] for other in limits if other is not limit)])
        candidates = np.flatnonzero(others_kept)
        if len(candidates):
            nearest = int(candidates[np.argmin(excess[limit][candidates])])
            single.append(_relaxation(rows, nearest, limits))
    total = np.where(known, sum(excess.values()), np.inf)
    return Relax(tuple(single), _relaxation(rows, int(np.argmin(total)), limits), int((~known).sum()))


def _relaxation(rows: pd.DataFrame, position: int, limits: Sequence[Limit]) -> Relaxation:
    row = rows.iloc[position]
    moved = []
    for limit in limits:
        value = float(row[limit.column])
        if not limit.kept_by(np.array([value]))[0]:
            by = abs(value - limit.value)
            moved.append(RelaxedLimit(str(limit), limit.metric, limit.unit, limit.value, value, by))
    return Relaxation(str(row["name"]), None if pd.isna(row["img_size"]) else int(row["img_size"]), tuple(moved))
