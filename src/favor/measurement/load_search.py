"""The largest rate of Poisson arrivals within a latency limit: bisection, each probe decided by a sequential test.

Rates are those of a fixed grid, and queries arrive in the same pattern in every probe, so that two searches ask the
same questions.
"""

import math
from collections.abc import Callable, Iterable, Sequence
from dataclasses import dataclass
from typing import Protocol

from favor.machine.clock import Clock
from favor.machine.stopping import Estimate, quantile
from favor.measurement.sequential_test import RATE_APART, LateAnswers, rates_apart
from favor.queueing import batch_taken
from favor.records.schema import RatePoint

GRID = 1.02
"""The ratio of two neighboring rates."""

FIRST_STEP = 8
LEAST_QUERIES = 10
"""A rate that gives fewer queries in a probe cannot be judged."""

SHARE_OF_PROBE = 1 / 8
LEAST_SHARE_OF_PROBE = 1 / 30
SHARE_OF_CURVE = 0.15
"""Shares of the budget: for one probe at most and at least, and for the rates that only the curve needs."""

MARGIN = 1.1
"""How far above the rate of the fastest batches to search: they are timed briefly, perhaps in a slow moment."""

CURVE_RATES = (0.25, 0.5, 0.75)
"""Shares of the largest rate at which the curve gets additional points."""


@dataclass(frozen=True)
class Batching:
    """Dynamic batching: an idle server takes up to `largest` queries, once that many wait or one waited `wait` s."""

    largest: int
    wait: float = 0.0

    def take(self, waiting: int, waited: float) -> int:
        """How many of the waiting queries to take now, given how long the oldest has waited, in seconds.

        >>> policy = Batching(largest=4, wait=0.010)
        >>> policy.take(3, 0.002), policy.take(4, 0.002), policy.take(3, 0.010)
        (0, 4, 2)
        """
        return batch_taken(waiting, self.largest) if waiting >= self.largest or waited >= self.wait else 0

    def __str__(self) -> str:
        return f"batches of up to {self.largest}" + (f" after {1000 * self.wait:.3g} ms" if self.wait else "")


OnAnswer = Callable[[float, bool], bool]
"""Gets the latency of an answer and whether its query found no other waiting; returns whether to end the probe."""


class Traffic(Protocol):
    """Sends queries to the system under test."""

    def poisson(self, rate: float, batching: Batching, seconds: float, limit: float, on_answer: OnAnswer) -> bool:
        """Send queries for so many seconds, or until it is enough; False if so many waited that it gave up."""


@dataclass(frozen=True)
class LargestRate:
    """The largest rate in queries per second (0: none meets the limit) with the bracket that was decided, and how.

    `finished` is False if the budget ended before two neighboring rates enclosed it. `decided` is False if no probe
    below the rate, or none of those above it, was decided: an end of the interval is unknown.
    """

    rate: Estimate
    batching: Batching
    points: tuple[RatePoint, ...]
    finished: bool
    decided: bool


class OutOfTimeError(Exception):
    """The budget has ended, or is too short for a probe."""


