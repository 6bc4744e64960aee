"""The records behind the figures: a row per model and image size, a metric in one setting, accuracies on one basis.

The reader's own accuracies go before published ones where five models or more have one, because a front needs a few.
What ran on a device is taken as `favor pareto` takes it: measured goes before imported, published and simulated.
"""

from collections.abc import Sequence
from dataclasses import dataclass, field, replace
from functools import cached_property

import numpy as np
import pandas as pd

from favor.analyze import accuracy_basis, assemble, comparable
from favor.analyze.assemble import AccuracyBasis
from favor.analyze.deviations import deviations
from favor.analyze.intervals import with_accuracy_intervals
from favor.analyze.selection import complete_rows
from favor.analyze.settings import (
    COUNTED,
    RUN_CONDITIONS,
    RunSetting,
    column_of,
    machines_of,
    run_setting,
    setting_text,
    source_order,
)
from favor.metrics import METRICS
from favor.report.figures.axes import INFERENCE_TIME, quantity

MAIN_DATASET = "imagenet-1k"
LEAST_OWN_ACCURACIES = 5
# What any figure draws; a table has many more metrics, and what is put together for all of them takes long.
DRAWN = (
    *("params", "macs", "ops_mixed", "activations", "throughput", "latency_p50", "inference_memory", "train_memory"),
    *("train_hours_per_epoch", "finetune_time", "energy_per_image", "top1"),
)
_COUNTS = ("params", "params_paper", "macs", "macs_matmul")  # by which configurations are told apart
LEAST_TO_DRAW = 2  # one model is no comparison

_TIME = INFERENCE_TIME.name


@dataclass(frozen=True, eq=False)
class Evidence:
    """All records, the metrics that are asked of them, and the basis of accuracies; None where none is known."""

    table: pd.DataFrame
    metrics: tuple[str, ...]
    basis: AccuracyBasis | None
    _assembled: dict[str | None, pd.DataFrame] = field(default_factory=dict, repr=False)
    _found: dict[tuple[str, ...], pd.DataFrame] = field(default_factory=dict, repr=False)

    @property
    def base_size(self) -> int | None:
        """The image size that most is compared at; what is larger counts as high resolution."""
        return self.basis.img_size if self.basis else None

    def rows(self, metrics: Sequence[str]) -> pd.DataFrame:
        """The models that have all the metrics, comparable in each; empty where a metric is not known at all.

        `1/throughput` may be asked for: the seconds that an image takes.
        """
        asked = tuple(metrics)
        if asked not in self._found:
            self._found[asked] = self._complete(asked)
        return self._found[asked]

    def _complete(self, metrics: Sequence[str]) -> pd.DataFrame:
        wanted = ["throughput" if metric == _TIME else metric for metric in metrics]
        run = run_setting(self.table, wanted)
        rows = self._best_rows(run)
        if any(metric not in rows.columns for metric in wanted):
            return _no_rows(rows, wanted)
        for metric in wanted:
            rows, _, _ = comparable(rows, metric, run)
        found, _ = complete_rows(rows, wanted)
        return _with_inference_time(found) if _TIME in metrics else found

    def everything(self, metrics: Sequence[str]) -> pd.DataFrame:
        """All models, with those of the metrics that are known, each in one setting."""
        run = run_setting(self.table, [metric for metric in metrics if metric in self.table.columns])
        rows = self._best_rows(run)
        for metric in metrics:
            rows, _, _ = comparable(rows, metric, run)
        return rows

    @cached_property
    def flags(self) -> dict[str, str]:
        """By name, why a published accuracy is not that of our model and so must not make a front."""
        counts = _narrowed(self.table, _COUNTS)
        return deviations(counts, self._best_rows(None)) if self.basis and "top1" in self.table.columns else {}

    @cached_property
    def titles(self) -> dict[str, str]:
        """By family, the title of its cards."""
        known = self.table.dropna(subset=["family", "title"]).drop_duplicates("family")
        return {str(family): str(title) for family, title in zip(known["family"], known["title"], strict=True)}

    def settings(self, metric: str) -> list[RunSetting]:
        """The settings in which a metric is known, the reader's own first, then those with the most models."""
        if metric not in self.table.columns:
            return []
        known, _ = complete_rows(self.table, [metric])
        if not len(known):
            return []
        texts = setting_text(known, RUN_CONDITIONS)
        places = []
        for text, rows in known.groupby(texts):
            source = float(source_order(column_of(rows, "source")).min())
            device, machine = (_first(values) for values in (column_of(rows, "device"), machines_of(rows)))
            places.append((source, -rows["name"].nunique(), RunSetting(str(text), device, machine)))
        return [setting for _, _, setting in sorted(places, key=lambda place: (place[0], place[1], place[2].text))]

    def rows_in(self, setting: RunSetting, metrics: Sequence[str]) -> pd.DataFrame:
        """The models that have all the metrics, what runs on a device in this setting only."""
        rows = self._best_rows(setting)
        if any(metric not in rows.columns for metric in metrics):
            return _no_rows(rows, metrics)
        for metric in metrics:
            rows, _, _ = comparable(rows, metric, setting)
        return complete_rows(rows, metrics)[0]

    def _best_rows(self, run: RunSetting | None) -> pd.DataFrame:
        """One row per model and image size; an accuracy counts at the size it was found at, in the basis's pipeline."""
        # Counts and accuracies are the same in every setting: without one, any will do.
        key = run.text if run else next(iter(self._assembled), None)
        if key not in self._assembled:
            self._assembled[key] = self._assemble(run)
        return self._assembled[key]

    def _assemble(self, run: RunSetting | None) -> pd.DataFrame:
        table = _narrowed(self.table, self.metrics)
        if self.basis is None:
            return assemble(table, setting=run)
        rows = assemble(table, basis=self.basis, setting=run)
        for size in _other_sizes(table, self.basis):
            accuracies = _narrowed(table[column_of(table, "img_size") == size], ["top1"])
            rows = _with_accuracies(rows, assemble(accuracies, basis=replace(self.basis, img_size=size)), size)
        return with_accuracy_intervals(rows, self.basis.dataset)


