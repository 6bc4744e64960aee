"""How long a study will take: a model of the time of a job, corrected by the jobs that are done. Imports no torch.

A job consists of a process start, a few timings that each use their budget, and passes whose length depends on the
model. Finished jobs show how long process starts and passes take on this machine.
"""

import math
import statistics
from collections.abc import Callable, Collection, Iterable, Mapping, Sequence
from dataclasses import dataclass
from datetime import datetime
from itertools import pairwise

from favor.machine.clock import Clock
from favor.measurement.job import MeasureJob
from favor.records.counted import counted_records
from favor.records.schema import Record, Scalar
from favor.study.plan import CountJob, Job
from favor.study.progress import JobState, flags_of, is_on
from favor.study.resolved import Machine, ResolvedStudy
from favor.study.train_jobs import TrainJob, images_of, recipe_of

LEAST_BUDGET = 1.0
"""Seconds: a shorter timing is useless."""

START_SECONDS = 4.5
COUNT_SECONDS = 1.0
READY_SECONDS: Mapping[str, float] = {"eager": 0.0, "compile": 60.0, "onnxruntime": 12.0, "openvino": 12.0}
"""To compile for each batch size, or to export; several runtimes share a graph."""

INT8_SECONDS = 15.0
PAGE_SECONDS = 10.0
PRIOR_JOBS = 1.0
"""The model of job times weighs as much as this many finished jobs."""

MACS_PER_SECOND = {"cpu": 4e10}
MACS_PER_SECOND_ELSEWHERE = 2e12
USUAL_MACS, USUAL_SIZE = 4.5e9, 224
TRAINING_PASSES = 3.0
"""A training step is a forward pass and a backward pass of twice its work."""


@dataclass(frozen=True)
class Shape:
    """The time of a phase: a number of budgets, and a number of passes of a single image."""

    budgets: float
    images: float


SECOND_LOOK_SHARE = 0.3
SECOND_LOOK_JOBS = 5.0
"""The time set aside for a second look at the models that can still win: as long as this many jobs, within a share."""

SHARE_THAT_FITS = 0.5
"""A job is started only if at least this share of it fits into the total budget."""

_SPEED = {
    "count": ("", 0.0),
    "inference": ("throughput", 1.0),
    "training": ("train_throughput", TRAINING_PASSES),
    "load": ("", 0.0),
    "accuracy": ("", 0.0),
}
"""By phase, the metric of the machine's speed, and the passes per image behind it."""

_LONGEST_JOB = 600.0
"""Seconds: a longer gap between two jobs means that the study was not running."""

SHAPES: Mapping[str, Shape] = {"inference": Shape(3.5, 40.0), "training": Shape(2.5, 40.0), "load": Shape(0.9, 10.0)}


@dataclass(frozen=True)
class JobTime:
    """The seconds of a job as a linear function of the budget per measurement."""

    fixed: float
    per_budget: float

    def at(self, budget: float) -> float:
        return self.fixed + self.per_budget * budget


@dataclass(frozen=True)
class Observed:
    """A finished job, its budget per measurement, the seconds it took, and whether other programs disturbed it."""

    job: Job
    budget: float
    seconds: float
    disturbed: bool = False


