"""The command line: every command of favor, each group in its own file.

Data goes to stdout, everything else (progress, notes, errors) to stderr. Exit codes: 0 done, 1 the work failed,
2 the request was wrong. Command files import heavy packages inside their functions, so that `--help` stays fast.
"""

import os
import re
import sys
from pathlib import Path
from typing import Annotated

import typer

from favor.cli import (
    budget,
    compare,
    count,
    decide,
    effects,
    export,
    load,
    measure,
    push,
    records,
    report,
    shards,
    simulate,
    study,
    train,
    zoo,
)
from favor.cli.console import guard_stdout
from favor.cli.door import Door
from favor.errors import FavorError, RequestError
from favor.terminal import note
from favor.version import __version__

_MOST_DIGITS = 300  # the largest floating-point number has 309; Python refuses to read integers of thousands

app = typer.Typer(
    name="favor",
    cls=Door,
    pretty_exceptions_enable=False,
    rich_markup_mode="markdown",
    context_settings={"help_option_names": ["-h", "--help"], "max_content_width": 100},
)

COMMANDS = (
    zoo,
    count,
    measure,
    load,
    simulate,
    train,
    decide,
    compare,
    effects,
    budget,
    records,
    study,
    report,
    export,
    shards,
    push,
)
for group in COMMANDS:
    group.add_commands(app)


def _print_version(wanted: bool) -> None:
    if wanted:
        typer.echo(f"favor {__version__}")
        raise typer.Exit


def docs_folder() -> Path:
    """Where the files are that help and errors name: in the installed package, or in the repository."""
    package = Path(__file__).parents[1]
    return package / "docs" if (package / "docs").is_dir() else package.parents[1] / "docs"


@app.callback(
    epilog=f"`favor COMMAND --help` explains a command and shows examples. The documentation is in {docs_folder()}"
)
def door(
    plugin: Annotated[
        list[str] | None,
        typer.Option(metavar="FILE.py", help="Load models from your own file; repeatable (or set `FAVOR_PLUGINS`)."),
    ] = None,
    debug: Annotated[bool, typer.Option("--debug", help="Show the traceback of an error.")] = False,
    version: Annotated[
        bool, typer.Option("--version", callback=_print_version, is_eager=True, help="Show the version.")
    ] = False,
) -> None:
    """Which vision transformer to favor, on your hardware, under your limits."""
    zoo.remember_plugins(plugin or [])


def main() -> None:
    """Run a command; turn errors that a user can act on into one line and an exit code."""
    words = [word for word in sys.argv[1:] if word != "--debug"]  # allowed before and after the command
    debug = len(words) < len(sys.argv) - 1
    try:
        code = _run(words)
    except typer.TyperException as error:
        if error.format_message():
            note(f"error: {error.format_message()} (see `{_command_path(error)} --help`)")
        code = 2
    except FavorError as error:
        if debug:
            raise
        note(f"error: {error}")
        code = 2 if isinstance(error, RequestError) else 1
    except (KeyboardInterrupt, typer.Abort):
        if debug:
            raise
        note("interrupted")
        code = 130
    except BrokenPipeError:  # `favor list | head` closes the pipe, which needs no message
        code = 1
    except OSError as error:
        if debug:
            raise
        file = "" if error.filename is None else f"{error.filename}: "
        note(f"error: {file}{error.strerror or error}")
        code = 1
    except Exception as error:
        if debug:
            raise
        note(f"internal error: {type(error).__name__}: {error} (run again with --debug for the traceback)")
        code = 1
    sys.exit(code)


def _run(words: list[str]) -> int:
    """Run the command that the words name, flush its output, and return its exit code."""
    if sys.stderr is None:
        sys.stderr = open(os.devnull, "w")  # noqa: PTH123, SIM115 - open as long as the process is
    guard_stdout()
    _check_folder()
    for word in words:
        digits = max(map(len, re.findall(r"\d+", word)), default=0)
        if digits > _MOST_DIGITS:
            raise RequestError(f"an argument has a number with {digits} digits; at most 300 are allowed")
    code = app(words or ["--help"], prog_name="favor", standalone_mode=False) or 0
    sys.stdout.flush()
    return int(code)


def _check_folder() -> None:
    """Refuse to run in a deleted folder: torch's libraries abort the process there."""
    try:
        os.getcwd()  # noqa: PTH109
    except OSError as error:
        raise RequestError(f"the current folder cannot be read ({error.strerror}); change to another one") from error


def _command_path(error: typer.TyperException) -> str:
    context = getattr(error, "ctx", None)
    return context.command_path if context else "favor"
