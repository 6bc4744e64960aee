"""The executor for Slurm clusters: submits allocations as job arrays through submitit, and asks the queue about them.

A job that is preempted or reaches its time limit gets SIGUSR2 or SIGTERM. A training run then saves a checkpoint, and
the job puts itself back into the queue.
"""

import math
import os
import re
import shutil
import signal
import subprocess
import sys
import time
from collections.abc import Iterable, Iterator, Sequence
from contextlib import suppress
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Any, Literal

import psutil

from favor.errors import MissingHereError, RequestError, WorkError, one_line
from favor.machine.process import STOP_SECONDS, TAIL_BYTES, InterruptedJob
from favor.regular_file import UnreadableFileError, open_regular
from favor.study.allocation import Allocation
from favor.study.resolved import ResolvedStudy
from favor.study.schema import SIGNAL_SECONDS, ExecutorOptions
from favor.study.submission import FOLDER_NAME, Progress, ProgressFile, Submission, new_submission, withdraw
from favor.text import cut_to_line

if TYPE_CHECKING:
    import submitit

    from favor.study.allocation_worker import Work

MOST_TIMEOUTS = 10_000
"""How often a job may reach its time limit; each time, it continues where it stopped."""

ARRAY_SIZE = 1001
"""Slurm's default of MaxArraySize."""

_ENDED = {
    *("COMPLETED", "CANCELLED", "FAILED", "TIMEOUT", "PREEMPTED"),
    *("BOOT_FAIL", "DEADLINE", "NODE_FAIL", "OUT_OF_MEMORY", "REVOKED"),
}


@dataclass(frozen=True)
class Queued:
    """An allocation in the queue: its state, its nodes, and why it waits."""

    state: str
    node: str
    reason: str

    @property
    def status(self) -> Literal["queued", "running", "ended"]:
        if self.state in _ENDED:
            return "ended"
        return "queued" if self.state in ("PENDING", "REQUEUED", "REQUEUE_HOLD", "SPECIAL_EXIT") else "running"


class SlurmWork:
    """The work of an allocation, as submitit calls it on a node."""

    def __init__(self, work: "Work") -> None:
        self._work = work

    def __call__(self) -> None:
        from favor.study.allocation_worker import work_on

        # submitit puts the job back into the queue on SIGUSR2 only; many sites send SIGTERM.
        signal.signal(signal.SIGTERM, signal.getsignal(signal.SIGUSR2))
        environment = os.environ
        try:
            work_on(
                self._work,
                cluster=environment.get("SLURM_CLUSTER_NAME", "slurm"),
                node=environment["SLURMD_NODENAME"],
                rank=int(environment["SLURM_PROCID"]),
            )
        except InterruptedJob:  # a training run that got SIGTERM has saved its checkpoint
            signal.raise_signal(signal.SIGUSR2)

    def checkpoint(self) -> "submitit.helpers.DelayedSubmission":
        """Let the worker save its state; called on a signal, before submitit puts the job back into the queue.

        A canceled job stays canceled; requeueing by Slurm itself is left to Slurm.
        """
        from submitit.helpers import DelayedSubmission

        _stop_workers()
        work = self._work
        ProgressFile.of(work.study, work.submission, work.index).write(Progress(node=os.environ["SLURMD_NODENAME"]))
        if _state_of_this_job() != "RUNNING":
            sys.exit(1)
        return DelayedSubmission(self)


def _stop_workers() -> None:
    """Ask the child processes to save and end; their parent, which waits here, cannot be woken by that."""
    workers = psutil.Process().children()
    for worker in workers:
        with suppress(psutil.NoSuchProcess):  # it has just ended
            worker.terminate()
    deadline = time.monotonic() + STOP_SECONDS
    while any(worker.is_running() for worker in workers) and time.monotonic() < deadline:
        time.sleep(0.1)


def _state_of_this_job() -> str:
    return ask_slurm("squeue", "--noheader", f"--jobs={os.environ['SLURM_JOB_ID']}", "--format=%T")


