"""The efficiency misnomer's Figure 5: pairs of models that two cost indicators rank differently."""

from dataclasses import dataclass
from typing import Any

import altair as alt
import pandas as pd

from favor.analyze import disagreement
from favor.analyze.disagreement import DisagreementResult, PairDisagreement
from favor.analyze.reasons import undisturbed
from favor.analyze.selection import known_of
from favor.report.figures.axes import factor_scale, quantity
from favor.report.figures.commands import QUICK, to_fill
from favor.report.figures.evidence import Evidence, evidence_of, left_out_sentence, sources_sentence
from favor.report.figures.figure import MISNOMER, Figure
from favor.report.figures.heatmap import Cell, heatmap
from favor.report.figures.theme import FIRST_SERIES, SECOND_SERIES, Rows, layered, one_plot

# Costs in the order in which they are looked for; those that many models have together are compared.
_COSTS = (
    *("params", "macs", "activations", "throughput", "latency_p50", "inference_memory", "train_memory"),
    *("train_hours_per_epoch", "energy_per_image"),
)
_LEAST_IN_COMMON = 5
_MOST_FLIPS = 12


@dataclass(frozen=True)
class Flips:
    """How the costs that models have in common order them, and where the numbers are from."""

    disagreement: DisagreementResult
    sources: str

    @property
    def worst(self) -> PairDisagreement:
        """The two indicators that disagree the most."""
        return max(self.disagreement.pairs, key=lambda pair: pair.share)


def common_costs(evidence: Evidence) -> pd.DataFrame:
    """The models at the usual image size with all costs that are known of them."""
    rows = evidence_of(evidence.table, _COSTS).everything(_COSTS)
    return rows[rows["img_size"] == (evidence.base_size or 224)]


def flips_of(rows: pd.DataFrame) -> Flips | None:
    """How the costs that models have in common order them; None where no two costs do."""
    chosen: list[str] = []
    for cost in known_of(rows, _COSTS):
        if len(undisturbed(rows.dropna(subset=[*chosen, cost]), [*chosen, cost])) >= _LEAST_IN_COMMON:
            chosen.append(cost)
    if len(chosen) < 2:
        return None
    result = disagreement(rows, chosen, strongest=_MOST_FLIPS)
    left_out = left_out_sentence(result.excluded.disturbed)
    compared = undisturbed(rows.dropna(subset=chosen), chosen)
    return Flips(result, f"{left_out} {sources_sentence(compared, chosen)}".lstrip())


def disagreement_figure(flips: Flips | None) -> Figure:
    """How many pairs of models two indicators rank differently."""
    identity = ("misnomer-disagreement", MISNOMER, "Figure 5", "Pairs of models that indicators rank differently")
    if flips is None:
        return Figure(*identity, "Rank flips.", None, _too_few())
    cells = [
        Cell(quantity(pair.y).title, quantity(pair.x).title, pair.share, f"{pair.flipped} of {pair.pairs} pairs")
        for pair in flips.disagreement.pairs
    ]
    chart = one_plot(heatmap(cells, form=".0%"), height=max(60, 42 * (len(flips.disagreement.indicators) - 1)))
    said = "Share of pairs in which the model that is cheaper by one indicator is costlier by the other."
    return Figure(*identity, f"{said} {flips.sources}", chart, None)


def strongest_flips_figure(flips: Flips | None) -> Figure:
    """The pairs of models over which the two indicators that disagree the most do so by the largest factors."""
    identity = ("misnomer-rank-flips", MISNOMER, "Figure 5", "The strongest rank flips")
    if flips is None:
        return Figure(*identity, "Rank flips.", None, _too_few())
    caption = f"{flip_sentence(flips.worst)} {flips.sources}"
    if not flips.worst.strongest:
        return Figure(*identity, caption, None, to_fill("models that two costs rank differently", QUICK))
    return Figure(*identity, caption, one_plot(_chart(flips.worst), height=34 * len(flips.worst.strongest)), None)


def _too_few() -> str:
    return to_fill("two costs of five or more models", QUICK)


def flip_sentence(pair: PairDisagreement) -> str:
    """How often two indicators disagree, and over which two models the most."""
    if not pair.strongest:
        return "The indicators rank all models alike."
    x, y, flip = quantity(pair.x).title, quantity(pair.y).title.lower(), pair.strongest[0]
    return (
        f"{x} and {y} rank {pair.flipped} of {pair.pairs} pairs differently ({pair.share:.0%}): by {x.lower()}, "
        f"{flip.cheaper_by_y} costs {flip.factor_x:.1f} times as much as {flip.cheaper_by_x}; by {y}, "
        f"{flip.cheaper_by_x} costs {flip.factor_y:.1f} times as much as {flip.cheaper_by_y}."
    )


def _chart(worst: PairDisagreement) -> alt.LayerChart:
    """A row for each flip: to the left how much less it costs by x, to the right how much more by y."""
    titles = {
        "less": f"less by {quantity(worst.x).title.lower()}",
        "more": f"more by {quantity(worst.y).title.lower()}",
    }
    values: list[dict[str, Any]] = [
        {"row": order, "text": f"{flip.cheaper_by_x} against {flip.cheaper_by_y}", "factor": factor, "by": titles[side]}
        for order, flip in enumerate(worst.strongest)
        for side, factor in (("less", round(1 / flip.factor_x, 4)), ("more", round(flip.factor_y, 4)))
    ]
    scale, ticks = factor_scale([float(value["factor"]) for value in values])
    y_scale = alt.Scale(domain=[-0.6, len(worst.strongest) - 0.2], reverse=True, nice=False)
    base = alt.Chart(Rows(values)).encode(y=alt.Y("row:Q", axis=None, scale=y_scale))
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
