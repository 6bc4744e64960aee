"""Which jobs of a study are done, failed or left, according to its records. Imports no torch."""

from collections import defaultdict
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Literal

from favor.records.contradictions import CONTRADICTORY, REASON, flagged, measurements_that_count
from favor.records.counted import counted_records
from favor.records.repeated import that_counts
from favor.records.schema import Record, Scalar
from favor.records.store import Problem, has_records, read
from favor.study.plan import CountJob, Job, jobs_of
from favor.study.resolved import Machine, ResolvedStudy
from favor.study.train_jobs import Lineage, TrainJob, final_record, is_of

JobStatus = Literal["done", "failed", "left"]
Repeat = Literal["doubtful", "failed", "flagged", "all"]
REPEATS: tuple[Repeat, ...] = ("failed", "flagged", "all")
"""What users can ask for; `favor resume` repeats doubtful jobs by itself."""

INTERRUPTED = "interrupted"

_OPTIONAL_CONDITIONS = ("attention", "calibration", "checkpoint")
"""Conditions that change the numbers; a job or a record without such a key has the default."""


@dataclass(frozen=True)
class JobState:
    """A job and its status; `reason` is that of its last failure, `finals` are the records of all training runs."""

    job: Job
    status: JobStatus
    reason: str | None = None
    record: Record | None = None
    finals: tuple[Record, ...] = ()


def records_of(folder: Path) -> tuple[Record, ...]:
    """The records in a folder, those that contradict each other with flags."""
    return flagged(read(folder).records) if has_records(folder) else ()


def unreadable_in(folder: Path) -> tuple[Problem, ...]:
    """The unreadable lines of a folder's records, such as one that a killed process leaves; their jobs are left."""
    return read(folder).problems if has_records(folder) else ()


def states_of(jobs: Sequence[Job], records: Iterable[Record], machine: Machine) -> tuple[JobState, ...]:
    """The state of each job. A job with a successful record is done, even if another attempt failed.

    An interrupted job remains to be done: the interruption says nothing about the model.
    """
    by_subject: dict[tuple[str, str], list[Record]] = defaultdict(list)
    for record in (*counted_records(), *records):
        if record.source == "measured":
            by_subject[record.name, record.task].append(record)
    return tuple(_state(job, by_subject[job.name, job.phase], machine) for job in jobs)


def states_of_all(studies: Iterable[ResolvedStudy], records: Sequence[Record]) -> tuple[JobState, ...]:
    """The state of each job of several requests; a job that two of them share appears once."""
    states: dict[object, JobState] = {}
    for study in studies:
        for state in states_of(jobs_of(study), records, study.machine):
            states.setdefault(_subject(state.job, study.machine), state)
    return tuple(states.values())


def _subject(job: Job, machine: Machine) -> object:
    """The identity of a job; the budget is not part of it."""
    if isinstance(job, TrainJob):
        return job
    return job.name, job.phase, tuple(sorted(job.conditions.items())), None if job.phase == "count" else machine


def _state(job: Job, records: Sequence[Record], machine: Machine) -> JobState:
    if isinstance(job, TrainJob):
        return training_state(job, records)
    of_job = [
        record
        for record in records
        if _has_conditions(record, job.conditions) and (isinstance(job, CountJob) or is_on(machine, record))
    ]
    counting = of_job[that_counts(of_job)] if of_job else None
    return _ended(job, of_job, counting if counting is not None and counting.status == "ok" else None)


def training_state(job: TrainJob, records: Sequence[Record]) -> JobState:
    """The state of a training run, with its final record or the last failure.

    It is left as long as one of its fine-tunings can still be done, even if another one failed.
    """
    of_job = [record for record in records if any(is_of(job, lineage, record) for lineage in job.lineages)]
    finals = tuple(final for lineage in job.lineages if (final := final_record(job, lineage, of_job)) is not None)
    if len(finals) == len(job.lineages):
        return JobState(job, "done", record=finals[-1], finals=finals)
    return JobState(job, "left") if _can_go_on(job, of_job) else _ended(job, of_job, None)


