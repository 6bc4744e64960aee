"""How well one indicator predicts another: Pearson and Spearman correlations, each with an interval.

Paper: Nauen et al., "Which Transformer to Favor", Tables 2, 5 and 6 and appendix D.3.
"""

import math
from collections.abc import Callable, Sequence
from dataclasses import asdict, dataclass, replace
from functools import lru_cache, partial
from typing import Any

import numpy as np
import pandas as pd

from favor.analyze.comparison import DEFAULT_SCOPE, Comparison, Scope
from favor.analyze.flags import is_disturbed, marked
from favor.analyze.intervals import CONFIDENCE, Z
from favor.analyze.reasons import disturbed_rows
from favor.analyze.selection import Excluded, complete_rows, numbers, require_columns
from favor.analyze.setting import RUN_CONDITIONS, column_of, numbered_settings, source_order
from favor.analyze.trainings import is_early, not_comparable, results
from favor.errors import RequestError, unknown_name
from favor.metrics import METRICS, QUALITIES

_SAME_MODEL = ("name", "img_size", "pipeline", "pretraining", "pretraining_img_size", "distillation")
_LEAST_ROWS = 3
ONE_OVER = "1/"
Ranks = Callable[[bytes], np.ndarray]
"""The ranks of a column, given as its bytes, in all draws."""


@dataclass(frozen=True)
class Correlation:
    """The correlation of two columns over the n rows that have both; None where it is not defined."""

    x: str
    y: str
    n: int
    pearson: float | None
    pearson_low: float | None
    pearson_high: float | None
    spearman: float | None
    spearman_low: float | None
    spearman_high: float | None


@dataclass(frozen=True)
class CorrelationResult:
    """All pairs of columns; Pearson's intervals by Fisher's z, Spearman's by a seeded bootstrap, both at 95 %.

    `source` is where all values come from, if it is one source. `unequal` says why accuracies, or those on a
    dataset, are left out: their training runs differ in length.
    """

    columns: tuple[str, ...]
    pairs: tuple[Correlation, ...]
    without: tuple[str, ...]
    excluded: Excluded
    source: str | None = None
    unequal: tuple[str, ...] = ()

    def pair(self, x: str, y: str) -> Correlation:
        """The pair of two columns, in either order."""
        for pair in self.pairs:
            if {pair.x, pair.y} == {x, y}:
                return pair
        raise unknown_name("pair of columns", f"{x}, {y}", [f"{pair.x}, {pair.y}" for pair in self.pairs])

    def to_dict(self) -> dict[str, Any]:
        """Plain content for JSON."""
        return asdict(self)


def correlate(
    table: pd.DataFrame, metrics: Sequence[str], *, without: Sequence[str] = (), draws: int = 500, seed: int = 0
) -> CorrelationResult:
    """Correlations between metrics over the rows of a table; `without` names models to leave out (outliers).

    Numbers that were measured on a busy machine or contradict others are left out, and so are accuracies of training
    runs that differ in length.
    Spearman's interval takes `draws` resamplings of the rows; with 0 it is left out.
    `1/METRIC` is a metric, too: `1/throughput` is the inference time of the paper's Table 2.

    >>> table = pd.DataFrame({"name": list("abcd"), "macs": [1.0, 2.0, 3.0, 4.0], "params": [1.0, 3.0, 2.0, 4.0]})
    >>> round(correlate(table, ["macs", "params"]).pair("macs", "params").spearman, 2)
    0.8
    """
    if len(set(metrics)) < 2:
        raise RequestError("a correlation needs two or more metrics, for example params and throughput")
    kept = _leave_out(table, without)
    usable, excluded = complete_rows(kept, [])
    columns = {name: _values(usable, name) for name in metrics}
    qualities = [name for name in columns if name.removeprefix(ONE_OVER) in QUALITIES]
    paired = usable[np.sum([np.isfinite(column) for column in columns.values()], axis=0) > 1]
    unequal = not_comparable(paired) if qualities else None
    columns = {name: column for name, column in columns.items() if not (unequal and name in qualities)}
    disturbed = {name: np.isfinite(column) & _is_disturbed(usable, name) for name, column in columns.items()}
    columns = {name: np.where(disturbed[name], np.nan, column) for name, column in columns.items()}
    excluded = replace(excluded, disturbed=int(np.logical_or.reduce(list(disturbed.values())).sum()))
    pairs = _all_pairs(columns, tuple(without), excluded, draws, seed)
    return replace(pairs, unequal=(unequal,)) if unequal else pairs


