"""`favor recommend`, `pareto`, `correlate`, `disagree`, `compare`: from records to a decision.

All of them read the published and counted records of the package and the studies that the user names, and start
without torch.
"""

from collections.abc import Iterable
from pathlib import Path
from typing import TYPE_CHECKING, Annotated

import typer

from favor.cli.console import emit_json, examples, note

if TYPE_CHECKING:
    import pandas as pd

    from favor.analyze import GuideEntry, Limit
    from favor.analyze.settings import RunSetting

AsJson = Annotated[bool, typer.Option("--json", help="Print JSON for programs.")]
Studies = Annotated[
    list[Path] | None,
    typer.Option("--study", metavar="DIR", help="Use the records of this study, too; repeatable."),
]
Device = Annotated[str | None, typer.Option(metavar="NAME", help="The device or machine that counts, as cpu, a100.")]
Dataset = Annotated[str, typer.Option(metavar="NAME", help="The data set that accuracies are on.")]
Among = Annotated[
    str | None, typer.Option(metavar="PATTERN", help="Only models or families that fit, as 'swin*' or 'vit'.")
]
AnyPipeline = Annotated[
    bool, typer.Option("--any-pipeline", help="Mix pipelines and resolutions; the best accuracy of a model counts.")
]

RECOMMEND_EXAMPLES = examples(
    ("favor recommend --prefer throughput --min-accuracy 82", "the fastest model with 82 % on ImageNet"),
    ("favor recommend --max-memory 1GiB --max-params 30M", "the most accurate one within limits"),
    (
        "favor recommend --study mine --prefer latency --max-latency 50ms --json",
        "with your own measurements, for programs",
    ),
    ("favor recommend --guide", "the benchmark's flow chart: constraint, phase, models"),
)

PARETO_EXAMPLES = examples(
    ("favor pareto top1 throughput --study mine", "the front of accuracy and speed"),
    ("favor pareto top1 params macs --all", "a front of three, and how far the others are away"),
    ("favor pareto --strict --json", "the paper's rule, for programs"),
)

CORRELATE_EXAMPLES = examples(
    ("favor correlate params macs throughput", "does one cost tell the other?"),
    ("favor correlate params macs 1/throughput", "the same of the time of an image"),
    ("favor correlate --datasets", "do models rank alike on all data sets?"),
    ("favor correlate macs throughput --without vit_ti16", "without an outlier"),
    ("favor correlate --devices --study mine", "do models rank alike on all devices?"),
)

DISAGREE_EXAMPLES = examples(
    ("favor disagree", "wherever indicators order models differently"),
    ("favor disagree params throughput --json", "for programs"),
)

COMPARE_EXAMPLES = examples(
    ("favor compare vit_s16 swin_ti", "two models, metric by metric, with tests"),
    ("favor compare vit swin --study mine", "two families, at equal parameters, compute and speed"),
    ("favor compare baseline hybrid", "two classes of the taxonomy"),
)


def add_commands(app: typer.Typer) -> None:
    app.command("recommend", epilog=RECOMMEND_EXAMPLES)(recommend_command)
    app.command("pareto", epilog=PARETO_EXAMPLES)(pareto_command)
    app.command("correlate", epilog=CORRELATE_EXAMPLES)(correlate_command)
    app.command("disagree", epilog=DISAGREE_EXAMPLES)(disagree_command)
    app.command("compare", epilog=COMPARE_EXAMPLES)(compare_command)


def recommend_command(
    prefer: Annotated[
        str | None, typer.Option(help="throughput, latency, memory, params, energy or training-time; else accuracy.")
    ] = None,
    min_accuracy: Annotated[str | None, typer.Option(metavar="82", help="Least top-1 accuracy in %.")] = None,
    max_memory: Annotated[str | None, typer.Option(metavar="1GiB", help="Most memory at inference.")] = None,
    max_latency: Annotated[str | None, typer.Option(metavar="50ms", help="Longest time for one image.")] = None,
    max_params: Annotated[str | None, typer.Option(metavar="30M", help="Most parameters.")] = None,
    device: Device = None,
    dataset: Dataset = "imagenet-1k",
    among: Among = None,
    top: Annotated[int, typer.Option(help="How many models to show, the favored one included.")] = 5,
    any_pipeline: AnyPipeline = False,
    study: Studies = None,
    guide: Annotated[bool, typer.Option("--guide", help="Show the benchmark's flow chart instead.")] = False,
    as_json: AsJson = False,
) -> None:
    """Say which model to favor under your limits, why, and how sure that is."""
    from favor.analyze import Request, recommend
    from favor.analyze import guide as flow_chart
    from favor.analyze.deviations import deviations
    from favor.cli import decision_text

    limits = _limits(min_accuracy, max_memory, max_latency, max_params)
    request = Request(prefer, limits, dataset, device, among, any_pipeline, top)
    table = all_records(study, device)
    if guide:
        rows = _assembled(table, dataset, any_pipeline, None)
        chart = flow_chart(_guide_entries(), rows, deviations(table, rows))
        emit_json(chart.to_dict()) if as_json else decision_text.print_guide(chart)
        return
    answer = recommend(table, request, published_fronts())
    emit_json(answer.to_dict()) if as_json else decision_text.print_recommendation(answer)
    if answer.favored is None:
        raise typer.Exit(code=1)


