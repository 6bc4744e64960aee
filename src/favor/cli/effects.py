"""`favor effects`: what one change of an architecture does, all else equal."""

from typing import TYPE_CHECKING, Annotated

import typer

from favor.cli.console import emit_json, examples
from favor.cli.evidence import Dataset, OverSeeds, Pipeline, Studies, all_records, how_to_measure
from favor.cli.zoo import AsJson
from favor.terminal import note

if TYPE_CHECKING:
    import pandas as pd

EFFECTS_EXAMPLES = examples(
    ("favor effects", "on CIFAR-10, from the paper's tables"),
    ("favor effects --study mine --dataset tiny-imagenet", "with your own training runs"),
    ("favor effects --study mine --pipeline mine@1", "with the training runs of one recipe"),
    ("favor effects --study mine --seeds best", "the best over your seeds, as the paper prints"),
    ("favor effects train_memory --json", "another metric, for programs"),
)


def add_commands(app: typer.Typer) -> None:
    app.command("effects", epilog=EFFECTS_EXAMPLES)(effects_command)


def effects_command(
    metric: Annotated[str, typer.Argument(help="Metric to compare.")] = "top1",
    dataset: Dataset = "cifar10",
    pipeline: Pipeline = None,
    seeds: OverSeeds = "mean",
    study: Studies = None,
    as_json: AsJson = False,
) -> None:
    """Show what linear attention, convolutional embedding and rotary positions change in the Vision X-formers."""
    from favor.analyze import Comparison, Scope
    from favor.analyze.effects import left_out_of_effects, x_former_effects
    from favor.cli import decision_text
    from favor.errors import RequestError
    from favor.metrics import METRICS
    from favor.metrics import metric as known_metric

    table = all_records(study)
    is_quality = METRICS[known_metric(metric).name].group == "quality"
    if is_quality:
        _say_other_datasets(table, dataset)
        table = table[table["dataset"] == dataset]
    scope = Scope(dataset, pipeline, seeds=seeds)
    effects = x_former_effects(table, metric, scope)
    left_out = left_out_of_effects(table, metric, effects)
    why = f"left out, because other load disturbed their {metric}: {', '.join(left_out)}"
    which = f"{metric} on {dataset}" if is_quality else metric
    if not effects:
        remedy = f"{why}; `favor resume STUDY --repeat flagged` measures them again" if left_out else how_to_measure()
        raise RequestError(f"no two X-formers that differ in one part have {which}; {remedy}")
    is_own = any(effect.source == "measured" for effect in effects)
    if pipeline is not None and not (is_quality and is_own):
        raise RequestError("--pipeline chooses among your accuracies; here, no two X-formers of yours form a pair")
    if is_quality and is_own:
        note(Comparison(_own(table), scope, metrics=("top1",)).accuracy_note("measured"))
    elif is_quality and len(_own(table)):
        note("note: no two of your finished training runs differ in only one part")
    if left_out:
        note(why)
    emit_json([effect.to_dict() for effect in effects]) if as_json else decision_text.print_effects(effects)


def _say_other_datasets(table: "pd.DataFrame", dataset: str) -> None:
    """Name the datasets of the user's own runs: a subset has a name of its own, which is hard to guess."""
    others = sorted(set(_own(table)["dataset"].dropna()) - {dataset})
    if others:
        note(f"note: you also trained X-formers on {', '.join(others)}; choose with --dataset")


def _own(table: "pd.DataFrame") -> "pd.DataFrame":
    """The accuracies of the X-formers that the user trained."""
    return table[table["name"].str.startswith("vix_") & (table["source"] == "measured") & table["top1"].notna()]
