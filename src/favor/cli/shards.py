"""`favor shards`: a dataset as WebDataset shards."""

from pathlib import Path
from typing import TYPE_CHECKING, Annotated

import typer

from favor.cli.console import emit_json, emit_table, examples
from favor.cli.zoo import AsJson
from favor.terminal import note, progress_bar

if TYPE_CHECKING:
    from favor.data.shard_index import Shard

EXAMPLES = examples(
    ("favor shards imagenet -o /scratch/imagenet", "then train with --data imagenet-1k:/scratch/imagenet"),
    ("favor shards folder:photos -o photos-shards --shard-size 100MB", "your own images, in smaller shards"),
    ("favor shards imagenet-21k -o /scratch/imagenet-21k", "if it was killed, run it again to continue"),
)


def add_commands(app: typer.Typer) -> None:
    app.command("shards", epilog=EXAMPLES)(shards_command)


def shards_command(
    data: Annotated[str, typer.Argument(metavar="NAME[:PATH]", help="A dataset by name, or folder:PATH.")],
    output: Annotated[Path, typer.Option("-o", "--output", metavar="DIR", help="The folder for the shards.")],
    shard_size: Annotated[str, typer.Option("--shard-size", metavar="SIZE", help="Maximum size of a shard.")] = "1GB",
    as_json: AsJson = False,
) -> None:
    """Write a dataset as WebDataset shards: a few large files, which shared file systems read fast.

    If a folder has only `val/`, its shards can be used by `favor evaluate` only.
    """
    from favor.data.broken import BrokenImages
    from favor.data.names import parse
    from favor.data.opening import open_to_copy
    from favor.data.shard_writing import write_shards
    from favor.units import format_quantity, parse_quantity

    shard_bytes = int(parse_quantity(shard_size, "B", "--shard-size"))
    known, opened, broken = parse(data).known, open_to_copy(data), BrokenImages()
    with progress_bar() as bar:
        task = bar.add_task(f"shards of {known.name}", total=len(opened.train) + len(opened.evaluation))
        index = write_shards(
            opened, known.name, output, shard_bytes, broken, lambda visited: bar.advance(task, visited)
        )
    reading = f"{known.name if known.places else 'folder'}:{output}"
    splits = {"train": index.train, "val": index.val}
    if as_json:
        counts = {split: _counts(shards) for split, shards in splits.items()}
        emit_json({"folder": str(output), "data": reading, "classes": len(index.classes), **counts})
        return
    rows = [
        (split, f"{counts['images']:,}", str(counts["shards"]), format_quantity(float(counts["bytes"]), "B"))
        for split, counts in ((split, _counts(shards)) for split, shards in splits.items())
    ]
    title = f"{opened.name}, {len(index.classes):,} classes"
    emit_table(title, ("split", "images", "shards", "size"), rows, ("images", "shards", "size"))
    evaluation_only = "" if len(opened.train) else ", in `favor evaluate` only: there are no training images"
    note(f"use them with --data {reading}{evaluation_only}")


def _counts(shards: "tuple[Shard, ...]") -> dict[str, int]:
    return {
        "images": sum(shard.images for shard in shards),
        "shards": len(shards),
        "bytes": sum(shard.bytes for shard in shards),
    }
