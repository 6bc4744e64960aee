"""What pretraining at a lower resolution saves and costs (Figure 14)."""

from collections.abc import Sequence
from dataclasses import dataclass
from statistics import mean

import altair as alt
import pandas as pd

from favor.analyze.effects import PairedEffect, effect_of_condition
from favor.analyze.setting import QUALITY_CONDITIONS, RUN_CONDITIONS, column_of, numbered_settings
from favor.analyze.trainings import DEFAULT_SCOPE, Scope
from favor.errors import RequestError
from favor.report.class_style import class_style
from favor.report.figures.commands import to_fill
from favor.report.figures.figure import BENCHMARK, Figure
from favor.report.figures.theme import Rows, class_encodings, one_plot

CONDITION = "pretraining_img_size"
"""The condition of an accuracy with the resolution of its pretraining."""
LOWER, USUAL = 192, 224
_PRETRAINING_DATA = "imagenet-21k"


@dataclass(frozen=True)
class Pretrained:
    """A model: how many times faster an epoch of pretraining is at the lower resolution, and the change of accuracy."""

    name: str
    class_title: str
    speedup: float
    difference: float


@dataclass(frozen=True)
class PretrainingResolution:
    """The models known at both resolutions, and the mean change of accuracy with its 95 % interval."""

    models: tuple[Pretrained, ...]
    mean: float
    low: float | None
    high: float | None
    unequal: str | None


def pretraining_resolution(table: pd.DataFrame, scope: Scope = DEFAULT_SCOPE) -> PretrainingResolution:
    """The effect of the lower resolution, all else equal; a RequestError says what is missing."""
    others = [name for name in QUALITY_CONDITIONS if name != CONDITION]
    accuracy = _effect(table, CONDITION, "top1", [*others, "img_size"], scope)
    epochs = table[column_of(table, "dataset") == _PRETRAINING_DATA]
    hours = _effect(epochs, "img_size", "train_hours_per_epoch", ["pipeline", *RUN_CONDITIONS], scope)
    speedups: dict[str, list[float]] = {}
    for pair in hours.pairs:
        speedups.setdefault(pair.of, []).append(pair.base_value / pair.changed_value)
    classes = table.drop_duplicates("name").set_index("name")["how"]
    models = tuple(
        Pretrained(
            pair.of,
            class_style(classes[pair.of]).title,
            round(mean(speedups[pair.of]), 3),
            round(pair.difference, 3),
        )
        for pair in accuracy.pairs
        if pair.of in speedups
    )
    if not models:
        raise RequestError("no model has an accuracy and the hours of an epoch of pretraining at both resolutions")
    return PretrainingResolution(models, accuracy.mean, accuracy.low, accuracy.high, accuracy.unequal)


def _effect(table: pd.DataFrame, condition: str, metric: str, alike: Sequence[str], scope: Scope) -> PairedEffect:
    """What the lower resolution changes of a metric, between rows that agree in everything else that it depends on."""
    code, _ = numbered_settings(table, alike, metric)
    named = table.assign(**{condition: column_of(table, condition).map(_as_text)}, _alike=code)
    return effect_of_condition(named, condition, str(USUAL), str(LOWER), metric, by=("name", "_alike"), scope=scope)


def _as_text(size: object) -> str | None:
    return None if size is None or pd.isna(size) else f"{float(size):g}"  # type: ignore[call-overload,arg-type]


def pretraining_figure(table: pd.DataFrame, scope: Scope = DEFAULT_SCOPE) -> Figure:
    """Figure 14."""
    identity = ("benchmark-pretraining-resolution", BENCHMARK, "Figure 14", "Pretraining at a lower resolution")
    try:
        info = pretraining_resolution(table, scope)
    except RequestError:
        said = "The paper found 0.16 % less accuracy for pretraining that is 1.39 times faster, on average (D.6)."
        commands = [
            f"favor train vit_s16 --recipe deit3-pretrain --data {_PRETRAINING_DATA} --set img_size={size} --study mine"
            for size in (LOWER, USUAL)
        ]
        commands.append("favor finetune CHECKPOINT --recipe deit3-finetune --study mine")
        needs = f"models pretrained at {LOWER} and at {USUAL} px and fine-tuned alike"
        return Figure(*identity, said, None, to_fill(needs, *commands))
    interval = "" if info.low is None or info.high is None else f" (95 % interval {info.low:+.2f} to {info.high:+.2f})"
    refused = f" The accuracies cannot be compared: {info.unequal}." if info.unequal else ""
    caption = (
        f"Pretraining at {LOWER} instead of {USUAL} px changes accuracy by {info.mean:+.2f} points{interval}.{refused}"
        f" Sources: measured, {len(info.models)} models of the records."
    )
    return Figure(*identity, caption, one_plot(_chart(info)), None)


def _chart(info: PretrainingResolution) -> alt.Chart:
    values = [
        {"name": model.name, "class": model.class_title, "x": model.speedup, "y": model.difference}
        for model in info.models
    ]
    return (
        alt.Chart(Rows(values))
        .mark_point(size=70, fillOpacity=0.85)
        .encode(
            x=alt.X("x:Q", title="Speedup of pretraining [times], higher is better →", scale=alt.Scale(zero=False)),
            y=alt.Y("y:Q", title="Change of accuracy [points], higher is better →"),
            tooltip=[
                alt.Tooltip("name:N", title="Model"),
                alt.Tooltip("x:Q", title="Speedup"),
                alt.Tooltip("y:Q", title="Change of accuracy [points]"),
            ],
            **class_encodings(model.class_title for model in info.models),
        )
    )
