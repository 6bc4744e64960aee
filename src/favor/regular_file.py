"""Reading files from outside: only regular files, and only up to a size limit. Imports no torch."""

import hashlib
import os
import stat
from pathlib import Path
from typing import BinaryIO

from favor.errors import RequestError


class UnreadableFileError(RequestError):
    """A file that cannot be read, and why."""

    def __init__(self, path: Path, why: str) -> None:
        super().__init__(f"{path}: {why}")
        self.why = why


def open_regular(path: Path) -> BinaryIO:
    """Open a regular file for reading; pipes and devices, which may never end, are refused."""
    try:
        # Without O_NONBLOCK, opening a pipe waits for a writer.
        descriptor = os.open(path, os.O_RDONLY | os.O_NONBLOCK | os.O_CLOEXEC)
    except FileNotFoundError as error:
        raise UnreadableFileError(path, "there is no such file") from error
    except OSError as error:
        raise UnreadableFileError(path, f"cannot be read: {error.strerror}") from error
    except ValueError as error:  # a NUL in the name
        raise UnreadableFileError(path, f"cannot be read: {error}") from error
    if not stat.S_ISREG(os.fstat(descriptor).st_mode):
        os.close(descriptor)
        raise UnreadableFileError(path, "this is a folder, a pipe or a device, not a regular file")
    return os.fdopen(descriptor, "rb")


def read_regular(path: Path, most: int) -> bytes:
    """The content of a regular file of at most `most` bytes."""
    with open_regular(path) as file:
        try:
            size = os.fstat(file.fileno()).st_size
            content = file.read(min(size, most) + 1)  # Python allocates as much as is asked for
            if len(content) > size:  # a file that grows, or of /proc
                content += file.read(most + 1 - len(content))
        except OSError as error:
            raise UnreadableFileError(path, f"cannot be read: {error.strerror}") from error
    if len(content) > most:
        raise UnreadableFileError(path, f"larger than the limit of {most / 1e6:,.6g} MB")
    return content


def sha256_of(path: Path) -> str:
    """The SHA-256 of a regular file, in hex digits."""
    digest = hashlib.sha256()
    with open_regular(path) as content:
        while block := content.read(1 << 20):
            digest.update(block)
    return digest.hexdigest()


def read_text(path: Path, most: int) -> str:
    """The text of a regular file in UTF-8 of at most `most` bytes."""
    content = read_regular(path, most)
    try:
        return content.decode("utf-8-sig")
    except UnicodeDecodeError as error:
        line = content.count(b"\n", 0, error.start) + 1
        raise UnreadableFileError(path, f"not a text file in UTF-8 (line {line}, byte {error.start})") from error
