"""One row per model and image size: for every metric the best number that is known, and where it comes from.

Best is measured on the device, then imported from a like device, then published, then simulated. What a device did is
never taken from a device of another kind, and an accuracy only from the data set and pipeline that are asked for.
Beside `<metric>` stand `<metric>_source`, `<metric>_setting` (device and precision, or data set and pipeline),
`<metric>_provenance`, and `<metric>_pipeline` for an accuracy, because a number never travels alone.
"""

from collections.abc import Sequence
from dataclasses import dataclass

import numpy as np
import pandas as pd

from favor.analyze.devices import device_kind
from favor.analyze.selection import numbers
from favor.analyze.settings import (
    AT_BEST_BATCH,
    COUNTED,
    OWN_CONDITIONS,
    QUALITIES,
    QUALITY_CONDITIONS,
    RUN_CONDITIONS,
    RunSetting,
    column_of,
    given_batch,
    on_device,
    run_setting_text,
    runs,
    setting_text,
    source_order,
)
from favor.errors import RequestError, unknown_name
from favor.metrics import METRICS

DEFAULT_PIPELINE = "wtf-deit3"

_CARD = ("family", "title", "where", "how", "year", "origin")
# What a number's row must tell for the number to be admitted and put in order.
_NEEDED = tuple(
    dict.fromkeys(
        (
            *("name", "img_size", "source", "provenance", "time", "batch", *RUN_CONDITIONS, *QUALITY_CONDITIONS),
            *(condition for own in OWN_CONDITIONS.values() for condition in own),
        )
    )
)


@dataclass(frozen=True)
class AccuracyBasis:
    """What accuracies must share to be ranked together: data set, pipeline, pretraining, distillation, resolution."""

    dataset: str
    pipeline: str | None = None
    pretraining: str | None = None
    distillation: bool | None = None
    img_size: int | None = None

    def describe(self) -> str:
        """The basis in words.

        >>> AccuracyBasis("imagenet-1k", "wtf-deit3", "imagenet-21k", False, 224).describe()
        'imagenet-1k, pipeline wtf-deit3, pretrained on imagenet-21k, no distillation, 224 px'
        """
        parts = [self.dataset]
        parts += [f"pipeline {self.pipeline}"] if self.pipeline else []
        parts += [f"pretrained on {self.pretraining}"] if self.pretraining else []
        parts += [] if self.distillation is None else ["distilled" if self.distillation else "no distillation"]
        parts += [f"{self.img_size} px"] if self.img_size else []
        return ", ".join(parts)


def accuracy_basis(table: pd.DataFrame, dataset: str) -> AccuracyBasis:
    """The basis to rank on: the benchmark's own pipeline where it knows the data set, else what most models share.

    Of the other pipelines, one that the user measured goes before one that was imported or published.
    """
    rows = _quality_rows(table, dataset)
    keys = [column for column in ("pipeline", "pretraining", "distillation", "img_size") if column in rows.columns]
    if not keys:
        return AccuracyBasis(dataset)
    groups = rows.groupby(keys, dropna=False)
    ranked = sorted(
        groups,
        key=lambda group: (
            _known(group[1], "pipeline") != DEFAULT_PIPELINE,
            bool(_known(group[1], "distillation")),
            source_order(column_of(group[1], "source")).min(),
            -group[1]["name"].nunique(),
        ),
    )
    best = ranked[0][1]
    distillation, img_size = _known(best, "distillation"), _known(best, "img_size")
    return AccuracyBasis(
        dataset=dataset,
        pipeline=_known(best, "pipeline"),
        pretraining=_known(best, "pretraining"),
        distillation=None if distillation is None else bool(distillation),
        img_size=None if img_size is None else int(img_size),
    )


def assemble(
    table: pd.DataFrame,
    *,
    dataset: str | None = None,
    basis: AccuracyBasis | None = None,
    device: str | None = None,
    setting: RunSetting | None = None,
) -> pd.DataFrame:
    """One row per model and image size with the best number of every metric.

    Accuracies are those of the data set, or only those on the basis where one is given; without a basis the best of a
    model's trainings counts. What runs on a device is taken
    from the `setting` first, where one is given. Without it and without a `device` it is taken from the device that was
    measured on most (or imported from, or published for, where none was).
    """
    succeeded = table[table["status"] == "ok"] if "status" in table.columns else table
    origin = {column: column_of(succeeded, column) for column in ("source", "provenance", "pipeline")}
    sized = succeeded.assign(img_size=column_of(succeeded, "img_size").astype(float), **origin)
    rows = sized[["name", "img_size"]].drop_duplicates()
    # A number without an image size belongs to every size of its model; it makes a row only where there is no other.
    has_size = rows["img_size"].notna().groupby(rows["name"]).transform("any")
    rows = rows[rows["img_size"].notna() | ~has_size].sort_values(["name", "img_size"]).reset_index(drop=True)
    for column in _CARD:
        if column in sized.columns:
            first_known = sized.dropna(subset=[column]).drop_duplicates("name").set_index("name")[column]
            rows[column] = rows["name"].map(first_known)
    new_columns: dict[str, pd.Series] = {}
    for metric in [name for name in METRICS if name in sized.columns]:
        # Fewer columns are several times as fast to filter and to sort, and most are none of this metric's.
        needed = dict.fromkeys([*_own_columns(metric, sized), *(["top1"] if metric in QUALITIES else []), *_NEEDED])
        there = [column for column in needed if column in sized.columns]
        candidates = sized.loc[np.isfinite(numbers(sized, metric)), there]
        candidates = _admissible(candidates, metric, basis.dataset if basis else dataset, basis, device, setting)
        new_columns |= _best_of(candidates, metric, rows)
    return pd.concat([rows, pd.DataFrame(new_columns, index=rows.index)], axis=1)


