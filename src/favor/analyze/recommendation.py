"""The data of a recommendation: the favored model, the reason, its probability, and the alternatives."""

from dataclasses import asdict, dataclass
from html import escape
from typing import Any, Literal

import pandas as pd

from favor.analyze.limits import Limit, Relax
from favor.metrics import METRICS
from favor.units import format_quantity


@dataclass(frozen=True)
class Seeds:
    """How many trainings stand behind a quality, their mean, standard deviation (None of one) and the best of them."""

    n: int
    mean: float
    std: float | None
    best: float


@dataclass(frozen=True)
class Reading:
    """One number of a model with everything it needs: unit, interval, source, setting, origin.

    `unfinished` is after how many epochs a training that has not ended was evaluated.
    """

    value: float
    unit: str
    low: float | None
    high: float | None
    source: str | None
    setting: str | None
    provenance: str | None
    seeds: Seeds | None = None
    unfinished: float | None = None


@dataclass(frozen=True)
class Choice:
    """A model that could be favored.

    `probability_best` is the share of draws from the intervals in which it is the best that keeps all limits. `flag`
    says why its accuracy must not decide.
    """

    name: str
    title: str | None
    family: str | None
    how: str | None
    img_size: int | None
    metrics: dict[str, Reading]
    probability_best: float | None
    flag: str | None
    command: str


@dataclass(frozen=True)
class Binding:
    """A limit that decides: without it `instead` would be favored."""

    option: str
    instead: str


@dataclass(frozen=True)
class GivesUp:
    """What the favored model gives up in one metric to the best model of it that keeps the limits, too."""

    metric: str
    unit: str
    own: float
    best: float
    to: str


@dataclass(frozen=True)
class Why:
    """The reason in one sentence, who is as good, the limits that decide, who is dominated, and what is given up."""

    summary: str
    ties: tuple[str, ...]
    binding: tuple[Binding, ...]
    dominates: tuple[str, ...]
    gives_up: tuple[GivesUp, ...]


@dataclass(frozen=True)
class Recommendation:
    """The answer. `ranked_by` is the basis of the order: numbers, or the published front if there are none.

    `undecided` lists the limits or preference without any number; then no model is favored.
    """

    favored: Choice | None
    runners_up: tuple[Choice, ...]
    flagged: tuple[Choice, ...]
    limits: tuple[Limit, ...]
    relax: Relax | None
    undecided: tuple[str, ...]
    why: Why | None
    objective: str
    ranked_by: Literal["numbers", "published front"]
    accuracy_basis: str
    considered: int
    notes: tuple[str, ...]
    next_steps: tuple[str, ...]

    def to_dict(self) -> dict[str, Any]:
        """Plain content for JSON; every limit carries its unit."""
        content = asdict(self)
        content["limits"] = [asdict(limit) | {"unit": limit.unit} for limit in self.limits]
        return content

    def _repr_html_(self) -> str:
        """In a notebook: the reason, and a table of the favored model and the next best."""
        choices = [choice for choice in (self.favored, *self.runners_up) if choice is not None]
        metrics = list(dict.fromkeys(name for choice in choices for name in choice.metrics))
        rows = [["model", *metrics, "best in"]]
        for choice in choices:
            found = [choice.metrics.get(name) for name in metrics]
            sure = "" if choice.probability_best is None else f"{choice.probability_best:.0%}"
            numbers = ["" if one is None else format_quantity(one.value, one.unit) for one in found]
            rows.append([choice.name, *numbers, sure])
        table = "".join("<tr>" + "".join(f"<td>{escape(cell)}</td>" for cell in row) + "</tr>" for row in rows)
        reason = self.why.summary if self.why else "; ".join(self.undecided) or "no model keeps all limits"
        return f"<p>{escape(reason)}</p><table>{table}</table>"


def reading_of(row: pd.Series, metric: str) -> Reading:
    """A metric of a compared row."""

    def own(suffix: str) -> float | None:
        value = row.get(f"{metric}{suffix}")
        return None if value is None or pd.isna(value) else float(value)

    seeds = own("_seeds")
    low, high = own("_low"), own("_high")
    return Reading(
        value=float(row[metric]),
        unit=METRICS[metric].unit,
        low=None if high is None else low,
        high=None if low is None else high,
        source=text_in(row, f"{metric}_source"),
        setting=text_in(row, f"{metric}_setting"),
        provenance=text_in(row, f"{metric}_provenance"),
        seeds=Seeds(int(seeds), row[f"{metric}_mean"], own("_std"), row[f"{metric}_best"]) if seeds else None,
        unfinished=own("_unfinished"),
    )


def text_in(row: pd.Series, column: str) -> str | None:
    """The text in a column of a row; None where it is unknown or empty."""
    value = row.get(column)
    return None if value is None or pd.isna(value) else str(value) or None
