"""Requests to records: what is asked for, what is there already, and what a child process found."""

import os
import sys
import warnings
from collections.abc import Callable, Collection, Iterable, Iterator, Mapping
from dataclasses import dataclass
from datetime import UTC, datetime
from functools import partial
from pathlib import Path

import torch

from favor.errors import RequestError, WorkError
from favor.machine.device import Device
from favor.machine.environment import usable_threads
from favor.machine.messages import Findings
from favor.machine.process import InterruptedMeasurement, supervise
from favor.measure.request import Request, Settings
from favor.records.schema import CardFields, Record, Scalar, request_of, timestamp
from favor.records.store import Problem, append, read
from favor.trace.conditions import Phase
from favor.zoo.registry import PLUGINS_VARIABLE, card, loaded_plugins

SHARE_OF_FREE_MEMORY = 0.9
TRAINING_BATCH = {"cpu": 8}
TRAINING_BATCH_ELSEWHERE = 64


def requests_for(names: Iterable[str], settings: Settings, device: Device) -> list[Request]:
    """What has to be measured: each model in each phase. A name or size that cannot be is refused before any starts."""
    requests = []
    for name in names:
        sizes = card(name).image_sizes
        img_size = sizes.default if settings.img_size is None else settings.img_size
        sizes.check(name, (img_size, img_size))
        requests += [_request(name, phase, img_size, settings, device) for phase in settings.phases]
    return requests


def _request(name: str, phase: Phase, img_size: int, settings: Settings, device: Device) -> Request:
    batch_size = settings.batch_size
    if batch_size is None:
        batch_size = "best" if phase == "inference" else TRAINING_BATCH.get(device.kind, TRAINING_BATCH_ELSEWHERE)
    time_limit = settings.time_limit
    if time_limit is None:
        time_limit = default_time_limit(settings.budget, settings.compiled)
    return Request(
        name=name,
        phase=phase,
        img_size=img_size,
        num_classes=settings.num_classes,
        device=str(device.place),
        device_label=device.label,
        precision=settings.precision,
        compiled=settings.compiled,
        batch_size=None if batch_size == "best" else batch_size,
        budget=settings.budget,
        time_limit=time_limit,
        memory_limit=default_memory_limit(device) if settings.memory_limit is None else settings.memory_limit,
        threads=usable_threads() if settings.threads is None else settings.threads,
        optimizer=settings.optimizer,
        reference_batch=settings.reference_batch,
        epoch_images=settings.epoch_images,
        fit_memory=settings.fit_memory,
        grid_intensity=settings.grid_intensity,
        price_per_hour=settings.price_per_hour,
        plugins=tuple(str(file) for file in loaded_plugins()),
    )


@dataclass(frozen=True)
class Measured:
    """A record, and whether the study had it already."""

    record: Record
    was_there: bool


def flags_of(record: Record) -> str:
    """The flags on a record, such as `busy latency:wide`; empty where there is none."""
    return str(record.environment.get("flags", ""))


def _warn(problem: Problem) -> None:
    warnings.warn(str(problem), stacklevel=3)


def _records_of(study: Path, on_problem: Callable[[Problem], None]) -> tuple[Record, ...]:
    """What a study has already; lines of it that cannot be read are told."""
    try:
        append(study, [])
    except WorkError as error:
        raise RequestError(f"{error}; name a folder for the study that can be written to") from error
    found = read(study)
    for problem in found.problems:
        on_problem(problem)
    return found.records


def measure_all(
    requests: Iterable[Request],
    device: Device,
    study: Path | None = None,
    on_step: Callable[[Request, str], None] = lambda request, step: None,
    again: bool = False,
    on_problem: Callable[[Problem], None] = _warn,
) -> Iterator[Measured]:
    """Measure one request after the other, keeping each record in the study as it comes.

    What the study has already, measured with success on a machine like this one, is not measured again; with `again`
    it is where its record has a flag. Ctrl-C keeps what the interrupted measurement had found, with status `failed`.
    A study that cannot be written to is refused before anything is measured.
    """
    there = () if study is None else _records_of(study, on_problem)
    for request in requests:
        done = find_done(request, device, there)
        if done is not None and not (again and flags_of(done)):
            yield Measured(done, was_there=True)
            continue
        try:
            record = measure(request, partial(on_step, request))
        except Interrupted as interruption:
            if study is not None and interruption.record.metrics:
                append(study, [interruption.record])
            raise
        if study is not None:
            append(study, [record])
        yield Measured(record, was_there=False)


class Interrupted(KeyboardInterrupt):
    """Ctrl-C during a measurement; `record` holds what was found by then."""

    def __init__(self, record: Record) -> None:
        super().__init__("interrupted")
        self.record = record


def measure(request: Request, on_step: Callable[[str], None] = lambda step: None) -> Record:
    """Measure one model in one phase, in a process of its own; a failure is a record with its status and reason."""
    started = datetime.now(UTC)
    try:
        findings = supervise(
            request.to_json(), request.time_limit, on_step, environment=_environment_of_child(request.threads)
        )
    except InterruptedMeasurement as interruption:
        raise Interrupted(_record(request, interruption.findings, started)) from None
    return _record(request, findings, started)


def _record(request: Request, findings: Findings, started: datetime) -> Record:
    flags = " ".join(dict.fromkeys(findings.flags))
    return Record(
        name=request.name,
        model=CardFields.of(card(request.name)),
        task=request.phase,
        source="measured",
        conditions=request.conditions() | findings.conditions,
        metrics=findings.metrics,
        status=findings.status or "failed",
        reason=findings.reason,
        environment=findings.environment | {"flags": flags},
        time=timestamp(started),
    )


def _environment_of_child(threads: int) -> dict[str, str]:
    """The child's variables: its modules come from where ours come from, and libraries start so many threads."""
    inherited = {name: value for name, value in os.environ.items() if name != PLUGINS_VARIABLE}
    return inherited | {
        "PYTHONPATH": os.pathsep.join(path or os.getcwd() for path in sys.path),  # noqa: PTH109 - as Python reads it
        "OMP_NUM_THREADS": str(threads),
        "MKL_NUM_THREADS": str(threads),
        "KINETO_LOG_LEVEL": "99",
    }


def default_memory_limit(device: Device) -> int | None:
    """The most memory that a child may take unless told: most of what is free on a CPU, no limit of ours elsewhere."""
    return int(SHARE_OF_FREE_MEMORY * device.free_memory()) if device.kind == "cpu" else None


def default_time_limit(budget: float, compiled: bool) -> float:
    """The seconds after which a child counts as hanging: several budgets, and time to build and to compile."""
    return 180.0 + 15.0 * budget + (1200.0 if compiled else 0.0)


def find_done(request: Request, device: Device, records: Iterable[Record]) -> Record | None:
    """The newest record that answers a request already: measured, with success, on a machine like this one.

    Conditions that only the built model knows are on the record but not in the request, so they do not count here.
    """
    asked = request.conditions()
    wanted = request_of(request.name, request.phase, asked)
    machine = {"device_name": device.name, "torch": str(torch.__version__), "threads": request.threads}
    done = [
        record
        for record in records
        if (record.name, record.task, record.source, record.status) == (request.name, request.phase, "measured", "ok")
        and all(record.environment.get(key) == value for key, value in machine.items())
        and request_of(record.name, record.task, _restricted(record.conditions, asked)) == wanted
    ]
    return done[-1] if done else None


def _restricted(conditions: Mapping[str, Scalar], keys: Collection[str]) -> dict[str, Scalar]:
    return {key: value for key, value in conditions.items() if key in keys}
