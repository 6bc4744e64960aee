"""`favor run`, `favor resume`, `favor status`, `favor cancel`: a study, from its file to its answer."""

from collections.abc import Sequence
from pathlib import Path
from typing import TYPE_CHECKING, Annotated

import typer

from favor.cli.cluster import (
    AddressOption,
    DryRun,
    ExecutorOption,
    SettingsOption,
    cancel_command,
    print_plan,
    run_on_ray,
    settings_of,
    submit,
    wait_for,
)
from favor.cli.console import emit_json, examples
from favor.cli.running import LogOption, RepeatOption, Wait, finish, print_refusals, repeat_of, trackers_of
from favor.cli.zoo import AsJson, load_plugins
from favor.errors import FavorError, RequestError
from favor.terminal import note

if TYPE_CHECKING:
    from favor.report.study_answer import StudyAnswer
    from favor.study.plan import Job
    from favor.study.progress import JobState, Repeat
    from favor.study.resolved import ResolvedStudy
    from favor.study.schema import ExecutorOptions
    from favor.study.session import Session
    from favor.study.summary import Answer

DEFAULT_FOLDER = Path("runs")

RUN_EXAMPLES = "\n\n".join(
    [
        "**Built-in studies**, with their duration on two cores",
        "`quick`  inference of 21 models, one or two of every class of the taxonomy: 6 minutes (the default)",
        "`runtimes`  ten models in four runtimes, in float32 and int8: 30 to 45 minutes",
        "`full`  inference and training step of all 47 models of the benchmark's Table 5: about 2 hours",
        "`misnomer-imagenet`  inference of the models of The Efficiency Misnomer, at ImageNet size: 10 minutes",
        "`vix`  the Vision X-formers at CIFAR-10's size: 25 minutes",
        "`laptop`  14 families trained on CIFAR-10 for 5 minutes each, and measured: 90 minutes",
        "`misnomer`  The Efficiency Misnomer with 12 small models, trained on CIFAR-10 and measured: 4 hours",
        "`vix-cifar10`  the X-formers trained on CIFAR-10 with three seeds, and measured: days on a GPU",
        "`vix-tiny-imagenet`  the same on Tiny ImageNet",
        "`paper`  all of Table 5 pretrained, fine-tuned and measured, on 8 GPUs: thousands of GPU hours",
        examples(
            ("favor run", "which model to favor on this machine, in 6 minutes"),
            ("favor run full --study cpu-study", "all of Table 5, in your own folder"),
            ("favor run my-study.yaml --json", "your own study (docs/studies.md), for programs"),
            ("favor run full --executor slurm --set partition=cpu", "on a cluster (docs/clusters.md)"),
            ("favor run full --executor slurm --dry-run", "what would be submitted"),
        ),
    ]
)
RESUME_EXAMPLES = examples(
    ("favor resume runs/full", "continue where it stopped; finished jobs are not repeated"),
    ("favor resume runs/full --repeat failed", "also retry failed jobs"),
)
CANCEL_EXAMPLES = examples(("favor cancel runs/full", "remove its jobs from Slurm's queue"))
STATUS_EXAMPLES = examples(
    ("favor status runs/full", "what is done, what failed and why, what is left"),
    ("favor status runs/full --json", "for programs"),
)

Folder = Annotated[Path, typer.Argument(metavar="DIR", help="Study folder.")]


def add_commands(app: typer.Typer) -> None:
    app.command("run", epilog=RUN_EXAMPLES)(run_command)
    app.command("resume", epilog=RESUME_EXAMPLES)(resume_command)
    app.command("status", epilog=STATUS_EXAMPLES)(status_command)
    app.command("cancel", epilog=CANCEL_EXAMPLES)(cancel_command)