def pareto_command(
    metrics: Annotated[list[str] | None, typer.Argument(help="Two or more; top1 and throughput if none.")] = None,
    strict: Annotated[
        bool, typer.Option("--strict", help="Dominated only if worse in every metric: the paper's rule.")
    ] = False,
    everyone: Annotated[bool, typer.Option("--all", help="Show the others as well, with their distance.")] = False,
    device: Device = None,
    dataset: Dataset = "imagenet-1k",
    among: Among = None,
    any_pipeline: AnyPipeline = False,
    study: Studies = None,
    as_json: AsJson = False,
) -> None:
    """Show the Pareto front: the models that no other beats in one metric without losing in another."""
    from favor.analyze import pareto
    from favor.analyze.assemble import with_failures
    from favor.analyze.deviations import deviations
    from favor.analyze.intervals import with_accuracy_intervals
    from favor.analyze.selection import fitting
    from favor.analyze.settings import LEAST_TO_COMPARE, where_from
    from favor.cli import decision_text
    from favor.errors import RequestError

    wanted = metrics or ["top1", "throughput"]
    table = all_records(study, device)
    rows = _comparable_rows(table, wanted, dataset, device, among, any_pipeline)
    rows = fitting(with_failures(rows, table, wanted), among)
    result = pareto(with_accuracy_intervals(rows, dataset), wanted, strict=strict)
    if len(result.rows) < LEAST_TO_COMPARE:
        who = "only one model has" if len(result.rows) else "no model has"
        raise RequestError(f"{who} all of {', '.join(wanted)}; {_how_to_measure()}")
    of_another_configuration = deviations(table, rows) if "top1" in wanted else {}
    flagged = {name: why for name, why in of_another_configuration.items() if name in set(result.names)}
    if as_json:
        emit_json(result.to_dict() | {"flagged": flagged})
    else:
        decision_text.print_pareto(result, everyone, flagged)
        for told in where_from(rows, wanted):
            note(told)
        _tell_simulated(rows, wanted)


def correlate_command(
    metrics: Annotated[list[str] | None, typer.Argument(help="Metrics; all that five models have if none.")] = None,
    datasets: Annotated[bool, typer.Option("--datasets", help="Between data sets' accuracies instead.")] = False,
    devices: Annotated[
        bool, typer.Option("--devices", help="Between devices instead: of one metric, throughput if none is named.")
    ] = False,
    without: Annotated[
        list[str] | None, typer.Option(metavar="NAME", help="Leave a model out, as an outlier; repeatable.")
    ] = None,
    device: Device = None,
    dataset: Dataset = "imagenet-1k",
    among: Among = None,
    study: Studies = None,
    as_json: AsJson = False,
) -> None:
    """Show how far one metric tells another: Pearson's and Spearman's correlation with 95 % intervals."""
    from favor.analyze import correlate, correlate_datasets, correlate_devices
    from favor.analyze.correlation import ONE_OVER
    from favor.analyze.selection import fitting
    from favor.cli import decision_text
    from favor.errors import RequestError

    if datasets and metrics:
        raise RequestError("--datasets compares accuracies between data sets and takes no metrics")
    if datasets and devices:
        raise RequestError("--datasets and --devices are two questions; ask one at a time")
    if devices and len(metrics or []) > 1:
        raise RequestError("--devices compares one metric between devices, for example throughput")
    table = all_records(study, None if datasets or devices else device)
    if datasets:
        result = correlate_datasets(fitting(table, among), without=without or ())
    elif devices:
        result = correlate_devices(fitting(table, among), (metrics or ["throughput"])[0], without=without or ())
    else:
        named = list(dict.fromkeys(name.removeprefix(ONE_OVER) for name in metrics or []))
        rows = _comparable_rows(table, named, dataset, device, among, any_pipeline=False)
        result = correlate(rows, metrics or _known_metrics(rows, least=5), without=without or ())
        _tell_simulated(rows, [name.removeprefix(ONE_OVER) for name in result.columns])
    emit_json(result.to_dict()) if as_json else decision_text.print_correlations(result)


