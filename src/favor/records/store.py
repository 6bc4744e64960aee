"""The store: a study folder's `records.jsonl` and `records/*.jsonl`, appended to and never changed.

Two processes may append to one file at once, a writer may be killed at any byte, and two machines' files may be
concatenated: complete records stay readable, and every other line is reported with its number.
There is no lock, since none works on all cluster file systems: there each writer has its own file.
"""

import hashlib
import os
import time
from collections import Counter
from collections.abc import Iterable, Iterator
from dataclasses import dataclass, replace
from itertools import chain
from pathlib import Path
from typing import Literal

from favor.errors import RequestError, WorkError
from favor.records import example
from favor.records.schema import NewerSchemaError, NotJsonError, Record, from_line, from_lines, to_line

FILE_NAME = "records.jsonl"
FOLDER_NAME = "records"
_LATER = "~later"
"""Added to a writer's name, it makes the name that sorts next: no other writer's file sorts in between."""

_CHUNK_SIZE = 4 * 2**20
_LONGEST_LINE = 2**26  # a record has a few kilobytes; a file without line breaks may be of any size
_MOST_PROBLEMS = 1000  # of a kind, in a file: each takes a hundred times the memory of an empty line

# Seconds: far longer than writing a line takes.
_ONE_WRITE = 0.01

# A byte order mark, which some editors put at the start of a file; anywhere else it is not JSON.
BYTE_ORDER_MARK = b"\xef\xbb\xbf"

# Every record starts with this, and quotes inside strings are escaped: it marks a record glued to a torn one.
_START = b'{"schema":'

_Kind = Literal["torn", "corrupt", "newer_schema"]


@dataclass(frozen=True)
class Problem:
    """A line that is not a record of this schema: where it is, the kind of problem, and why.

    `more` counts the lines after it with the same kind of problem, where they are too many to list.
    """

    file: str
    line: int
    kind: _Kind
    why: str
    more: int = 0

    def __str__(self) -> str:
        others = f" (and {self.more:,} lines after it)" if self.more else ""
        return f"{self.file}:{self.line}: {_KINDS[self.kind]}: {self.why}{others}"


_KINDS = {
    "torn": "incomplete line, skipped (its writer is still writing or was killed)",
    "corrupt": "corrupt line, skipped",
    "newer_schema": "newer schema, skipped",
}


@dataclass(frozen=True)
class ReadResult:
    """The records in the order of the files, and a problem for every line that is not a record."""

    records: tuple[Record, ...]
    problems: tuple[Problem, ...]


def append(study: str | Path, records: Iterable[Record], *, writer: str | None = None) -> int:
    """Add records to a study, synced to disk before this returns; returns the number of records added.

    Each line is one write to a file opened for appending, which the system does not interleave with others.
    Where that does not hold, as between nodes of a cluster, each writer has its own file, `records/WRITER.jsonl`.
    Without a writer, the file is `records.jsonl`, or one that comes after those of the writers, if there are any.
    """
    lines = [to_line(record) for record in records]
    file = _last_file(Path(study)) if writer is None else Path(study) / FOLDER_NAME / f"{writer}.jsonl"
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


def read(*paths: str | Path) -> ReadResult:
    """All records of study folders or record files, with a problem for every unreadable line.

    The order is that of the paths, in a study `records.jsonl` and then `records/*.jsonl` by name, in a file that of
    its lines. Of two measurements of the same thing, the later in this order counts, whatever their times say.
    """
    problems: list[Problem] = []
    records: list[Record] = []
    for path in paths:
        files = record_files(path)
        earlier: set[bytes] = set()
        for file in files:
            own: set[bytes] = set()
            found = _Problems()
            for chunk in _chunks(file):
                data = chunk.data if len(files) == 1 else _without_copies(chunk.data, earlier, own)
                at_once = from_lines(data)
                records += _one_by_one(replace(chunk, data=data), found) if at_once is None else at_once
            problems += found.listed()
            earlier |= own
    return ReadResult(tuple(records), tuple(problems))


class _Problems:
    """The problems of a file: of each kind the first ones, and how many others there are."""

    def __init__(self) -> None:
        self._first: dict[_Kind, list[Problem]] = {}
        self._more: Counter[_Kind] = Counter()

    def add(self, problem: Problem) -> None:
        first = self._first.setdefault(problem.kind, [])
        if len(first) < _MOST_PROBLEMS:
            first.append(problem)
        else:
            self._more[problem.kind] += 1

    def listed(self) -> list[Problem]:
        """In the order of the lines; the last one of a kind tells of those that are not listed."""
        for kind, more in self._more.items():
            self._first[kind][-1] = replace(self._first[kind][-1], more=more)
        return sorted(chain.from_iterable(self._first.values()), key=lambda problem: problem.line)


