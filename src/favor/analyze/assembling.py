"""Assembling: from all rows of a table to one row per model and image size, with the best number of every metric.

Numbers measured on the device come first, then imported from a similar device, published, simulated. A cost never
comes from a device of another kind, and an accuracy only from the dataset and pipeline that are compared. Each
`<metric>` has the columns `<metric>_source`, `_setting` (a `Setting`) and `_provenance`; `_flags` if any
row is flagged; `_rounds` and `_stretch` if models took turns; `_budget` in seconds if a record tells it. A quality also
has `_pipeline`, `_images` if a record tells how many it was evaluated on, `_overrides` if a study gave values of their
own to some models, `_published_weights` if it was fine-tuned from such, and `_run`, the folder of the best run if a
record tells it; over the seeds of its training `_seeds`, `_mean`, `_std` and `_best`; `_epochs_low` and `_epochs_high`,
the shortest and the longest of these training runs; and `_unfinished` (its epochs).
"""

from collections.abc import Collection, Sequence
from dataclasses import replace
from functools import cached_property
from typing import Any, Literal

import numpy as np
import pandas as pd
from pandas.api.extensions import take

from favor.analyze.flags import flags_on
from favor.analyze.published_weights import PREPROCESSING
from favor.analyze.selection import numbers
from favor.analyze.setting import (
    PUBLISHED_WEIGHTS,
    QUALITY_CONDITIONS,
    RUN_CONDITIONS,
    SEEDS,
    Setting,
    column_of,
    condition_of,
    given_batch,
    in_run_setting,
    numbered_settings,
    on_device,
    on_like_device,
    source_order,
)
from favor.analyze.trainings import DEFAULT_SCOPE, LEAST_TO_COMPARE, Scope, is_early, results
from favor.metrics import METRICS

