"""The processes that `srun` started, in the environment variables that torchrun would set. Imports no torch."""

import re
import socket
import subprocess
from collections.abc import Mapping

FIRST_PORT, PORTS = 10_000, 20_000
STRIDE = 1009
"""Between the ports of two steps of a job."""


def variables_of_slurm(environment: Mapping[str, str]) -> dict[str, str]:
    """The variables of torchrun for a task of a Slurm step; empty for a single task, or if torchrun has set them.

    The batch script is no task of a step, although it knows how many tasks the job has.
    """
    tasks = environment.get("SLURM_STEP_NUM_TASKS", "1")
    if tasks == "1" or "RANK" in environment:
        return {}
    return {
        "RANK": environment["SLURM_PROCID"],
        "WORLD_SIZE": tasks,
        "LOCAL_RANK": environment["SLURM_LOCALID"],
        "LOCAL_WORLD_SIZE": re.split(r"\D", environment["SLURM_STEP_TASKS_PER_NODE"])[0],
        "MASTER_ADDR": environment.get("MASTER_ADDR") or _address(first_node(environment["SLURM_STEP_NODELIST"])),
        "MASTER_PORT": environment.get("MASTER_PORT") or str(_port(environment)),
    }


def _port(environment: Mapping[str, str]) -> int:
    """A port that no other step uses: steps of one job, and jobs of similar numbers, may share a node."""
    job, step = int(environment["SLURM_JOB_ID"]), int(environment["SLURM_STEP_ID"])
    return FIRST_PORT + (job + STRIDE * step) % PORTS


def first_node(nodes: str) -> str:
    """The first of Slurm's list of nodes.

    >>> first_node("gpu[07-09,12],cpu1"), first_node("rack2n[3,5]"), first_node("n1")
    ('gpu07', 'rack2n3', 'n1')
    """
    first = re.match(r"(?:[^,\[]|\[[^\]]*\])+", nodes)
    return re.sub(r"\[([^\],-]+)[^\]]*\]", r"\1", first[0] if first else nodes)


def _address(node: str) -> str:
    """The name of a node if it can be resolved, else the address that Slurm knows it by."""
    try:
        socket.getaddrinfo(node, None)
    except OSError:
        asked = subprocess.run(["scontrol", "show", "node", node], capture_output=True, text=True, check=False)  # noqa: S607
        known = re.search(r"NodeAddr=(\S+)", asked.stdout)
        return known[1] if known else node
    return node
