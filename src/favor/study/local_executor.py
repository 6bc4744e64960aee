"""The executor for this machine: counts in this process, measures and trains each job in its own process."""

from collections.abc import Callable
from dataclasses import replace
from pathlib import Path

from favor.errors import RequestError
from favor.machine.process import supervise, worker_command, worker_environment
from favor.measurement.job import MeasureJob
from favor.measurement.measure import measure
from favor.records.schema import CardFields, Record, Status, reading, timestamp
from favor.study.plan import CountJob, Job
from favor.study.progress import records_of, was_interrupted
from favor.study.schema import Stage
from favor.study.train_jobs import TrainJob, dataset_of, final_record, is_of, stage_conditions, stage_request
from favor.text import cut_to_line
from favor.trace.attention import attention_conditions
from favor.trace.counts import METRIC_NAMES, count
from favor.zoo.registry import card


class LocalExecutor:
    """Runs jobs on this machine, one at a time: two at once would disturb each other's timings.

    Trainings write their records and checkpoints below `folder`. A training that was started before continues from
    its last checkpoint; without `resume` it is refused.
    """

    def __init__(self, folder: Path | None, resume: bool = True) -> None:
        self._folder, self._resume = folder, resume

    def execute(
        self, job: Job, budget: float, on_step: Callable[[str], None], on_note: Callable[[str], None]
    ) -> tuple[Record, ...]:
        if isinstance(job, CountJob):
            on_step("counting")
            return (count_record(job),)
        if isinstance(job, MeasureJob):
            return (measure(replace(job, budget=budget), on_step),)
        assert self._folder is not None  # noqa: S101 - trainings always have a folder
        return train(job, self._folder, on_step, on_note, self._resume)


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
) -> tuple[Record, ...]:
    """Train a model, stage by stage, continuing where it stopped.

    The worker writes the records; only a failure that it could not write itself is returned.
    """
    for stage in job.stages:
        records = records_of(folder)
        if final_record(job, stage, records) is not None:
            continue
        on_step(f"{stage.recipe} on {stage.data}")
        request = stage_request(job, stage, folder, records, resume or stage is not job.train)
        try:
            findings = supervise(
                worker_command("favor.training.worker"),
                request.to_json(),
                on_step=on_step,
                on_note=on_note,
                environment=worker_environment(job.threads),
                saves_itself=True,
            )
        except RequestError as refusal:
            if not resume:
                raise
            return (_failure(job, stage, "failed", f"training: {refusal}"),)
        after = records_of(folder)
        if final_record(job, stage, after) is not None:
            continue
        failure = _failure(job, stage, findings.status or "failed", findings.reason or "training: no final record")
        wrote_its_failure = any(is_of(job, stage, record) and record.status != "ok" for record in after[len(records) :])
        return () if wrote_its_failure or was_interrupted(failure) else (failure,)
    return ()


def _failure(job: TrainJob, stage: Stage, status: Status, reason: str) -> Record:
    """The record of a failed training that wrote none; a retry continues from its last checkpoint."""
    conditions = {"dataset": dataset_of(stage)} | stage_conditions(stage, job.seed)
    conditions |= attention_conditions(job.attention)
    if stage is job.train:
        first = job.first_weights
        conditions |= {"pretraining": first.pretraining}
        conditions |= {} if first.img_size is None else {"pretraining_img_size": first.img_size}
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
