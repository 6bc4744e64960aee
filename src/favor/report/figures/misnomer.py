"""The efficiency misnomer: cost indicators that disagree (its Figures 1 and 4 and Table 1)."""

from collections.abc import Sequence
from dataclasses import dataclass

import altair as alt
import pandas as pd

from favor.analyze import compare, depth_or_width
from favor.analyze.comparison import DEFAULT_SCOPE, Scope
from favor.analyze.selection import known_of
from favor.analyze.trainings import unequal_lengths
from favor.errors import RequestError
from favor.report.figures.axes import Axis, axis_of, factor_scale, x_axis, y_axis
from favor.report.figures.commands import MISNOMER as RUN_MISNOMER
from favor.report.figures.commands import MISNOMER_IMAGENET, to_fill
from favor.report.figures.evidence import Evidence, evidence_of, sound_numbers, sources_sentence
from favor.report.figures.figure import MISNOMER, Figure
from favor.report.figures.theme import (
    FIRST_SERIES,
    PANEL_HEIGHT,
    PANEL_WIDTH,
    SECOND_SERIES,
    THIRD_SERIES,
    Rows,
    layered,
    one_plot,
    several_plots,
)

INDICATORS = ("params", "macs", "throughput")
_SHORT = {"params": "Parameters", "macs": "Multiply-adds", "throughput": "Time per image", "latency_p50": "Latency"}

# Figure 1: a plain Transformer, one that shares its weights over the depth, and one with sparse experts.
_KINDS = {"vit": "Transformer", "universal": "Universal Transformer", "switch": "Switch Transformer"}
_SIZES = {"vit": "vit_{}16", "universal": "universal_{}16", "switch": "switch_8_{}16"}
_MEASURE_KINDS = "favor measure vit_s16 universal_s16 switch_8_s16 --study mine"
_KIND_COLORS = {"vit": "#767c85", "universal": FIRST_SERIES, "switch": SECOND_SERIES}

# Figure 4: ladders of depth and of width, the laptop's where the reader has trained it, else the paper's.
_LADDERS = (
    (
        ("vit_xs4_d2", "vit_xs4_d3", "vit_xs4", "vit_xs4_d6", "vit_xs4_d8"),
        ("vit_xs4_w64", "vit_xs4", "vit_xs4_w128", "vit_xs4_w160"),
    ),
    (
        tuple(f"misnomer_d{depth}" for depth in (6, 8, 16, 24, 32, 48)),
        tuple(f"misnomer_w{width}" for width in (768, 1024, 1536, 3072, 4096)),
    ),
)

_PATCHES = {8: "vit_b8", 16: "vit_b16", 32: "vit_b32", 64: "vit_b64"}
_BASE_PATCH = 16


@dataclass(frozen=True)
class CostFactor:
    """By which factor a model costs more than another one by an indicator (below one: less)."""

    name: str
    series: str
    indicator: str
    factor: float


@dataclass(frozen=True)
class CostFactors:
    """Factors of cost by several indicators, each against `base`."""

    base: str
    factors: tuple[CostFactor, ...]


def cost_factors(rows: pd.DataFrame, base: str, others: Sequence[tuple[str, str]]) -> list[CostFactor]:
    """How much the others, named with their series, cost by each indicator, against one base model.

    A throughput counts as the time per image, so that every factor above one is a cost.
    """
    factors = []
    known = set(rows["name"])
    for name, series in others:
        if not {base, name} <= known:
            continue
        for entry in compare(rows, base, name).metrics if name != base else ():
            if entry.metric in INDICATORS and entry.ratio is not None and entry.a.setting == entry.b.setting:
                factor = 1 / entry.ratio if entry.better == "higher" else entry.ratio
                factors.append(CostFactor(name, series, _SHORT[entry.metric], float(f"{factor:.4g}")))
    return factors


