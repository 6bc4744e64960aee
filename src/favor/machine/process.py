"""A job in its own process, the parent's side: start it, wait without using the processor, report how it ended."""

import ctypes
import os
import selectors
import signal
import subprocess
import sys
import threading
import time
from collections.abc import Callable, Iterator, Mapping, Sequence, Set
from contextlib import contextmanager, nullcontext, suppress
from dataclasses import dataclass
from pathlib import Path
from types import FrameType

import psutil

from favor.errors import RequestError
from favor.machine.messages import END_OF_ROUNDS, TURN, WAITING, Findings, RubbishError
from favor.text import cut_to_line

TAIL_BYTES = 4000
LONGEST_LINE = 2**20
NEAR_EXHAUSTION = 0.8
STOP_SECONDS = 60.0
_PR_SET_CHILD_SUBREAPER = 36  # from linux/prctl.h


SIGNALS_APART = 2.0
"""The longest delay, in seconds, between a signal's arrival at a worker and at this process."""


class InterruptedJob(KeyboardInterrupt):
    """Ctrl-C, or SIGTERM within `sigterm_interrupts`; `findings` are the worker's results so far."""

    def __init__(self, findings: Findings, number: signal.Signals = signal.SIGINT) -> None:
        super().__init__("interrupted")
        self.findings, self.signal = findings, number


class _Terminated(KeyboardInterrupt):
    """SIGTERM, which stops a job as Ctrl-C does."""

    signal = signal.SIGTERM


def signal_of(interruption: KeyboardInterrupt) -> signal.Signals:
    """The signal that stopped a job.

    >>> signal_of(InterruptedJob(Findings(), signal.SIGTERM)).name, signal_of(KeyboardInterrupt()).name
    ('SIGTERM', 'SIGINT')
    """
    return getattr(interruption, "signal", signal.SIGINT)


@dataclass(frozen=True)
class Exit:
    """How a process ended: its exit code (negative for a signal) and its peak memory in bytes.

    That peak includes the memory of the process that started it, so it is a coarse figure.
    """

    code: int
    peak: int


@dataclass(frozen=True)
class MemoryBefore:
    """Decides, after a process was killed, whether the system killed it for its memory."""

    available: int
    kills: int | None

    @classmethod
    def now(cls) -> "MemoryBefore":
        return cls(psutil.virtual_memory().available, kills_for_memory())

    def was_exhausted_by(self, ended: Exit) -> bool:
        """Whether a killed process had used up the memory, or the system has counted an out-of-memory kill since."""
        kills = kills_for_memory()
        counted = self.kills is not None and kills is not None and kills > self.kills
        return counted or ended.peak >= NEAR_EXHAUSTION * self.available


def kills_for_memory(counters: Path = Path("/proc/vmstat")) -> int | None:
    """The system's count of out-of-memory kills since it was started; None if it has no such count."""
    if not counters.is_file():
        return None
    for line in counters.read_text().splitlines():
        name, _, value = line.partition(" ")
        if name == "oom_kill":
            return int(value)
    return None


def worker_command(module: str) -> tuple[str, ...]:
    """The command that starts a worker module."""
    return (sys.executable, "-P", "-m", module)


def worker_environment(threads: int) -> dict[str, str]:
    """The environment variables of a worker: the import path of this process, and the number of library threads.

    Plugins are named in the request, so that a worker loads only those.
    """
    from favor.zoo.registry import PLUGINS_VARIABLE

    inherited = {name: value for name, value in os.environ.items() if name != PLUGINS_VARIABLE}
    return inherited | {
        "PYTHONPATH": os.pathsep.join(path or os.getcwd() for path in sys.path),  # noqa: PTH109 - as Python reads it
        "OMP_NUM_THREADS": str(threads),
        "MKL_NUM_THREADS": str(threads),
        "KINETO_LOG_LEVEL": "99",
    }


