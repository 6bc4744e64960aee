"""The door: every command of favor, each group in a file of its own.

Data goes to stdout, everything else (progress, notes, errors) to stderr. Exit codes: 0 done, 1 the work failed,
2 the request was wrong. Command files import what is heavy inside their functions, so that `--help` stays fast.
"""

import sys
from typing import Annotated

import typer

from favor.cli import count, decide, measure, records, report, simulate, study, train, zoo
from favor.cli.console import note
from favor.errors import FavorError, RequestError
from favor.version import __version__

app = typer.Typer(
    name="favor",
    no_args_is_help=True,
    add_completion=False,
    pretty_exceptions_enable=False,
    rich_markup_mode="markdown",
    context_settings={"help_option_names": ["-h", "--help"]},
)

for group in (zoo, count, measure, simulate, train, decide, records, study, report):
    group.add_commands(app)


def _print_version(wanted: bool) -> None:
    if wanted:
        typer.echo(f"favor {__version__}")
        raise typer.Exit


@app.callback()
def door(
    plugin: Annotated[
        list[str] | None,
        typer.Option(metavar="FILE.py", help="Load models from your own file; repeatable. Also `FAVOR_PLUGINS`."),
    ] = None,
    debug: Annotated[bool, typer.Option(help="Show the traceback of an error.")] = False,
    version: Annotated[
        bool, typer.Option("--version", callback=_print_version, is_eager=True, help="Show the version.")
    ] = False,
) -> None:
    """Which vision transformer to favor, on your hardware, under your limits."""
    zoo.remember_plugins(plugin or [])


def main() -> None:
    """Run a command; turn errors that a user can act on into one line and an exit code."""
    debug = "--debug" in sys.argv[1:]
    sys.argv = [word for word in sys.argv if word != "--debug"]  # it may stand before or after the command
    try:
        app()
    except FavorError as error:
        if debug:
            raise
        note(f"error: {error}")
        sys.exit(2 if isinstance(error, RequestError) else 1)
    except KeyboardInterrupt:
        if debug:
            raise
        note("interrupted")
        sys.exit(130)
    except Exception as error:
        if debug:
            raise
        note(f"internal error: {type(error).__name__}: {error} (run again with --debug for the traceback)")
        sys.exit(1)