def correlate_datasets(
    table: pd.DataFrame, scope: Scope = DEFAULT_SCOPE, *, without: Sequence[str] = (), draws: int = 500
) -> CorrelationResult:
    """Correlations of top-1 between datasets, over models trained alike: same pipeline and pretraining.

    If a model has several values on a dataset, those reported together with the most other datasets are used, since
    they come from one training run; remaining duplicates are averaged. The user's own runs come first: each dataset has
    its own recipe there, so the runs that decide comparisons on it are used. Datasets on which these runs differ in
    length are left out; if no two are left, there are no pairs. A `pipeline` of the scope is used on every dataset that
    it was run on; on others, accuracies from the same source are used.
    """
    metric = "top1"
    require_columns(table, ["name", "dataset", metric], "a correlation between datasets")
    usable, excluded = complete_rows(results(_leave_out(table, without), scope.unfinished), [metric])
    usable = usable[usable["dataset"].notna()]
    if scope.pipeline is not None:
        usable = _of_pipeline(usable, scope.pipeline)
    own, unequal = _own_by_dataset(usable, scope)
    if len(own.dropna(thresh=2)) >= _LEAST_ROWS:
        columns = {str(name): own[name].to_numpy(dtype=float) for name in own if name not in unequal}
        pairs = _all_pairs(columns, tuple(without), excluded, draws)
        return replace(pairs, source="measured", unequal=tuple(unequal.values()))
    same_model = [column for column in _SAME_MODEL if column in usable.columns]
    usable = _stated_together(usable[~is_early(usable)], same_model)
    by_dataset = usable.groupby([*same_model, "dataset"], dropna=False)[metric].mean().unstack("dataset")
    if by_dataset.shape[1] < 2:
        raise RequestError(
            f"a correlation between datasets needs at least two; this table has {list(by_dataset.columns)}"
        )
    # The dataset with the most models comes first: the others are compared with it.
    order = by_dataset.notna().sum().sort_values(ascending=False, kind="stable").index
    columns = {str(dataset): by_dataset[dataset].to_numpy(dtype=float) for dataset in order}
    sources = column_of(usable, "source").dropna().unique()
    source = str(sources[0]) if len(sources) == 1 else None
    return replace(_all_pairs(columns, tuple(without), excluded, draws), source=source)


