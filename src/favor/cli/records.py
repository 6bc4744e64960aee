"""`favor table` and `favor import`: records as tables for other tools, and published results as records."""

import shlex
from pathlib import Path
from typing import TYPE_CHECKING, Annotated

import typer

from favor.atomic_file import write_whole
from favor.cli.console import emit_records, emit_table, emit_text, examples
from favor.cli.evidence import AnyPipeline, Device, Pipeline, Unfinished
from favor.errors import RequestError
from favor.terminal import note

if TYPE_CHECKING:
    from collections.abc import Callable, Iterable, Sequence

    import pandas as pd

    from favor.analyze import Scope
    from favor.records.result_file import ImportedFile
    from favor.records.schema import Record

_SHOWN = 20


TABLE_EXAMPLES = examples(
    ("favor table my-study --csv > my-study.csv", "for a spreadsheet"),
    ("favor table here there --parquet -o both.parquet", "two studies in one table, for pandas"),
    ("favor table my-study --latex -o table.tex", "for a paper: one row per model, the best in bold"),
    ("favor table my-study --markdown --metrics top1,params,throughput", "the same for a README, with these columns"),
)

TIMM_EXAMPLES = examples(
    ("favor import timm results-imagenet.csv benchmark-infer-amp-nchw-pt240-cu124-rtx3090.csv", "show their content"),
    ("favor import timm results-imagenet.csv --study my-study", "add the records to a study"),
)


CSV_EXAMPLES = examples(
    ("favor import csv results.csv", "check the file and show its records"),
    ("favor import csv results.csv --study my-study", "add the records to a study"),
)


def add_commands(app: typer.Typer) -> None:
    """Register `table` and the group `import`."""
    app.command("table", epilog=TABLE_EXAMPLES)(table_command)
    importers = typer.Typer(no_args_is_help=True, help="Import results that others have published.")
    importers.command("timm", epilog=TIMM_EXAMPLES)(import_timm)
    importers.command("csv", epilog=CSV_EXAMPLES)(import_csv)
    app.add_typer(importers, name="import")


def table_command(
    studies: Annotated[list[Path], typer.Argument(metavar="STUDY...", help="Study folders, or files of records.")],
    csv: Annotated[bool, typer.Option("--csv", help="Comma-separated values.")] = False,
    parquet: Annotated[bool, typer.Option("--parquet", help="Apache Parquet, with the metrics' units.")] = False,
    markdown: Annotated[bool, typer.Option("--markdown", help="A table for a paper, in Markdown.")] = False,
    latex: Annotated[bool, typer.Option("--latex", help="A table for a paper, in LaTeX (booktabs).")] = False,
    metrics: Annotated[
        str | None,
        typer.Option(metavar="NAME,...", help="For --markdown and --latex: columns (default: the usual ones)."),
    ] = None,
    dataset: Annotated[
        str | None,
        typer.Option(metavar="NAME", help="For --markdown and --latex: dataset (default: the one trained on)."),
    ] = None,
    device: Device = None,
    pipeline: Pipeline = None,
    any_pipeline: AnyPipeline = False,
    unfinished: Unfinished = False,
    output: Annotated[
        Path | None, typer.Option("-o", "--output", metavar="FILE", help="Output file (default: stdout).")
    ] = None,
) -> None:
    """Write a study's records as a table, for other programs or for a paper.

    `--csv` and `--parquet` have one row per model and conditions, and one column per metric. `docs/metrics.md` lists
    the units; unknown values are empty. In CSV, text that a spreadsheet would run as a formula gets a leading
    apostrophe. `--markdown` and `--latex` have one row per model in one setting, as `favor pareto` compares them, with
    intervals, the best in bold, and sources and flags as footnotes. favor says what it left out.
    """
    if csv + parquet + markdown + latex != 1:
        example = shlex.join(["favor", "table", *map(str, studies), "--markdown"])
        raise RequestError(f"choose one of --csv, --parquet, --markdown and --latex: {example}")
    if markdown or latex:
        from favor.analyze import Scope

        scope = Scope(dataset, pipeline, any_pipeline, unfinished)
        text = paper_table(studies, metrics, scope, device, latex)
        if output is None:
            emit_text(text)
            return
        write_whole(output, text.encode())
        note(f"written: {output}")
        return
    if parquet and output is None:
        raise RequestError("Parquet is a binary format: name a file, for example: --parquet -o my-study.parquet")
    from favor.records.export import to_csv, to_parquet
    from favor.records.table import load_reporting

    table, problems = load_reporting(*studies)
    for problem in problems:
        note(f"warning: {problem}")
    if output is None:
        emit_text(to_csv(table))
        return
    write_whole(output, to_parquet(table) if parquet else to_csv(table).encode())
    note(f"{len(table)} rows, {len(table.columns)} columns: {output}")


