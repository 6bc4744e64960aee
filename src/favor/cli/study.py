"""`favor run`, `favor resume`, `favor status`: a study, from its file to its answer."""

from collections.abc import Sequence
from pathlib import Path
from typing import TYPE_CHECKING, Annotated

import typer

from favor.cli.console import emit_json, examples, note
from favor.cli.zoo import AsJson, load_plugins
from favor.errors import FavorError, RequestError

if TYPE_CHECKING:
    from rich.progress import Progress

    from favor.records.schema import Record
    from favor.study.estimate import Forecast
    from favor.study.plan import Job
    from favor.study.progress import JobState
    from favor.study.session import Session
    from favor.study.summary import Answer

DEFAULT_FOLDER = Path("runs")

RUN_EXAMPLES = "\n\n".join(
    [
        "**Built in**, with what they take on two cores",
        "`quick`  21 models, one or two of every class of the taxonomy, inference: 6 minutes (the default)",
        "`full`  all 47 models of the benchmark's Table 5, inference and training step: 45 minutes",
        "`misnomer`  depth against width, and patch sizes: 10 minutes",
        "`vix`  the Vision X-formers at CIFAR-10's size: 25 minutes",
        "`laptop`  14 families trained on CIFAR-10 for 5 minutes each, and measured: 90 minutes",
        "`paper`  all of Table 5 pretrained, fine-tuned and measured, on a node with a GPU: thousands of GPU hours",
        examples(
            ("favor run", "which model to favor on this machine, in 6 minutes"),
            ("favor run full --out cpu-study", "all of Table 5, into a folder of your own"),
            ("favor run my-study.yaml --json", "your own study (docs/studies.md), for programs"),
        ),
    ]
)
RESUME_EXAMPLES = examples(
    ("favor resume runs/full", "go on where it was stopped; nothing that is recorded is done again"),
    ("favor resume runs/full --retry", "try what failed again, too"),
)
STATUS_EXAMPLES = examples(
    ("favor status runs/full", "what is done, what failed and why, what is left"),
    ("favor status runs/full --json", "for programs"),
)

Folder = Annotated[Path, typer.Argument(metavar="DIR", help="The folder of a study.")]


def add_commands(app: typer.Typer) -> None:
    app.command("run", epilog=RUN_EXAMPLES)(run_command)
    app.command("resume", epilog=RESUME_EXAMPLES)(resume_command)
    app.command("status", epilog=STATUS_EXAMPLES)(status_command)


def run_command(
    study: Annotated[
        str | None, typer.Argument(metavar="STUDY", help="A built-in study, or a file that ends in .yaml.")
    ] = None,
    out: Annotated[Path | None, typer.Option(metavar="DIR", help="The study's folder; runs/NAME unless given.")] = None,
    quick: Annotated[bool, typer.Option("--quick", help="The same as `favor run quick`.")] = False,
    full: Annotated[bool, typer.Option("--full", help="The same as `favor run full`.")] = False,
    as_json: AsJson = False,
) -> None:
    """Run a study: measure (and train) many models on this machine, and say which to favor.

    Everything is checked before anything runs. Stop it when you like: what was found is kept, `favor resume` goes on,
    and the same `favor run` does too. A study that is done is not done again.
    """
    since = _now()
    from favor.study.folder import locked
    from favor.study.study_files import open_study

    chosen, source = open_study(_chosen(study, quick, full))
    folder = out or DEFAULT_FOLDER / chosen.name
    note(f"{chosen.name}: {chosen.doc.strip().partition(chr(10))[0] or source.place}")
    load_plugins()
    from favor.study.resolve import resolve  # torch comes only now that the file is known to be right
    from favor.study.session import begin

    resolved, device = resolve(chosen, source)
    with locked(folder):
        _work(begin(resolved, device, folder), retry=False, since=since, as_json=as_json)


