"""`favor recommend`, `pareto`, `correlate`, `disagree`, `compare`: from records to a decision.

All of them read the published and counted records of the package and the studies that the user names, and start
without torch.
"""

from collections.abc import Iterable
from dataclasses import asdict
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Literal

import typer

from favor.cli.console import emit_json, examples, note
from favor.evidence import best_weights, load_evidence, published_fronts

if TYPE_CHECKING:
    import pandas as pd

    from favor.analyze import Comparison, GuideEntry, Limit, Scope

AsJson = Annotated[bool, typer.Option("--json", help="Print JSON for programs.")]
Studies = Annotated[
    list[Path] | None,
    typer.Option("--study", metavar="DIR", help="Add the records of this study; repeatable."),
]
Device = Annotated[str | None, typer.Option(metavar="NAME", help="Compare on this device or machine, such as cpu.")]
Dataset = Annotated[str, typer.Option(metavar="NAME", help="Data set of the accuracies.")]
Among = Annotated[
    str | None, typer.Option(metavar="PATTERN", help="Only models or families that match, such as 'swin*'.")
]
Pipeline = Annotated[
    str | None,
    typer.Option(
        metavar="NAME",
        help="Compare accuracies of this pipeline (default: yours if two models have it, else the benchmark's).",
    ),
]
AnyPipeline = Annotated[
    bool, typer.Option("--any-pipeline", help="Mix pipelines and image sizes; use each model's best accuracy.")
]
Unfinished = Annotated[bool, typer.Option("--unfinished", help="Include unfinished trainings; they are marked.")]
OverSeeds = Annotated[
    Literal["mean", "best"], typer.Option("--seeds", help="Use the mean or the best over the seeds of a training.")
]

RECOMMEND_EXAMPLES = examples(
    ("favor recommend --prefer throughput --min-accuracy 82", "the fastest model with at least 82 % on ImageNet"),
    ("favor recommend --max-memory 1GiB --max-params 30M", "the most accurate model within limits"),
    (
        "favor recommend --study mine --prefer latency --max-latency 50ms --json",
        "with your own measurements, for programs",
    ),
    ("favor recommend --with-weights --max-params 30M", "the most accurate one that can be had trained"),
    ("favor recommend --guide", "the benchmark's flow chart: constraint, phase, models"),
)

PARETO_EXAMPLES = examples(
    ("favor pareto top1 throughput --study mine", "the front of accuracy and speed"),
    ("favor pareto top1 params macs --all", "three metrics, and how far other models are from the front"),
    ("favor pareto --strict --json", "the paper's rule, for programs"),
)

CORRELATE_EXAMPLES = examples(
    ("favor correlate params macs throughput", "does one cost predict another?"),
    ("favor correlate params macs 1/throughput", "the same for the time per image"),
    ("favor correlate --datasets", "is the ranking the same on all data sets?"),
    ("favor correlate macs throughput --without vit_ti16", "without an outlier"),
    ("favor correlate --devices --study mine", "is the ranking the same on all devices?"),
)

DISAGREE_EXAMPLES = examples(
    ("favor disagree", "where indicators rank models differently"),
    ("favor disagree params throughput --json", "for programs"),
)

COMPARE_EXAMPLES = examples(
    ("favor compare vit_s16 swin_ti", "two models, metric by metric, with tests"),
    ("favor compare vit swin --study mine", "two families, at equal parameters, compute and speed"),
    ("favor compare baseline hybrid", "two classes of the taxonomy"),
)


EFFECTS_EXAMPLES = examples(
    ("favor effects", "on CIFAR-10, from the paper's tables"),
    ("favor effects --study mine --dataset tiny-imagenet", "with your own trainings"),
    ("favor effects train_memory --json", "another metric, for programs"),
)


def add_commands(app: typer.Typer) -> None:
    app.command("recommend", epilog=RECOMMEND_EXAMPLES)(recommend_command)
    app.command("pareto", epilog=PARETO_EXAMPLES)(pareto_command)
    app.command("correlate", epilog=CORRELATE_EXAMPLES)(correlate_command)
    app.command("disagree", epilog=DISAGREE_EXAMPLES)(disagree_command)
    app.command("compare", epilog=COMPARE_EXAMPLES)(compare_command)
    app.command("effects", epilog=EFFECTS_EXAMPLES)(effects_command)


