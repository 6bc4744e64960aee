"""Requests to stop: SIGTERM at the end of a cluster's time slot, Ctrl-C at a terminal."""

import signal
from collections.abc import Iterator
from contextlib import contextmanager
from types import FrameType


class StopRequest:
    """Whether the run was asked to stop, and by which signal."""

    def __init__(self) -> None:
        self.signal: signal.Signals | None = None

    @property
    def asked(self) -> bool:
        return self.signal is not None


@contextmanager
def heeding_signals() -> Iterator[StopRequest]:
    """Note SIGTERM and Ctrl-C instead of exiting; a second Ctrl-C interrupts as usual."""
    request = StopRequest()

    def note(number: int, _frame: FrameType | None) -> None:
        if number == signal.SIGINT and request.asked:
            raise KeyboardInterrupt
        request.signal = signal.Signals(number)

    before = {number: signal.signal(number, note) for number in (signal.SIGTERM, signal.SIGINT)}
    try:
        yield request
    finally:
        for number, handler in before.items():
            signal.signal(number, handler)