def indicators_figure(evidence: Evidence) -> Figure:
    """Figure 1: what sharing weights and sparse experts cost by each indicator, against ViT of the same size."""
    identity = ("misnomer-indicators", MISNOMER, "Figure 1", "Three indicators, three orders")
    rows, left_out = _one_size(evidence, [_SIZES[kind].format(size) for kind in _SIZES for size in ("ti", "s", "b")])
    factors = []
    for size in ("ti", "s", "b"):
        others = [(_SIZES[kind].format(size), _KINDS[kind]) for kind in ("universal", "switch")]
        factors += cost_factors(rows, _SIZES["vit"].format(size), others)
    if not factors:
        missing = to_fill("costs of ViT, Universal Transformer and Switch", _MEASURE_KINDS)
        return Figure(*identity, "Costs against ViT.", None, missing + left_out)
    info = CostFactors("ViT of the same size", tuple(factors))
    timed = any(factor.indicator == _SHORT["throughput"] for factor in factors)
    more = "" if timed else f" To add the time per image, run: {_MEASURE_KINDS}."
    caption = (
        f"Each line is a model relative to the ViT of the same size. {factor_sentence(info.factors)}{more}{left_out} "
        f"{sources_sentence(rows, known_of(rows, INDICATORS))}"
    )
    return Figure(*identity, caption, one_plot(_factor_chart(info), height=260), None)


def factor_sentence(factors: Sequence[CostFactor]) -> str:
    """The range of factors of each series by each indicator, in words.

    >>> factor_sentence([CostFactor("a", "Switch", "Parameters", 4.5), CostFactor("b", "Switch", "Parameters", 5.0)])
    'Switch: parameters 4.5 to 5 times.'
    """
    said = []
    for series in dict.fromkeys(factor.series for factor in factors):
        ranges = []
        for indicator in _SHORT.values():
            values = [f.factor for f in factors if (f.series, f.indicator) == (series, indicator)]
            if values:
                ends = dict.fromkeys(f"{value:.2g}" for value in (min(values), max(values)))
                ranges.append(f"{indicator.lower()} {' to '.join(ends)} times")
        said.append(f"{series}: {', '.join(ranges)}.")
    return " ".join(said)


def patch_sizes_figure(evidence: Evidence) -> Figure:
    """Table 1: ViT-B with patches of 8 to 64 px, against patches of 16."""
    identity = ("misnomer-patch-sizes", MISNOMER, "Table 1", "ViT-B by patch size")
    rows, left_out = _one_size(evidence, list(_PATCHES.values()))
    base = _PATCHES[_BASE_PATCH]
    factors = cost_factors(rows, base, [(name, f"{size} px") for size, name in _PATCHES.items()])
    if not factors:
        missing = to_fill("costs of ViT-B with patches of several sizes", MISNOMER_IMAGENET)
        return Figure(*identity, "Costs by patch size.", None, missing + left_out)
    unit = [CostFactor(base, f"{_BASE_PATCH} px", indicator, 1.0) for indicator in {f.indicator for f in factors}]
    info = CostFactors("ViT-B/16", (*factors, *unit))
    caption = (
        f"Relative to patches of {_BASE_PATCH} px. {factor_sentence(factors)}{left_out} "
        f"{sources_sentence(rows, known_of(rows, INDICATORS))}"
    )
    return Figure(*identity, caption, one_plot(_patch_chart(info), height=260), None)


def _one_size(evidence: Evidence, names: Sequence[str]) -> tuple[pd.DataFrame, str]:
    """The models at the usual image size, and which are left out; what ran is of the one setting that suits them."""
    of_models = evidence_of(evidence.table[evidence.table["name"].isin(list(names))], INDICATORS)
    rows = of_models.everything(INDICATORS)
    return sound_numbers(rows[rows["img_size"].isna() | (rows["img_size"] == (evidence.base_size or 224))], INDICATORS)


