"""`favor push`: a trained model or a study on the Hugging Face Hub."""

from pathlib import Path
from tempfile import TemporaryDirectory
from typing import TYPE_CHECKING, Annotated

import typer

from favor.cli.console import emit_json, emit_table, examples
from favor.cli.records import paper_table
from favor.cli.zoo import AsJson, load_plugins
from favor.errors import RequestError
from favor.terminal import note

if TYPE_CHECKING:
    from favor.records.schema import Record
    from favor.sharing.push import Repository

EXAMPLES = examples(
    ("favor push runs/train/runs/RUN --to hub:me/my-vit", "the best model of a run, with a model card"),
    ("favor push runs/quick --to hub:me/quick-study --private", "a study: its records and a table"),
    ("favor push runs/train/runs/RUN --to hub:me/my-vit --dry-run", "write the files and upload nothing"),
)
DRY_RUNS = Path("runs/push")


def add_commands(app: typer.Typer) -> None:
    app.command("push", epilog=EXAMPLES)(push_command)


def push_command(
    source: Annotated[
        Path, typer.Argument(metavar="STUDY|RUN", help="A study, the folder of a run, or a checkpoint file.")
    ],
    to: Annotated[str, typer.Option("--to", metavar="hub:USER/NAME", help="Repository; created if it does not exist.")],
    private: Annotated[bool, typer.Option("--private", help="Create a private repository.")] = False,
    dry_run: Annotated[bool, typer.Option("--dry-run", help="Write the files to runs/push; upload nothing.")] = False,
    as_json: AsJson = False,
) -> None:
    """Upload a trained model or a study to the Hugging Face Hub, with a card that says how it was measured.

    A run becomes a model repository: weights (safetensors), config, records, and a model card with accuracy and costs.
    `favor finetune`, `evaluate`, `predict` and `export` then take `hub:USER/NAME` as the checkpoint. A study
    becomes a dataset repository: its records and a table. See `docs/sharing.md`.
    """
    load_plugins()
    from favor.sharing.push import Repository, is_study, repository_name, upload

    name = repository_name(to)
    repository = Repository(name, "dataset" if is_study(source) else "model")
    with TemporaryDirectory() as temporary:
        folder = DRY_RUNS / name if dry_run else Path(temporary)
        if dry_run and folder.exists():
            raise RequestError(f"{folder} exists; remove it, or choose another name")
        hosts = _write(source, repository, folder)
        if hosts:
            note(f"the records name the machine ({', '.join(hosts)}); --dry-run shows what would be uploaded")
        files = {file.name: file.stat().st_size for file in sorted(folder.iterdir())}
        url = folder if dry_run else upload(folder, repository, private)
    about = {"repository": name, "kind": repository.kind, "uploaded": not dry_run, "place": str(url)}
    if as_json:
        emit_json({**about, "files": files})
        return
    from favor.units import format_quantity

    note(f"written to {url}; nothing was uploaded" if dry_run else f"uploaded to {url}")
    rows = [(file, format_quantity(float(size), "B")) for file, size in files.items()]
    emit_table("", ("file", "size"), rows, right=("size",))


def _write(source: Path, repository: "Repository", folder: Path) -> list[str]:
    """Write the repository's files; returns the names of machines in its records."""
    from favor.records.store import read
    from favor.records.table import read_current
    from favor.sharing.cards import RECORDS
    from favor.sharing.push import write_model, write_study

    if repository.kind == "dataset":
        records = read_current(source).records
        write_study(records, _tables(source, records), repository, folder)
    else:
        write_model(source, repository, folder)
    written = read(folder / RECORDS).records if (folder / RECORDS).is_file() else ()
    return sorted({str(record.environment["host"]) for record in written if "host" in record.environment})


def _tables(study: Path, records: "tuple[Record, ...]") -> list[tuple[str, str]]:
    """A table for each dataset that models were trained on, or one with the published accuracies if there is none."""
    from favor.analyze import Scope

    trained_on = {
        str(record.conditions["dataset"]): None
        for record in records
        if record.task == "accuracy" and record.status == "ok" and "dataset" in record.conditions
    }
    tables = []
    printed: set[str] = set()

    def tell_once(text: str) -> None:
        if text not in printed:
            note(text)
        printed.add(text)

    for dataset in trained_on or ("imagenet-1k",):
        try:
            tables.append((f"Results on {dataset}", paper_table([study], None, Scope(dataset), tell=tell_once)))
        except RequestError as error:
            note(f"no table for {dataset}: {error}")
    return tables
