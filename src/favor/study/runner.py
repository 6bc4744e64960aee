"""Runs jobs one after another and saves the records of each as it ends. Every command that saves records uses it.

An `Executor` does the jobs: `favor.study.local_executor`, on this machine and on the nodes of a cluster.
"""

from collections.abc import Callable, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import Protocol

from favor.errors import RequestError, WorkError
from favor.measurement.measure import Interrupted
from favor.records.schema import Record
from favor.records.store import append, deleted
from favor.study.estimate import Forecast
from favor.study.folder import has_requests
from favor.study.plan import Job


class Executor(Protocol):
    """Does a job and returns its records; a job that fails gives a record with the reason, not an exception.

    A wrong request raises RequestError, and nothing is recorded.
    """

    def execute(
        self, job: Job, budget: float, on_step: Callable[[str], None], on_note: Callable[[str], None]
    ) -> tuple[Record, ...]: ...


class Watcher(Protocol):
    """Shows the progress of a run."""

    def begins(self, job: Job) -> None: ...

    def at_step(self, job: Job, step: str) -> None: ...

    def note(self, text: str) -> None: ...

    def ended(self, job: Job, records: Sequence[Record], seconds: float) -> None: ...


class UnwrittenError(WorkError):
    """Records could not be written; the keeper still holds them."""


@dataclass
class Keeper:
    """Appends records to a study; without a folder it only holds them. `retry` writes the `unwritten` ones again."""

    folder: Path | None
    writer: str | None = None
    records: list[Record] = field(default_factory=list)
    unwritten: list[Record] = field(default_factory=list)

    def keep(self, records: Sequence[Record]) -> None:
        self.records += records
        self.unwritten += records
        self.retry()

    def retry(self) -> None:
        """Write the records that are not written yet."""
        if self.folder is None:
            self.unwritten.clear()
            return
        if not has_requests(self.folder):
            raise UnwrittenError(str(deleted(self.folder)))
        try:
            while self.unwritten:
                # One at a time: after a failure in the middle, none is written twice.
                append(self.folder, self.unwritten[:1], writer=self.writer)
                del self.unwritten[0]
        except WorkError as error:
            raise UnwrittenError(str(error)) from error


@dataclass(frozen=True)
class Run:
    """How a run ended: finished jobs, jobs that the total budget left no time for, and refused requests."""

    done: tuple[Job, ...]
    out_of_time: tuple[Job, ...]
    refused: tuple[RequestError, ...]


def run_jobs(
    jobs: Sequence[Job],
    keeper: Keeper,
    executor: Executor,
    forecast: Forecast,
    watcher: Watcher,
    choose: Callable[[Sequence[Job]], Job] = lambda left: left[0],
    has_to_repeat: Callable[[Job, Sequence[Record]], bool] = lambda job, records: False,
) -> Run:
    """Do the jobs in their order; Ctrl-C saves the metrics that the interrupted job had measured.

    `choose` returns the next of the remaining jobs, and may first wait until the machine is quiet. A job for which
    `has_to_repeat` is true is done once more.
    """
    refused: list[RequestError] = []
    left = list(jobs)
    done: list[Job] = []
    while left:
        job = choose(left)
        budget = forecast.budget_for(job)
        if budget is None:
            break
        left.remove(job)
        done.append(job)
        forecast.begin(job, budget)
        watcher.begins(job)
        try:
            records = executor.execute(
                job,
                budget,
                lambda step, job=job: watcher.at_step(job, step),  # type: ignore[misc]
                watcher.note,
            )
        except Interrupted as interruption:
            if interruption.record.metrics:
                keeper.keep([interruption.record])
            raise
        except RequestError as refusal:
            refused.append(refusal)
            forecast.end(())
            continue
        seconds = forecast.end(records)
        try:
            watcher.ended(job, records, seconds)
        finally:
            keeper.keep(records)  # even if Ctrl-C comes, or showing them fails
        if has_to_repeat(job, records):
            forecast.add([job])
            left.append(job)
    return Run(tuple(done), tuple(left), tuple(refused))
