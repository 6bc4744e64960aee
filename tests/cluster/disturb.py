"""Every way in which a cluster stops a job."""

from pathlib import Path
from typing import Literal, get_args

import psutil

from cluster.slurm_cluster import SlurmCluster, wait_until
from favor.study.submission import Submission

Disturbance = Literal["SIGUSR2", "SIGTERM", "requeue", "SIGKILL", "node failure"]
DISTURBANCES: tuple[Disturbance, ...] = get_args(Disturbance)


def disturb(slurm: SlurmCluster, study: Path, submission: Submission, index: int, how: Disturbance) -> bool:
    """Stop a running allocation; False if it has ended already."""
    listed = slurm.call(
        "squeue", "--noheader", "--array", f"--name={submission.name}", "--states=RUNNING", "--format=%i %N"
    )
    running = {
        int(number.partition("_")[2] or 0): (number, node) for number, node in map(str.split, listed.splitlines())
    }
    if index not in running:
        return False
    job, node = running[index]
    if how == "requeue":
        return slurm.succeeds("scontrol", "requeue", job)
    if how == "SIGKILL":
        return _kill_task(submission.folder_in(study), index if len(submission.allocations) > 1 else None)
    if how == "node failure":
        slurm.call("scontrol", "update", f"NodeName={node}", "State=DOWN", "Reason=drill")
        wait_until(lambda: not slurm.succeeds("scontrol", "show", "job", job) or _state(slurm, job) != "RUNNING", 60.0)
        return slurm.succeeds("scontrol", "update", f"NodeName={node}", "State=RESUME")
    return slurm.succeeds("scancel", f"--signal={how.removeprefix('SIG')}", job)


def _state(slurm: SlurmCluster, job: str) -> str:
    return slurm.call("squeue", "--noheader", "--states=all", f"--jobs={job}", "--format=%T")


def _kill_task(folder: Path, index: int | None) -> bool:
    """Kill the process that Slurm started for an allocation; its worker notices and ends."""
    for process in psutil.process_iter(["cmdline", "environ"]):
        is_task = (process.info["cmdline"] or [])[-2:] == ["submitit.core._submit", str(folder)]
        task = (process.info["environ"] or {}).get("SLURM_ARRAY_TASK_ID")
        if is_task and (index is None or task == str(index)) and "python" in process.name():
            process.kill()
            return True
    return False