IntoStudy = Annotated[Path | None, typer.Option("--study", metavar="DIR", help="Add the records to this study.")]
RecordsAsJson = Annotated[bool, typer.Option("--json", help="Print the records as a JSON list.")]


def paper_table(
    studies: list[Path],
    metrics: str | None,
    scope: "Scope",
    device: str | None = None,
    latex: bool = False,
    tell: "Callable[[str], None]" = note,
) -> str:
    """A study's table for a paper; `tell` receives notes on what the table leaves out."""
    from dataclasses import replace

    from favor.analyze import Comparison
    from favor.evidence import load_evidence
    from favor.metrics import metric
    from favor.records.table import load_reporting
    from favor.report.results_table import METRICS_OF_A_PAPER, results_table

    wanted = [name.strip() for name in metrics.split(",")] if metrics else list(METRICS_OF_A_PAPER)
    for name in wanted:
        metric(name)
    own, problems = load_reporting(*studies)
    for problem in problems:
        tell(f"warning: {problem}")
    scope = scope if scope.dataset else replace(scope, dataset=_own_dataset(own))
    table, _ = load_evidence(studies)
    compared = Comparison(table, scope, of=own).compare(wanted, device)
    rows = compared.rows[compared.rows["name"].isin(own["name"])]
    made = results_table(rows, wanted)
    if not made.columns:
        raise RequestError(f"the study has none of {', '.join(wanted)}; name others with --metrics")
    if compared.run is not None:
        tell(f"setting: {compared.run}")
    if "top1" in wanted:
        _tell_missing_accuracies(own, rows, scope, tell)
    _tell_other_machines(own, device, tell)
    return made.to_latex() if latex else made.to_markdown()


def _own_dataset(own: "pd.DataFrame") -> str:
    """The dataset that most models of a study have an accuracy on; ImageNet if none has any."""
    trained = own.reindex(columns=["name", "dataset", "top1"]).dropna().drop_duplicates(["name", "dataset"])
    counts = trained["dataset"].value_counts()
    chosen = "imagenet-1k" if counts.empty else str(counts.index[0])
    if len(counts) > 1:
        others = ", ".join(str(name) for name in counts.index[1:])
        note(f"accuracies on {chosen}; the study also has {others} (choose with --dataset)")
    return chosen


def _tell_missing_accuracies(
    own: "pd.DataFrame", rows: "pd.DataFrame", scope: "Scope", tell: "Callable[[str], None]"
) -> None:
    """Say which models of the study have an accuracy, or tried to get one, that is not in the table."""
    columns = ["name", "dataset", "top1", "final", "pipeline", "source", "status", "reason", "task"]
    trained = own.reindex(columns=columns)
    accuracies = rows.reindex(columns=["name", "top1", "top1_source"]).dropna()
    # A published accuracy in the table does not stand for one of the study's own.
    its_own = trained.loc[trained["top1"].notna(), ["name", "source"]].drop_duplicates()
    shown = accuracies.merge(its_own, left_on=["name", "top1_source"], right_on=["name", "source"])["name"]
    trained = trained[~trained["name"].isin(shown)]
    of_set = trained[(trained["dataset"] == scope.dataset) & trained["top1"].notna()]
    for name, group in of_set.groupby("name"):
        if (group["final"] == False).all():  # noqa: E712 - a column of true, false and unknown
            why = "its training is unfinished (--unfinished includes it)"
        else:
            why = f"it is from another pipeline: {group['pipeline'].iloc[-1]} (--any-pipeline includes it)"
        tell(f"{name}: its accuracy is left out because {why}")
    failed = trained[
        (trained["task"] == "accuracy") & (trained["status"] != "ok") & ~trained["name"].isin(of_set["name"])
    ]
    for name, group in failed.groupby("name"):
        tell(f"{name}: no accuracy because its training failed: {group['reason'].iloc[-1]}")


