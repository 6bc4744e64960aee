"""A study whose workers run in the process of the test: to start their own would take most of the time."""

import gc
import os
from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from dataclasses import replace
from multiprocessing import get_context
from pathlib import Path

import pytest

from favor.machine import environment
from favor.machine.messages import Channel, Findings
from favor.measurement import measure, worker
from favor.measurement.job import MeasureJob
from favor.study import local_executor, running
from favor.training.local_ranks import free_port, variables_of_rank
from favor.training.request import TrainingRequest
from favor.training.run import train
from favor.zoo import registry
from favor.zoo.encoder import Size


@contextmanager
def in_this_process(place: Path, sizes: Mapping[str, Size]) -> Iterator[pytest.MonkeyPatch]:
    """Run studies here, with data from `place`, and with these models in other sizes."""
    with pytest.MonkeyPatch.context() as patch:
        patch.setenv("FAVOR_DATA", str(place / "data"))
        patch.setenv("XDG_RUNTIME_DIR", str(place))  # for the lock of the device
        patch.setattr(running, "second_look_of", lambda *_: None)  # it waits for a quiet machine, and has its own tests
        for name, size in sizes.items():
            patch.setitem(registry.find_entry(name).settings, "size", size)
        patch.setattr(local_executor, "supervise", _trained)
        patch.setattr(measure, "supervise", _measured)
        patch.setattr(environment, "is_busy", lambda *_: False)  # other tests may be running at the same time
        yield patch
    gc.unfreeze()  # what the measuring worker freezes


def _trained(command: tuple[str, ...], request: str, **_: object) -> Findings:
    """A training run without the seconds for which it times steps before it starts."""
    asked = replace(TrainingRequest.from_json(request), survey_seconds=1e-9)
    with _other_processes(asked):
        train(asked)
    return Findings()


@contextmanager
def _other_processes(request: TrainingRequest) -> Iterator[None]:
    """The other processes of a training run as forks of this one, which has other models and data than a new one."""
    if request.processes == 1:
        yield
        return
    group = {"WORLD_SIZE": str(request.processes), "MASTER_ADDR": "127.0.0.1", "MASTER_PORT": str(free_port())}
    with pytest.MonkeyPatch.context() as patch:
        for name, value in (group | variables_of_rank(0)).items():
            patch.setenv(name, value)
        ranks = range(1, request.processes)
        forks = [get_context("fork").Process(target=_take_part, args=(request, rank), daemon=True) for rank in ranks]
        for fork in forks:
            fork.start()
        yield
        for fork in forks:
            fork.join()
            assert fork.exitcode == 0


def _take_part(request: TrainingRequest, rank: int) -> None:
    os.environ |= variables_of_rank(rank)
    train(request)


def _measured(command: tuple[str, ...], request: str, **_: object) -> Findings:
    """A measurement without its limit of memory, which would hold for the rest of the tests."""
    findings = Findings()
    channel = Channel(findings.take)
    worker.measure(replace(MeasureJob.from_json(request), memory_limit=None), channel)
    channel.done()
    return findings
