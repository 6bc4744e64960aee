"""The memory of a session: how much a process of its own grows by opening the file and running a batch.

ONNX Runtime and OpenVINO do not report what their allocators hold. The process has loaded the runtime before, and does
not load PyTorch.

    python -m favor.runtime.memory FILE RUNTIME PRECISION THREADS BATCH CHANNELS SIDE
"""

import contextlib
import subprocess
import sys
from pathlib import Path
from typing import NamedTuple

import psutil

from favor.errors import WorkError, one_line
from favor.runtime.session import Choice

METHOD = "growth of a process's resident memory by opening the file and two calls"
RUNS = 3
LONGEST = 600.0
"""Seconds for one run."""


class Growth(NamedTuple):
    """Bytes: the median of several runs, the least and the most."""

    middle: int
    least: int
    most: int


def growth(file: Path, choice: Choice, batch_size: int, img_size: int, runs: int = RUNS) -> Growth:
    """How much the memory of a process grows, each time a new one. GPU memory is not included."""
    if choice.device != "cpu":
        raise WorkError(
            f"the memory of {file.name} on {choice.device} cannot be measured: {choice.runtime} does not report it"
        )
    threads = str(choice.cpu_threads)
    words = [str(file), choice.runtime, choice.precision, threads, str(batch_size), "3", str(img_size)]
    sizes = sorted(_one_run(words) for _ in range(runs))
    return Growth(sizes[len(sizes) // 2], sizes[0], sizes[-1])


def _one_run(words: list[str]) -> int:
    command = [sys.executable, "-P", "-m", "favor.runtime.memory", *words]
    ended = subprocess.run(command, capture_output=True, text=True, timeout=LONGEST, check=False)
    if ended.returncode != 0:
        last = [line for line in ended.stderr.splitlines() if line.strip()][-1:] or [f"exit code {ended.returncode}"]
        if "MemoryError" in last[0] or ended.returncode == -9:
            raise MemoryError(f"{words[0]} with batches of {words[4]} images")
        raise WorkError(f"the memory of {Path(words[0]).name} cannot be measured: {one_line(RuntimeError(last[0]))}")
    return int(ended.stdout)


def main() -> None:
    file, runtime, precision, threads, batch_size, channels, side = sys.argv[1:]
    import importlib

    import numpy as np

    from favor.runtime.opening import open_file
    from favor.runtime.telemetry import without_telemetry

    without_telemetry()
    importlib.import_module(runtime)
    _forget_peak()
    before = psutil.Process().memory_info().rss
    shape = (int(batch_size), int(channels), int(side), int(side))
    images = np.random.default_rng(0).standard_normal(shape, dtype=np.float32)
    session = open_file(Path(file), Choice(runtime, precision, "cpu", int(threads)))
    for _ in range(2):
        session.outputs(images)
    print(max(0, _peak() - before))  # noqa: T201 - the answer to the process that asked


def _forget_peak() -> None:
    """Reset the recorded peak to the memory that is resident now, if permitted: imports briefly take more."""
    if sys.platform == "linux":
        with contextlib.suppress(OSError):
            Path("/proc/self/clear_refs").write_text("5")


def _peak() -> int:
    """The peak resident memory; `favor.machine.memory` has the same, but imports torch."""
    if sys.platform == "linux":
        return int(Path("/proc/self/status").read_text().partition("VmHWM:")[2].split()[0]) * 1024
    return psutil.Process().memory_info().rss


if __name__ == "__main__":
    main()