class Forecast:
    """The time that the jobs of a study will take, and the budget of each job within the total budget."""

    def __init__(
        self,
        jobs: Sequence[Job],
        clock: Clock,
        work_of: Callable[[Job], float],
        *,
        total: float | None = None,
        device: str = "cpu",
        since: float | None = None,
        page: bool = True,
        second_look: bool = False,
    ) -> None:
        self._left = list(jobs)
        self._total, self._clock, self._work_of = total, clock, work_of
        self._began = clock.now() if since is None else since
        self._page = PAGE_SECONDS if page else 0.0
        self._speed = MACS_PER_SECOND.get(device, MACS_PER_SECOND_ELSEWHERE)
        self._speeds: list[float] = []
        self._done: list[Observed] = []
        self._running: tuple[Job, float, float] | None = None
        self._second_look = second_look
        self._ends_at: float | None = None

    def budget_for(self, job: Job) -> float | None:
        """The seconds per measurement of the next job; None if the total budget is used up.

        All jobs come before the second look, which gets the time that they leave. A job that would fit on a quiet
        machine is started, even if earlier jobs were disturbed.
        """
        if self._total is None:
            return job.budget
        available = self.available()
        if SHARE_THAT_FITS * self._time(job, undisturbed=True).at(LEAST_BUDGET) > available:
            return None
        return min(job.budget, self._affordable(available - self._set_aside()))

    def available(self) -> float:
        """The seconds left for all jobs that have not started, and the second look; infinite without a total budget."""
        if self._total is None:
            return math.inf
        return self._total - self._elapsed() - self._page - self._rest_of_running()

    def seconds_of(self, job: Job, budget: float) -> float:
        """The seconds that a job will take with a budget per measurement."""
        return self._time(job).at(budget)

    def add(self, jobs: Iterable[Job]) -> None:
        """Jobs that are to be done after all others."""
        self._left += jobs

    def postpone(self, seconds: float) -> None:
        """Start the total budget later: waiting for another process is not part of it."""
        self._began += seconds

    def begin_second_look(self, seconds: float) -> None:
        """The second look starts now, and its head-to-head part takes so many seconds."""
        self._second_look, self._ends_at = False, self._clock.now() + seconds

    def begin(self, job: Job, budget: float) -> None:
        """A job starts now."""
        self._left.remove(job)
        self._running = (job, budget, self._clock.now())

    def end(self, records: Sequence[Record]) -> float:
        """The running job is done with these records; returns the seconds it took."""
        assert self._running is not None  # noqa: S101 - begin() comes first
        job, budget, began = self._running
        disturbed = any("busy" in flags_of(record) for record in records)
        observed = Observed(job, budget, self._clock.now() - began, disturbed)
        self.learn(observed, records)
        self._running = None
        return observed.seconds

    def learn(self, observed: Observed, records: Iterable[Record]) -> None:
        """Correct the forecast by a finished job, of this run or an earlier one."""
        self._done.append(observed)
        metric, passes = _SPEED[observed.job.phase]
        for record in records:
            if isinstance(observed.job, MeasureJob) and metric in record.metrics and not observed.disturbed:
                self._speeds.append(record.metrics[metric].value * passes * self._work_of(observed.job))
                self._speed = statistics.median(self._speeds)

    def seconds_left(self) -> float:
        """The seconds from now to the end, including the page; never more than the total budget leaves."""
        aside = self._set_aside() if self._ends_at is None else max(0.0, self._ends_at - self._clock.now())
        most = math.inf if self._total is None else self._affordable(self.available() - aside)
        left = self._page + aside + sum(self._time(job).at(min(job.budget, most)) for job in self._left)
        left += self._rest_of_running()
        if self._total is not None:
            left = min(left, max(0.0, self._total - self._elapsed()))
        return left

    def _set_aside(self) -> float:
        """The seconds that are kept for the second look."""
        measured = [job for job in (*self._left, *(done.job for done in self._done)) if isinstance(job, MeasureJob)]
        if not self._second_look or not measured:
            return 0.0
        wanted = SECOND_LOOK_JOBS * statistics.fmean(self._time(job).at(2 * job.budget) for job in measured)
        return wanted if self._total is None else min(SECOND_LOOK_SHARE * self._total, wanted)

    def _elapsed(self) -> float:
        return self._clock.now() - self._began

    def _rest_of_running(self) -> float:
        """The seconds that the running job still needs."""
        if self._running is None:
            return 0.0
        job, its_budget, began = self._running
        return max(0.0, self._time(job).at(its_budget) - (self._clock.now() - began))

    def _affordable(self, available: float) -> float:
        """The budget per measurement with which all remaining jobs fit, but at least `LEAST_BUDGET`."""
        times = [self._time(job) for job in self._left]
        per_budget = sum(time.per_budget for time in times)
        if not per_budget:
            return math.inf
        return max(LEAST_BUDGET, (available - sum(time.fixed for time in times)) / per_budget)

    def _time(self, job: Job, undisturbed: bool = False) -> JobTime:
        modeled, ratio = self._modeled(job), self._ratio(job.phase, undisturbed)
        return JobTime(ratio * modeled.fixed, ratio * modeled.per_budget)

    def _modeled(self, job: Job) -> JobTime:
        """The time of a job before the correction by finished jobs."""
        if isinstance(job, CountJob):
            return JobTime(COUNT_SECONDS, 0.0)
        image = self._work_of(job) / self._speed
        if isinstance(job, MeasureJob):
            shape = SHAPES[job.phase]
            work = TRAINING_PASSES * image if job.phase == "training" else image
            fixed = START_SECONDS + shape.images * work + READY_SECONDS[job.runtime]
            return JobTime(fixed + (INT8_SECONDS if job.precision == "int8" else 0.0), shape.budgets)
        return JobTime(START_SECONDS * len(job.lineages) + _training_seconds(job, image), 0.0)

    def _ratio(self, phase: str, undisturbed: bool) -> float:
        """Observed over modeled time of this phase's (undisturbed) jobs, shrunk towards 1 while few are done."""
        observed = [done for done in self._done if done.job.phase == phase and not (undisturbed and done.disturbed)]
        modeled = [self._modeled(done.job).at(done.budget) for done in observed]
        if not observed:
            return 1.0
        prior = PRIOR_JOBS * statistics.fmean(modeled)
        return (prior + sum(done.seconds for done in observed)) / (prior + sum(modeled))


