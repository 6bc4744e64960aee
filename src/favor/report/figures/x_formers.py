"""The Vision X-formers: accuracy on CIFAR-10 against the memory that training takes (their Figure 4)."""

from dataclasses import dataclass

import altair as alt
import pandas as pd

from favor.analyze.comparison import DEFAULT_SCOPE, Scope
from favor.report.figures.axes import Axis, axis_of, x_axis, y_axis
from favor.report.figures.commands import X_FORMERS as RUN_X_FORMERS
from favor.report.figures.commands import to_fill
from favor.report.figures.evidence import LEAST_TO_DRAW, evidence_of, sources_sentence
from favor.report.figures.figure import X_FORMERS, Figure
from favor.report.figures.scatter import Name, hollow, name_layers
from favor.report.figures.theme import FIRST_SERIES, SECOND_SERIES, Rows, layered, one_plot

DATASET = "cifar10"
_FAMILY = "vix"
_QUADRATIC, _LINEAR = "quadratic attention", "linear attention, or none"
_PLAIN, _CONVOLUTIONS = "linear embedding", "with convolutions"


@dataclass(frozen=True)
class XFormer:
    """A Vision X-former: what its attention is, whether convolutions feed it, and where it stands."""

    name: str
    title: str
    attention: str
    embedding: str
    memory: float
    top1: float
    simulated: bool


@dataclass(frozen=True)
class XFormers:
    """All Vision X-formers that have both numbers."""

    x: Axis
    y: Axis
    models: tuple[XFormer, ...]


def x_formers_of(rows: pd.DataFrame) -> XFormers:
    """The models of rows that have training memory and accuracy."""
    x, y = axis_of("train_memory", rows["train_memory"]), axis_of("top1", rows["top1"])
    models = tuple(
        XFormer(
            name=str(row["name"]),
            title=str(row["title"]),
            attention=_QUADRATIC if row["how"] in ("baseline", "hybrid") else _LINEAR,
            embedding=_embedding(str(row["name"])),
            memory=x.shown(row["train_memory"]),
            top1=y.shown(row["top1"]),
            simulated="simulated" in (row["train_memory_source"], row["top1_source"]),
        )
        for row in rows.to_dict("records")
    )
    return XFormers(x, y, models)


def _embedding(name: str) -> str:
    """Convolutions are in the hybrids and in the convolutional transformers; the plain ones embed by a linear layer.

    >>> _embedding("vix_vin_rope"), _embedding("vix_vin(grid=16)"), _embedding("vix_ccn")
    ('linear embedding', 'linear embedding', 'with convolutions')
    """
    stem = name.removeprefix("vix_").partition("(")[0].removesuffix("_rope")
    return _PLAIN if stem in ("vit", "vip", "vil", "vin", "fnet", "mixer", "pit", "pip", "pin") else _CONVOLUTIONS


def x_formers_figure(table: pd.DataFrame, scope: Scope = DEFAULT_SCOPE) -> Figure:
    """Figure 4."""
    identity = ("x-formers-memory", X_FORMERS, "Figure 4", "Accuracy and training memory of the X-formers")
    own = table[table["family"] == _FAMILY]
    known = "dataset" in own.columns and DATASET in set(own["dataset"].dropna())
    drawn = ["train_memory", "top1"]
    rows = evidence_of(own, drawn, DATASET, scope).rows(drawn) if known else own[:0]
    if len(rows) < LEAST_TO_DRAW:
        missing = to_fill("training memory and accuracy on CIFAR-10", RUN_X_FORMERS)
        return Figure(*identity, "The X-formers.", None, missing)
    info = x_formers_of(rows)
    caption = (
        "Accuracy on CIFAR-10 against training memory, by the kind of attention (color) and of embedding (marker). "
        f"{sources_sentence(rows, drawn)}"
    )
    return Figure(*identity, caption, one_plot(_chart(info)), None)


def _chart(info: XFormers) -> alt.LayerChart:
    simulated = any(model.simulated for model in info.models)
    values = [
        {
            "name": m.name,
            "title": m.title,
            "attention": m.attention,
            "embedding": m.embedding,
            "x": m.memory,
            "y": m.top1,
            "simulated": "yes" if m.simulated else "no",
        }
        for m in info.models
    ]
    colors = alt.Scale(domain=[_QUADRATIC, _LINEAR], range=[SECOND_SERIES, FIRST_SERIES])
    shapes = alt.Scale(domain=[_PLAIN, _CONVOLUTIONS], range=["square", "triangle-up"])
    legend = alt.Legend(title=None, orient="bottom", columns=2)
    points = (
        alt.Chart(Rows(values))
        .mark_point(size=60, fillOpacity=0.85, clip=True)
        .encode(
            x=x_axis(info.x),
            y=y_axis(info.y),
            fill=alt.Fill("attention:N", scale=colors, legend=legend),
            stroke=alt.Stroke("attention:N", scale=colors, legend=legend),
            shape=alt.Shape("embedding:N", scale=shapes, legend=legend),
            tooltip=[
                alt.Tooltip("name:N", title="Model"),
                alt.Tooltip("x:Q", title=info.x.described()),
                alt.Tooltip("y:Q", title=info.y.described()),
            ],
            **({"fillOpacity": hollow("simulated")} if simulated else {}),
        )
    )
    names = [Name(model.title, model.memory, model.top1) for model in info.models]
    return layered(points, *name_layers(names, info.x, info.y))
