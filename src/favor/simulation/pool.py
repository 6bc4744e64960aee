"""Many models: a pool of processes, one per core, because tracing is single-threaded Python."""

import gc
import hashlib
import os
from collections.abc import Iterable, Iterator, Mapping, Sequence
from concurrent.futures import Future, ProcessPoolExecutor
from concurrent.futures.process import BrokenProcessPool
from dataclasses import dataclass
from multiprocessing import get_context, parent_process
from pathlib import Path
from threading import Thread

import torch
from msgspec.structs import replace

from favor.errors import RequestError, WorkError
from favor.machine.environment import usable_threads
from favor.records.schema import Record
from favor.simulation.calibration import Calibration
from favor.simulation.correction import Correction
from favor.simulation.devices import Device
from favor.simulation.simulation import SimulationRequest, conditions_on, simulate
from favor.zoo.registry import card, load_plugin, loaded_plugins

_OBJECTS_BEFORE_COLLECTION = 200_000
_BASIS = "simulation"
"""The field of a record's environment that says what its times depend on besides its conditions."""
MANY = 12
"""The number of models from which a pool pays off: every process imports torch and timm first."""


@dataclass(frozen=True)
class Simulated:
    """The records of a model, or why it was refused: an image size may suit one model and not the next."""

    name: str
    records: tuple[Record, ...] = ()
    refusal: RequestError | None = None


@dataclass(frozen=True)
class _Job:
    """The request that all models share."""

    devices: Sequence[Device]
    request: SimulationRequest
    calibration: Calibration
    corrections: Mapping[str, Correction]

    def of(self, name: str) -> Simulated:
        try:
            records = simulate(name, self.devices, self.request, self.calibration, self.corrections)
        except RequestError as error:
            return Simulated(name, refusal=error)
        on = zip(records, self.devices, strict=True)
        return Simulated(name, tuple(self._with_basis(record, device) for record, device in on))

    def _with_basis(self, record: Record, device: Device) -> Record:
        return replace(record, environment={**record.environment, _BASIS: self.basis(device)})

    def basis(self, device: Device) -> str:
        """Eight digits that change with whatever else a time depends on: device, calibration and correction."""
        what = (device, self.calibration, self.corrections.get(device.name))
        return hashlib.sha256(repr(what).encode()).hexdigest()[:8]

    def is_done_by(self, record: Record, device: Device) -> bool:
        """Whether a record is what this job would give for its model on a device."""
        img_size = card(record.name).image_sizes.default if self.request.img_size is None else self.request.img_size
        wanted = conditions_on(device, self.request, img_size)
        # Fused attention is not a condition of a record, so a record of plain attention has all of them and one more.
        is_same_attention = record.conditions.get("attention") == wanted.get("attention")
        same = record.task == self.request.phase and is_same_attention and wanted.items() <= record.conditions.items()
        return same and record.environment.get(_BASIS) == self.basis(device)


def simulate_several(
    names: Sequence[str],
    devices: Sequence[Device],
    request: SimulationRequest,
    calibration: Calibration,
    corrections: Mapping[str, Correction],
    processes: int | None = None,
) -> Iterator[Simulated]:
    """Simulate models, in the order of their names; by default many models use one process per core."""
    job = _Job(devices, request, calibration, corrections)
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
                    f"{name}: a worker was killed, perhaps because memory ran out; simulate fewer models at once"
                ) from error
    finally:
        pool.shutdown(wait=False, cancel_futures=True)


def already_simulated(
    names: Sequence[str],
    devices: Sequence[Device],
    request: SimulationRequest,
    calibration: Calibration,
    corrections: Mapping[str, Correction],
    records: Iterable[Record],
) -> dict[str, tuple[Record, ...]]:
    """The models that records have on all devices, with this calibration, and their records; failures do not count."""
    job, by_name = _Job(devices, request, calibration, corrections), {device.name: device for device in devices}
    wanted = set(names)
    by_model: dict[str, dict[str, Record]] = {}
    for record in records:
        device = by_name.get(str(record.conditions.get("device")))
        ended = record.name in wanted and record.source == "simulated" and record.status != "failed"
        if device is not None and ended and job.is_done_by(record, device):
            by_model.setdefault(record.name, {})[device.name] = record
    return {name: tuple(by_model[name].values()) for name in names if len(by_model.get(name, ())) == len(devices)}


def _begin(plugins: Sequence[Path]) -> None:
    Thread(target=_end_with_parent, daemon=True).start()
    torch.set_num_threads(1)
    # A trace is a million small, long-lived objects: garbage collection would take a fifth of the time.
    gc.set_threshold(_OBJECTS_BEFORE_COLLECTION)
    for file in plugins:
        load_plugin(file)


def _end_with_parent() -> None:
    """End this worker when the main process is killed; otherwise it would wait for work forever."""
    if (parent := parent_process()) is not None:
        parent.join()
        os._exit(1)
