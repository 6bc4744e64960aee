"""A real Slurm cluster on one machine: its own munge, one controller, several nodes, all in one folder.

`python tests/cluster/slurm_cluster.py DIR` starts one until Ctrl-C and prints the SLURM_CONF to use it with.
"""

import os
import secrets
import shutil
import signal
import socket
import subprocess
import sys
import tempfile
import time
from collections.abc import Iterator, Sequence
from contextlib import contextmanager, suppress
from dataclasses import dataclass
from datetime import datetime, timedelta
from pathlib import Path

import psutil

PROGRAMS = ("munged", "slurmctld", "slurmd", "sbatch")
PLACES = f"{os.environ.get('PATH', '')}:/usr/sbin:/usr/local/sbin"
NODES = ("n1", "n2", "n3", "n4")
MAX_ARRAY_SIZE = 4
START_SECONDS = 60.0
STOP_SECONDS = 5.0
DELAY_SECONDS = 8

CONFIGURATION = """\
ClusterName=favor-test
SlurmctldHost={host}(127.0.0.1)
SlurmctldPort={controller_port}
AuthInfo=socket={folder}/munge.socket
SlurmUser=root
SlurmdUser=root
MpiDefault=none
ProctrackType=proctrack/linuxproc
TaskPlugin=task/none
ReturnToService=1
SlurmctldPidFile={folder}/slurmctld.pid
SlurmdPidFile={folder}/slurmd.%n.pid
SlurmdSpoolDir={folder}/spool.%n
StateSaveLocation={folder}/state
SlurmctldLogFile={folder}/slurmctld.log
SlurmdLogFile={folder}/slurmd.%n.log
SlurmdParameters=config_overrides
SchedulerType=sched/backfill
SchedulerParameters=sched_interval=2,sched_min_interval=100000,bf_interval=2
SelectType=select/cons_tres
SelectTypeParameters=CR_Core
JobRequeue=1
KillWait=5
MinJobAge=60
MaxArraySize={max_array_size}
{nodes}
PartitionName=main Nodes=ALL Default=YES MaxTime=INFINITE State=UP
PartitionName=full Nodes=ALL State=DRAIN
"""


@dataclass(frozen=True)
class SlurmCluster:
    """A running cluster; `environment` is what its users need."""

    folder: Path
    environment: dict[str, str]

    def call(self, *command: str) -> str:
        """The output of one of Slurm's commands."""
        done = self._run(command)
        assert done.returncode == 0, f"{command}: {done.stderr}"
        return done.stdout.strip()

    def succeeds(self, *command: str) -> bool:
        """Whether a command does what it says: a job may end, and a node come back, just before it."""
        try:
            return self._run(command).returncode == 0
        except subprocess.TimeoutExpired:  # scancel tries for minutes to signal a job that is between two states
            return False

    def _run(self, command: Sequence[str]) -> "subprocess.CompletedProcess[str]":
        return subprocess.run(command, env=self.environment, capture_output=True, text=True, check=False, timeout=60)

    def start_delayed(self) -> None:
        """Start jobs soon that Slurm keeps from starting again for two minutes.

        Not at once: a node drains itself if a job comes back before its processes have ended.
        """
        soon = datetime.now() + timedelta(seconds=DELAY_SECONDS)
        for line in self.call("squeue", "--noheader", "--array", "--format=%i %S %r").splitlines():
            number, start, reason = line.split(" ", 2)
            if start != "N/A" and reason == "BeginTime" and datetime.fromisoformat(start) > soon + timedelta(seconds=1):
                self.succeeds("scontrol", "update", f"JobId={number}", f"StartTime=now+{DELAY_SECONDS}")


def missing_programs() -> str:
    """The programs that a cluster needs and this machine lacks; empty if it has all."""
    return ", ".join(program for program in PROGRAMS if shutil.which(program, path=PLACES) is None)


@contextmanager
def slurm_cluster(max_array_size: int = MAX_ARRAY_SIZE) -> Iterator[SlurmCluster]:
    """Start a cluster; stop it and remove its folder afterwards."""
    with tempfile.TemporaryDirectory(prefix="favor-slurm-") as folder:
        cluster = _configured(Path(folder), max_array_size)
        processes: list[subprocess.Popen[bytes]] = []
        try:
            _start(cluster, processes)
            yield cluster
        finally:
            _stop(cluster, processes)