def correlate_devices(
    table: pd.DataFrame, metric: str = "throughput", *, without: Sequence[str] = (), draws: int = 500
) -> CorrelationResult:
    """Correlations of one metric between devices, over models at one image size; `without` names outliers (D.3).

    A column is one setting: a device in two precisions has two columns, and so do two machines of one kind. If a model
    has several values in one setting, those from the best source count: measured, imported, published, then simulated.
    Numbers that were measured on a busy machine or contradict others are left out.

    >>> speeds = {"cpu": [1.0, 2.0, 3.0, 4.0], "a100": [10.0, 30.0, 20.0, 40.0]}
    >>> table = pd.concat(pd.DataFrame({"name": list("abcd"), "device": device, "throughput": values})
    ...                   for device, values in speeds.items())
    >>> round(correlate_devices(table).pair("a100", "cpu").spearman, 2)
    0.8
    """
    if not METRICS[metric].depends_on_device:
        raise RequestError(f"{metric} does not depend on the device; use a metric that does, such as throughput")
    require_columns(table, ["name", "device", metric], "a correlation between devices")
    usable, excluded = complete_rows(_leave_out(table, without), [metric])
    usable = usable[usable["device"].notna()]
    disturbed = disturbed_rows(usable, metric)
    excluded = replace(excluded, disturbed=int(usable.loc[disturbed, "name"].nunique()))
    usable = usable[~disturbed]
    same_model = [column for column in ("name", "img_size") if column in usable.columns]
    code, settings = numbered_settings(usable, RUN_CONDITIONS, metric)
    ranked = usable[same_model].assign(setting=code, source=source_order(column_of(usable, "source")))
    best = ranked.groupby([*same_model, "setting"], dropna=False)["source"].transform("min")
    is_best = (ranked["source"] == best).to_numpy()
    usable, code = usable[is_best], code[is_best]
    simulated = (column_of(usable, "source") == "simulated").groupby(code).mean()
    by_setting = usable.groupby([*same_model, code], dropna=False)[metric].mean().unstack(-1)
    if by_setting.shape[1] < 2:
        devices = ", ".join(map(str, settings)) if len(usable) else "none"
        raise RequestError(f"a correlation between devices needs {metric} on at least two; the records have {devices}")
    order = by_setting.notna().sum().sort_values(ascending=False, kind="stable").index
    brief = [setting.short for setting in settings]
    columns = {}
    for number in order:
        text = brief[number] if brief.count(brief[number]) == 1 else str(settings[number])
        marked = text if simulated[number] == 0 else f"{text} ({'partly ' if simulated[number] < 1 else ''}simulated)"
        columns[marked] = by_setting[number].to_numpy(dtype=float)
    return _all_pairs(columns, tuple(without), excluded, draws)


def _is_disturbed(table: pd.DataFrame, name: str) -> np.ndarray:
    """Mask of the rows of a compared table whose number of a metric was disturbed."""
    column = name if name in table.columns else name.removeprefix(ONE_OVER)
    return marked(column_of(table, f"{column}_flags"), is_disturbed)


def _values(table: pd.DataFrame, name: str) -> np.ndarray:
    if name in table.columns or not name.startswith(ONE_OVER):
        return numbers(table, name)
    values = numbers(table, name.removeprefix(ONE_OVER))
    return np.divide(1.0, values, out=np.full(len(values), np.nan), where=values != 0)


def _of_pipeline(rows: pd.DataFrame, pipeline: str) -> pd.DataFrame:
    """The rows of a pipeline, and those of its source on datasets that it was not run on."""
    pipelines = column_of(rows, "pipeline")
    chosen = rows[pipelines == pipeline]
    if not len(chosen):
        raise unknown_name("pipeline with accuracies", pipeline, list(map(str, pipelines.dropna().unique())))
    elsewhere = ~rows["dataset"].isin(chosen["dataset"]) & column_of(rows, "source").isin(column_of(chosen, "source"))
    return rows[(pipelines == pipeline) | elsewhere]


def _own_by_dataset(rows: pd.DataFrame, scope: Scope) -> tuple[pd.DataFrame, dict[str, str]]:
    """The accuracies of the user's own training runs: a row for each model, a column for each dataset.

    And by dataset, why the accuracies of the models with several datasets cannot be compared.
    """
    own = rows[column_of(rows, "source") == "measured"]
    compared = {}
    for dataset, trained in own.groupby("dataset"):
        deciding = replace(scope, dataset=str(dataset), pipeline=None, all_sizes=False)
        compared[str(dataset)] = Comparison(trained, deciding, metrics=("top1",)).compare_in(None).trained
    columns = pd.DataFrame({dataset: of.groupby("name")["top1"].first() for dataset, of in compared.items()})
    several = set(columns.dropna(thresh=2).index)
    reasons = {dataset: not_comparable(of[of["name"].isin(several)]) for dataset, of in compared.items()}
    return columns, {dataset: f"{dataset}: {why}" for dataset, why in reasons.items() if why}