@dataclass(frozen=True)
class SlurmExecutor:
    """Submits allocations of a study to Slurm; `folder` is the study's, which all nodes share."""

    folder: Path
    study: ResolvedStudy
    options: ExecutorOptions

    def script(self, allocations: Sequence[Allocation]) -> str:
        """The submission script of allocations of one kind; it can be written on any machine with submitit."""
        submitit = import_submitit()

        class WithoutSlurm(submitit.SlurmExecutor):  # type: ignore[name-defined]
            """submitit's executor, which otherwise wants `srun` even to write a script."""

            @classmethod
            def affinity(cls) -> int:
                return 1

        slurm = self._for(WithoutSlurm, self.folder / FOLDER_NAME / "NUMBER", "favor-NAME", allocations)
        if len(allocations) > 1:
            slurm.parameters["map_count"] = len(allocations)
        return slurm._make_submission_file_text(slurm._submitit_command_str, "")

    def submit(self, allocations: Sequence[Allocation], repeats: bool) -> Iterator[Submission]:
        """Submit allocations, as many at once as one job array may have; what Slurm refuses is not recorded."""
        for batch in self.batches(allocations, array_size()):
            submission = new_submission(self.folder, "slurm", batch, repeats)
            self._submit(submission, batch)
            yield submission

    def batches(self, allocations: Sequence[Allocation], size: int) -> Iterator[tuple[Allocation, ...]]:
        """Allocations that ask for the same, at most `size` of them, as many as one job array may have."""
        for trains in (False, True):
            alike = tuple(one for one in allocations if one.trains is trains)
            yield from (alike[first : first + size] for first in range(0, len(alike), size))

    def parameters(self, allocations: Sequence[Allocation]) -> dict[str, Any]:
        """What allocations of one kind request, as options of `sbatch`."""
        options = self.options
        trains = allocations[0].trains
        asked = {
            "partition": options.partition,
            "account": options.account,
            "constraint": options.constraint,
            "nodes": options.nodes if trains else 1,
            "ntasks_per_node": max(1, options.gpus_per_node) if trains else 1,
            "gpus_per_node": (options.gpus_per_node if trains else min(1, options.gpus_per_node)) or None,
            "cpus_per_task": options.cpus_per_task,
            "time": math.ceil(options.time_limit / 60),
            "exclusive": True if options.exclusive and any(one.measures for one in allocations) else None,
            "array_parallelism": options.at_once or len(allocations),
            "signal_delay_s": SIGNAL_SECONDS,
            # Since Slurm 22.05, srun does not inherit this from sbatch.
            "srun_args": [f"--cpus-per-task={options.cpus_per_task}"],
            "additional_parameters": _additional(options),
        }
        return {name: value for name, value in asked.items() if value is not None}

    def _submit(self, submission: Submission, allocations: Sequence[Allocation]) -> None:
        from submitit.core.utils import FailedJobError, FailedSubmissionError

        kind = require_submitit().SlurmExecutor
        slurm = self._for(kind, submission.folder_in(self.folder), submission.name, allocations)
        try:
            with slurm.batch():
                for index, allocation in enumerate(allocations):
                    slurm.submit(SlurmWork(self._work(submission, index, allocation)))
        except (FailedJobError, FailedSubmissionError) as error:
            self._take_back(submission)
            raise RequestError(f"Slurm refused the jobs: {_refusal(error)}") from error
        except OSError as error:
            self._take_back(submission)
            raise WorkError(f"{self.folder}: cannot submit: {error.strerror or error}; submit again later") from error

    def _take_back(self, submission: Submission) -> None:
        """Cancel jobs that Slurm accepted nevertheless: sbatch may time out while the controller continues."""
        ask_slurm("scancel", f"--name={submission.name}")
        withdraw(self.folder, submission)

    def _work(self, submission: Submission, index: int, allocation: Allocation) -> "Work":
        from favor.study.allocation_worker import Work

        study, options = self.study, self.options
        tasks_are_processes = options.gpus_per_node or options.nodes > 1
        processes = 1 if tasks_are_processes else None
        return Work(self.folder, submission, index, allocation, study.machine, study.plugins, processes)

    def _for(
        self, kind: "type[submitit.SlurmExecutor]", folder: Path, name: str, allocations: Sequence[Allocation]
    ) -> "submitit.SlurmExecutor":
        """An executor of submitit for allocations of one kind."""
        slurm = kind(folder=folder, max_num_timeout=MOST_TIMEOUTS)
        slurm.update_parameters(job_name=name, wckey=None, **self.parameters(allocations))
        return slurm