def _can_go_on(job: TrainJob, of_job: Sequence[Record]) -> bool:
    """Whether a training run of the job is neither done, nor failed, nor starts from one that failed."""
    stuck: set[Lineage] = set()
    for lineage in job.lineages:
        if final_record(job, lineage, of_job) is not None:
            continue
        of_run = [record for record in of_job if is_of(job, lineage, record)]
        if lineage[:-1] not in stuck and not any(map(_is_failure, of_run)):
            return True
        stuck.add(lineage)
    return False


def _ended(job: Job, of_job: Sequence[Record], done: Record | None) -> JobState:
    if done is not None:
        return JobState(job, "done", record=done)
    failures = [record for record in of_job if _is_failure(record)]
    if failures:
        return JobState(job, "failed", f"{failures[-1].status}: {failures[-1].reason}", failures[-1])
    return JobState(job, "left")


def _is_failure(record: Record) -> bool:
    return record.status != "ok" and not was_interrupted(record)


def was_interrupted(record: Record) -> bool:
    """Whether a record is of an interrupted job."""
    return (record.reason or "").endswith(INTERRUPTED)


def _has_conditions(record: Record, conditions: Mapping[str, Scalar]) -> bool:
    """Whether a record has the conditions that a job asks for; it may have more, which only the built model knows."""
    return all(record.conditions.get(key) == conditions.get(key) for key in (*conditions, *_OPTIONAL_CONDITIONS))


def is_on(machine: Machine, record: Record) -> bool:
    """Whether a record is of a study's machine; a process that died at once could not record it."""
    wanted: dict[str, Scalar] = {"torch": machine.torch, "threads": machine.threads}
    if not machine.is_cluster:
        wanted["device_name"] = machine.device_name
    elif not machine.label and record.conditions.get("device") == "cpu":
        return False
    environment = record.environment
    return all(environment.get(key, None if record.status == "ok" else value) == value for key, value in wanted.items())


def flags_of(record: Record | None) -> tuple[str, ...]:
    """The flags on a record: reasons to distrust its figures, such as `busy` or `latency:wide`."""
    return () if record is None else tuple(str(record.environment.get("flags", "")).split())


def doubts_of(record: Record | None) -> tuple[str, ...]:
    """Why a measurement has to be repeated: other programs disturbed it, or its results contradict each other."""
    flags = flags_of(record)
    if record is None or record.task == "accuracy" or not flags:
        return ()
    doubts = []
    if "busy" in flags:
        loads = [record.environment.get(key) for key in ("others_before", "others_during")]
        others = max((load for load in loads if isinstance(load, int | float)), default=0.0)
        doubts.append("other programs were running" + (f" on {others:.1f} processors" if others else ""))
    if any(flag.endswith(f":{CONTRADICTORY}") for flag in flags):
        doubts.append(str(record.environment[REASON]))
    return tuple(doubts)


def doubtful_measurements(records: Sequence[Record]) -> tuple[Record, ...]:
    """The measurements that have to be repeated, whether or not a job asked for them."""
    counting = (records[number] for number in measurements_that_count(records))
    return tuple(record for record in counting if doubts_of(record))


def jobs_to_do(states: Sequence[JobState], repeat: Repeat | None = None) -> tuple[Job, ...]:
    """The jobs that are left, in their order, then those to repeat: doubtful or failed ones, those with flags, or all.

    A finished training run is not repeated: it would give the same result.
    """
    left = [state.job for state in states if state.status == "left"]
    again = [state.job for state in states if _is_repeated(state, repeat)]
    return (*left, *again)


def _is_repeated(state: JobState, repeat: Repeat | None) -> bool:
    if state.status == "failed":
        return repeat in ("failed", "all")
    if state.status == "left" or isinstance(state.job, TrainJob):
        return False
    if repeat == "doubtful":
        return bool(doubts_of(state.record))
    return repeat == "all" or (repeat == "flagged" and bool(flags_of(state.record)))
