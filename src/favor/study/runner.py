"""Runs the jobs of a study one after the other, keeping what each found as it comes.

Who does a job is an `Executor`. There is one, `favor.study.local_executor`.
"""

from collections.abc import Callable, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Protocol

from favor.measure.meters import Interrupted
from favor.records.schema import Record
from favor.records.store import append
from favor.study.estimate import Forecast
from favor.study.plan import Job


class Executor(Protocol):
    """Does a job and hands over what it found; a job that fails is a record with its reason, not an exception."""

    def execute(self, job: Job, budget: float, on_step: Callable[[str], None]) -> tuple[Record, ...]: ...


class Watcher(Protocol):
    """Is told how a run goes, to show it."""

    def begins(self, job: Job) -> None: ...

    def at_step(self, job: Job, step: str) -> None: ...

    def ended(self, job: Job, records: Sequence[Record], seconds: float) -> None: ...


@dataclass(frozen=True)
class Run:
    """How a run ended: the jobs that were done in it, and those that the budget of the whole left no time for."""

    done: tuple[Job, ...]
    out_of_time: tuple[Job, ...]


def run_jobs(jobs: Sequence[Job], folder: Path, executor: Executor, forecast: Forecast, watcher: Watcher) -> Run:
    """Do the jobs in their order; Ctrl-C keeps what the interrupted one had found."""
    for number, job in enumerate(jobs):
        budget = forecast.budget_for(job)
        if budget is None:
            return Run(tuple(jobs[:number]), tuple(jobs[number:]))
        forecast.begin(job, budget)
        watcher.begins(job)
        try:
            records = executor.execute(job, budget, lambda step, job=job: watcher.at_step(job, step))  # type: ignore[misc]
        except Interrupted as interruption:
            if interruption.record.metrics:
                append(folder, [interruption.record])
            raise
        append(folder, records)
        watcher.ended(job, records, forecast.end(records))
    return Run(tuple(jobs), ())