def queue_of(submissions: Iterable[Submission]) -> dict[str, dict[int, Queued]]:
    """The allocations of submissions that Slurm still knows, by the submission's name and the allocation's index."""
    names = [submission.name for submission in submissions if submission.executor == "slurm"]
    queued: dict[str, dict[int, Queued]] = {name: {} for name in names}
    if not names:
        return queued
    answer = ask_slurm(
        "squeue", "--noheader", "--array", "--states=all", f"--name={','.join(names)}", "--format=%j|%i|%T|%N|%r"
    )
    for line in answer.splitlines():
        name, number, state, node, reason = line.split("|")
        index = number.partition("_")[2]
        queued[name][int(index or 0)] = Queued(state, node, reason)
    return queued


def cancel(submissions: Sequence[Submission]) -> int:
    """Cancel all allocations that wait or run; returns how many."""
    alive = {
        name: sum(queued.status != "ended" for queued in of_name.values())
        for name, of_name in queue_of(submissions).items()
    }
    for name, count in alive.items():
        if count:
            ask_slurm("scancel", f"--name={name}")
    return sum(alive.values())


def last_words(study: Path, submission: Submission, index: int) -> str:
    """The last line that an allocation, or Slurm on its behalf, wrote to its log; empty if there is none."""
    pattern = "*_0_log.err" if len(submission.allocations) == 1 else f"*_{index}_0_log.err"
    for file in sorted(submission.folder_in(study).glob(pattern)):
        lines = [line.strip() for line in _end_of(file).splitlines() if line.strip()]
        words = [line for line in lines if not line.startswith(("submitit ", "srun: "))] or lines
        if words:
            return cut_to_line(words[-1])
    return ""


def _end_of(log: Path) -> str:
    """The last lines of a log; empty if it is no regular file."""
    try:
        with open_regular(log) as content:
            content.seek(max(0, os.fstat(content.fileno()).st_size - TAIL_BYTES))
            return content.read(TAIL_BYTES).decode(errors="replace")
    except UnreadableFileError:
        return ""


def import_submitit() -> Any:
    """The package submitit; an error says what to install."""
    try:
        import submitit
    except ModuleNotFoundError as error:
        raise MissingHereError(
            "the executor slurm needs submitit; install it with `pip install favor[slurm]`"
        ) from error
    return submitit


def require_submitit() -> Any:
    """The package submitit on a machine with Slurm; an error says what is missing."""
    submitit = import_submitit()
    for program in ("sbatch", "srun", "squeue"):
        if shutil.which(program) is None:
            raise _missing(program)
    return submitit


def _missing(program: str) -> MissingHereError:
    return MissingHereError(f"there is no `{program}` on this machine; run this on a login node of a Slurm cluster")


def array_size() -> int:
    """How many tasks a job array may have at this site."""
    known = re.search(r"^MaxArraySize\s*=\s*(\d+)", ask_slurm("scontrol", "show", "config"), re.MULTILINE)
    return max(1, int(known[1])) if known else ARRAY_SIZE  # 0: the site has no job arrays


def ask_slurm(*command: str) -> str:
    """The answer of one of Slurm's programs; WorkError if it does not answer."""
    try:
        done = subprocess.run(command, capture_output=True, text=True, check=False, timeout=120)
    except FileNotFoundError as error:
        raise _missing(command[0]) from error
    except subprocess.TimeoutExpired as error:
        raise WorkError(f"Slurm does not answer `{command[0]}`; try again later") from error
    if done.returncode != 0:
        raise WorkError(f"Slurm: {cut_to_line(done.stderr) or f'{command[0]} failed'}; try again later")
    return done.stdout.strip()


def _additional(options: ExecutorOptions) -> dict[str, object]:
    """Options of sbatch for which submitit has no parameter, or another unit."""
    memory = {} if options.memory is None else {"mem": f"{math.ceil(options.memory / 2**20)}M"}
    parts = (line.removeprefix("--").partition("=") for line in options.extra)
    return memory | {name: value if equals else True for name, equals, value in parts}


def _refusal(error: BaseException) -> str:
    """The lines of sbatch in the message of submitit."""
    said = re.findall(r"sbatch: error: (.*)", str(error))
    return cut_to_line("; ".join(line.removeprefix("Batch job submission failed: ") for line in said)) or one_line(
        error
    )
