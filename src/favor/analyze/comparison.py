"""The one comparison behind every table, figure and answer: one row per model and image size, in one setting.

For every metric the best known number is used: measured on the device, then imported from a similar device, then
published, then simulated. A cost never comes from a device of another kind, and an accuracy only from the data set and
pipeline that are compared. Each `<metric>` has the columns `<metric>_source`, `<metric>_setting` (a `Setting`) and
`<metric>_provenance`; a quality also has `_pipeline`, `_seeds`, `_mean`, `_std` and `_best` over the seeds of its
training, and `_unfinished` (epochs so far).
"""

import copy
from collections.abc import Collection, Iterable, Mapping, Sequence
from dataclasses import dataclass, replace
from functools import cached_property
from typing import Literal

import numpy as np
import pandas as pd

from favor.analyze.devices import device_kind, require_known
from favor.analyze.intervals import with_quality_intervals
from favor.analyze.selection import numbers
from favor.analyze.setting import (
    QUALITY_CONDITIONS,
    RUN_CONDITIONS,
    Setting,
    column_of,
    given_batch,
    in_run_setting,
    models_by_machine,
    numbered_settings,
    on_device,
    on_like_device,
    recorded_devices,
    source_order,
)
from favor.analyze.trained_as import DEFAULT_PIPELINE, with_benchmark_rows
from favor.errors import RequestError, unknown_name
from favor.metrics import DEVICE_METRICS, METRICS, QUALITIES

LEAST_TO_COMPARE = 2  # a comparison needs two models with a number

_CARD = ("family", "title", "where", "how", "year", "origin")
_MODEL = ["name", "img_size"]
_SEED = "recipe.seed"
_OVER_SEEDS = ("_seeds", "_mean", "_std", "_best", "_unfinished")


@dataclass(frozen=True)
class Scope:
    """Which qualities are compared: the data set, one pipeline or any, and how seeds are combined.

    Without a `pipeline` the user's own is used if two or more models have it, else the benchmark's.
    """

    dataset: str | None = None
    pipeline: str | None = None
    any_pipeline: bool = False
    unfinished: bool = False
    seeds: Literal["mean", "best"] = "mean"
    all_sizes: bool = False


DEFAULT_SCOPE = Scope()


@dataclass(frozen=True)
class Training:
    """Comparable accuracies: their setting, the number of models, and how many of them the user trained."""

    setting: Setting
    source: str
    models: int
    own: int

    def __str__(self) -> str:
        return f"{self.setting.pipeline or 'unknown'} ({self.source}, {_models(self.models)})"


def trainings(table: pd.DataFrame, dataset: str) -> list[Training]:
    """The trainings behind the accuracies on a data set, the deciding one first.

    The user's own pipeline decides if it has enough models to compare: of several the one with the most models, then
    the longest, then the smallest images (larger ones are its high resolution), then the newest. Otherwise it is the
    benchmark's, then an imported or published one.
    """
    rows = _quality_rows(table, dataset)
    code, settings = numbered_settings(rows, (*QUALITY_CONDITIONS, "img_size"))
    sources = column_of(rows, "source").to_numpy()
    order = source_order(column_of(rows, "source"))
    facts = pd.DataFrame({"name": rows["name"].to_numpy(), "order": order, "row": rows.index})
    by_setting = facts.groupby(code)
    models, newest, best = by_setting["name"].nunique(), by_setting["row"].max(), by_setting["order"].idxmin()
    measured = sources == "measured"
    owned = facts[measured].groupby(code[measured])["name"].nunique()
    ranked = []
    for number, setting in enumerate(settings):
        own = int(owned.get(number, 0))
        decides = own >= LEAST_TO_COMPARE
        training = Training(setting, str(sources[best[number]]), int(models[number]), own)
        length = setting.epochs or setting.minutes or 0
        longest = (-own, -length, -(setting.pretraining_img_size or 0), setting.img_size or 0)
        foreign = setting.pipeline != DEFAULT_PIPELINE
        usual = (foreign, bool(setting.distillation), order[best[number]], -training.models)
        ranked.append(((not decides, *(longest if decides else usual)), newest[number], training))
    ranked.sort(key=lambda candidate: candidate[1], reverse=True)
    return [training for _, _, training in sorted(ranked, key=lambda candidate: candidate[0])]


def accuracy_basis(table: pd.DataFrame, dataset: str, pipeline: str | None = None) -> Setting:
    """The setting that accuracies must share: the deciding one, or the best of the requested pipeline."""
    return _chosen(trainings(results(table), dataset), pipeline)