def recommend_command(
    prefer: Annotated[
        str | None,
        typer.Option(help="throughput, latency, memory, params, energy or training-time (default: accuracy)."),
    ] = None,
    min_accuracy: Annotated[str | None, typer.Option(metavar="82", help="Minimum top-1 accuracy in %.")] = None,
    max_memory: Annotated[str | None, typer.Option(metavar="1GiB", help="Maximum memory at inference.")] = None,
    max_latency: Annotated[str | None, typer.Option(metavar="50ms", help="Maximum latency of one image.")] = None,
    max_params: Annotated[str | None, typer.Option(metavar="30M", help="Maximum number of parameters.")] = None,
    device: Device = None,
    dataset: Dataset = "imagenet-1k",
    among: Among = None,
    top: Annotated[int, typer.Option(help="Number of models to show, including the favored one.")] = 5,
    pipeline: Pipeline = None,
    any_pipeline: AnyPipeline = False,
    unfinished: Unfinished = False,
    seeds: OverSeeds = "mean",
    study: Studies = None,
    with_weights: Annotated[
        bool,
        typer.Option("--with-weights", help="Only models with pretrained weights, by the accuracy of those weights."),
    ] = False,
    guide: Annotated[bool, typer.Option("--guide", help="Show the benchmark's flow chart instead.")] = False,
    as_json: AsJson = False,
) -> None:
    """Recommend a model under your limits, with the reason and how certain it is."""
    from favor.analyze import Comparison, Request, recommend
    from favor.analyze import guide as flow_chart
    from favor.analyze.deviations import deviations
    from favor.cli import decision_text

    limits = _limits(min_accuracy, max_memory, max_latency, max_params)
    request = Request(
        prefer, limits, dataset, device, among, any_pipeline, top, pipeline, unfinished, seeds, with_weights
    )
    table = all_records(study, device, with_weights=with_weights)
    if guide:
        rows = Comparison(table, request.scope, metrics=("top1", "params", "macs_matmul", "macs")).compare_in(None).rows
        chart = flow_chart(_guide_entries(), rows, deviations(table, rows))
        emit_json(chart.to_dict()) if as_json else decision_text.print_guide(chart)
        return
    answer = recommend(table, request, published_fronts())
    choices = [choice for choice in (answer.favored, *answer.runners_up) if choice is not None]
    weights = {choice.name: best_weights(choice.name) for choice in choices}
    if as_json:
        plain = {name: None if best is None else asdict(best) for name, best in weights.items()}
        emit_json(answer.to_dict() | {"weights": plain})
    else:
        decision_text.print_recommendation(answer, weights)
    if answer.favored is None:
        raise typer.Exit(code=1)


