"""Locks between processes. The system releases them when a process ends, however it ends. Imports no torch."""

import errno
import fcntl
import os
import sqlite3
import tempfile
from collections.abc import Callable, Iterator
from contextlib import AbstractContextManager, ExitStack, contextmanager, suppress
from datetime import datetime
from pathlib import Path

from filelock import FileLock, ReadWriteLock, Timeout

from favor.errors import RequestError
from favor.regular_file import open_regular, read_text

_LONGEST_HOLDER = 10_000  # bytes, among them the path of a folder
LOOKING_SECONDS = 0.25
"""`is_locked` holds a lock for an instant; a process that wants the lock waits this long before it gives up."""


Lock = Callable[[Path, float], AbstractContextManager[object]]
"""Takes a lock within so many seconds; a negative number waits without limit."""


def _alone(file: Path, seconds: float) -> AbstractContextManager[object]:
    return FileLock(file).acquire(timeout=seconds)


def _against_all(file: Path, seconds: float) -> AbstractContextManager[object]:
    return ReadWriteLock(file, timeout=seconds, is_singleton=False).write_lock()


def _against_measuring(file: Path, seconds: float) -> AbstractContextManager[object]:
    return ReadWriteLock(file, timeout=seconds, is_singleton=False).read_lock()


@contextmanager
def locked(
    file: Path, taken: str, purpose: str, wait: bool = False, role: str = "", lock: Lock = _alone
) -> Iterator[None]:
    """Hold a lock. If another process has it, wait, or raise `taken`, where `{holder}` stands for its role and name."""
    with ExitStack() as held:
        try:
            file.parent.mkdir(parents=True, exist_ok=True)
            held.enter_context(lock(file, -1 if wait else LOOKING_SECONDS))
        except Timeout:
            raise RequestError(taken.replace("{holder}", _holder(file, role))) from None
        except OSError as error:
            raise RequestError(f"{file.parent}: cannot write: {error.strerror}; choose another folder") from error
        except sqlite3.Error as error:  # a ReadWriteLock's file is a database
            raise RequestError(f"{file}: cannot be locked: {error}; delete this file") from error
        _tell_holder(file, f"{role}process {os.getpid()}{purpose} since {datetime.now().astimezone():%H:%M}\n")
        yield


def is_locked(file: Path) -> bool:
    """Whether a process holds the lock now. The folder may be read-only."""
    if not file.exists():
        return False
    with open_regular(file) as lock:
        try:
            fcntl.flock(lock, fcntl.LOCK_SH | fcntl.LOCK_NB)
        except OSError as error:
            # Where the file system has no `flock`, FileLock's file exists as long as the lock is held.
            if error.errno in (errno.EAGAIN, errno.EACCES, errno.ENOSYS):
                return True
            raise
    return False


def device_lock(device: str) -> Path:
    """The lock file of a device, one for all folders of this user on this machine."""
    folder = Path(os.environ.get("XDG_RUNTIME_DIR") or tempfile.gettempdir()) / f"favor-{os.getuid()}"
    with suppress(FileExistsError):
        folder.mkdir(mode=0o700, parents=True)
    return folder / f"{device.replace(':', '')}.lock"


def measuring(device: str, folder: Path | None, wait: bool) -> AbstractContextManager[None]:
    """Keep other processes of this user from measuring and training on the device: they disturb each other."""
    return _using(device, folder, wait, "being measured by ", _against_all)


def training(device: str, folder: Path | None, wait: bool) -> AbstractContextManager[None]:
    """Keep other processes of this user from measuring on the device; they may train on it, too."""
    return _using(device, folder, wait, "used for training by ", _against_measuring)


def _using(device: str, folder: Path | None, wait: bool, role: str, lock: Lock) -> AbstractContextManager[None]:
    taken = f"{device} is {{holder}}; --wait waits for it"
    return locked(device_lock(device), taken, f" in {folder.resolve()}" if folder else "", wait, role, lock)


def _holder_file(lock: Path) -> Path:
    return lock.with_name(f"{lock.name}.holder")


def _tell_holder(lock: Path, text: str) -> None:
    """Write a new file: in another person's folder, a link or a pipe may stand in its place."""
    file = _holder_file(lock)
    try:
        file.unlink(missing_ok=True)
        with file.open("x", encoding="utf-8") as content:
            content.write(text)
    except OSError as error:
        raise RequestError(f"{file}: cannot write: {error.strerror}; choose another folder") from error


def _holder(lock: Path, role: str) -> str:
    try:
        return read_text(_holder_file(lock), _LONGEST_HOLDER).strip()
    except RequestError:
        return f"{role}another process"