def supervise(
    command: tuple[str, ...],
    request: str,
    *,
    time_limit: float | None = None,
    on_step: Callable[[str], None] = lambda step: None,
    on_note: Callable[[str], None] = lambda text: None,
    environment: Mapping[str, str] | None = None,
    saves_itself: bool = False,
) -> Findings:
    """Run a worker on a request of one line; returns its results, with the status and the reason of its end.

    The worker's stdout is discarded, and the last line of its stderr is kept for the reason. When this returns, all its
    processes are gone; on systems other than Linux, those of its process group. A malformed message ends it, and the
    results before are kept. A worker that `saves_itself` gets SIGTERM and time to end when this process gets SIGTERM or
    Ctrl-C; others are killed.
    """
    findings = Findings()
    before, others = MemoryBefore.now(), _descendants()
    child = _Child.start(command, findings, on_step, on_note, environment)
    has_ended = False
    try:
        with sigterm_interrupts() if saves_itself else nullcontext():
            child.send(request)
            in_time = child.listen(None if time_limit is None else time.monotonic() + time_limit)
            ended = child.end(others)
            has_ended = True
            if ended.code == -signal.SIGTERM and findings.status is None:
                # A cluster sends it to all processes of a job: if it arrives here too, the worker is not at fault.
                time.sleep(SIGNALS_APART)
    except KeyboardInterrupt as interruption:
        if not has_ended:
            if saves_itself:
                child.ask_to_stop()
            child.end(others)
        findings.status, findings.reason = "failed", f"{findings.step}: interrupted"
        raise InterruptedJob(findings, signal_of(interruption)) from None
    finally:
        child.close()
    if findings.refusal is not None:
        raise RequestError(findings.refusal)
    if findings.status is None:
        _conclude(findings, in_time, ended, time_limit, child.last_words(), before)
    return findings


def supervise_in_turns(
    command: tuple[str, ...],
    requests: Sequence[str],
    *,
    time_limit: float,
    rounds_have_ended: Callable[[Sequence[Findings]], bool],
    on_step: Callable[[str], None] = lambda step: None,
    environments: Sequence[Mapping[str, str]] | None = None,
) -> tuple[Findings, ...]:
    """Run several workers at once that take turns: each builds its model, then A, B, A, B ... until the rounds end.

    Only one of them works at any time; the others wait for a byte. A worker that fails drops out, and the others go on.
    `rounds_have_ended` is asked before every round, about the workers that still run.
    """
    everyone = [Findings() for _ in requests]
    before, others = MemoryBefore.now(), _descendants()
    deadline = time.monotonic() + time_limit
    children: list[_Child] = []
    try:
        environment_of_each: Sequence[Mapping[str, str] | None] = environments or [None] * len(requests)
        for findings, request, environment in zip(everyone, requests, environment_of_each, strict=True):
            children.append(_Child.start(command, findings, on_step, lambda text: None, environment))
            children[-1].send(request)
            children[-1].listen(deadline, lambda findings=findings: findings.step == WAITING)  # type: ignore[misc]
        while not rounds_have_ended([one for one, child in zip(everyone, children, strict=True) if child.is_running]):
            for child, findings in zip(children, everyone, strict=True):
                if child.is_running:
                    done = len(findings.rounds) + 1
                    child.say(TURN)
                    child.listen(deadline, lambda findings=findings, done=done: len(findings.rounds) == done)  # type: ignore[misc]
        is_late = time.monotonic() >= deadline  # then one of them hangs, and none is waited for
        for child, findings in zip(children, everyone, strict=True):
            if not is_late:
                child.say(END_OF_ROUNDS)
            in_time = not is_late and (findings.status is not None or child.listen(deadline))
            ended = child.end(None)
            if findings.status is None:
                _conclude(findings, in_time, ended, time_limit, child.last_words(), before)
    finally:
        for child in children:
            child.end(None)
            child.close()
        _end_strays(others)
    return tuple(everyone)


def _descendants() -> set[int]:
    """The descendants of this process; from now on they include the orphans of its workers."""
    _adopt_orphans()
    return {process.pid for process in psutil.Process().children(recursive=True)}


def _adopt_orphans() -> None:
    """Let orphaned descendants become children of this process, so that they can be found; Linux only."""
    if sys.platform == "linux":
        ctypes.CDLL(None).prctl(_PR_SET_CHILD_SUBREAPER, 1, 0, 0, 0)


