"""`favor recommend`, `pareto`, `correlate`, `disagree`: from records to a decision.

All of them read the published and counted records of the package and the studies that the user names, and start
without torch.
"""

from dataclasses import asdict
from typing import TYPE_CHECKING, Annotated

import typer

from favor.cli.console import emit_json, examples
from favor.cli.evidence import (
    Among,
    AnyPipeline,
    Dataset,
    Device,
    OverSeeds,
    Pipeline,
    Studies,
    Unfinished,
    all_records,
    how_to_measure,
    tell_left_out,
    tell_simulated,
)
from favor.cli.zoo import AsJson
from favor.errors import RequestError
from favor.evidence import best_weights, published_fronts, run_folders
from favor.terminal import note

if TYPE_CHECKING:
    import pandas as pd

    from favor.analyze import GuideEntry, Limit

RECOMMEND_EXAMPLES = examples(
    ("favor recommend --prefer throughput --min-accuracy 82", "the fastest model with at least 82 % on ImageNet"),
    ("favor recommend --max-memory 1GiB --max-params 30M", "the most accurate model within limits"),
    (
        "favor recommend --study mine --prefer latency --max-latency 50ms --json",
        "with your own measurements, for programs",
    ),
    (
        "favor recommend --study example:cpu --device cpu --device t4 --max-latency 60ms",
        "the most accurate model that meets the limit on both devices",
    ),
    ("favor recommend --study mine --prefer latency --runtime openvino", "in one runtime (default: each in its best)"),
    ("favor recommend --study mine --max-p99 50ms --qps 20", "the most accurate model that serves 20 images a second"),
    ("favor recommend --with-weights --max-params 30M", "the most accurate model with published weights"),
    (
        "favor recommend --among timm --device t4 --prefer throughput --min-accuracy 84",
        "the fastest of timm's pretrained networks, by simulated speeds",
    ),
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
    ("favor correlate --datasets", "is the ranking the same on all datasets?"),
    ("favor correlate macs throughput --without vit_ti16", "without an outlier"),
    ("favor correlate --devices --study mine", "is the ranking the same on all devices?"),
)

DISAGREE_EXAMPLES = examples(
    ("favor disagree", "where indicators rank models differently"),
    ("favor disagree params throughput --json", "for programs"),
)


def add_commands(app: typer.Typer) -> None:
    app.command("recommend", epilog=RECOMMEND_EXAMPLES)(recommend_command)
    app.command("pareto", epilog=PARETO_EXAMPLES)(pareto_command)
    app.command("correlate", epilog=CORRELATE_EXAMPLES)(correlate_command)
    app.command("disagree", epilog=DISAGREE_EXAMPLES)(disagree_command)


