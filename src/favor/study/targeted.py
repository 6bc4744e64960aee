"""Measurements for one question: only models that could still be the answer are measured, until it is certain.

The candidates, what is known of them and the decision need no torch; the caller measures.
"""

import math
import re
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from typing import Protocol

import pandas as pd

from favor.analyze.comparison import Comparison
from favor.analyze.deviations import deviations_by_row
from favor.analyze.flags import DISTURBED, UNSTEADY, flags_on, is_disturbed, is_unsteady
from favor.analyze.intervals import UNKNOWN, Z
from favor.analyze.ranking import PREFERENCES, Request, candidates
from favor.analyze.targeting import Candidate, Measured, Outlook, outlook
from favor.errors import RequestError
from favor.metrics import METRICS
from favor.records.counted import counted_records
from favor.records.schema import Reading, Record
from favor.simulation.shipped import is_called, shipped_devices, shipped_records
from favor.simulation.shipped_timm import shipped_timm_records
from favor.study.estimate import MACS_PER_SECOND
from favor.text import first_few

_MEASURABLE = ("throughput", "latency_p50", "latency_p99", "inference_memory", "memory_process", "energy_per_image")
_MEMORY = ("inference_memory", "memory_process")
_USUAL_DEVICE = "p100"
"""The GPU whose simulated times predict those of processors best; it has no tensor cores."""
_WITHOUT_SIMULATION = 0.7
"""Standard deviation of the logarithm of a cost that is predicted from the number of parameters alone."""
_WATTS = 30.0
_MOST_NAMED = 5


def question(text: str, among: str | None) -> Request:
    """The request that the text of `--for` stands for.

    >>> question("min-accuracy=84 prefer=latency", "timm").question()
    'prefer=latency min-accuracy=84'
    """
    from favor.analyze.limits import ALL_LIMITED, Limit

    prefer, limits = None, []
    known = ["prefer", *(name.replace("_", "-") for name in ALL_LIMITED)]
    for word in text.split():
        key, equals, value = word.partition("=")
        option = key.removeprefix("--").replace("-", "_")
        if not equals or not value or option.replace("_", "-") not in known:
            raise RequestError(f"--for: {word!r} is not OPTION=VALUE with an option of {', '.join(known)}")
        if option == "prefer":
            prefer = value
        else:
            limits.append(Limit.parsed(option, value, f"--for {key}"))
    request = Request(prefer, tuple(limits), among=among)
    involved = [objective_of(request), *(limit.metric for limit in limits)]
    unmeasured = [name for name in involved if METRICS[name].depends_on_device and name not in _MEASURABLE]
    if unmeasured:
        raise RequestError(f"--for: {unmeasured[0]} is not a metric of inference; prefer throughput, latency or memory")
    if not any(name in _MEASURABLE for name in involved):
        raise RequestError(f"--for {text!r} needs no measurement: `favor recommend` answers it at once")
    return request


def objective_of(request: Request) -> str:
    """The metric that orders the candidates."""
    return PREFERENCES[request.prefer][0] if request.prefer else "top1"


def costs_of(request: Request) -> tuple[str, ...]:
    """The metrics that decide and must be measured."""
    involved = [objective_of(request), *(limit.metric for limit in request.limits)]
    return tuple(name for name in dict.fromkeys(involved) if METRICS[name].depends_on_device)


def targets(table: pd.DataFrame, request: Request, device: str) -> list[Candidate]:
    """The models that could be the answer by what is known without measuring; the device gives the predictions."""
    comparison = Comparison(table, request.scope, metrics=("top1", "params"))
    rows = candidates(comparison, request)
    flagged = pd.Series([why is not None for why in deviations_by_row(table, rows)], index=rows.index)
    rows = rows[~flagged & rows["img_size"].notna()]
    for limit in request.limits:
        if not METRICS[limit.metric].depends_on_device:
            rows = rows[limit.kept_by(limit.values_of(rows))]
    if not len(rows):
        raise RequestError("no model meets the limits that are known without measuring, such as min-accuracy")
    costs = costs_of(request)
    predicted = _Predictions.on(device, request.of_timm)
    models = []
    for row in rows.to_dict("records"):
        name, img_size = str(row["name"]), int(row["img_size"])
        known = {key: float(row[key]) for key in ("top1", "params") if pd.notna(row.get(key))}
        family = str(row.get("family") or "") if not request.of_timm else _family_of(name)
        features = predicted.of(name, img_size, known.get("params", math.nan))
        unsure = 0.0 if (name, img_size) in predicted.records else _WITHOUT_SIMULATION
        models.append(Candidate(name, img_size, family, known, {cost: features(cost) for cost in costs}, unsure))
    return models


