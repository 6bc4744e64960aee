"""Models that were timed in turns, A, B, A, B ..., compared round by round. Imports no torch.

Load that lasts longer than a round slows both models of a pair, so their ratio is known better than either number.
"""

from collections.abc import Sequence
from dataclasses import dataclass
from math import inf, nan

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
    """A metric of two models in the quiet rounds that both took part in."""

    a: str
    b: str
    metric: str
    stretch: str
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


def pairs(records: Sequence[Record], a: str, b: str, metric: str = "throughput") -> Pairs | None:
    """The rounds in which two models took turns, of their newest records; None if those are not of one stretch."""
    newest = [_newest(records, name, metric) for name in (a, b)]
    first, second = newest
    if first is None or second is None or first.environment["stretch"] != second.environment["stretch"]:
        return None
    busy = {number for record in (first, second) for number in str(record.environment.get("busy_rounds", "")).split()}
    both = zip(_values(first, metric), _values(second, metric), strict=False)
    quiet = tuple(values for number, values in enumerate(both, start=1) if str(number) not in busy)
    return Pairs(a, b, metric, str(first.environment["stretch"]), quiet) if quiet else None


def against_the_fastest(records: Sequence[Record]) -> tuple[Pairs, ...]:
    """The fastest model of the last stretch against each other one; the ratios say how many times as fast it is."""
    stretches = [str(record.environment["stretch"]) for record in records if "stretch" in record.environment]
    if not stretches:
        return ()
    last = max(stretches)  # they begin with their time
    names = dict.fromkeys(record.name for record in records if record.environment.get("stretch") == last)
    compared = [pair for a in names for b in names if a != b and (pair := pairs(records, a, b)) is not None]
    if not compared:
        return ()
    fastest = max(names, key=lambda name: min((pair.ratio for pair in compared if pair.b == name), default=0.0))
    return tuple(pair for pair in compared if pair.b == fastest)


def _newest(records: Sequence[Record], name: str, metric: str) -> Record | None:
    """The newest record of a model's inference, if it was timed in turns."""
    of_model = [record for record in records if (record.name, record.task, record.status) == (name, "inference", "ok")]
    newest = of_model[-1] if of_model else None
    return newest if newest is not None and {"stretch", ROUND_KEYS[metric]} <= newest.environment.keys() else None


def _values(record: Record, metric: str) -> list[float]:
    key = ROUND_KEYS[metric]
    try:
        values = [float(value) for value in str(record.environment[key]).split()]
    except ValueError:
        values = [nan]
    if not all(0 < value < inf for value in values):
        raise RequestError(f"environment.{key} of {record.name} is not a list of numbers above zero; measure it again")
    return values
