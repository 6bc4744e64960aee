"""Writing files atomically: a reader sees the old content or the new one, never half of it."""

import errno
import os
from collections.abc import Iterator
from contextlib import contextmanager, suppress
from pathlib import Path

from favor.errors import RequestError, WorkError


def write_whole(file: Path, content: bytes) -> None:
    """Write a file atomically, synced to disk before it gets its name."""
    with _part_of(file) as part:
        part.write_bytes(content)
        with part.open("rb") as written:
            os.fsync(written.fileno())
        part.replace(file)


def require_writable(file: Path) -> None:
    """Refuse a file that `write_whole` could not write, before the work that fills it."""
    with _part_of(file) as part:
        part.touch()
        part.unlink()


@contextmanager
def _part_of(file: Path) -> Iterator[Path]:
    """A temporary file beside a file that is to be written; errors name the file."""
    if not file.name:
        raise RequestError(f"cannot write {str(file)!r}: not a file name")
    if file.is_symlink() or (file.exists() and not file.is_file() and not file.is_dir()):
        # The temporary file would replace it: /dev/null would become a regular file for the whole machine.
        raise RequestError(f"cannot write {file}: a link, a pipe or a device; name a regular file")
    part = file.with_name(f".{file.name}.part-{os.getpid()}")
    try:
        if file.is_dir():
            raise IsADirectoryError(errno.EISDIR, os.strerror(errno.EISDIR))
        yield part
    except OSError as error:
        with suppress(OSError):  # on a read-only file system, removing the temporary file fails as well
            part.unlink(missing_ok=True)
        raise WorkError(f"cannot write {file}: {error.strerror}") from error