def _factor_chart(info: CostFactors) -> alt.LayerChart:
    values = [
        {"name": f.name, "series": f.series, "indicator": f.indicator, "order": _order(f.indicator), "factor": f.factor}
        for f in info.factors
    ]
    shown = list(dict.fromkeys(factor.series for factor in info.factors))
    colors = [_KIND_COLORS[kind] for kind, title in _KINDS.items() if title in shown]
    scale, ticks = factor_scale([factor.factor for factor in info.factors])
    base = alt.Chart(Rows(values)).encode(
        x=alt.X("indicator:N", title=None, sort=alt.EncodingSortField("order", op="min"), axis=alt.Axis(labelAngle=0)),
        y=alt.Y(
            "factor:Q",
            title="← Cost [times ViT's], lower is better",
            scale=scale,
            axis=ticks,
        ),
        color=alt.Color(
            "series:N",
            scale=alt.Scale(domain=shown, range=colors),
            legend=alt.Legend(title=None, orient="bottom", columns=2),
        ),
        tooltip=[
            alt.Tooltip("name:N", title="Model"),
            alt.Tooltip("indicator:N", title="Indicator"),
            alt.Tooltip("factor:Q", title="Times the cost of ViT"),
        ],
    )
    even = alt.Chart(Rows([{"factor": 1}])).mark_rule(style="reference").encode(y="factor:Q")
    lines = base.mark_line(strokeWidth=1.6, opacity=0.7).encode(detail="name:N")
    points = base.mark_point(filled=True, size=60, opacity=1).encode(
        shape=alt.Shape("series:N", scale=alt.Scale(domain=shown))
    )
    return layered(even, lines, points)


def _order(indicator: str) -> int:
    return list(_SHORT.values()).index(indicator)


def _patch_chart(info: CostFactors) -> alt.LayerChart:
    patches = [f"{size} px" for size in _PATCHES]
    values = [
        {
            "name": f.name,
            "patch": f.series,
            "order": patches.index(f.series),
            "indicator": f.indicator,
            "factor": f.factor,
        }
        for f in info.factors
    ]
    indicators = [title for title in _SHORT.values() if any(factor.indicator == title for factor in info.factors)]
    colors = [FIRST_SERIES, SECOND_SERIES, THIRD_SERIES][: len(indicators)]
    by_indicator = alt.Scale(domain=indicators, range=colors)
    scale, ticks = factor_scale([factor.factor for factor in info.factors])
    legend = alt.Legend(title=None, orient="bottom", columns=2)
    base = alt.Chart(Rows(values)).encode(
        x=alt.X(
            "patch:N", title="Patch size", sort=alt.EncodingSortField("order", op="min"), axis=alt.Axis(labelAngle=0)
        ),
        y=alt.Y(
            "factor:Q",
            title=f"← Cost [times {info.base}], lower is better",
            scale=scale,
            axis=ticks,
        ),
        color=alt.Color("indicator:N", scale=by_indicator, legend=legend),
        tooltip=[
            alt.Tooltip("name:N", title="Model"),
            alt.Tooltip("indicator:N", title="Indicator"),
            alt.Tooltip("factor:Q", title="Times the cost with patches of 16 px"),
        ],
    )
    shape = alt.Shape("indicator:N", scale=alt.Scale(domain=indicators), legend=legend)
    return layered(
        base.mark_line(strokeWidth=1.8), base.mark_point(filled=True, size=60, opacity=1).encode(shape=shape)
    )


@dataclass(frozen=True)
class Ladder:
    """A model of one of the two ladders, in the axes' units."""

    name: str
    way: str
    cost: float
    top1: float


@dataclass(frozen=True)
class LadderPlot:
    """Both ladders over one cost, and by how much depth leads on average over the range that both cover."""

    x: Axis
    y: Axis
    points: tuple[Ladder, ...]
    lead_of_depth: float


@dataclass(frozen=True)
class DepthAndWidth:
    """The ladders over every indicator, and the verdict of the comparison."""

    plots: tuple[LadderPlot, ...]
    verdict: str


