"""`favor count`: parameters, multiply-adds, FLOPs, activations and bytes of models, without running them."""

from collections.abc import Sequence
from pathlib import Path
from typing import TYPE_CHECKING, Annotated

import typer

from favor.cli.console import emit_json, emit_table, examples, note, progress_bar
from favor.cli.running import StudyFolder, Wait, run_session
from favor.cli.zoo import AsJson, load_plugins
from favor.errors import RequestError, unknown_name

if TYPE_CHECKING:
    from favor.trace.counts import Counts

EXAMPLES = examples(
    ("favor count vit_s16", "one model at its own image size"),
    ("favor count 'vit_*' 'timm:convnext_*' --img-size 384", "names by pattern"),
    ("favor count 'linformer_s16(k=256)' 'evit_*16(keep=0.5)'", "with other settings, in quotes because of the shell"),
    ("favor count deit_s16 --by-op", "operator by operator"),
    ("favor count swin_ti --phase training --batch-size 8", "a training step, figures per image"),
    ("favor count 'vit_*' --study my-study", "kept as records of a study"),
    ("favor count 'linformer_*' --json", "for programs"),
)


def add_commands(app: typer.Typer) -> None:
    app.command("count", epilog=EXAMPLES)(count_command)


def count_command(
    names: Annotated[
        list[str], typer.Argument(metavar="NAME...", help="Names, patterns with * and ?, how:CLASS; also timm:NAME.")
    ],
    img_size: Annotated[int | None, typer.Option(help="Image side in px; each model's own unless given.")] = None,
    num_classes: Annotated[int, typer.Option(help="Classes of the head.")] = 1000,
    batch_size: Annotated[int, typer.Option(help="Images in the pass; figures stay per image.")] = 1,
    phase: Annotated[
        str, typer.Option(help="inference, or training: a step of forward pass, cross entropy and backward pass.")
    ] = "inference",
    by_op: Annotated[bool, typer.Option("--by-op", help="Show every operator's share, for the whole batch.")] = False,
    study: StudyFolder = None,
    wait: Wait = False,
    as_json: AsJson = False,
) -> None:
    """Count what models cost on paper. Work, activations and bytes are per image; a multiply-add is two FLOPs."""
    from favor.trace.conditions import PHASES
    from favor.zoo.matching import matching_models

    if phase not in PHASES:
        raise unknown_name("phase", phase, PHASES, "choose from " + ", ".join(PHASES))
    load_plugins()
    if study is not None:
        if (phase, batch_size, by_op) != ("inference", 1, False):
            raise RequestError(
                "--study keeps counts of inference at batch size 1, without operators; leave out --phase, "
                "--batch-size and --by-op, or --study"
            )
        _count_into(study, names, img_size, num_classes, wait, as_json)
        return
    _count(matching_models(names), img_size, num_classes, batch_size, phase == "training", by_op, as_json)


def _count(
    names: list[str],
    img_size: int | None,
    num_classes: int,
    batch_size: int,
    training: bool,
    by_op: bool,
    as_json: bool,
) -> None:
    from favor.errors import FavorError
    from favor.trace.counts import count

    counted: list[Counts] = []
    failures: list[tuple[str, FavorError]] = []
    with progress_bar() as bar:
        task = bar.add_task("counting", total=len(names), visible=len(names) > 1)
        for name in names:
            bar.update(task, description=name)
            try:
                counted.append(
                    count(name, img_size=img_size, num_classes=num_classes, batch_size=batch_size, training=training)
                )
            except FavorError as error:
                failures.append((name, error))
            bar.advance(task)
    if as_json:
        emit_json([as_dict(counts, by_op) for counts in counted])
    elif counted:
        _print(counted, by_op)
    for name, failure in failures:
        note(f"error: {name}: {failure}")
    if failures:
        asked_wrongly = not counted and all(isinstance(failure, RequestError) for _, failure in failures)
        raise typer.Exit(2 if asked_wrongly else 1)


def _count_into(
    study: Path, names: list[str], img_size: int | None, num_classes: int, wait: bool, as_json: bool
) -> None:
    """Count as jobs of a study; counts that come with favor are not made again."""
    from favor.cli.options import study_from_options
    from favor.study.session import extend, working_in

    options = {"img_sizes": None if img_size is None else [img_size], "num_classes": num_classes}
    asked = study_from_options("count", names, ("count",), options)
    with working_in(study, wait):
        ended = run_session(extend(asked, study), wait=wait)
    if as_json:
        from favor.records.schema import to_data

        emit_json([to_data(record) for record in ended.records])
    else:
        counted = [record for record in ended.records if record.status == "ok"]
        _print_table(
            f"Counts per image, inference, batch size 1, {num_classes} classes",
            [
                (
                    record.name,
                    str(record.conditions["img_size"]),
                    *(_scaled(int(entry.value)) if entry else "" for entry in map(record.metrics.get, TABLE_COLUMNS)),
                )
                for record in counted
            ],
        )
    ended.finish("the same command goes on from there")
    if any(record.status != "ok" for record in ended.records):
        raise typer.Exit(1)


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


def _print(counted: "list[Counts]", by_op: bool) -> None:
    first = counted[0]
    phase = "training step" if first.training else "inference"
    _print_table(
        f"Counts per image, {phase}, batch size {first.batch_size}, {first.num_classes} classes",
        [(c.name, _px(c.img_size), *(_scaled(getattr(c, name)) for name in TABLE_COLUMNS)) for c in counted],
    )
    if by_op:
        for counts in counted:
            _print_operators(counts)


def _print_table(title: str, rows: Sequence[tuple[str, ...]]) -> None:
    columns = ("px", *TABLE_COLUMNS.values())
    emit_table(title, ("Model", *columns), rows, right=columns)


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
