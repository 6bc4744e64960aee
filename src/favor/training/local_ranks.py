"""Several processes of one training on this machine: the worker is the first, and starts the others."""

import os
import socket
import subprocess
import sys
from collections.abc import Iterator
from contextlib import ExitStack, contextmanager

from favor.training.request import TrainingRequest


@contextmanager
def started_ranks(request: TrainingRequest) -> Iterator[None]:
    """Start the other processes of a training run, and give all of them the environment variables of torchrun.

    When this process ends, their standard input ends, and they end too.
    """
    if request.processes == 1 or "RANK" in os.environ:
        yield
        return
    group = {
        "WORLD_SIZE": str(request.processes),
        "LOCAL_WORLD_SIZE": str(request.processes),
        "MASTER_ADDR": "127.0.0.1",
        "MASTER_PORT": str(free_port()),
    }
    os.environ.update(group | variables_of_rank(0))
    with ExitStack() as others:
        unheard = others.enter_context(open(os.devnull, "wb"))  # noqa: PTH123 - the first process reports for all
        for rank in range(1, request.processes):
            process = subprocess.Popen(
                [sys.executable, "-P", "-m", "favor.training.worker", str(unheard.fileno())],
                stdin=subprocess.PIPE,
                stdout=subprocess.DEVNULL,
                pass_fds=[unheard.fileno()],
                env=os.environ | variables_of_rank(rank),
                text=True,
            )
            others.callback(process.kill)
            assert process.stdin is not None  # noqa: S101 - it is a pipe
            process.stdin.write(request.to_json() + "\n")
            process.stdin.flush()
        yield


def variables_of_rank(rank: int) -> dict[str, str]:
    """The variables of torchrun that differ between the processes.

    >>> variables_of_rank(1)
    {'RANK': '1', 'LOCAL_RANK': '1'}
    """
    return {"RANK": str(rank), "LOCAL_RANK": str(rank)}


def free_port() -> int:
    """A port of this machine at which the processes can meet."""
    with socket.socket() as listening:
        listening.bind(("127.0.0.1", 0))
        return int(listening.getsockname()[1])
