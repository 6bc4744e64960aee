"""Breakpoints of load tests: the batch at which gains end, and where two models change places."""

from collections.abc import Sequence
from dataclasses import dataclass
from itertools import combinations
from typing import Literal, Protocol

import numpy as np

GAIN = 0.05
"""A batch gains if it is faster by more than this share."""

TIE = 0.05
"""Models within this share of each other have not changed places."""


class RatePoint(Protocol):
    """Latencies in seconds at a rate in queries per second."""

    @property
    def rate(self) -> float: ...
    @property
    def largest_batch(self) -> int: ...
    @property
    def longest_wait(self) -> float: ...
    @property
    def p50(self) -> float: ...
    @property
    def p90(self) -> float: ...
    @property
    def p99(self) -> float: ...
    @property
    def answers(self) -> int: ...


class BatchPoint(Protocol):
    """Images per second and seconds of a batch."""

    @property
    def batch_size(self) -> int: ...
    @property
    def throughput(self) -> float: ...
    @property
    def latency(self) -> float: ...


@dataclass(frozen=True)
class LoadCurve:
    """The load test of one model: its largest load with the interval, and the curves of its final batching.

    `rates` are ordered by rate, each once; those of a multi-stream by the size of its queries.
    """

    name: str
    max_qps: float
    low: float | None
    high: float | None
    largest_batch: int
    longest_wait: float
    rates: tuple[RatePoint, ...]
    batches: tuple[BatchPoint, ...]

    @property
    def gains_end_at(self) -> int | None:
        """The batch from which on no larger one is more than 5 % faster; None if the largest still gains."""
        return gains_end(self.batches)


@dataclass(frozen=True)
class ChangeOfPlaces:
    """Two models change places: `before` is better at first, `after` is better from there on.

    By throughput `at` is a batch size, by the 99th percentile of latency a rate in queries per second.
    """

    before: str
    after: str
    by: Literal["throughput", "p99"]
    at: float


@dataclass(frozen=True)
class LoadComparison:
    """Load tests in one setting, the largest load first, and where their models change places.

    `limit` is the latency limit for 99 % of the answers in seconds; None without one.
    """

    setting: str
    scenario: str
    limit: float | None
    curves: tuple[LoadCurve, ...]
    changes: tuple[ChangeOfPlaces, ...]


def compare_loads(setting: str, scenario: str, limit: float | None, curves: Sequence[LoadCurve]) -> LoadComparison:
    """Load tests of one setting, compared."""
    ordered = tuple(sorted(curves, key=lambda curve: (-curve.max_qps, curve.name)))
    changes = [change for a, b in combinations(ordered, 2) for change in _changes(a, b, by_p99=scenario == "server")]
    return LoadComparison(setting, scenario, limit, ordered, tuple(changes))


def curve_at(points: Sequence[RatePoint], largest_batch: int, longest_wait: float) -> tuple[RatePoint, ...]:
    """The points of one batching by their rates; of two at one rate, the one with more answers."""
    best: dict[float, RatePoint] = {}
    for point in points:
        is_of_batching = (point.largest_batch, point.longest_wait) == (largest_batch, longest_wait)
        if is_of_batching and point.answers and (point.rate not in best or point.answers > best[point.rate].answers):
            best[point.rate] = point
    return tuple(best[rate] for rate in sorted(best))


def by_query_size(points: Sequence[RatePoint]) -> tuple[RatePoint, ...]:
    """The points of a multi-stream: each size of its queries is a batch of its own."""
    return tuple(sorted((point for point in points if point.answers), key=lambda point: point.largest_batch))


def gains_end(batches: Sequence[BatchPoint]) -> int | None:
    """The smallest batch that no larger one beats by more than 5 %; None if the largest that was tried still does."""
    ordered = sorted(batches, key=lambda point: point.batch_size)
    for place, point in enumerate(ordered[:-1]):
        if all(later.throughput <= (1 + GAIN) * point.throughput for later in ordered[place + 1 :]):
            return point.batch_size
    return None


def _changes(a: LoadCurve, b: LoadCurve, *, by_p99: bool) -> list[ChangeOfPlaces]:
    fast = [{point.batch_size: point.throughput for point in curve.batches} for curve in (a, b)]
    common = sorted(set(fast[0]) & set(fast[1]))
    changes = _change(a, b, "throughput", np.log([fast[0][batch] / fast[1][batch] for batch in common]), common)
    rates = _common_rates(a.rates, b.rates) if by_p99 else []
    if len(rates) > 1:
        p99 = [np.exp(np.interp(rates, *_log_p99(curve.rates))) for curve in (a, b)]
        changes += _change(a, b, "p99", np.log(p99[1] / p99[0]), rates)
    return changes


def _change(
    a: LoadCurve, b: LoadCurve, by: Literal["throughput", "p99"], leads: np.ndarray, places: Sequence[float]
) -> list[ChangeOfPlaces]:
    """The change that lasts, if there is one; a short probe may put one model ahead for a moment. a leads where > 0."""
    clear = [at for at in range(len(leads)) if abs(leads[at]) > np.log1p(TIE)]
    if not clear or leads[clear[0]] * leads[clear[-1]] > 0:
        return []
    against = max(at for at in clear if leads[at] * leads[clear[-1]] < 0)
    since = min(at for at in clear if at > against)
    before, after = (a, b) if leads[since] < 0 else (b, a)
    return [ChangeOfPlaces(before.name, after.name, by, float(places[since]))]


def _common_rates(a: Sequence[RatePoint], b: Sequence[RatePoint]) -> list[float]:
    """The rates of both where both have a curve."""
    if not a or not b:
        return []
    low, high = max(a[0].rate, b[0].rate), min(a[-1].rate, b[-1].rate)
    return sorted({point.rate for point in (*a, *b) if low <= point.rate <= high})


def _log_p99(points: Sequence[RatePoint]) -> tuple[list[float], list[float]]:
    return [point.rate for point in points], [float(np.log(point.p99)) for point in points]