def comparable(
    assembled: pd.DataFrame, metric: str, run_setting: RunSetting | None = None
) -> tuple[pd.DataFrame, str | None, int]:
    """The table with the metric kept in one setting only, that setting, and how many numbers of others were dropped.

    Throughputs of two machines, or in two precisions, are not one ranking. With a `run_setting`, what runs on a device
    is kept only from there. The setting with the best source is taken if two models or more have it, else the one with
    the most models.
    """
    if metric not in assembled.columns or metric in COUNTED:
        return assembled, None, 0
    known = assembled[assembled[metric].notna()]
    if run_setting is not None and runs(metric):
        known = known[run_setting.covers(known[f"{metric}_setting"])]
    settings = sorted(
        known.groupby(f"{metric}_setting", dropna=False),
        key=lambda group: (len(group[1]) < 2, source_order(group[1][f"{metric}_source"]).min(), -len(group[1])),
    )
    if not settings and run_setting is None:
        return assembled, None, 0
    setting = str(settings[0][0]) if settings else None
    elsewhere = assembled[metric].notna() & (assembled[f"{metric}_setting"] != setting)
    blanked = {column: assembled[column].mask(elsewhere) for column in _own_columns(metric, assembled)}
    return assembled.assign(**blanked), setting, int(elsewhere.sum())


def with_failures(assembled: pd.DataFrame, table: pd.DataFrame, metrics: Sequence[str]) -> pd.DataFrame:
    """The assembled table with a `status`: failed where work on the model failed and a number is wanting for it.

    Models of which nothing succeeded, and which `assemble` leaves out, get a row, so that they can be counted.
    """
    if "status" not in table.columns:
        return assembled
    keys, card = ["name", "img_size"], [column for column in _CARD if column in table.columns]
    failures = table[table["status"] != "ok"]
    failures = failures.assign(img_size=column_of(failures, "img_size").astype(float)).drop_duplicates(keys)
    # A failure without an image size is one of the model at any size.
    failed_at, anyhow = pd.MultiIndex.from_frame(failures[keys]), failures.loc[failures["img_size"].isna(), "name"]
    of_model = pd.MultiIndex.from_frame(assembled[keys])
    lacking = assembled[[name for name in metrics if name in assembled.columns]].isna().any(axis=1)
    failed = lacking & (of_model.isin(failed_at) | assembled["name"].isin(anyhow))
    unseen = failures[
        ~(failed_at.isin(of_model) | (failures["img_size"].isna() & failures["name"].isin(assembled["name"])))
    ]
    rows = assembled.assign(status=np.where(failed, "failed", "ok"))
    return pd.concat([rows, unseen[[*keys, *card]].assign(status="failed")], ignore_index=True)


def _admissible(
    candidates: pd.DataFrame,
    metric: str,
    dataset: str | None,
    basis: AccuracyBasis | None,
    device: str | None,
    run_setting: RunSetting | None,
) -> pd.DataFrame:
    """The rows whose number may stand for the model, with the columns `_order` (lower is better) and `_setting`."""
    order = source_order(column_of(candidates, "source"))
    if metric in QUALITIES:
        admitted = np.ones(len(candidates), dtype=bool)
        if dataset is not None and "dataset" in candidates.columns:
            admitted &= (candidates["dataset"] == dataset).to_numpy()
        setting = setting_text(candidates, QUALITY_CONDITIONS)
        if basis is not None:
            admitted &= _on_basis(candidates, basis)
        else:
            admitted &= _of_best_training(candidates.assign(_setting=setting), metric, admitted)
    elif metric in COUNTED:
        admitted, setting = np.ones(len(candidates), dtype=bool), setting_text(candidates, ())
    else:
        wanted = run_setting.device if run_setting else device or _main_device(candidates, order)
        same = on_device(candidates, wanted)
        kinds = column_of(candidates, "device").map(device_kind, na_action=None).to_numpy()
        admitted = same | ((kinds == device_kind(wanted)) & (kinds != "unknown"))
        setting = run_setting_text(candidates, metric)
        order = order + np.where(same, 0.0, 0.5)
        if run_setting is not None:
            order = np.where(run_setting.covers(setting), -1.0, order)
        if metric in AT_BEST_BATCH:
            order = order + np.where(given_batch(candidates), 0.25, 0.0)
    return candidates.assign(_order=order, _setting=setting)[admitted]