def wait_until(condition, seconds: float, every: float = 0.2) -> None:
    """Wait until a condition holds."""
    deadline = time.monotonic() + seconds
    while not condition():
        assert time.monotonic() < deadline, f"not within {seconds:g} s"
        time.sleep(every)


def _configured(folder: Path, max_array_size: int) -> SlurmCluster:
    (folder / "munge.key").write_bytes(secrets.token_bytes(1024))
    (folder / "munge.key").chmod(0o600)
    (folder / "state").mkdir()
    host = socket.gethostname().partition(".")[0]
    controller_port, *ports = _free_ports(1 + len(NODES))
    lines = [
        f"NodeName={node} NodeHostname={host} NodeAddr=127.0.0.1 Port={port} CPUs=2 RealMemory=4000 Feature=tiny"
        for node, port in zip(NODES, ports, strict=True)
    ]
    configuration = folder / "slurm.conf"
    configuration.write_text(
        CONFIGURATION.format(
            host=host,
            folder=folder,
            controller_port=controller_port,
            max_array_size=max_array_size,
            nodes="\n".join(lines),
        )
    )
    return SlurmCluster(folder, os.environ | {"SLURM_CONF": str(configuration), "PATH": PLACES})


def _free_ports(count: int) -> list[int]:
    sockets = [socket.socket() for _ in range(count)]
    for one in sockets:
        one.bind(("127.0.0.1", 0))
    ports = [one.getsockname()[1] for one in sockets]
    for one in sockets:
        one.close()
    return ports


def _start(cluster: SlurmCluster, processes: list["subprocess.Popen[bytes]"]) -> None:
    folder = cluster.folder

    def start(*command: str) -> None:
        # /run of a container may lack the folder that slurmd insists on.
        with (folder / f"{command[0]}.out").open("ab") as output:
            processes.append(
                subprocess.Popen(
                    command, env=cluster.environment, stdin=subprocess.DEVNULL, stdout=output, stderr=output
                )
            )

    munge = [f"--{name}-file={folder}/munge.{name}" for name in ("key", "pid", "log", "seed")]
    start("munged", "--foreground", "--force", f"--socket={folder}/munge.socket", *munge)
    wait_until((folder / "munge.socket").exists, START_SECONDS)
    start("slurmctld", "-D", "-c")
    for node in NODES:
        start("slurmd", "-D", "-c", "-N", node)

    def are_idle() -> bool:
        ended = [process for process in processes if process.poll() is not None]
        assert not ended, f"{ended[0].args} ended: {_log(folder)}"
        asked = subprocess.run(
            ["sinfo", "--noheader", "--partition=main", "--format=%T %D"],  # noqa: S607
            env=cluster.environment, capture_output=True, text=True, check=False, timeout=60,
        )  # fmt: skip
        return asked.stdout.split() == ["idle", str(len(NODES))]

    wait_until(are_idle, START_SECONDS)


def _log(folder: Path) -> str:
    return "\n".join(file.read_text(errors="replace")[-1000:] for file in sorted(folder.glob("*.out")))


def _stop(cluster: SlurmCluster, processes: list["subprocess.Popen[bytes]"]) -> None:
    if len(processes) > 1:
        subprocess.run(
            ["scancel", "--user=root"],  # noqa: S607
            env=cluster.environment,
            check=False,
            capture_output=True,
            timeout=60,
        )
    for process in reversed(processes):
        process.terminate()
    deadline = time.monotonic() + STOP_SECONDS
    for process in processes:
        try:
            process.wait(max(0.0, deadline - time.monotonic()))
        except subprocess.TimeoutExpired:
            process.kill()
            process.wait()
    _end_strays(cluster.environment["SLURM_CONF"])


def _end_strays(configuration: str) -> None:
    """Kill what jobs have left behind: slurmstepd outlives its slurmd."""
    for process in psutil.process_iter():
        with suppress(psutil.Error):
            if process.pid != os.getpid() and process.environ().get("SLURM_CONF") == configuration:
                process.kill()


if __name__ == "__main__":
    with slurm_cluster() as running:
        print(f"export SLURM_CONF={running.environment['SLURM_CONF']}", flush=True)  # noqa: T201
        signal.signal(signal.SIGTERM, lambda *_: sys.exit(0))
        signal.pause()