def _end_strays(others: Set[int]) -> None:
    """Kill descendants that left the process group of the worker; `others` were there before it."""
    strays = [process for process in psutil.Process().children(recursive=True) if process.pid not in others]
    for stray in strays:
        with suppress(psutil.NoSuchProcess):
            stray.kill()
    psutil.wait_procs(strays, timeout=5)


@contextmanager
def sigterm_interrupts() -> Iterator[None]:
    """Let SIGTERM raise an exception, as Ctrl-C does; without effect in a thread, which gets no signals."""
    if threading.current_thread() is not threading.main_thread():
        yield
        return

    def interrupt(_number: int, _frame: FrameType | None) -> None:
        raise _Terminated

    before = signal.signal(signal.SIGTERM, interrupt)
    try:
        yield
    finally:
        signal.signal(signal.SIGTERM, before)


def _conclude(
    findings: Findings, in_time: bool, ended: Exit, time_limit: float | None, last_words: str, before: MemoryBefore
) -> None:
    """The reason for the end of a worker that did not report one."""
    said = f"; last line of stderr: {last_words}" if last_words else ""
    if not in_time:
        findings.status, why = "timeout", f"did not finish within {time_limit:g} s"
    elif ended.code == -signal.SIGKILL and before.was_exhausted_by(ended):
        findings.status, why = "out_of_memory", "killed by the system because memory ran out"
    elif ended.code < 0:
        findings.status, why = "failed", f"killed by {signal.Signals(-ended.code).name}{said}"
    else:
        findings.status, why = "failed", f"ended with exit code {ended.code}{said}"
    findings.reason = cut_to_line(f"{findings.step}: {why}")