def disagree_command(
    indicators: Annotated[list[str] | None, typer.Argument(help="Cost indicators; those in common if none.")] = None,
    device: Device = None,
    among: Among = None,
    img_size: Annotated[int, typer.Option(help="The image size at which models are compared.")] = 224,
    study: Studies = None,
    as_json: AsJson = False,
) -> None:
    """Show where cost indicators order models differently, and who is good by one and bad by another."""
    from favor.analyze import disagreement
    from favor.cli import decision_text
    from favor.errors import RequestError

    rows = _comparable_rows(all_records(study, device), indicators or [], None, device, among, any_pipeline=True)
    rows = rows[rows["img_size"] == img_size]
    chosen = indicators or _indicators_in_common(rows)
    result = disagreement(rows, chosen)
    if result.pairs[0].n < 2:
        raise RequestError(f"no two models have all of {', '.join(chosen)} at {img_size} px; {_how_to_measure()}")
    emit_json(result.to_dict()) if as_json else decision_text.print_disagreement(result)
    _tell_simulated(rows, chosen)


def compare_command(
    a: Annotated[str, typer.Argument(help="A model, a family, or a class of the taxonomy.")],
    b: Annotated[str, typer.Argument(help="Another one of the same kind.")],
    device: Device = None,
    dataset: Dataset = "imagenet-1k",
    any_pipeline: AnyPipeline = False,
    study: Studies = None,
    as_json: AsJson = False,
) -> None:
    """Compare two models in every metric, or two families or classes at equal cost; verdicts come from tests."""
    from favor.analyze import compare, matched_every_way
    from favor.analyze.deviations import deviations
    from favor.cli import decision_text

    table = all_records(study, device)
    group = next((column for column in ("family", "how") if {a, b} <= set(table[column].dropna())), None)
    by = "name" if group is None or {a, b} <= set(table["name"]) else group
    # The setting is the one that the two have most in common; a name that nobody knows is refused further down.
    compared = table[table[by].isin([a, b])]
    rows = _comparable_rows(table, [], dataset, device, None, any_pipeline, of=compared if len(compared) else table)
    flags = deviations(table, rows) if "top1" in rows.columns else {}
    if group is not None and by == group:
        flagged = {name: flags[name] for name in rows.loc[rows[group].isin([a, b]), "name"] if name in flags}
        own = rows.assign(top1=rows["top1"].mask(rows["name"].isin(list(flagged)))) if flagged else rows
        comparison = matched_every_way(own, a, b, group=group)
        if as_json:
            emit_json(comparison.to_dict() | {"flagged": flagged})
        else:
            decision_text.print_matched(comparison, flagged)
        return
    pair = compare(rows, a, b, dataset=dataset, flags=flags)
    emit_json(pair.to_dict()) if as_json else decision_text.print_comparison(pair)


def all_records(studies: list[Path] | None, device: str | None = None) -> "pd.DataFrame":
    """The wide table of the published records and the studies; lines that had to be skipped are told.

    Where a device is asked for, what is simulated for it is there too, and stands in where nothing is measured.
    """
    import pandas as pd

    from favor.records import counted_table, published_table, table_of
    from favor.records.table import load_reporting

    own, problems = load_reporting(*studies) if studies else (None, ())
    for problem in problems:
        note(f"warning: {problem}")
    tables = [published_table(), counted_table()]
    if own is not None:
        tables.append(own if device is None else _under_its_name(own, device))
    if device is not None:
        # Descriptions of devices take a fifth of a second to import.
        from favor.simulate.shipped import shipped_records

        simulated = shipped_records(device)
        tables += [table_of(simulated)] if simulated else []
    return pd.concat(tables, ignore_index=True)


def _under_its_name(own: "pd.DataFrame", device: str) -> "pd.DataFrame":
    """Measurements on the device that is asked for, under that name, whatever its driver calls it."""
    from favor.analyze.settings import machines_of, names_of
    from favor.simulate.shipped import is_called

    machines = machines_of(own)
    called = {
        machine: any(is_called(device, name) for name in names_of(machine)) for machine in machines.dropna().unique()
    }
    is_it = machines.map(lambda machine: called.get(machine, False)).astype(bool)
    return own.assign(device=own["device"].mask(is_it, device)) if is_it.any() else own