def recommend_command(
    prefer: Annotated[
        str | None,
        typer.Option(help="accuracy (the default), throughput, latency, memory, params, energy or training-time."),
    ] = None,
    min_accuracy: Annotated[str | None, typer.Option(metavar="82", help="Minimum top-1 accuracy in %.")] = None,
    max_memory: Annotated[
        str | None, typer.Option(metavar="1GiB", help="Maximum memory of tensors at inference.")
    ] = None,
    max_process_memory: Annotated[
        str | None, typer.Option(metavar="2GiB", help="Maximum memory of the whole process at inference.")
    ] = None,
    max_latency: Annotated[
        str | None, typer.Option(metavar="50ms", help="Maximum median latency of one image.")
    ] = None,
    max_p99: Annotated[
        str | None, typer.Option(metavar="80ms", help="Maximum 99th percentile of the latency of one image.")
    ] = None,
    qps: Annotated[
        str | None, typer.Option(metavar="20", help="Images per second to serve within --max-p99 (see favor load).")
    ] = None,
    max_params: Annotated[str | None, typer.Option(metavar="30M", help="Maximum number of parameters.")] = None,
    device: Annotated[
        list[str] | None,
        typer.Option(
            metavar="NAME",
            help="Device or machine, such as cpu; repeatable: models are ranked on the first, limits apply to all.",
        ),
    ] = None,
    runtime: Annotated[
        str | None,
        typer.Option(help="eager, compile, onnxruntime or openvino (default: each model's best)."),
    ] = None,
    precision: Annotated[
        str | None,
        typer.Option(help="fp32, bf16, amp-fp16, amp-bf16, fp16 or int8 (default: each model's best)."),
    ] = None,
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
        typer.Option("--with-weights", help="Only models with published weights, ranked by the weights' accuracy."),
    ] = False,
    guide: Annotated[bool, typer.Option("--guide", help="Show the benchmark's flow chart instead.")] = False,
    as_json: AsJson = False,
) -> None:
    """Recommend a model under your limits, and say why and how certain the answer is."""
    from favor.analyze import Comparison, Request, recommend
    from favor.analyze import guide as flow_chart
    from favor.analyze.deviations import deviations
    from favor.cli import decision_text

    limits = _limits(
        min_accuracy=min_accuracy,
        max_memory=max_memory,
        max_process_memory=max_process_memory,
        max_latency=max_latency,
        max_p99=max_p99,
        qps=qps,
        max_params=max_params,
    )
    devices = tuple(device or ())
    request = Request(
        prefer,
        limits,
        dataset,
        devices[0] if devices else None,
        among,
        any_pipeline,
        top,
        pipeline,
        unfinished,
        seeds,
        with_weights,
        devices[1:],
        runtime=runtime,
        precision=precision,
    ).into(study or (), run_folders(study or ()))
    table = all_records(study, *devices, with_weights=with_weights, timm=request.of_timm)
    if guide:
        rows = Comparison(table, request.scope, metrics=("top1", "params", "macs_matmul", "macs")).compare_in(None).rows
        chart = flow_chart(_guide_entries(), rows, deviations(table, rows))
        emit_json(chart.to_dict()) if as_json else decision_text.print_guide(chart)
        return
    answer = recommend(table, request, published_fronts())
    weights = {choice.name: best_weights(choice.name) for choice in answer.choices}
    if as_json:
        plain = {name: None if best is None else asdict(best) for name, best in weights.items()}
        emit_json(answer.to_dict() | {"weights": plain})
    else:
        decision_text.print_recommendation(answer, weights)
    if not answer.choices:
        raise typer.Exit(code=1)