def _chosen(ranked: Sequence[Training], pipeline: str | None) -> Setting:
    if pipeline is None:
        return ranked[0].setting
    chosen = next((training.setting for training in ranked if training.setting.pipeline == pipeline), None)
    if chosen is None:
        names = list(dict.fromkeys(str(training.setting.pipeline) for training in ranked))
        raise unknown_name("pipeline with accuracies", pipeline, names, f"known: {', '.join(names)}")
    return chosen


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
        self.scope, self.whole, self.metrics = scope, with_benchmark_rows(table), metrics
        self.table = with_metrics(results(self.whole, scope.unfinished), metrics)
        self.models = self.table if of is None else self.table[self.table["name"].isin(of["name"])]
        self.trainings: list[Training] = []
        self.basis: Setting | None = None
        if scope.dataset is not None and "top1" in self.table.columns:
            some = self.models if _has_accuracy(self.models, scope.dataset) else self.table
            self.trainings = trainings(some, scope.dataset)
            if not scope.any_pipeline:
                self.basis = _chosen(self.trainings, scope.pipeline)
        elif scope.dataset is not None and (metrics is None or "top1" in metrics):
            _quality_rows(self.table, scope.dataset)
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
    def run_settings(self) -> "RunSettings":
        """The run settings of the models that choose."""
        return RunSettings(self.models)

    @cached_property
    def devices(self) -> list[str]:
        """The devices and machines that any record names."""
        return recorded_devices(self.table)

    @cached_property
    def _names(self) -> set[str]:
        return set(self.models["name"])

    def rescoped(self, scope: Scope) -> "Comparison":
        """The same records under another scope; numbers that depend on a device stay the same."""
        rescoped = Comparison(self.whole, scope, metrics=self.metrics)
        rescoped._costs = self._costs
        return rescoped

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
                if not (self.scope.any_pipeline and _is_quality(name)):
                    rows, settings[name], left_out = comparable(rows, name, run, choosing)
                    if left_out:
                        elsewhere[name] = assembled[name].notna() & rows[name].isna()
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
                self._costs[run] = assemble(with_metrics(self.table, DEVICE_METRICS), setting=run)
            costs, anywhere = self._costs[run], self._assembled[None]
            added = costs.columns.difference(anywhere.columns, sort=False)
            self._assembled[run] = pd.concat([anywhere, costs[added]], axis=1)
        return self._assembled[run]

    def accuracy_note(self, sources: str) -> str:
        """Which accuracies are compared, for how many models, and which other pipelines exist."""
        if self.basis is None:
            return f"accuracy: {sources}; several pipelines, which are hardly comparable"
        used = next(training for training in self.trainings if training.setting == self.basis)
        note = f"accuracy: {sources}; {self.basis} ({_models(used.models)})"
        others: dict[str | None, str] = {}
        for training in self.trainings:
            if training.setting.pipeline != self.basis.pipeline:
                others.setdefault(training.setting.pipeline, str(training))
            elif training.own and training.setting != self.basis:
                others[str(training.setting)] = f"{training.setting} ({_models(training.models)})"
        return (
            f"{note}; other pipelines: {'; '.join(others.values())} (choose with --pipeline NAME)" if others else note
        )


