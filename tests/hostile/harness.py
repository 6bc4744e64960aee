"""Reads mutated files in a process of its own and counts what becomes of them.

A format says how to write files that are right, how to spoil them, and how favor reads them. A case is one spoiled
file in a folder of its own; its seed is the run's seed and its number, so that any case can be made again.
"""

import contextlib
import ctypes
import faulthandler
import logging
import multiprocessing
import os
import random
import resource
import shutil
import signal
import sys
import tempfile
import time
import traceback
import warnings
from collections import Counter
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass, field
from multiprocessing.connection import Connection
from pathlib import Path

import cloudpickle
import psutil

from favor.errors import FavorError

OUTCOMES = ("accepted", "refused", "not one line", "internal error", "crash", "timeout", "memory", "outside touched")
GOOD = ("accepted", "refused")
LONGEST_LINE = 1500
SECONDS = 10.0
MEGABYTES = 700
# Forking this process can hang if an earlier test has started threads, as OpenVINO does; a fresh server has none.
_CLEAN = multiprocessing.get_context("forkserver")
_CLEAN.set_forkserver_preload(["timm", "onnx", "scipy.io", "favor.study.cluster_queue", "favor.training.predict"])


@dataclass(frozen=True)
class Format:
    """A kind of file that favor reads.

    `write` puts a right one into a folder and gives the files to spoil, `spoil` gives spoiled bytes, and `read` reads
    the folder as favor does.
    """

    name: str
    write: Callable[[Path, random.Random], Sequence[Path]]
    spoil: Callable[[bytes, random.Random], bytes]
    read: Callable[[Path], object]


@dataclass(frozen=True)
class Finding:
    """A case that ended badly: its number makes it again."""

    case: int
    outcome: str
    detail: str


@dataclass(frozen=True)
class Drill:
    """What became of the cases of one format."""

    format: str
    counts: dict[str, int]
    seconds: float
    findings: tuple[Finding, ...] = field(repr=False)

    @property
    def bad(self) -> int:
        return sum(count for outcome, count in self.counts.items() if outcome not in GOOD)


def drill(
    known: Format, cases: int, seed: int = 0, *, first: int = 0, seconds: float = SECONDS, megabytes: int = MEGABYTES
) -> Drill:
    """Read `cases` spoiled files; the worker is started anew after one that kills it or takes too long."""
    began, counts, findings = time.monotonic(), Counter[str](), []
    number, end = first, first + cases
    while number < end:
        with _worker(known, range(number, end), seed, megabytes) as (process, pipe):
            while number < end:
                outcome, detail = _answer(process, pipe, seconds)
                counts[outcome] += 1
                if outcome not in GOOD:
                    findings.append(Finding(number, outcome, detail))
                number += 1
                if outcome in ("crash", "timeout"):
                    break
    return Drill(known.name, dict(counts), time.monotonic() - began, tuple(findings))


def read_alone(
    write: Callable[[Path], object],
    read: Callable[[Path], object],
    seconds: float = SECONDS,
    megabytes: int = MEGABYTES,
) -> tuple[str, str]:
    """The outcome of reading files that may hang or take all memory, and what was told of it."""

    def write_case(into: Path, _: random.Random) -> Sequence[Path]:
        write(into)
        return ()

    known = Format("alone", write_case, lambda content, _: content, read)
    with _worker(known, range(1), 0, megabytes) as (process, pipe):
        return _answer(process, pipe, seconds)


def make_case(known: Format, folder: Path, seed: int, number: int) -> None:
    """Write the files of a case: right ones, of which one or two are spoiled."""
    rng = random.Random(f"{known.name} {seed} {number}")  # noqa: S311 - to be repeated, not to be secret
    files = list(known.write(folder, rng))
    for file in rng.sample(files, min(len(files), rng.choice((1, 1, 1, 2)))):
        file.write_bytes(known.spoil(file.read_bytes(), rng))


@contextlib.contextmanager
def _worker(
    known: Format, cases: range, seed: int, megabytes: int
) -> Iterator[tuple[multiprocessing.Process, Connection]]:
    here, there = multiprocessing.Pipe(duplex=False)
    with tempfile.TemporaryDirectory(prefix="hostile-") as folder:
        # Readers may be lambdas, which only cloudpickle can send.
        process = _CLEAN.Process(
            target=_work, args=(cloudpickle.dumps(known), cases, seed, megabytes, Path(folder), there), daemon=True
        )
        process.start()
        there.close()
        here.recv()  # its imports are not part of the first case
        try:
            yield process, here
        finally:
            process.kill()
            process.join()
            here.close()


def _answer(process: multiprocessing.Process, pipe: Connection, seconds: float) -> tuple[str, str]:
    try:
        began, spent = time.monotonic(), psutil.Process(process.pid).cpu_times()
        while not pipe.poll(0.5):  # by its own time, since a machine may be busy with others
            now = psutil.Process(process.pid).cpu_times()
            used = now.user + now.system - spent.user - spent.system
            if used > seconds or time.monotonic() - began > 10 * seconds:
                return "timeout", f"{used:.1f} s of its own"
    except psutil.NoSuchProcess:
        pass  # it has ended, and the pipe says how
    try:
        return pipe.recv()
    except EOFError:
        process.join()
        code = process.exitcode or 0
        return "crash", signal.Signals(-code).name if code < 0 else f"exit code {code}"


