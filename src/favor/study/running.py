"""Running the jobs of a session that are left, with progress on stderr: for the command line and for Python alike."""

import signal
from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path

import psutil

from favor.errors import RequestError, WorkError
from favor.machine import environment
from favor.machine.clock import Clock, WallClock
from favor.machine.device import find_device
from favor.machine.process import signal_of, sigterm_interrupts
from favor.records.schema import Record
from favor.study.display import Display, warn_of_unreadable_lines
from favor.study.estimate import Forecast, forecast_of
from favor.study.local_executor import LocalExecutor
from favor.study.plan import Job, ways_left_out
from favor.study.progress import JobState, Repeat, doubts_of, flags_of, jobs_to_do
from favor.study.quiet_machine import QuietMachine
from favor.study.resolved import ResolvedStudy
from favor.study.runner import Keeper, UnwrittenError, Watcher, run_jobs
from favor.study.second_look import SecondLook
from favor.study.sent_results import send_results
from favor.study.session import Session, extend, using_devices, working_in
from favor.study.train_jobs import TrainJob
from favor.terminal import note, progress_bar
from favor.text import plural
from favor.units import format_span


@dataclass(frozen=True)
class Ended:
    """How a run ended: the states before it, the jobs it had to do, what was left undone, and what stopped it."""

    session: Session
    before: tuple[JobState, ...]
    jobs: tuple[Job, ...]
    keeper: Keeper
    refused: tuple[RequestError, ...] = ()
    out_of_time: tuple[Job, ...] = ()
    stopped_by: signal.Signals | None = None
    unwritten: UnwrittenError | None = None

    @property
    def records(self) -> list[Record]:
        """The newest record of every job that has one, in the order of the models that were asked for."""
        records = [state.record for state in self.before if state.job not in self.jobs]
        records += [record for record in self.keeper.records if record.task != "accuracy"]
        if any(isinstance(job, TrainJob) for job in self.jobs):  # their workers wrote the records
            states = self.session.states()
            records += [state.record for state in states if isinstance(state.job, TrainJob) and state.job in self.jobs]
        order = {model.name: number for study in self.session.studies for number, model in enumerate(study.models)}
        present = [record for record in records if record is not None]
        return sorted(present, key=lambda record: (order[record.name], record.task))

    def write_rest(self) -> None:
        """Try once more to write the records that could not be written, and report the outcome."""
        if self.unwritten is None:
            return
        names = ", ".join(dict.fromkeys(record.name for record in self.keeper.unwritten))
        try:
            self.keeper.retry()
        except WorkError as still:
            lost = f"the last results ({names}) are printed above but not saved" if names else "no record is lost"
            raise WorkError(f"{still}; {lost}; free some space or restore the folder, then run it again") from still
        raise WorkError(
            f"{self.unwritten}; the records of {names} were saved on a second try; run it again to continue"
        )


def run_request(
    request: ResolvedStudy,
    folder: Path | None,
    *,
    repeat: Repeat | None = None,
    wait: bool = False,
    resume: bool = True,
) -> Ended:
    """Add a request to a folder, if there is one, and do its jobs that are left."""
    with working_in(folder, wait):
        session = extend(request, folder)
        ended = run_session(session, repeat=repeat, wait=wait, resume=resume)
        if ended.stopped_by is None and ended.unwritten is None:
            send_results(session)
        return ended


def run_session(
    session: Session,
    *,
    repeat: Repeat | None = None,
    wait: bool = False,
    resume: bool = True,
    times: int = 1,
    since: float | None = None,
) -> Ended:
    """Do the jobs of a session that are left, with a line for each above a bar; records are saved as they come."""
    warn_of_unreadable_lines(session.folder)
    before = session.states()
    jobs = jobs_to_do(before, repeat) * times
    keeper = Keeper(session.folder)
    _say_what_is_there(session, before, len(jobs))
    if not jobs:
        return Ended(session, before, jobs, keeper)
    clock = WallClock()
    forecast = forecast_of(session.studies, jobs, before, clock, clock.now() if since is None else since)
    seconds = format_span(forecast.seconds_left())
    note(f"{plural(len(jobs), 'job')} to do on {session.studies[0].machine}: about {seconds}")
    if missing := dict.fromkeys(way for study in session.studies for way in ways_left_out(study)):
        note(f"left out, since they do not exist: {', '.join(missing)}")
    # A training run reports its own time left, which is more accurate.
    seconds_left = None if len(jobs) == 1 and isinstance(jobs[0], TrainJob) else forecast.seconds_left
    asked_at = clock.now()
    # Killed by SIGTERM, favor would leave exported models in the temporary folder.
    with using_devices(jobs, session.folder, wait), progress_bar(seconds_left) as bar, sigterm_interrupts():
        forecast.postpone(clock.now() - asked_at)
        try:
            executor = LocalExecutor(session.folder, resume)
            display = Display(bar, forecast, session.folder, len(jobs), clock)
            look = second_look_of(session, keeper, executor, forecast, display, clock)
            if look is None:
                run = run_jobs(jobs, keeper, executor, forecast, display)
            else:
                run = run_jobs(jobs, keeper, executor, forecast, display, look.choose, look.has_to_repeat)
                look.run()
        except KeyboardInterrupt as interruption:
            return Ended(session, before, jobs, keeper, stopped_by=signal_of(interruption))
        except UnwrittenError as error:
            return Ended(session, before, jobs, keeper, unwritten=error)
    return Ended(session, before, jobs, keeper, run.refused, run.out_of_time)


def second_look_of(
    session: Session,
    keeper: Keeper,
    executor: LocalExecutor,
    forecast: Forecast,
    watcher: Watcher,
    clock: Clock,
) -> SecondLook | None:
    """The second look at the models of a study; None if its answer does not depend on measurements."""
    asking = [study for study in session.studies if study.has_second_look]
    if not asking or session.folder is None:
        return None
    processors = psutil.cpu_count() or 1
    return SecondLook(
        study=asking[0],
        folder=session.folder,
        keeper=keeper,
        executor=executor,
        forecast=forecast,
        watcher=watcher,
        quiet=QuietMachine(environment.look_at_load, processors, clock),
        clock=clock,
        processors=processors,
        free_memory=find_device(asking[0].machine.device).free_memory(),
        exports=executor.exports,
    )


def _say_what_is_there(session: Session, states: Sequence[JobState], to_do: int) -> None:
    done = [state for state in states if state.status == "done"]
    failed = sum(state.status == "failed" for state in states)
    flagged = sum(bool(flags_of(state.record)) and not isinstance(state.job, TrainJob) for state in done)
    doubtful = sum(bool(doubts_of(state.record)) for state in done)
    if not done and not failed:
        return
    text = f"{len(done)} of {len(states)} jobs are already done"
    if doubtful and session.folder is not None and session.studies[0].has_second_look:
        text += f", {doubtful} of them doubtful (`favor resume {session.folder}` repeats these)"
    elif flagged:
        text += f", {flagged} of them with flags (--repeat flagged repeats these)"
    retry = "--resume" if session.studies[0].command == "train" else "--repeat failed"
    text += f", {failed} failed ({retry} retries these)" if failed else ""
    if not to_do:
        note(f"{text}; nothing is left to do")
    elif any(state.job.phase != "count" for state in states if state.status != "left"):
        note(text)