@dataclass(frozen=True)
class _Chunk:
    """Complete lines of a file; the last one may lack its newline."""

    file: Path
    first_line: int
    data: bytes


def _chunks(file: Path) -> Iterator[_Chunk]:
    """The content of a file, a few megabytes at a time."""
    first_line = 1
    try:
        with file.open("rb") as content:
            if content.read(len(BYTE_ORDER_MARK)) != BYTE_ORDER_MARK:
                content.seek(0)
            while data := content.read(_CHUNK_SIZE) + (rest := content.readline(_LONGEST_LINE)):
                if len(rest) == _LONGEST_LINE and not rest.endswith(b"\n"):
                    line = first_line + data.count(b"\n")
                    raise RequestError(f"{file}:{line}: a line of more than 67 MB, so this is not a file of records")
                if is_unfinished := not data.endswith(b"\n"):
                    time.sleep(_ONE_WRITE)  # a writer may be writing this line now
                    data += content.readline()
                yield _Chunk(file, first_line, data)
                first_line += data.count(b"\n")
                if is_unfinished:
                    return
    except OSError as error:
        raise WorkError(f"cannot read records from {file}: {error.strerror}") from error


def _without_copies(data: bytes, earlier: set[bytes], own: set[bytes]) -> bytes:
    """Blank out lines that an earlier file of the study already has, so that the others keep their numbers.

    Within a file a line may occur twice: a value that was corrected and then restored counts again.
    """
    lines = data.split(b"\n")
    for index, line in enumerate(lines):
        digest = hashlib.blake2b(line, digest_size=16).digest()
        own.add(digest)
        if digest in earlier:
            lines[index] = b""
    return b"\n".join(lines)


def _one_by_one(chunk: _Chunk, problems: _Problems) -> Iterator[Record]:
    """The records of a chunk; for every line that is not one, the reason is added to `problems`."""
    lines = chunk.data.split(b"\n")
    for number, line in enumerate(lines, chunk.first_line):
        is_last = number == chunk.first_line + len(lines) - 1
        for part in _glued(line) if line.strip() else ():
            try:
                yield from_line(part)
            except NewerSchemaError as error:
                problems.add(Problem(str(chunk.file), number, "newer_schema", str(error)))
            except NotJsonError as error:
                problems.add(Problem(str(chunk.file), number, "torn" if is_last else "corrupt", str(error)))
            except RequestError as error:
                problems.add(Problem(str(chunk.file), number, "corrupt", str(error)))


def _glued(line: bytes) -> list[bytes]:
    """The parts of a line: more than one if files were concatenated after an incomplete last line."""
    before, *after = line.split(_START)
    if len(after) + bool(before) > 1:
        try:
            from_line(line)
        except NotJsonError:
            return [part for part in (before, *(_START + rest for rest in after)) if part]
        except RequestError:
            pass  # one JSON object: the caller reports what is wrong with it
    return [line]


def has_records(study: Path) -> bool:
    """Whether a folder is a study with records, of any writer."""
    return bool(_files_in(study))


def record_files(path: str | Path) -> list[Path]:
    """The record files at a path: those of a study folder, the file itself, or an example's (`example:cpu`)."""
    if str(path).startswith(example.PREFIX):
        return [example.example_file(str(path).removeprefix(example.PREFIX))]
    path = Path(path)
    files = [path] if path.is_file() else _files_in(path)
    if not files:
        what = f"the folder has no {FILE_NAME}" if path.is_dir() else "there is no such file or folder"
        raise RequestError(f"no records at {path}: {what}; give a study folder or a records file")
    return files


def deleted(study: Path) -> WorkError:
    """The error of a command whose study folder has disappeared; the command does not create it again."""
    return WorkError(f"{study} was deleted or moved while favor was working in it")


def _last_file(study: Path) -> Path:
    """The file for records that must count as newer than all others in the study: the one that is read last."""
    files = _files_in(study)
    if not files or files[-1].name == FILE_NAME:
        return study / FILE_NAME
    return files[-1] if files[-1].stem.endswith(_LATER) else files[-1].with_stem(files[-1].stem + _LATER)


def _files_in(study: Path) -> list[Path]:
    files = (study / FILE_NAME, *sorted((study / FOLDER_NAME).glob("*.jsonl")))
    return [file for file in files if file.is_file()]


def _is_torn(descriptor: int) -> bool:
    size = os.fstat(descriptor).st_size
    if size == 0:
        return False
    os.lseek(descriptor, size - 1, os.SEEK_SET)
    return os.read(descriptor, 1) != b"\n"


def _write_whole(descriptor: int, line: bytes, file: Path) -> None:
    written = os.write(descriptor, line)
    if written != len(line):
        raise WorkError(f"only {written} of {len(line)} bytes of a record were written to {file}; is the disk full?")
