"""`favor table` and `favor import`: records as tables for other tools, and published results as records."""

from pathlib import Path
from typing import TYPE_CHECKING, Annotated

import typer

from favor.cli.console import emit_json, emit_table, emit_text, examples, note
from favor.errors import RequestError

if TYPE_CHECKING:
    from collections.abc import Iterable

    from favor.records.schema import Record

_SHOWN = 20


TABLE_EXAMPLES = examples(
    ("favor table my-study --csv > my-study.csv", "for a spreadsheet"),
    ("favor table here there --parquet -o both.parquet", "two studies in one table, for pandas"),
)

TIMM_EXAMPLES = examples(
    ("favor import timm results-imagenet.csv benchmark-infer-amp-nchw-pt240-cu124-rtx3090.csv", "show their content"),
    ("favor import timm results-imagenet.csv --study my-study", "add the records to a study"),
)


def add_commands(app: typer.Typer) -> None:
    """Register `table` and the group `import`."""
    app.command("table", epilog=TABLE_EXAMPLES)(table_command)
    importers = typer.Typer(no_args_is_help=True, help="Import results that others have published.")
    importers.command("timm", epilog=TIMM_EXAMPLES)(import_timm)
    app.add_typer(importers, name="import")


def table_command(
    studies: Annotated[list[Path], typer.Argument(metavar="STUDY...", help="Study folders, or files of records.")],
    csv: Annotated[bool, typer.Option("--csv", help="Comma-separated values.")] = False,
    parquet: Annotated[bool, typer.Option("--parquet", help="Apache Parquet, with the metrics' units.")] = False,
    output: Annotated[
        Path | None, typer.Option("-o", "--output", metavar="FILE", help="Output file (default: stdout).")
    ] = None,
) -> None:
    """Write a study's records as a table: one row per model and conditions, one column per metric.

    `docs/metrics.md` lists the units; unknown values are empty. In CSV, text that a spreadsheet would run as a
    formula gets a leading apostrophe.
    """
    if csv == parquet:
        raise RequestError("choose one of --csv and --parquet, for example: favor table my-study --csv")
    if parquet and output is None:
        raise RequestError("Parquet is a binary format: name a file, for example: --parquet -o my-study.parquet")
    from favor.records.export import to_csv, to_parquet, write_whole
    from favor.records.table import load_reporting

    table, problems = load_reporting(*studies)
    for problem in problems:
        note(f"warning: {problem}")
    if output is None:
        emit_text(to_csv(table))
        return
    write_whole(output, to_parquet(table) if parquet else to_csv(table).encode())
    note(f"{len(table)} rows, {len(table.columns)} columns: {output}")


def import_timm(
    result_files: Annotated[
        list[Path], typer.Argument(metavar="FILE...", help="timm's CSV files, with their original names.")
    ],
    study: Annotated[Path | None, typer.Option(metavar="DIR", help="Add the records to this study.")] = None,
    as_json: Annotated[bool, typer.Option("--json", help="Print the records as a JSON list.")] = False,
) -> None:
    """Import timm's published results: accuracy (`results-*.csv`) and speed (`benchmark-*.csv`).

    Device, precision, layout, framework version and compile mode are read from the file name. Malformed rows are
    reported with file and line; all others become records.
    """
    from favor.records.schema import to_data
    from favor.records.timm_results import import_timm as read_results

    imported = [read_results(file) for file in result_files]
    for file in imported:
        for row in file.skipped:
            note(f"warning: {row}")
        note(f"{file.file}: {file.rows} rows read, {len(file.records)} imported, {len(file.skipped)} skipped")
    records = [record for file in imported for record in file.records]
    if study is not None:
        _add(study, records)
    if as_json:
        emit_json([to_data(record) for record in records])
    elif study is None:
        _show(records)


def _add(study: Path, records: "list[Record]") -> None:
    from favor.records.store import ReadResult, append, has_records, read

    present = read(study) if has_records(study) else ReadResult((), ())
    for problem in present.problems:
        note(f"warning: {problem}")
    old = _by_identity(record for record in present.records if record.source == "imported")
    new, updated = [], 0
    for identity, candidates in _by_identity(records).items():
        # A file may list a row twice; it is already there if the study ends with the same rows.
        before = old.get(identity, [])
        if list(map(_values, before[-len(candidates) :])) != list(map(_values, candidates)):
            new += candidates
            updated += len(candidates) if before else 0
    added = append(study, new)
    newer = f", {updated} of them newer values of existing records" if updated else ""
    already = f", {len(records) - added} were already there" if added < len(records) else ""
    note(f"{added} records added to {study}{newer}{already}")


def _by_identity(records: "Iterable[Record]") -> "dict[tuple[object, ...], list[Record]]":
    """Imported records by identity, which excludes the line number: it changes when the file grows."""
    by_identity: dict[tuple[object, ...], list[Record]] = {}
    for record in records:
        facts = (record.conditions, record.provenance, record.environment)
        identity = (record.name, record.task, *(frozenset(fact.items()) for fact in facts), frozenset(record.metrics))
        by_identity.setdefault(identity, []).append(record)
    return by_identity


def _values(record: "Record") -> dict[str, float]:
    return {name: reading.value for name, reading in record.metrics.items()}


def _show(records: "list[Record]") -> None:
    from favor.records.timm_results import join_on_architecture

    joined = join_on_architecture(records)
    ours = sum(not one.name.startswith("timm:") for one in joined)
    speeds = sorted({title for one in joined for title in one.speeds})
    note(
        f"{len(records)} records of {len({one.name for one in joined})} architectures at {len(joined)} image sizes; "
        f"{ours} of these are models of favor's zoo"
    )
    numbers, speed_columns = ["px", "params M", "GMACs", "top-1 %"], [f"{title} img/s" for title in speeds]
    columns = ["model", "family", *numbers, "weights", *speed_columns]
    rows = [
        [
            *(one.name, one.family or "", str(one.img_size)),
            *(_scaled(one.params, 1e6), _scaled(one.macs, 1e9), _scaled(one.top1, 1), one.weights or ""),
            *(_scaled(one.speeds.get(title), 1) for title in speeds),
        ]
        for one in joined[:_SHOWN]
    ]
    emit_table("timm's results, joined on the architecture", columns, rows, right=[*numbers, *speed_columns])
    if len(joined) > _SHOWN:
        note(f"{len(joined) - _SHOWN} more rows; --json prints all records, --study DIR keeps them")


def _scaled(value: float | None, unit: float) -> str:
    return "" if value is None else f"{value / unit:,.2f}"
