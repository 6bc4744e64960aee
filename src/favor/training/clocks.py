"""Three clocks that survive a resume: the training, the evaluation, and the whole program."""

from collections.abc import Iterator
from contextlib import contextmanager

from favor.machine.clock import Clock, WallClock
from favor.training.state import Readings


class Clocks:
    """The time of a run: steps, evaluations, and the whole program with start-up, survey and saving.

    Time between a kill and the resume is in none of them, nor is work lost since the last checkpoint.
    """

    def __init__(
        self,
        before: Readings = Readings(),  # noqa: B008 - frozen
        clock: Clock | None = None,
        processes: int = 1,
    ) -> None:
        self._clock = clock or WallClock()
        self._started = self._clock.now()
        self._before, self._processes = before, processes
        self._training = self._evaluation = 0.0

    def now(self) -> float:
        """Seconds from an arbitrary start, for the caller's own intervals."""
        return self._clock.now()

    @contextmanager
    def training(self) -> Iterator[None]:
        """Count the time of this block as training."""
        start = self._clock.now()
        try:
            yield
        finally:
            self._training += self._clock.now() - start

    @contextmanager
    def evaluation(self) -> Iterator[None]:
        """Count the time of this block as evaluation."""
        start = self._clock.now()
        try:
            yield
        finally:
            self._evaluation += self._clock.now() - start

    def read(self) -> Readings:
        """The clocks' readings; a block that is still running counts for the program only."""
        return Readings(
            training=self._before.training + self._training,
            evaluation=self._before.evaluation + self._evaluation,
            program=self._before.program + self._clock.now() - self._started,
            training_total=self._before.device_seconds(self._processes) + self._training * self._processes,
        )
