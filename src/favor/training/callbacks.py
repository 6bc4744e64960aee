"""Callbacks of a training run: the loop reports progress, a terminal or a program shows it."""

from dataclasses import dataclass
from typing import Protocol

from favor.records.schema import Record


@dataclass(frozen=True)
class StepNews:
    """The progress of a run; `loss` is the mean of the epoch so far, `seconds_left` covers steps and evaluations."""

    step: int
    steps: int
    epochs: float
    loss: float
    top1: float | None
    images_per_second: float
    seconds_left: float


class Audience(Protocol):
    """Receives the progress of a run, from the leading process only."""

    def note(self, text: str) -> None: ...

    def stepped(self, news: StepNews) -> None: ...

    def evaluated(self, record: Record, news: StepNews) -> None: ...


class Nobody:
    """Callbacks that show nothing."""

    def note(self, text: str) -> None:
        """Nothing is shown."""

    def stepped(self, news: StepNews) -> None:
        """Nothing is shown."""

    def evaluated(self, record: Record, news: StepNews) -> None:
        """Nothing is shown."""
