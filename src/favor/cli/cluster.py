"""Studies on a cluster: submitting, watching, `favor cancel`, and `--dry-run`."""

import time
from collections.abc import Sequence
from pathlib import Path
from typing import TYPE_CHECKING, Annotated

import typer

from favor.cli.console import stdout_console
from favor.errors import RequestError, WorkError, if_here
from favor.terminal import note, progress_bar
from favor.text import plural

if TYPE_CHECKING:
    from favor.study.allocation import Allocation
    from favor.study.cluster_queue import ClusterQueue
    from favor.study.plan import Job
    from favor.study.progress import JobState, Repeat
    from favor.study.resolved import ResolvedStudy
    from favor.study.schema import ExecutorOptions
    from favor.study.session import Session

LOOK_SECONDS = 5.0
"""The time between two queries of the scheduler."""

ExecutorOption = Annotated[
    str | None, typer.Option("--executor", metavar="local|slurm|ray", help="Where to run jobs (default: this machine).")
]
AddressOption = Annotated[
    str | None, typer.Option("--address", metavar="ADDRESS", help="Address of the Ray cluster, such as auto.")
]
SettingsOption = Annotated[
    list[str] | None,
    typer.Option("--set", metavar="KEY=VALUE", help="A setting of the executor, such as partition=gpu; repeatable."),
]
DryRun = Annotated[
    bool,
    typer.Option("--dry-run", help="Print the jobs, their resources and what this machine lacks; run nothing."),
]


def settings_of(settings: list[str] | None, address: str | None) -> list[str]:
    """The settings of the executor that options give."""
    return [*(settings or []), *([f"address={address}"] if address else [])]


def submit(session: "Session", options: "ExecutorOptions", repeat: "Repeat | None") -> "list[Job]":
    """Submit the remaining jobs that are not queued yet to Slurm; returns all jobs to wait for."""
    from favor.study.cluster_queue import ClusterQueue
    from favor.study.slurm_executor import SlurmExecutor, require_submitit

    assert session.folder is not None  # noqa: S101 - a study on a cluster has a folder
    require_submitit()
    queue = ClusterQueue.now(session.folder)
    submitted: list[Job] = []
    for study in _on_clusters(session):
        jobs = _jobs_of(session, study, repeat, queue)
        executor = SlurmExecutor(session.folder.resolve(), study, options)
        for submission in executor.submit(_allocations(jobs, options), repeats=repeat is not None):
            jobs_in = plural(sum(map(len, submission.allocations)), "job")
            note(f"submitted {jobs_in} in {plural(len(submission.allocations), 'allocation')}: {submission.name}")
        submitted += jobs
    if not submitted:
        note("nothing is left to submit")
    left = [state.job for state in session.states() if state.status == "left"]
    return list(dict.fromkeys([*left, *submitted]))


def run_on_ray(session: "Session", options: "ExecutorOptions", repeat: "Repeat | None") -> None:
    """Run the remaining jobs that are not in Slurm's queue on Ray, and wait for them."""
    from favor.study.cluster_queue import ClusterQueue
    from favor.study.ray_executor import RayExecutor, require_ray

    assert session.folder is not None  # noqa: S101
    require_ray()
    queue = ClusterQueue.now(session.folder)
    if of_slurm := queue.alive(state.job for state in session.states()):
        queued = plural(len(of_slurm), "job")
        note(f"not run on Ray: {queued} in Slurm's queue; `favor cancel {session.folder}` removes them")
    with progress_bar() as bar:
        for study in _on_clusters(session):
            jobs = _jobs_of(session, study, repeat, queue)
            if not jobs:
                continue
            watcher = Watcher(session, jobs, bar)
            executor = RayExecutor(session.folder.resolve(), study, options)
            executor.run(_allocations(jobs, options), repeat is not None, watcher.look, watcher.note)


def wait_for(session: "Session", jobs: "Sequence[Job]") -> None:
    """Show the progress of jobs until none is left in the queue; Ctrl-C leaves them there."""
    assert session.folder is not None  # noqa: S101
    with progress_bar() as bar:
        watcher = Watcher(session, jobs, bar)
        try:
            while _are_alive(session.folder, watcher):
                time.sleep(LOOK_SECONDS)
                watcher.look()
        except KeyboardInterrupt:
            note(f"the jobs stay in the queue: `favor status {session.folder}` shows them, `favor cancel` ends them")
            raise


def _are_alive(folder: Path, watcher: "Watcher") -> bool:
    """Whether a job is still queued or running; if the scheduler does not answer, assume so and ask again later."""
    from favor.study.cluster_queue import ClusterQueue

    try:
        return bool(ClusterQueue.now(folder).alive(watcher.left()))
    except WorkError as error:
        watcher.note(f"warning: {error}")
        return True