def run_command(
    study: Annotated[
        str | None, typer.Argument(metavar="STUDY", help="A built-in study, or your own .yaml file.")
    ] = None,
    folder: Annotated[
        Path | None, typer.Option("--study", metavar="DIR", help="Study folder (default: runs/NAME).")
    ] = None,
    quick: Annotated[bool, typer.Option("--quick", help="Same as `favor run quick`.")] = False,
    full: Annotated[bool, typer.Option("--full", help="Same as `favor run full`.")] = False,
    executor: ExecutorOption = None,
    address: AddressOption = None,
    settings: SettingsOption = None,
    dry_run: DryRun = False,
    repeat: RepeatOption = None,
    log: LogOption = None,
    wait: Wait = False,
    as_json: AsJson = False,
) -> None:
    """Run a study: measure (and train) many models on this machine or a cluster, and recommend one.

    All names, sizes and files are checked before the first job. You can stop a study at any time: finished jobs are
    kept, and `favor resume` or the same `favor run` continues. Finished jobs are not repeated.
    """
    since = _now()
    from favor.study.executor_file import changed
    from favor.study.study_files import open_study

    jobs_to_repeat = repeat_of(repeat)
    chosen, source = open_study(_chosen(study, quick, full))
    options = changed(chosen.executor, executor, settings_of(settings, address))
    missing_here: list[str] | None = [] if dry_run else None
    trackers = tuple(dict.fromkeys((*chosen.log, *trackers_of(log, missing_here))))
    chosen = chosen.model_copy(update={"executor": options, "log": trackers})
    into = folder or DEFAULT_FOLDER / chosen.name
    note(f"{chosen.name}: {chosen.doc.strip().partition(chr(10))[0] or source.place}")
    load_plugins()
    from favor.study.resolve import resolve  # imports torch, so only after the file is checked
    from favor.study.session import begin, working_in

    resolved = resolve(chosen, source, missing_here=missing_here)
    if missing_here is not None:
        _print_plan(resolved, options, into, jobs_to_repeat, missing_here)
        return
    asked_at = _now()
    with working_in(into, wait):
        since += _now() - asked_at  # waiting for another process does not use up the total budget
        session = begin(resolved, into)
        if not options.is_cluster:
            _work(session, into, repeat=jobs_to_repeat, wait=wait, since=since, as_json=as_json)
            return
        queued = _send(session, into, options, jobs_to_repeat)
    _await(session, into, queued, wait, as_json)


def resume_command(
    folder: Folder,
    settings: SettingsOption = None,
    repeat: RepeatOption = None,
    log: LogOption = None,
    wait: Wait = False,
    as_json: AsJson = False,
) -> None:
    """Continue a study where it stopped, and repeat measurements that were disturbed or contradict each other.

    Failed jobs are retried only with --repeat failed. On a cluster, favor submits only jobs that are neither done nor
    queued.
    """
    since = _now()
    from favor.study.executor_file import changed, saved_executor
    from favor.study.folder import saved_requests

    jobs_to_repeat, trackers = repeat_of(repeat), trackers_of(log)
    options = changed(saved_executor(folder), None, settings or [])
    saved_requests(folder)  # before the lock, which would create the folder
    load_plugins()
    from favor.study.session import resume, working_in

    asked_at = _now()
    with working_in(folder, wait):
        since += _now() - asked_at  # as in `favor run`
        session = resume(folder, trackers)
        if not options.is_cluster:
            _work(session, folder, repeat=jobs_to_repeat or "doubtful", wait=wait, since=since, as_json=as_json)
            return
        queued = _send(session, folder, options, jobs_to_repeat)
    _await(session, folder, queued, wait, as_json)


