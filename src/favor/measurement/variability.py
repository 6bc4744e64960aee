"""How much a metric varies from run to run on the same machine, as the benchmark's appendix A.4 shows it."""

import statistics
from collections.abc import Sequence
from dataclasses import dataclass

from favor.records.schema import Record


@dataclass(frozen=True)
class Spread:
    """A metric over several runs, in the glossary's unit; `deviation` is the standard deviation of the sample."""

    metric: str
    unit: str
    runs: int
    lowest: float
    highest: float
    mean: float
    deviation: float

    @property
    def range_share(self) -> float:
        """Highest minus lowest, in percent of the mean.

        >>> round(Spread("throughput", "img/s", 8, 11878.0, 11896.0, 11888.0, 6.48).range_share, 2)
        0.15
        """
        return 100 * (self.highest - self.lowest) / self.mean if self.mean else 0.0

    @property
    def deviation_share(self) -> float:
        """The standard deviation in percent of the mean."""
        return 100 * self.deviation / self.mean if self.mean else 0.0


def spreads(records: Sequence[Record]) -> tuple[Spread, ...]:
    """The spread of every metric that at least two runs have, in the order of first appearance."""
    values: dict[str, list[float]] = {}
    units: dict[str, str] = {}
    for record in records:
        for metric, reading in record.metrics.items():
            values.setdefault(metric, []).append(reading.value)
            units[metric] = reading.unit
    return tuple(
        Spread(
            metric=metric,
            unit=units[metric],
            runs=len(of_metric),
            lowest=min(of_metric),
            highest=max(of_metric),
            mean=statistics.fmean(of_metric),
            deviation=statistics.stdev(of_metric),
        )
        for metric, of_metric in values.items()
        if len(of_metric) >= 2
    )