def evidence_of(table: pd.DataFrame, metrics: Sequence[str] = DRAWN, dataset: str | None = None) -> Evidence:
    """The evidence in a table of records, as far as it is about the metrics.

    It is on a data set, or on ImageNet unless the reader has trained on something else only.
    """
    chosen = dataset or _main_dataset(table)
    basis = None if chosen is None or "top1" not in metrics else _basis(table, chosen)
    return Evidence(table, tuple(metrics), basis)


def known_of(rows: pd.DataFrame, metrics: Sequence[str]) -> list[str]:
    """Those of the metrics that any row has."""
    return [metric for metric in metrics if metric in rows.columns and rows[metric].notna().any()]


def datasets_of(table: pd.DataFrame) -> list[str]:
    """The data sets with accuracies, those with the most models first."""
    if "top1" not in table.columns or "dataset" not in table.columns:
        return []
    known, _ = complete_rows(table, ["top1"])
    counts = known.groupby("dataset")["name"].nunique().sort_values(ascending=False, kind="stable")
    return [str(dataset) for dataset in counts.index]


def _main_dataset(table: pd.DataFrame) -> str | None:
    """ImageNet, unless the reader has trained on something else only."""
    own = [name for name in datasets_of(_own(table)) if _models(_own(table), name) >= LEAST_OWN_ACCURACIES]
    known = datasets_of(table)
    for candidates in (own, known):
        if candidates:
            return MAIN_DATASET if MAIN_DATASET in candidates else candidates[0]
    return None


def _basis(table: pd.DataFrame, dataset: str) -> AccuracyBasis:
    own, others = _own(table), table[column_of(table, "source") != "measured"]
    if _models(own, dataset) >= LEAST_OWN_ACCURACIES or not _models(others, dataset):
        return accuracy_basis(own, dataset)
    return accuracy_basis(others, dataset)