def pareto_command(
    metrics: Annotated[list[str] | None, typer.Argument(help="Two or more metrics (default: top1 throughput).")] = None,
    strict: Annotated[
        bool, typer.Option("--strict", help="Dominated means worse in every metric (the paper's rule).")
    ] = False,
    everyone: Annotated[
        bool, typer.Option("--all", help="Also show the other models, with their distance to the front.")
    ] = False,
    device: Device = None,
    dataset: Dataset = "imagenet-1k",
    among: Among = None,
    pipeline: Pipeline = None,
    any_pipeline: AnyPipeline = False,
    unfinished: Unfinished = False,
    seeds: OverSeeds = "mean",
    study: Studies = None,
    as_json: AsJson = False,
) -> None:
    """Show the Pareto front: the models that no other beats in one metric without being worse in another."""
    from favor.analyze import Scope, pareto
    from favor.analyze.comparison import LEAST_TO_COMPARE, origin_notes, with_failures
    from favor.analyze.deviations import deviations
    from favor.analyze.selection import fitting
    from favor.cli import decision_text
    from favor.errors import RequestError

    wanted = metrics or ["top1", "throughput"]
    table = all_records(study, device)
    scope = Scope(dataset, pipeline, any_pipeline, unfinished, seeds)
    rows, comparison = _compared(table, wanted, scope, device, among)
    rows = fitting(with_failures(rows, table, wanted), among)
    result = pareto(rows, wanted, strict=strict)
    if len(result.rows) < LEAST_TO_COMPARE:
        who = "only one model has" if len(result.rows) else "no model has"
        raise RequestError(f"{who} all of {', '.join(wanted)}; {_how_to_measure()}")
    of_another_configuration = deviations(table, rows) if "top1" in wanted else {}
    flagged = {name: why for name, why in of_another_configuration.items() if name in set(result.names)}
    if as_json:
        emit_json(result.to_dict() | {"flagged": flagged})
    else:
        decision_text.print_pareto(result, everyone, flagged)
        for text in origin_notes(rows, wanted):
            note(text)
        if "top1" in wanted:
            note(comparison.accuracy_note(" and ".join(sorted(rows["top1_source"].dropna().unique()))))
        _tell_simulated(rows, wanted)


def correlate_command(
    metrics: Annotated[
        list[str] | None, typer.Argument(help="Metrics (default: those that five or more models have).")
    ] = None,
    datasets: Annotated[
        bool, typer.Option("--datasets", help="Correlate accuracies between data sets instead.")
    ] = False,
    devices: Annotated[
        bool, typer.Option("--devices", help="Correlate one metric between devices instead (default: throughput).")
    ] = False,
    without: Annotated[
        list[str] | None, typer.Option(metavar="NAME", help="Leave out a model, such as an outlier; repeatable.")
    ] = None,
    device: Device = None,
    dataset: Dataset = "imagenet-1k",
    among: Among = None,
    pipeline: Pipeline = None,
    study: Studies = None,
    as_json: AsJson = False,
) -> None:
    """Show how well one metric predicts another: Pearson and Spearman correlations with 95 % intervals."""
    from favor.analyze import Scope, correlate, correlate_datasets, correlate_devices
    from favor.analyze.correlation import ONE_OVER
    from favor.analyze.selection import fitting
    from favor.cli import decision_text
    from favor.errors import RequestError

    if datasets and metrics:
        raise RequestError("--datasets compares accuracies between data sets and takes no metrics")
    if datasets and devices:
        raise RequestError("--datasets and --devices cannot be combined; use one of them")
    if devices and len(metrics or []) > 1:
        raise RequestError("--devices compares one metric between devices, for example throughput")
    table = all_records(study, None if datasets else device, every_device=devices)
    if datasets:
        result = correlate_datasets(fitting(table, among), without=without or ())
    elif devices:
        result = correlate_devices(fitting(table, among), (metrics or ["throughput"])[0], without=without or ())
    else:
        named = list(dict.fromkeys(name.removeprefix(ONE_OVER) for name in metrics or []))
        rows, _ = _compared(table, named, Scope(dataset, pipeline), device, among)
        result = correlate(rows, metrics or _known_metrics(rows, least=5), without=without or ())
        _tell_simulated(rows, [name.removeprefix(ONE_OVER) for name in result.columns])
    emit_json(result.to_dict()) if as_json else decision_text.print_correlations(result)


def disagree_command(
    indicators: Annotated[
        list[str] | None, typer.Argument(help="Cost indicators (default: those that most models have).")
    ] = None,
    device: Device = None,
    among: Among = None,
    img_size: Annotated[int, typer.Option(help="Image size at which models are compared.")] = 224,
    study: Studies = None,
    as_json: AsJson = False,
) -> None:
    """Show where cost indicators rank models differently, and which models are cheap by one and costly by another."""
    from favor.analyze import Scope, disagreement
    from favor.cli import decision_text
    from favor.errors import RequestError

    rows, _ = _compared(all_records(study, device), indicators or [], Scope(any_pipeline=True), device, among)
    rows = rows[rows["img_size"] == img_size]
    chosen = indicators or _indicators_in_common(rows)
    result = disagreement(rows, chosen)
    if result.pairs[0].n < 2:
        raise RequestError(f"no two models have all of {', '.join(chosen)} at {img_size} px; {_how_to_measure()}")
    emit_json(result.to_dict()) if as_json else decision_text.print_disagreement(result)
    _tell_simulated(rows, chosen)


