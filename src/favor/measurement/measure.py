"""One measurement, seen from the parent: limits for the worker, and the record of its results."""

import signal
import tempfile
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from dataclasses import replace
from datetime import UTC, datetime
from functools import partial

from favor.errors import RequestError
from favor.machine.device import Device, find_device
from favor.machine.messages import Findings
from favor.machine.process import InterruptedJob, supervise, worker_command, worker_environment
from favor.measurement.job import MeasureJob
from favor.records.schema import EAGER, CardFields, Record, timestamp, to_line
from favor.runtime.names import PRECISIONS
from favor.text import cut_to_line
from favor.zoo.registry import card

SHARE_OF_FREE_MEMORY = 0.9


class Interrupted(KeyboardInterrupt):
    """Ctrl-C or SIGTERM during a measurement; `record` holds the results so far."""

    def __init__(self, record: Record, number: signal.Signals = signal.SIGINT) -> None:
        super().__init__("interrupted")
        self.record, self.signal = record, number


def measure(
    job: MeasureJob, on_step: Callable[[str], None] = lambda step: None, exporting: Findings | None = None
) -> Record:
    """Measure one model in one phase in its own process; a failure gives a record with its status and reason.

    `exporting` are the findings of exporting the job's files.
    """
    started = datetime.now(UTC)
    if exporting is not None and exporting.status != "ok":
        return record_of(job, _with_remedy(job, exporting), started)
    limited = with_limits(job)
    try:
        with environment_of(job) as environment:
            findings = supervise(
                worker_command("favor.measurement.worker"),
                limited.to_json(),
                time_limit=limited.time_limit,
                on_step=on_step,
                environment=environment,
            )
    except InterruptedJob as interruption:
        record = record_of(job, interruption.findings, started, exporting)
        raise Interrupted(record, interruption.signal) from None
    return record_of(job, findings, started, exporting)


def _with_remedy(job: MeasureJob, exporting: Findings) -> Findings:
    """The findings of a failed export, with what would work instead; eager mode is no remedy if memory ran out."""
    if exporting.status != "failed":
        return exporting
    precision = "" if job.precision in PRECISIONS else " --precision fp32"
    return replace(exporting, reason=f"{exporting.reason}; use --runtime {EAGER}{precision}")


@contextmanager
def environment_of(job: MeasureJob) -> Iterator[dict[str, str]]:
    """The environment variables of a job's worker; one that compiles has empty caches, so that it compiles all."""
    environment = worker_environment(job.threads)
    if job.runtime != "compile":
        yield environment
        return
    # The parent deletes the folder, since a worker may be killed.
    with tempfile.TemporaryDirectory(prefix="favor-compile-") as folder:
        yield environment | {"TORCHINDUCTOR_CACHE_DIR": folder, "TRITON_CACHE_DIR": f"{folder}/triton"}


def record_of(job: MeasureJob, findings: Findings, started: datetime, exporting: Findings | None = None) -> Record:
    """The results of a worker as a record, with those of exporting the model; a failure if no record can hold them."""
    before = exporting or Findings()
    flags = " ".join(dict.fromkeys(findings.flags))
    record = partial(
        Record,
        name=job.name,
        model=CardFields.of(card(job.name)),
        task=job.phase,
        source="measured",
        time=timestamp(started),
    )
    try:
        found = record(
            conditions={**job.conditions, **before.conditions, **findings.conditions},
            metrics=before.metrics | findings.metrics,
            status=findings.status or "failed",
            reason=findings.reason,
            environment=before.environment | findings.environment | {"flags": flags},
            load=findings.load,
        )
        to_line(found)  # some values are refused only here
    except RequestError as error:
        return record(conditions=job.conditions, status="failed", reason=cut_to_line(f"recording: {error}"))
    return found


def with_limits(job: MeasureJob) -> MeasureJob:
    """The job with limits of time and memory."""
    return replace(
        job,
        time_limit=default_time_limit(job) if job.time_limit is None else job.time_limit,
        memory_limit=default_memory_limit(find_device(job.device)) if job.memory_limit is None else job.memory_limit,
    )


def default_memory_limit(device: Device) -> int | None:
    """The default memory limit of a worker: most of the free memory on a CPU, no limit elsewhere."""
    return int(SHARE_OF_FREE_MEMORY * device.free_memory()) if device.kind == "cpu" else None


def default_time_limit(job: MeasureJob) -> float:
    """The seconds after which a worker counts as hung: several budgets, plus time to build and compile."""
    budget = job.budget / 10 if job.phase == "load" else job.budget  # that of a load test is for all probes together
    return 180.0 + 15.0 * budget + (1200.0 if job.runtime == "compile" else 0.0)
