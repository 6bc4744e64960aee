"""The data of a recommendation: the favored model, the reason, its probability, and the alternatives."""

from dataclasses import asdict, dataclass
from html import escape
from typing import Any, Literal

import pandas as pd

from favor.analyze.limits import Limit, Relax
from favor.analyze.metric_column import MetricColumn
from favor.analyze.ranking import PUBLISHED_DEVICE
from favor.analyze.setting import EAGER, QUANTIZED, Setting
from favor.units import format_quantity
from favor.zoo.cards import TIMM

_CERTAIN = 0.95  # the headline has the probability of a model that is best less often


@dataclass(frozen=True)
class Seeds:
    """The training runs behind a quality: their number, mean, standard deviation (None for one run) and best value."""

    n: int
    mean: float
    std: float | None
    best: float


@dataclass(frozen=True)
class Reading:
    """One number of a model with everything it needs: unit, interval, source, setting, origin.

    `unfinished` is the number of epochs of a training run that has not ended; `epochs` are the lengths of the shortest
    and the longest training run behind it; `flags` are reasons to distrust a measurement.
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
    epochs: tuple[float, float] | None = None
    flags: str | None = None


@dataclass(frozen=True)
class TrainedWeights:
    """The published weights that an accuracy belongs to: the tag of the checkpoint, and what the tag means."""

    tag: str
    pretraining: str | None
    distilled: bool

    def __str__(self) -> str:
        further = [] if self.pretraining in (None, "imagenet-1k") else [f"from {self.pretraining}"]
        return ", ".join([self.tag, *further, *(["distilled"] if self.distilled else [])])


@dataclass(frozen=True)
class Choice:
    """A model that could be favored.

    `probability_best` is the share of draws from the intervals in which it is the best that meets all limits; None if
    the uncertainty of one of its numbers is unknown. `on_front` tells whether it is on the Pareto front of accuracy
    and what is preferred, with every model in its best runtime. `flag` says why its accuracy must not decide.
    `command` creates it, if favor has it, and `deployment` gets it into its runtime, if that is not eager mode,
    and into bf16.
    `runtime` and `precision` are those of its costs; None where no cost is compared. `weights` are those that its
    accuracy belongs to, where it is the accuracy of published weights. With `names_precision` the candidates ran in
    several precisions besides int8. `training_run` is the folder of the user's training run that its accuracy is from,
    of several seeds the best one.
    """

    name: str
    title: str | None
    family: str | None
    how: str | None
    img_size: int | None
    metrics: dict[str, Reading]
    probability_best: float | None
    on_front: bool | None
    flag: str | None
    command: str | None
    runtime: str | None = None
    precision: str | None = None
    weights: TrainedWeights | None = None
    deployment: str | None = None
    names_precision: bool = False
    training_run: str | None = None

    @property
    def run(self) -> str:
        """What it runs in, in words: the precision only where it is integers, or one of several."""
        is_named = self.names_precision or self.precision == QUANTIZED
        return " ".join(filter(None, (self.runtime, self.precision if is_named else None)))

    @property
    def called(self) -> str:
        """The model and, unless it is eager mode in the only precision, what it runs in.

        >>> Choice("vit_s16", None, None, None, 224, {}, None, None, None, None, "openvino", "int8").called
        'vit_s16 in openvino int8'
        """
        return self.name if self.run in ("", EAGER) else f"{self.name} in {self.run}"


@dataclass(frozen=True)
class ToDecide:
    """How to decide between models: the metric to measure better, why, a command, and the minutes it takes.

    Without a command, favor has nothing to run that would decide.
    """

    metric: str
    why: str
    command: str | None
    minutes: float | None


@dataclass(frozen=True)
class Binding:
    """A limit that decides: without it `instead` would be favored, or could be if that is not `certain`."""

    option: str
    instead: str
    certain: bool = True

    def __str__(self) -> str:
        """The limit and its effect in words.

        >>> str(Binding("max_latency", "vit_s16", certain=False))
        'max_latency may decide: without it vit_s16 may be favored'
        """
        if self.certain:
            return f"{self.option} decides: without it {self.instead} would be favored"
        return f"{self.option} may decide: without it {self.instead} may be favored"


@dataclass(frozen=True)
class GivesUp:
    """What the favored model gives up in one metric, compared with the best model that also meets the limits."""

    metric: str
    unit: str
    own: float
    best: float
    to: str


@dataclass(frozen=True)
class Why:
    """The reason in one sentence, who is as good, the limits that decide, who is dominated, and what is given up.

    `without_intervals` are those of `dominates` for which a compared number has no interval.
    """

    summary: str
    ties: tuple[str, ...]
    binding: tuple[Binding, ...]
    dominates: tuple[str, ...]
    gives_up: tuple[GivesUp, ...]
    without_intervals: tuple[str, ...] = ()


@dataclass(frozen=True)
class Recommendation:
    """The answer. `ranked_by` is the basis of the order: numbers, or the published front if there are none.

    A model is favored if it is the best in most draws from the intervals. Otherwise `undecided_between` are the models
    that it lies between, most probable first, and `to_decide` is what to measure. `undecided` says why no model is
    favored: this, limits or a preference without any number, or accuracies that cannot be compared. `next_steps` are
    commands after which the user's own measurements decide, and `next_minutes` is how long they take.
    """

    favored: Choice | None
    undecided_between: tuple[Choice, ...]
    to_decide: ToDecide | None
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
    next_minutes: float | None

    def to_dict(self) -> dict[str, Any]:
        """Plain content for JSON; every limit carries its unit."""
        content = asdict(self)
        content["limits"] = [asdict(limit) | {"unit": limit.unit, "tested": limit.tested} for limit in self.limits]
        return content

    @property
    def headline(self) -> str | None:
        """The favored model in a line, with the probability unless it is certain; None if no model is favored."""
        if self.favored is None:
            return None
        how = ""
        if self.ranked_by == "published front":
            how = f" (by the paper's {PUBLISHED_DEVICE.upper()} front)"
        elif self.favored.probability_best is None:
            how = " (certainty unknown)"
        elif self.favored.probability_best < _CERTAIN:
            how = f" (probability {self.favored.probability_best:.0%})"
        return f"Favored: {self.favored.called}{how}"

    @property
    def choices(self) -> tuple[Choice, ...]:
        """All models that are shown, first the favored one or those that it is undecided between."""
        return (*((self.favored,) if self.favored else self.undecided_between), *self.runners_up)

    def _repr_html_(self) -> str:
        """In a notebook: the reason, and a table of the favored model and the next best."""
        metrics = list(dict.fromkeys(name for choice in self.choices for name in choice.metrics))
        rows = [["model", *metrics, "best in"]]
        for choice in self.choices:
            readings = [choice.metrics.get(name) for name in metrics]
            sure = "" if choice.probability_best is None else f"{choice.probability_best:.0%}"
            numbers = ["" if reading is None else format_quantity(reading.value, reading.unit) for reading in readings]
            rows.append([choice.called, *numbers, sure])
        table = "".join("<tr>" + "".join(f"<td>{escape(cell)}</td>" for cell in row) + "</tr>" for row in rows)
        reason = (
            f"{self.headline}. {self.why.summary}"
            if self.why
            else "; ".join(self.undecided) or "no model meets all limits"
        )
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
        unit=MetricColumn.named(metric).metric.unit,
        low=None if high is None else low,
        high=None if low is None else high,
        source=text_in(row, f"{metric}_source"),
        setting=text_in(row, f"{metric}_setting"),
        provenance=text_in(row, f"{metric}_provenance"),
        seeds=Seeds(int(seeds), row[f"{metric}_mean"], own("_std"), row[f"{metric}_best"]) if seeds else None,
        unfinished=own("_unfinished"),
        epochs=None if (least := own("_epochs_low")) is None else (least, own("_epochs_high") or least),
        flags=text_in(row, f"{metric}_flags"),
    )


def weights_of(row: pd.Series) -> TrainedWeights | None:
    """The published weights that the accuracy of a compared row belongs to; None if it is from a training run."""
    pipeline, setting = text_in(row, "top1_pipeline"), row.get("top1_setting")
    if pipeline is None or not pipeline.startswith(TIMM) or not isinstance(setting, Setting):
        return None
    return TrainedWeights(pipeline.removeprefix(TIMM), setting.pretraining, setting.distillation is True)


def text_in(row: pd.Series, column: str) -> str | None:
    """The text in a column of a row; None where it is unknown or empty."""
    value = row.get(column)
    return None if value is None or pd.isna(value) else str(value) or None
