"""What to measure next so that a question is answered with few measurements.

Accuracies and sizes are known; costs on a device are not. A Gaussian process predicts the logarithm of every cost from
what is known of the models (multiply-adds, simulated times, parameters), and the measurements correct it: for all
models, more for those of the same family, most for the model itself. Joint draws from it give every model's chance to
be the answer. The likeliest one that is not measured yet comes next, with a short measurement; close contenders then
get longer ones. The answer is sure when no other model is likely.
"""

import math
from collections.abc import Mapping, Sequence
from dataclasses import dataclass

import numpy as np

from favor.analyze.chances import shares_of_best
from favor.analyze.limits import Limit
from favor.analyze.trainings import LEAST_TO_COMPARE
from favor.metrics import METRICS

SURE = 0.95
"""The answer is certain when the chance of all others together is below 5 %."""
HALVINGS = 2
"""The first look takes a quarter of the budget, the next half of it, the last all of it."""
BETWEEN_PROCESSES = 0.015
"""Standard deviation of the logarithm of a cost between processes, which a longer measurement does not reduce."""

_OFFSET, _SLOPE = 1.0, 0.3
_RESIDUALS = (0.1, 0.15, 0.25, 0.35, 0.5)
_USUAL_RESIDUAL, _RESIDUAL_SPREAD = 0.3, 0.5
_FREEDOM = 5.0
_DRAWS = 2000


@dataclass(frozen=True)
class Candidate:
    """A model at an image size that could be the answer: what is known of it without measuring.

    `known` has the numbers by metric (top1, params). `predictors` has, for each metric that must be measured, first a
    rough prediction of the logarithm of its cost, then what else may explain it. `deviation` is the standard deviation
    of what they leave open for this model in particular.
    """

    name: str
    img_size: int
    family: str
    known: Mapping[str, float]
    predictors: Mapping[str, tuple[float, ...]]
    deviation: float = 0.0


@dataclass(frozen=True)
class Measured:
    """A candidate's measurement: the value and its relative standard deviation by metric, and the budget it took.

    A failed one has no values. One that `is_open` lacks a number that decides, since the machine was busy.
    """

    values: Mapping[str, tuple[float, float]]
    budget: float
    is_open: bool = False

    @property
    def has_failed(self) -> bool:
        """Whether the model cannot be measured, and so cannot be the answer."""
        return not self.values and not self.is_open


@dataclass(frozen=True)
class Outlook:
    """Every candidate's chance to be the answer, and what to measure next: a candidate and a budget, or None."""

    chances: tuple[float, ...]
    following: int | None
    budget: float

    @property
    def likeliest(self) -> int | None:
        """The candidate that is most likely the answer; None if none meets the limits."""
        best = max(range(len(self.chances)), key=self.chances.__getitem__, default=None)
        return best if best is not None and self.chances[best] > 0 else None


def outlook(
    candidates: Sequence[Candidate],
    measured: Mapping[int, Measured],
    objective: str,
    limits: Sequence[Limit],
    budget: float,
) -> Outlook:
    """What is known of the answer after some measurements, and which one comes next; the last ones take `budget`."""
    rng = np.random.default_rng([0, len(measured)])
    involved = list(dict.fromkeys([objective, *(limit.metric for limit in limits)]))
    failed = [at for at, measurement in measured.items() if measurement.has_failed]
    drawn = {}
    for metric in involved:
        if METRICS[metric].depends_on_device:
            drawn[metric] = _drawn_costs(candidates, measured, metric, rng)
        else:
            numbers = np.array([one.known.get(metric, math.nan) for one in candidates])
            drawn[metric] = np.broadcast_to(numbers, (_DRAWS, len(candidates)))
    possible = np.ones(len(candidates), dtype=bool)
    possible[failed] = False
    chances = shares_of_best(drawn, objective, limits, possible)
    return Outlook(tuple(chances.tolist()), *_next(chances, measured, budget))


