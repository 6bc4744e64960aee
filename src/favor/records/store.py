"""The store: a study folder's `records.jsonl`, appended to and never changed.

Two processes may append at once, a writer may be killed at any byte, and two machines' files may be put together
by concatenation: whatever is whole stays readable, and what is not is reported with its line.
"""

import os
from collections.abc import Iterable, Iterator
from dataclasses import dataclass
from pathlib import Path
from typing import Any, Literal, NamedTuple

from favor.errors import RequestError, WorkError
from favor.records import example
from favor.records.schema import NewerSchemaError, Record, check, from_checked, json_of_line, to_line

FILE_NAME = "records.jsonl"

_CHUNK_SIZE = 4 * 2**20

# Some editors put it at the start of every file; anywhere else it is not JSON.
BYTE_ORDER_MARK = b"\xef\xbb\xbf"

# Every line starts with this, and quotes inside of texts are escaped: so it tells where a glued record begins.
_START = b'{"schema":'


@dataclass(frozen=True)
class Problem:
    """A line that is not a record of this schema: where it is, what kind of trouble, and why."""

    file: str
    line: int
    kind: Literal["torn", "corrupt", "newer_schema"]
    why: str

    def __str__(self) -> str:
        return f"{self.file}:{self.line}: {_KINDS[self.kind]}: {self.why}"


_KINDS = {"torn": "torn line, skipped", "corrupt": "corrupt line, skipped", "newer_schema": "newer schema, skipped"}


@dataclass(frozen=True)
class Found:
    """What reading gave: the records in the order of the file, and a problem for every line that is none."""

    records: tuple[Record, ...]
    problems: tuple[Problem, ...]


def append(study: str | Path, records: Iterable[Record]) -> int:
    """Add records to a study, synced to the disk before this returns; the number of records added.

    Each line is one write to a file opened for appending, which the system does not mix with another process's.
    """
    lines = [to_line(record) for record in records]
    file = Path(study) / FILE_NAME
    try:
        file.parent.mkdir(parents=True, exist_ok=True)
        descriptor = os.open(file, os.O_RDWR | os.O_CREAT | os.O_APPEND | getattr(os, "O_BINARY", 0), 0o644)
        try:
            if lines and _is_torn(descriptor):
                lines[0] = b"\n" + lines[0]
            for line in lines:
                _write_whole(descriptor, line, file)
            os.fsync(descriptor)
        finally:
            os.close(descriptor)
    except OSError as error:
        raise WorkError(f"cannot write records to {file}: {error.strerror}") from error
    return len(lines)


def read(*paths: str | Path) -> Found:
    """All records of study folders or record files, with a problem for every line that could not be read."""
    problems: list[Problem] = []
    lines = (line for chunk in chunks(paths) for line in json_lines(chunk, problems))
    records = tuple(from_checked(line.data) for line in lines if is_record(line, problems))
    return Found(records, tuple(problems))


class Chunk(NamedTuple):
    """Whole lines of a file, or a last line without its newline."""

    file: str
    first_line: int
    lines: int
    data: bytes


class Line(NamedTuple):
    """JSON data and where it stands, not yet known to be a record."""

    file: str
    number: int
    data: Any


def chunks(paths: Iterable[str | Path]) -> Iterator[Chunk]:
    """The contents of study folders or record files, a few megabytes at a time; a torn last line is on its own."""
    for path in paths:
        file = record_file(path)
        first_line = 1
        try:
            with file.open("rb") as content:
                if content.read(len(BYTE_ORDER_MARK)) != BYTE_ORDER_MARK:
                    content.seek(0)
                while data := content.read(_CHUNK_SIZE) + content.readline():
                    end = data.rfind(b"\n") + 1
                    if end:
                        lines = data.count(b"\n")
                        yield Chunk(str(file), first_line, lines, data[:end])
                        first_line += lines
                    if end < len(data):
                        yield Chunk(str(file), first_line, 1, data[end:])
        except OSError as error:
            raise WorkError(f"cannot read records from {file}: {error.strerror}") from error


def json_lines(chunk: Chunk, problems: list[Problem]) -> Iterator[Line]:
    """The JSON on every line of a chunk; what is not JSON is added to `problems`."""
    kind: Literal["torn", "corrupt"] = "corrupt" if chunk.data.endswith(b"\n") else "torn"
    for number, line in enumerate(chunk.data.split(b"\n"), chunk.first_line):
        if not line.strip():
            continue
        try:
            yield Line(chunk.file, number, json_of_line(line))
        except ValueError as error:
            yield from _salvaged(Line(chunk.file, number, line), kind, error, problems)


def is_record(line: Line, problems: list[Problem]) -> bool:
    """Whether a line's data is a record; if not, why is added to `problems`."""
    try:
        check(line.data)
    except NewerSchemaError as error:
        problems.append(Problem(line.file, line.number, "newer_schema", str(error)))
    except RequestError as error:
        problems.append(Problem(line.file, line.number, "corrupt", str(error)))
    else:
        return True
    return False


def record_file(path: str | Path) -> Path:
    """The file of records that a path means: a study folder's, the file itself, or an example's (`example:cpu`)."""
    if str(path).startswith(example.PREFIX):
        return example.example_file(str(path).removeprefix(example.PREFIX))
    path = Path(path)
    file = path / FILE_NAME if path.is_dir() else path
    if not file.is_file():
        what = f"the folder has no {FILE_NAME}" if path.is_dir() else "there is no such file or folder"
        raise RequestError(f"no records at {path}: {what}; give a study folder or a file of records")
    return file


def _salvaged(
    line: Line, kind: Literal["torn", "corrupt"], error: ValueError, problems: list[Problem]
) -> Iterator[Line]:
    """The whole records on a bad line: a torn record may have the next file's first record glued to it."""
    before, *pieces = line.data.split(_START)
    if len(pieces) + bool(before) <= 1:
        problems.append(Problem(line.file, line.number, kind, f"not JSON: {error}"))
        return
    if before:
        why = f"{len(before)} bytes before the first record of the line"
        problems.append(Problem(line.file, line.number, "corrupt", why))
    for piece in pieces:
        try:
            yield line._replace(data=json_of_line(_START + piece))
        except ValueError as piece_error:
            why = f"one of {len(pieces)} records glued together: {piece_error}"
            problems.append(Problem(line.file, line.number, kind, why))


def _is_torn(descriptor: int) -> bool:
    size = os.fstat(descriptor).st_size
    if size == 0:
        return False
    os.lseek(descriptor, size - 1, os.SEEK_SET)
    return os.read(descriptor, 1) != b"\n"


def _write_whole(descriptor: int, line: bytes, file: Path) -> None:
    written = os.write(descriptor, line)
    if written != len(line):
        raise WorkError(f"only {written} of {len(line)} bytes of a record went to {file}; is the disk full?")