_CARD = ("family", "title", "where", "how", "year", "origin")
_MODEL = ["name", "img_size"]
_OVERRIDES = "overrides"
_IMAGES, _BUDGET, _RUN = "environment.evaluation_images", "environment.budget", "environment.run"
# What is known of the training behind a quality, and the suffix of its column.
_OF_TRAINING = {_OVERRIDES: "_overrides", PUBLISHED_WEIGHTS: "_published_weights", _RUN: "_run"}
_ORIGIN = ("source", "provenance", "pipeline", "flags", "stretch")
# What assembling reads besides numbers; a table has many more columns, and selecting rows takes longer with each.
_READ = {
    *(*_MODEL, *_ORIGIN, "final", "epochs", "recipe.epochs", "recipe.optimizer", "recipe.batch_size", "batch"),
    *(*SEEDS, *_OF_TRAINING, PREPROCESSING),
    *(*QUALITY_CONDITIONS, *RUN_CONDITIONS, "environment.host", "environment.device_name", _IMAGES, _BUDGET),
    *(condition for metric in METRICS.values() for condition in metric.conditions),
}
_OVER_SEEDS = ("_seeds", "_mean", "_std", "_best", "_epochs_low", "_epochs_high", "_unfinished")


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

    Qualities are those of the scope's dataset, or only those on the `basis` if one is given; without a basis the best
    training of a model counts. Costs on a device come first from the run `setting` if one is given. Without it and
    without a `device` they come from the device with the most measurements (or imported or published numbers).
    """
    return Assembler(table, scope).assemble(basis, device, setting)


class Assembler:
    """A table prepared for assembly in many settings, one after another: a page needs dozens of them."""

    def __init__(self, table: pd.DataFrame, scope: Scope = DEFAULT_SCOPE) -> None:
        succeeded = table[table["status"] == "ok"] if "status" in table.columns else table
        succeeded = results(succeeded, scope.unfinished)
        origin = {column: column_of(succeeded, column) for column in _ORIGIN}
        sized = succeeded.assign(img_size=column_of(succeeded, "img_size").astype(float), **origin)
        rows = sized[_MODEL].drop_duplicates()
        # A number without an image size belongs to every size of its model; it gets a row only if there is no size.
        has_size = rows["img_size"].notna().groupby(rows["name"]).transform("any")
        rows = rows[rows["img_size"].notna() | ~has_size].sort_values(_MODEL).reset_index(drop=True)
        card = [column for column in _CARD if column in sized.columns]
        self._scope, self._sized = scope, sized
        self._rows = rows.join(sized.groupby("name", sort=False)[card].first(), on="name")
        self._conditions = [column for column in sized.columns if column in _READ and sized[column].notna().any()]
        self._costs: dict[str, _Costs] = {}

    def assemble(self, basis: Setting | None, device: str | None, setting: Setting | None) -> pd.DataFrame:
        """The rows, as the function `assemble` describes them."""
        new_columns: dict[str, pd.Series] = {}
        for metric in [name for name in METRICS if name in self._sized.columns]:
            if is_quality(metric):
                candidates, settings = _comparable_qualities(self._candidates(metric), metric, self._scope, basis)
                order = candidates["_order"].to_numpy(dtype=float)
                best = _Numbers(metric, candidates, candidates["_setting"].to_numpy(), settings, self._rows)
            else:
                if metric not in self._costs:
                    self._costs[metric] = _Costs(metric, self._candidates(metric), self._rows)
                order = self._costs[metric].order(device, setting)
                best = self._costs[metric].numbers
            new_columns |= best.of_rows(order)
        return pd.concat([self._rows, pd.DataFrame(new_columns, index=self._rows.index)], axis=1)

    def _candidates(self, metric: str) -> pd.DataFrame:
        """The rows with a number; filtering is several times faster with only the columns of this metric."""
        sized = self._sized
        read = () if METRICS[metric].group == "counted" else self._conditions
        accuracy = ("top1",) if is_quality(metric) and "top1" in sized.columns else ()
        columns = dict.fromkeys([*_MODEL, *_own_columns(metric, sized), *_ORIGIN, *accuracy, *read])
        return sized.loc[np.isfinite(numbers(sized, metric)), list(columns)]


class _Costs:
    """The counts or costs of a metric, and which of them may represent a model in a setting."""

    def __init__(self, metric: str, candidates: pd.DataFrame, rows: pd.DataFrame) -> None:
        self._metric, self._candidates = metric, candidates
        self._source_order = source_order(candidates["source"])
        self._is_counted = METRICS[metric].group == "counted"
        self._code, self._settings = (
            (np.zeros(len(candidates), dtype=int), [Setting()])
            if self._is_counted
            else numbered_settings(candidates, RUN_CONDITIONS, metric)
        )
        self._by_device: dict[str | None, tuple[np.ndarray, np.ndarray]] = {}
        self.numbers = _Numbers(metric, candidates, self._code, self._settings, rows)

    def order(self, device: str | None, run: Setting | None) -> np.ndarray:
        """By candidate, lower is better; infinite for those of another kind of device."""
        order = self._source_order
        if self._is_counted:
            return order
        wanted = run.device if run else device or _main_device(self._candidates, order)
        same, alike = self._on(wanted)
        order = order + np.where(same, 0.0, 0.5)
        if run is not None:
            # All numbers of the run setting come first, the best source before the others.
            order = np.where(
                in_run_setting(pd.Series(self._settings, dtype=object), run)[self._code], 0.01 * order - 1.0, order
            )
        if METRICS[self._metric].at_best_batch:
            order = order + np.where(self._given_batch, 0.25, 0.0)
        return np.where(same | alike, order, np.inf)

    def _on(self, device: str | None) -> tuple[np.ndarray, np.ndarray]:
        """Masks of the candidates on a device, and on one of the same kind."""
        if device not in self._by_device:
            self._by_device[device] = on_device(self._candidates, device), on_like_device(self._candidates, device)
        return self._by_device[device]

    @cached_property
    def _given_batch(self) -> np.ndarray:
        return given_batch(self._candidates)


class _Numbers:
    """The columns of a metric by candidate, and the row of a model that each candidate can stand for."""

    def __init__(
        self, metric: str, candidates: pd.DataFrame, code: np.ndarray, settings: Sequence[Setting], rows: pd.DataFrame
    ) -> None:
        self._index, self._count = rows.index, len(candidates)
        self._columns = _renamed_columns(metric, candidates, code, settings)
        models = pd.concat([rows[_MODEL], candidates[_MODEL]], ignore_index=True)
        # Rows come first and are distinct, so that the number of their model is their position.
        number = models.groupby(_MODEL, dropna=False, sort=False).ngroup().to_numpy()[len(rows) :]
        self._row = np.where(number < len(rows), number, -1)
        # A number without an image size stands for every size of its model that has none of its own.
        self._of_any_size = candidates["img_size"].isna().to_numpy()
        names, distinct = pd.factorize(models["name"])
        self._name_of_row, self._name, self._names = names[: len(rows)], names[len(rows) :], len(distinct)

    def of_rows(self, order: np.ndarray) -> dict[str, pd.Series]:
        """The columns for the rows, each taken from its best candidate; the later of two that are equally good."""
        best_first = np.lexsort((-np.arange(self._count), order))
        best_first = best_first[np.isfinite(order[best_first])]
        chosen = _first_by_key(best_first, self._row, len(self._index))
        if self._of_any_size.any():
            of_name = _first_by_key(best_first[self._of_any_size[best_first]], self._name, self._names)
            chosen = np.where(chosen < 0, of_name[self._name_of_row], chosen)
        found = {name: take(column, chosen, allow_fill=True) for name, column in self._columns.items()}
        return {name: pd.Series(values, index=self._index) for name, values in found.items()}


def _first_by_key(candidates: np.ndarray, key: np.ndarray, keys: int) -> np.ndarray:
    """The first of the candidates for every key; -1 for a key without any."""
    first = np.full(keys, -1)
    backwards = candidates[::-1]
    backwards = backwards[key[backwards] >= 0]
    first[key[backwards]] = backwards  # of several candidates with one key, the last assignment stays
    return first


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
    has_number = assembled[metric].notna().to_numpy()
    # Rows share their settings: each is looked at once.
    code, distinct = pd.factorize(assembled[f"{metric}_setting"])
    settings: list[Setting] = list(distinct)
    chooses = has_number if choosing is None else has_number & choosing.to_numpy()
    if run is not None and METRICS[metric].depends_on_device:
        chooses = chooses & in_run_setting(assembled[f"{metric}_setting"], run)
    if not chooses.any() and run is None:
        return assembled, None, 0
    order = source_order(assembled[f"{metric}_source"])
    by_setting = {number: order[chooses & (code == number)] for number in dict.fromkeys(code[chooses])}
    kept = min(by_setting, key=lambda number: _preference(by_setting[number], settings[number]), default=None)
    setting = None if kept is None else settings[kept]
    elsewhere = has_number if kept is None else has_number & (code != kept)
    if not elsewhere.any():
        return assembled, setting, 0
    blanked = {column: assembled[column].mask(elsewhere) for column in _own_columns(metric, assembled)}
    return assembled.assign(**blanked), setting, int(elsewhere.sum())


def _preference(orders: np.ndarray, setting: Setting) -> tuple[bool, float, int, str]:
    """The order of settings: enough models to compare, the best source, the most models."""
    return len(orders) < LEAST_TO_COMPARE, float(orders.min()), -len(orders), str(setting)


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


def _comparable_qualities(
    candidates: pd.DataFrame, metric: str, scope: Scope, basis: Setting | None
) -> tuple[pd.DataFrame, list[Setting]]:
    """The rows whose quality may represent the model, one for all seeds, with `_order` and `_setting`'s number."""
    if scope.dataset is not None and "dataset" in candidates.columns:
        candidates = candidates[candidates["dataset"] == scope.dataset]
    code, settings = numbered_settings(candidates, QUALITY_CONDITIONS)
    early = is_early(candidates)
    candidates = candidates.assign(
        _order=source_order(candidates["source"]),
        _setting=code,
        _early=early,
        **{name: column_of(candidates, name) for name in (*SEEDS, *_OF_TRAINING, PREPROCESSING)},
    )
    if basis is not None:
        on_basis = np.array([setting == replace(basis, img_size=None) for setting in settings], dtype=bool)[code]
        sizes = condition_of(candidates, "img_size")
        if basis.img_size is None:
            on_basis &= sizes.isna().to_numpy()
        elif not scope.all_sizes:
            on_basis &= (sizes == basis.img_size).to_numpy()
        candidates = candidates[on_basis]
    runs = _over_seeds(candidates, metric, scope.seeds)
    return (runs if basis is not None else _of_best_training(runs, metric)), settings


