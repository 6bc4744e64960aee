"""`favor count`: parameters, multiply-adds, FLOPs, activations and bytes of models, without running them."""

from collections.abc import Callable, Sequence
from functools import partial
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any, TypeVar

import typer

from favor.cli.console import emit_json, emit_records, emit_table, examples
from favor.cli.running import StudyFolder, Wait, end
from favor.cli.zoo import AsJson, ImgSize, ModelNames, NumClasses, load_plugins
from favor.errors import FavorError, RequestError
from favor.terminal import note, progress_bar

if TYPE_CHECKING:
    from favor.trace.counts import Counts
    from favor.trace.peak_memory import PeakMemory

EXAMPLES = examples(
    ("favor count vit_s16", "one model at its default image size"),
    ("favor count 'vit_*' 'timm:convnext_*' --img-size 384", "models by name pattern"),
    ("favor count 'linformer_s16(k=256)' 'evit_*16(keep=0.5)'", "with other settings, in quotes because of the shell"),
    ("favor count deit_s16 --by-op", "operator by operator"),
    ("favor count swin_ti --phase training --batch-size 8", "a training step; counts are per image"),
    ("favor count vit_s16 --phase training --memory", "the parts of the peak memory of a training step on a GPU"),
    ("favor count 'vit_*' --study my-study", "saved as records of a study"),
    ("favor count 'linformer_*' --json", "for programs"),
)


def add_commands(app: typer.Typer) -> None:
    app.command("count", epilog=EXAMPLES)(count_command)


def count_command(
    names: ModelNames,
    img_size: ImgSize = None,
    num_classes: NumClasses = 1000,
    batch_size: Annotated[
        int | None,
        typer.Option(help="Batch size (default: 1, or 2048 with --memory); counts stay per image."),
    ] = None,
    phase: Annotated[
        str, typer.Option(help="inference, or training (one step: forward pass, cross entropy, backward pass).")
    ] = "inference",
    by_op: Annotated[bool, typer.Option("--by-op", help="Also show each operator, for the whole batch.")] = False,
    memory: Annotated[
        bool, typer.Option("--memory", help="Break down the peak memory of a training step on a GPU.")
    ] = False,
    precision: Annotated[
        str | None, typer.Option(help="For --memory: fp32, bf16, amp (default, here amp-fp16), amp-fp16 or amp-bf16.")
    ] = None,
    optimizer: Annotated[str | None, typer.Option(help="For --memory: lamb (default), adamw, adam or sgd.")] = None,
    attention: Annotated[
        str | None,
        typer.Option(
            help="For --memory: fused (default), or plain (keeps the attention matrix, as before PyTorch 2.0)."
        ),
    ] = None,
    study: StudyFolder = None,
    wait: Wait = False,
    as_json: AsJson = False,
) -> None:
    """Count parameters, FLOPs, activations and bytes of models; nothing is computed.

    No weights are allocated. Counts are per image; a multiply-add is two FLOPs.
    """
    from favor.trace.conditions import phase_named
    from favor.zoo.matching import matching_models

    is_training = phase_named(phase) == "training"
    if memory and (not is_training or by_op or study is not None):
        raise RequestError(
            "--memory prints the memory of a training step: add --phase training, and leave out --by-op and --study"
        )
    if not memory and (precision or optimizer or attention):
        raise RequestError("--precision, --optimizer and --attention affect only the memory; add --memory")
    load_plugins()
    if study is not None:
        if is_training or by_op or (batch_size or 1) != 1:
            raise RequestError(
                "--study keeps counts of inference at batch size 1, without operators; leave out --phase, "
                "--batch-size and --by-op, or --study"
            )
        _count_into(study, names, img_size, num_classes, wait, as_json)
        return
    wanted = matching_models(names)
    if memory:
        given = {"batch_size": batch_size, "precision": precision, "optimizer": optimizer, "attention": attention}
        chosen = {name: value for name, value in given.items() if value is not None}
        _memory(wanted, as_json, img_size=img_size, num_classes=num_classes, **chosen)
        return
    of_pass = {"img_size": img_size, "num_classes": num_classes, "batch_size": 1 if batch_size is None else batch_size}
    _count(wanted, by_op, as_json, training=is_training, **of_pass)


def _count(names: list[str], by_op: bool, as_json: bool, **conditions: Any) -> None:
    from favor.trace.counts import count

    counted, failures = _of_each(names, partial(count, **conditions))
    if as_json:
        emit_json([as_dict(counts, by_op) for counts in counted])
    elif counted:
        _print(counted, by_op)
    _end_with(failures, bool(counted))