def _assembled(
    table: "pd.DataFrame", dataset: str | None, any_pipeline: bool, setting: "RunSetting | None"
) -> "pd.DataFrame":
    from favor.analyze import accuracy_basis, assemble

    basis = None if any_pipeline or dataset is None else accuracy_basis(table, dataset)
    return assemble(table, dataset=dataset, basis=basis, setting=setting)


def _comparable_rows(
    table: "pd.DataFrame",
    metrics: list[str],
    dataset: str | None,
    device: str | None,
    among: str | None,
    any_pipeline: bool,
    of: "pd.DataFrame | None" = None,
) -> "pd.DataFrame":
    """One row per model, every metric in the one setting that suits the models `of` a part of the table, else all.

    What had to be left out is told.
    """
    from favor.analyze import comparable
    from favor.analyze.selection import fitting
    from favor.analyze.settings import QUALITIES, left_out_machines, run_setting
    from favor.metrics import METRICS, metric

    for name in metrics:
        metric(name)
    models = fitting(table, among) if of is None else of
    run = run_setting(models, metrics, device)
    rows = fitting(_assembled(table, dataset, any_pipeline, run), among)
    for name in METRICS:
        if any_pipeline and name in QUALITIES:
            continue
        rows, setting, elsewhere = comparable(rows, name, run)
        if elsewhere and name in metrics:
            note(
                f"note: {name} is from {setting or 'no setting'}; {elsewhere} numbers from other settings are left out"
            )
    machines = left_out_machines(models, run)
    if machines:
        note(f"note: {machines}")
    return rows


def _tell_simulated(rows: "pd.DataFrame", metrics: Iterable[str]) -> None:
    """Say of which metrics numbers were not measured."""
    simulated = [name for name in metrics if "simulated" in set(rows.get(f"{name}_source", ()))]
    if simulated:
        note(f"{', '.join(simulated)}: simulated, not measured; docs/simulation.md says how good that is")


def _known_metrics(rows: "pd.DataFrame", least: int) -> list[str]:
    """The metrics with a direction that at least so many rows have."""
    from favor.errors import RequestError
    from favor.metrics import METRICS

    known = [
        name
        for name, entry in METRICS.items()
        if name in rows.columns and entry.better != "neither" and rows[name].notna().sum() >= least
    ]
    if len(known) < 2:
        raise RequestError(f"no two metrics are known of {least} models; {_how_to_measure()}")
    return known


def _indicators_in_common(rows: "pd.DataFrame") -> list[str]:
    """The cost indicators that many models have together: the commonest first, as long as five have all of them."""
    from favor.analyze.assemble import QUALITIES

    costs = [name for name in _known_metrics(rows, least=5) if name not in QUALITIES]
    chosen: list[str] = []
    for name in sorted(costs, key=lambda cost: -len(rows.dropna(subset=[cost]))):
        if len(rows.dropna(subset=[*chosen, name])) >= 5:
            chosen.append(name)
    return chosen


def published_fronts() -> "list[GuideEntry]":
    """Table 7."""
    from favor.analyze import guide_entries
    from favor.records.published import pareto_optimal

    return guide_entries(pareto_optimal())


def _guide_entries() -> "list[GuideEntry]":
    """Figure 6: what of Table 7 is in the classes of its caption, by constraint and phase."""
    from favor.analyze import guide_entries
    from favor.records.published import guide, pareto_optimal

    ways = dict.fromkeys((found.constraint, found.phase) for found in pareto_optimal())
    return guide_entries(found for constraint, phase in ways for found in guide(constraint, phase))


def _limits(
    min_accuracy: str | None, max_memory: str | None, max_latency: str | None, max_params: str | None
) -> "tuple[Limit, ...]":
    from favor.analyze import Limit
    from favor.analyze.limits import LIMITED
    from favor.metrics import metric
    from favor.units import parse_quantity

    asked = dict(zip(LIMITED, (min_accuracy, max_memory, max_latency, max_params), strict=True))
    return tuple(
        Limit.named(option, parse_quantity(text, metric(LIMITED[option]).unit, f"--{option.replace('_', '-')}"))
        for option, text in asked.items()
        if text is not None
    )


def _how_to_measure() -> str:
    return "measure them with `favor measure NAME --into STUDY` and add --study STUDY"