def status_command(folder: Folder, as_json: AsJson = False) -> None:
    """Show which jobs of a study are done, failed or left, and how long the rest will take."""
    from favor.cli import study_text
    from favor.machine.clock import WallClock
    from favor.study.cluster_queue import ClusterQueue
    from favor.study.display import warn_of_unreadable_lines
    from favor.study.estimate import forecast_of
    from favor.study.folder import is_at_work, saved_requests
    from favor.study.progress import doubtful_measurements, records_of, states_of_all

    studies = saved_requests(folder)
    try:
        queue = ClusterQueue.now(folder)  # before the records: what ends meanwhile is seen as done
    except FavorError as error:
        note(f"warning: the state of the jobs is unknown: {error}")
        queue = ClusterQueue(folder, (), {})
    warn_of_unreadable_lines(folder)
    records = records_of(folder)
    states = states_of_all(studies, records)
    jobless = () if studies else doubtful_measurements(records)
    left = [state.job for state in states if state.status == "left"]
    clock = WallClock()
    seconds = forecast_of(studies, left, states, clock, clock.now()).seconds_left() if left else 0.0
    seconds /= max(1, queue.running())
    at_work = is_at_work(folder) or bool(queue.running())
    places = {job: place for job in left if (place := queue.find(job)) is not None}
    if as_json:
        emit_json(
            {
                "study": ", ".join(dict.fromkeys(study.name for study in studies)),
                "folder": str(folder),
                "at_work": at_work,
                "seconds_left": round(seconds),
                **study_text.states_data(states, jobless),
                **study_text.places_data(places),
            }
        )
    else:
        study_text.print_status(studies, states, folder, at_work, seconds, places, jobless)


def _chosen(study: str | None, quick: bool, full: bool) -> str:
    from favor.study.study_files import DEFAULT_STUDY

    named = [name for name in (study, "quick" if quick else None, "full" if full else None) if name is not None]
    if len(set(named)) > 1:
        raise RequestError(f"name one study, not {len(named)} ({', '.join(named)})")
    return named[0] if named else DEFAULT_STUDY


def _print_plan(
    study: "ResolvedStudy", options: "ExecutorOptions", folder: Path, repeat: "Repeat | None", missing_here: list[str]
) -> None:
    from favor.study.progress import jobs_to_do, records_of, states_of_all

    jobs = jobs_to_do(states_of_all([study], records_of(folder)), repeat)
    print_plan(study, jobs, options, folder, missing_here)


def _send(session: "Session", folder: Path, options: "ExecutorOptions", repeat: "Repeat | None") -> "Sequence[Job]":
    """Give the jobs that are left to the cluster, and return those to wait for; on Ray, wait for them."""
    from favor.study.display import warn_of_unreadable_lines
    from favor.study.executor_file import save_executor

    warn_of_unreadable_lines(folder)
    save_executor(folder, options)
    if options.kind == "ray":
        run_on_ray(session, options, repeat)
        return ()
    return submit(session, options, repeat)


def _await(session: "Session", folder: Path, queued: "Sequence[Job]", wait: bool, as_json: bool) -> None:
    """Wait for the jobs of a cluster if asked to, and print the answer once nothing is left to wait for."""
    if wait and queued:
        wait_for(session, queued)
    states = session.states()
    if queued and not wait:
        note(f"`favor status {folder}` shows the progress; `favor resume {folder}` prints the answer when all is done")
        if as_json:
            _print_status(session, folder, states, as_json)
        return
    _conclude(session, folder, states, True, as_json)
    if any(state.status == "left" for state in states):
        raise typer.Exit(1)


def _work(
    session: "Session", folder: Path, *, repeat: "Repeat | None", wait: bool, since: float, as_json: bool
) -> None:
    """Do the jobs that are left, write the page, and print the answer."""
    from favor.study.running import run_session

    ended = run_session(session, repeat=repeat, wait=wait, since=since)
    finish(ended, f"`favor resume {folder}` continues")
    print_refusals(ended)
    states = session.states() if ended.jobs else ended.before
    _conclude(session, folder, states, bool(ended.jobs), as_json, ended.out_of_time)
    done_now = {state.job for state in states if state.status == "done"} & set(ended.jobs)
    if ended.jobs and not done_now:
        raise typer.Exit(1)


