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
import yaml

from favor.atomic_file import write_whole
from favor.errors import RequestError, WorkError
from favor.records.counted import counted_records
from favor.records.schema import Record, Scalar
from favor.study.plan import CountJob
from favor.study.progress import records_of, states_of_all
from favor.study.session import Session
from favor.study.train_jobs import TrainJob
from favor.terminal import note
from favor.text import plural
from favor.training.trackers import TRACKERS, TrackedRun, error_text
from favor.yaml_file import YamlFile

SENT_FILE = "sent.yaml"
_HEAD = "# The results that trackers already have; without this file they are sent again.\n"


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
    ids = list(sent.get(name, ()))
    new = [result for result in _results(session, name, folder) if result.id not in ids]
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
            ids.append(result.id)
    except Exception as error:  # noqa: BLE001 - whatever a tracker raises must not end the study
        note(
            f"warning: --log {name} failed ({error_text(error)}); the records are complete, and "
            f"`favor resume {folder}` sends the rest"
        )
    finally:
        content = {tracker: list(of_tracker) for tracker, of_tracker in {**sent, name: tuple(ids)}.items()}
        write_whole(folder / SENT_FILE, (_HEAD + yaml.safe_dump(content)).encode())


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
        yield _Result(_id(record, folder), str(state.job), record)


def _counted(record: Record) -> tuple[str, Scalar | None, Scalar | None]:
    """What counts depend on."""
    return record.name, record.conditions.get("img_size"), record.conditions.get("num_classes")


def _id(record: Record, folder: Path) -> str:
    """The identity of a result: a repeated measurement is another one."""
    about = (folder.resolve(), record.environment.get("host"), record.request, record.time)
    return hashlib.sha256(" ".join(map(str, about)).encode()).hexdigest()[:32]


def _settings(record: Record) -> dict[str, Scalar]:
    card = {key: value for key, value in msgspec.structs.asdict(record.model).items() if value is not None}
    about: dict[str, Scalar] = {"model": record.name, "task": record.task, "status": record.status}
    reason: dict[str, Scalar] = {} if record.reason is None else {"reason": record.reason}
    return {**card, **record.environment, **record.conditions, **about, **reason}


def _read_sent(folder: Path) -> dict[str, tuple[str, ...]]:
    """The ids of the results that each tracker has."""
    file = folder / SENT_FILE
    if not file.is_file():
        return {}
    source = YamlFile.read(file)
    content = source.mapping("what was sent")
    for name, ids in content.items():
        if not isinstance(ids, tuple):
            raise source.error((name,), "write a list of ids, or delete the file; then everything is sent again")
    return {name: tuple(map(str, ids)) for name, ids in content.items() if isinstance(ids, tuple)}
