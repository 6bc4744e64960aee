"""What favor tells people while it works, on stderr: notes and a progress bar. No text can control the terminal."""

import sys
from collections.abc import Callable
from typing import TYPE_CHECKING

from favor.text import on_one_line, printable

if TYPE_CHECKING:
    from rich.console import Console
    from rich.progress import Progress

SECONDS_BETWEEN_LINES = 30.0
"""Without a terminal, long work gets a line this often."""


def note(text: str) -> None:
    """Print one line for people, on stderr."""
    print(on_one_line(text), file=sys.stderr)  # noqa: T201


def progress_bar(seconds_left: Callable[[], float] | None = None) -> "Progress":
    """A bar on stderr with the time that has passed and the time left, which `seconds_left` forecasts if it is given.

    It refreshes only once a second, so as not to disturb timings. Without a terminal nothing is drawn.
    """
    from rich.progress import BarColumn, MofNCompleteColumn, Progress, ProgressColumn, Task, TextColumn
    from rich.text import Text

    from favor.units import format_span

    class TimesColumn(ProgressColumn):
        def render(self, task: Task) -> Text:
            left = task.time_remaining if seconds_left is None else seconds_left()
            parts = [f"{format_span(task.elapsed or 0.0)} elapsed"]
            parts += [] if left is None else [f"about {format_span(left)} left"]
            return Text(", ".join(parts))

    return Progress(
        TextColumn("{task.description}", markup=False),
        BarColumn(),
        MofNCompleteColumn(),
        TimesColumn(),
        console=stderr_console(),
        refresh_per_second=1,
        disable=not sys.stderr.isatty(),
    )


def stderr_console() -> "Console":
    """The console for progress."""
    return safe_console(stderr=True)


def safe_console(**options: object) -> "Console":
    """A console that spells out control characters in its input and keeps rich's own styles.

    It prints `:three:` as it is, where rich would print an emoji: a sentence may have a name between two colons.
    """
    from rich.console import Console, ConsoleOptions, RenderableType
    from rich.segment import Segment

    class SafeConsole(Console):
        def render(self, renderable: RenderableType, options: ConsoleOptions | None = None):  # type: ignore[no-untyped-def]
            for segment in super().render(renderable, options):
                yield segment if segment.control else Segment(printable(segment.text), segment.style)

    return SafeConsole(emoji=False, **options)  # type: ignore[arg-type]
