"""`favor run`, `favor resume`, `favor status`: a study, from its file to its answer."""

from collections.abc import Sequence
from pathlib import Path
from typing import TYPE_CHECKING, Annotated

import typer

from favor.cli.console import emit_json, examples, note
from favor.cli.running import RepeatOption, Wait, repeat_of, run_session, warn_of_unreadable_lines
from favor.cli.zoo import AsJson, load_plugins
from favor.errors import FavorError, RequestError

if TYPE_CHECKING:
    from favor.study.progress import JobState, Repeat
    from favor.study.resolved import ResolvedStudy
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
            ("favor run full --study cpu-study", "all of Table 5, into a folder of your own"),
            ("favor run my-study.yaml --json", "your own study (docs/studies.md), for programs"),
        ),
    ]
)
RESUME_EXAMPLES = examples(
    ("favor resume runs/full", "go on where it was stopped; nothing that is recorded is done again"),
    ("favor resume runs/full --repeat failed", "try what failed again, too"),
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
    folder: Annotated[
        Path | None, typer.Option("--study", metavar="DIR", help="The study's folder; runs/NAME unless given.")
    ] = None,
    quick: Annotated[bool, typer.Option("--quick", help="The same as `favor run quick`.")] = False,
    full: Annotated[bool, typer.Option("--full", help="The same as `favor run full`.")] = False,
    repeat: RepeatOption = None,
    wait: Wait = False,
    as_json: AsJson = False,
) -> None:
    """Run a study: measure (and train) many models on this machine, and say which to favor.

    Everything is checked before anything runs. Stop it when you like: what was found is kept, `favor resume` goes on,
    and the same `favor run` does too. A study that is done is not done again.
    """
    since = _now()
    from favor.study.study_files import open_study

    asked_repeat = repeat_of(repeat)
    chosen, source = open_study(_chosen(study, quick, full))
    into = folder or DEFAULT_FOLDER / chosen.name
    note(f"{chosen.name}: {chosen.doc.strip().partition(chr(10))[0] or source.place}")
    load_plugins()
    from favor.study.resolve import resolve  # torch comes only now that the file is known to be right
    from favor.study.session import begin, working_in

    resolved = resolve(chosen, source)
    with working_in(into, wait):
        _work(begin(resolved, into), into, repeat=asked_repeat, wait=wait, since=since, as_json=as_json)


def resume_command(folder: Folder, repeat: RepeatOption = None, wait: Wait = False, as_json: AsJson = False) -> None:
    """Go on with all that was asked for in a folder. What failed is not tried again unless --repeat says so."""
    since = _now()
    from favor.study.folder import saved_requests

    asked_repeat = repeat_of(repeat)
    saved_requests(folder)  # before the lock, which would make the folder
    load_plugins()
    from favor.study.session import resume, working_in

    with working_in(folder, wait):
        _work(resume(folder), folder, repeat=asked_repeat, wait=wait, since=since, as_json=as_json)


def status_command(folder: Folder, as_json: AsJson = False) -> None:
    """Say what of a study is done, what failed and why, what is left, and how long that will take."""
    from favor.cli import study_text
    from favor.machine.clock import WallClock
    from favor.study.estimate import forecast_of
    from favor.study.folder import is_at_work, saved_requests
    from favor.study.progress import records_of, states_of_all

    studies = saved_requests(folder)
    warn_of_unreadable_lines(folder)
    states = states_of_all(studies, records_of(folder))
    left = [state.job for state in states if state.status == "left"]
    clock = WallClock()
    seconds = forecast_of(studies, left, states, clock, clock.now()).seconds_left() if left else 0.0
    at_work = is_at_work(folder)
    if as_json:
        emit_json(
            {
                "study": ", ".join(dict.fromkeys(study.name for study in studies)),
                "folder": str(folder),
                "at_work": at_work,
                "seconds_left": round(seconds),
                **study_text.states_data(states),
            }
        )
    else:
        study_text.print_status(studies, states, folder, at_work, seconds)


def _chosen(study: str | None, quick: bool, full: bool) -> str:
    from favor.study.study_files import DEFAULT_STUDY

    named = [name for name in (study, "quick" if quick else None, "full" if full else None) if name is not None]
    if len(set(named)) > 1:
        raise RequestError(f"one study at a time: {', '.join(named)} are {len(named)}; name one of them")
    return named[0] if named else DEFAULT_STUDY


def _work(
    session: "Session", folder: Path, *, repeat: "Repeat | None", wait: bool, since: float, as_json: bool
) -> None:
    """Do what is left of a study, write its page, and say what it found."""
    from favor.study.folder import PAGE_FILE

    ended = run_session(session, repeat=repeat, wait=wait, since=since)
    ended.finish(f"`favor resume {folder}` goes on")
    answered = [study for study in session.studies if study.command == "run"]
    states = session.states() if ended.jobs else ended.before
    page = folder / PAGE_FILE
    is_due = any(study.has_page for study in answered) and (bool(ended.jobs) or _is_behind(page, folder))
    is_there = _write_page(folder, page) if is_due else page.is_file()
    if answered:
        _tell(answered[0], folder, states, page if is_there else None, as_json)
    else:
        _tell_status(session, folder, states, as_json)
    done_now = {state.job for state in states if state.status == "done"} & set(ended.jobs)
    if ended.jobs and not done_now:
        raise typer.Exit(1)


def _is_behind(page: Path, folder: Path) -> bool:
    """Whether the page lacks what is recorded, as where a run was killed before it could write the page."""
    from favor.records.store import FILE_NAME

    records = folder / FILE_NAME
    if not page.is_file():
        return True
    return records.is_file() and page.stat().st_mtime_ns < records.stat().st_mtime_ns


def _write_page(folder: Path, page: Path) -> bool:
    """Write the study's page; that it could not be written takes nothing from what was measured."""
    from favor.report import write_report

    try:
        write_report([folder], page)
    except FavorError as error:
        note(f"warning: the page was not written: {error}")
        return False
    return True


def _tell(study: "ResolvedStudy", folder: Path, states: "Sequence[JobState]", page: Path | None, as_json: bool) -> None:
    """Say what the study found, for people or for programs."""
    from favor.cli import study_text

    found = _answer(study, folder)
    if as_json:
        emit_json(
            {
                "study": study.name,
                "folder": str(folder),
                "page": None if page is None else str(page),
                "machine": study.machine.model_dump(),
                **study_text.states_data(states),
                "answer": found.to_dict(),
            }
        )
    else:
        study_text.print_answer(study, found, states, folder, page)


def _tell_status(session: "Session", folder: Path, states: "Sequence[JobState]", as_json: bool) -> None:
    """Say how the jobs stand that `favor measure` and `favor train` asked for."""
    from favor.cli import study_text

    if as_json:
        emit_json({"folder": str(folder), **study_text.states_data(states)})
    else:
        study_text.print_status(session.studies, states, folder, at_work=False, seconds=0.0)


def _answer(study: "ResolvedStudy", folder: Path) -> "Answer":
    from favor.cli.decide import all_records
    from favor.evidence import published_fronts
    from favor.records.store import has_records
    from favor.study.summary import answer

    records_exist = has_records(folder)
    return answer(study, all_records([folder] if records_exist else None), published_fronts())


def _now() -> float:
    from favor.machine.clock import WallClock

    return WallClock().now()