class _Child:
    """A running worker and the pipes to it."""

    def __init__(
        self,
        process: "subprocess.Popen[bytes]",
        answers: int,
        findings: Findings,
        on_step: Callable[[str], None],
        on_note: Callable[[str], None],
    ) -> None:
        assert process.stdin is not None  # noqa: S101 - it is a pipe
        assert process.stderr is not None  # noqa: S101
        self._process, self._answers, self._stdin, self._stderr = process, answers, process.stdin, process.stderr
        self._findings, self._on_step, self._on_note = findings, on_step, on_note
        self._unfinished_line = self._tail = b""
        self._talks_rubbish = False
        self.is_running = True
        for pipe in (answers, self._stderr.fileno()):
            os.set_blocking(pipe, False)
        self._reaper = _Reaper(process.pid)

    @classmethod
    def start(
        cls,
        command: tuple[str, ...],
        findings: Findings,
        on_step: Callable[[str], None],
        on_note: Callable[[str], None],
        environment: Mapping[str, str] | None,
    ) -> "_Child":
        answers, answers_of_child = os.pipe()
        # Slurm sends SIGUSR2 to all processes of a job: the parent handles it; this mask lets the worker survive it.
        mask = signal.pthread_sigmask(signal.SIG_BLOCK, {signal.SIGUSR2})
        try:
            process = subprocess.Popen(
                [*command, str(answers_of_child)],
                stdin=subprocess.PIPE,
                stdout=subprocess.DEVNULL,
                stderr=subprocess.PIPE,
                pass_fds=[answers_of_child],
                start_new_session=True,
                env=None if environment is None else dict(environment),
            )
        finally:
            signal.pthread_sigmask(signal.SIG_SETMASK, mask)
            os.close(answers_of_child)
        return cls(process, answers, findings, on_step, on_note)

    def send(self, request: str) -> None:
        self.say(request.encode() + b"\n")

    def say(self, words: bytes) -> None:
        # If the worker is already gone, waiting for it shows that.
        with suppress(BrokenPipeError):
            self._stdin.write(words)
            self._stdin.flush()

    def ask_to_stop(self) -> None:
        """Let the worker save its state and end, within a minute; a second Ctrl-C does not wait for that."""
        with suppress(ProcessLookupError, KeyboardInterrupt):
            os.kill(self._process.pid, signal.SIGTERM)
            self.listen(time.monotonic() + STOP_SECONDS)

    def listen(self, deadline: float | None, until: Callable[[], bool] = lambda: False) -> bool:
        """Read the worker's messages until it ends, or until something is true; False if the deadline comes first."""
        readers = {self._answers: self._read_answers, self._stderr.fileno(): self._read_stderr}
        with selectors.DefaultSelector() as selector:
            for source in (*readers, self._reaper.ended):
                selector.register(source, selectors.EVENT_READ)
            while (left := None if deadline is None else deadline - time.monotonic()) is None or left > 0:
                for key, _ in selector.select(left):
                    if key.fd == self._reaper.ended:
                        self.is_running = False
                        return True
                    if not readers[key.fd]():
                        selector.unregister(key.fd)
                    if self._talks_rubbish:
                        self.is_running = False
                        return True
                if until():
                    return True
        self.is_running = False
        return False

    def end(self, others: Set[int] | None) -> Exit:
        """Kill the worker, if it still runs, and its processes; read its last messages.

        Descendants that left its process group end too, except the `others`; all of them stay if that is None.
        """
        if self._process.returncode is None:
            with suppress(ProcessLookupError, PermissionError):
                os.killpg(self._process.pid, signal.SIGKILL)
        ended = self._reaper.wait()
        self._process.returncode = ended.code
        if others is not None:
            _end_strays(others)
        for read in (self._read_answers, self._read_stderr):
            while read():
                pass
        return ended

    def close(self) -> None:
        with suppress(BrokenPipeError):
            self._stdin.close()
        self._stderr.close()
        os.close(self._answers)
        self._reaper.close()

    def last_words(self) -> str:
        """The last non-empty line of stderr."""
        lines = [line for line in self._tail.decode(errors="replace").splitlines() if line.strip()]
        return lines[-1].strip() if lines else ""

    def _read_answers(self) -> bool:
        """Read the available lines; False at the end of the pipe."""
        data = _read(self._answers)
        *lines, self._unfinished_line = (self._unfinished_line + data).split(b"\n")
        for line in lines:
            self._take(line)
        if len(self._unfinished_line) > LONGEST_LINE:
            self._refuse(self._unfinished_line, f"longer than {LONGEST_LINE} bytes")
            self._unfinished_line = b""
        return bool(data)

    def _take(self, line: bytes) -> None:
        shown = self._findings.progress or self._findings.step
        if self._talks_rubbish:
            return
        try:
            note = self._findings.take(line)
        except RubbishError as error:
            self._refuse(line, str(error))
        else:
            if note is not None:
                self._on_note(note)
        now = self._findings.progress or self._findings.step
        if now != shown:
            self._on_step(now)

    def _refuse(self, line: bytes, why: str) -> None:
        """After a malformed message, nothing from the worker can be trusted, not even a report of success."""
        self._talks_rubbish = True
        shown = cut_to_line(line[:200].decode(errors="replace"), longest=80)
        self._findings.status = "failed"
        self._findings.reason = cut_to_line(
            f"{self._findings.step}: malformed message from the worker: {shown!r} ({why})"
        )

    def _read_stderr(self) -> bool:
        data = _read(self._stderr.fileno())
        self._tail = (self._tail + data)[-TAIL_BYTES:]
        return bool(data)


class _Reaper:
    """Waits for a process in a thread, so that its end can be awaited together with pipes.

    `ended` is a file descriptor that becomes readable when the process has ended.
    """

    def __init__(self, pid: int) -> None:
        self.ended, self._write_end = os.pipe()
        self._exit: Exit | None = None
        self._thread = threading.Thread(target=self._wait_for, args=(pid,), daemon=True)
        self._thread.start()

    def _wait_for(self, pid: int) -> None:
        _, status, usage = os.wait4(pid, 0)
        peak = usage.ru_maxrss if sys.platform == "darwin" else usage.ru_maxrss * 1024
        self._exit = Exit(os.waitstatus_to_exitcode(status), peak)
        os.close(self._write_end)

    def wait(self) -> Exit:
        self._thread.join()
        assert self._exit is not None  # noqa: S101 - the thread has set it
        return self._exit

    def close(self) -> None:
        os.close(self.ended)


def _read(pipe: int) -> bytes:
    """The content of a pipe up to a limit; empty at its end, or if nothing is available now."""
    try:
        return os.read(pipe, 2**16)
    except BlockingIOError:
        return b""
