"""`favor count`: parameters, multiply-adds, FLOPs, activations and bytes of models, without running them."""

from typing import TYPE_CHECKING, Annotated

import typer

from favor.cli.console import emit_json, emit_table, examples, note, progress_bar
from favor.cli.zoo import AsJson, load_plugins

if TYPE_CHECKING:
    from favor.trace.counts import Counts

EXAMPLES = examples(
    ("favor count vit_s16", "one model at its own image size"),
    ("favor count 'vit_*' 'timm:convnext_*' --img-size 384", "names by pattern"),
    ("favor count deit_s16 --by-op", "operator by operator"),
    ("favor count swin_ti --training --batch-size 8", "a training step, figures per image"),
    ("favor count 'linformer_*' --json", "for programs"),
)


def add_commands(app: typer.Typer) -> None:
    app.command("count", epilog=EXAMPLES)(count_command)


def count_command(
    names: Annotated[
        list[str], typer.Argument(metavar="NAME...", help="Names or patterns with * and ?; also timm:NAME.")
    ],
    img_size: Annotated[int | None, typer.Option(help="Image side in px; each model's own unless given.")] = None,
    num_classes: Annotated[int, typer.Option(help="Classes of the head.")] = 1000,
    batch_size: Annotated[int, typer.Option(help="Images in the pass; figures stay per image.")] = 1,
    training: Annotated[bool, typer.Option(help="Count a training step: forward, cross entropy, backward.")] = False,
    by_op: Annotated[bool, typer.Option("--by-op", help="Show every operator's share, for the whole batch.")] = False,
    as_json: AsJson = False,
) -> None:
    """Count what models cost on paper. Work, activations and bytes are per image; a multiply-add is two FLOPs."""
    from favor.errors import FavorError, RequestError
    from favor.trace.counts import count

    load_plugins()
    wanted = expand(names)
    found: list[Counts] = []
    failures: list[tuple[str, FavorError]] = []
    with progress_bar() as bar:
        task = bar.add_task("counting", total=len(wanted), visible=len(wanted) > 1)
        for name in wanted:
            bar.update(task, description=name)
            try:
                found.append(
                    count(name, img_size=img_size, num_classes=num_classes, batch_size=batch_size, training=training)
                )
            except FavorError as error:
                failures.append((name, error))
            bar.advance(task)
    if as_json:
        emit_json([as_dict(counts, by_op) for counts in found])
    else:
        _print(found, by_op)
    for name, failure in failures:
        note(f"error: {name}: {failure}")
    if failures:
        asked_wrongly = not found and all(isinstance(failure, RequestError) for _, failure in failures)
        raise typer.Exit(2 if asked_wrongly else 1)


def expand(names: list[str]) -> list[str]:
    """Names and patterns to the names that they stand for, each once, in the order given."""
    from favor.errors import RequestError
    from favor.zoo.registry import list_models

    found: dict[str, None] = {}
    for name in names:
        if not name.strip():
            raise RequestError("a model's name is empty; `favor list` shows all")
        if not any(mark in name for mark in "*?["):
            matches = [name]
        elif name.startswith("timm:"):
            import timm

            matches = ["timm:" + match for match in timm.list_models(name.removeprefix("timm:"))]
        else:
            matches = list_models(name)
        if not matches:
            raise RequestError(f"no model fits the pattern {name!r}; `favor list` shows all")
        found.update(dict.fromkeys(matches))
    return list(found)


def as_dict(counts: "Counts", by_op: bool) -> dict[str, object]:
    """A model's counts with stable keys: name, the counts, and the conditions they hold under."""
    from dataclasses import asdict

    from favor.trace.counts import METRIC_NAMES

    data: dict[str, object] = {"name": counts.name, **{metric: getattr(counts, metric) for metric in METRIC_NAMES}}
    data["conditions"] = {
        "img_size": list(counts.img_size),
        "num_classes": counts.num_classes,
        "batch_size": counts.batch_size,
        "training": counts.training,
        **counts.operating_point,
    }
    if by_op:
        data["by_operator"] = [asdict(operator) for operator in counts.by_operator]
    return data


TABLE_COLUMNS = {
    "params": "Params",
    "weight_bytes": "Weights [B]",
    "macs_matmul": "MACs matmul",
    "macs": "MACs",
    "flops": "FLOPs",
    "ops_mixed": "Ops mixed",
    "activations": "Activations",
    "bytes_moved": "Moved [B]",
}
"""What fits a terminal; `--json` has all counts, and docs/metrics.md says what each of them is."""


def _print(found: "list[Counts]", by_op: bool) -> None:
    if not found:
        return
    first = found[0]
    phase = "training step" if first.training else "inference"
    emit_table(
        f"Counts per image, {phase}, batch size {first.batch_size}, {first.num_classes} classes",
        ("Model", "px", *TABLE_COLUMNS.values()),
        [(c.name, _px(c.img_size), *(_scaled(getattr(c, name)) for name in TABLE_COLUMNS)) for c in found],
        right=("px", *TABLE_COLUMNS.values()),
    )
    if by_op:
        for counts in found:
            _print_operators(counts)


def _print_operators(counts: "Counts") -> None:
    columns = ("Operator", "Kind", "Phase", "Calls", "MACs (matmul)", "FLOPs", "Activations", "Bytes moved")
    emit_table(
        f"{counts.name}: operators, for the whole batch of {counts.batch_size}",
        columns,
        [
            (
                row.operator,
                row.kind,
                row.phase,
                str(row.calls),
                _scaled(row.macs_matmul),
                _scaled(row.flops),
                _scaled(row.activations),
                _scaled(row.bytes_moved),
            )
            for row in counts.by_operator
        ],
        right=columns[3:],
    )


def _px(img_size: tuple[int, int]) -> str:
    height, width = img_size
    return str(height) if height == width else f"{height}x{width}"


def _scaled(value: int) -> str:
    """A count with four digits and a prefix.

    >>> _scaled(4598882304)
    '4.599 G'
    """
    for factor, prefix in ((10**12, "T"), (10**9, "G"), (10**6, "M"), (10**3, "k")):
        if value >= factor:
            return f"{value / factor:.4g} {prefix}"
    return str(value)