class RunSettings:
    """The run settings of a table: what of each is known of how many models, to choose one to compare in."""

    def __init__(self, table: pd.DataFrame) -> None:
        self.devices = recorded_devices(table)
        self._rows = table[table["status"] == "ok"] if "status" in table.columns else table
        self._of_row, self._settings = numbered_settings(self._rows, RUN_CONDITIONS)
        # One number per setting and model, and the setting of each, so that models are counted without grouping rows.
        names, different = pd.factorize(self._rows["name"])
        pairs, self._pair_of_row = np.unique(self._of_row * max(len(different), 1) + names, return_inverse=True)
        self._setting_of_pair = pairs // max(len(different), 1)
        self._sources = source_order(column_of(self._rows, "source"))
        self._popularity = models_by_machine(self._rows)

    def best(self, metrics: Sequence[str] = (), device: str | None = None) -> Setting | None:
        """The run setting to compare models in by all the metrics together, or by any where none is named.

        It is on the device (or machine) asked for where that has numbers, else on a like one; then the one with the
        best source, of the machine on which most models were measured, and with the most models. None where no row ran.
        """
        require_known(device, self.devices)
        asked = [name for name in metrics if METRICS[name].depends_on_device]
        columns = [name for name in (asked or DEVICE_METRICS) if name in self._rows.columns]
        if (metrics and not asked) or not columns:
            return None
        known = [np.isfinite(numbers(self._rows, name)) for name in columns]
        ran = np.logical_or.reduce(known)
        best_source = np.full(len(self._settings), np.inf)
        np.minimum.at(best_source, self._of_row[ran], self._sources[ran])
        of_pair = [np.bincount(self._pair_of_row[mask], minlength=len(self._setting_of_pair)) > 0 for mask in known]
        # A column that is wanted and that the table does not have is known of no model; the others still decide.
        models = self._count(np.logical_and.reduce(of_pair) if asked else np.logical_or.reduce(of_pair))
        of_first = self._count(of_pair[0])

        def order(at: int) -> tuple[bool, bool, bool, float, int, int, int, str]:
            setting = self._settings[at]
            return (
                models[at] == 0,
                device is not None and not setting.is_on(device),
                models[at] < LEAST_TO_COMPARE,
                best_source[at],
                -self._popularity.get(setting.machine or "", 0),
                -models[at],
                -of_first[at],
                str(setting),
            )

        candidates = [
            at for at in np.unique(self._of_row[ran]) if device is None or _is_on_or_like(self._settings[at], device)
        ]
        return self._settings[min(candidates, key=order)] if candidates else None

    def _count(self, known_of_pair: np.ndarray) -> np.ndarray:
        """How many models of each setting are marked."""
        return np.bincount(self._setting_of_pair[known_of_pair], minlength=len(self._settings))


def _is_on_or_like(setting: Setting, device: str) -> bool:
    kind = device_kind(device)
    return setting.is_on(device) or (kind != "unknown" and device_kind(setting.device) == kind)


def run_setting(table: pd.DataFrame, metrics: Sequence[str] = (), device: str | None = None) -> Setting | None:
    """The run setting of a table to compare models in; see `RunSettings.best`."""
    return RunSettings(table).best(metrics, device)


def results(table: pd.DataFrame, unfinished: bool = False) -> pd.DataFrame:
    """The table with the qualities of finished trainings only, without those of earlier epochs."""
    early = (column_of(table, "final") == False).fillna(False).to_numpy(dtype=bool)  # noqa: E712
    if unfinished or not early.any():
        return table
    qualities = [f"{name}{end}" for name in QUALITIES for end in ("", "_low", "_high") if f"{name}{end}" in table]
    return table.assign(**{name: table[name].mask(early) for name in qualities})


def with_metrics(table: pd.DataFrame, metrics: Collection[str] | None) -> pd.DataFrame:
    """The table with only these metrics, if any are named: the others would only cost time."""
    if metrics is None:
        return table
    others = {f"{name}{end}" for name in METRICS if name not in metrics for end in ("", "_low", "_high")}
    return table[[column for column in table.columns if column not in others]]


def assemble(
    table: pd.DataFrame,
    scope: Scope = DEFAULT_SCOPE,
    *,
    basis: Setting | None = None,
    device: str | None = None,
    setting: Setting | None = None,
) -> pd.DataFrame:
    """One row per model and image size with the best number of every metric.

    Qualities are those of the scope's data set, or only those on the `basis` if one is given; without a basis the best
    training of a model counts. Costs on a device come first from the run `setting` if one is given. Without it and
    without a `device` they come from the device with the most measurements (or imported or published numbers).
    """
    succeeded = table[table["status"] == "ok"] if "status" in table.columns else table
    succeeded = results(succeeded, scope.unfinished)
    origin = {column: column_of(succeeded, column) for column in ("source", "provenance", "pipeline")}
    sized = succeeded.assign(img_size=column_of(succeeded, "img_size").astype(float), **origin)
    rows = sized[_MODEL].drop_duplicates()
    # A number without an image size belongs to every size of its model; it gets its own row only if there is no size.
    has_size = rows["img_size"].notna().groupby(rows["name"]).transform("any")
    rows = rows[rows["img_size"].notna() | ~has_size].sort_values(_MODEL).reset_index(drop=True)
    for column in _CARD:
        if column in sized.columns:
            first_known = sized[["name", column]].dropna().drop_duplicates("name").set_index("name")[column]
            rows[column] = rows["name"].map(first_known)
    new_columns: dict[str, pd.Series] = {}
    numbers_and_ends = {f"{name}{end}" for name in METRICS for end in ("", "_low", "_high")}
    others = [column for column in sized.columns if column not in numbers_and_ends and column not in _CARD]
    for metric in [name for name in METRICS if name in sized.columns]:
        # Filtering and sorting is several times faster with only the columns of this metric.
        needed = dict.fromkeys([*_own_columns(metric, sized), *(["top1"] if _is_quality(metric) else []), *others])
        there = [column for column in needed if column in sized.columns]
        candidates = sized.loc[np.isfinite(numbers(sized, metric)), there]
        if _is_quality(metric):
            candidates, settings = _comparable_qualities(candidates, metric, scope, basis)
        else:
            candidates, settings = _comparable_costs(candidates, metric, device, setting)
        new_columns |= _best_of(candidates, metric, rows, settings)
    return pd.concat([rows, pd.DataFrame(new_columns, index=rows.index)], axis=1)


