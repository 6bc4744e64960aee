"""Models that change places between two ways to run them, such as two runtimes, and how much faster each way is."""

import math
from collections.abc import Mapping
from dataclasses import dataclass
from itertools import combinations


@dataclass(frozen=True)
class Speed:
    """Images per second with the 95 % interval, which is endless where none is known."""

    value: float
    low: float
    high: float


Speeds = Mapping[str, Mapping[str, Speed]]
"""By way to run, such as `openvino int8`, and model."""


@dataclass(frozen=True)
class RankChange:
    """The pairs of models that ran in two ways: how many change places by the numbers, and which beyond intervals."""

    one: str
    other: str
    pairs: int
    by_numbers: int
    beyond_intervals: tuple[tuple[str, str], ...]


@dataclass(frozen=True)
class Gain:
    """How much faster models are in a way to run than in another: the geometric mean, and who gains most and least."""

    way: str
    mean: float
    most: tuple[str, float]
    least: tuple[str, float]


def rank_changes(speeds: Speeds) -> tuple[RankChange, ...]:
    """The changes between any two ways to run that have two models or more in common."""
    changes = []
    for one, other in combinations(speeds, 2):
        pairs = list(combinations(sorted(speeds[one].keys() & speeds[other].keys()), 2))
        sure = tuple(pair for pair in pairs if changes_places(speeds[one], speeds[other], *pair))
        points = [{name: _without_interval(speeds[way][name]) for name in speeds[way]} for way in (one, other)]
        moved = sum(changes_places(points[0], points[1], *pair) for pair in pairs)
        if pairs:
            changes.append(RankChange(one, other, len(pairs), moved, sure))
    return tuple(changes)


def gains(speeds: Speeds, base: str) -> tuple[Gain, ...]:
    """The gains of every other way to run over a base."""
    found = []
    for way in speeds:
        both = speeds[way].keys() & speeds.get(base, {}).keys()
        ratios = {name: speeds[way][name].value / speeds[base][name].value for name in sorted(both)}
        if ratios and way != base:
            most, least = (chosen(ratios.items(), key=lambda ratio: ratio[1]) for chosen in (max, min))
            found.append(Gain(way, math.exp(sum(map(math.log, ratios.values())) / len(ratios)), most, least))
    return tuple(found)


def changes_places(one: Mapping[str, Speed], other: Mapping[str, Speed], a: str, b: str) -> bool:
    """Whether `a` is surely faster than `b` in one, and surely slower in the other.

    >>> fast, slow = Speed(12.0, 11.0, 13.0), Speed(10.0, 9.0, 10.5)
    >>> changes_places({"a": fast, "b": slow}, {"a": slow, "b": fast}, "a", "b")
    True
    >>> changes_places({"a": fast, "b": slow}, {"a": slow, "b": Speed(10.2, 9.9, 10.9)}, "a", "b")
    False
    """
    return {_order(one[a], one[b]), _order(other[a], other[b])} == {-1, 1}


def _order(a: Speed, b: Speed) -> int:
    return 1 if a.low > b.high else -1 if a.high < b.low else 0


def _without_interval(speed: Speed) -> Speed:
    return Speed(speed.value, speed.value, speed.value)
