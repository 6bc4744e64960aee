"""A study at work in its folder: begun there, extended, or gone on with."""

from collections.abc import Iterator
from contextlib import ExitStack, contextmanager
from dataclasses import dataclass
from pathlib import Path

from favor.errors import RequestError
from favor.machine.device import find_device
from favor.machine.locks import measuring
from favor.measurement.job import MeasureJob
from favor.study.folder import has_requests, locked, save_requests, saved_requests
from favor.study.plan import Job
from favor.study.progress import JobState, records_of, states_of_all
from favor.study.resolve import machine_of
from favor.study.resolved import ResolvedStudy
from favor.zoo.registry import load_plugin


@dataclass(frozen=True)
class Session:
    """What is asked for in this call, and the folder that keeps its records; without one nothing is kept."""

    studies: tuple[ResolvedStudy, ...]
    folder: Path | None

    def states(self) -> tuple[JobState, ...]:
        """How each job stands now."""
        return states_of_all(self.studies, () if self.folder is None else records_of(self.folder))


def begin(study: ResolvedStudy, folder: Path) -> Session:
    """Begin a study in a folder, or go on with it if the same was begun there."""
    saved = saved_requests(folder) if has_requests(folder) else ()
    if saved and study not in saved:
        raise RequestError(
            f"{folder} has another study ({saved[0].name}; it differs in {', '.join(study.differences(saved[0]))}); "
            f"`favor resume {folder}` goes on with that one, another --study begins this one"
        )
    return extend(study, folder)


def extend(study: ResolvedStudy, folder: Path | None) -> Session:
    """Add a request to those of a folder. The session does this one only; `resume` goes on with all of them."""
    if folder is not None:
        saved = saved_requests(folder) if has_requests(folder) else ()
        if study not in saved:
            save_requests(folder, (*saved, study))
    return Session((study,), folder)


def resume(folder: Path) -> Session:
    """Go on with all that was asked for in a folder; on another machine, or with another PyTorch, that is refused."""
    studies = saved_requests(folder)
    for study in studies:
        for plugin in study.plugins:
            load_plugin(plugin)
        here = machine_of(find_device(study.machine.device), study.machine.threads)
        if here != study.machine:
            raise RequestError(
                f"{folder} was begun on {study.machine}, and this is {here}: figures of the two do not compare; begin "
                "a study here with another --study (records of both can be shown together)"
            )
    return Session(studies, folder)


@contextmanager
def working_in(folder: Path | None, wait: bool) -> Iterator[None]:
    """Have a folder to oneself; without one there is nothing to share."""
    with ExitStack() as locks:
        if folder is not None:
            locks.enter_context(locked(folder, wait))
        yield


@contextmanager
def measuring_alone(jobs: tuple[Job, ...], folder: Path | None, wait: bool) -> Iterator[None]:
    """Have the devices that jobs are timed on to oneself, in all folders of this user."""
    with ExitStack() as locks:
        for device in sorted({job.device for job in jobs if isinstance(job, MeasureJob)}):
            locks.enter_context(measuring(device, folder, wait))
        yield
