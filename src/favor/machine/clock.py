"""The clock that measurements read; tests replace it by one that they control."""

import time
from typing import Protocol


class Clock(Protocol):
    """Reads the time, in seconds from an arbitrary start."""

    def now(self) -> float: ...


class WallClock:
    """The system's finest monotonic clock."""

    def now(self) -> float:
        return time.perf_counter()
