"""Models that were timed in turns, A, B, A, B ..., compared round by round. Imports no torch.

Load that lasts longer than a round slows both models of a pair, so their ratio is known better than either number.
"""

from collections import Counter
from collections.abc import Sequence
from dataclasses import dataclass
from math import inf, nan

from msgspec import structs

from favor.errors import RequestError
from favor.machine.stopping import quantile
from favor.records.schema import Record

ROUND_KEYS = {"throughput": "round_throughput", "latency_p50": "round_latency"}
"""The metrics that are kept by round, and the keys of `environment` that hold them."""


def rounds_text(values: Sequence[float]) -> str:
    """The values of the rounds as `environment` has them.

    >>> rounds_text([12.34567, 12.5])
    '12.346 12.5'
    """
    return " ".join(f"{value:.5g}" for value in values)


@dataclass(frozen=True)
class Pairs:
    """The throughputs of two models in the quiet rounds that both took part in."""

    a: str
    b: str
    values: tuple[tuple[float, float], ...]

    @property
    def ratios(self) -> tuple[float, ...]:
        """b over a in every round."""
        return tuple(b / a for a, b in self.values)

    @property
    def ratio(self) -> float:
        """The median ratio, b over a."""
        return quantile(self.ratios, 0.5).value

    @property
    def interval(self) -> tuple[float, float] | None:
        """The 95 % interval of the median ratio, from order statistics; None for fewer than six pairs."""
        estimate = quantile(self.ratios, 0.5)
        return None if estimate.low is None or estimate.high is None else (estimate.low, estimate.high)


def pairs(a: Record, b: Record) -> Pairs | None:
    """The rounds in which two models took turns; None if the records are not of one stretch."""
    stretches = [record.environment.get("stretch") for record in (a, b)]
    if None in stretches or stretches[0] != stretches[1]:
        return None
    busy = {number for record in (a, b) for number in str(record.environment.get("busy_rounds", "")).split()}
    both = zip(_throughputs(a), _throughputs(b), strict=False)
    quiet = tuple(values for number, values in enumerate(both, start=1) if str(number) not in busy)
    return Pairs(a.name, b.name, quiet) if quiet else None


def against_the_fastest(records: Sequence[Record]) -> tuple[Pairs, ...]:
    """The fastest model of the last session against each other model; the ratios say how many times as fast it is.

    The records are the newest of their jobs. A model that took turns at several image sizes is named with the size.
    """
    stretches = [str(record.environment["stretch"]) for record in records if "stretch" in record.environment]
    if not stretches:
        return ()
    last = max(stretches)  # they begin with their time
    rivals = [record for record in records if record.environment.get("stretch") == last]
    several = {name for name, count in Counter(record.name for record in rivals).items() if count > 1}
    named = [
        structs.replace(record, name=f"{record.name}@{record.conditions.get('img_size')}")
        if record.name in several
        else record
        for record in rivals
    ]
    compared = [pair for a in named for b in named if a is not b and (pair := pairs(a, b)) is not None]
    if not compared:
        return ()
    names = [record.name for record in named]
    fastest = max(names, key=lambda name: min((pair.ratio for pair in compared if pair.b == name), default=0.0))
    return tuple(pair for pair in compared if pair.b == fastest)


def _throughputs(record: Record) -> list[float]:
    """The throughput in every round; empty if the record has none."""
    key = ROUND_KEYS["throughput"]
    try:
        values = [float(value) for value in str(record.environment.get(key, "")).split()]
    except ValueError:
        values = [nan]
    if not all(0 < value < inf for value in values):
        raise RequestError(f"environment.{key} of {record.name} is not a list of numbers above zero; measure it again")
    return values
