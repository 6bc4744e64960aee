"""The second look of a study: models that can still win are measured head to head, then doubtful ones once more.

The first look at all models is short; the rest of the total budget goes where the answer is open.
"""

from collections.abc import Iterable, Sequence
from dataclasses import dataclass, field
from functools import cached_property, partial
from pathlib import Path
from typing import TYPE_CHECKING

from favor.machine.clock import Clock
from favor.machine.messages import Findings
from favor.measurement.head_to_head import measure_head_to_head
from favor.measurement.in_turns import LEAST_QUIET_ROUNDS, SECONDS_PER_PART
from favor.measurement.job import MeasureJob
from favor.measurement.measure import SHARE_OF_FREE_MEMORY
from favor.records.schema import Record, Scalar
from favor.records.store import has_records
from favor.study.contenders import accurate_enough, contenders
from favor.study.estimate import LEAST_BUDGET, Forecast
from favor.study.exporting import Exports
from favor.study.plan import Job
from favor.study.progress import JobState, doubts_of, flags_of, records_of, states_of_all
from favor.study.quiet_machine import QuietMachine
from favor.study.resolved import ResolvedStudy
from favor.study.runner import Executor, Keeper, Watcher, run_jobs
from favor.text import plural

if TYPE_CHECKING:
    import pandas as pd

MOST_CONTENDERS = 5
ROUND_BUDGETS = 4
"""The rounds of a model last this many times its budget per measurement."""

SETUP_BUDGETS = 0.6
"""Building a model and searching its best batch size take as long as a job with this share of the budget."""

LEAST_SECONDS_PER_MODEL = (LEAST_QUIET_ROUNDS + 2) * 3 * SECONDS_PER_PART
"""Rounds for an interval, and two more that may be disturbed; a turn has two parts and calls that do not count."""