def _work(pickled: bytes, cases: range, seed: int, megabytes: int, root: Path, pipe: Connection) -> None:
    known: Format = cloudpickle.loads(pickled)
    with contextlib.suppress(OSError):  # where the kernel has it, a worker whose parent was killed ends too
        ctypes.CDLL(None).prctl(1, signal.SIGKILL)
    faulthandler.disable()
    os.setpgid(0, 0)
    quiet = os.open(os.devnull, os.O_WRONLY)
    os.dup2(quiet, 1)
    os.dup2(quiet, 2)
    logging.disable()
    warnings.simplefilter("ignore")
    inside = root / "inside"
    os.environ |= {"XDG_CACHE_HOME": str(inside / "cache"), "HOME": str(root / "home"), "TMPDIR": str(inside / "tmp")}
    watch = _Watch(inside)
    _limit_memory(megabytes)
    pipe.send("ready")
    for number in cases:
        (inside / "tmp").mkdir(parents=True)
        tempfile.tempdir = str(inside / "tmp")
        work = inside / "work"
        work.mkdir()
        make_case(known, work, seed, number)
        pipe.send(_outcome(known, work, watch, megabytes))
        shutil.rmtree(inside)


def _outcome(known: Format, folder: Path, watch: "_Watch", megabytes: int) -> tuple[str, str]:
    before = _reset_peak()
    outcome, detail = "accepted", ""
    with watch:
        try:
            known.read(folder)
        except FavorError as error:
            outcome, detail = "refused", str(error)
            if "\n" in detail or not detail.isprintable() or len(detail) > LONGEST_LINE:
                outcome = "not one line"
        except Exception as error:  # noqa: BLE001 - what the drill looks for
            place = traceback.extract_tb(error.__traceback__)[-1]
            detail = f"{type(error).__name__}: {str(error)[:200]!r} at {place.filename}:{place.lineno}"
            outcome = "internal error"
    grown = (_peak() - before) / 1024
    if watch.touched:
        return "outside touched", "; ".join(watch.touched[:3])
    if grown > megabytes:
        return "memory", f"{grown:.0f} MB; {outcome} {detail}"
    return outcome, detail


class _Watch:
    """Notes what is written outside of a folder, and programs and connections that are started, while it is on."""

    def __init__(self, inside: Path) -> None:
        self._inside, self._on = os.path.realpath(inside), False
        self.touched: list[str] = []
        sys.addaudithook(self._event)

    def __enter__(self) -> None:
        self._on, self.touched = True, []

    def __exit__(self, *_: object) -> None:
        self._on = False

    def _event(self, event: str, arguments: tuple[object, ...]) -> None:
        if not self._on:
            return
        if event in _PROGRAMS:
            self.touched.append(f"{event} {arguments[:1]}")
        elif (
            event == "open" and isinstance(arguments[2], int) and arguments[2] & (os.O_WRONLY | os.O_RDWR | os.O_CREAT)
        ):
            self._path(event, arguments[0])
        elif event in _WRITES:
            folders = [number for number in arguments[1:] if isinstance(number, int)][-_WRITES[event] :]
            for path, folder in zip(arguments[: _WRITES[event]], folders, strict=True):
                self._path(event, path, folder)

    def _path(self, event: str, path: object, folder: int = -1) -> None:
        if not isinstance(path, str | bytes | os.PathLike):
            return  # an open descriptor
        with contextlib.suppress(ValueError, OSError):  # a NUL in the name, a folder that is closed: nothing happens
            base = os.readlink(f"/proc/self/fd/{folder}") if folder >= 0 else os.getcwd()  # noqa: PTH109, PTH115
            real = os.path.realpath(os.path.join(base, os.fsdecode(path)))  # noqa: PTH118
            if not real.startswith(self._inside) and real != os.devnull:
                self.touched.append(f"{event} {real}")


_PROGRAMS = {"subprocess.Popen", "os.system", "os.exec", "os.posix_spawn", "os.fork", "socket.connect"}
_WRITES = {
    **dict.fromkeys(("os.mkdir", "os.remove", "os.rmdir", "os.chmod"), 1),
    **dict.fromkeys(("os.rename", "os.link"), 2),
}
"""Events whose first arguments are paths; the last ones are the folders that they are relative to, or -1."""


def _limit_memory(megabytes: int) -> None:
    """Keep a bomb from taking the machine with it: far above the bound, allocations fail. A crash writes no core."""
    resource.setrlimit(resource.RLIMIT_CORE, (0, 0))
    size = int(Path("/proc/self/statm").read_text().split()[0]) * resource.getpagesize() if _HAS_PROC else 0
    if size:
        most = size + 4 * megabytes * 2**20
        resource.setrlimit(resource.RLIMIT_AS, (most, most))


_HAS_PROC = Path("/proc/self/statm").exists()


def _reset_peak() -> int:
    """Forget the peak of memory so far, where the kernel can; the memory in use now, in KiB."""
    with contextlib.suppress(OSError):
        Path("/proc/self/clear_refs").write_text("5")
    return _peak()


def _peak() -> int:
    """The peak of this process's memory in KiB."""
    if _HAS_PROC:
        lines = Path("/proc/self/status").read_text().splitlines()
        return next(int(line.split()[1]) for line in lines if line.startswith("VmHWM"))
    return resource.getrusage(resource.RUSAGE_SELF).ru_maxrss


def heading(width: int) -> str:
    """The names of the columns, the first one `width` wide."""
    return f"{'format':<{width}}" + "".join(f"{name:>{len(name) + 2}}" for name in OUTCOMES) + f"{'seconds':>9}"


def row(done: Drill, width: int) -> str:
    """The counts of a drill below `heading`."""
    counts = "".join(f"{done.counts.get(name, 0):>{len(name) + 2}}" for name in OUTCOMES)
    return f"{done.format:<{width}}{counts}{done.seconds:>9.1f}"
