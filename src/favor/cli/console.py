"""How commands speak: data on stdout, everything else on stderr."""

import json
import sys
from collections.abc import Sequence
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from rich.console import Console
    from rich.progress import Progress


def note(text: str) -> None:
    """Say something to the person at the terminal, on stderr."""
    print(text, file=sys.stderr)  # noqa: T201


def emit_json(data: object) -> None:
    """Print data for programs: JSON with stable keys, nothing else on stdout."""
    print(json.dumps(data, indent=2, ensure_ascii=False, allow_nan=False))  # noqa: T201


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
        table.add_row(*(Text(cell) for cell in row))
    stdout_console().print(table)


def stdout_console() -> "Console":
    """The console for data; 200 columns wide where no terminal says otherwise."""
    from rich.console import Console

    return Console(width=None if sys.stdout.isatty() else 200, highlight=False)


def progress_bar() -> "Progress":
    """A bar on stderr with the time left; where there is no terminal it draws nothing (say `note` lines instead)."""
    from rich.console import Console
    from rich.progress import (
        BarColumn,
        MofNCompleteColumn,
        Progress,
        TextColumn,
        TimeElapsedColumn,
        TimeRemainingColumn,
    )

    return Progress(
        TextColumn("{task.description}", markup=False),
        BarColumn(),
        MofNCompleteColumn(),
        TimeElapsedColumn(),
        TextColumn("left"),
        TimeRemainingColumn(),
        console=Console(stderr=True),
        disable=not sys.stderr.isatty(),
    )
