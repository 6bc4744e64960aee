"""Many models: tracing is Python's own work, so each core gets a process that simulates one model after the other."""

import gc
from collections.abc import Iterator, Mapping, Sequence
from concurrent.futures import Future, ProcessPoolExecutor
from concurrent.futures.process import BrokenProcessPool
from dataclasses import dataclass
from multiprocessing import get_context
from pathlib import Path

import torch

from favor.errors import RequestError, WorkError
from favor.machine.environment import usable_threads
from favor.records.schema import Record
from favor.simulate.calibration import Calibration
from favor.simulate.correction import Correction
from favor.simulate.devices import Device
from favor.simulate.simulation import Asked, simulate
from favor.zoo.registry import load_plugin, loaded_plugins

_OBJECTS_BEFORE_COLLECTION = 200_000
MANY = 12
"""Models from which on processes of their own are worth the seconds that each takes to import torch and timm."""


@dataclass(frozen=True)
class Simulated:
    """A model's records, or why it was refused: an image size that is not for one model may be for the next."""

    name: str
    records: tuple[Record, ...] = ()
    refusal: RequestError | None = None


@dataclass(frozen=True)
class _Job:
    """What is the same for all models."""

    devices: Sequence[Device]
    asked: Asked
    calibration: Calibration
    corrections: Mapping[str, Correction]

    def of(self, name: str) -> Simulated:
        try:
            found = simulate(name, self.devices, self.asked, self.calibration, self.corrections)
        except RequestError as error:
            return Simulated(name, refusal=error)
        return Simulated(name, tuple(found))


def simulate_several(
    names: Sequence[str],
    devices: Sequence[Device],
    asked: Asked,
    calibration: Calibration,
    corrections: Mapping[str, Correction],
    processes: int | None = None,
) -> Iterator[Simulated]:
    """What each model would cost, in the order of the names; many of them in a process a core unless told otherwise."""
    job = _Job(devices, asked, calibration, corrections)
    processes = processes or (usable_threads() if len(names) >= MANY else 1)
    if processes == 1:
        yield from map(job.of, names)
        return
    # A forked process would inherit torch's threads in an unknown state.
    pool = ProcessPoolExecutor(processes, get_context("spawn"), _begin, (loaded_plugins(),))
    try:
        waiting: list[Future[Simulated]] = [pool.submit(job.of, name) for name in names]
        for name, future in zip(names, waiting, strict=True):
            try:
                yield future.result()
            except BrokenProcessPool as error:
                raise WorkError(
                    f"{name}: a process was killed before it was done, perhaps for want of memory; name fewer models"
                ) from error
    finally:
        pool.shutdown(wait=False, cancel_futures=True)


def _begin(plugins: Sequence[Path]) -> None:
    torch.set_num_threads(1)
    # A trace is a million small objects that all stay: looking for rubbish among them takes a fifth of the time.
    gc.set_threshold(_OBJECTS_BEFORE_COLLECTION)
    for file in plugins:
        load_plugin(file)
