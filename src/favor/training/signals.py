"""Requests to stop: SIGTERM at the end of a cluster's time slot, Ctrl-C at a terminal."""

import signal
from collections.abc import Iterator
from contextlib import contextmanager
from types import FrameType


class Stopped(BaseException):
    """The run was asked to stop; not an Exception, so that no code between here and the loop swallows it."""


class StopRequest:
    """Whether the run was asked to stop, and by which signal."""

    def __init__(self) -> None:
        self.signal: signal.Signals | None = None
        self._raises = False

    @property
    def asked(self) -> bool:
        return self.signal is not None

    @contextmanager
    def at_once(self) -> Iterator[None]:
        """Leave this block with `Stopped` as soon as a signal comes, or if one has come before."""
        if self.asked:
            raise Stopped
        self._raises = True
        try:
            yield
        finally:
            self._raises = False

    def take(self, number: int) -> None:
        """Note a signal; a second Ctrl-C interrupts as usual."""
        if number == signal.SIGINT and self.asked:
            raise KeyboardInterrupt
        self.signal = signal.Signals(number)
        if self._raises:
            self._raises = False
            raise Stopped


@contextmanager
def heeding_signals() -> Iterator[StopRequest]:
    """Note SIGTERM and Ctrl-C instead of exiting."""
    request = StopRequest()

    def take(number: int, _frame: FrameType | None) -> None:
        request.take(number)

    before = {number: signal.signal(number, take) for number in (signal.SIGTERM, signal.SIGINT)}
    try:
        yield request
    finally:
        for number, handler in before.items():
            signal.signal(number, handler)
