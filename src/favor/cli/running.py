"""How commands run jobs: the jobs that are done already, progress bar and lines, and interruptions."""

import signal
from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Annotated

import typer

from favor.cli.console import note, progress_bar
from favor.errors import RequestError, WorkError, unknown_name

if TYPE_CHECKING:
    from rich.progress import Progress

    from favor.records.schema import Record
    from favor.study.estimate import Forecast
    from favor.study.plan import Job
    from favor.study.progress import JobState, Repeat
    from favor.study.runner import Keeper, UnwrittenError
    from favor.study.session import Session

StudyFolder = Annotated[
    Path | None,
    typer.Option("--study", metavar="DIR", help="Save the records in this study (default: only print them)."),
]
RepeatOption = Annotated[
    str | None,
    typer.Option("--repeat", metavar="failed|flagged|all", help="Repeat failed jobs, jobs with flags, or all jobs."),
]
Wait = Annotated[bool, typer.Option("--wait", help="Wait if another favor process uses the device or the study.")]


def repeat_of(text: str | None) -> "Repeat | None":
    """The jobs to repeat that an option names."""
    from favor.study.progress import REPEATS

    if text is None:
        return None
    for repeat in REPEATS:
        if text == repeat:
            return repeat
    raise unknown_name("value of --repeat", text, REPEATS, "choose from " + ", ".join(REPEATS))


@dataclass(frozen=True)
class Ended:
    """How a run ended: the states before it, the jobs it had to do, and what stopped it."""

    session: "Session"
    before: "tuple[JobState, ...]"
    jobs: "tuple[Job, ...]"
    keeper: "Keeper"
    refused: tuple[RequestError, ...] = ()
    stopped_by: signal.Signals | None = None
    unwritten: "UnwrittenError | None" = None

    @property
    def records(self) -> "list[Record]":
        """The newest record of every job that has one, in the order of the models that were asked for."""
        from favor.study.train_jobs import TrainJob

        records = [state.record for state in self.before if state.job not in self.jobs]
        records += [record for record in self.keeper.records if record.task != "accuracy"]
        if any(isinstance(job, TrainJob) for job in self.jobs):  # their workers wrote the records
            states = self.session.states()
            records += [state.record for state in states if isinstance(state.job, TrainJob) and state.job in self.jobs]
        order = {model.name: number for study in self.session.studies for number, model in enumerate(study.models)}
        present = [record for record in records if record is not None]
        return sorted(present, key=lambda record: (order[record.name], record.task))

    def finish(self, how_to_continue: str) -> None:
        """Retry failed writes, and exit if the run was stopped, saying how to continue."""
        if self.unwritten is not None:
            self._write_after_all(self.unwritten)
        if self.stopped_by is not None:
            saved = f"; saved in {self.session.folder}" if self.session.folder else ""
            note(f"stopped by {self.stopped_by.name}{saved}: {how_to_continue}")
            raise typer.Exit(130 if self.stopped_by is signal.SIGINT else 0)

    def _write_after_all(self, error: "UnwrittenError") -> None:
        names = ", ".join(dict.fromkeys(record.name for record in self.keeper.unwritten))
        try:
            self.keeper.retry()
        except WorkError as still:
            lost = f"the last results ({names}) are printed above but not saved" if names else "no record is lost"
            raise WorkError(f"{still}; {lost}; free some space or restore the folder, then run it again") from still
        raise WorkError(f"{error}; the records of {names} were saved on a second try; run it again to continue")


