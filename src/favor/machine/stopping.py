"""When to stop timing: as soon as the median is known well enough, or when the time budget ends.

Intervals are order statistics: they hold for any distribution, and times are far from normal.
"""

import math
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from functools import lru_cache

from favor.machine.clock import Clock

CONFIDENCE = 0.95
DRIFT = 0.05
BUDGETS_FOR_WANTED_CALLS = 4
"""Single calls may take this many budgets if that is enough for the calls that a quantile needs."""

LEAST_TO_SEPARATE = 4
"""Halves of this many samples differ completely by chance in 2 of 70 cases; smaller ones in more than 5 %."""


@dataclass(frozen=True)
class Estimate:
    """A value and its 95 % interval; an end is None if there are too few samples for it."""

    value: float
    low: float | None
    high: float | None

    def is_within(self, relative_width: float) -> bool:
        """Whether the interval extends no further from the value than this share of it."""
        if self.low is None or self.high is None:
            return False
        return max(self.high - self.value, self.value - self.low) <= relative_width * self.value

    def times(self, factor: float, plus: float = 0.0) -> "Estimate":
        """The estimate multiplied by a factor, plus an exact constant.

        >>> Estimate(2.0, 1.0, None).times(10, plus=1)
        Estimate(value=21.0, low=11.0, high=None)
        """
        low = None if self.low is None else self.low * factor + plus
        high = None if self.high is None else self.high * factor + plus
        return Estimate(self.value * factor + plus, low, high)


@dataclass(frozen=True)
class StoppingRule:
    """Stop when the median's 95 % interval is within `relative_width` of it, or after `budget` seconds."""

    budget: float
    relative_width: float = 0.02
    least_samples: int = 10
    least_seconds: float = 1.0


@dataclass(frozen=True)
class Samples:
    """Times in chronological order, in seconds, and whether the rule was met before the budget ended."""

    seconds: tuple[float, ...]
    converged: bool


def collect(take: Callable[[], float], rule: StoppingRule, clock: Clock) -> Samples:
    """Take samples block by block until the rule is met; at least one is taken, however long it lasts."""
    start = clock.now()
    seconds: list[float] = []
    while True:
        # Blocks grow with the samples, so that checking them never costs more than taking them.
        for _ in range(max(1, len(seconds) // 10)):
            seconds.append(take())
            if clock.now() - start >= rule.budget:
                return Samples(tuple(seconds), is_met(seconds, rule))
        long_enough = clock.now() - start >= min(rule.least_seconds, rule.budget / 2)
        if long_enough and len(seconds) >= rule.least_samples and is_met(seconds, rule):
            return Samples(tuple(seconds), converged=True)


def is_met(seconds: Sequence[float], rule: StoppingRule) -> bool:
    """Whether the median of the times is known as well as the rule demands."""
    return quantile(seconds, 0.5).is_within(rule.relative_width)


def quantile(values: Sequence[float], share: float) -> Estimate:
    """A quantile of the values with its interval from order statistics.

    >>> quantile([1.0, 2.0, 3.0, 4.0, 5.0, 6.0, 7.0], 0.5)
    Estimate(value=4.0, low=1.0, high=7.0)
    """
    ordered = sorted(values)
    position = share * (len(ordered) - 1)
    below = math.floor(position)
    above = min(below + 1, len(ordered) - 1)
    value = ordered[below] + (position - below) * (ordered[above] - ordered[below])
    lower, upper = interval_ranks(len(ordered), share)
    low = ordered[lower - 1] if lower >= 1 else None
    high = ordered[upper - 1] if upper <= len(ordered) else None
    # Interpolation may put a high quantile slightly outside of the ranks.
    return Estimate(value, None if low is None else min(low, value), None if high is None else max(high, value))


def least_count(share: float) -> int:
    """The fewest values from which both ends of a quantile's interval follow.

    >>> least_count(0.5), least_count(0.9), least_count(0.99)
    (6, 36, 368)
    """
    extreme = max(share, 1 - share)
    return math.ceil(math.log((1 - CONFIDENCE) / 2) / math.log(extreme))


@lru_cache(maxsize=4096)
def interval_ranks(count: int, share: float) -> tuple[int, int]:
    """The ranks, from 1, of the sorted values that enclose a quantile with 95 % confidence.

    A lower rank of 0, or an upper one of `count` + 1, is an end that this many values cannot determine.

    >>> interval_ranks(6, 0.5), interval_ranks(5, 0.5), interval_ranks(100, 0.5)
    ((1, 6), (0, 6), (40, 61))
    """
    tail = (1 - CONFIDENCE) / 2
    lower, below = 0, 0.0
    while (below := below + _binomial(count, lower, share)) <= tail:
        lower += 1
    upper, above = count, 0.0
    while (above := above + _binomial(count, upper, share)) <= tail:
        upper -= 1
    return lower, upper + 1


def _binomial(count: int, successes: int, share: float) -> float:
    ways = math.lgamma(count + 1) - math.lgamma(successes + 1) - math.lgamma(count - successes + 1)
    return math.exp(ways + successes * math.log(share) + (count - successes) * math.log1p(-share))


def has_drifted(seconds: Sequence[float]) -> bool:
    """Whether the times of the second half differ from the first: by more than 5 %, and by more than chance.

    >>> has_drifted([1.0, 1.01] * 10 + [1.2, 1.21] * 10), has_drifted([1.0] * 5 + [2.0] * 5)
    (True, True)
    """
    half = len(seconds) // 2
    if half < LEAST_TO_SEPARATE:
        return False
    first, second = seconds[:half], seconds[-half:]
    before, after = quantile(first, 0.5), quantile(second, 0.5)
    if abs(after.value - before.value) <= DRIFT * before.value:
        return False
    if before.low is None or before.high is None or after.low is None or after.high is None:
        return min(second) > max(first) or max(second) < min(first)
    return after.low > before.high or after.high < before.low