def _over_seeds(candidates: pd.DataFrame, metric: str, seeds: Literal["mean", "best"]) -> pd.DataFrame:
    """One row for runs that differ only in the seed, each with its latest value; unfinished ones if none is finished.

    Of training runs of a model that differ in their overrides, the latest one counts; of those from different published
    weights, the best one.
    """
    models = [*_MODEL, "_order", "_setting"]
    start = [*models, PUBLISHED_WEIGHTS, PREPROCESSING]
    training = [*start, _OVERRIDES]
    latest = _latest_first(candidates, "_early").drop_duplicates([*training, *SEEDS])
    counts = ~latest["_early"] | latest.groupby(training, dropna=False)["_early"].transform("all")
    latest = latest[counts.to_numpy(dtype=bool)]
    groups = latest.groupby(training, dropna=False, sort=False)[metric]
    best = groups.transform("max" if METRICS[metric].better == "higher" else "min")
    count = groups.transform("count")
    best_at = groups.transform("idxmax" if METRICS[metric].better == "higher" else "idxmin")
    several = count > 1
    mean = groups.transform("mean")
    value = mean if seeds == "mean" else best
    ends = [column for column in (f"{metric}_low", f"{metric}_high") if column in latest.columns]
    by_training = latest.assign(
        _top1=column_of(latest, "top1").astype(float),
        _epochs=column_of(latest, "epochs").astype(float),
        _reached=column_of(latest, "epochs").astype(float).where(latest["_early"]),
    ).groupby(training, dropna=False, sort=False)
    combined = latest.assign(
        **{metric: latest[metric].where(~several, value), **{end: latest[end].mask(several) for end in ends}},
        **{f"{metric}_seeds": count, f"{metric}_mean": mean, f"{metric}_best": best},
        **{f"{metric}_std": groups.transform("std")},
        **{f"{metric}_epochs_low": by_training["_epochs"].transform("min")},
        **{f"{metric}_epochs_high": by_training["_epochs"].transform("max")},
        **{f"{metric}_unfinished": by_training["_reached"].transform("min")},
        **{_RUN: latest[_RUN].reindex(best_at).to_numpy()},
        _error=-by_training["_top1"].transform("mean"),
    ).drop_duplicates(start)
    return combined.sort_values(["_early", "_error"], kind="stable").drop_duplicates(models)


