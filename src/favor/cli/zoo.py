"""`favor list` and `favor show`: the models of the zoo and their cards."""

from dataclasses import asdict
from pathlib import Path
from typing import TYPE_CHECKING, Annotated

import typer

from favor.cli.console import emit_json, emit_table, examples, stdout_console
from favor.errors import RequestError
from favor.terminal import note

if TYPE_CHECKING:
    from favor.records.timm_results import CheckpointAccuracy
    from favor.zoo.checkpoints import Checkpoint
    from favor.zoo.registry import Card

_plugins: list[str] = []


def complete_models(incomplete: str) -> list[str]:
    """The models whose names start with the text, for shell completion."""
    from favor.zoo.registry import list_models

    return [name for name in list_models() if name.startswith(incomplete)]


AsJson = Annotated[bool, typer.Option("--json", help="Print JSON for programs.")]
ModelNames = Annotated[
    list[str],
    typer.Argument(
        metavar="NAME...",
        help="Model names, patterns such as 'vit_*', how:CLASS or timm:NAME.",
        autocompletion=complete_models,
    ),
]
ImgSize = Annotated[int | None, typer.Option(help="Image side in pixels (default: the model's own).")]
NumClasses = Annotated[int, typer.Option(help="Number of classes.")]


def add_commands(app: typer.Typer) -> None:
    app.command("list", epilog=LIST_EXAMPLES)(list_command)
    app.command("show", epilog=SHOW_EXAMPLES)(show_command)


def remember_plugins(paths: list[str]) -> None:
    """Remember the plugins of the command line until a command needs the zoo; loading them imports torch."""
    for path in paths:
        if not Path(path).is_file():
            what = "is a folder" if Path(path).is_dir() else "does not exist"
            raise RequestError(f"plugin {path!r} {what}; give the path of a Python file")
    _plugins[:] = paths


def load_plugins() -> None:
    """Load the plugins of the command line. Every command that takes model names calls this first."""
    from favor.zoo.registry import load_plugin

    while _plugins:
        load_plugin(_plugins.pop(0))


LIST_EXAMPLES = examples(
    ("favor list", "the whole zoo, grouped by the taxonomy"),
    ("favor list 'vit_*'", "models by name pattern"),
    ("favor list --how kernel", "one class"),
    ("favor list --where token_sequence --json", "for programs"),
    ("favor --plugin my_models.py list --origin plugin", "your own models"),
)
SHOW_EXAMPLES = examples(
    ("favor show linformer_s16", "one card"),
    ("favor show ViT-S/16", "the papers' names work too"),
    ("favor show 'linformer_s16(k=256)'", "with other settings, in quotes because of the shell"),
    ("favor show timm:convnext_tiny --json", "any timm model, for programs"),
)


def list_command(
    pattern: Annotated[str, typer.Argument(help="A name, with * and ? as wildcards.")] = "*",
    where: Annotated[str | None, typer.Option(help="Part of ViT that is changed: token_mixing, mlp_block, ...")] = None,
    how: Annotated[
        str | None, typer.Option(help="Class of the model (how it changes ViT): low_rank, sparse, kernel, removal, ...")
    ] = None,
    origin: Annotated[str | None, typer.Option(help="Origin of the code: own, timm or plugin.")] = None,
    as_json: AsJson = False,
) -> None:
    """List the models of the zoo, grouped by where and how they change ViT."""
    from favor.zoo.registry import TIMM, WILDCARDS, card, has_settings, list_models

    load_plugins()
    if pattern.lower().startswith(TIMM):
        raise RequestError("timm's models are not listed; `favor show timm:NAME` shows one of them")
    if has_settings(pattern):
        raise RequestError("models are listed with their default settings; `favor show 'NAME(KEY=VALUE)'` shows others")
    if not any(wildcard in pattern for wildcard in WILDCARDS):
        pattern = card(pattern).name  # resolves an alias, and suggests a name that is close
    cards = [card(name) for name in list_models(pattern, where=where, how=how, origin=origin)]  # type: ignore[arg-type]
    if as_json:
        emit_json([card.as_dict() for card in cards])
    elif cards:
        _print_groups(cards)
    else:
        note("no model matches; `favor list` shows all")


def _print_groups(cards: "list[Card]") -> None:
    from itertools import groupby

    console = stdout_console()
    defined = None
    for how, group in groupby(cards, key=lambda card: card.how):
        members = list(group)
        if how is None:
            console.print("\n[bold]Not in the taxonomy[/]")
        elif how.where.title == how.title:
            console.print(f"\n[bold]{how.title}[/] - {how.where.definition} {how.definition}")
        else:
            if how.where is not defined:
                console.print(f"\n[bold]{how.where.title}[/] - {how.where.definition}")
            console.print(f"\n[bold]{how.where.title}: {how.title}[/] - {how.definition}")
            defined = how.where
        families: dict[str, list[Card]] = {}
        for card in members:
            families.setdefault(card.family, []).append(card)
        emit_table(
            "",
            ("Architecture", "Year", "Paper", "Complexity", "From", "Models"),
            [
                (
                    f[0].title if len({card.title for card in f}) == 1 else f[0].family,
                    str(f[0].year or ""),
                    f[0].paper or "",
                    f[0].complexity or "",
                    f[0].origin,
                    " ".join(card.name for card in f),
                )
                for f in families.values()
            ],
        )
    families_total = len({card.family for card in cards})
    note(f"{len(cards)} models of {families_total} architectures; `favor show NAME` describes one")


