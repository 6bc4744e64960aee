"""A study at work in its folder: begun there, or gone on with."""

from dataclasses import dataclass
from pathlib import Path

from favor.errors import RequestError
from favor.machine.device import Device, find_device
from favor.study.folder import has_request, save_request, saved_request
from favor.study.plan import jobs_of
from favor.study.progress import JobState, records_of, states_of
from favor.study.resolve import machine_of
from favor.study.resolved import ResolvedStudy
from favor.zoo.registry import load_plugin


@dataclass(frozen=True)
class Session:
    """A resolved study, the device that it runs on, and its folder."""

    study: ResolvedStudy
    device: Device
    folder: Path

    def states(self) -> tuple[JobState, ...]:
        """How each job stands now."""
        return states_of(jobs_of(self.study), records_of(self.folder), self.study.machine)


def begin(study: ResolvedStudy, device: Device, folder: Path) -> Session:
    """Begin a study in a folder, or go on with it if the same was begun there."""
    if not has_request(folder):
        save_request(folder, study)
        return Session(study, device, folder)
    there = saved_request(folder)
    if there != study:
        raise RequestError(
            f"{folder} has another study ({there.name}; it differs in {', '.join(study.differences(there))}); "
            f"`favor resume {folder}` goes on with that one, another --out begins this one"
        )
    return Session(study, device, folder)


def resume(folder: Path) -> Session:
    """Go on with the study of a folder; on another machine, or with another PyTorch, that is refused."""
    study = saved_request(folder)
    for plugin in study.plugins:
        load_plugin(plugin)
    device = find_device(study.machine.device)
    here = machine_of(device, study.machine.threads)
    if here != study.machine:
        raise RequestError(
            f"{folder} was begun on {study.machine}, and this is {here}: figures of the two do not compare; begin a "
            "study here with another --out (records of both can be shown together)"
        )
    return Session(study, device, folder)