def resume_command(
    folder: Folder,
    retry: Annotated[bool, typer.Option("--retry", help="Try the jobs that failed again.")] = False,
    as_json: AsJson = False,
) -> None:
    """Go on with a study where it was stopped. What failed is not tried again unless --retry says so."""
    since = _now()
    from favor.study.folder import locked, saved_request

    saved_request(folder)  # before the lock, which would make the folder
    load_plugins()
    with locked(folder):
        from favor.study.session import resume

        _work(resume(folder), retry=retry, since=since, as_json=as_json)


def status_command(folder: Folder, as_json: AsJson = False) -> None:
    """Say what of a study is done, what failed and why, what is left, and how long that will take."""
    from favor.cli import study_text
    from favor.machine.clock import WallClock
    from favor.study.estimate import forecast_of
    from favor.study.folder import is_at_work, saved_request
    from favor.study.plan import jobs_of
    from favor.study.progress import records_of, states_of

    study = saved_request(folder)
    _warn_of_lines(folder)
    states = states_of(jobs_of(study), records_of(folder), study.machine)
    left = [state.job for state in states if state.status == "left"]
    clock = WallClock()
    seconds = forecast_of(study, left, states, clock, clock.now()).seconds_left() if left else 0.0
    at_work = is_at_work(folder)
    if as_json:
        emit_json(
            {
                "study": study.name,
                "folder": str(folder),
                "at_work": at_work,
                "seconds_left": round(seconds),
                **study_text.states_data(states),
            }
        )
    else:
        study_text.print_status(study, states, folder, at_work, seconds)


def _chosen(study: str | None, quick: bool, full: bool) -> str:
    from favor.study.study_files import DEFAULT_STUDY

    named = [name for name in (study, "quick" if quick else None, "full" if full else None) if name is not None]
    if len(set(named)) > 1:
        raise RequestError(f"one study at a time: {', '.join(named)} are {len(named)}; name one of them")
    return named[0] if named else DEFAULT_STUDY


def _work(session: "Session", retry: bool, since: float, as_json: bool) -> None:
    """Do what is left of a study, write its page, and say what it found."""
    from favor.cli import study_text
    from favor.machine.clock import WallClock
    from favor.study.estimate import forecast_of
    from favor.study.folder import PAGE_FILE
    from favor.study.local_executor import LocalExecutor
    from favor.study.progress import jobs_to_do
    from favor.study.runner import run_jobs

    _warn_of_lines(session.folder)
    states = session.states()
    jobs = jobs_to_do(states, retry)
    page = session.folder / PAGE_FILE
    page_is_due = session.study.report.page and (bool(jobs) or _is_behind(page, session.folder))
    _say_what_is_there(session, states, len(jobs), page_is_due)
    if jobs:
        forecast = forecast_of(session.study, jobs, states, WallClock(), since)
        note(f"{len(jobs)} to do on {session.study.machine}: about {study_text.span(forecast.seconds_left())}")
        try:
            with _bar(forecast) as bar:
                executor = LocalExecutor(session.folder, session.device)
                watching = _Watching(bar, forecast, session.folder, len(jobs))
                run_jobs(jobs, session.folder, executor, forecast, watching)
        except KeyboardInterrupt:
            note(f"interrupted; {session.folder} keeps what was found: `favor resume {session.folder}` goes on")
            raise typer.Exit(130) from None
        states = session.states()
    page_is_there = _write_page(session, page) if page_is_due else page.is_file()
    _tell(session, states, page if page_is_there else None, as_json)
    done_now = {state.job for state in states if state.status == "done"} & set(jobs)
    if jobs and not done_now:
        raise typer.Exit(1)


def _warn_of_lines(folder: Path) -> None:
    """Tell of records that cannot be read: whatever they were of is done again."""
    from favor.study.progress import unreadable_in

    for problem in unreadable_in(folder):
        note(f"warning: {problem}")


def _is_behind(page: Path, folder: Path) -> bool:
    """Whether the page lacks what is recorded, as where a run was killed before it could write the page."""
    from favor.records.store import FILE_NAME

    records = folder / FILE_NAME
    if not page.is_file():
        return True
    return records.is_file() and page.stat().st_mtime_ns < records.stat().st_mtime_ns