class RateSearch:
    """A search within a budget of seconds; `on_probe` hears of each probe before it starts."""

    def __init__(
        self,
        traffic: Traffic,
        limit: float,
        budget: float,
        clock: Clock,
        on_probe: Callable[[float, Batching, float], None] = lambda rate, batching, left: None,
    ) -> None:
        self._traffic, self._limit, self._budget, self._clock, self._on_probe = traffic, limit, budget, clock, on_probe
        self._began = clock.now()
        self._points: list[RatePoint] = []
        self._largest_kept: dict[Batching, int] = {}

    def run(self, first: float, highest: float, batchings: Sequence[Batching]) -> LargestRate:
        """Search from the expected rate with the first batching, then with others if they help.

        `highest` is the rate of the fastest batches. All rates are in queries per second.
        """
        best, finished = batchings[0], False
        # A probe sees that such a rate is too high only if it is long enough for half the limit of queries to pile up.
        is_seen = SHARE_OF_PROBE * self._budget >= self._limit / 2 / (MARGIN - 1)
        top = _place(MARGIN * highest if is_seen else highest)
        try:
            kept = self._search(min(_place(first), top), top, best)
            for batching in batchings[1:]:
                # Two grid steps up: one alone may be luck.
                if kept is not None and kept + 2 <= top and self._is_kept(kept + 2, batching):
                    best = batching
                    kept = self._search(kept + 3, top, best, known=kept + 2)
            finished = True
            # A slow moment may have spoiled the probe that ended the search, or an earlier one.
            while kept is not None and kept < top and self._is_kept(kept + 1, best):
                kept = self._search(kept + 2, top, best, known=kept + 1)
        except OutOfTimeError:
            kept = self._largest_kept.get(best)
        rate = 0.0 if kept is None else _rate(kept)
        self._fill_curve(rate, best)
        decided = self._is_decided(rate, best)
        return LargestRate(self._estimate(rate, best), best, tuple(self._points), finished, decided)

    def _search(self, place: int, top: int, batching: Batching, known: int | None = None) -> int | None:
        return self._bisect(*self._bracket(place, top, batching, known), batching)

    def _bracket(self, place: int, top: int, batching: Batching, known: int | None) -> tuple[int | None, int]:
        """The grid positions of a rate within the limit and of one beyond it, found by growing steps."""
        kept, exceeded, step = known, top + 1, FIRST_STEP if known is None else 2
        while True:
            if place > top:
                return kept, top + 1
            if self._is_kept(place, batching):
                kept = place
                if exceeded <= top:
                    return kept, exceeded
                place = min(place + step, top) if place < top else top + 1
            else:
                exceeded = place
                if kept is not None:
                    return kept, exceeded
                place -= step
            step *= 2

    def _bisect(self, kept: int | None, exceeded: int, batching: Batching) -> int | None:
        while kept is not None and exceeded - kept > 1:
            middle = (kept + exceeded) // 2
            if self._is_kept(middle, batching):
                kept = middle
            else:
                exceeded = middle
        return kept

    def _is_kept(self, place: int, batching: Batching) -> bool:
        left = (1 - SHARE_OF_CURVE) * self._budget - (self._clock.now() - self._began)
        whole = self._budget * SHARE_OF_PROBE
        if _rate(place) * min(left, whole) < LEAST_QUERIES:
            raise OutOfTimeError
        point = self._probe(_rate(place), batching, min(left, whole), stops=True)
        if left < whole and not point.decided:
            raise OutOfTimeError
        if point.kept:
            self._largest_kept[batching] = max(place, self._largest_kept.get(batching, place))
        return point.kept

    def _probe(self, rate: float, batching: Batching, seconds: float, *, stops: bool) -> RatePoint:
        self._on_probe(rate, batching, max(0.0, self._budget - (self._clock.now() - self._began)))
        answers = LateAnswers(self._limit, rate)
        # A rate that meets half the limit meets all of it, and far from the limit this is decided sooner.
        earlier = LateAnswers(self._limit / 2, rate)

        # Until a rate that is 3 % too high makes answers late, its queue has to grow, and a moment may be a slow one.
        began, least = self._clock.now(), LEAST_SHARE_OF_PROBE * self._budget
        least_if_kept = max(least, self._limit / 2 / RATE_APART)

        def on_answer(latency: float, found_empty: bool) -> bool:
            verdict = answers.add(latency, found_empty)
            is_kept = earlier.add(latency, found_empty) == "kept" or verdict == "kept"
            lasted = self._clock.now() - began
            return stops and (lasted >= least_if_kept if is_kept else verdict == "exceeded" and lasted >= least)

        endured = self._traffic.poisson(rate, batching, seconds, self._limit, on_answer)
        verdict = "kept" if earlier.verdict == "kept" else answers.verdict
        verdict = verdict if endured else "exceeded"
        p50, p90, p99 = (
            quantile(answers.latencies, share).value if answers.latencies else 0.0 for share in (0.5, 0.9, 0.99)
        )
        point = RatePoint(
            rate=rate,
            largest_batch=batching.largest,
            longest_wait=batching.wait,
            p50=p50,
            p90=p90,
            p99=p99,
            answers=len(answers.latencies),
            late=answers.late,
            kept=verdict == "kept" or (verdict == "open" and answers.seems_kept),
            decided=verdict != "open",
        )
        self._points.append(point)
        return point

    def _of(self, batching: Batching) -> Iterable[RatePoint]:
        wanted = (batching.largest, batching.wait)
        return (point for point in self._points if (point.largest_batch, point.longest_wait) == wanted)

    def _is_decided(self, rate: float, batching: Batching) -> bool:
        """Whether a probe was decided on each side of the rate on which there is any."""
        below = [point.decided for point in self._of(batching) if point.kept and point.rate <= rate]
        above = [point.decided for point in self._of(batching) if not point.kept and point.rate > rate]
        return all(any(side) for side in (below, above) if side)

    def _estimate(self, rate: float, batching: Batching) -> Estimate:
        """The rate within the nearest ones that were decided, and what the test cannot tell apart from them."""
        decided = [point for point in self._of(batching) if point.decided]
        kept = max((point.rate for point in decided if point.kept and point.rate <= rate), default=None)
        exceeded = min((point.rate for point in decided if not point.kept and point.rate >= rate), default=None)
        low = None if kept is None else kept / rates_apart(self._limit, kept)
        return Estimate(rate, low, None if exceeded is None else exceeded * rates_apart(self._limit, exceeded))

    def _fill_curve(self, rate: float, batching: Batching) -> None:
        """Points at lower rates, which the search itself does not need."""
        tried = {point.rate for point in self._of(batching)}
        for share in CURVE_RATES:
            left = self._budget - (self._clock.now() - self._began)
            seconds = min(left, SHARE_OF_CURVE * self._budget / len(CURVE_RATES))
            lower = _rate(_place(rate * share)) if rate > 0 else 0.0
            if lower > 0 and lower not in tried and seconds * lower >= LEAST_QUERIES:
                self._probe(lower, batching, seconds, stops=False)


def _place(rate: float) -> int:
    """The position of a rate on the grid, rounded down.

    >>> _place(1.0), _place(2.0), round(_rate(35), 3)
    (0, 35, 2.0)
    """
    return math.floor(math.log(rate) / math.log(GRID) + 1e-9)


def _rate(place: int) -> float:
    return GRID**place
