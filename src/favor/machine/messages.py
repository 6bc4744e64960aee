"""Messages from a worker to its parent, one JSON line each: results so far survive a crash of the worker."""

import json
import sys
from collections.abc import Callable, Mapping
from dataclasses import asdict, dataclass, field
from queue import SimpleQueue
from typing import Any, get_args

import msgspec

from favor.machine.stopping import Estimate
from favor.metrics import METRICS
from favor.records.schema import LoadCurves, Reading, Scalar, Status, reading
from favor.text import cut_to_line

TURN, END_OF_ROUNDS = b"+", b"."
"""The parent's signals to a worker that takes turns with others: start a turn; the rounds have ended."""

WAITING = "waiting for its turn"


@dataclass(frozen=True)
class Round:
    """The results of one turn of a worker; `others` is the number of processors that other programs kept busy."""

    throughput: float
    latency: float
    others: float


class RubbishError(ValueError):
    """A malformed line, which no worker of favor writes; the message says what is wrong with it."""


class Channel:
    """The worker's side: every call sends one line to the parent at once."""

    def __init__(self, write: Callable[[str], object], turns: "SimpleQueue[bytes] | None" = None) -> None:
        self._write, self._turns = write, turns
        self.step = "start"

    def begin(self, step: str) -> None:
        """Begin a step."""
        self.step = step
        self._send(step=step)

    def conditions(self, values: Mapping[str, Scalar]) -> None:
        """Add conditions that are known only after the model is built."""
        self._send(conditions=dict(values))

    def environment(self, values: Mapping[str, Scalar]) -> None:
        """Add to the record's environment."""
        self._send(environment=dict(values))

    def found(self, metric: str, estimate: Estimate | float, method: str) -> None:
        """Send a metric's value, in the glossary's unit."""
        known = estimate if isinstance(estimate, Estimate) else Estimate(estimate, None, None)
        self._send(metric=metric, value=known.value, low=known.low, high=known.high, method=method)

    def flag(self, *flags: str) -> None:
        """Add flags to the record, such as `busy`."""
        self._send(flags=list(flags))

    def next_turn(self) -> bool:
        """Wait for the next turn; False when the rounds have ended."""
        assert self._turns is not None  # noqa: S101 - only workers with a parent take turns
        if self.step != WAITING:
            self.begin(WAITING)
        return self._turns.get() == TURN

    def round(self, measured: Round) -> None:
        """Send the results of this turn, which end it."""
        self._send(round=asdict(measured))

    def load(self, curves: LoadCurves) -> None:
        """Send the curves of a load test so far."""
        self._send(load=msgspec.to_builtins(curves))

    def progress(self, text: str) -> None:
        """Report the progress of the step."""
        self._send(progress=cut_to_line(text))

    def note(self, text: str) -> None:
        """Send a note for the user."""
        self._send(note=cut_to_line(text))

    def refused(self, reason: str) -> None:
        """Report that the request was wrong and nothing was done."""
        self._send(refused=cut_to_line(reason))

    def failed(self, status: Status, reason: str) -> None:
        """Report why the job failed."""
        self._send(status=status, reason=f"{self.step}: {cut_to_line(reason)}")

    def done(self) -> None:
        """Report success."""
        self._send(status="ok", reason=None)

    def _send(self, **message: Any) -> None:
        self._write(json.dumps(message) + "\n")


@dataclass
class Findings:
    """The parent's side: the results so far."""

    conditions: dict[str, Scalar] = field(default_factory=dict)
    environment: dict[str, Scalar] = field(default_factory=dict)
    metrics: dict[str, Reading] = field(default_factory=dict)
    flags: list[str] = field(default_factory=list)
    rounds: list[Round] = field(default_factory=list)
    load: LoadCurves | None = None
    step: str = "start"
    progress: str = ""
    status: Status | None = None
    reason: str | None = None
    refusal: str | None = None

    def take(self, line: str | bytes) -> str | None:
        """Read one line of the worker; returns a note to show.

        A malformed line raises RubbishError and changes nothing.
        """
        message = _message(line)
        self.conditions |= message.get("conditions", {})
        self.environment |= message.get("environment", {})
        self.flags += message.get("flags", [])
        self.step = message.get("step", self.step)
        self.progress = message.get("progress", "" if "step" in message else self.progress)
        if "metric" in message:
            name, value, method = message["metric"], message["value"], message["method"]
            self.metrics[name] = reading(name, value, message["low"], message["high"], method=method)
        if "round" in message:
            self.rounds.append(Round(**message["round"]))
        if "load" in message:
            self.load = msgspec.convert(message["load"], LoadCurves)
        if "status" in message:
            self.status, self.reason = message["status"], message["reason"]
        self.refusal = message.get("refused", self.refusal)
        return message.get("note")


def _message(line: str | bytes) -> dict[str, Any]:
    """Decode and validate a line.

    The worker runs third-party code, which may write to any file descriptor.
    """
    try:
        message = json.loads(line)
    except (ValueError, RecursionError) as error:
        raise RubbishError("not JSON") from error
    if not isinstance(message, dict):
        raise RubbishError("not a JSON object")
    for key, value in message.items():
        if key not in _KINDS or not _KINDS[key](value):
            raise RubbishError(f"{key!r} cannot be {cut_to_line(repr(value), longest=60)}")
    for together in ({"metric", "value", "low", "high", "method"}, {"status", "reason"}):
        if together & message.keys() and not together <= message.keys():
            raise RubbishError(f"without {', '.join(sorted(together - message.keys()))}")
    return message


def _is_text(value: object) -> bool:
    return isinstance(value, str)


def _is_number(value: object) -> bool:
    # This excludes NaN, infinities and integers beyond them.
    return isinstance(value, int | float) and not isinstance(value, bool) and abs(value) <= sys.float_info.max


def _is_round(value: object) -> bool:
    return (
        isinstance(value, dict)
        and value.keys() == Round.__dataclass_fields__.keys()
        and all(map(_is_number, value.values()))
        and value["throughput"] > 0
    )


def _are_curves(value: object) -> bool:
    try:
        msgspec.convert(value, LoadCurves)
    except msgspec.ValidationError:
        return False
    return True


def _are_scalars(value: object) -> bool:
    return isinstance(value, dict) and all(isinstance(one, str | bool) or _is_number(one) for one in value.values())


_KINDS: dict[str, Callable[[object], bool]] = {
    "step": _is_text,
    "progress": _is_text,
    "note": _is_text,
    "refused": _is_text,
    "conditions": _are_scalars,
    "environment": _are_scalars,
    "flags": lambda value: isinstance(value, list) and all(map(_is_text, value)),
    "round": _is_round,
    "load": _are_curves,
    "metric": lambda value: isinstance(value, str) and value in METRICS,
    "value": _is_number,
    "low": lambda value: value is None or _is_number(value),
    "high": lambda value: value is None or _is_number(value),
    "method": _is_text,
    "status": lambda value: value in get_args(Status),
    "reason": lambda value: value is None or _is_text(value),
}