def comparable(
    assembled: pd.DataFrame, metric: str, run: Setting | None = None, choosing: pd.Series | None = None
) -> tuple[pd.DataFrame, Setting | None, int]:
    """The table with the metric in one setting only, that setting, and how many numbers of others were dropped.

    Throughputs of two machines, or in two precisions, cannot be ranked together. With a `run` setting, costs on a
    device are kept only from there. The setting with the best source is used if two or more models have it, else the
    one with the most models; `choosing` marks the rows that choose.
    """
    if metric not in assembled.columns or METRICS[metric].group == "counted":
        return assembled, None, 0
    known = assembled[assembled[metric].notna() if choosing is None else assembled[metric].notna() & choosing]
    if run is not None and METRICS[metric].depends_on_device:
        known = known[in_run_setting(known[f"{metric}_setting"], run)]
    if not len(known) and run is None:
        return assembled, None, 0
    by_setting: dict[Setting, list[str]] = {}
    for setting, source in zip(known[f"{metric}_setting"], known[f"{metric}_source"], strict=True):
        by_setting.setdefault(setting, []).append(source)
    kept = min(by_setting, key=lambda setting: _preference(by_setting[setting], setting), default=None)
    elsewhere = assembled[metric].notna() & (assembled[f"{metric}_setting"] != kept)
    if not elsewhere.any():
        return assembled, kept, 0
    blanked = {column: assembled[column].mask(elsewhere) for column in _own_columns(metric, assembled)}
    return assembled.assign(**blanked), kept, int(elsewhere.sum())


def _preference(sources: Sequence[str], setting: Setting) -> tuple[bool, float, int, str]:
    return len(sources) < LEAST_TO_COMPARE, source_order(pd.Series(sources)).min(), -len(sources), str(setting)


def with_failures(assembled: pd.DataFrame, table: pd.DataFrame, metrics: Sequence[str]) -> pd.DataFrame:
    """The assembled table with a `status`: failed if a job of the model failed and a number is missing for it.

    Models without any success, which `assemble` leaves out, get a row, so that they can be counted.
    """
    if "status" not in table.columns:
        return assembled
    card = [column for column in _CARD if column in table.columns]
    failures = table[table["status"] != "ok"]
    failures = failures.assign(img_size=column_of(failures, "img_size").astype(float)).drop_duplicates(_MODEL)
    # A failure without an image size holds for every size of the model.
    failed_at, anyhow = pd.MultiIndex.from_frame(failures[_MODEL]), failures.loc[failures["img_size"].isna(), "name"]
    of_model = pd.MultiIndex.from_frame(assembled[_MODEL])
    lacking = assembled[[name for name in metrics if name in assembled.columns]].isna().any(axis=1)
    failed = lacking & (of_model.isin(failed_at) | assembled["name"].isin(anyhow))
    unseen = failures[
        ~(failed_at.isin(of_model) | (failures["img_size"].isna() & failures["name"].isin(assembled["name"])))
    ]
    rows = assembled.assign(status=np.where(failed, "failed", "ok"))
    return pd.concat([rows, unseen[[*_MODEL, *card]].assign(status="failed")], ignore_index=True)


def left_out_machines(table: pd.DataFrame, setting: Setting | None) -> str | None:
    """A note on measurements from machines other than the setting's; None if there are none."""
    if setting is None:
        return None
    others = {name: count for name, count in models_by_machine(table).items() if name != setting.machine}
    if not others:
        return None
    counted = ", ".join(f"{_models(count)} on {name}" for name, count in others.items())
    used = f"from machine {setting.machine}" if setting.machine else f"from setting {setting or 'unknown'}"
    return f"numbers are {used}; left out, since machines are not comparable: {counted} (choose with --device NAME)"


