"""All numbers of all models: counts, accuracies by basis, and costs by setting.

The page joins one of each, as the commands do, so that numbers shown together are always comparable.
"""

from collections.abc import Collection, Iterable
from dataclasses import dataclass, replace

import pandas as pd

from favor.analyze.comparison import DEFAULT_SCOPE, Comparison, Scope, results
from favor.analyze.creation import default_img_size
from favor.analyze.deviations import deviations_by_row
from favor.analyze.published_weights import pipeline_names, with_own_weights
from favor.analyze.setting import Setting, by_run_setting, column_of
from favor.analyze.trained_as import with_benchmark_rows
from favor.analyze.trainings import of_open_length
from favor.metrics import DEVICE_METRICS, METRICS, QUALITIES
from favor.report.columns import Column, Texts, column
from favor.report.progress import Track, unseen

_COUNTED = tuple(name for name, metric in METRICS.items() if metric.group == "counted")
_LEAST_OF_A_PIPELINE, _MOST_OTHER_PIPELINES = 5, 3


@dataclass(frozen=True)
class Models:
    """The models that the numbers belong to: one entry per model and image size, ordered by name.

    `default_size` is the image size that favor creates the model with; None for a model that favor does not have.
    """

    name: list[str]
    title: list[str | None]
    family: list[str | None]
    how: list[str | None]
    year: list[int | None]
    origin: list[str | None]
    img_size: list[int | None]
    default_size: list[int | None]


@dataclass(frozen=True, eq=False)
class AccuracyView:
    """Accuracies on one dataset: of one pipeline, or of any pipeline and resolution.

    `pipeline` is None for the one that decides unless another is chosen. `flags` holds, in the order of the models, why
    an accuracy belongs to another configuration than ours; `lengths` the epochs of the shortest and the longest
    training run behind it, if they were limited by time or one of them is unfinished; otherwise it is None.
    """

    scope: Scope
    pipeline: str | None
    basis: Setting | None
    note: str
    rows: pd.DataFrame
    columns: dict[str, Column]
    flags: list[str | None]
    lengths: list[tuple[float, float] | None] | None


@dataclass(frozen=True, eq=False)
class SettingView:
    """What a device did in one setting; it is the reader's own if any of it was measured."""

    setting: Setting
    columns: dict[str, Column]
    is_own: bool


@dataclass(frozen=True, eq=False)
class Views:
    """Everything that the page can put together; positions in all columns are those of `models`."""

    models: Models
    counted: dict[str, Column]
    accuracies: tuple[AccuracyView, ...]
    settings: tuple[SettingView, ...]


def views_of(table: pd.DataFrame, texts: Texts, scope: Scope = DEFAULT_SCOPE, track: Track = unseen) -> Views:
    """All views of a wide table."""
    finished = results(with_own_weights(with_benchmark_rows(table)), scope.unfinished)
    succeeded = finished[finished["status"] == "ok"]
    counts = Comparison(succeeded, metrics=_COUNTED).compare_in(None).rows
    everyone = counts[["name", "img_size"]]
    return Views(
        models=_models(counts),
        counted=_columns(counts, _COUNTED, texts),
        accuracies=tuple(_accuracies(succeeded, everyone, scope, texts)),
        settings=tuple(_settings(succeeded, everyone, texts, track)),
    )


def _models(rows: pd.DataFrame) -> Models:
    names, origins = [str(name) for name in rows["name"]], _texts(rows, "origin")
    return Models(
        name=names,
        title=_texts(rows, "title"),
        family=_texts(rows, "family"),
        how=_texts(rows, "how"),
        year=_whole_numbers(rows, "year"),
        origin=origins,
        img_size=_whole_numbers(rows, "img_size"),
        default_size=[default_img_size(name, origin) for name, origin in zip(names, origins, strict=True)],
    )


def _texts(rows: pd.DataFrame, name: str) -> list[str | None]:
    return [text if isinstance(text, str) else None for text in column_of(rows, name)]


def _whole_numbers(rows: pd.DataFrame, name: str) -> list[int | None]:
    return [None if pd.isna(number) else int(number) for number in column_of(rows, name)]