def _say_what_is_there(session: "Session", states: "Sequence[JobState]", to_do: int, page_is_due: bool) -> None:
    done = sum(state.status == "done" for state in states)
    failed = sum(state.status == "failed" for state in states)
    told = f"{done} of {len(states)} jobs are in {session.folder} already"
    if failed:
        told += f", {failed} failed (`favor resume {session.folder} --retry` tries them again)"
    if not to_do:
        done_now = "only the page is written" if page_is_due else "nothing was done"
        note(f"{told}; nothing is left to do, and {done_now}")
    elif any(state.job.phase != "count" for state in states if state.status != "left"):
        note(told)


def _write_page(session: "Session", page: Path) -> bool:
    """Write the study's page; that it could not be written takes nothing from what was measured."""
    from favor.report import write_report

    try:
        write_report([session.folder], page)
    except FavorError as error:
        note(f"warning: the page was not written: {error}")
        return False
    return True


def _tell(session: "Session", states: "Sequence[JobState]", page: Path | None, as_json: bool) -> None:
    """Say what the study found, for people or for programs."""
    from favor.cli import study_text

    found = _answer(session)
    if as_json:
        emit_json(
            {
                "study": session.study.name,
                "folder": str(session.folder),
                "page": None if page is None else str(page),
                "machine": session.study.machine.model_dump(),
                **study_text.states_data(states),
                "answer": found.to_dict(),
            }
        )
    else:
        study_text.print_answer(session.study, found, states, session.folder, page)


def _answer(session: "Session") -> "Answer":
    from favor.cli.decide import all_records
    from favor.evidence import published_fronts
    from favor.records.store import FILE_NAME
    from favor.study.summary import answer

    has_records = (session.folder / FILE_NAME).is_file()
    return answer(session.study, all_records([session.folder] if has_records else None), published_fronts())


def _now() -> float:
    from favor.machine.clock import WallClock

    return WallClock().now()


class _Watching:
    """Shows a run: a line for each job that ended, above a bar with the time left where there is a terminal."""

    def __init__(self, bar: "Progress", forecast: "Forecast", folder: Path, total: int) -> None:
        self._bar, self._forecast, self._folder, self._total = bar, forecast, folder, total
        self._task = bar.add_task("starting", total=total)
        self._number = 0

    def begins(self, job: "Job") -> None:
        self._bar.update(self._task, description=str(job))

    def at_step(self, job: "Job", step: str) -> None:
        self._bar.update(self._task, description=f"{job}: {step}")

    def ended(self, job: "Job", records: "Sequence[Record]", seconds: float) -> None:
        from favor.cli.study_text import job_line, span
        from favor.study.progress import records_of
        from favor.study.train_jobs import TrainJob, final_record

        self._number += 1
        self._bar.advance(self._task)
        shown = list(records)
        if isinstance(job, TrainJob):  # it writes its records itself
            final = final_record(job, job.stages[-1], records_of(self._folder))
            shown += [] if final is None else [final]
        line = f"[{self._number}/{self._total}] {job_line(job, shown, seconds)}"
        left = "" if self._bar.console.is_terminal else f"; about {span(self._forecast.seconds_left())} left"
        self._bar.console.print(line + left, markup=False, highlight=False, soft_wrap=True)


def _bar(forecast: "Forecast") -> "Progress":
    """A bar on stderr whose time left is the forecast's; drawn once a second, because others are being timed."""
    from rich.console import Console
    from rich.progress import BarColumn, MofNCompleteColumn, Progress, ProgressColumn, Task, TextColumn
    from rich.text import Text

    from favor.cli.study_text import span

    class TimeLeft(ProgressColumn):
        def render(self, task: Task) -> Text:
            return Text(f"about {span(forecast.seconds_left())} left")

    console = Console(stderr=True)
    return Progress(
        TextColumn("{task.description}", markup=False),
        BarColumn(),
        MofNCompleteColumn(),
        TimeLeft(),
        console=console,
        refresh_per_second=1,
        disable=not console.is_terminal,
    )
