"""Limits that a model must meet, and how far to relax them if none does."""

import math
from collections.abc import Sequence
from dataclasses import dataclass
from typing import Literal

import numpy as np
import pandas as pd

from favor.analyze.selection import numbers
from favor.metrics import METRICS

# The limits that can be asked for, and the metric that each is about.
LIMITED = {
    "min_accuracy": "top1",
    "max_memory": "inference_memory",
    "max_latency": "latency_p50",
    "max_params": "params",
}


@dataclass(frozen=True)
class Limit:
    """One limit, named as the user's option is (`max_memory`), in the stored unit of its metric."""

    option: str
    metric: str
    bound: Literal["min", "max"]
    value: float

    @classmethod
    def named(cls, option: str, value: float) -> "Limit":
        """The limit of an option; the option's name says which way it bounds.

        >>> Limit.named("min_accuracy", 82.0)
        Limit(option='min_accuracy', metric='top1', bound='min', value=82.0)
        """
        return cls(option, LIMITED[option], "min" if option.startswith("min") else "max", value)

    @property
    def unit(self) -> str:
        """The unit of the limit's value."""
        return METRICS[self.metric].unit

    def values_of(self, rows: pd.DataFrame) -> np.ndarray:
        """The rows' numbers that the limit is about, NaN where unknown."""
        return numbers(rows, self.metric) if self.metric in rows.columns else np.full(len(rows), np.nan)

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


@dataclass(frozen=True)
class RelaxedLimit:
    """A limit moved just far enough: from its value to the model's, by the difference; in the metric's unit."""

    option: str
    metric: str
    unit: str
    limit: float
    to: float
    by: float


@dataclass(frozen=True)
class Relaxation:
    """A model and all the limits that have to move for it."""

    name: str
    img_size: int | None
    limits: tuple[RelaxedLimit, ...]


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
    values = {limit.option: limit.values_of(rows) for limit in limits}
    known = np.logical_and.reduce([np.isfinite(values[limit.option]) for limit in limits])
    if not len(rows) or not known.any():
        return Relax((), None, len(rows))
    kept = {limit.option: limit.kept_by(values[limit.option]) for limit in limits}
    excess = {limit.option: limit.excess(values[limit.option]) for limit in limits}
    each = []
    for limit in limits:
        others_kept = np.logical_and.reduce([known, *(kept[other.option] for other in limits if other is not limit)])
        candidates = np.flatnonzero(others_kept)
        if len(candidates):
            nearest = int(candidates[np.argmin(excess[limit.option][candidates])])
            each.append(_relaxation(rows, nearest, limits))
    total = np.where(known, sum(excess.values()), np.inf)
    return Relax(tuple(each), _relaxation(rows, int(np.argmin(total)), limits), int((~known).sum()))


def _relaxation(rows: pd.DataFrame, position: int, limits: Sequence[Limit]) -> Relaxation:
    row = rows.iloc[position]
    moved = []
    for limit in limits:
        value = float(row[limit.metric])
        if not limit.kept_by(np.array([value]))[0]:
            by = abs(value - limit.value)
            moved.append(RelaxedLimit(limit.option, limit.metric, limit.unit, limit.value, value, by))
    return Relaxation(str(row["name"]), None if pd.isna(row["img_size"]) else int(row["img_size"]), tuple(moved))