def _accuracies(table: pd.DataFrame, everyone: pd.DataFrame, scope: Scope, texts: Texts) -> Iterable[AccuracyView]:
    """For each dataset the pipeline that decides, the other large ones, and all together where there are several."""
    if "top1" not in table.columns or "dataset" not in table.columns:
        return
    for dataset, trained in table[table["top1"].notna()].groupby("dataset", sort=False):
        of_dataset = table[table["name"].isin(trained["name"])]
        pipeline = scope.pipeline if column_of(trained, "pipeline").isin(pipeline_names(scope.pipeline)).any() else None
        one = replace(scope, dataset=str(dataset), pipeline=pipeline)
        comparison = Comparison(of_dataset, one, metrics=QUALITIES)
        yield _accuracy_view(comparison, everyone, texts)
        for name in _other_pipelines(comparison):
            of_pipeline = of_dataset["name"].isin(trained.loc[column_of(trained, "pipeline") == name, "name"])
            other = Comparison(of_dataset[of_pipeline], replace(one, pipeline=name), metrics=QUALITIES)
            yield replace(_accuracy_view(other, everyone, texts), pipeline=name)
        if len(comparison.trainings) > 1:
            mixed = Comparison(of_dataset, replace(one, any_pipeline=True), metrics=QUALITIES)
            yield _accuracy_view(mixed, everyone, texts)


def _other_pipelines(comparison: Comparison) -> list[str]:
    """The pipelines that a reader can choose instead, those with the most models."""
    own = comparison.basis.pipeline if comparison.basis else None
    large = sorted(comparison.trainings, key=lambda training: -training.models)
    named = [training.setting.pipeline for training in large if training.models >= _LEAST_OF_A_PIPELINE]
    return [name for name in dict.fromkeys(named) if name is not None and name != own][:_MOST_OTHER_PIPELINES]


def _accuracy_view(comparison: Comparison, everyone: pd.DataFrame, texts: Texts) -> AccuracyView:
    rows = comparison.compare_in(None).rows
    trained = rows[rows["top1"].notna()]
    why = pd.Series(deviations_by_row(comparison.whole, trained), index=trained.index, dtype=object)
    sources = " and ".join(sorted(trained["top1_source"].dropna().unique()))
    rows = _among(everyone, rows.assign(deviation=why))
    flags = _texts(rows, "deviation")
    note = comparison.accuracy_note(sources)
    columns = _columns(rows, QUALITIES, texts)
    return AccuracyView(comparison.scope, None, comparison.basis, note, rows, columns, flags, _lengths(rows))


def _lengths(rows: pd.DataFrame) -> list[tuple[float, float] | None] | None:
    """The epochs of training runs whose setting does not say them; None if there are none."""
    ends = zip(of_open_length(rows), rows["top1_epochs_low"], rows["top1_epochs_high"], strict=True)
    lengths = [(float(low), float(high)) if is_open and not pd.isna(low) else None for is_open, low, high in ends]
    return lengths if any(lengths) else None


def _settings(table: pd.DataFrame, everyone: pd.DataFrame, texts: Texts, track: Track) -> Iterable[SettingView]:
    """The costs in every run setting, the one with the most models first."""
    costs = [name for name in DEVICE_METRICS if name in table.columns]
    ran = by_run_setting(table[table[costs].notna().any(axis=1)])
    ran.sort(key=lambda entry: (-entry[1]["name"].nunique(), str(entry[0])))
    for setting, rows in track(ran, "settings"):
        # A metric at two batch sizes has rows of both settings; the page draws the one that is kept.
        compared = Comparison(rows, metrics=costs).compare_in(setting)
        assembled = _among(everyone, compared.assembled)
        columns = {name: column(assembled, name, texts, compared.settings.get(name)) for name in costs}
        is_own = bool((column_of(rows, "source") == "measured").any())
        yield SettingView(setting, {name: made for name, made in columns.items() if made is not None}, is_own)


def _among(everyone: pd.DataFrame, rows: pd.DataFrame) -> pd.DataFrame:
    """Rows of some models at their places among all models."""
    return everyone.merge(rows, on=["name", "img_size"], how="left")


def _columns(rows: pd.DataFrame, names: Collection[str], texts: Texts) -> dict[str, Column]:
    columns = {name: column(rows, name, texts) for name in METRICS if name in names}
    return {name: made for name, made in columns.items() if made is not None}
