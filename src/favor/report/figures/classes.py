"""What accuracy each class of the taxonomy reaches (Figure 9)."""

from dataclasses import dataclass

import altair as alt
import pandas as pd

from favor.report.class_style import CLASS_STYLES, UNKNOWN_CLASS, class_style
from favor.report.figures.commands import LAPTOP, to_fill
from favor.report.figures.evidence import LEAST_TO_DRAW, Evidence, sources_sentence
from favor.report.figures.figure import BENCHMARK, Figure
from favor.report.figures.theme import Rows, class_encodings, layered, one_plot

MOST_ROWS = 72
_ROW_HEIGHT = 14


@dataclass(frozen=True)
class ClassPoint:
    """A model's accuracy at one image size; `order` counts the models, class by class, the most accurate first."""

    name: str
    class_title: str
    order: int
    top1: float
    low: float | None
    high: float | None
    img_size: int | None


@dataclass(frozen=True)
class Classes:
    """The models by class; of classes too large to be drawn whole, the most accurate. `left_out` counts the others."""

    points: tuple[ClassPoint, ...]
    left_out: int


def classes_of(rows: pd.DataFrame, most: int = MOST_ROWS) -> Classes:
    """The accuracies by class."""
    order = [style.title for style in (*CLASS_STYLES.values(), UNKNOWN_CLASS)]
    titled = rows.assign(_class=[class_style(how).title for how in rows["how"]])
    best = titled.sort_values("top1", ascending=False, kind="stable").drop_duplicates("name")
    per_class = max(1, most // max(1, best["_class"].nunique()))
    kept = best if len(best) <= most else best.groupby("_class").head(per_class)
    ordered = sorted(
        zip(kept["_class"], -kept["top1"], kept["name"], strict=True), key=lambda e: (order.index(e[0]), e[1])
    )
    place = {name: position for position, (_, _, name) in enumerate(ordered)}
    drawn = titled[titled["name"].isin(list(place))]
    points = tuple(
        ClassPoint(
            name=str(row["name"]),
            class_title=str(row["_class"]),
            order=place[row["name"]],
            top1=float(row["top1"]),
            low=_known(row.get("top1_low")),
            high=_known(row.get("top1_high")),
            img_size=None if pd.isna(row["img_size"]) else int(row["img_size"]),
        )
        for row in drawn.to_dict("records")
    )
    return Classes(points, len(best) - len(kept))


def _known(value: object) -> float | None:
    return None if value is None or pd.isna(value) else round(float(value), 3)  # type: ignore[call-overload,arg-type]


def classes_figure(evidence: Evidence) -> Figure:
    """Figure 9."""
    identity = ("benchmark-classes", BENCHMARK, "Figure 9", "Accuracy by class")
    rows = evidence.rows(["top1"])
    if len(rows) < LEAST_TO_DRAW:
        missing = to_fill("accuracies of two or more models", LAPTOP)
        return Figure(*identity, "Accuracies by class.", None, missing)
    info = classes_of(rows)
    left_out = (
        f" In large classes only the most accurate models are drawn; {info.left_out} are left out."
        if info.left_out
        else ""
    )
    sizes = len({point.img_size for point in info.points}) > 1
    by_size = " Larger markers are larger images." if sizes else ""
    caption = (
        "Accuracy by class, most accurate first; bars are 95 % intervals."
        f"{by_size}{left_out} {sources_sentence(rows, ['top1'])}"
    )
    models = len({point.name for point in info.points})
    return Figure(*identity, caption, one_plot(_chart(info), height=_ROW_HEIGHT * models), None)


def _chart(info: Classes) -> alt.LayerChart:
    values = [
        {
            "name": point.name,
            "class": point.class_title,
            "order": point.order,
            "top1": point.top1,
            "low": point.low,
            "high": point.high,
            "px": point.img_size,
        }
        for point in info.points
    ]
    sizes = sorted({point.img_size for point in info.points if point.img_size is not None})
    base = alt.Chart(Rows(values)).encode(
        y=alt.Y(
            "name:N",
            title=None,
            sort=alt.EncodingSortField("order", op="min"),
            axis=alt.Axis(grid=True, labelLimit=140),
        )
    )
    scale = alt.Scale(zero=False, padding=8)
    intervals = base.mark_rule(style="interval").encode(x=alt.X("low:Q", scale=scale), x2="high:Q")
    looks = class_encodings((point.class_title for point in info.points), legend_columns=1)
    if len(sizes) > 1:
        legend = alt.Legend(title="Image size [px]", orient="bottom", values=[sizes[0], sizes[-1]], symbolType="circle")
        looks["size"] = alt.Size("px:Q", scale=alt.Scale(domain=[sizes[0], sizes[-1]], range=[30, 110]), legend=legend)
    points = base.mark_point(size=50, fillOpacity=0.85).encode(
        x=alt.X("top1:Q", title="Top-1 accuracy [%], higher is better →", scale=scale),
        tooltip=[
            alt.Tooltip("name:N", title="Model"),
            alt.Tooltip("class:N", title="Class"),
            alt.Tooltip("top1:Q", title="Top-1 accuracy [%]"),
            alt.Tooltip("px:Q", title="Image size [px]"),
        ],
        **looks,
    )
    return layered(intervals, points)
