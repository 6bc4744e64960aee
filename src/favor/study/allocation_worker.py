"""What runs on a node of a cluster: the jobs of one allocation, with the runner and executor of a single machine."""

import os
import re
import time
from collections.abc import Callable, Iterator, Sequence
from contextlib import ExitStack, contextmanager
from dataclasses import dataclass, replace
from pathlib import Path

import torch

from favor.errors import RequestError, WorkError, one_line
from favor.machine.clock import WallClock
from favor.machine.device import find_device
from favor.machine.environment import CLUSTER_VARIABLE, NODE_VARIABLE
from favor.machine.locks import measuring
from favor.measurement.job import MeasureJob
from favor.records.schema import Record, timestamp
from favor.records.store import FOLDER_NAME, read
from favor.study.allocation import Allocation, key_of
from favor.study.estimate import forecast_of
from favor.study.folder import saved_requests
from favor.study.local_executor import LocalExecutor, follow_training
from favor.study.plan import Job
from favor.study.progress import jobs_to_do, records_of, states_of
from favor.study.resolved import Machine
from favor.study.runner import Executor, Keeper, run_jobs
from favor.study.submission import Progress, ProgressFile, Submission
from favor.study.train_jobs import TrainJob
from favor.zoo.registry import load_plugin

SECONDS_BETWEEN_REPORTS = 5.0
_KILLED = re.compile(r": killed by SIG(TERM|KILL|USR2)\b")


@dataclass(frozen=True)
class Work:
    """The work of one allocation; it is sent to the node as it is.

    `processes` is the number of processes that one task starts for a training run; None leaves that to the study.
    """

    study: Path
    submission: Submission
    index: int
    allocation: Allocation
    machine: Machine
    plugins: tuple[str, ...]
    processes: int | None


def work_on(work: Work, cluster: str, node: str, rank: int = 0) -> None:
    """Do the jobs of an allocation that have no record yet; an allocation that was stopped continues where it stopped.

    If a training run has several tasks, the first (`rank` 0) reports and the others only take part.
    """
    os.environ |= {CLUSTER_VARIABLE: cluster, NODE_VARIABLE: node}
    reporter = _Reporter(ProgressFile.of(work.study, work.submission, work.index), node, work.machine.label)
    try:
        _check(work.machine, node)
        for plugin in work.plugins:
            load_plugin(plugin)
        jobs = jobs_of_allocation(work)
        if rank == 0:
            _lead(work, jobs, reporter)
        else:
            for job in jobs:
                assert isinstance(job, TrainJob)  # noqa: S101 - only training runs have several tasks
                follow_training(job, work.study, work.submission.writer(work.index))
    except Exception as error:
        if rank == 0:
            reporter.failed(error)
        raise


def _check(machine: Machine, node: str) -> None:
    if machine.torch != str(torch.__version__):
        raise RequestError(
            f"node {node} has PyTorch {torch.__version__}, the study {machine.torch}: their numbers are not "
            "comparable; use one environment for all nodes"
        )


def jobs_of_allocation(work: Work) -> tuple[Job, ...]:
    """The jobs without a record; if jobs are repeated, those without a record by this allocation."""
    own = work.study / FOLDER_NAME / f"{work.submission.writer(work.index)}.jsonl"
    written = read(own).records if own.is_file() else ()
    records = written if work.submission.repeats else records_of(work.study)
    left = jobs_to_do(states_of(work.allocation.jobs, records, work.machine))
    return tuple(_placed(job, work) for job in left)


def _placed(job: Job, work: Work) -> Job:
    """The job for the device of this node, and for the processes of its allocation, each with its own threads."""
    if isinstance(job, MeasureJob):
        return replace(job, device_label=find_device(work.machine.device).label)
    if isinstance(job, TrainJob) and work.processes is not None:
        train = job.train.model_copy(update={"processes": work.processes})
        return replace(job, train=train, threads=job.threads * work.processes)
    return job


def _lead(work: Work, jobs: Sequence[Job], reporter: "_Reporter") -> None:
    writer = work.submission.writer(work.index)
    studies = [study for study in saved_requests(work.study) if study.machine == work.machine]
    states = states_of(work.allocation.jobs, records_of(work.study), work.machine)
    clock = WallClock()
    with _alone_on_the_processor(jobs):
        forecast = forecast_of(studies, jobs, states, clock, clock.now())
        executor = _NodeExecutor(LocalExecutor(work.study, writer=writer))
        run = run_jobs(jobs, Keeper(work.study, writer), executor, forecast, reporter)
    if run.refused:
        raise run.refused[0]
    if run.out_of_time:
        reporter.failed(WorkError("the total budget of the study ran out"))


class _NodeExecutor:
    """The executor of a node. A killed worker does not mean that its model failed there, so its job stays undone."""

    def __init__(self, executor: Executor) -> None:
        self._executor = executor

    def execute(
        self, job: Job, budget: float, on_step: Callable[[str], None], on_note: Callable[[str], None]
    ) -> tuple[Record, ...]:
        records = self._executor.execute(job, budget, on_step, on_note)
        for record in records:
            if _KILLED.search(record.reason or ""):
                on_note(f"{job}: {record.reason}; not done")
        return tuple(record for record in records if not _KILLED.search(record.reason or ""))


@contextmanager
def _alone_on_the_processor(jobs: Sequence[Job]) -> Iterator[None]:
    """Wait for other measurements on this node's processor. The lock is in the node's own temporary folder."""
    with ExitStack() as locks:
        if any(isinstance(job, MeasureJob) and job.device == "cpu" for job in jobs):
            locks.enter_context(measuring("cpu", None, wait=True))
        yield


class _Reporter:
    """Writes the progress of an allocation, now and then, where `favor status` reads it."""

    def __init__(self, file: ProgressFile, node: str, label: str) -> None:
        self._file, self._label, self._now, self._written = file, label, Progress(node=node), 0.0

    def begins(self, job: Job) -> None:
        key = key_of(replace(job, device_label=self._label) if isinstance(job, MeasureJob) else job)
        self._now = Progress(node=self._now.node, job=key, since=timestamp())
        self._write()

    def at_step(self, job: Job, step: str) -> None:
        self._now = Progress(node=self._now.node, job=self._now.job, since=self._now.since, step=step)
        if time.monotonic() - self._written >= SECONDS_BETWEEN_REPORTS:
            self._write()

    def note(self, text: str) -> None:
        print(text, flush=True)  # noqa: T201 - into the log of the allocation

    def ended(self, job: Job, records: Sequence[Record], seconds: float) -> None:
        outcome = "; ".join(record.reason or record.status for record in records) or "done"
        self.note(f"{job}: {outcome} ({seconds:.0f} s)")

    def failed(self, error: Exception) -> None:
        """Say why the allocation ends early; its remaining jobs are left."""
        self._now = Progress(node=self._now.node, job=self._now.job, since=self._now.since, problem=one_line(error))
        try:
            self._write()
        except WorkError as unwritten:  # a full disk: the error that is raised next goes to the log
            self.note(str(unwritten))

    def _write(self) -> None:
        self._file.write(self._now)
        self._written = time.monotonic()
