"""The answer of a study: the favored model for each goal on this machine, the ranks of ViT, and how costs disagree.

Imports no torch.
"""

import shlex
from collections.abc import Collection, Sequence
from dataclasses import asdict, dataclass, replace
from pathlib import Path
from typing import Any

import numpy as np
import pandas as pd

from favor.analyze import Comparison, GuideEntry, Limit, Request, disagreement, pareto, recommend
from favor.analyze.best_runtime import in_runtime
from favor.analyze.deviations import deviations
from favor.analyze.disagreement import DisagreementResult
from favor.analyze.reasons import dominated_by, undisturbed, without_intervals
from favor.analyze.recommendation import Choice, Reading, Recommendation, reading_of
from favor.analyze.selection import known_of
from favor.analyze.setting import Setting
from favor.analyze.trainings import LEAST_TO_COMPARE, unequal_lengths
from favor.errors import RequestError
from favor.metrics import METRICS, QUALITIES
from favor.study.resolved import ResolvedStudy

GOALS = {"speed": "throughput", "memory": "memory", "accuracy": None}
"""Goal -> the preference of `favor recommend`; None stands for accuracy."""

REFERENCE_FAMILY = "vit"
STANDING_METRICS = ("throughput", "latency_p50", "inference_memory", "train_step_time", "train_memory")


@dataclass(frozen=True)
class Standing:
    """The rank of a ViT by one cost, whether it is on the front with accuracy, and which models beat it.

    `probability` is the share of draws from the intervals in which it is on the front. The models in `beaten_by` are
    at least as accurate and cost less, or cost the same and are more accurate; for those in `without_intervals`, one of
    the numbers has no interval. Without accuracies that can be compared, all are unknown.

    Models whose cost was measured on a busy machine or contradicts other measurements are left out: there are
    `disturbed` of them. A ViT among them has no `place`.
    """

    name: str
    img_size: int | None
    metric: str
    place: int | None
    of: int
    on_front: bool | None
    probability: float | None
    beaten_by: tuple[str, ...]
    without_intervals: tuple[str, ...] = ()
    disturbed: int = 0


@dataclass(frozen=True)
class Answer:
    """The answer of a study. A goal without a recommendation has the reason in `undecided`.

    `figures` are the known numbers of each goal's favored model, by metric. `untried` are models that may be the best,
    but that the study has not tried to measure yet; `to_measure_them` is the command.
    """

    favored: dict[str, Recommendation]
    undecided: dict[str, str]
    figures: dict[str, dict[str, Reading]]
    standing: tuple[Standing, ...]
    disagreement: DisagreementResult | None
    models: int
    untried: tuple[str, ...] = ()
    to_measure_them: str | None = None

    def to_dict(self) -> dict[str, Any]:
        """Plain content for JSON."""
        return {
            "favored": {goal: best.to_dict() for goal, best in self.favored.items()},
            "undecided": dict(self.undecided),
            "figures": {
                goal: {name: asdict(reading) for name, reading in readings.items()}
                for goal, readings in self.figures.items()
            },
            "vit": [asdict(standing) | {"unit": METRICS[standing.metric].unit} for standing in self.standing],
            "disagreement": None if self.disagreement is None else self.disagreement.to_dict(),
            "models": self.models,
            "untried": list(self.untried),
            "to_measure_them": self.to_measure_them,
        }


def answer(
    study: ResolvedStudy, table: pd.DataFrame, folder: Path, published_fronts: Sequence[GuideEntry] = ()
) -> Answer:
    """The answer from a table of the records in the study's folder and those that ship with favor."""
    of_study = _of_study(study, table)
    rows = _compared(of_study, study)
    flagged = deviations(of_study, rows) if "top1" in rows.columns else {}
    untried = _untried(study, of_study, rows, flagged)
    favored, undecided = {}, {}
    for goal, preference in GOALS.items():
        try:
            best = recommend(of_study, _request(study, preference).into([folder]), published_fronts)
        except RequestError as error:
            undecided[goal] = str(error)
            continue
        if preference is not None and best.favored is not None and untried:
            undecided[goal] = f"{best.favored.called} is the best so far, but not all models are measured"
        else:
            favored[goal] = best
    return Answer(
        favored=favored,
        undecided=undecided,
        figures={goal: _figures(best.favored, rows) for goal, best in favored.items() if best.favored is not None},
        standing=_standing(rows, flagged),
        disagreement=_disagreement(rows, study),
        models=len(study.models),
        untried=untried,
        to_measure_them=f"favor resume {shlex.quote(str(folder))}" if untried else None,
    )


def compared_models(study: ResolvedStudy, table: pd.DataFrame) -> pd.DataFrame:
    """One row per model of the study, with the numbers that its answer compares."""
    return _compared(_of_study(study, table), study)


def _untried(
    study: ResolvedStudy, table: pd.DataFrame, rows: pd.DataFrame, flagged: Collection[str]
) -> tuple[str, ...]:
    """The models that may be favored for a cost, but that the study has not tried to measure yet."""
    if "inference" not in study.phases:
        return ()
    is_own = (table["source"] == "measured") & (table["task"] == "inference")
    least = study.report.min_accuracy
    too_low = () if least is None or "top1" not in rows.columns else rows["name"][rows["top1"] < least]
    done = {*table["name"][is_own], *too_low, *flagged}
    return tuple(model.name for model in study.models if model.name not in done)