def compare_command(
    a: Annotated[str, typer.Argument(help="A model, a family, or a class of the taxonomy.")],
    b: Annotated[str, typer.Argument(help="Another of the same kind.")],
    device: Device = None,
    dataset: Dataset = "imagenet-1k",
    pipeline: Pipeline = None,
    any_pipeline: AnyPipeline = False,
    unfinished: Unfinished = False,
    seeds: OverSeeds = "mean",
    study: Studies = None,
    as_json: AsJson = False,
) -> None:
    """Compare two models in every metric, or two families or classes at equal cost, with statistical tests."""
    from favor.analyze import Scope, compare, matched_every_way
    from favor.analyze.deviations import deviations
    from favor.cli import decision_text

    table = all_records(study, device)
    group = next((column for column in ("family", "how") if {a, b} <= set(table[column].dropna())), None)
    by = "name" if group is None or {a, b} <= set(table["name"]) else group
    # The two models choose the setting: the one they share most metrics in. Unknown names are refused further down.
    compared = table[table[by].isin([a, b])]
    scope = Scope(dataset, pipeline, any_pipeline, unfinished, seeds)
    rows, comparison = _compared(table, [], scope, device, None, of=compared if len(compared) else table)
    flags = deviations(table, rows) if "top1" in rows.columns else {}
    if group is not None and by == group:
        flagged = {name: flags[name] for name in rows.loc[rows[group].isin([a, b]), "name"] if name in flags}
        own = rows.assign(top1=rows["top1"].mask(rows["name"].isin(list(flagged)))) if flagged else rows
        match = matched_every_way(own, a, b, group=group)
        if as_json:
            emit_json(match.to_dict() | {"flagged": flagged})
        else:
            decision_text.print_matched(match, flagged)
        return
    pair = compare(rows, a, b, dataset=dataset, flags=flags)
    emit_json(pair.to_dict()) if as_json else decision_text.print_comparison(pair)
    qualities = [entry for entry in pair.metrics if entry.metric == "top1"]
    if qualities:
        note(comparison.accuracy_note(str(qualities[0].a.source)))


def effects_command(
    metric: Annotated[str, typer.Argument(help="The metric that changes.")] = "top1",
    dataset: Dataset = "cifar10",
    study: Studies = None,
    as_json: AsJson = False,
) -> None:
    """Show what linear attention, convolutional embedding and rotary positions change in the Vision X-formers."""
    from favor.analyze import (
        convolutional_embedding_pairs,
        effect_of_model,
        linear_attention_pairs,
        rotary_position_pairs,
    )
    from favor.cli import decision_text
    from favor.errors import RequestError
    from favor.metrics import METRICS
    from favor.metrics import metric as known_metric

    table = all_records(study)
    if METRICS[known_metric(metric).name].group == "quality":
        table = table[table["dataset"] == dataset]
    names = [str(name) for name in table["name"].unique()]
    changes = {
        "Performer attention": linear_attention_pairs(names, "performer"),
        "Linformer attention": linear_attention_pairs(names, "linformer"),
        "Nystrom attention": linear_attention_pairs(names, "nystrom"),
        "convolutional embedding": convolutional_embedding_pairs(names),
        "rotary positions": rotary_position_pairs(names),
    }
    effects = [effect_of_model(table, change, pairs, metric) for change, pairs in changes.items() if pairs]
    if not any(effect.n for effect in effects):
        raise RequestError(f"no two X-formers that differ in one part have {metric} on {dataset}; {_how_to_measure()}")
    emit_json([effect.to_dict() for effect in effects]) if as_json else decision_text.print_effects(effects)


