"""The one comparison behind every table, figure and answer: one row per model and image size, in one setting."""

import copy
from collections.abc import Collection, Iterable, Mapping, Sequence
from dataclasses import dataclass
from functools import cached_property

import pandas as pd

from favor.analyze.assembling import Assembler, assemble, comparable, is_quality, with_metrics
from favor.analyze.intervals import with_quality_intervals
from favor.analyze.published_weights import with_own_weights
from favor.analyze.quantized import with_quantized_accuracy
from favor.analyze.run_settings import RunSettings
from favor.analyze.selection import fitting
from favor.analyze.setting import Setting, column_of, recorded_devices
from favor.analyze.trained_as import with_benchmark_rows
from favor.analyze.trainings import (
    DEFAULT_SCOPE,
    LEAST_TO_COMPARE,
    Scope,
    Training,
    chosen_setting,
    has_accuracy,
    quality_rows,
    results,
    trainings,
)
from favor.metrics import DEVICE_METRICS, METRICS, metric
from favor.text import first_few, plural

_MOST_NAMED = 6  # timm's results have more than a hundred pipelines


@dataclass(frozen=True, eq=False)
class Compared:
    """One row per model and image size, with every metric in one setting.

    `settings` has the setting of each metric; `elsewhere` marks the rows whose number is from another setting. It is
    left out here but still in `assembled`.
    """

    rows: pd.DataFrame
    assembled: pd.DataFrame
    run: Setting | None
    settings: Mapping[str, Setting | None]
    elsewhere: Mapping[str, pd.Series]

    @cached_property
    def trained(self) -> pd.DataFrame:
        """The rows with an accuracy."""
        return self.rows[self.rows["top1"].notna()]

    def left_out(self, metric: str, rows: pd.DataFrame) -> int:
        """How many of the given rows have a number for the metric only in another setting."""
        return int(self.elsewhere[metric].loc[rows.index].sum()) if metric in self.elsewhere else 0