def left_out_devices(table: pd.DataFrame, metric: str, setting: Setting) -> str | None:
    """A note on other devices with this metric, if the setting is not the user's own machine; None without any."""
    if setting.machine is not None or metric not in table.columns:
        return None
    known = table.assign(device=column_of(table, "device")).dropna(subset=["device", metric])
    models = known[known["device"] != setting.device].groupby("device", sort=False)["name"].nunique()
    others = models[models >= LEAST_TO_COMPARE].sort_values(ascending=False, kind="stable")
    if not len(others):
        return None
    counted = ", ".join(f"{device} ({count} models)" for device, count in others.items())
    return f"{metric} is also known on other devices: {counted}; choose with --device NAME"


def origin_notes(rows: pd.DataFrame, metrics: Sequence[str]) -> list[str]:
    """The source and setting of each metric that depends on a device."""
    notes = []
    for metric in metrics:
        if METRICS[metric].depends_on_device and metric in rows.columns and rows[metric].notna().any():
            first = rows[rows[metric].notna()].iloc[0]
            notes.append(f"{metric}: {first[f'{metric}_source']}; {first[f'{metric}_setting']}")
    return notes


def _comparable_costs(
    candidates: pd.DataFrame, metric: str, device: str | None, run: Setting | None
) -> tuple[pd.DataFrame, list[Setting]]:
    """The rows whose count or cost may represent the model, with `_order` (lower is better) and `_setting`'s number."""
    order = source_order(candidates["source"])
    if METRICS[metric].group == "counted":
        return candidates.assign(_order=order, _setting=0), [Setting()]
    code, settings = numbered_settings(candidates, RUN_CONDITIONS, metric)
    wanted = run.device if run else device or _main_device(candidates, order)
    same = on_device(candidates, wanted)
    order = order + np.where(same, 0.0, 0.5)
    if run is not None:
        order = np.where(in_run_setting(pd.Series(settings, dtype=object), run)[code], -1.0, order)
    if METRICS[metric].at_best_batch:
        order = order + np.where(given_batch(candidates), 0.25, 0.0)
    return candidates.assign(_order=order, _setting=code)[same | on_like_device(candidates, wanted)], settings


def _comparable_qualities(
    candidates: pd.DataFrame, metric: str, scope: Scope, basis: Setting | None
) -> tuple[pd.DataFrame, list[Setting]]:
    """The rows whose quality may represent the model, one for all seeds, with `_order` and `_setting`'s number."""
    if scope.dataset is not None and "dataset" in candidates.columns:
        candidates = candidates[candidates["dataset"] == scope.dataset]
    code, settings = numbered_settings(candidates, QUALITY_CONDITIONS)
    early = (column_of(candidates, "final") == False).fillna(False).to_numpy(dtype=bool)  # noqa: E712
    candidates = candidates.assign(
        _order=source_order(candidates["source"]), _setting=code, _early=early, _seed=column_of(candidates, _SEED)
    )
    if basis is not None:
        on_basis = np.array([setting == replace(basis, img_size=None) for setting in settings], dtype=bool)[code]
        if basis.img_size is None:
            on_basis &= candidates["img_size"].isna().to_numpy()
        elif not scope.all_sizes:
            on_basis &= (candidates["img_size"] == basis.img_size).to_numpy()
        candidates = candidates[on_basis]
    runs = _over_seeds(candidates, metric, scope.seeds)
    return (runs if basis is not None else _of_best_training(runs, metric)), settings


def _over_seeds(candidates: pd.DataFrame, metric: str, seeds: Literal["mean", "best"]) -> pd.DataFrame:
    """One row for all seeds of a training, each with its latest value; finished runs take precedence."""
    training = [*_MODEL, "_order", "_setting"]
    latest = _latest_first(candidates, "_early").drop_duplicates([*training, "_seed"])
    groups = latest.groupby(training, dropna=False, sort=False)[metric]
    best = groups.transform("max" if METRICS[metric].better == "higher" else "min")
    count = groups.transform("count")
    several = count > 1
    mean = groups.transform("mean")
    value = mean if seeds == "mean" else best
    ends = [column for column in (f"{metric}_low", f"{metric}_high") if column in latest.columns]
    by_training = latest.assign(
        _top1=column_of(latest, "top1").astype(float),
        _reached=column_of(latest, "epochs").astype(float).where(latest["_early"]),
    ).groupby(training, dropna=False, sort=False)
    return latest.assign(
        **{metric: latest[metric].where(~several, value), **{end: latest[end].mask(several) for end in ends}},
        **{f"{metric}_seeds": count, f"{metric}_mean": mean, f"{metric}_best": best},
        **{f"{metric}_std": groups.transform("std")},
        **{f"{metric}_unfinished": by_training["_reached"].transform("min")},
        _error=-by_training["_top1"].transform("mean"),
    ).drop_duplicates(training)


