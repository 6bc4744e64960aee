"""A study in its folder: started, extended or resumed."""

from collections.abc import Iterator, Sequence
from contextlib import ExitStack, contextmanager
from dataclasses import dataclass
from pathlib import Path

import torch

from favor.errors import RequestError
from favor.machine.device import find_device
from favor.machine.locks import measuring, training
from favor.measurement.job import MeasureJob
from favor.study.folder import has_requests, locked, save_requests, saved_requests
from favor.study.plan import Job
from favor.study.progress import JobState, records_of, states_of_all
from favor.study.resolve import machine_of
from favor.study.resolved import ResolvedStudy
from favor.study.train_jobs import TrainJob
from favor.zoo.registry import loaded_plugins


@dataclass(frozen=True)
class Session:
    """The studies of one command, and the folder for their records; without a folder nothing is saved."""

    studies: tuple[ResolvedStudy, ...]
    folder: Path | None

    def states(self) -> tuple[JobState, ...]:
        """The current state of each job."""
        return states_of_all(self.studies, () if self.folder is None else records_of(self.folder))


def begin(study: ResolvedStudy, folder: Path) -> Session:
    """Start a study in a folder, or continue it if the same one was started there."""
    saved = saved_requests(folder) if has_requests(folder) else ()
    if saved and all(study.differences(other) for other in saved):
        raise RequestError(
            f"{folder} holds another study ({saved[0].name}; it differs in {', '.join(study.differences(saved[0]))}); "
            f"continue that one with `favor resume {folder}`, or start this one in another folder with --study"
        )
    return extend(study, folder)


def extend(study: ResolvedStudy, folder: Path | None) -> Session:
    """Add a request to those of a folder, which keeps its trackers. The session does only this one, `resume` all."""
    if folder is not None:
        saved = saved_requests(folder) if has_requests(folder) else ()
        same = [name for other in saved if not study.differences(other) for name in other.log]
        study = study.model_copy(update={"log": tuple(dict.fromkeys((*same, *study.log)))})
        requests = [other if study.differences(other) else study for other in saved]
        if study not in saved:
            save_requests(folder, requests if study in requests else (*saved, study))
    elif study.log:
        raise RequestError("--log sends the records of a study; name the study with --study DIR")
    return Session((study,), folder)


def resume(folder: Path, log: Sequence[str] = ()) -> Session:
    """Continue all requests of a folder, from now on also with the trackers of `log`.

    Refused on another machine or with another version of PyTorch.
    """
    studies = saved_requests(folder)
    for study in studies:
        for plugin in study.plugins:
            if Path(plugin) not in loaded_plugins():
                # The folder may come from somebody else, and a plugin is code.
                raise RequestError(
                    f"{folder} needs the plugin {plugin}, which is code; if you trust it, run "
                    f"`favor --plugin {plugin} resume {folder}`"
                )
        if study.machine.is_cluster:
            here = study.machine.model_copy(update={"torch": str(torch.__version__)})
        else:
            here = machine_of(find_device(study.machine.device), study.machine.threads)
        if here != study.machine:
            raise RequestError(
                f"{folder} was started on {study.machine}, but this is {here}: their numbers are not comparable; start "
                "a new study here with another --study (one report can show both)"
            )
    if any(name not in study.log for study in studies for name in log):
        trackers = [tuple(dict.fromkeys((*study.log, *log))) for study in studies]
        studies = tuple(study.model_copy(update={"log": names}) for study, names in zip(studies, trackers, strict=True))
        save_requests(folder, studies)
    return Session(studies, folder)


@contextmanager
def working_in(folder: Path | None, wait: bool) -> Iterator[None]:
    """Lock a folder, if there is one, against other favor processes."""
    with ExitStack() as locks:
        if folder is not None:
            locks.enter_context(locked(folder, wait))
        yield


@contextmanager
def using_devices(jobs: tuple[Job, ...], folder: Path | None, wait: bool) -> Iterator[None]:
    """Lock the devices that the jobs measure or train on, across all folders of this user."""
    measured = {job.device for job in jobs if isinstance(job, MeasureJob)}
    trained = {job.device for job in jobs if isinstance(job, TrainJob)} - measured
    with ExitStack() as locks:
        for device in sorted(measured | trained):
            locks.enter_context((measuring if device in measured else training)(device, folder, wait))
        yield
