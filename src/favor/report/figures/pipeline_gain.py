"""Accuracy in the models' own papers and in one pipeline for all (Table 1)."""

from dataclasses import dataclass

import altair as alt
import pandas as pd

from favor.analyze.comparison import DEFAULT_SCOPE, Scope
from favor.analyze.effects import PairedDifference, PairedEffect, paired_effect
from favor.analyze.trainings import unequal_lengths
from favor.records.published import mean_gain, original_accuracies
from favor.report.figures.commands import to_fill
from favor.report.figures.evidence import LEAST_TO_DRAW, MAIN_DATASET, datasets_of, evidence_of, sources_sentence
from favor.report.figures.figure import BENCHMARK, Figure
from favor.report.figures.theme import FIRST_SERIES, SECOND_SERIES, Rows, layered, one_plot

_ROW_HEIGHT = 16
_ORIGINAL, _PIPELINE = "its own paper", "one pipeline for all"


@dataclass(frozen=True)
class PipelineGain:
    """What one pipeline changes of the accuracies that the models' own papers print, model by model."""

    effect: PairedEffect
    sources: str


def pipeline_gain(table: pd.DataFrame, scope: Scope = DEFAULT_SCOPE) -> PipelineGain | None:
    """The models of Table 1 that have an accuracy in the pipeline that decides; None if fewer than two have one."""
    if MAIN_DATASET not in datasets_of(table):
        return None
    evidence = evidence_of(table, ["top1"], MAIN_DATASET, scope)
    rows = evidence.rows(["top1"])
    rows = rows[rows["img_size"] == evidence.base_size]
    trained = dict(zip(rows["name"], rows["top1"], strict=True))
    pairs = [
        PairedDifference(
            base=_ORIGINAL,
            changed=_PIPELINE,
            alike=str(original),
            base_value=original.top1,
            changed_value=float(trained[original.name]),
            difference=float(trained[original.name]) - original.top1,
            of=original.name,
        )
        for original in original_accuracies()
        if original.name in trained
    ]
    if len({pair.of for pair in pairs}) < LEAST_TO_DRAW:
        return None
    drawn = rows[rows["name"].isin([pair.of for pair in pairs])]
    effect = paired_effect(_PIPELINE, "top1", pairs, unequal_lengths(drawn))
    return PipelineGain(effect, sources_sentence(drawn, ["top1"]))


def pipeline_gain_figure(table: pd.DataFrame, scope: Scope = DEFAULT_SCOPE) -> Figure:
    """Table 1."""
    identity = ("benchmark-pipeline-gain", BENCHMARK, "Table 1", "One pipeline against the original papers")
    info = pipeline_gain(table, scope)
    if info is None:
        needs = f"accuracies on {MAIN_DATASET} of two or more models of Table 1"
        return Figure(*identity, "One pipeline for all models.", None, to_fill(needs, "favor run paper --study mine"))
    effect, paper = info.effect, mean_gain()
    interval = "" if effect.low is None else f"95 % interval {effect.low:+.2f} to {effect.high:+.2f}, "
    caption = (
        f"Accuracy with one pipeline, compared with the models' own papers: {effect.mean:+.2f} points on average "
        f"({interval}{effect.n} rows). The benchmark's text says "
        f"{paper.printed:+.2f}; the rows of its Table 1 give {paper.from_rows:+.2f}. {info.sources}"
    )
    return Figure(*identity, caption, one_plot(_chart(effect), height=_ROW_HEIGHT * effect.n), None)


def _chart(effect: PairedEffect) -> alt.LayerChart:
    ends = [
        {"row": pair.alike, "name": pair.of, "by": by, "top1": top1, "gain": round(pair.difference, 3)}
        for pair in effect.pairs
        for by, top1 in ((_ORIGINAL, pair.base_value), (_PIPELINE, round(pair.changed_value, 3)))
    ]
    links = [{"row": pair.alike, "low": pair.base_value, "high": pair.changed_value} for pair in effect.pairs]
    order = [pair.alike for pair in sorted(effect.pairs, key=lambda pair: -pair.difference)]
    y = alt.Y("row:N", title=None, sort=order, axis=alt.Axis(grid=True, labelLimit=220))
    scale = alt.Scale(zero=False, padding=8)
    lines = alt.Chart(Rows(links)).mark_rule(style="link").encode(y=y, x=alt.X("low:Q", scale=scale), x2="high:Q")
    points = (
        alt.Chart(Rows(ends))
        .mark_point(filled=True, size=55, opacity=1)
        .encode(
            y=y,
            x=alt.X("top1:Q", title="Top-1 accuracy [%], higher is better →", scale=scale),
            color=alt.Color(
                "by:N",
                scale=alt.Scale(domain=[_ORIGINAL, _PIPELINE], range=[SECOND_SERIES, FIRST_SERIES]),
                legend=alt.Legend(title=None, orient="bottom"),
            ),
            shape=alt.Shape("by:N", scale=alt.Scale(domain=[_ORIGINAL, _PIPELINE], range=["square", "circle"])),
            tooltip=[
                alt.Tooltip("name:N", title="Model"),
                alt.Tooltip("by:N", title="Trained as in"),
                alt.Tooltip("top1:Q", title="Top-1 accuracy [%]"),
                alt.Tooltip("gain:Q", title="Gain of one pipeline [points]"),
            ],
        )
    )
    return layered(lines, points)