def _family_of(name: str) -> str:
    """The family in a name of timm: the letters before the first digit or underscore.

    >>> _family_of("timm:levit_256"), _family_of("timm:tf_efficientnet_b3")
    ('levit', 'efficientnet')
    """
    letters = re.match(r"(?:timm:)?(?:tf_|gc|se)?([a-z]+)", name)
    return letters[1] if letters else name


@dataclass(frozen=True)
class _Predictions:
    """What predicts costs: simulated times on a device that resembles the real one, and multiply-adds."""

    records: Mapping[tuple[str, int], Record]
    macs: Mapping[tuple[str, int], float]
    per_second: float | None

    @classmethod
    def on(cls, device: str, of_timm: bool) -> "_Predictions":
        same = next((name for name in shipped_devices() if is_called(name, device)), None)
        simulated = (shipped_timm_records if of_timm else shipped_records)(same or _USUAL_DEVICE)
        records = {
            (record.name, int(record.conditions["img_size"])): record
            for record in simulated
            if record.task == "inference" and record.conditions.get("runtime", "eager") == "eager"
        }
        counted = simulated if of_timm else counted_records()
        macs = {
            (one.name, int(one.conditions["img_size"])): one.metrics["macs"].value
            for one in counted
            if "macs" in one.metrics
        }
        return cls(records, macs, None if same else MACS_PER_SECOND["cpu"])

    def of(self, name: str, img_size: int, params: float) -> Callable[[str], tuple[float, ...]]:
        """The predictors of a model's costs by metric, all logarithms."""
        record = self.records.get((name, img_size))
        # A guess if nothing else is known: half of the parameters are used once per token of 16 x 16 pixels.
        macs = self.macs.get((name, img_size)) or 0.5 * params * (img_size / 16) ** 2

        def predictors(cost: str) -> tuple[float, ...]:
            if cost in _MEMORY:
                held = record.metrics["inference_memory"].value if record else 4 * params + 60 * img_size**2 * 4
                return math.log(held * (2.0 if self.per_second else 1.0)), math.log(params)
            seconds = 1 / record.metrics["throughput"].value if record else macs / 4e12
            latency = record.metrics["latency_p50"].value if record else 0.01
            first = seconds if not self.per_second else _mix(macs / self.per_second, seconds)
            if not self.per_second and cost.startswith("latency"):
                first = latency
            if cost == "energy_per_image":
                first *= _WATTS
            return math.log(first), math.log(macs), math.log(seconds), math.log(latency), math.log(params)

        return predictors


def _mix(by_work: float, simulated: float) -> float:
    """A prediction for a processor: multiply-adds and simulated time explain about half of its cost each.

    A processor is about a hundred times slower than the simulated device.
    """
    return math.sqrt(by_work * 100 * simulated)


class Measure(Protocol):
    """Measures a model at an image size within a budget; the record may be of a failure."""

    def __call__(self, name: str, img_size: int, budget: float) -> Record: ...


@dataclass(frozen=True)
class Step:
    """The next measurement, the chance that its model is the answer, and how many models could still be it."""

    candidate: Candidate
    chance: float
    open: int