def pareto_command(
    metrics: Annotated[list[str] | None, typer.Argument(help="Two or more metrics (default: top1 throughput).")] = None,
    strict: Annotated[
        bool, typer.Option("--strict", help="Drop a model only if another beats it in every metric (the paper's rule).")
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
    """Show the Pareto front: the models that no other dominates (at least as good in all metrics, better in one)."""
    from favor.analyze import Scope, front_of
    from favor.analyze.origins import origin_notes
    from favor.analyze.trainings import LEAST_TO_COMPARE
    from favor.cli import decision_text

    wanted = metrics or ["top1", "throughput"]
    table = all_records(study, device)
    scope = Scope(dataset, pipeline, any_pipeline, unfinished, seeds)
    front = front_of(table, wanted, scope, device, among, strict=strict)
    result, rows = front.result, front.rows
    tell_left_out(front.comparison, front.comparison.compare(wanted, device).rows, wanted, device)
    if len(result.rows) < LEAST_TO_COMPARE:
        who = "only one model has" if len(result.rows) else "no model has"
        raise RequestError(f"{who} all of {', '.join(wanted)}; {how_to_measure()}")
    if as_json:
        emit_json(front.to_dict())
    else:
        decision_text.print_pareto(front, everyone)
        for text in origin_notes(rows, wanted):
            note(text)
        if front.run is not None and front.other_runtimes:
            others = ", ".join(front.other_runtimes)
            note(f"in {front.run.runtime_name}, not in {others}; `favor recommend` takes each model's best runtime")
        if "top1" in wanted:
            note(front.comparison.accuracy_note(" and ".join(sorted(rows["top1_source"].dropna().unique()))))
        tell_simulated(rows, wanted)


def correlate_command(
    metrics: Annotated[
        list[str] | None, typer.Argument(help="Metrics (default: those that five or more models have).")
    ] = None,
    datasets: Annotated[
        bool, typer.Option("--datasets", help="Correlate accuracies between datasets instead.")
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
    unfinished: Unfinished = False,
    study: Studies = None,
    as_json: AsJson = False,
) -> None:
    """Show how well one metric predicts another: Pearson and Spearman correlations with 95 % intervals."""
    from favor.analyze import Scope, correlate, correlate_datasets, correlate_devices
    from favor.analyze.comparison import comparable_rows
    from favor.analyze.correlation import ONE_OVER
    from favor.analyze.selection import fitting
    from favor.cli import decision_text

    if datasets and metrics:
        raise RequestError("--datasets compares accuracies between datasets and takes no metrics")
    if datasets and devices:
        raise RequestError("--datasets and --devices cannot be combined; use one of them")
    if devices and len(metrics or []) > 1:
        raise RequestError("--devices compares one metric between devices, for example throughput")
    if devices and (pipeline is not None or unfinished):
        option = "--unfinished" if pipeline is None else "--pipeline"
        raise RequestError(f"{option} chooses accuracies, which --devices does not compare; leave it out")
    table = all_records(study, None if datasets else device, every_device=devices)
    if datasets:
        scope = Scope(pipeline=pipeline, unfinished=unfinished)
        result = correlate_datasets(fitting(table, among), scope, without=without or ())
    elif devices:
        result = correlate_devices(fitting(table, among), (metrics or ["throughput"])[0], without=without or ())
    else:
        named = list(dict.fromkeys(name.removeprefix(ONE_OVER) for name in metrics or []))
        rows, comparison = comparable_rows(table, named, Scope(dataset, pipeline, unfinished=unfinished), device, among)
        tell_left_out(comparison, rows, named, device)
        result = correlate(rows, metrics or _known_metrics(rows, least=5), without=without or ())
        tell_simulated(rows, [name.removeprefix(ONE_OVER) for name in result.columns])
    if result.unequal and not result.pairs:
        raise RequestError("; ".join(result.unequal))
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
    from favor.analyze.comparison import comparable_rows
    from favor.cli import decision_text

    table, asked = all_records(study, device), indicators or []
    rows, comparison = comparable_rows(table, asked, Scope(any_pipeline=True), device, among)
    tell_left_out(comparison, rows, asked, device)
    rows = rows[rows["img_size"] == img_size]
    chosen = indicators or _indicators_in_common(rows)
    result = disagreement(rows, chosen)
    if result.pairs[0].n < 2:
        which = "undisturbed numbers for all" if result.excluded.disturbed else "all"
        raise RequestError(f"no two models have {which} of {', '.join(chosen)} at {img_size} px; {how_to_measure()}")
    emit_json(result.to_dict()) if as_json else decision_text.print_disagreement(result)
    tell_simulated(rows, chosen)


def _known_metrics(rows: "pd.DataFrame", least: int) -> list[str]:
    """The metrics with a better direction that at least `least` rows have."""
    from favor.metrics import METRICS

    known = [
        name
        for name, entry in METRICS.items()
        if name in rows.columns and entry.better != "neither" and rows[name].notna().sum() >= least
    ]
    if len(known) < 2:
        raise RequestError(f"no two metrics are known for {least} or more models; {how_to_measure()}")
    return known


def _indicators_in_common(rows: "pd.DataFrame") -> list[str]:
    """The cost indicators that many models share: the most common first, as long as five models have all of them."""
    from favor.analyze.reasons import undisturbed
    from favor.metrics import METRICS

    costs = [name for name in _known_metrics(rows, least=5) if METRICS[name].group != "quality"]
    chosen: list[str] = []
    for name in sorted(costs, key=lambda cost: -len(rows.dropna(subset=[cost]))):
        if len(undisturbed(rows.dropna(subset=[*chosen, name]), [*chosen, name])) >= 5:
            chosen.append(name)
    return chosen


def _guide_entries() -> "list[GuideEntry]":
    """Figure 6: the entries of Table 7 in the classes of its caption, by constraint and phase."""
    from favor.analyze import guide_entries
    from favor.records.published import guide, pareto_optimal

    fronts = dict.fromkeys((member.constraint, member.phase) for member in pareto_optimal())
    return guide_entries(member for constraint, phase in fronts for member in guide(constraint, phase))


def _limits(**asked: str | None) -> "tuple[Limit, ...]":
    from favor.analyze import Limit
    from favor.analyze.limits import under_load

    return under_load(
        Limit.parsed(option, text, f"--{option.replace('_', '-')}")
        for option, text in asked.items()
        if text is not None
    )
