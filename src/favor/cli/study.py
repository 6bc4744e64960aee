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
        "**Built-in studies**, with their duration on two cores",
        "`quick`  inference of 21 models, one or two of every class of the taxonomy: 6 minutes (the default)",
        "`full`  inference and training step of all 47 models of the benchmark's Table 5: 45 minutes",
        "`misnomer`  depth against width, and patch sizes: 10 minutes",
        "`vix`  the Vision X-formers at CIFAR-10's size: 25 minutes",
        "`laptop`  14 families trained on CIFAR-10 for 5 minutes each, and measured: 90 minutes",
        "`paper`  all of Table 5 pretrained, fine-tuned and measured, on a node with a GPU: thousands of GPU hours",
        examples(
            ("favor run", "which model to favor on this machine, in 6 minutes"),
            ("favor run full --study cpu-study", "all of Table 5, in your own folder"),
            ("favor run my-study.yaml --json", "your own study (docs/studies.md), for programs"),
        ),
    ]
)
RESUME_EXAMPLES = examples(
    ("favor resume runs/full", "continue where it stopped; finished jobs are not repeated"),
    ("favor resume runs/full --repeat failed", "also retry failed jobs"),
)
STATUS_EXAMPLES = examples(
    ("favor status runs/full", "what is done, what failed and why, what is left"),
    ("favor status runs/full --json", "for programs"),
)

Folder = Annotated[Path, typer.Argument(metavar="DIR", help="Study folder.")]


def add_commands(app: typer.Typer) -> None:
    app.command("run", epilog=RUN_EXAMPLES)(run_command)
    app.command("resume", epilog=RESUME_EXAMPLES)(resume_command)
    app.command("status", epilog=STATUS_EXAMPLES)(status_command)


def run_command(
    study: Annotated[
        str | None, typer.Argument(metavar="STUDY", help="A built-in study, or your own .yaml file.")
    ] = None,
    folder: Annotated[
        Path | None, typer.Option("--study", metavar="DIR", help="Study folder (default: runs/NAME).")
    ] = None,
    quick: Annotated[bool, typer.Option("--quick", help="Same as `favor run quick`.")] = False,
    full: Annotated[bool, typer.Option("--full", help="Same as `favor run full`.")] = False,
    repeat: RepeatOption = None,
    wait: Wait = False,
    as_json: AsJson = False,
) -> None:
    """Run a study: measure (and train) many models on this machine, and recommend one.

    All names, sizes and files are checked before the first job. You can stop a study at any time: finished jobs are
    kept, and `favor resume` or the same `favor run` continues. Finished jobs are not repeated.
    """
    since = _now()
    from favor.study.study_files import open_study

    jobs_to_repeat = repeat_of(repeat)
    chosen, source = open_study(_chosen(study, quick, full))
    into = folder or DEFAULT_FOLDER / chosen.name
    note(f"{chosen.name}: {chosen.doc.strip().partition(chr(10))[0] or source.place}")
    load_plugins()
    from favor.study.resolve import resolve  # imports torch, so only after the file is checked
    from favor.study.session import begin, working_in

    resolved = resolve(chosen, source)
    with working_in(into, wait):
        _work(begin(resolved, into), into, repeat=jobs_to_repeat, wait=wait, since=since, as_json=as_json)


def resume_command(folder: Folder, repeat: RepeatOption = None, wait: Wait = False, as_json: AsJson = False) -> None:
    """Continue a study where it stopped. Failed jobs are retried only with --repeat failed."""
    since = _now()
    from favor.study.folder import saved_requests

    jobs_to_repeat = repeat_of(repeat)
    saved_requests(folder)  # before the lock, which would create the folder
    load_plugins()
    from favor.study.session import resume, working_in

    with working_in(folder, wait):
        _work(resume(folder), folder, repeat=jobs_to_repeat, wait=wait, since=since, as_json=as_json)


def status_command(folder: Folder, as_json: AsJson = False) -> None:
    """Show which jobs of a study are done, failed or left, and how long the rest will take."""
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
        raise RequestError(f"name one study, not {len(named)} ({', '.join(named)})")
    return named[0] if named else DEFAULT_STUDY


def _work(
    session: "Session", folder: Path, *, repeat: "Repeat | None", wait: bool, since: float, as_json: bool
) -> None:
    """Do the jobs that are left, write the page, and print the answer."""
    from favor.study.folder import PAGE_FILE

    ended = run_session(session, repeat=repeat, wait=wait, since=since)
    ended.finish(f"`favor resume {folder}` continues")
    answered = [study for study in session.studies if study.command == "run"]
    states = session.states() if ended.jobs else ended.before
    page = folder / PAGE_FILE
    is_due = any(study.has_page for study in answered) and (bool(ended.jobs) or _is_behind(page, folder))
    is_there = _write_page(folder, page) if is_due else page.is_file()
    if answered:
        _print_answer(answered[0], folder, states, page if is_there else None, as_json)
    else:
        _print_status(session, folder, states, as_json)
    done_now = {state.job for state in states if state.status == "done"} & set(ended.jobs)
    if ended.jobs and not done_now:
        raise typer.Exit(1)


def _is_behind(page: Path, folder: Path) -> bool:
    """Whether the page is older than the records, as after a run that was killed before it wrote the page."""
    from favor.records.store import FILE_NAME

    records = folder / FILE_NAME
    if not page.is_file():
        return True
    return records.is_file() and page.stat().st_mtime_ns < records.stat().st_mtime_ns


def _write_page(folder: Path, page: Path) -> bool:
    """Write the study's page; a failure is only a warning, because the records are safe."""
    from favor.report import write_report

    try:
        write_report([folder], page)
    except FavorError as error:
        note(f"warning: the page was not written: {error}")
        return False
    return True


def _print_answer(
    study: "ResolvedStudy", folder: Path, states: "Sequence[JobState]", page: Path | None, as_json: bool
) -> None:
    """Print the answer of a study, for people or for programs."""
    from favor.cli import study_text

    answer = _answer(study, folder)
    if as_json:
        emit_json(
            {
                "study": study.name,
                "folder": str(folder),
                "page": None if page is None else str(page),
                "machine": study.machine.model_dump(),
                **study_text.states_data(states),
                "answer": answer.to_dict(),
            }
        )
    else:
        study_text.print_answer(study, answer, states, folder, page)


def _print_status(session: "Session", folder: Path, states: "Sequence[JobState]", as_json: bool) -> None:
    """Print the states of the jobs that `favor measure` and `favor train` added."""
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
