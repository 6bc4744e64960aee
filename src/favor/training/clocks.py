"""Three clocks that survive a resume: the training, the evaluation, and the whole program."""

from collections.abc import Iterator
from contextlib import contextmanager

from favor.machine.clock import Clock, WallClock
from favor.training.state import Readings


class Clocks:
    """What a run has taken: steps, evaluations, and all of it, with start-up, survey and saving.

    The time between a kill and the resume is in none of them, nor is what was done since the last checkpoint.
    """

    def __init__(self, before: Readings = Readings(), clock: Clock | None = None) -> None:  # noqa: B008 - frozen
        self._clock = clock or WallClock()
        self._started = self._clock.now()
        self._before = before
        self._training = self._evaluation = 0.0

    def now(self) -> float:
        """Seconds from any start, for a caller's own stretches."""
        return self._clock.now()

    @contextmanager
    def training(self) -> Iterator[None]:
        """Count what is done here as training."""
        start = self._clock.now()
        try:
            yield
        finally:
            self._training += self._clock.now() - start

    @contextmanager
    def evaluation(self) -> Iterator[None]:
        """Count what is done here as evaluation."""
        start = self._clock.now()
        try:
            yield
        finally:
            self._evaluation += self._clock.now() - start

    def read(self) -> Readings:
        """What the clocks show; a stretch that is not over counts for the program only."""
        return Readings(
            training=self._before.training + self._training,
            evaluation=self._before.evaluation + self._evaluation,
            program=self._before.program + self._clock.now() - self._started,
        )