def depth_and_width(
    rows: pd.DataFrame, costs: Sequence[str], ladders: tuple[Sequence[str], Sequence[str]] = _LADDERS[-1]
) -> DepthAndWidth:
    """The ladders of depth and width over each cost."""
    depths, widths = ladders
    result = depth_or_width(rows, depths, widths, costs)
    y = axis_of("top1", rows["top1"])
    plots = []
    for curve in result.curves:
        x = axis_of(curve.cost, rows[curve.cost])
        points = tuple(
            Ladder(name, way, x.shown(row[curve.cost]), y.shown(row["top1"]))
            for way, ladder in (("depth", depths), ("width", widths))
            for name in ladder
            for row in rows[rows["name"] == name].to_dict("records")
        )
        plots.append(LadderPlot(x, y, points, curve.quality_gap))
    return DepthAndWidth(tuple(plots), result.verdict)


def depth_or_width_figure(table: pd.DataFrame, scope: Scope = DEFAULT_SCOPE) -> Figure:
    """Figure 4."""
    identity = ("misnomer-depth-width", MISNOMER, "Figure 4", "Scaling in depth or in width")
    for ladders in _LADDERS:
        of_models = table[table["name"].isin([name for ladder in ladders for name in ladder])]
        rows = evidence_of(of_models, [*INDICATORS, "top1"], scope=scope).everything([*INDICATORS, "top1"])
        rows = rows[rows["top1"].notna()] if "top1" in rows.columns else rows[:0]
        rows, left_out = sound_numbers(rows, INDICATORS)
        costs = [cost for cost in INDICATORS if cost in rows.columns and _overlap(rows, cost, ladders)]
        if costs:
            info = depth_and_width(rows, costs, ladders)
            sources = sources_sentence(rows, [*costs, "top1"])
            verdict = "" if unequal_lengths(rows) else f": {info.verdict}. {lead_sentence(info)}"
            caption = f"ViTs made deeper or wider{verdict or '.'}{left_out} {sources}"
            return Figure(*identity, caption, several_plots([_ladder_plot(plot) for plot in info.plots]), None)
    missing = to_fill("costs and accuracies of both ladders", RUN_MISNOMER)
    return Figure(*identity, "Two ladders of ViTs.", None, missing)


def _overlap(rows: pd.DataFrame, cost: str, ladders: tuple[Sequence[str], Sequence[str]]) -> bool:
    """Whether both ladders have two or more models, and share a range of the cost."""
    try:
        depth_or_width(rows, *ladders, [cost])
    except RequestError:
        return False
    return True


def lead_sentence(info: DepthAndWidth) -> str:
    """By how much depth leads at equal cost: the ladders may cross, so that a verdict alone could mislead."""
    leads = [f"{plot.lead_of_depth:+.1f} at equal {plot.x.title.lower()}" for plot in info.plots]
    return f"Mean lead of depth in points, over the costs that both cover: {', '.join(leads)}."


def _ladder_plot(info: LadderPlot) -> alt.LayerChart:
    values = [{"name": p.name, "way": p.way, "x": p.cost, "y": p.top1} for p in info.points]
    scale = alt.Scale(domain=["depth", "width"], range=[FIRST_SERIES, SECOND_SERIES])
    legend = alt.Legend(title=None, orient="bottom")
    base = alt.Chart(Rows(values)).encode(
        x=x_axis(info.x), y=y_axis(info.y), color=alt.Color("way:N", scale=scale, legend=legend)
    )
    points = base.mark_point(filled=True, size=55, opacity=1).encode(
        shape=alt.Shape("way:N", scale=alt.Scale(domain=["depth", "width"], range=["circle", "square"]), legend=legend),
        tooltip=[
            alt.Tooltip("name:N", title="Model"),
            alt.Tooltip("x:Q", title=info.x.described()),
            alt.Tooltip("y:Q", title=info.y.described()),
        ],
    )
    lines = base.mark_line(strokeWidth=1.6)
    return layered(lines, points).properties(width=PANEL_WIDTH, height=PANEL_HEIGHT, title=info.x.title)