class Watcher:
    """Shows the jobs of a cluster as they end."""

    def __init__(self, session: "Session", jobs: "Sequence[Job]", bar) -> None:  # type: ignore[no-untyped-def]
        self._session, self._jobs, self._bar = session, set(jobs), bar
        self._ended: set[Job] = set()
        self._before = {state.job: _time_of(state) for state in session.states()}  # a repeated job has a record
        self._task = bar.add_task("waiting", total=len(jobs))

    def left(self) -> "list[Job]":
        return [job for job in self._jobs if job not in self._ended]

    def look(self) -> None:
        """Read the records again."""
        for state in self._session.states():
            is_new = state.status != "left" and _time_of(state) != self._before[state.job]
            if state.job in self._jobs - self._ended and is_new:
                self._ended.add(state.job)
                self._bar.advance(self._task)
                self.note(f"[{len(self._ended)}/{len(self._jobs)}] {state.job}: {state.reason or 'done'}")
        self._bar.update(self._task, description=f"{len(self._ended)} of {len(self._jobs)} jobs")

    def note(self, text: str) -> None:
        self._bar.console.print(text, markup=False, highlight=False, soft_wrap=True)


def _time_of(state: "JobState") -> str | None:
    return None if state.record is None else state.record.time


def print_plan(
    study: "ResolvedStudy",
    jobs: "Sequence[Job]",
    options: "ExecutorOptions",
    folder: Path,
    missing_here: list[str],
) -> None:
    """What a run would do: the jobs, their resources, the submission script, and what this machine lacks for it."""
    say = stdout_console().print
    allocations = _allocations(jobs, options)
    for number, allocation in enumerate(allocations if options.is_cluster else ()):
        for job in allocation.jobs:
            say(f"{number:4}  {job}", markup=False, highlight=False)
    for job in () if options.is_cluster else jobs:
        say(str(job), markup=False, highlight=False)
    where = str(study.machine)
    if options.is_cluster:
        where = f"{plural(len(allocations), 'allocation')} of {options.kind}"
    elif study.machine.is_cluster:  # the study's device is not here
        where = f"a machine with {study.machine.device}"
    say(f"{plural(len(jobs), 'job')} on {where}, in {folder}", markup=False, highlight=False)
    if options.kind == "slurm":
        from favor.study.slurm_executor import ARRAY_SIZE, SlurmExecutor, array_size, import_submitit

        executor = SlurmExecutor(folder.resolve(), study, options)
        size = if_here(missing_here, array_size) or ARRAY_SIZE
        writes_scripts = if_here(missing_here, import_submitit) is not None
        for batch in executor.batches(allocations, size) if writes_scripts else ():
            say(f"\n{executor.script(batch)}", markup=False, highlight=False, soft_wrap=True)
    elif options.kind == "ray":
        from favor.study.ray_executor import RayExecutor, require_ray

        if_here(missing_here, require_ray)
        ray = RayExecutor(folder.resolve(), study, options)
        for asked in dict.fromkeys(ray.resources(allocation, float("inf")) for allocation in allocations):
            say(f"ray task: {asked}", markup=False, highlight=False)
    for line in dict.fromkeys(missing_here):
        say(f"missing here: {line}", markup=False, highlight=False, soft_wrap=True)


def cancel_command(folder: Annotated[Path, typer.Argument(metavar="DIR", help="Study folder.")]) -> None:
    """Cancel a study's queued and running Slurm jobs.

    Training runs save a checkpoint first; `favor resume` continues them.
    """
    from favor.study.folder import saved_requests
    from favor.study.slurm_executor import cancel
    from favor.study.submission import submissions_of

    saved_requests(folder)
    submissions = [submission for submission in submissions_of(folder) if submission.executor == "slurm"]
    if not submissions:
        raise RequestError(f"{folder} has no jobs on Slurm; stop a run on this machine or on Ray with Ctrl-C")
    count = cancel(submissions)
    again = f"; `favor resume {folder}` submits their jobs again" if count else ": nothing is queued"
    note(f"canceled {plural(count, 'allocation')}{again}")


def _on_clusters(session: "Session") -> "list[ResolvedStudy]":
    """The requests that may run on any node; those of a single machine are left to it."""
    for study in session.studies:
        if not study.machine.is_cluster:
            note(f"skipped: the jobs of {study.name} run only on {study.machine}")
    return [study for study in session.studies if study.machine.is_cluster]


def _jobs_of(
    session: "Session", study: "ResolvedStudy", repeat: "Repeat | None", queue: "ClusterQueue"
) -> "tuple[Job, ...]":
    """The jobs of a study to submit: those that are left, or to repeat, and not in the queue."""
    from favor.study.progress import jobs_to_do, records_of, states_of_all

    assert session.folder is not None  # noqa: S101
    jobs = jobs_to_do(states_of_all([study], records_of(session.folder)), repeat)
    alive = set(queue.alive(jobs))
    return tuple(job for job in jobs if job not in alive)


def _allocations(jobs: "Sequence[Job]", options: "ExecutorOptions") -> "tuple[Allocation, ...]":
    from favor.study.allocation import allocations_of

    return allocations_of(jobs, options.allocations)
