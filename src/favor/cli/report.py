"""`favor report` and `favor figures`: the interactive page, and the papers' figures as files."""

from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Literal

import typer

from favor.cli.console import examples
from favor.cli.evidence import OverSeeds, Pipeline, Unfinished
from favor.errors import WorkError
from favor.terminal import note, progress_bar

if TYPE_CHECKING:
    from rich.progress import Progress

    from favor.records import Gathered
    from favor.report.progress import Track
    from favor.report.study_answer import StudyAnswer

Studies = Annotated[
    list[Path] | None,
    typer.Argument(metavar="STUDY...", help="Study folders or record files (default: only the papers' numbers)."),
]

REPORT_EXAMPLES = examples(
    ("favor report my-study -o report.html", "one file that works offline"),
    ("favor report here there", "the studies of two machines on one page"),
    ("favor report", "the papers' numbers and favor's counts, before you measure anything"),
)

FIGURES_EXAMPLES = examples(
    ("favor figures my-study -o figures --format pdf", "for a paper"),
    ("favor figures --format png", "only the papers' numbers, for slides"),
)


def add_commands(app: typer.Typer) -> None:
    app.command("report", epilog=REPORT_EXAMPLES)(report_command)
    app.command("figures", epilog=FIGURES_EXAMPLES)(figures_command)


def report_command(
    studies: Studies = None,
    output: Annotated[
        Path | None,
        typer.Option(
            "-o", "--output", metavar="FILE", help="Output file (default: report.html in the study or in runs)."
        ),
    ] = None,
    pipeline: Pipeline = None,
    unfinished: Unfinished = False,
    seeds: OverSeeds = "mean",
) -> None:
    """Write one interactive HTML page: explorer, recommendation, the papers' figures, table and method."""
    from favor.analyze import Scope
    from favor.atomic_file import require_writable, write_whole
    from favor.report.page import page_of

    file = output or _default_folder(studies) / "report.html"
    require_writable(file)
    gathered = _gathered(studies)
    scope = Scope(None, pipeline, False, unfinished, seeds)
    with progress_bar() as bar:
        page = page_of(gathered, scope, _shown_on(bar), _answer_of(studies)).encode()
    write_whole(file, page)
    note(f"{len(page) / 1e6:.1f} MB: {file}")


def figures_command(
    studies: Studies = None,
    output: Annotated[
        Path | None,
        typer.Option("-o", "--output", metavar="DIR", help="Output folder (default: figures in the study or in runs)."),
    ] = None,
    file_format: Annotated[
        Literal["pdf", "svg", "png"], typer.Option("--format", help="pdf or svg for papers, png for slides.")
    ] = "pdf",
    pipeline: Pipeline = None,
    unfinished: Unfinished = False,
    seeds: OverSeeds = "mean",
) -> None:
    """Draw the papers' figures from your records, one file each."""
    from favor.analyze import Scope
    from favor.report.figures import export

    table = _gathered(studies).table
    scope = Scope(None, pipeline, False, unfinished, seeds)
    with progress_bar() as bar:
        folder = output or _default_folder(studies) / "figures"
        written = export(table, folder, file_format, scope, _shown_on(bar))
    note(f"{len(written)} figures in {folder}")


def _default_folder(studies: list[Path] | None) -> Path:
    """The study's folder if exactly one is given, else `runs`."""
    if studies is not None and len(studies) == 1 and studies[0].is_dir():
        return studies[0]
    folder = Path("runs")
    try:
        folder.mkdir(exist_ok=True)
    except OSError as error:
        raise WorkError(f"cannot create the folder {folder}: {error.strerror}; choose another place with -o") from error
    return folder


def _answer_of(studies: list[Path] | None) -> "StudyAnswer | None":
    """The answer of the one study that is shown, if `favor run` created it."""
    from favor.cli.study import study_answer
    from favor.study.folder import has_requests, saved_requests

    if studies is None or len(studies) != 1 or not has_requests(studies[0]):
        return None
    answered = [study for study in saved_requests(studies[0]) if study.command == "run"]
    return study_answer(answered[0], studies[0]) if answered else None


def _gathered(studies: list[Path] | None) -> "Gathered":
    """The records to show; notes report skipped lines, and that no study was given."""
    from favor.records import gather

    gathered = gather(studies or [])
    for problem in gathered.problems:
        note(f"warning: {problem}")
    if not gathered.paths:
        note("no study given: showing only the papers' numbers and favor's counts")
    return gathered


def _shown_on(bar: "Progress") -> "Track":
    return lambda items, what: bar.track(items, description=what)