def _memory(names: list[str], as_json: bool, **conditions: Any) -> None:
    from favor.trace.peak_memory import peak_memory

    peaks, failures = _of_each(names, partial(peak_memory, **conditions))
    if as_json:
        emit_json([_memory_data(memory) for memory in peaks])
    else:
        for memory in peaks:
            _print_memory(memory)
    _end_with(failures, bool(peaks))


Result = TypeVar("Result")


def _of_each(names: list[str], count: Callable[[str], Result]) -> tuple[list[Result], list[tuple[str, FavorError]]]:
    """The results of the models, and the models that failed, with the errors."""
    results: list[Result] = []
    failures: list[tuple[str, FavorError]] = []
    with progress_bar() as bar:
        task = bar.add_task("counting", total=len(names), visible=len(names) > 1)
        for name in names:
            bar.update(task, description=name)
            try:
                results.append(count(name))
            except FavorError as error:
                failures.append((name, error))
            bar.advance(task)
    return results, failures


def _end_with(failures: list[tuple[str, FavorError]], any_succeeded: bool) -> None:
    for name, failure in failures:
        note(f"error: {name}: {failure}")
    if failures:
        is_wrong_request = not any_succeeded and all(isinstance(failure, RequestError) for _, failure in failures)
        raise typer.Exit(2 if is_wrong_request else 1)


def _memory_data(memory: "PeakMemory") -> dict[str, object]:
    """The parts of a peak in bytes and as shares, with stable keys."""
    return {
        "name": memory.name,
        "peak": memory.peak,
        "kept": memory.kept,
        "parts": [{"part": part, "bytes": size, "share": size / memory.peak} for part, size in memory.parts.items()],
        "conditions": {
            "img_size": memory.img_size,
            "batch_size": memory.batch_size,
            "precision": memory.precision,
            "optimizer": memory.optimizer,
            "attention": memory.attention,
        },
    }


def _print_memory(memory: "PeakMemory") -> None:
    from favor.units import format_quantity

    about = f"{memory.img_size} px, batch size {memory.batch_size}, {memory.precision}, {memory.optimizer}"
    rows = [("peak", memory.peak), ("kept activations", memory.kept), *memory.parts.items()]
    emit_table(
        f"{memory.name}: memory of a training step, {about}, {memory.attention} attention",
        ("Part", "Memory", "Bytes", "Share"),
        [(part, format_quantity(size, "B"), f"{size:,}", f"{size / memory.peak:.1%}") for part, size in rows],
        right=("Memory", "Bytes", "Share"),
    )


def _count_into(
    study: Path, names: list[str], img_size: int | None, num_classes: int, wait: bool, as_json: bool
) -> None:
    """Count as jobs of a study; counts that ship with favor are not repeated."""
    from favor.study.options import study_from_options
    from favor.study.running import run_request

    options = {"img_sizes": None if img_size is None else [img_size], "num_classes": num_classes}
    request = study_from_options("count", names, ("count",), options)
    ended = run_request(request, study, wait=wait)
    if as_json:
        emit_records(ended.records)
    else:
        counted = [record for record in ended.records if record.status == "ok"]
        _print_table(
            f"Counts per image, inference, batch size 1, {num_classes} classes",
            [
                (
                    record.name,
                    str(record.conditions["img_size"]),
                    *(format_count(int(m.value)) if m else "" for m in map(record.metrics.get, TABLE_COLUMNS)),
                )
                for record in counted
            ],
        )
    end(ended)


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
"""The counts that fit a terminal; `--json` has all of them, and docs/metrics.md defines them."""


def _print(counted: "list[Counts]", by_op: bool) -> None:
    first = counted[0]
    phase = "training step" if first.training else "inference"
    _print_table(
        f"Counts per image, {phase}, batch size {first.batch_size}, {first.num_classes} classes",
        [(c.name, _px(c.img_size), *(format_count(getattr(c, name)) for name in TABLE_COLUMNS)) for c in counted],
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
                format_count(row.macs_matmul),
                format_count(row.flops),
                format_count(row.activations),
                format_count(row.bytes_moved),
            )
            for row in counts.by_operator
        ],
        right=columns[3:],
    )


def _px(img_size: tuple[int, int]) -> str:
    height, width = img_size
    return str(height) if height == width else f"{height}x{width}"


def format_count(value: int) -> str:
    """A count with four digits and a prefix.

    >>> format_count(4598882304)
    '4.599 G'
    """
    for factor, prefix in ((10**12, "T"), (10**9, "G"), (10**6, "M"), (10**3, "k")):
        if value >= factor:
            return f"{value / factor:.4g} {prefix}"
    return str(value)