class Comparison:
    """A wide table of records under a scope, from which models can be compared in any run setting.

    `metrics` limits the metrics (default: all). `of` holds the rows of the models that choose pipeline and setting
    (default: all).
    """

    def __init__(
        self,
        table: pd.DataFrame,
        scope: Scope = DEFAULT_SCOPE,
        *,
        metrics: Collection[str] | None = None,
        of: pd.DataFrame | None = None,
    ) -> None:
        self.scope, self.whole, self.metrics = scope, with_own_weights(with_benchmark_rows(table)), metrics
        self.table = with_metrics(results(self.whole, scope.unfinished), metrics)
        self.models = self.table if of is None else self.table[self.table["name"].isin(of["name"])]
        self.trainings: list[Training] = []
        self.basis: Setting | None = None
        if scope.dataset is not None and "top1" in self.table.columns:
            some = self.models if has_accuracy(self.models, scope.dataset) else self.table
            self.trainings = trainings(some, scope.dataset)
            if not scope.any_pipeline:
                self.basis = chosen_setting(self.trainings, scope.pipeline)
        elif scope.dataset is not None and (metrics is None or "top1" in metrics):
            quality_rows(self.table, scope.dataset)
        self._assembled: dict[Setting | None, pd.DataFrame] = {}
        self._costs: dict[Setting, pd.DataFrame] = {}
        self._compared: dict[Setting | None, Compared] = {}
        self._runs: dict[tuple[tuple[str, ...], str | None], Setting | None] = {}

    def narrowed(self, names: Iterable[str]) -> "Comparison":
        """The same comparison, with the settings chosen by these models only."""
        chosen = set(names)
        if chosen == self._names:
            return self
        narrowed = copy.copy(self)
        narrowed.models = self.table[self.table["name"].isin(chosen)]
        narrowed._compared, narrowed._runs = {}, {}
        for of_models in ("run_settings", "_names"):
            narrowed.__dict__.pop(of_models, None)
        return narrowed

    @cached_property
    def run_settings(self) -> RunSettings:
        """The run settings of the models that choose."""
        return RunSettings(self.models)

    @cached_property
    def devices(self) -> list[str]:
        """The devices and machines that any record names."""
        return recorded_devices(self.table)

    @cached_property
    def _names(self) -> set[str]:
        return set(self.models["name"])

    def run_setting(self, metrics: Sequence[str], device: str | None = None) -> Setting | None:
        """The run setting in which to compare by all the metrics; see the function `run_setting`."""
        # A metric without records changes nothing, and most of the page's questions involve one.
        known = tuple(name for name in metrics if METRICS[name].depends_on_device and name in self.models.columns)
        if metrics and not known and device is None:
            return None
        key = (known or tuple(metrics)), device
        if key not in self._runs:
            self._runs[key] = self.run_settings.best(key[0], device)
        return self._runs[key]

    def compare(self, metrics: Sequence[str] = (), device: str | None = None) -> Compared:
        """The models in the run setting that suits the metrics."""
        return self.compare_in(self.run_setting(metrics, device))

    def compare_in(self, run: Setting | None) -> Compared:
        """The models in a run setting; without one, no metric that depends on a device."""
        if run not in self._compared:
            assembled = rows = self._assemble(run)
            choosing = None if self.models is self.table else rows["name"].isin(self._names)
            settings: dict[str, Setting | None] = {}
            elsewhere: dict[str, pd.Series] = {}
            for name in [metric for metric in METRICS if metric in rows.columns]:
                if not (self.scope.any_pipeline and is_quality(name)):
                    rows, settings[name], left_out = comparable(rows, name, run, choosing)
                    if left_out:
                        elsewhere[name] = assembled[name].notna() & rows[name].isna()
            if run is not None and run.is_quantized:
                rows = with_quantized_accuracy(rows, assembled, self.scope.dataset, self.basis, run)
            self._compared[run] = Compared(rows, assembled, run, settings, elsewhere)
        return self._compared[run]

    def _assemble(self, run: Setting | None) -> pd.DataFrame:
        """One row per model and image size; qualities and counts do not depend on the setting and are cached."""
        if None not in self._assembled:
            others = [name for name in METRICS if not METRICS[name].depends_on_device]
            rows = assemble(with_metrics(self.table, others), self.scope, basis=self.basis)
            self._assembled[None] = with_quality_intervals(rows, self.scope.dataset)
        if run is not None and run not in self._assembled:
            if run not in self._costs:
                self._costs[run] = self._cost_assembler.assemble(None, None, run)
            costs, anywhere = self._costs[run], self._assembled[None]
            added = costs.columns.difference(anywhere.columns, sort=False)
            self._assembled[run] = pd.concat([anywhere, costs[added]], axis=1)
        return self._assembled[run]

    @cached_property
    def _cost_assembler(self) -> Assembler:
        return Assembler(with_metrics(self.table, DEVICE_METRICS))

    def accuracy_note(self, sources: str) -> str:
        """Which accuracies are compared, for how many models, which pipelines can be chosen, and what is left out."""
        if self.basis is None:
            return f"accuracy: {sources}; several pipelines, which are hardly comparable{self._own_starts()}"
        used = next(training for training in self.trainings if training.setting == self.basis)
        note = f"accuracy: {sources}; {self.basis} ({plural(used.models, 'model')}){self._own_starts()}"
        others: dict[str, str] = {}
        left_out: list[str] = []
        for training in self.trainings:
            pipeline = training.setting.pipeline
            if pipeline is not None and pipeline != self.basis.pipeline:
                others.setdefault(pipeline, str(training))
            elif training.setting != self.basis and (training.own or pipeline != self.basis.pipeline):
                left_out.append(f"{training.setting} ({plural(training.models, 'model')})")
        if others:
            pipelines = first_few(list(others.values()), _MOST_NAMED, "; ")
            note += f"; other pipelines: {pipelines} (choose with --pipeline NAME)"
        return f"{note}; left out, not comparable: {first_few(left_out, _MOST_NAMED, '; ')}" if left_out else note

    def _own_starts(self) -> str:
        """The published weights that each of the compared models was fine-tuned from, and a study's overrides."""
        rows = self._assemble(None)
        own = rows[column_of(rows, "top1_published_weights").notna()]
        starts = zip(own["name"], own.get("top1_published_weights", ()), own["img_size"], strict=True)
        each = [f"{name} ({weights}, {size:g} px)" for name, weights, size in starts]
        said = "; initial weights, their preprocessing and image size are each model's own: "
        return f"{said}{first_few(each, _MOST_NAMED)}{self._overrides(rows)}" if each else self._overrides(rows)

    def _overrides(self, rows: pd.DataFrame) -> str:
        """Which of the compared models a study trained with values of their own."""
        values = column_of(rows, "top1_overrides").dropna()
        named = [f"{name} ({value})" for name, value in zip(rows["name"][values.index], values, strict=True)]
        return f"; overrides of the study: {first_few(named, _MOST_NAMED)}" if named else ""


def alone_in_its_training(comparison: Comparison) -> str | None:
    """Why accuracies are not compared although several models have one; None if some were trained alike."""
    used = next((training for training in comparison.trainings if training.setting == comparison.basis), None)
    models = comparison.models
    names = models["name"][
        column_of(models, "top1").notna() & (column_of(models, "dataset") == comparison.scope.dataset)
    ]
    if used is None or used.models >= LEAST_TO_COMPARE or names.nunique() < LEAST_TO_COMPARE:
        return None
    return (
        f"accuracies cannot be compared: only one model was trained with {used.setting}; train others in the same way, "
        "or add --any-pipeline"
    )


def comparable_rows(
    table: pd.DataFrame,
    metrics: Sequence[str],
    scope: Scope,
    device: str | None,
    among: str | None,
    of: pd.DataFrame | None = None,
) -> tuple[pd.DataFrame, Comparison]:
    """One row per model that matches `among`, in the setting that suits them, or the models in `of`.

    A metric without any number on the device still gets a column.
    """
    for name in metrics:
        metric(name)
    models = of if of is not None else None if among is None else fitting(table, among)
    comparison = Comparison(table, scope, of=models)
    rows = fitting(comparison.compare(metrics, device).rows, among)
    return rows.reindex(columns=[*rows.columns, *(name for name in metrics if name not in rows.columns)]), comparison