def _conclude(
    session: "Session",
    folder: Path,
    states: "Sequence[JobState]",
    changed: bool,
    as_json: bool,
    out_of_time: "Sequence[Job]" = (),
) -> None:
    """Write the page if the records changed, print the answer, and send the results to trackers."""
    from favor.study.folder import PAGE_FILE
    from favor.study.sent_results import send_results

    answered = [study for study in session.studies if study.command == "run"]
    page = folder / PAGE_FILE
    is_due = any(study.has_page for study in answered) and (changed or _is_behind(page, folder))
    is_there = _write_page(folder, page, answered[0]) if is_due else page.is_file()
    if answered:
        _print_answer(answered[0], folder, states, page if is_there else None, as_json, out_of_time)
    else:
        _print_status(session, folder, states, as_json)
    send_results(session)


def _is_behind(page: Path, folder: Path) -> bool:
    """Whether the page is older than the records, as after a run that was killed before it wrote the page."""
    from favor.records.store import has_records, record_files

    if not page.is_file():
        return True
    files = record_files(folder) if has_records(folder) else []
    return any(page.stat().st_mtime_ns < file.stat().st_mtime_ns for file in files)


def study_answer(study: "ResolvedStudy", folder: Path) -> "StudyAnswer":
    """The answer of a study in the terminal's words, for the page; for a cluster, the answer of its first device."""
    from favor.cli import study_text

    first = on_each_device(study, folder)[0]
    return study_text.answer_told(first, answer_of(first, folder))


def _write_page(folder: Path, page: Path, study: "ResolvedStudy") -> bool:
    """Write the study's page; a failure is only a warning, because the records are safe."""
    from favor.report import write_report

    try:
        write_report([folder], page, study_answer(study, folder))
    except FavorError as error:
        note(f"warning: the page was not written: {error}")
        return False
    return True


def _print_answer(
    study: "ResolvedStudy",
    folder: Path,
    states: "Sequence[JobState]",
    page: Path | None,
    as_json: bool,
    out_of_time: "Sequence[Job]",
) -> None:
    """Print the answer of a study, for people or for programs; of a cluster, one for each kind of device."""
    from favor.cli import study_text

    studies = on_each_device(study, folder)
    answers = [answer_of(one, folder) for one in studies]
    if as_json:
        emit_json(
            {
                "study": study.name,
                "folder": str(folder),
                "page": None if page is None else str(page),
                "machine": study.machine.model_dump(),
                **study_text.states_data(states),
                "answer": answers[0].to_dict(),
                **(
                    {
                        "answers": {
                            one.machine.label: answer.to_dict() for one, answer in zip(studies, answers, strict=True)
                        }
                    }
                    if len(studies) > 1
                    else {}
                ),
            }
        )
    else:
        for one, answer in zip(studies, answers, strict=True):
            study_text.print_answer(one, answer, states, folder, page, out_of_time)


def on_each_device(study: "ResolvedStudy", folder: Path) -> "list[ResolvedStudy]":
    """The study for each kind of device that the nodes of a cluster have: their numbers are not comparable."""
    from favor.study.progress import records_of

    if study.machine.label:
        return [study]
    measured = (record for record in records_of(folder) if record.source == "measured" and record.task != "count")
    labels = dict.fromkeys(str(record.conditions["device"]) for record in measured if "device" in record.conditions)
    by_label = [study.machine.model_copy(update={"label": label}) for label in labels]
    return [study.model_copy(update={"machine": machine}) for machine in by_label] or [study]


def _print_status(session: "Session", folder: Path, states: "Sequence[JobState]", as_json: bool) -> None:
    """Print the states of the jobs that `favor measure` and `favor train` added."""
    from favor.cli import study_text

    if as_json:
        emit_json({"folder": str(folder), **study_text.states_data(states)})
    else:
        study_text.print_status(session.studies, states, folder, at_work=False, seconds=0.0)


def answer_of(study: "ResolvedStudy", folder: Path) -> "Answer":
    """The answer of a study from its records and those that ship with favor."""
    from favor.cli.evidence import all_records
    from favor.evidence import published_fronts
    from favor.records.store import has_records
    from favor.study.summary import answer

    records_exist = has_records(folder)
    return answer(study, all_records([folder] if records_exist else None), folder, published_fronts())


def _now() -> float:
    from favor.machine.clock import WallClock

    return WallClock().now()