def run_session(
    session: "Session",
    *,
    repeat: "Repeat | None" = None,
    wait: bool = False,
    resume: bool = True,
    times: int = 1,
    since: float | None = None,
) -> Ended:
    """Do the jobs of a session that are left, with a line for each above a bar; records are saved as they come."""
    from favor.machine.clock import WallClock
    from favor.machine.process import InterruptedJob
    from favor.study.estimate import forecast_of
    from favor.study.local_executor import LocalExecutor
    from favor.study.progress import jobs_to_do
    from favor.study.runner import Keeper, UnwrittenError, run_jobs
    from favor.study.session import measuring_alone
    from favor.units import format_span

    warn_of_unreadable_lines(session.folder)
    before = session.states()
    jobs = jobs_to_do(before, repeat) * times
    keeper = Keeper(session.folder)
    _say_what_is_there(session, before, len(jobs))
    if not jobs:
        return Ended(session, before, jobs, keeper)
    clock = WallClock()
    forecast = forecast_of(session.studies, jobs, before, clock, clock.now() if since is None else since)
    count = f"{len(jobs)} job" if len(jobs) == 1 else f"{len(jobs)} jobs"
    note(f"{count} to do on {session.studies[0].machine}: about {format_span(forecast.seconds_left())}")
    refused: tuple[RequestError, ...] = ()
    with measuring_alone(jobs, session.folder, wait), progress_bar(forecast.seconds_left) as bar:
        try:
            executor = LocalExecutor(session.folder, resume)
            refused = run_jobs(
                jobs, keeper, executor, forecast, Display(bar, forecast, session.folder, len(jobs))
            ).refused
        except InterruptedJob as interruption:
            return Ended(session, before, jobs, keeper, stopped_by=interruption.signal)
        except KeyboardInterrupt:
            return Ended(session, before, jobs, keeper, stopped_by=signal.SIGINT)
        except UnwrittenError as error:
            return Ended(session, before, jobs, keeper, unwritten=error)
    return Ended(session, before, jobs, keeper, refused)


def warn_of_unreadable_lines(folder: Path | None) -> None:
    """Warn about records that cannot be read; their jobs are repeated."""
    from favor.study.progress import unreadable_in

    for problem in unreadable_in(folder) if folder is not None else ():
        note(f"warning: {problem}")


def _say_what_is_there(session: "Session", states: "Sequence[JobState]", to_do: int) -> None:
    from favor.study.progress import flags_of

    done = [state for state in states if state.status == "done"]
    failed = sum(state.status == "failed" for state in states)
    flagged = sum(bool(flags_of(state.record)) for state in done)
    if not done and not failed:
        return
    text = f"{len(done)} of {len(states)} jobs are already done"
    text += f", {flagged} of them with flags (--repeat flagged repeats these)" if flagged else ""
    text += f", {failed} failed (--repeat failed retries these)" if failed else ""
    if not to_do:
        note(f"{text}; nothing is left to do")
    elif any(state.job.phase != "count" for state in states if state.status != "left"):
        note(text)


class Display:
    """Shows a run: a line for each job that ended, above a bar with the time left where there is a terminal."""

    def __init__(self, bar: "Progress", forecast: "Forecast", folder: Path | None, total: int) -> None:
        self._bar, self._forecast, self._folder, self._total = bar, forecast, folder, total
        self._task = bar.add_task("starting", total=total)
        self._number = 0

    def begins(self, job: "Job") -> None:
        self._bar.update(self._task, description=str(job))

    def at_step(self, job: "Job", step: str) -> None:
        self._bar.update(self._task, description=f"{job}: {step}")

    def note(self, text: str) -> None:
        self._bar.console.print(text, markup=False, highlight=False, soft_wrap=True)

    def ended(self, job: "Job", records: "Sequence[Record]", seconds: float) -> None:
        from favor.cli.study_text import job_line
        from favor.study.progress import records_of
        from favor.study.train_jobs import TrainJob, final_record
        from favor.units import format_span

        self._number += 1
        self._bar.advance(self._task)
        shown = list(records)
        if isinstance(job, TrainJob) and self._folder is not None:  # its worker writes the records
            final = final_record(job, job.stages[-1], records_of(self._folder))
            shown += [] if final is None else [final]
        left = "" if self._bar.console.is_terminal else f"; about {format_span(self._forecast.seconds_left())} left"
        self.note(f"[{self._number}/{self._total}] {job_line(job, shown, seconds)}{left}")
