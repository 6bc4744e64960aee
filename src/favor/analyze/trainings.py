"""Which accuracies are compared: the dataset, the training behind them, and how seeds are combined."""

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Literal

import numpy as np
import pandas as pd

from favor.analyze.published_weights import pipeline_names
from favor.analyze.setting import QUALITY_CONDITIONS, Setting, column_of, numbered_settings, source_order
from favor.analyze.trained_as import DEFAULT_PIPELINE
from favor.errors import RequestError, unknown_name
from favor.metrics import QUALITIES
from favor.text import first_few, plural

LEAST_TO_COMPARE = 2  # a comparison needs two models with a number
TO_FINISH = "finish the training runs with `favor resume`"
_MOST_NAMED = 6
EQUALLY_LONG = 1.1  # training runs whose epochs differ by a larger factor are not compared


@dataclass(frozen=True)
class Scope:
    """Which qualities are compared: the dataset, one pipeline or any, and how seeds are combined.

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
        return f"{self.setting.pipeline or 'unknown'} ({self.source}, {plural(self.models, 'model')})"


def trainings(table: pd.DataFrame, dataset: str) -> list[Training]:
    """The training runs behind the accuracies on a dataset, the deciding one first.

    The user's own pipeline decides if it has enough models to compare: of several the one with the most models, then
    the longest, then the smallest images (larger ones are its high resolution), then the newest. Otherwise it is the
    benchmark's, then an imported or published one.
    """
    rows = quality_rows(table, dataset)
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


def chosen_setting(ranked: Sequence[Training], pipeline: str | None) -> Setting:
    if pipeline is None:
        return ranked[0].setting
    by_name = {training.setting.pipeline: training.setting for training in reversed(ranked)}
    chosen = next((by_name[name] for name in pipeline_names(pipeline) if name in by_name), None)
    if chosen is None:
        names = list(dict.fromkeys(str(training.setting.pipeline) for training in ranked))
        raise unknown_name("pipeline with accuracies", pipeline, names, f"known: {', '.join(names)}")
    return chosen


def results(table: pd.DataFrame, unfinished: bool = False) -> pd.DataFrame:
    """The table with the qualities of finished training runs only, without those of earlier epochs."""
    early = is_early(table)
    if unfinished or not early.any():
        return table
    qualities = [f"{name}{end}" for name in QUALITIES for end in ("", "_low", "_high") if f"{name}{end}" in table]
    return table.assign(**{name: table[name].mask(early) for name in qualities})


def is_early(table: pd.DataFrame) -> np.ndarray:
    """Mask of the rows of epochs before the last."""
    return (column_of(table, "final") == False).fillna(False).to_numpy(dtype=bool)  # noqa: E712


def in_training(table: pd.DataFrame, scope: Scope) -> pd.DataFrame:
    """The accuracies of unfinished training runs that would be compared if they were included."""
    early = is_early(table)
    if scope.dataset is None or not has_accuracy(table[early], scope.dataset):
        return table[:0]
    rows = quality_rows(table, scope.dataset)
    compared = early[table.index.get_indexer(rows.index)]
    if not scope.any_pipeline:
        basis = chosen_setting(trainings(table, scope.dataset), scope.pipeline)
        number, settings = numbered_settings(rows, (*QUALITY_CONDITIONS, "img_size"))
        compared &= number == settings.index(basis)
    return rows[compared]


def unequal_lengths(rows: pd.DataFrame) -> str | None:
    """A remark on compared accuracies whose training runs differ in length; None if they do not.

    A training run that is limited by time reaches as many epochs as the machine allows.

    >>> unequal_lengths(pd.DataFrame({"top1_epochs_low": [0.01, 1.1], "top1_epochs_high": [0.02, 1.12]}))
    'training runs of unequal length: 0.01 to 1.12 epochs'
    """
    if "top1_epochs_low" not in rows.columns:
        return None
    open_ended = rows[of_open_length(rows)]
    return said_lengths(open_ended["top1_epochs_low"].min(), open_ended["top1_epochs_high"].max())


def not_comparable(rows: pd.DataFrame) -> str | None:
    """Why the accuracies of rows give no verdict, and what to do about it; None if they do.

    >>> not_comparable(pd.DataFrame({"top1_epochs_low": [1.0, 3.0], "top1_epochs_high": [1.0, 3.0]}))
    'accuracies cannot be compared: training runs of unequal length: 1 to 3 epochs; train with --epochs'
    """
    unequal = unequal_lengths(rows)
    if unequal is None:
        return None
    return f"accuracies cannot be compared: {unequal}; {to_be_comparable(rows)}"


def to_be_comparable(rows: pd.DataFrame) -> str:
    """What makes accuracies comparable whose training runs differ in length.

    >>> to_be_comparable(pd.DataFrame({"top1": [70.0, 60.0], "top1_unfinished": [np.nan, 3.0]}))
    'leave out --unfinished'
    >>> to_be_comparable(pd.DataFrame({"top1": [70.0, 60.0], "top1_unfinished": [9.0, 3.0]}))
    'finish the training runs with `favor resume`'
    """
    if not is_any_unfinished(rows):
        return "train with --epochs"
    is_finished = column_of(rows, "top1").notna() & rows["top1_unfinished"].isna()
    return "leave out --unfinished" if is_finished.any() else TO_FINISH


def of_open_length(rows: pd.DataFrame) -> np.ndarray:
    """Mask of the training runs whose setting does not say their epochs: limited by time; all if one is unfinished."""
    if "top1_setting" not in rows.columns or is_any_unfinished(rows):
        return np.full(len(rows), True)
    return np.array([is_timed(setting) for setting in rows["top1_setting"]], dtype=bool)


def is_any_unfinished(rows: pd.DataFrame) -> bool:
    """Whether any of the compared accuracies is of an unfinished training run."""
    return bool(column_of(rows, "top1_unfinished").notna().any())


def timed_epochs(table: pd.DataFrame) -> pd.Series:
    """The epochs that training runs limited by time reached; unknown for all others."""
    return column_of(table, "epochs").astype(float).where(column_of(table, "minutes").notna())


def said_lengths(least: float, most: float) -> str | None:
    """Unequal lengths of training runs in words; None if they are nearly equal."""
    return f"training runs of unequal length: {least:.3g} to {most:.3g} epochs" if are_unequal(least, most) else None


def is_timed(setting: object) -> bool:
    """Whether the training runs of a setting are limited by time, so that the machine determines the epochs."""
    return isinstance(setting, Setting) and setting.minutes is not None


def are_unequal(least: float, most: float) -> bool:
    """Whether training runs of these lengths in epochs differ too much to be compared.

    >>> are_unequal(1.0, 1.05), are_unequal(1.0, 1.2)
    (False, True)
    """
    return most > EQUALLY_LONG * least


def quality_rows(table: pd.DataFrame, dataset: str) -> pd.DataFrame:
    """The rows with an accuracy on a dataset; an error if there are none."""
    if "top1" not in table.columns or "dataset" not in table.columns:
        raise RequestError("no accuracy is known: the records have no top1 on any dataset")
    trained = table[table["top1"].notna() & (column_of(table, "status").fillna("ok") == "ok")]
    rows = trained[trained["dataset"] == dataset]
    if not len(rows):
        early = table[is_early(table) & (table["dataset"] == dataset)]
        if len(early):
            unequal = _unequal_so_far(early)
            remedy = f"{unequal}; {TO_FINISH}" if unequal else "--unfinished includes them"
            raise RequestError(f"all training runs on {dataset} are unfinished; {remedy}")
        names = [str(name) for name in trained["dataset"].dropna().unique()]
        raise unknown_name("dataset with accuracies", dataset, names, f"known: {', '.join(names) or 'none'}")
    return rows


def _unequal_so_far(early: pd.DataFrame) -> str | None:
    """Why unfinished training runs could not be compared: of those alike, the most, some are further than others."""
    alike, _ = numbered_settings(early, (*QUALITY_CONDITIONS, "img_size"))
    epochs = column_of(early, "epochs").astype(float).groupby([alike, early["name"]]).max()
    _, least, most = epochs.groupby(level=0).agg(["size", "min", "max"]).sort_values("size").iloc[-1]
    return said_lengths(least, most)


def own_on_other_datasets(table: pd.DataFrame, dataset: str) -> list[str]:
    """A remark on the user's own accuracies if all are on other datasets than the asked one; empty without any.

    >>> own_on_other_datasets(pd.DataFrame({"source": ["measured"], "dataset": ["digits"], "top1": [9.0]}), "cars")
    ['your own accuracies are on digits: choose with --dataset NAME']
    """
    of_own = (column_of(table, "source") == "measured") & column_of(table, "top1").notna()
    own = [str(name) for name in column_of(table, "dataset")[of_own].dropna().unique()]
    named = first_few(own, _MOST_NAMED)
    return [f"your own accuracies are on {named}: choose with --dataset NAME"] if own and dataset not in own else []


def has_accuracy(table: pd.DataFrame, dataset: str) -> bool:
    return bool((table["top1"].notna() & (column_of(table, "dataset") == dataset)).any())
