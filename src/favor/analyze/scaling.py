"""How cost and accuracy grow: a larger model or a larger image, more depth or more width.

Papers: Nauen et al., "Which Transformer to Favor", section 5.5 and appendix D.4; Dehghani et al., "The Efficiency
Misnomer", section 2.2, Figure 4, Tables 1 and 2.
"""

import math
from collections.abc import Sequence
from dataclasses import dataclass
from typing import Literal

import numpy as np
import pandas as pd

from favor.analyze.selection import complete_rows, numbers, require_columns
from favor.errors import RequestError, unknown_name
from favor.metrics import metric as glossary_entry
from favor.units import format_quantity

_QUALITY = "top1"


@dataclass(frozen=True)
class ScalingStep:
    """What one way to scale up gains (in the quality's unit) and by what factor it costs more."""

    to: str
    gain: float
    cost_factor: float
    gain_per_doubling: float


@dataclass(frozen=True)
class ModelOrImage:
    """The larger model at the small image against the small model at the larger image, from the same start.

    `verdict` names the way that gains more per doubling of the cost.
    """

    larger_model: ScalingStep
    larger_image: ScalingStep
    verdict: Literal["larger model", "larger image", "equal"]


@dataclass(frozen=True)
class CurveComparison:
    """Two ways to scale, as curves of quality over one cost indicator, over the range of cost that both cover.

    `crossings` are where the lead changes, cheapest first, in the unit of the cost. `leads` is who is ahead, from the
    cheap end on, at first and after each crossing. `quality_gap` is the mean lead of depth over width.
    """

    cost: str
    crossings: tuple[float, ...]
    leads: tuple[str, ...]
    quality_gap: float

    def sentence(self) -> str:
        """Which way of scaling is ahead at which cost."""
        if not self.leads:
            return f"by {self.cost} neither is ahead"
        unit = glossary_entry(self.cost).unit
        later = zip(self.leads[1:], self.crossings, strict=True)
        return ", ".join(
            [f"by {self.cost} {self.leads[0]}", *(f"{lead} from {format_quantity(at, unit)} on" for lead, at in later)]
        )


@dataclass(frozen=True)
class DepthOrWidth:
    """The curves by every cost indicator, and who is ahead: by all of them, or by which and where."""

    curves: tuple[CurveComparison, ...]
    verdict: str


def model_or_image(
    table: pd.DataFrame,
    small: str,
    large: str,
    cost: str,
    *,
    img_size: int = 224,
    larger_img_size: int = 384,
) -> ModelOrImage:
    """Whether to take the next larger model or the larger image, by one cost indicator."""
    require_columns(table, ["name", "img_size", cost, _QUALITY], "scaling")
    usable, _ = complete_rows(table, [cost, _QUALITY])
    start = _point(usable, small, img_size, cost)
    model = _step(f"{large}@{img_size}", start, _point(usable, large, img_size, cost), cost)
    image = _step(f"{small}@{larger_img_size}", start, _point(usable, small, larger_img_size, cost), cost)
    is_model = model.gain_per_doubling > image.gain_per_doubling
    verdict: Literal["larger model", "larger image", "equal"] = "larger model" if is_model else "larger image"
    if model.gain_per_doubling == image.gain_per_doubling:
        verdict = "equal"
    return ModelOrImage(model, image, verdict)


def _point(table: pd.DataFrame, name: str, img_size: int, cost: str) -> tuple[float, float]:
    rows = table[(table["name"] == name) & (table["img_size"] == img_size)]
    if not len(rows):
        known = [f"{row_name}@{size:g}" for row_name, size in zip(table["name"], table["img_size"], strict=True)]
        raise unknown_name(f"model with {cost} and {_QUALITY}", f"{name}@{img_size}", known)
    return float(rows[cost].mean()), float(rows[_QUALITY].mean())


def _step(to: str, start: tuple[float, float], end: tuple[float, float], cost: str) -> ScalingStep:
    """Gain and cost factor of a step; a step that costs nothing gains without bound (or loses so)."""
    factor = end[0] / start[0]
    if glossary_entry(cost).better == "higher":
        factor = 1 / factor
    gain = end[1] - start[1]
    doublings = math.log2(factor)
    return ScalingStep(to, gain, factor, gain / doublings if doublings > 0 else math.copysign(math.inf, gain))


def depth_or_width(
    table: pd.DataFrame, depth: Sequence[str], width: Sequence[str], costs: Sequence[str]
) -> DepthOrWidth:
    """Compare two ladders of models (deeper and deeper, wider and wider) as curves over each cost indicator."""
    curves = tuple(_compare_curves(table, depth, width, cost) for cost in costs)
    stories = {curve.leads for curve in curves}
    agree = len(stories) == 1 and len(curves[0].leads) == 1
    by_cost = "; ".join(curve.sentence() for curve in curves)
    verdict = f"{curves[0].leads[0]} is ahead by every indicator" if agree else f"who is ahead depends: {by_cost}"
    return DepthOrWidth(curves, verdict)


def _compare_curves(table: pd.DataFrame, depth: Sequence[str], width: Sequence[str], cost: str) -> CurveComparison:
    curves = [_curve(table, names, cost) for names in (depth, width)]
    low, high = max(curve[0][0] for curve in curves), min(curve[0][-1] for curve in curves)
    if low >= high:
        raise RequestError(f"the two ladders share no range of {cost}")
    grid = np.linspace(low, high, 1001)
    lead = np.interp(grid, *curves[0]) - np.interp(grid, *curves[1])
    # Where the curves touch, neither leads; the lead changes only if the other one leads afterwards.
    led = np.flatnonzero(lead)
    changes = np.flatnonzero(np.sign(lead[led[:-1]]) != np.sign(lead[led[1:]]))
    firsts = [*led[:1], *led[changes + 1]]
    sign = glossary_entry(cost).sign
    return CurveComparison(
        cost=cost,
        crossings=tuple(math.exp(sign * (grid[led[i]] + grid[led[i + 1]]) / 2) for i in changes),
        leads=tuple("depth" if lead[first] > 0 else "width" for first in firsts),
        quality_gap=float(lead.mean()),
    )


def _curve(table: pd.DataFrame, names: Sequence[str], cost: str) -> tuple[np.ndarray, np.ndarray]:
    """Log cost (rising) and quality of a ladder; a cost for which higher is better is turned round."""
    rows, _ = complete_rows(table[table["name"].isin(list(names))], [cost, _QUALITY])
    if len(rows) < 2:
        raise RequestError(f"a ladder of models needs two or more with {cost} and {_QUALITY}, found {len(rows)}")
    log_cost = glossary_entry(cost).sign * np.log(numbers(rows, cost))
    order = np.argsort(log_cost)
    return log_cost[order], numbers(rows, _QUALITY)[order]