def _of_best_training(runs: pd.DataFrame, metric: str) -> pd.DataFrame:
    """The row of a model's best training, at its image size and from its best source.

    The best has the highest top-1 accuracy, so that all qualities of a model are from one training.
    """
    ranked = runs.assign(_cost=METRICS[metric].sign * numbers(runs, metric))
    best = ranked.sort_values(["_order", "_error", "_cost"], kind="stable", na_position="last")
    return best.drop_duplicates(_MODEL)


def _latest_first(candidates: pd.DataFrame, *before: str) -> pd.DataFrame:
    """The best source first, and within a source the later row in the table, whatever its timestamp."""
    return candidates.iloc[::-1].sort_values(["_order", *before], kind="stable")


def _best_of(
    candidates: pd.DataFrame, metric: str, rows: pd.DataFrame, settings: Sequence[Setting]
) -> dict[str, pd.Series]:
    """The metric's columns for the rows, each taken from its best candidate; the later of two that are equally good."""
    renamed = {column: f"{metric}_{column}" for column in ("source", "provenance")}
    renamed |= {"pipeline": f"{metric}_pipeline"} if _is_quality(metric) else {}
    best = _latest_first(candidates).drop_duplicates(_MODEL).rename(columns=renamed)
    best[f"{metric}_setting"] = pd.Series([settings[code] for code in best["_setting"]], index=best.index, dtype=object)
    columns = [column for column in _own_columns(metric, best) if column in best.columns]
    of_row = rows[_MODEL].merge(best[[*_MODEL, *columns]], on=_MODEL, how="left").set_axis(rows.index)
    of_any_size = best[best["img_size"].isna()].set_index("name")
    if not len(of_any_size):
        return {column: of_row[column] for column in columns}
    return {
        column: of_row[column].where(of_row[metric].notna(), rows["name"].map(of_any_size[column]))
        for column in columns
    }


def _own_columns(metric: str, table: pd.DataFrame) -> list[str]:
    suffixes = ("", "_low", "_high", "_source", "_setting", "_provenance", "_pipeline", *_OVER_SEEDS)
    return [f"{metric}{suffix}" for suffix in suffixes if f"{metric}{suffix}" in table.columns]


def _main_device(candidates: pd.DataFrame, order: np.ndarray) -> str | None:
    """The device with the best source, and of those the one with the most models; None if no row has a device."""
    named = pd.DataFrame({"name": candidates["name"], "device": column_of(candidates, "device"), "order": order})
    named = named.dropna(subset=["device"])
    if not len(named):
        return None
    ranked = named.groupby("device").agg(order=("order", "min"), models=("name", "nunique"))
    return str(ranked.sort_values(["order", "models"], ascending=[True, False], kind="stable").index[0])


def _quality_rows(table: pd.DataFrame, dataset: str) -> pd.DataFrame:
    """The rows with an accuracy on a data set; an error if there are none."""
    if "top1" not in table.columns or "dataset" not in table.columns:
        raise RequestError("no accuracy is known: the records have no top1 on any data set")
    trained = table[table["top1"].notna() & (column_of(table, "status").fillna("ok") == "ok")]
    rows = trained[trained["dataset"] == dataset]
    if not len(rows):
        names = [str(name) for name in trained["dataset"].dropna().unique()]
        raise unknown_name("data set with accuracies", dataset, names, f"known: {', '.join(names) or 'none'}")
    return rows


def _has_accuracy(table: pd.DataFrame, dataset: str) -> bool:
    return bool((table["top1"].notna() & (column_of(table, "dataset") == dataset)).any())


def _is_quality(metric: str) -> bool:
    return METRICS[metric].group == "quality"


def _models(count: int) -> str:
    return f"{count} model{'' if count == 1 else 's'}"
