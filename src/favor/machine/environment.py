"""The environment of a measurement: device, threads, versions, and the load by other processes."""

import os
import platform
import re
import subprocess
import sys
import time
from collections.abc import Iterable
from dataclasses import dataclass
from functools import cache
from hashlib import sha256
from importlib import metadata
from pathlib import Path

import psutil
import torch

from favor.machine.device import Device, processor_name
from favor.records.schema import Scalar
from favor.version import __version__

BUSY = 0.1
"""The share of the machine's processors that other processes may use before a measurement counts as disturbed."""

LOOK_SECONDS = 0.5

CLUSTER_VARIABLE, NODE_VARIABLE = "FAVOR_CLUSTER", "FAVOR_NODE"
"""Set for the jobs of a cluster. Nodes with the same device are one machine, so the cluster is the host of a record."""


TOPOLOGY = Path("/sys/devices/system/cpu")
QUOTA = Path("/sys/fs/cgroup/cpu.max")


def usable_threads(topology: Path = TOPOLOGY, quota: Path = QUOTA) -> int:
    """The physical cores that this process may use: its CPU affinity, within the quota of its control group."""
    bound = os.sched_getaffinity(0) if sys.platform == "linux" else set(range(psutil.cpu_count(logical=False) or 1))
    siblings = [topology / f"cpu{cpu}" / "topology" / "thread_siblings_list" for cpu in bound]
    known = all(file.is_file() for file in siblings)
    cores = len({file.read_text() for file in siblings}) if known else len(bound)
    return max(1, min(cores, _quota(quota) or cores))


def _quota(file: Path) -> int | None:
    """The CPU quota of a control group in whole processors; None without a limit."""
    if not file.is_file():
        return None
    granted, period = file.read_text().split()
    return None if granted == "max" else max(1, int(granted) // int(period))


@dataclass(frozen=True)
class Glance:
    """The processors' busy seconds up to a moment, in total and of this process."""

    at: float
    machine: float
    own: float


def glance() -> Glance:
    """Read the processors' clocks."""
    times = psutil.cpu_times()
    own = psutil.Process().cpu_times()
    idle = times.idle + getattr(times, "iowait", 0.0)
    # On Linux a guest's time is in user time already.
    total = sum(times) - getattr(times, "guest", 0.0) - getattr(times, "guest_nice", 0.0)
    return Glance(time.monotonic(), total - idle, own.user + own.system + own.children_user + own.children_system)


def others_between(before: Glance, after: Glance) -> float:
    """How many processors other processes kept busy between two readings, on average.

    >>> others_between(Glance(0.0, 10.0, 3.0), Glance(2.0, 15.0, 7.0))
    0.5
    """
    busy = (after.machine - before.machine) - (after.own - before.own)
    return max(0.0, busy / (after.at - before.at))


def is_busy(others: float, processors: int) -> bool:
    """Whether other processes use so much of the machine that timings are disturbed.

    >>> is_busy(0.1, 2), is_busy(0.3, 2)
    (False, True)
    """
    return others > BUSY * processors


def look_at_load(seconds: float = LOOK_SECONDS) -> float:
    """How many processors other processes keep busy now, over some time in which this one is idle."""
    before = glance()
    time.sleep(seconds)
    return others_between(before, glance())


def describe(device: Device, threads: int, plugins: Iterable[str | Path] = ()) -> dict[str, Scalar]:
    """The environment on a record: device, software, threads, and the content hashes of plugins."""
    described: dict[str, Scalar] = {
        "host": os.environ.get(CLUSTER_VARIABLE) or platform.node(),
        "device_name": device.name,
        "device_memory": device.total_memory(),
        "processor": processor_name(),
        "processors": psutil.cpu_count() or 1,
        "threads": threads,
        "system": f"{platform.system()} {platform.release()}",
        "python": platform.python_version(),
        "torch": str(torch.__version__),
        "timm": metadata.version("timm"),
        "favor": __version__,
        "instructions": torch.backends.cpu.get_cpu_capability(),
        "float32_matmul": torch.get_float32_matmul_precision(),
        "attention": attention_kernels(),
    }
    if node := os.environ.get(NODE_VARIABLE):
        described["node"] = node
    if commit := favor_commit():
        described["favor_commit"] = commit
    if hashes := [f"{Path(file).name} {sha256(Path(file).read_bytes()).hexdigest()[:16]}" for file in plugins]:
        described["plugins"] = ", ".join(hashes)
    if device.kind == "cuda":
        described |= {"cuda": str(torch.version.cuda), "cudnn": torch.backends.cudnn.version() or "none"}
        described["driver"] = _nvidia_driver()
    return described


@cache
def favor_commit(root: Path = Path(__file__).parents[3]) -> str | None:
    """The commit of the git checkout that favor runs from, with `-dirty` if files differ; None for an installed favor.

    This starts a git process, so it is called only when something is measured or trained.
    """
    if not (root / ".git").exists():
        return None
    # Without optional locks: a user's own git command at the same moment would find the index locked.
    command = [
        "git",
        "--no-optional-locks",
        "-C",
        str(root),
        "describe",
        "--always",
        "--dirty",
        "--abbrev=12",
        "--exclude=*",
    ]
    try:
        answer = subprocess.run(command, check=False, capture_output=True, text=True, timeout=10)
    except (OSError, subprocess.TimeoutExpired):
        return "unknown"
    return answer.stdout.strip() or "unknown"


def attention_kernels() -> str:
    """The kernels that PyTorch may choose from for `scaled_dot_product_attention`."""
    backends = torch.backends.cuda
    enabled = {
        "flash": backends.flash_sdp_enabled(),
        "efficient": backends.mem_efficient_sdp_enabled(),
        "cudnn": backends.cudnn_sdp_enabled(),
        "math": backends.math_sdp_enabled(),
    }
    return " ".join(name for name, is_enabled in enabled.items() if is_enabled)


def _nvidia_driver() -> str:
    file = Path("/proc/driver/nvidia/version")
    if not file.is_file():
        return "unknown"
    version = re.search(r"\b\d+\.\d+(\.\d+)?\b", file.read_text())
    return version[0] if version else "unknown"
