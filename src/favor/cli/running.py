"""What commands that run jobs have in common: their options, and how they end."""

import signal
from pathlib import Path
from typing import TYPE_CHECKING, Annotated

import typer

from favor.errors import RequestError, if_here, unknown_name
from favor.terminal import note

if TYPE_CHECKING:
    from favor.study.progress import Repeat
    from favor.study.running import Ended

StudyFolder = Annotated[
    Path | None,
    typer.Option("--study", metavar="DIR", help="Save the records in this study (default: only print them)."),
]
RepeatOption = Annotated[
    str | None,
    typer.Option("--repeat", metavar="failed|flagged|all", help="Repeat failed jobs, jobs with flags, or all jobs."),
]
Wait = Annotated[
    bool, typer.Option("--wait", help="Wait until the device and the study are free; on Slurm, until the jobs end.")
]
LogOption = Annotated[
    list[str] | None,
    typer.Option(
        "--log",
        metavar="NAME",
        help="Also send results to tensorboard, wandb, mlflow or trackio; repeatable (docs/sharing.md).",
    ),
]


def trackers_of(names: list[str] | None, missing_here: list[str] | None = None) -> tuple[str, ...]:
    """The trackers that options name; a dry run gives `missing_here` for those whose packages are missing."""
    from favor.training.trackers import TRACKERS, require_trackers

    for name in names or ():
        if name not in TRACKERS:
            unknown = unknown_name("tracker", name, TRACKERS, "choose from " + ", ".join(TRACKERS))
            raise RequestError(f"--log: {unknown}")
    if_here(missing_here, require_trackers, names or ())
    return tuple(dict.fromkeys(names or ()))


def repeat_of(text: str | None) -> "Repeat | None":
    """The jobs to repeat that an option names."""
    from favor.study.progress import REPEATS

    if text is None:
        return None
    for repeat in REPEATS:
        if text == repeat:
            return repeat
    raise unknown_name("value of --repeat", text, REPEATS, "choose from " + ", ".join(REPEATS))


def finish(ended: "Ended", how_to_continue: str | None = None) -> None:
    """Retry failed writes, and exit if the run was stopped, saying how to continue."""
    ended.write_rest()
    if ended.stopped_by is not None:
        folder = ended.session.folder
        same = "the same command continues from there"
        again = same if folder else "add --study DIR to be able to continue where a command stopped"
        saved = f"; saved in {folder}" if folder else ""
        note(f"stopped by {ended.stopped_by.name}{saved}: {how_to_continue or again}")
        raise typer.Exit(130 if ended.stopped_by is signal.SIGINT else 0)


def print_refusals(ended: "Ended") -> None:
    """Print why jobs were refused; they have no record."""
    for refusal in ended.refused:
        note(f"error: {refusal}")


def end(ended: "Ended", how_to_continue: str | None = None) -> None:
    """Finish, and exit with 1 if a job was refused or failed."""
    finish(ended, how_to_continue)
    print_refusals(ended)
    if ended.refused or any(record.status != "ok" for record in ended.records):
        raise typer.Exit(1)
