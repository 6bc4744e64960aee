"""Output of commands for people and programs, on stdout; no text in the data can control the terminal."""

import io
import json
import sys
from collections.abc import Sequence
from typing import TYPE_CHECKING

from favor.errors import RequestError, WorkError
from favor.terminal import safe_console
from favor.text import printable

if TYPE_CHECKING:
    from rich.console import Console

    from favor.records.schema import Record


class _Stdout(io.FileIO):
    """Standard output that raises a clear error when a write fails, and drops all later writes."""

    _failed = False

    def write(self, data):  # type: ignore[no-untyped-def] # the type of a buffer is not in Python 3.11
        if self._failed:
            return len(data)
        try:
            return super().write(data)
        except OSError as error:
            self._failed = True  # Python flushes once more when it ends
            if isinstance(error, BrokenPipeError):
                raise
            raise WorkError(f"cannot write to stdout: {error.strerror}") from error


def guard_stdout() -> None:
    """Make failed writes clear errors, replace letters it cannot encode, and refuse a closed stdout."""
    stdout = sys.__stdout__
    if sys.stdout is None:
        raise RequestError("stdout is closed; redirect it to a file, or to /dev/null")
    if stdout is not None and stdout is sys.stdout:  # a test or a notebook has one of its own
        raw = io.BufferedWriter(_Stdout(stdout.fileno(), "w", closefd=False))
        sys.stdout = io.TextIOWrapper(raw, stdout.encoding, errors="replace", line_buffering=stdout.isatty())


def emit_text(text: str) -> None:
    """Print text for programs unchanged, in UTF-8; on a terminal, control characters are spelled out."""
    if sys.stdout.isatty():
        text = printable(text)
    sys.stdout.flush()
    sys.stdout.buffer.write(text.encode(errors="backslashreplace"))


def emit_json(data: object) -> None:
    """Print data for programs: JSON with stable keys, nothing else on stdout."""
    text = json.dumps(data, indent=2, ensure_ascii=False, allow_nan=False)
    if printable(text) != text or not _encodable(text):
        text = json.dumps(data, indent=2, allow_nan=False)
    print(text)  # noqa: T201


def emit_records(records: "Sequence[Record]") -> None:
    """Print records for programs, as they are in a study."""
    from favor.records.schema import to_data

    emit_json([to_data(record) for record in records])


def _encodable(text: str) -> bool:
    try:
        text.encode(sys.stdout.encoding)
    except UnicodeEncodeError:
        return False
    return True


def examples(*pairs: tuple[str, str]) -> str:
    """The examples below a command's help: each a command that can be copied, with what it does as its comment."""
    return "\n\n".join(["**Examples**", *(f"`{command}  # {what}`" for command, what in pairs)])


def emit_line(text: str) -> None:
    """Print a sentence for people."""
    stdout_console().print(text, markup=False, soft_wrap=True)


def emit_table(title: str, columns: Sequence[str], rows: Sequence[Sequence[str]], right: Sequence[str] = ()) -> None:
    """Print a table for people; columns named in `right` are aligned to the right.

    Nothing in them is read as markup: all of them may have names from data.
    """
    from rich.table import Table
    from rich.text import Text

    table = Table(title_justify="left", header_style="bold")
    if title:
        table.title = Text(printable(title), style="table.title")
    for column in columns:
        table.add_column(Text(printable(column)), justify="right" if column in right else "left", overflow="fold")
    for row in rows:
        table.add_row(*(Text(printable(cell)) for cell in row))  # before the widths are known
    stdout_console().print(table)


def stdout_console() -> "Console":
    """The console for data; 200 columns wide without a terminal."""
    return safe_console(width=None if sys.stdout.isatty() else 200, highlight=False)
