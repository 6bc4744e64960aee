"""All numbers of all models, by what they hold for: counts always, accuracies on a basis, costs in a setting.

The page joins one of each, as the commands do, so that two numbers beside each other always compare.
"""

from collections.abc import Collection, Iterable
from dataclasses import dataclass

import pandas as pd

from favor.analyze.assemble import AccuracyBasis, accuracy_basis, assemble, comparable
from favor.analyze.deviations import deviations
from favor.analyze.intervals import with_accuracy_intervals
from favor.analyze.settings import (
    COUNTED,
    QUALITIES,
    RUN_CONDITIONS,
    RunSetting,
    column_of,
    machines_of,
    runs,
    setting_text,
)
from favor.metrics import METRICS
from favor.report.columns import Column, Texts, column
from favor.report.track import Track, unseen

_ENDS = ("", "_low", "_high")
_BASIS_CONDITIONS = ("pipeline", "pretraining", "distillation", "img_size")


@dataclass(frozen=True)
class Models:
    """Who the numbers belong to: one entry per model and image size, in the order of their names."""

    name: list[str]
    title: list[str | None]
    family: list[str | None]
    how: list[str | None]
    year: list[int | None]
    origin: list[str | None]
    img_size: list[int | None]


@dataclass(frozen=True, eq=False)
class AccuracyView:
    """Accuracies on one data set: on one basis, or of any pipeline and resolution where `basis` is None.

    `flags` holds, in the order of the models, why an accuracy belongs to another configuration than ours.
    """

    dataset: str
    basis: AccuracyBasis | None
    rows: pd.DataFrame
    columns: dict[str, Column]
    flags: list[str | None]


@dataclass(frozen=True, eq=False)
class SettingView:
    """What a device did in one setting."""

    setting: RunSetting
    rows: pd.DataFrame
    columns: dict[str, Column]


@dataclass(frozen=True, eq=False)
class Views:
    """Everything that the page can put together; positions in all columns are those of `models`."""

    models: Models
    counted: dict[str, Column]
    accuracies: tuple[AccuracyView, ...]
    settings: tuple[SettingView, ...]


def views_of(table: pd.DataFrame, texts: Texts, track: Track = unseen) -> Views:
    """All views of a wide table."""
    counts = assemble(_with_metrics(table, COUNTED))
    everyone = counts[["name", "img_size"]]
    return Views(
        models=_models(counts),
        counted=_columns(counts, COUNTED, texts),
        accuracies=tuple(_accuracies(table, everyone, texts)),
        settings=tuple(
            _setting_view(table, everyone, setting, names, texts)
            for setting, names in track(_run_settings(table), "settings")
        ),
    )


def _models(rows: pd.DataFrame) -> Models:
    return Models(
        name=[str(name) for name in rows["name"]],
        title=_card_texts(rows, "title"),
        family=_card_texts(rows, "family"),
        how=_card_texts(rows, "how"),
        year=_whole_numbers(rows, "year"),
        origin=_card_texts(rows, "origin"),
        img_size=_whole_numbers(rows, "img_size"),
    )


def _card_texts(rows: pd.DataFrame, name: str) -> list[str | None]:
    return [text if isinstance(text, str) else None for text in column_of(rows, name)]


def _whole_numbers(rows: pd.DataFrame, name: str) -> list[int | None]:
    return [None if pd.isna(number) else int(number) for number in column_of(rows, name)]


def _accuracies(table: pd.DataFrame, everyone: pd.DataFrame, texts: Texts) -> Iterable[AccuracyView]:
    """One basis for each data set, and all bases together where it has several."""
    if "top1" not in table.columns or "dataset" not in table.columns:
        return
    known = table[(table["status"] == "ok") & table["top1"].notna()]
    for dataset, trained in known.groupby("dataset", sort=False):
        of_dataset = table[table["name"].isin(trained["name"])]
        bases: list[AccuracyBasis | None] = [accuracy_basis(table, str(dataset))]
        conditions = [name for name in _BASIS_CONDITIONS if name in known.columns]
        bases += [None] if len(trained[conditions].drop_duplicates()) > 1 else []
        for basis in bases:
            yield _accuracy_view(of_dataset, everyone, str(dataset), basis, texts)


def _accuracy_view(
    table: pd.DataFrame, everyone: pd.DataFrame, dataset: str, basis: AccuracyBasis | None, texts: Texts
) -> AccuracyView:
    rows = assemble(_with_metrics(table, QUALITIES), dataset=dataset, basis=basis)
    rows = with_accuracy_intervals(rows, dataset)
    why = deviations(table, rows[rows["top1"].notna()])
    rows = _among(everyone, rows)
    trained = rows["top1"].notna()
    flags = [why.get(str(name)) if there else None for name, there in zip(rows["name"], trained, strict=True)]
    return AccuracyView(dataset, basis, rows, _columns(rows, QUALITIES, texts), flags)


def _run_settings(table: pd.DataFrame) -> list[tuple[RunSetting, set[str]]]:
    """Every setting in which models ran, with their names; the one with the most models first."""
    costs = [name for name in METRICS if name in table.columns and runs(name)]
    ran = table[(table["status"] == "ok") & table[costs].notna().any(axis=1)]
    found = []
    for text, rows in ran.groupby(setting_text(ran, RUN_CONDITIONS)):
        device, machine = (part.dropna() for part in (column_of(rows, "device"), machines_of(rows)))
        setting = RunSetting(
            str(text), str(device.iloc[0]) if len(device) else None, str(machine.iloc[0]) if len(machine) else None
        )
        found.append((setting, set(rows["name"])))
    return sorted(found, key=lambda one: (-len(one[1]), one[0].text))


def _setting_view(
    table: pd.DataFrame, everyone: pd.DataFrame, setting: RunSetting, names: set[str], texts: Texts
) -> SettingView:
    costs = [name for name in METRICS if name in table.columns and runs(name)]
    ran = _with_metrics(table[table["name"].isin(names)], costs)
    rows = _among(everyone, assemble(ran, setting=setting))
    there = {}
    for name in [one for one in costs if one in rows.columns]:
        kept = comparable(rows, name, setting)[1]
        covered = rows.assign(**{name: rows[name].where(setting.covers(rows[f"{name}_setting"]))})
        if (found := column(covered, name, texts, kept)) is not None:
            there[name] = found
    return SettingView(setting, rows, there)


def _among(everyone: pd.DataFrame, rows: pd.DataFrame) -> pd.DataFrame:
    """Rows of some models at their places among all models."""
    return everyone.merge(rows, on=["name", "img_size"], how="left")


def _columns(rows: pd.DataFrame, names: Collection[str], texts: Texts) -> dict[str, Column]:
    found = {name: column(rows, name, texts) for name in METRICS if name in names}
    return {name: one for name, one in found.items() if one is not None}


def _with_metrics(table: pd.DataFrame, names: Collection[str]) -> pd.DataFrame:
    """What succeeded, with the numbers of these metrics alone: models stay the same, and assembling is quick."""
    succeeded = table[table["status"] == "ok"]
    known = {name for name in names if name in table.columns and succeeded[name].notna().any()}
    others = {name + end for name in METRICS if name not in known for end in _ENDS}
    return succeeded[[name for name in table.columns if name not in others]]
