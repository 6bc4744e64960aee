"""Output of commands: data on stdout, everything else on stderr; no text in the data can control the terminal."""

import io
import json
import sys
from collections.abc import Callable, Sequence
from typing import TYPE_CHECKING

from favor.errors import RequestError, WorkError
from favor.text import on_one_line, printable

if TYPE_CHECKING:
    from rich.console import Console
    from rich.progress import Progress


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


def note(text: str) -> None:
    """Print one line for people, on stderr."""
    print(on_one_line(text), file=sys.stderr)  # noqa: T201


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


def _encodable(text: str) -> bool:
    try:
        text.encode(sys.stdout.encoding)
    except UnicodeEncodeError:
        return False
    return True


def examples(*pairs: tuple[str, str]) -> str:
    """The examples below a command's help: each a command that can be copied, with what it does as its comment."""
    return "\n\n".join(["**Examples**", *(f"`{command}  # {what}`" for command, what in pairs)])


def emit_table(title: str, columns: Sequence[str], rows: Sequence[Sequence[str]], right: Sequence[str] = ()) -> None:
    """Print a table for people; columns named in `right` are aligned to the right.

    Cells are data, so nothing in them is read as markup.
    """
    from rich.table import Table
    from rich.text import Text

    table = Table(title=title or None, title_justify="left", header_style="bold")
    for column in columns:
        table.add_column(column, justify="right" if column in right else "left", overflow="fold")
    for row in rows:
        table.add_row(*(Text(printable(cell)) for cell in row))  # before the widths are known
    stdout_console().print(table)


def stdout_console() -> "Console":
    """The console for data; 200 columns wide without a terminal."""
    return _safe_console(width=None if sys.stdout.isatty() else 200, highlight=False)


def stderr_console() -> "Console":
    """The console for progress."""
    return _safe_console(stderr=True)


def _safe_console(**options: object) -> "Console":
    """A console that spells out control characters in its input and keeps rich's own styles."""
    from rich.console import Console, ConsoleOptions, RenderableType
    from rich.segment import Segment

    class SafeConsole(Console):
        def render(self, renderable: RenderableType, options: ConsoleOptions | None = None):  # type: ignore[no-untyped-def]
            for segment in super().render(renderable, options):
                yield segment if segment.control else Segment(printable(segment.text), segment.style)

    return SafeConsole(**options)  # type: ignore[arg-type]


def progress_bar(seconds_left: Callable[[], float] | None = None) -> "Progress":
    """A bar on stderr with the elapsed time and the time left, which `seconds_left` forecasts if it is given.

    It refreshes only once a second, so as not to disturb timings. Without a terminal nothing is drawn.
    """
    from rich.progress import (
        BarColumn,
        MofNCompleteColumn,
        Progress,
        ProgressColumn,
        Task,
        TextColumn,
        TimeElapsedColumn,
        TimeRemainingColumn,
    )
    from rich.text import Text

    from favor.units import format_span

    class ForecastColumn(ProgressColumn):
        def render(self, task: Task) -> Text:
            return Text("" if seconds_left is None else f"about {format_span(seconds_left())}")

    return Progress(
        TextColumn("{task.description}", markup=False),
        BarColumn(),
        MofNCompleteColumn(),
        TextColumn("elapsed"),
        TimeElapsedColumn(),
        TextColumn("left"),
        TimeRemainingColumn() if seconds_left is None else ForecastColumn(),
        console=stderr_console(),
        refresh_per_second=1,
        disable=not sys.stderr.isatty(),
    )
