"""The column of a metric in compared rows: on the device that models are ranked on, or on a further one."""

from dataclasses import dataclass

from favor.metrics import METRICS, Metric


@dataclass(frozen=True)
class MetricColumn:
    """A metric by name, and the further device that its numbers are of; None is the device of the ranking.

    >>> str(MetricColumn("latency_p50", "t4")), MetricColumn.named("latency_p50@t4").device
    ('latency_p50@t4', 't4')
    """

    name: str
    device: str | None = None

    @classmethod
    def named(cls, column: str) -> "MetricColumn":
        """What a column's name says."""
        name, _, device = column.partition("@")
        return cls(name, device or None)

    @property
    def metric(self) -> Metric:
        """Its entry in the glossary."""
        return METRICS[self.name]

    def __str__(self) -> str:
        return self.name if self.device is None else f"{self.name}@{self.device}"