def _stated_together(rows: pd.DataFrame, same_model: Sequence[str]) -> pd.DataFrame:
    """Of rows that repeat a dataset, those from the source with the most datasets of the model."""
    if "provenance" not in rows.columns:
        return rows
    datasets = rows.groupby([*same_model, "provenance"], dropna=False)["dataset"].transform("nunique")
    most = datasets.groupby([rows[column] for column in (*same_model, "dataset")], dropna=False).transform("max")
    return rows[datasets == most]


def _leave_out(table: pd.DataFrame, without: Sequence[str]) -> pd.DataFrame:
    if not without:
        return table
    names = set(table["name"])
    for name in without:
        if name not in names:
            raise unknown_name("model of this table", name, [str(known) for known in names])
    return table[~table["name"].isin(list(without))]


def _all_pairs(
    columns: dict[str, np.ndarray], without: tuple[str, ...], excluded: Excluded, draws: int, seed: int = 0
) -> CorrelationResult:
    names = list(columns)
    # Most pairs of a column are over the same rows: its ranks, which take the time, are computed once for them.
    ranks = lru_cache(maxsize=64)(partial(_resampled_ranks, draws=draws, seed=seed)) if draws else None
    pairs = tuple(
        _correlation(x, y, columns[x], columns[y], ranks) for i, x in enumerate(names) for y in names[i + 1 :]
    )
    return CorrelationResult(tuple(names), pairs, without, excluded)


def _correlation(x_name: str, y_name: str, x: np.ndarray, y: np.ndarray, ranks: Ranks | None) -> Correlation:
    both = np.isfinite(x) & np.isfinite(y)
    x, y = x[both], y[both]
    if len(x) < _LEAST_ROWS or np.ptp(x) == 0 or np.ptp(y) == 0:
        return Correlation(x_name, y_name, len(x), None, None, None, None, None, None)
    pearson, spearman = _pearson(x, y), _pearson(pd.Series(x).rank().to_numpy(), pd.Series(y).rank().to_numpy())
    pearson_low, pearson_high = _fisher_interval(pearson, len(x))
    spearman_low, spearman_high = _bootstrap_interval(x, y, ranks) if ranks else (None, None)
    return Correlation(
        x_name, y_name, len(x), pearson, pearson_low, pearson_high, spearman, spearman_low, spearman_high
    )


def _pearson(x: np.ndarray, y: np.ndarray) -> float:
    """Pearson's coefficient; loading scipy's takes longer than a page has for all its correlations."""
    x, y = x - x.mean(), y - y.mean()
    return float(np.clip((x / np.linalg.norm(x)) @ (y / np.linalg.norm(y)), -1, 1))


def _fisher_interval(r: float, n: int) -> tuple[float | None, float | None]:
    """Pearson's interval by Fisher's z, whose standard error is 1/sqrt(n - 3); none below four rows."""
    if n <= _LEAST_ROWS:
        return None, None
    if abs(r) >= 1:
        return r, r
    half = Z / math.sqrt(n - 3)
    return math.tanh(math.atanh(r) - half), math.tanh(math.atanh(r) + half)


def _bootstrap_interval(x: np.ndarray, y: np.ndarray, ranks: Ranks) -> tuple[float, float]:
    """Spearman's percentile interval over resampled rows; a draw without variation says nothing and is left out."""
    coefficients = (ranks(x.tobytes()) * ranks(y.tobytes())).sum(axis=1)
    tail = (1 - CONFIDENCE) / 2
    low, high = np.nanquantile(coefficients, [tail, 1 - tail])
    return float(low), float(high)


def _resampled_ranks(column: bytes, *, draws: int, seed: int) -> np.ndarray:
    """The ranks of a column in resampled rows, centered and of length 1; NaN in a draw without variation."""
    from scipy import stats

    values = np.frombuffer(column)
    rows = np.random.default_rng(seed).integers(0, len(values), size=(draws, len(values)))
    ranks = stats.rankdata(values[rows], axis=1)
    ranks -= ranks.mean(axis=1, keepdims=True)
    spread = np.sqrt((ranks**2).sum(axis=1, keepdims=True))
    return np.divide(ranks, spread, out=np.full_like(ranks, np.nan), where=spread > 0)