def _next(chances: np.ndarray, measured: Mapping[int, Measured], budget: float) -> tuple[int | None, float]:
    """The candidate to measure and its budget: an unmeasured one while any is likely, then the closest contenders."""
    first = budget / 2**HALVINGS
    new = np.array([at not in measured for at in range(len(chances))])
    likely = np.where(new, chances, -1.0)
    succeeded = sum(bool(measurement.values) for measurement in measured.values())
    if new.any() and (chances[new].sum() > 1 - SURE or (succeeded < LEAST_TO_COMPARE and likely.max() > 0)):
        return int(likely.argmax()), first
    if chances.size and chances.max() >= SURE:
        return None, 0.0
    shorter = [
        (measurement.budget, -chances[at], at)
        for at, measurement in measured.items()
        if not measurement.has_failed and chances[at] > 1 - SURE and measurement.budget < budget * 0.99
    ]
    if not shorter:
        return None, 0.0
    spent, _, at = min(shorter)
    return at, min(budget, max(first, 2 * spent))


def _drawn_costs(
    candidates: Sequence[Candidate], measured: Mapping[int, Measured], metric: str, rng: np.random.Generator
) -> np.ndarray:
    """Draws of a metric for all candidates at once, given the measurements: what they share is drawn once."""
    sign = METRICS[metric].sign
    predictors = np.array([one.predictors[metric] for one in candidates])
    families = np.array([one.family for one in candidates])
    seen = [at for at, measurement in measured.items() if metric in measurement.values]
    values = np.array([sign * math.log(measured[at].values[metric][0]) for at in seen])
    noise = np.array([math.hypot(measured[at].values[metric][1], BETWEEN_PROCESSES) for at in seen])
    unsure = np.array([one.deviation for one in candidates])
    mean, covariance = _posterior(predictors, families, unsure, seen, values, noise)
    factor = np.linalg.cholesky(covariance + 1e-8 * np.eye(len(candidates)))
    normal = rng.standard_normal((_DRAWS, len(candidates))) @ factor.T
    # Residuals of predictions have heavier tails than a normal distribution: some kernels are surprisingly fast.
    tails = np.sqrt(_FREEDOM / rng.chisquare(_FREEDOM, normal.shape))
    tails[:, seen] = 1.0
    return np.exp(sign * (mean + normal * tails))


def _posterior(
    predictors: np.ndarray,
    families: np.ndarray,
    unsure: np.ndarray,
    seen: Sequence[int],
    values: np.ndarray,
    noise: np.ndarray,
) -> tuple[np.ndarray, np.ndarray]:
    """Mean and covariance of the logarithms of all costs, given those that were measured.

    The prior is a line in the predictors with uncertain offset and slopes, and residuals of which families share half
    the variance. How large these are is the most probable of a few values.
    """
    centered = predictors - predictors.mean(axis=0)
    line = _OFFSET**2 + _SLOPE**2 * centered @ centered.T + np.diag(unsure**2)
    related = 0.5 * (families[:, None] == families[None, :]) + 0.5 * np.eye(len(families))
    expected = predictors[:, 0]
    if not seen:
        return expected, line + _USUAL_RESIDUAL**2 * related
    at = np.ix_(seen, seen)
    difference = values - expected[seen]

    def evidence(residual: float) -> float:
        own = line[at] + residual**2 * related[at] + np.diag(noise**2)
        _, size = np.linalg.slogdet(own)
        usual = (math.log(residual / _USUAL_RESIDUAL) / _RESIDUAL_SPREAD) ** 2
        return float(-0.5 * (difference @ np.linalg.solve(own, difference) + size + usual))

    prior = line + max(_RESIDUALS, key=evidence) ** 2 * related
    gain = np.linalg.solve(prior[at] + np.diag(noise**2), prior[seen]).T
    return expected + gain @ difference, prior - gain @ prior[seen]
