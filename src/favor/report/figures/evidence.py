"""The records behind the figures: the one comparison, with accuracies at every image size of a pipeline."""

from collections.abc import Sequence
from dataclasses import dataclass, replace
from functools import cached_property

import numpy as np
import pandas as pd

from favor.analyze.comparison import (
    DEFAULT_SCOPE,
    Comparison,
    Scope,
    results,
    trainings,
    with_metrics,
)
from favor.analyze.deviations import deviations
from favor.analyze.flags import is_disturbed, marked
from favor.analyze.origins import EXTRAPOLATED, shown_sources
from favor.analyze.published_weights import pipeline_names, with_own_weights
from favor.analyze.selection import complete_rows, known_of
from favor.analyze.setting import Setting, by_run_setting, column_of, source_order
from favor.analyze.trainings import LEAST_TO_COMPARE, unequal_lengths
from favor.metrics import METRICS
from favor.report.figures.axes import INFERENCE_TIME, quantity
from favor.text import plural

MAIN_DATASET = "imagenet-1k"
# The metrics that figures draw; a table has many more, and assembling all of them takes long.
DRAWN = (
    *("params", "macs", "ops_mixed", "activations", "throughput", "latency_p50", "inference_memory", "train_memory"),
    *("train_memory_reference_batch", "train_hours_per_epoch", "finetune_time", "energy_per_image", "top1"),
)
_COUNTS = ("params", "params_paper", "macs", "macs_matmul")  # these distinguish configurations
LEAST_TO_DRAW = LEAST_TO_COMPARE

_TIME = INFERENCE_TIME.name
_WORDS = {EXTRAPOLATED: "extrapolated from smaller batches"}


@dataclass(frozen=True, eq=False)
class Evidence:
    """All records, and the comparison of their models by the metrics that are asked for."""

    table: pd.DataFrame
    comparison: Comparison

    @property
    def base_size(self) -> int | None:
        """The image size of most comparisons; larger ones count as high resolution."""
        return self.comparison.basis.img_size if self.comparison.basis else None

    def rows(self, metrics: Sequence[str]) -> pd.DataFrame:
        """The models that have all the metrics, comparable in each; empty where a metric is not known at all.

        `1/throughput` may be asked for: the seconds that an image takes.
        """
        wanted = ["throughput" if metric == _TIME else metric for metric in metrics]
        rows = self.rows_in(self.comparison.run_setting(wanted), wanted)
        if _TIME not in metrics:
            return rows
        return _with_inference_time(rows) if len(rows) else rows.reindex(columns=[*rows.columns, _TIME])

    def rows_in(self, run: Setting | None, metrics: Sequence[str]) -> pd.DataFrame:
        """The models that have all the metrics, what runs on a device in this setting only."""
        rows = self.comparison.compare_in(run).rows
        if any(metric not in rows.columns for metric in metrics):
            return rows[:0].reindex(columns=list(dict.fromkeys([*rows.columns, *metrics])))
        return complete_rows(rows, metrics)[0]

    def everything(self, metrics: Sequence[str]) -> pd.DataFrame:
        """All models, with those of the metrics that are known, each in one setting."""
        return self.comparison.compare([metric for metric in metrics if metric in self.table.columns]).rows

    @cached_property
    def flags(self) -> dict[str, str]:
        """By name, why a published accuracy is not that of our model and so must not make a front."""
        rows = self.comparison.compare_in(None).rows
        return deviations(with_metrics(self.table, _COUNTS), rows) if "top1" in rows.columns else {}

    @cached_property
    def titles(self) -> dict[str, str]:
        """By family, the title of its cards."""
        known = self.table.dropna(subset=["family", "title"]).drop_duplicates("family")
        return {str(family): str(title) for family, title in zip(known["family"], known["title"], strict=True)}

    def settings(self, metric: str) -> list[Setting]:
        """The settings in which a metric is known, the reader's own first, then those with the most models."""
        if metric not in self.table.columns:
            return []
        ranked = [
            (float(source_order(column_of(rows, "source")).min()), -rows["name"].nunique(), str(setting), setting)
            for setting, rows in by_run_setting(complete_rows(self.table, [metric])[0])
            if len(rows)
        ]
        return [setting for *_, setting in sorted(ranked, key=lambda entry: entry[:3])]


def evidence_of(
    table: pd.DataFrame, metrics: Sequence[str] = DRAWN, dataset: str | None = None, scope: Scope = DEFAULT_SCOPE
) -> Evidence:
    """The evidence in a table of records, as far as it is about the metrics.

    It is on a dataset, or on ImageNet unless the reader has trained on something else only.
    """
    finished = results(with_own_weights(table), scope.unfinished)
    chosen = (dataset or _main_dataset(finished)) if "top1" in metrics else None
    # For a dataset on which the chosen pipeline was not run, the figure shows other accuracies.
    pipeline = scope.pipeline if scope.pipeline and chosen and _ran(finished, chosen, scope.pipeline) else None
    scope = replace(scope, dataset=chosen, pipeline=pipeline, all_sizes=True)
    present = known_of(table, metrics)
    return Evidence(table, Comparison(_about(table, present), scope, metrics=present))


