"""The executor for this machine: counts in this process, measures and trains each job in its own process."""

import time
from collections.abc import Callable, Iterable
from dataclasses import replace
from pathlib import Path

from favor.errors import RequestError, WorkError
from favor.machine.messages import Findings
from favor.machine.openmp_wait import wait_asleep
from favor.machine.process import supervise, worker_command, worker_environment
from favor.measurement.job import MeasureJob
from favor.measurement.measure import measure
from favor.records.schema import CardFields, Record, Status, reading, timestamp
from favor.records.store import deleted
from favor.study.exporting import ExportedJob, Exports
from favor.study.plan import CountJob, Job
from favor.study.progress import INTERRUPTED, records_of, was_interrupted
from favor.study.train_jobs import (
    Lineage,
    TrainJob,
    dataset_of,
    final_record,
    initial_weights,
    is_of,
    stage_conditions,
    stage_request,
)
from favor.text import cut_to_line
from favor.trace.attention import attention_conditions
from favor.trace.counts import METRIC_NAMES, count
from favor.training.request import TrainingRequest
from favor.zoo.registry import card

LONGEST_DELAY = 60.0
"""Seconds until a node sees what another has written."""


class LocalExecutor:
    """Runs jobs on this machine, one at a time: two at once would disturb each other's timings.

    Training runs write their records and checkpoints below `folder`. A run that was started before continues from
    its last checkpoint; without `resume` it is refused. On a node of a cluster `writer` names the file of records.
    """

    def __init__(self, folder: Path | None, resume: bool = True, writer: str | None = None) -> None:
        self._folder, self._resume, self._writer = folder, resume, writer
        self.exports = Exports()

    def execute(
        self, job: Job, budget: float, on_step: Callable[[str], None], on_note: Callable[[str], None]
    ) -> tuple[Record, ...]:
        if isinstance(job, CountJob):
            on_step("counting")
            return (count_record(job),)
        if isinstance(job, MeasureJob):
            made = self.exports.of(job, on_step) if job.needs_file else ExportedJob(job, None)
            return (measure(replace(made.job, budget=budget), on_step, made.findings),)
        assert self._folder is not None  # noqa: S101 - training runs always have a folder
        return train(job, self._folder, on_step, on_note, self._resume, self._writer)


def count_record(job: CountJob) -> Record:
    """The counts of a model as a record; if counting fails, the record holds the reason."""
    about = {
        "name": job.name,
        "model": CardFields.of(card(job.name)),
        "task": "count",
        "source": "measured",
        "time": timestamp(),
    }
    try:
        counts = count(job.name, img_size=job.img_size, num_classes=job.num_classes)
    except Exception as error:  # noqa: BLE001 - whatever a user's own model raises is its failure and not the study's
        reason = cut_to_line(f"counting: {type(error).__name__}: {error}")
        return Record(**about, conditions=job.conditions, status="failed", reason=reason)  # type: ignore[arg-type]
    metrics = {
        name: reading(name, getattr(counts, name), method="counted on the operator trace") for name in METRIC_NAMES
    }
    return Record(**about, conditions={**job.conditions, **counts.operating_point}, metrics=metrics)  # type: ignore[arg-type]


def train(
    job: TrainJob,
    folder: Path,
    on_step: Callable[[str], None],
    on_note: Callable[[str], None],
    resume: bool = True,
    writer: str | None = None,
) -> tuple[Record, ...]:
    """Train and fine-tune a model, continuing where it stopped. If a training run fails, those after it are skipped.

    The workers write the records; only failures that they could not write themselves are returned.
    """
    failures: list[Record] = []
    failed: set[Lineage] = set()
    for lineage in job.lineages:
        records = records_of(folder)
        if final_record(job, lineage, records) is not None:
            continue
        if lineage[:-1] in failed:
            failed.add(lineage)
            continue
        on_step(f"{lineage[-1].recipe} on {lineage[-1].data}")
        request = stage_request(job, lineage, folder, records, resume or len(lineage) > 1, writer)
        try:
            findings = _supervised(request, job.threads, on_step, on_note)
        except RequestError as refusal:
            if not resume:
                raise
            failures.append(_failure(job, lineage, "failed", f"training: {refusal}"))
            failed.add(lineage)
            continue
        if not folder.is_dir():
            raise deleted(folder)
        after = records_of(folder)
        if final_record(job, lineage, after) is not None:
            continue
        status = "failed" if findings.status in (None, "ok") else findings.status
        failure = _failure(job, lineage, status, findings.reason or "training: no final record")
        if was_interrupted(failure):
            break
        failed.add(lineage)
        # Counted, since the records of other nodes may have come in between.
        if _count_failures(job, lineage, after) == _count_failures(job, lineage, records):
            failures.append(failure)
    return tuple(failures)


def _count_failures(job: TrainJob, lineage: Lineage, records: Iterable[Record]) -> int:
    """How many records say that a training run failed."""
    return sum(is_of(job, lineage, record) and record.status != "ok" for record in records)


def follow_training(job: TrainJob, folder: Path, writer: str | None) -> None:
    """Take part in the training runs that another process leads, which writes their records."""
    failed: set[Lineage] = set()
    for lineage in job.lineages:
        if lineage[:-1] in failed:
            failed.add(lineage)
            continue
        records = _records_after(job, lineage[:-1], folder)
        if final_record(job, lineage, records) is not None:
            continue
        request = stage_request(job, lineage, folder, records, True, writer)
        try:
            findings = _supervised(request, job.threads, lambda step: None, lambda text: None)
        except RequestError:  # the leading process records it and goes on, so this one must go on, too
            failed.add(lineage)
            continue
        if (findings.reason or "").endswith(INTERRUPTED):
            return
        if findings.status != "ok":
            failed.add(lineage)


def _records_after(job: TrainJob, before: Lineage, folder: Path) -> tuple[Record, ...]:
    """The records of a study, once they include the end of a training run: other nodes see it a little later."""
    deadline = time.monotonic() + LONGEST_DELAY
    while True:
        records = records_of(folder)
        if not before or final_record(job, before, records) is not None:
            return records
        if time.monotonic() > deadline:
            raise WorkError(f"{job}: the end of its training is not in {folder} after {LONGEST_DELAY:g} s")
        time.sleep(1.0)


def _supervised(
    request: TrainingRequest, threads: int, on_step: Callable[[str], None], on_note: Callable[[str], None]
) -> Findings:
    environment = worker_environment(threads)
    wait_asleep(environment)
    return supervise(
        worker_command("favor.training.worker"),
        request.to_json(),
        on_step=on_step,
        on_note=on_note,
        environment=environment,
        saves_itself=True,
    )


def _failure(job: TrainJob, lineage: Lineage, status: Status, reason: str) -> Record:
    """The record of a failed training run that wrote none; a retry continues from its last checkpoint."""
    stage = lineage[-1]
    conditions = {"dataset": dataset_of(stage)} | stage_conditions(stage, job.seed, job.name)
    conditions |= attention_conditions(job.attention) | initial_weights(job, lineage).conditions()
    conditions |= {} if stage.name is None else {"training_name": stage.name}
    return Record(
        name=job.name,
        model=CardFields.of(card(job.name)),
        task="accuracy",
        source="measured",
        conditions=conditions,
        status=status,
        reason=cut_to_line(reason),
        time=timestamp(),
    )