def all_records(
    studies: list[Path] | None, device: str | None = None, *, every_device: bool = False, with_weights: bool = False
) -> "pd.DataFrame":
    """The wide table of all records; lines that could not be read are reported."""
    table, problems = load_evidence(studies or (), device, every_device=every_device, with_weights=with_weights)
    for problem in problems:
        note(f"warning: {problem}")
    return table


def _compared(
    table: "pd.DataFrame",
    metrics: list[str],
    scope: "Scope",
    device: str | None,
    among: str | None,
    of: "pd.DataFrame | None" = None,
) -> "tuple[pd.DataFrame, Comparison]":
    """One row per model, in the setting that suits the models in `of`, else those that match `among`.

    Notes on stderr say which numbers were left out.
    """
    from favor.analyze import Comparison
    from favor.analyze.comparison import left_out_machines
    from favor.analyze.selection import fitting
    from favor.metrics import metric

    for name in metrics:
        metric(name)
    models = of if of is not None else None if among is None else fitting(table, among)
    comparison = Comparison(table, scope, of=models)
    compared = comparison.compare(metrics, device)
    rows = fitting(compared.rows, among)
    for name in metrics:
        others = compared.left_out(name, rows)
        if others:
            setting = compared.settings[name] or "no setting"
            note(f"note: {name} is from {setting}; {others} numbers from other settings are left out")
    machines = left_out_machines(comparison.models, compared.run)
    if machines:
        note(f"note: {machines}")
    # A metric without any number on the device still gets a column.
    return rows.reindex(columns=[*rows.columns, *(name for name in metrics if name not in rows.columns)]), comparison


def _tell_simulated(rows: "pd.DataFrame", metrics: Iterable[str]) -> None:
    """Say which metrics are simulated."""
    simulated = [name for name in metrics if "simulated" in set(rows.get(f"{name}_source", ()))]
    if simulated:
        note(f"{', '.join(simulated)}: simulated, not measured; docs/simulation.md says how accurate that is")


def _known_metrics(rows: "pd.DataFrame", least: int) -> list[str]:
    """The metrics with a better direction that at least `least` rows have."""
    from favor.errors import RequestError
    from favor.metrics import METRICS

    known = [
        name
        for name, entry in METRICS.items()
        if name in rows.columns and entry.better != "neither" and rows[name].notna().sum() >= least
    ]
    if len(known) < 2:
        raise RequestError(f"no two metrics are known for {least} or more models; {_how_to_measure()}")
    return known


def _indicators_in_common(rows: "pd.DataFrame") -> list[str]:
    """The cost indicators that many models share: the most common first, as long as five models have all of them."""
    from favor.metrics import METRICS

    costs = [name for name in _known_metrics(rows, least=5) if METRICS[name].group != "quality"]
    chosen: list[str] = []
    for name in sorted(costs, key=lambda cost: -len(rows.dropna(subset=[cost]))):
        if len(rows.dropna(subset=[*chosen, name])) >= 5:
            chosen.append(name)
    return chosen


def _guide_entries() -> "list[GuideEntry]":
    """Figure 6: the entries of Table 7 in the classes of its caption, by constraint and phase."""
    from favor.analyze import guide_entries
    from favor.records.published import guide, pareto_optimal

    fronts = dict.fromkeys((member.constraint, member.phase) for member in pareto_optimal())
    return guide_entries(member for constraint, phase in fronts for member in guide(constraint, phase))


def _limits(
    min_accuracy: str | None, max_memory: str | None, max_latency: str | None, max_params: str | None
) -> "tuple[Limit, ...]":
    from favor.analyze import Limit
    from favor.analyze.limits import LIMITED
    from favor.metrics import metric
    from favor.units import parse_quantity

    texts = dict(zip(LIMITED, (min_accuracy, max_memory, max_latency, max_params), strict=True))
    return tuple(
        Limit.named(option, parse_quantity(text, metric(LIMITED[option]).unit, f"--{option.replace('_', '-')}"))
        for option, text in texts.items()
        if text is not None
    )


def _how_to_measure() -> str:
    return "measure them with `favor measure NAME --study DIR` and add --study DIR"