def _figures(choice: Choice, rows: pd.DataFrame) -> dict[str, Reading]:
    """The known numbers of a favored model: the study's of the same runtime and precision, and those that decided."""
    of_model = rows[(rows["name"] == choice.name) & (rows["img_size"] == choice.img_size)]
    present = known_of(of_model, METRICS)
    known = {name: reading_of(of_model.iloc[0], name) for name in present if _is_of_run(of_model.iloc[0], name, choice)}
    return known | choice.metrics


def _is_of_run(row: pd.Series, metric: str, choice: Choice) -> bool:
    """Whether a number is of the runtime and precision of a choice, if it depends on them."""
    setting = row.get(f"{metric}_setting")
    if choice.runtime is None or not METRICS[metric].depends_on_device or not isinstance(setting, Setting):
        return True
    return (setting.runtime_name, setting.precision) == (choice.runtime, choice.precision)


def _of_study(study: ResolvedStudy, table: pd.DataFrame) -> pd.DataFrame:
    """The rows of the study's models, without empty columns."""
    rows = table[table["name"].isin([model.name for model in study.models])]
    return rows.dropna(axis="columns", how="all").reset_index(drop=True)


def _request(study: ResolvedStudy, preference: str | None) -> Request:
    """The request for a goal, with the study's pipeline if it names one, else favor's choice."""
    least, report = study.report.min_accuracy, study.report
    limits = () if least is None or preference is None else (Limit("min_accuracy", "top1", "min", least),)
    return Request(preference, limits, report.dataset, _device_of(study), pipeline=report.pipeline)


def _device_of(study: ResolvedStudy) -> str:
    """The device whose numbers count; a study on the GPUs of a cluster has no device label."""
    return study.machine.label or study.machine.device


def _compared(table: pd.DataFrame, study: ResolvedStudy) -> pd.DataFrame:
    """One row per model, every metric in one setting of the study's machine, and accuracies of one pipeline.

    Of several runtimes it is the study's first.
    """
    table = in_runtime(table, study.runtimes[0] if len(study.runtimes) > 1 else None)
    scope = _request(study, None).scope
    try:
        comparison = Comparison(table, scope)
    except RequestError:
        # These models have no accuracy on this dataset; their costs can still be compared.
        costs = table.drop(columns=[name for name in QUALITIES if name in table.columns])
        comparison = Comparison(costs, replace(scope, dataset=None))
    return comparison.compare((), _device_of(study)).rows


def _standing(rows: pd.DataFrame, flagged: Collection[str]) -> tuple[Standing, ...]:
    """The standings of each ViT, without accuracies of another configuration or of training runs of unequal length."""
    if "top1" in rows.columns:
        rows = rows.assign(top1=rows["top1"].mask(rows["name"].isin(list(flagged))))
        if unequal_lengths(rows[rows["top1"].notna()]):
            rows = rows.drop(columns="top1")
    standing = []
    for metric in STANDING_METRICS:
        if metric in rows.columns:
            standing += _standing_by(rows[rows[metric].notna()].reset_index(drop=True), metric)
    return tuple(standing)


def _standing_by(rows: pd.DataFrame, metric: str) -> list[Standing]:
    """The standing of each ViT by one metric, which all rows have, among those whose number was not disturbed."""
    if len(rows) < LEAST_TO_COMPARE:
        return []
    sound = undisturbed(rows, [metric])
    sign = METRICS[metric].sign
    costs = sign * sound[metric].astype(float)
    accurate = sound[sound["top1"].notna()].reset_index(drop=True) if "top1" in rows.columns else rows[:0]
    front = pareto(accurate, ["top1", metric]) if len(accurate) >= LEAST_TO_COMPARE else None
    points = {} if front is None else {(point.name, point.img_size): point for point in front.points}
    standing = []
    for at, row in rows[rows["family"] == REFERENCE_FAMILY].iterrows():
        img_size = None if pd.isna(row["img_size"]) else int(row["img_size"])
        point = points.get((str(row["name"]), img_size))
        beaten_by = () if point is None else _beating(row, accurate, metric)
        standing.append(
            Standing(
                name=str(row["name"]),
                img_size=img_size,
                metric=metric,
                place=int((costs < sign * float(row[metric])).sum()) + 1 if at in costs.index else None,
                of=len(sound),
                on_front=None if point is None else point.member,
                probability=None if point is None else point.probability,
                beaten_by=beaten_by,
                without_intervals=()
                if point is None
                else without_intervals(beaten_by, point.row, accurate, ["top1", metric]),
                disturbed=len(rows) - len(sound),
            )
        )
    return standing


def _beating(row: pd.Series, rows: pd.DataFrame, metric: str) -> tuple[str, ...]:
    """The models that dominate a row in accuracy and the metric, the most accurate first."""
    alone = row.to_frame().T
    beating = [
        (float(other["top1"]), str(other["name"]))
        for _, other in rows.iterrows()
        if dominated_by(other, alone, ["top1", metric])
    ]
    return tuple(name for _, name in sorted(beating, reverse=True))


def _disagreement(rows: pd.DataFrame, study: ResolvedStudy) -> DisagreementResult | None:
    """How the study's indicators disagree; None if its models have fewer than two of them."""
    indicators = known_of(rows, study.report.indicators)
    sizes = rows["img_size"].dropna()
    if len(indicators) < LEAST_TO_COMPARE or not len(sizes):
        return None
    one_size = rows[rows["img_size"] == sizes.mode().iloc[0]]
    complete = undisturbed(one_size.dropna(subset=indicators), indicators)
    if len(complete) < LEAST_TO_COMPARE or not np.isfinite(complete[indicators].to_numpy(dtype=float)).all():
        return None
    return disagreement(one_size, indicators)