@dataclass(frozen=True)
class Answered:
    """How a question was answered: the candidates, those that were measured, and every candidate's chance."""

    candidates: tuple[Candidate, ...]
    measured: Mapping[int, Measured]
    outlook: Outlook

    @property
    def favored(self) -> Candidate | None:
        """The most likely answer."""
        at = self.outlook.likeliest
        return None if at is None else self.candidates[at]

    @property
    def chance(self) -> float:
        """How sure the answer is."""
        return max(self.outlook.chances, default=0.0)

    @property
    def open(self) -> tuple[Candidate, ...]:
        """The candidates that could still be the answer because their measurements are uninformative."""
        chances = self.outlook.chances
        return tuple(self.candidates[at] for at, one in self.measured.items() if one.is_open and chances[at] > 0)

    @property
    def certainty(self) -> str:
        """How sure the answer is, in words."""
        if self.favored is None:
            return "no model meets the limits"
        if self.open:
            names = first_few([candidate.name for candidate in self.open], _MOST_NAMED)
            return f"not sure, since other programs disturbed {names}; run it again when the machine is idle"
        return f"{self.chance:.0%} sure"


def measure_for(
    candidates: list[Candidate],
    request: Request,
    known: Mapping[tuple[str, int], Record],
    measure: Measure,
    budget: float,
    tell: Callable[[Step], None] = lambda step: None,
) -> Answered:
    """Measure candidates until the answer to a request is certain; `known` are measurements that exist already.

    A disturbed measurement is repeated once; one that exists already counts as not made.
    """
    objective, costs = objective_of(request), costs_of(request)
    number_of = {(candidate.name, candidate.img_size): at for at, candidate in enumerate(candidates)}
    measured = {
        number_of[key]: measured_in(record, costs)
        for key, record in known.items()
        if key in number_of and not _was_disturbed(record, costs)
    }
    for _ in range(3 * len(candidates) + 1):
        view = outlook(candidates, measured, objective, request.limits, budget)
        at = view.following
        if at is None:
            break
        candidate = candidates[at]
        tell(Step(candidate, view.chances[at], sum(chance > 0.001 for chance in view.chances)))
        record = measure(candidate.name, candidate.img_size, view.budget)
        if _was_disturbed(record, costs):
            record = measure(candidate.name, candidate.img_size, view.budget)
        measured[at] = measured_in(record, costs, view.budget)
    return Answered(tuple(candidates), measured, view)


def _was_disturbed(record: Record, costs: Sequence[str]) -> bool:
    """Whether other load, or a contradiction, puts a deciding number in doubt."""
    flags = record.environment.get("flags")
    return record.status == "ok" and any(is_disturbed(flags_on(name, flags)) for name in costs)


def measured_in(record: Record, costs: Sequence[str], budget: float | None = None) -> Measured:
    """The measured numbers of a record with their relative standard deviations; none if it failed.

    The measurement is open if one of the deciding costs is uninformative.
    """
    spent = budget if budget is not None else float(record.environment.get("budget", 0.0))
    if record.status != "ok":
        return Measured({}, spent)
    values: dict[str, tuple[float, float]] = {}
    flags, is_open = record.environment.get("flags"), False
    for name in _MEASURABLE:
        reading = record.metrics.get(name)
        if reading is None or reading.value <= 0:
            continue
        deviation = _deviation(name, reading, flags_on(name, flags))
        if deviation is not None:
            values[name] = (reading.value, deviation)
        elif name in costs:
            is_open = True
    return Measured(values, spent, is_open)


def _deviation(name: str, reading: Reading, flags: str | None) -> float | None:
    """The relative standard deviation of a number, by the rules of analyze/intervals.py; None if uninformative."""
    if reading.low is not None and reading.high is not None:
        own = math.log(reading.high / max(reading.low, 1e-3 * reading.value)) / (2 * Z)
    elif is_disturbed(flags):
        return None
    else:
        own = 0.0 if METRICS[name].exact else UNKNOWN / Z
    unsteady = UNSTEADY if is_unsteady(flags) else 0.0
    # On both sides, since a Gaussian process knows no other noise.
    disturbed = DISTURBED / Z if is_disturbed(flags) else 0.0
    return math.hypot(own, unsteady, disturbed)