def _with_accuracies(rows: pd.DataFrame, found: pd.DataFrame, size: int) -> pd.DataFrame:
    """The rows with what was found of accuracies at an image size."""
    columns = [name for name in found.columns if name.startswith("top1")]
    keys = ["name", "img_size"]
    of_rows = rows[keys].merge(found[[*keys, *columns]], on=keys, how="left").set_axis(rows.index)
    there = rows["img_size"] == size
    return rows.assign(**{name: of_rows[name].where(there, column_of(rows, name)) for name in columns})


def _no_rows(rows: pd.DataFrame, metrics: Sequence[str]) -> pd.DataFrame:
    """No model, in a table that has the columns even so."""
    return rows[:0].reindex(columns=list(dict.fromkeys([*rows.columns, *metrics])))


def _narrowed(table: pd.DataFrame, metrics: Sequence[str]) -> pd.DataFrame:
    """The rows with one of the metrics, and of all metrics those only of which some row has a number."""
    wanted = [metric for metric in metrics if metric in table.columns and table[metric].notna().any()]
    others = [metric for metric in METRICS if metric not in wanted]
    dropped = [name for metric in others for name in (metric, f"{metric}_low", f"{metric}_high")]
    rows = table[table[wanted].notna().any(axis=1)] if wanted else table[:0]
    return rows.drop(columns=[name for name in dropped if name in table.columns])


def _own(table: pd.DataFrame) -> pd.DataFrame:
    return table[column_of(table, "source") == "measured"]


def _models(table: pd.DataFrame, dataset: str) -> int:
    if "top1" not in table.columns:
        return 0
    known, _ = complete_rows(table[column_of(table, "dataset") == dataset], ["top1"])
    return int(known["name"].nunique())


def _other_sizes(table: pd.DataFrame, basis: AccuracyBasis) -> list[int]:
    """The other image sizes at which the basis's pipeline has accuracies."""
    if basis.img_size is None or "top1" not in table.columns:
        return []
    known, _ = complete_rows(table, ["top1"])
    for column in ("dataset", "pipeline", "pretraining", "distillation"):
        wanted = getattr(basis, column)
        values = column_of(known, column)
        known = known[values.isna() if wanted is None else values == wanted]
    sizes = {int(size) for size in column_of(known, "img_size").dropna()}
    return sorted(sizes - {basis.img_size})


def _with_inference_time(rows: pd.DataFrame) -> pd.DataFrame:
    """The rows with the seconds per image, one over the throughput, and its interval, whose ends change places."""
    columns = {_TIME: 1 / rows["throughput"]}
    for end, other in (("low", "high"), ("high", "low")):
        known = f"throughput_{other}" in rows.columns
        columns[f"{_TIME}_{end}"] = 1 / rows[f"throughput_{other}"] if known else pd.Series(np.nan, rows.index)
    origin = {f"{_TIME}_{part}": rows[f"throughput_{part}"] for part in ("source", "setting")}
    return rows.assign(**columns, **origin)


def sources_sentence(rows: pd.DataFrame, metrics: Sequence[str]) -> str:
    """Where the drawn numbers come from, in one sentence.

    >>> rows = pd.DataFrame({"name": ["a"], "top1": [80.0], "top1_source": ["published"], "top1_setting": ["cars"]})
    >>> sources_sentence(rows, ["top1"])
    'Sources: top-1 accuracy published (cars) for 1 model.'
    """
    return f"Sources: {'; '.join(_source_of(rows, metric) for metric in metrics)}."


def _source_of(rows: pd.DataFrame, metric: str) -> str:
    title = quantity(metric).title
    title = title if title[:2].isupper() else title[0].lower() + title[1:]
    parts = []
    for source, group in rows.groupby(rows[f"{metric}_source"], sort=False):
        models = group["name"].nunique()
        settings = sorted({str(text) for text in group[f"{metric}_setting"].dropna() if text})
        counted = metric in COUNTED and source == "measured"
        said = "counted by favor" if counted else str(source)
        where = f" ({'; '.join(settings)})" if settings else ""
        parts.append(f"{said}{where} for {models} model{'' if models == 1 else 's'}")
    return f"{title} {' and '.join(parts)}"


def _first(values: pd.Series) -> str | None:
    known = values.dropna()
    return str(known.iloc[0]) if len(known) else None
