"""The clock that measurements read; tests give them one that they turn themselves."""

import time
from typing import Protocol


class Clock(Protocol):
    """What tells the time, in seconds from any start."""

    def now(self) -> float: ...


class WallClock:
    """The system's finest clock that never goes back."""

    def now(self) -> float:
        return time.perf_counter()
