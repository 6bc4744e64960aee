"""Who watches a training: the loop tells, a terminal or a program shows."""

from dataclasses import dataclass
from typing import Protocol

from favor.records.schema import Record


@dataclass(frozen=True)
class StepNews:
    """Where a run is; `loss` is the mean of the epoch so far, `seconds_left` are those of steps and evaluations."""

    step: int
    steps: int
    epochs: float
    loss: float
    top1: float | None
    images_per_second: float
    seconds_left: float


class Audience(Protocol):
    """What is told in the course of a run, by the leading process only."""

    def note(self, text: str) -> None: ...

    def stepped(self, news: StepNews) -> None: ...

    def evaluated(self, record: Record, news: StepNews) -> None: ...


class Nobody:
    """An audience that is not there."""

    def note(self, text: str) -> None:
        """Nothing is shown."""

    def stepped(self, news: StepNews) -> None:
        """Nothing is shown."""

    def evaluated(self, record: Record, news: StepNews) -> None:
        """Nothing is shown."""
