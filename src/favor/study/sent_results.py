"""A study's results in experiment trackers: one run per measurement, since their tables and charts compare runs.

They are sent when the jobs are done: an upload would disturb the next measurement, and a second look may replace a
first one. Training runs send their own curves (`favor.training.trackers`).
"""

import hashlib
import sys
from collections.abc import Iterator
from contextlib import redirect_stdout
from dataclasses import dataclass
from pathlib import Path

import msgspec

from favor.atomic_file import write_whole
from favor.errors import RequestError, WorkError
from favor.records.counted import counted_records
from favor.records.schema import Record, Scalar
from favor.regular_file import read_text
from favor.study.plan import CountJob
from favor.study.progress import records_of, states_of_all
from favor.study.session import Session
from favor.study.train_jobs import TrainJob
from favor.terminal import note
from favor.text import plural
from favor.training.trackers import TRACKERS, TrackedRun, error_text

SENT_FILE = "sent.txt"
_HEAD = "# The results that trackers already have. Without this file, they are sent again.\n"
_MOST_BYTES = 2**26  # more than a million results


@dataclass(frozen=True)
class _Result:
    """The record of a job, with the counts of its model and size."""

    id: str
    title: str
    record: Record


def send_results(session: Session) -> None:
    """Send the trackers of a session what they do not have yet; a tracker that fails is a warning.

    Its records are safe, and the next command sends the rest.
    """
    for name in dict.fromkeys(name for study in session.studies for name in study.log):
        assert session.folder is not None  # noqa: S101 - `extend` refuses trackers without a folder
        try:
            with redirect_stdout(sys.stderr):  # trackers talk, and stdout is for data
                _send(name, session, session.folder)
        except (RequestError, WorkError) as error:  # the file of what was sent: edited, or on a full disk
            note(f"warning: --log {name}: {error}")


def _send(name: str, session: Session, folder: Path) -> None:
    sent = _read_sent(folder)
    new = [result for result in _results(session, name, folder) if (name, result.id) not in sent]
    if not new:
        return
    note(f"sending {plural(len(new), 'result')} to {name}")
    try:
        for result in new:
            record = result.record
            run = TrackedRun(
                id=result.id,
                name=result.title,
                study=folder.resolve().name,
                folder=folder,
                settings=_settings(record),
                resumed_from=None,
                is_curve=False,
            )
            tracker = TRACKERS[name](run)
            tracker.add(record, 0)
            tracker.close("done" if record.status == "ok" else "failed")
            sent[name, result.id] = None
    except Exception as error:  # noqa: BLE001 - whatever a tracker raises must not end the study
        note(
            f"warning: --log {name} failed ({error_text(error)}); the records are complete, and "
            f"`favor resume {folder}` sends the rest"
        )
    finally:
        write_whole(folder / SENT_FILE, (_HEAD + "".join(f"{tracker} {result}\n" for tracker, result in sent)).encode())


def _results(session: Session, tracker: str, folder: Path) -> Iterator[_Result]:
    """The newest record of each job, of counts only those of models without a measurement."""
    records = records_of(folder)
    counts = {
        _counted(record): record
        for record in (*counted_records(), *records)
        if record.task == "count" and record.status == "ok" and record.source == "measured"
    }
    states = states_of_all([study for study in session.studies if tracker in study.log], records)
    ended = [state for state in states if state.record is not None and not isinstance(state.job, TrainJob)]
    measured = {_counted(state.record) for state in ended if state.record and not isinstance(state.job, CountJob)}
    for state in ended:
        record = state.record
        if record is None or (isinstance(state.job, CountJob) and _counted(record) in measured):
            continue
        if record.status == "ok" and (count := counts.get(_counted(record))) is not None:
            record = msgspec.structs.replace(record, metrics={**count.metrics, **record.metrics})
        yield _Result(_id(record), str(state.job), record)


def _counted(record: Record) -> tuple[str, Scalar | None, Scalar | None]:
    """What counts depend on."""
    return record.name, record.conditions.get("img_size"), record.conditions.get("num_classes")


def _id(record: Record) -> str:
    """The identity of a result, also in a folder that was moved; a repeated measurement is another one."""
    about = (record.environment.get("host"), record.name, record.request, record.time)
    return hashlib.sha256(" ".join(map(str, about)).encode()).hexdigest()[:32]


def _settings(record: Record) -> dict[str, Scalar]:
    card = {key: value for key, value in msgspec.structs.asdict(record.model).items() if value is not None}
    about: dict[str, Scalar] = {"model": record.name, "task": record.task, "status": record.status}
    reason: dict[str, Scalar] = {} if record.reason is None else {"reason": record.reason}
    return {**card, **record.environment, **record.conditions, **about, **reason}


def _read_sent(folder: Path) -> dict[tuple[str, str], None]:
    """Which tracker has the result of which id, in the order in which they were sent."""
    file = folder / SENT_FILE
    sent: dict[tuple[str, str], None] = {}
    for number, line in enumerate(read_text(file, _MOST_BYTES).splitlines() if file.is_file() else (), start=1):
        if line.startswith("#"):
            continue
        tracker, _, result = line.partition(" ")
        if tracker not in TRACKERS or not result:
            remedy = "delete the line, and that result is sent again"
            raise RequestError(f"{file}:{number}: not a tracker and an id; {remedy}")
        sent[tracker, result] = None
    return sent
