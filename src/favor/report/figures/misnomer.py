"""The efficiency misnomer: cost indicators that disagree (its Figures 1, 4 and 5 and Table 1)."""

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any

import altair as alt
import pandas as pd

from favor.analyze import compare, depth_or_width, disagreement
from favor.analyze.disagreement import DisagreementResult, PairDisagreement
from favor.errors import RequestError
from favor.report.figures.axes import Axis, axis_of, factor_scale, quantity, x_axis, y_axis
from favor.report.figures.commands import MISNOMER as RUN_MISNOMER
from favor.report.figures.commands import QUICK, to_fill
from favor.report.figures.evidence import LEAST_TO_DRAW, Evidence, evidence_of, sources_sentence
from favor.report.figures.figure import MISNOMER, Figure
from favor.report.figures.heatmap import Cell, heatmap
from favor.report.figures.style import (
    FIRST_SERIES,
    PANEL_HEIGHT,
    PANEL_WIDTH,
    SECOND_SERIES,
    THIRD_SERIES,
    layered,
    one_plot,
    several_plots,
)

INDICATORS = ("params", "macs", "throughput")
_SHORT = {"params": "Parameters", "macs": "Multiply-adds", "throughput": "Time per image", "latency_p50": "Latency"}

# Figure 1: a plain Transformer, one that shares its weights over the depth, and one with sparse experts.
_KINDS = {"vit": "Transformer", "universal": "Universal Transformer", "switch": "Switch Transformer"}
_SIZES = {"vit": "vit_{}16", "universal": "universal_{}16", "switch": "switch_8_{}16"}
_MEASURE_KINDS = "favor measure vit_s16 universal_s16 switch_8_s16 --into mine"
_KIND_COLOURS = {"vit": "#767c85", "universal": FIRST_SERIES, "switch": SECOND_SERIES}

_DEPTHS = tuple(f"misnomer_d{depth}" for depth in (6, 8, 16, 24, 32, 48))
_WIDTHS = tuple(f"misnomer_w{width}" for width in (768, 1024, 1536, 3072, 4096))

_PATCHES = {8: "vit_b8", 16: "vit_b16", 32: "vit_b32", 64: "vit_b64"}
_BASE_PATCH = 16

# Figure 5: costs in the order in which they are looked for; those that many models have together are compared.
_COSTS = (
    *("params", "macs", "activations", "throughput", "latency_p50", "inference_memory", "train_memory"),
    *("train_hours_per_epoch", "energy_per_image"),
)
_LEAST_IN_COMMON = 5
_MOST_FLIPS = 12


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
    found = []
    known = set(rows["name"])
    for name, series in others:
        if not {base, name} <= known:
            continue
        for entry in compare(rows, base, name).metrics if name != base else ():
            if entry.metric in INDICATORS and entry.ratio is not None and entry.a.setting == entry.b.setting:
                factor = 1 / entry.ratio if entry.better == "higher" else entry.ratio
                found.append(CostFactor(name, series, _SHORT[entry.metric], float(f"{factor:.4g}")))
    return found