def _training_seconds(job: TrainJob, image: float) -> float:
    """The seconds of a training run and its fine-tuning runs, given those of a forward pass of one training image."""
    devices = 1 if job.device.startswith("cpu") else job.train.processes  # processes on CPUs share the cores
    own_side = recipe_of(job.train, job.seed, job.name).img_size
    seconds = 0.0
    for *_, stage in job.lineages:
        if stage.minutes is not None:
            seconds += 60.0 * stage.minutes
            continue
        recipe = recipe_of(stage, job.seed, job.name)
        of_epoch, evaluated = images_of(stage)
        passes = recipe.epochs * (TRAINING_PASSES * of_epoch + evaluated)
        seconds += passes * image * (recipe.img_size / own_side) ** 2 / devices
    return seconds


def work_from(records: Iterable[Record]) -> Callable[[Job], float]:
    """A function from a job to its multiply-adds per image.

    A model without a count is taken for the one whose name it has before its settings, or for a typical one.
    """
    counted: dict[str, tuple[Scalar, float]] = {
        record.name: (record.conditions["img_size"], record.metrics["macs"].value)
        for record in (*counted_records(), *records)
        if record.task == "count" and "macs" in record.metrics
    }

    def work_of(job: Job) -> float:
        named = job.name if job.name in counted else job.name.partition("(")[0]
        own_size, macs = counted.get(named, (USUAL_SIZE, USUAL_MACS))
        if isinstance(job, CountJob):
            return macs
        side = recipe_of(job.train, job.seed, job.name).img_size if isinstance(job, TrainJob) else job.img_size
        return macs * (side / float(own_size)) ** 2

    return work_of


def observed_before(states: Sequence[JobState], machines: Collection[Machine]) -> list[tuple[Observed, Record]]:
    """The durations of jobs of earlier runs on these machines.

    A measurement lasts from its start to that of the next, without long gaps. A training run has a clock of its own.
    """
    timed = sorted(
        (
            (datetime.fromisoformat(state.record.time), state)
            for state in states
            if state.record is not None and state.record.time is not None and isinstance(state.job, MeasureJob)
        ),
        key=lambda entry: entry[0],
    )
    observations = []
    for (began, state), (next_began, _) in pairwise(timed):
        assert state.record is not None  # noqa: S101 - filtered above
        budget, seconds = state.record.environment.get("budget"), (next_began - began).total_seconds()
        # Models that take turns all begin at once, so the time to the next job is that of all of them.
        in_turns = "stretch" in state.record.environment
        if isinstance(budget, int | float) and 0 < seconds <= _LONGEST_JOB and not in_turns:
            disturbed = "busy" in flags_of(state.record)
            observations.append((Observed(state.job, float(budget), seconds, disturbed), state.record))
    for state in states:
        here = all(any(is_on(machine, final) for machine in machines) for final in state.finals)
        clocks = [final.environment.get("program_seconds") for final in state.finals] if here else []
        seconds = sum(START_SECONDS + clock for clock in clocks if isinstance(clock, int | float))
        if state.record is not None and clocks and None not in clocks:
            disturbed = any("busy" in flags_of(final) for final in state.finals)
            observations.append((Observed(state.job, 0.0, seconds, disturbed), state.record))
    return observations


def forecast_of(
    studies: Sequence[ResolvedStudy], jobs: Sequence[Job], states: Sequence[JobState], clock: Clock, since: float
) -> Forecast:
    """The forecast of the jobs to do, corrected by the durations of earlier ones."""
    totals = [study.budget.total for study in studies]
    forecast = Forecast(
        jobs,
        clock,
        work_from(state.record for state in states if state.record is not None),
        total=None if None in totals else sum(total for total in totals if total is not None),
        device=studies[0].machine.device if studies else "cpu",
        since=since,
        page=any(study.has_page for study in studies),
        second_look=any(study.has_second_look for study in studies)
        and any(isinstance(job, MeasureJob) and job.phase == "inference" for job in jobs),
    )
    for observed, record in observed_before(states, [study.machine for study in studies]):
        forecast.learn(observed, [record])
    return forecast