def datasets_of(table: pd.DataFrame) -> list[str]:
    """The datasets with accuracies, those with the most models first."""
    if "top1" not in table.columns or "dataset" not in table.columns:
        return []
    known, _ = complete_rows(table, ["top1"])
    counts = known.groupby("dataset")["name"].nunique().sort_values(ascending=False, kind="stable")
    return [str(dataset) for dataset in counts.index]


def _main_dataset(table: pd.DataFrame) -> str | None:
    """ImageNet, unless the reader has trained on something else only."""
    own = table[column_of(table, "source") == "measured"]
    trained = [name for name in datasets_of(own) if _models(own, name) >= LEAST_TO_COMPARE]
    for candidates in (trained, datasets_of(table)):
        if candidates:
            return MAIN_DATASET if MAIN_DATASET in candidates else candidates[0]
    return None


def _models(table: pd.DataFrame, dataset: str) -> int:
    known, _ = complete_rows(table[column_of(table, "dataset") == dataset], ["top1"])
    return int(known["name"].nunique())


def _ran(table: pd.DataFrame, dataset: str, pipeline: str) -> bool:
    return any(training.setting.pipeline in pipeline_names(pipeline) for training in trainings(table, dataset))


def _about(table: pd.DataFrame, metrics: Sequence[str]) -> pd.DataFrame:
    """The rows with one of the metrics."""
    return table[table[list(metrics)].notna().any(axis=1)] if metrics else table[:0]


def _with_inference_time(rows: pd.DataFrame) -> pd.DataFrame:
    """The rows with the seconds per image, one over the throughput, and its interval, whose ends change places."""
    columns = {_TIME: 1 / rows["throughput"]}
    for end, other in (("low", "high"), ("high", "low")):
        known = f"throughput_{other}" in rows.columns
        columns[f"{_TIME}_{end}"] = 1 / rows[f"throughput_{other}"] if known else pd.Series(np.nan, rows.index)
    origin = {f"{_TIME}_{part}": column_of(rows, f"throughput_{part}") for part in ("source", "setting", "flags")}
    return rows.assign(**columns, **origin)


def sound_numbers(rows: pd.DataFrame, metrics: Sequence[str]) -> tuple[pd.DataFrame, str]:
    """The rows without numbers that were disturbed, which prove nothing, and a sentence on how many models have one.

    >>> rows = pd.DataFrame({"name": ["a", "b"], "throughput": [9.0, 8.0], "throughput_flags": ["busy", None]})
    >>> sound_numbers(rows, ["throughput"])[1]
    ' Left out: 1 model with a busy or contradictory cost.'
    """
    models: set[str] = set()
    for metric in known_of(rows, metrics):
        disturbed = marked(column_of(rows, f"{metric}_flags"), is_disturbed) & rows[metric].notna()
        models |= set(rows["name"][disturbed])
        own = [f"{metric}{end}" for end in ("", "_low", "_high", "_source", "_setting", "_flags")]
        rows = rows.assign(**{name: rows[name].mask(disturbed) for name in own if name in rows.columns})
    return rows, left_out_sentence(len(models))


def left_out_sentence(models: int) -> str:
    """How many models are left out for a disturbed cost, with a space before it; empty if none are."""
    return f" Left out: {plural(models, 'model')} with a busy or contradictory cost." if models else ""


def sources_sentence(rows: pd.DataFrame, metrics: Sequence[str]) -> str:
    """Where the drawn numbers come from, how many are in doubt, and whether the accuracies cannot be compared.

    >>> rows = pd.DataFrame({"name": ["a"], "top1": [80.0], "top1_source": ["published"], "top1_setting": ["cars"]})
    >>> sources_sentence(rows, ["top1"])
    'Sources: top-1 accuracy published (cars) for 1 model.'
    """
    unequal = unequal_lengths(rows) if "top1" in metrics else None
    said = f" The accuracies cannot be compared: {unequal}." if unequal else ""
    return f"Sources: {'; '.join(_source_of(rows, metric) for metric in metrics)}.{said}"


def _source_of(rows: pd.DataFrame, metric: str) -> str:
    title = quantity(metric).title
    title = title if title[:2].isupper() else title[0].lower() + title[1:]
    parts = []
    for source, group in rows.groupby(shown_sources(rows, metric), sort=False):
        models = group["name"].nunique()
        settings = sorted({str(setting) for setting in group[f"{metric}_setting"].dropna()} - {""})
        counted = metric in METRICS and METRICS[metric].group == "counted" and source == "measured"
        said = "counted by favor" if counted else _WORDS.get(str(source), str(source))
        where = f" ({'; '.join(settings)})" if settings else ""
        disturbed = int(marked(column_of(group, f"{metric}_flags"), is_disturbed).sum())
        doubts = f", {disturbed} of them busy or contradictory" if disturbed else ""
        parts.append(f"{said}{where} for {plural(models, 'model')}{doubts}")
    return f"{title} {' and '.join(parts)}"
