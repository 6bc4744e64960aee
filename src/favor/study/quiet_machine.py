"""Waiting until other programs leave the machine alone: a disturbed measurement would have to be repeated."""

from collections.abc import Callable

from favor.machine.clock import Clock
from favor.machine.environment import LOOK_SECONDS, is_busy

FIRST_LOOK_SECONDS = 0.2
LONGEST_WAIT = 60.0


class QuietMachine:
    """Waits for a quiet machine; after an unsuccessful wait, it waits again only once the machine has been quiet."""

    def __init__(self, look: Callable[[float], float], processors: int, clock: Clock) -> None:
        self._look, self._processors, self._clock = look, processors, clock
        self.is_hopeless = False

    def wait(self, most: float, on_wait: Callable[[], None] = lambda: None) -> bool:
        """Wait until other programs are idle, at most `most` seconds and at most a minute; returns whether they are."""
        began, seconds = self._clock.now(), FIRST_LOOK_SECONDS
        while is_busy(self._look(seconds), self._processors):
            if self.is_hopeless or self._clock.now() - began >= min(most, LONGEST_WAIT):
                self.is_hopeless = True
                return False
            on_wait()
            seconds = LOOK_SECONDS
        self.is_hopeless = False
        return True
