"""Whether more than 1 % of the answers are late: a sequential test, which stops as soon as it is decided.

It is Wald's sequential probability ratio test of a share below 1 % against one above it, with errors of 5 %. Late
answers come in bursts, so the evidence is divided by their dispersion over busy periods: the times between two moments
without any query, which are independent of each other. Before enough bursts are seen, the dispersion of a queue with
as many queries in it is assumed. `docs/load.md` says how far the two shares are apart.
"""

import math
from typing import Literal

from favor.queueing import TOLERATED

Verdict = Literal["kept", "exceeded", "open"]

ERROR = 0.05
DECISIVE = math.log((1 - ERROR) / ERROR)

RATE_APART = 0.03
"""Rates that differ by this share should be told apart; the share of late answers grows with e^(2 queries rate)."""

LEAST_APART, MOST_APART = 1.5, 10.0
MOST_RATES_APART = 1.25
ENOUGH_BURSTS = 5
MOST_ASSUMED = 50.0


def shares_apart(limit: float, rate: float) -> float:
    """The factor between the tolerated share of late answers and each of the two that the test tells apart.

    >>> shares_apart(0.05, 60.0), round(shares_apart(0.05, 300.0), 2), shares_apart(5.0, 3000.0)
    (1.5, 2.46, 10.0)
    """
    if 2 * RATE_APART * rate * limit > math.log(MOST_APART):  # whose power of e may be too large for a number
        return MOST_APART
    return max(math.exp(2 * RATE_APART * rate * limit), LEAST_APART)


def rates_apart(limit: float, rate: float) -> float:
    """The factor between rates whose shares of late answers are that far apart.

    >>> round(rates_apart(0.05, 60.0), 2), round(rates_apart(0.05, 300.0), 2)
    (1.07, 1.03)
    """
    return min(shares_apart(limit, rate) ** (1 / (2 * rate * limit)), MOST_RATES_APART)


class LateAnswers:
    """Counts answers, and those after more than `limit` seconds, to so many queries per second."""

    def __init__(self, limit: float, rate: float) -> None:
        self.limit = limit
        queries = rate * limit  # as many are in the system when an answer is just in time
        apart = shares_apart(limit, rate)
        few, many = TOLERATED / apart, TOLERATED * apart
        self._if_late, self._if_in_time = math.log(many / few), math.log((1 - many) / (1 - few))
        self._assumed = min(1 + queries**2 / 2, MOST_ASSUMED)
        self._bursts = 0
        self.latencies: list[float] = []
        self.late = 0
        self._answers_here, self._late_here = 0, 0  # in this busy period
        self._late_squared, self._late_times_answers, self._answers_squared = 0, 0, 0  # in those before it

    def add(self, latency: float, found_empty: bool) -> Verdict:
        """One more answer; `found_empty` if no other query was there when it came, which begins a busy period."""
        if found_empty:
            self._end_busy_period()
        self.latencies.append(latency)
        is_late = latency > self.limit
        self.late += is_late
        self._answers_here += 1
        self._late_here += is_late
        return self.verdict

    @property
    def verdict(self) -> Verdict:
        """What the test has decided so far."""
        in_time = len(self.latencies) - self.late
        evidence = (self.late * self._if_late + in_time * self._if_in_time) / self._dispersion
        return "exceeded" if evidence >= DECISIVE else "kept" if evidence <= -DECISIVE else "open"

    @property
    def seems_kept(self) -> bool:
        """What the share of late answers says if the test has not decided."""
        return bool(self.latencies) and self.late <= TOLERATED * len(self.latencies)

    @property
    def _dispersion(self) -> float:
        """The variance of late answers per busy period over that of independent ones, 1 at least."""
        assumed = self._assumed if self._bursts < ENOUGH_BURSTS else 1.0
        count, share = len(self.latencies), self.late / max(1, len(self.latencies))
        if not 0 < share < 1:
            return assumed
        late, answers = self._late_here, self._answers_here
        squares = (
            (self._late_squared + late * late)
            - 2 * share * (self._late_times_answers + late * answers)
            + share * share * (self._answers_squared + answers * answers)
        )
        return max(assumed, squares / (count * share * (1 - share)))

    def _end_busy_period(self) -> None:
        late, answers = self._late_here, self._answers_here
        self._bursts += late > 0
        self._late_squared += late * late
        self._late_times_answers += late * answers
        self._answers_squared += answers * answers
        self._answers_here, self._late_here = 0, 0