def _of_best_training(candidates: pd.DataFrame, metric: str, admitted: np.ndarray) -> np.ndarray:
    """Mask of the rows of that training of a model, at its image size and from its best source, that came out best.

    Each training counts with its latest value: a later one of the same pipeline corrects or continues it. The best is
    the one with the highest top-1 accuracy, so that all qualities of a model are those of one training.
    """
    trainings = candidates.assign(_order=source_order(candidates["source"]))[admitted]
    latest = _latest_first(trainings).drop_duplicates(["name", "img_size", "_order", "_setting"])
    sign = -1 if METRICS[metric].better == "higher" else 1
    ranked = latest.assign(_error=-column_of(latest, "top1").astype(float), _cost=sign * numbers(latest, metric))
    best = ranked.sort_values(["_order", "_error", "_cost"], kind="stable", na_position="last")
    keys = ["name", "img_size", "_setting"]
    chosen = pd.MultiIndex.from_frame(best.drop_duplicates(["name", "img_size"])[keys])
    return pd.MultiIndex.from_frame(candidates[keys]).isin(chosen)


def _latest_first(candidates: pd.DataFrame) -> pd.DataFrame:
    """The best source first, and of one source the later row."""
    by = ["_order", "time"] if "time" in candidates.columns else ["_order"]
    return candidates.iloc[::-1].sort_values(by, ascending=[True, False][: len(by)], kind="stable")


def _best_of(candidates: pd.DataFrame, metric: str, rows: pd.DataFrame) -> dict[str, pd.Series]:
    """The metric's columns for the rows, each taken from its best candidate; the later of two that are equally good."""
    renamed = {"_setting": f"{metric}_setting"}
    renamed |= {column: f"{metric}_{column}" for column in ("source", "provenance")}
    renamed |= {"pipeline": f"{metric}_pipeline"} if metric in QUALITIES else {}
    best = _latest_first(candidates.rename(columns=renamed)).drop_duplicates(["name", "img_size"])
    columns = [column for column in _own_columns(metric, best) if column in best.columns]
    of_row = rows[["name", "img_size"]].merge(best[["name", "img_size", *columns]], on=["name", "img_size"], how="left")
    of_any_size = best[best["img_size"].isna()].set_index("name")
    found = {}
    for column in columns:
        filled = of_row[column].where(of_row[metric].notna(), rows["name"].map(of_any_size[column]))
        found[column] = filled.set_axis(rows.index)
    return found


def _own_columns(metric: str, table: pd.DataFrame) -> list[str]:
    suffixes = ("", "_low", "_high", "_source", "_setting", "_provenance", "_pipeline")
    return [f"{metric}{suffix}" for suffix in suffixes if f"{metric}{suffix}" in table.columns]


def _main_device(candidates: pd.DataFrame, order: np.ndarray) -> str | None:
    """The device with the best source, and of those the one with the most models; None where none is named."""
    named = pd.DataFrame({"name": candidates["name"], "device": column_of(candidates, "device"), "order": order})
    named = named.dropna(subset=["device"])
    if not len(named):
        return None
    ranked = named.groupby("device").agg(order=("order", "min"), models=("name", "nunique"))
    return str(ranked.sort_values(["order", "models"], ascending=[True, False], kind="stable").index[0])


def _quality_rows(table: pd.DataFrame, dataset: str) -> pd.DataFrame:
    if "top1" not in table.columns or "dataset" not in table.columns:
        raise RequestError("no accuracy is known: the records have no top1 on any data set")
    succeeded = table[(table["status"] == "ok") & table["top1"].notna()] if "status" in table.columns else table
    rows = succeeded[(succeeded["dataset"] == dataset) & succeeded["top1"].notna()]
    if not len(rows):
        known = [str(name) for name in succeeded["dataset"].dropna().unique()]
        raise unknown_name("data set with accuracies", dataset, known, f"known: {', '.join(known) or 'none'}")
    return rows


def _on_basis(rows: pd.DataFrame, basis: AccuracyBasis) -> np.ndarray:
    """Mask of the rows that agree with the basis; an unknown condition agrees only with an unknown one."""
    agrees = np.ones(len(rows), dtype=bool)
    for column in ("pipeline", "pretraining", "distillation", "img_size"):
        if column not in rows.columns:
            continue
        wanted = getattr(basis, column)
        agrees &= (rows[column].isna() if wanted is None else rows[column] == wanted).to_numpy(
            dtype=bool, na_value=False
        )
    return agrees


def _known(group: pd.DataFrame, column: str) -> "str | None":
    """The group's value of a column that it was grouped by, None where it is unknown."""
    if column not in group.columns or pd.isna(group[column].iloc[0]):
        return None
    return group[column].iloc[0]