def _of_best_training(runs: pd.DataFrame, metric: str) -> pd.DataFrame:
    """The row of a model's best training, at its image size and from its best source.

    The best has the highest top-1 accuracy, so that all qualities of a model are from one training run.
    """
    ranked = runs.assign(_cost=METRICS[metric].sign * numbers(runs, metric))
    best = ranked.sort_values(["_order", "_error", "_cost"], kind="stable", na_position="last")
    return best.drop_duplicates(_MODEL)


def _latest_first(candidates: pd.DataFrame, *before: str) -> pd.DataFrame:
    """The best source first, and within a source the later row in the table, whatever its timestamp."""
    return candidates.iloc[::-1].sort_values(["_order", *before], kind="stable")


def _renamed_columns(
    metric: str, candidates: pd.DataFrame, code: np.ndarray, settings: Sequence[Setting]
) -> dict[str, Any]:
    """The columns that the metric adds to assembled rows, as arrays."""
    renamed = {column: f"{metric}_{column}" for column in ("source", "provenance")}
    renamed |= {"pipeline": f"{metric}_pipeline"} if is_quality(metric) else {}
    named = candidates.rename(columns=renamed)
    named[f"{metric}_setting"] = pd.Series([settings[number] for number in code], index=named.index, dtype=object)
    if named["flags"].notna().any():
        named[f"{metric}_flags"] = [flags_on(metric, flags) for flags in named["flags"]]
    if is_quality(metric) and _IMAGES in named.columns:
        named[f"{metric}_images"] = named[_IMAGES]
    for column, suffix in _OF_TRAINING.items() if is_quality(metric) else ():
        if named[column].notna().any():
            named[f"{metric}{suffix}"] = named[column]
    if not is_quality(metric) and _BUDGET in named.columns:
        named[f"{metric}_budget"] = named[_BUDGET]
    if f"{metric}_rounds" in named.columns:
        named[f"{metric}_stretch"] = named["stretch"]
    columns = {column: named[column] for column in _own_columns(metric, named)}
    return {
        name: column.to_numpy() if isinstance(column.dtype, np.dtype) else column.array
        for name, column in columns.items()
    }


def _own_columns(metric: str, table: pd.DataFrame) -> list[str]:
    suffixes = (
        "",
        "_low",
        "_high",
        "_source",
        "_setting",
        "_provenance",
        "_pipeline",
        "_images",
        *_OF_TRAINING.values(),
        "_budget",
        "_flags",
        "_rounds",
        "_stretch",
        *_OVER_SEEDS,
    )
    return [f"{metric}{suffix}" for suffix in suffixes if f"{metric}{suffix}" in table.columns]


def _main_device(candidates: pd.DataFrame, order: np.ndarray) -> str | None:
    """The device with the best source, and of those the one with the most models; None if no row has a device."""
    named = pd.DataFrame({"name": candidates["name"], "device": column_of(candidates, "device"), "order": order})
    named = named.dropna(subset=["device"])
    if not len(named):
        return None
    ranked = named.groupby("device").agg(order=("order", "min"), models=("name", "nunique"))
    return str(ranked.sort_values(["order", "models"], ascending=[True, False], kind="stable").index[0])


def is_quality(metric: str) -> bool:
    return METRICS[metric].group == "quality"