def _tell_other_machines(own: "pd.DataFrame", device: str | None, tell: "Callable[[str], None]") -> None:
    machines = sorted(own["machine"].dropna().unique()) if "machine" in own.columns else []
    if device is None and len(machines) > 1:
        tell(f"the costs are from one machine; the study has {'; '.join(machines)} (choose with --device NAME)")


def import_timm(
    result_files: Annotated[
        list[Path], typer.Argument(metavar="FILE...", help="timm's CSV files, with their original names.")
    ],
    study: IntoStudy = None,
    as_json: RecordsAsJson = False,
) -> None:
    """Import timm's published results: accuracy (`results-*.csv`) and speed (`benchmark-*.csv`).

    Device, precision, layout, framework version and compile mode are read from the file name. Malformed rows are
    reported with file and line; all others become records.
    """
    from favor.records.timm_results import import_timm as read_results

    _import([read_results(file) for file in result_files], study, as_json, _show)


def import_csv(
    result_files: Annotated[list[Path], typer.Argument(metavar="FILE...", help="CSV files that you wrote.")],
    study: IntoStudy = None,
    as_json: RecordsAsJson = False,
) -> None:
    """Import other people's results from a CSV file that you wrote, to compare them with your own.

    Columns: `model` and `source` (where the numbers are from), any metrics of `docs/metrics.md` in their units, and
    what they depend on: `dataset` and `pipeline` for accuracies, `device` for speed and memory. docs/records.md has an
    example. Malformed rows are reported with file and line.
    """
    from favor.records.csv_results import import_csv as read_results

    _import([read_results(file) for file in result_files], study, as_json, _show_results)


def _import(
    imported: "Sequence[ImportedFile]", study: Path | None, as_json: bool, show: "Callable[[list[Record]], None]"
) -> None:
    for file in imported:
        for row in file.skipped:
            note(f"warning: {row}")
        good = file.rows - len(file.skipped)
        note(f"{file.file}: {file.rows} rows read, {good} imported, {len(file.skipped)} skipped")
    records = [record for file in imported for record in file.records]
    if study is not None:
        _add(study, records)
    if as_json:
        emit_records(records)
    elif study is None:
        show(records)


def _show_results(records: "list[Record]") -> None:
    from favor.units import format_quantity

    rows = [
        (
            record.name,
            ", ".join(
                f"{name} {format_quantity(reading.value, reading.unit)}" for name, reading in record.metrics.items()
            ),
            ", ".join(f"{key}={value}" for key, value in record.conditions.items() if key != "batch"),
            str(record.provenance["source"]),
        )
        for record in records
    ]
    emit_table("Imported results", ("model", "metrics", "conditions", "source"), rows)


def _add(study: Path, records: "list[Record]") -> None:
    from favor.records.store import ReadResult, append, has_records, read

    present = read(study) if has_records(study) else ReadResult((), ())
    for problem in present.problems:
        note(f"warning: {problem}")
    old = _by_identity(record for record in present.records if record.source == "imported")
    new, updated = [], 0
    for identity, candidates in _by_identity(records).items():
        # A file may list a row twice. It was imported before if the study's last records of this identity are equal.
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