def indicators_figure(evidence: Evidence) -> Figure:
    """Figure 1: what sharing weights and sparse experts cost by each indicator, against ViT of the same size."""
    identity = ("misnomer-indicators", MISNOMER, "Figure 1", "Three indicators, three orders")
    rows = _one_size(evidence, [_SIZES[kind].format(size) for kind in _SIZES for size in ("ti", "s", "b")])
    factors = []
    for size in ("ti", "s", "b"):
        others = [(_SIZES[kind].format(size), _KINDS[kind]) for kind in ("universal", "switch")]
        factors += cost_factors(rows, _SIZES["vit"].format(size), others)
    if not factors:
        missing = to_fill("costs of ViT, Universal Transformer and Switch", _MEASURE_KINDS)
        return Figure(*identity, "Costs against ViT.", None, missing)
    info = CostFactors("ViT of the same size", tuple(factors))
    timed = any(factor.indicator == _SHORT["throughput"] for factor in factors)
    more = "" if timed else f" For the time per image: {_MEASURE_KINDS}."
    caption = (
        f"Each line is a model against ViT of its size. {factor_sentence(info.factors)}{more} "
        f"{sources_sentence(rows, _known(rows, INDICATORS))}"
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
    rows = _one_size(evidence, list(_PATCHES.values()))
    base = _PATCHES[_BASE_PATCH]
    factors = cost_factors(rows, base, [(name, f"{size} px") for size, name in _PATCHES.items()])
    if not factors:
        missing = to_fill("costs of ViT-B with patches of several sizes", RUN_MISNOMER)
        return Figure(*identity, "Costs by patch size.", None, missing)
    unit = [CostFactor(base, f"{_BASE_PATCH} px", indicator, 1.0) for indicator in {f.indicator for f in factors}]
    info = CostFactors("ViT-B/16", (*factors, *unit))
    caption = (
        f"Against patches of {_BASE_PATCH} px. {factor_sentence(factors)} "
        f"{sources_sentence(rows, _known(rows, INDICATORS))}"
    )
    return Figure(*identity, caption, one_plot(_patch_chart(info), height=260), None)


def _one_size(evidence: Evidence, names: Sequence[str]) -> pd.DataFrame:
    """The models at the usual image size; what ran is of the one setting that suits them."""
    of_models = evidence_of(evidence.table[evidence.table["name"].isin(list(names))], INDICATORS)
    rows = of_models.everything(INDICATORS)
    return rows[rows["img_size"].isna() | (rows["img_size"] == (evidence.base_size or 224))]


def _known(rows: pd.DataFrame, metrics: Sequence[str]) -> list[str]:
    return [metric for metric in metrics if metric in rows.columns and rows[metric].notna().any()]


def _factor_chart(info: CostFactors) -> alt.LayerChart:
    values = [
        {"name": f.name, "series": f.series, "indicator": f.indicator, "order": _order(f.indicator), "factor": f.factor}
        for f in info.factors
    ]
    shown = list(dict.fromkeys(factor.series for factor in info.factors))
    colours = [_KIND_COLOURS[kind] for kind, title in _KINDS.items() if title in shown]
    scale, ticks = factor_scale([factor.factor for factor in info.factors])
    base = alt.Chart(alt.Data(values=values)).encode(
        x=alt.X("indicator:N", title=None, sort=alt.EncodingSortField("order", op="min"), axis=alt.Axis(labelAngle=0)),
        y=alt.Y(
            "factor:Q",
            title="← Cost [times ViT's], lower is better",
            scale=scale,
            axis=ticks,
        ),
        color=alt.Color(
            "series:N",
            scale=alt.Scale(domain=shown, range=colours),
            legend=alt.Legend(title=None, orient="bottom", columns=2),
        ),
        tooltip=[
            alt.Tooltip("name:N", title="Model"),
            alt.Tooltip("indicator:N", title="Indicator"),
            alt.Tooltip("factor:Q", title="Times the cost of ViT"),
        ],
    )
    even = alt.Chart(alt.Data(values=[{"factor": 1}])).mark_rule(style="reference").encode(y="factor:Q")
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
    colours = [FIRST_SERIES, SECOND_SERIES, THIRD_SERIES][: len(indicators)]
    by_indicator = alt.Scale(domain=indicators, range=colours)
    scale, ticks = factor_scale([factor.factor for factor in info.factors])
    legend = alt.Legend(title=None, orient="bottom", columns=2)
    base = alt.Chart(alt.Data(values=values)).encode(
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


def depth_and_width(rows: pd.DataFrame, costs: Sequence[str]) -> DepthAndWidth:
    """The ladders of depth and width over each cost."""
    result = depth_or_width(rows, _DEPTHS, _WIDTHS, costs)
    y = axis_of("top1", rows["top1"])
    plots = []
    for curve in result.curves:
        x = axis_of(curve.cost, rows[curve.cost])
        points = tuple(
            Ladder(name, way, x.shown(row[curve.cost]), y.shown(row["top1"]))
            for way, ladder in (("depth", _DEPTHS), ("width", _WIDTHS))
            for name in ladder
            for row in rows[rows["name"] == name].to_dict("records")
        )
        plots.append(LadderPlot(x, y, points, curve.quality_gap))
    return DepthAndWidth(tuple(plots), result.verdict)


def depth_or_width_figure(table: pd.DataFrame) -> Figure:
    """Figure 4."""
    identity = ("misnomer-depth-width", MISNOMER, "Figure 4", "Scaling in depth or in width")
    own = table[table["name"].isin([*_DEPTHS, *_WIDTHS])]
    rows = evidence_of(own, [*INDICATORS, "top1"]).everything([*INDICATORS, "top1"])
    rows = rows[rows["top1"].notna()] if "top1" in rows.columns else rows[:0]
    costs = [cost for cost in INDICATORS if cost in rows.columns and rows[cost].notna().sum() >= 2 * LEAST_TO_DRAW]
    try:
        info = depth_and_width(rows, costs) if costs else None
    except RequestError:
        info = None
    if info is None:
        missing = to_fill("costs and accuracies of both ladders", RUN_MISNOMER)
        return Figure(*identity, "Two ladders of ViTs.", None, missing)
    caption = (
        f"ViTs made deeper or wider: {info.verdict}. {lead_sentence(info)} {sources_sentence(rows, [*costs, 'top1'])}"
    )
    return Figure(*identity, caption, several_plots([_ladder_plot(plot) for plot in info.plots]), None)


def lead_sentence(info: DepthAndWidth) -> str:
    """By how much depth leads at equal cost: the ladders may cross, so that a verdict alone could mislead."""
    leads = [f"{plot.lead_of_depth:+.1f} at equal {plot.x.title.lower()}" for plot in info.plots]
    return f"Points by which depth leads, on average over the costs that both cover: {', '.join(leads)}."


def _ladder_plot(info: LadderPlot) -> alt.LayerChart:
    values = [{"name": p.name, "way": p.way, "x": p.cost, "y": p.top1} for p in info.points]
    scale = alt.Scale(domain=["depth", "width"], range=[FIRST_SERIES, SECOND_SERIES])
    legend = alt.Legend(title=None, orient="bottom")
    base = alt.Chart(alt.Data(values=values)).encode(
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


def common_costs(evidence: Evidence) -> pd.DataFrame:
    """The models at the usual image size with all costs that are known of them."""
    rows = evidence_of(evidence.table, _COSTS).everything(_COSTS)
    return rows[rows["img_size"] == (evidence.base_size or 224)]


def flips_of(rows: pd.DataFrame) -> DisagreementResult | None:
    """How the costs that models have in common order them; None where no two costs do."""
    chosen: list[str] = []
    for cost in _known(rows, _COSTS):
        if len(rows.dropna(subset=[*chosen, cost])) >= _LEAST_IN_COMMON:
            chosen.append(cost)
    return disagreement(rows, chosen, strongest=_MOST_FLIPS) if len(chosen) > 1 else None


def flips_figures(evidence: Evidence) -> list[Figure]:
    """Figure 5: how many pairs of models two indicators order differently, and the strongest of these flips."""
    shares = ("misnomer-disagreement", MISNOMER, "Figure 5", "Pairs of models that indicators order differently")
    strongest = ("misnomer-rank-flips", MISNOMER, "Figure 5", "The strongest rank flips")
    known = common_costs(evidence)
    result = flips_of(known)
    if result is None:
        missing = to_fill("two costs of five models or more", QUICK)
        return [Figure(*identity, "Rank flips.", None, missing) for identity in (shares, strongest)]
    rows = known.dropna(subset=list(result.indicators))
    said = sources_sentence(rows, result.indicators)
    cells = [
        Cell(quantity(pair.y).title, quantity(pair.x).title, pair.share, f"{pair.flipped} of {pair.pairs} pairs")
        for pair in result.pairs
    ]
    chart = one_plot(heatmap(cells, form=".0%"), height=max(60, 42 * (len(result.indicators) - 1)))
    caption = f"Share of pairs of models of which one is cheaper by one indicator and dearer by the other. {said}"
    worst = max(result.pairs, key=lambda pair: pair.share)
    flipped = f"{flip_sentence(worst)} {said}"
    if not worst.strongest:
        missing = to_fill("models that two costs order differently", QUICK)
        return [Figure(*shares, caption, chart, None), Figure(*strongest, flipped, None, missing)]
    drawn = one_plot(_flip_chart(worst.x, worst.y, result), height=34 * len(worst.strongest))
    return [Figure(*shares, caption, chart, None), Figure(*strongest, flipped, drawn, None)]


def flip_sentence(pair: PairDisagreement) -> str:
    """How often two indicators disagree, and over which two models the most."""
    if not pair.strongest:
        return "The indicators order all models alike."
    x, y, flip = quantity(pair.x).title, quantity(pair.y).title.lower(), pair.strongest[0]
    return (
        f"{x} and {y} order {pair.flipped} of {pair.pairs} pairs differently ({pair.share:.0%}): {flip.cheaper_by_x} "
        f"costs {flip.factor_x:.1f} times less than {flip.cheaper_by_y} by {x.lower()} and {flip.factor_y:.1f} times "
        f"more by {y}."
    )


def _flip_chart(x: str, y: str, result: DisagreementResult) -> alt.LayerChart:
    """A row for each flip: to the left how much less it costs by x, to the right how much more by y."""
    worst = next(pair for pair in result.pairs if (pair.x, pair.y) == (x, y))
    titles = {"less": f"less by {quantity(x).title.lower()}", "more": f"more by {quantity(y).title.lower()}"}
    values: list[dict[str, Any]] = [
        {"row": order, "text": f"{flip.cheaper_by_x} against {flip.cheaper_by_y}", "factor": factor, "by": titles[side]}
        for order, flip in enumerate(worst.strongest)
        for side, factor in (("less", round(1 / flip.factor_x, 4)), ("more", round(flip.factor_y, 4)))
    ]
    scale, ticks = factor_scale([float(value["factor"]) for value in values])
    y_scale = alt.Scale(domain=[-0.6, len(worst.strongest) - 0.2], reverse=True, nice=False)
    base = alt.Chart(alt.Data(values=values)).encode(y=alt.Y("row:Q", axis=None, scale=y_scale))
    bars = base.mark_bar(size=9, yOffset=8).encode(
        x=alt.X(
            "factor:Q",
            title="Cost of the first model [times the second's]",
            scale=scale,
            axis=ticks,
        ),
        x2=alt.datum(1),
        color=alt.Color(
            "by:N",
            scale=alt.Scale(domain=list(titles.values()), range=[FIRST_SERIES, SECOND_SERIES]),
            legend=alt.Legend(title="The first model costs", orient="bottom", columns=1, labelLimit=260),
        ),
        tooltip=[
            alt.Tooltip("text:N", title="Models"),
            alt.Tooltip("by:N", title="Costs"),
            alt.Tooltip("factor:Q", title="Times the other's"),
        ],
    )
    names = base.transform_filter(alt.datum.by == titles["less"]).mark_text(
        style="label", align="left", baseline="middle", dy=-5
    )
    return layered(bars, names.encode(text="text:N", x=alt.value(0)))