@dataclass(eq=False)
class SecondLook:
    """The order of a study's measurements, and a second look at its models within what is left of the total budget."""

    study: ResolvedStudy
    folder: Path
    keeper: Keeper
    executor: Executor
    forecast: Forecast
    watcher: Watcher
    quiet: QuietMachine
    clock: Clock
    processors: int
    free_memory: int
    exports: Exports = field(default_factory=Exports)
    _repeated: set[Job] = field(default_factory=set)

    def run(self) -> None:
        """Measure the contenders head to head, then repeat what is still doubtful, as far as time is left."""
        can_win = self._contenders()
        rivals = self._affordable(can_win)
        if len(rivals) > 1:
            self.head_to_head(rivals)
        else:
            self.forecast.begin_second_look(0.0)  # all the time that was set aside is left for repeating
        self._repeat(first=can_win)

    def choose(self, left: Sequence[Job]) -> Job:
        """The next job; within a phase, jobs that can decide the answer come first. Waits for a quiet machine."""
        if not isinstance(left[0], MeasureJob):
            return left[0]
        deciding = [job for job in left if job.phase == left[0].phase and self._decides(job)]
        job = deciding[0] if deciding else left[0]
        self._wait_for_quiet(job)
        return job

    def has_to_repeat(self, job: Job, records: Sequence[Record]) -> bool:
        """Whether a job that can decide the answer was disturbed. It is then repeated once, unless that is hopeless."""
        disturbed = any("busy" in flags_of(record) for record in records)
        if not disturbed or not self._decides(job) or job in self._repeated or self.quiet.is_hopeless:
            return False
        self._repeated.add(job)
        self.watcher.note(f"{job}: other programs were running; it will be repeated")
        return True

    def _decides(self, job: Job) -> bool:
        return isinstance(job, MeasureJob) and job.phase == "inference" and job.name in self._can_be_favored

    def _wait_for_quiet(self, job: Job) -> bool:
        """Wait until other programs are idle, as long as the job still fits; returns whether they are."""
        text = "waiting until other programs are idle"
        most = self.forecast.available() - self.forecast.seconds_of(job, min(job.budget, LEAST_BUDGET))
        return self.quiet.wait(most, lambda: self.watcher.at_step(job, text))

    @cached_property
    def _can_be_favored(self) -> frozenset[str]:
        return accurate_enough(self.study, self._evidence())

    def _evidence(self) -> "pd.DataFrame":
        """The records of the study, which has none if there was no time for any job, and those that ship with favor."""
        from favor.evidence import load_evidence  # imports pandas

        return load_evidence([self.folder] if has_records(self.folder) else [])[0]

    def _states(self) -> tuple[JobState, ...]:
        return states_of_all([self.study], records_of(self.folder))

    def _contenders(self) -> list[MeasureJob]:
        """The jobs of the models that can still win, the fastest first, as many as fit into memory at once."""
        states = {
            (state.job.name, state.job.img_size): state
            for state in reversed(self._states())  # of several precisions, the study's first
            if isinstance(state.job, MeasureJob) and state.job.phase == "inference" and state.record is not None
        }
        doubtful = {model for model, state in states.items() if doubts_of(state.record)}
        chosen = [states[model] for model in contenders(self.study, self._evidence(), doubtful) if model in states]
        return list(_fitting(chosen[:MOST_CONTENDERS], SHARE_OF_FREE_MEMORY * self.free_memory))

    def _affordable(self, rivals: list[MeasureJob]) -> list[MeasureJob]:
        """The first rivals, as many as there is time for."""
        while rivals and self._setup(rivals) + LEAST_SECONDS_PER_MODEL * len(rivals) > self.forecast.available():
            rivals = rivals[:-1]
        return rivals

    def _setup(self, rivals: Sequence[MeasureJob]) -> float:
        return sum(self.forecast.seconds_of(job, SETUP_BUDGETS * job.budget) for job in rivals)

    def head_to_head(self, rivals: Sequence[MeasureJob]) -> None:
        """Measure rivals in turns, once other programs are idle, and keep what they did not disturb."""
        least, setup = LEAST_SECONDS_PER_MODEL * len(rivals), self._setup(rivals)
        most = max(least, ROUND_BUDGETS * sum(job.budget for job in rivals))
        self.forecast.begin_second_look(min(self.forecast.available(), setup + most))
        self.watcher.note(f"head to head: {', '.join(job.name for job in rivals)}")
        if not self.quiet.wait(self.forecast.available() - setup - least):
            self.watcher.note("head to head: skipped, because other programs are still running")
            return
        records = {state.job: state.record for state in self._states()}
        before: dict[tuple[str, Scalar], Record | None] = {(job.name, job.img_size): records[job] for job in rivals}
        jobs, exporting = self._exported(rivals)
        measured: tuple[Record, ...] = ()
        if len(jobs) > 1:
            measured = measure_head_to_head(
                jobs,
                min(most, self.forecast.available() - setup),
                self.clock,
                self.processors,
                lambda step: self.watcher.at_step(rivals[0], f"head to head: {step}"),
                exporting,
            )
        # A disturbed session must not replace what was measured on a quiet machine.
        kept = [
            record
            for record in measured
            if not doubts_of(record) or doubts_of(before[record.name, record.conditions["img_size"]])
        ]
        self.keeper.keep(kept)
        if len(kept) < len(rivals):
            self.watcher.note(
                f"head to head: {len(rivals) - len(kept)} of {len(rivals)} models were disturbed or failed"
            )

    def _exported(self, rivals: Sequence[MeasureJob]) -> tuple[list[MeasureJob], dict[MeasureJob, Findings]]:
        """The jobs with the files that their runtime opens; one whose export fails is left out."""
        jobs: list[MeasureJob] = []
        exporting: dict[MeasureJob, Findings] = {}
        for job in rivals:
            if not job.needs_file:
                jobs.append(job)
                continue
            made = self.exports.of(job, partial(self.watcher.at_step, job))
            if made.findings is not None and made.findings.status == "ok":
                jobs.append(made.job)
                exporting[made.job] = made.findings
        return jobs, exporting

    def _repeat(self, first: Sequence[MeasureJob]) -> None:
        """Repeat each doubtful measurement once, if the machine is quiet, those of models that can win first."""
        states = self._states()
        doubtful = [state.job for state in states if doubts_of(state.record) and state.job not in self._repeated]
        again = sorted(doubtful, key=lambda job: job not in first)
        if not again:
            return
        doubtful_jobs = plural(len(again), "doubtful job")
        if not self._wait_for_quiet(again[0]):
            self.watcher.note(f"not repeated, because other programs are still running: {doubtful_jobs}")
            return
        self.watcher.note(f"measuring again: {doubtful_jobs}")
        self.forecast.add(again)
        run_jobs(again, self.keeper, self.executor, self.forecast, self.watcher, self.choose)


def _fitting(states: Iterable[JobState], room: float) -> Iterable[MeasureJob]:
    """The jobs of the first models whose processes fit into memory together."""
    for state in states:
        assert isinstance(state.job, MeasureJob)  # noqa: S101 - selected by the caller
        assert state.record is not None  # noqa: S101
        metrics = state.record.metrics
        needs = ("memory_process", "inference_memory_best_batch")
        room -= max((metrics[name].value for name in needs if name in metrics), default=0.0)
        if room < 0:
            return
        yield state.job