def show_command(
    name: Annotated[
        str, typer.Argument(help="A model's name, an alias, or timm:NAME.", autocompletion=complete_models)
    ],
    as_json: AsJson = False,
) -> None:
    """Show a model's card: what it changes in ViT, its paper, its variants and its pretrained weights."""
    from favor.zoo.registry import card, list_models

    load_plugins()
    model = card(name)
    variants = list_models(family=model.family) or [model.name]
    published = _published(model.name)
    if as_json:
        emit_json({**model.as_dict(), "variants": variants, "checkpoints": [_as_dict(*one) for one in published]})
        return
    from rich.table import Table
    from rich.text import Text

    console = stdout_console()
    console.print(Text.assemble((model.name, "bold"), f" - {model.title}"))
    rows = [
        ("changes", model.changes),
        ("where", f"{model.where.title} - {model.where.definition}" if model.where else "not in the taxonomy"),
        ("how", f"{model.how.title} - {model.how.definition}" if model.how else "not in the taxonomy"),
        ("year", str(model.year or "unknown")),
        ("paper", _paper(model.paper)),
        ("complexity", model.complexity or "not claimed"),
        ("image sizes", f"{model.image_sizes} (default {model.image_sizes.default})"),
        ("code", model.origin),
        ("variants", " ".join(variants)),
        ("also known as", " ".join(model.aliases)),
        ("graph breaks", model.graph_breaks or ""),
        *(("note", text) for text in model.notes),
    ]
    grid = Table.grid(padding=(0, 2))
    for label, value in rows:
        if value:
            grid.add_row(Text(label, style="bold"), Text(value))
    console.print(grid)
    if not published:
        console.print("\nPretrained weights: none published")
        return
    emit_table(
        "Pretrained weights",
        ("tag", "image", "top-1", "training", "mean, std", "crop", "license", "source"),
        [
            (
                one.tag,
                f"{one.img_size} px",
                "" if reached is None or one.borrowed else f"{reached.top1:.2f} %",
                _training(one, reached),
                f"{_numbers(one.mean)}, {_numbers(one.std)}",
                f"{one.crop_ratio:g} {one.interpolation}",
                one.license or "not stated",
                one.source,
            )
            for one, reached in published
        ],
        right=("image", "top-1"),
    )
    if published[0][0].borrowed:
        note(
            f"these weights were trained in a network that keeps all tokens; the accuracy of {model.name} with them "
            "is not published"
        )


def _published(name: str) -> "list[tuple[Checkpoint, CheckpointAccuracy | None]]":
    """The checkpoints of a model at the image size of their training, and at others for which timm has an accuracy."""
    from favor.records.timm_results import checkpoint_accuracies
    from favor.zoo.checkpoints import architectures_of, checkpoints

    architectures = architectures_of(name)
    if not architectures:
        return []
    reached = {(one.checkpoint, one.img_size): one for one in checkpoint_accuracies(architectures)}
    rows = []
    for one in checkpoints(name):
        sizes = {one.img_size} | {size for checkpoint, size in reached if checkpoint == one.name}
        rows += [(one.at(size), reached.get((one.name, size))) for size in sorted(sizes)]
    return rows


def _training(checkpoint: "Checkpoint", reached: "CheckpointAccuracy | None") -> str:
    """How weights were trained, in a few words: recipe, data, and whether there was a teacher."""
    said = [checkpoint.recipe]
    if checkpoint.num_classes != 1000:
        said.append(f"{checkpoint.num_classes} classes" if checkpoint.num_classes else "no classes: features only")
    elif reached is not None:
        before = "" if reached.pretraining == "imagenet-1k" else f"{reached.pretraining}, then "
        said += [f"{before}imagenet-1k", "distilled" if reached.distilled else ""]
    return ", ".join(filter(None, said))


def _numbers(three: tuple[float, float, float]) -> str:
    return f"{three[0]:g}" if len(set(three)) == 1 else " ".join(f"{number:g}" for number in three)


def _as_dict(checkpoint: "Checkpoint", reached: "CheckpointAccuracy | None") -> dict[str, object]:
    own = None if checkpoint.borrowed else reached
    accuracy = {"top1": own and own.top1, "top5": own and own.top5}
    return {"name": checkpoint.name, **asdict(checkpoint), "training": _training(checkpoint, reached), **accuracy}


def _paper(paper: str | None) -> str:
    if paper is None:
        return "unknown"
    return f"arXiv:{paper}" if paper.replace(".", "").isdigit() else paper
