"""Several models, each trained in a process of its own: one that is killed is a record, and the next one goes on."""

import signal
import subprocess
import sys
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from pathlib import Path
from types import FrameType

from favor.data.names import parse
from favor.machine.device import find_device
from favor.machine.environment import describe, usable_threads
from favor.machine.process import Exit, MemoryBefore
from favor.records.schema import Record, Status
from favor.records.store import FILE_NAME, append, read
from favor.train.epoch_record import Subject, failure_record, pipeline_of
from favor.train.initial_weights import fresh_start, start_from
from favor.train.request import TrainingRequest
from favor.zoo.registry import card


class Stopped(Exception):  # noqa: N818 - not an error
    """Somebody asked all of it to stop, by this signal; what was going on is saved."""

    def __init__(self, number: signal.Signals) -> None:
        super().__init__(number.name)
        self.signal = number


def train_apart(request: TrainingRequest, command: Sequence[str]) -> Record | None:
    """Train one model by a command of its own; its last record, which says why it failed where it did.

    Of one that was done already, that is the record of its end; None where it has none, or was refused.
    """
    before, memory = len(_records(request.out)), MemoryBefore.now()
    code = _run(command)
    written = [record for record in _records(request.out)[before:] if record.name == card(request.model).name]
    if code < 0 and (not written or written[-1].status == "ok"):
        killed = signal.Signals(-code)
        exhausted = killed is signal.SIGKILL and memory.was_exhausted_by(Exit(code, 0))
        status: Status = "out_of_memory" if exhausted else "failed"
        written.append(_killed(request, status, f"killed by {killed.name}; --resume goes on from its last checkpoint"))
        append(request.out, written[-1:])
    if code > 0 and (not written or written[-1].status == "ok"):
        return None  # it said why itself
    return written[-1] if written else _end_of(request)


def command_for(model: str, arguments: Sequence[str]) -> list[str]:
    """The command that trains one model in a process of its own."""
    return [sys.executable, "-P", "-m", "favor", *arguments, model]


def _run(command: Sequence[str]) -> int:
    with subprocess.Popen(command, stdout=subprocess.DEVNULL) as child, _passing_signals_on(child) as asked:
        code = child.wait()
    if asked:
        raise Stopped(asked[0])
    return code


@contextmanager
def _passing_signals_on(child: "subprocess.Popen[bytes]") -> Iterator[list[signal.Signals]]:
    """Let the child save itself and end; Ctrl-C at a terminal reaches it without us."""
    asked: list[signal.Signals] = []

    def pass_on(number: int, _frame: FrameType | None) -> None:
        asked.append(signal.Signals(number))
        if number == signal.SIGTERM:
            child.send_signal(number)

    before = {number: signal.signal(number, pass_on) for number in (signal.SIGTERM, signal.SIGINT)}
    try:
        yield asked
    finally:
        for number, handler in before.items():
            signal.signal(number, handler)


def _records(study: Path) -> tuple[Record, ...]:
    return read(study).records if (study / FILE_NAME).exists() else ()


def _end_of(request: TrainingRequest) -> Record | None:
    wanted = {
        "pipeline": pipeline_of(request.recipe, request.minutes),
        "recipe.seed": request.recipe.seed,
        "final": True,
    }
    ends = [
        record
        for record in _records(request.out)
        if record.name == card(request.model).name
        and record.status == "ok"
        and all(record.conditions.get(key) == value for key, value in wanted.items())
    ]
    return ends[-1] if ends else None


def _killed(request: TrainingRequest, status: Status, reason: str) -> Record:
    device = find_device(request.device)
    start = start_from(request.init, request.model) if request.init else fresh_start()
    dataset = parse(request.data).known.name
    subject = Subject(
        card(request.model).name, request.recipe, dataset, start, request.minutes, device.label, device.kind
    )
    return failure_record(subject, status, reason, describe(device, request.threads or usable_threads()))
