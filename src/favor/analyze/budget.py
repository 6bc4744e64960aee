"""Accuracy over training budget: runs that lead early and lose late, what it takes to reach an accuracy, and totals.

Paper: Dehghani et al., "The Efficiency Misnomer", ICLR 2022, section 2.1, Figures 2 and 3.
"""

from collections.abc import Sequence
from dataclasses import asdict, dataclass
from itertools import combinations
from typing import Any

import numpy as np
import pandas as pd

from favor.analyze.learning_curves import BUDGETS, BudgetName, CurvePoint, LearningCurve, frame_of
from favor.analyze.selection import complete_rows, numbers, require_columns
from favor.errors import RequestError
from favor.machine.footprint import carbon as carbon_of_energy
from favor.metrics import metric as glossary_entry


@dataclass(frozen=True)
class LateFlip:
    """Two runs whose order changes until the largest budget: `leads_early` is behind at the end.

    `until` is the last budget at which it still leads; `early_lead` and `final_deficit` are in the metric's unit.
    """

    leads_early: str
    leads_late: str
    until: float
    final_budget: float
    early_lead: float
    final_deficit: float


@dataclass(frozen=True)
class FlipResult:
    """The order of runs by budget: the number of pairs compared over the budgets that both cover, and those that flip.

    `warning` is about the strongest flip; None without any.
    """

    metric: str
    budget: str
    runs: tuple[str, ...]
    pairs: int
    flips: tuple[LateFlip, ...]
    warning: str | None


@dataclass(frozen=True)
class Reached:
    """What a run spent until it reached an accuracy, interpolated between two evaluations; None is unknown.

    `at_first`: it was reached by the first evaluation, so the numbers are upper bounds.
    """

    run: str
    at_first: bool
    epochs: float
    images: float | None
    steps: float | None
    hours: float | None
    energy: float | None
    money: float | None


@dataclass(frozen=True)
class BudgetResult:
    """Learning curves of training runs, the pairs that flip late, and what each run needs to reach an accuracy.

    `reached` has None for a run that does not reach it. `carbon` is that of each whole run in gCO2e.
    """

    over: BudgetName
    dataset: str
    curves: tuple[LearningCurve, ...]
    comparison: FlipResult | None
    reach: float | None
    reached: tuple[Reached | None, ...]
    carbon: tuple[float | None, ...]

    def to_dict(self) -> dict[str, Any]:
        """Plain content for JSON."""
        units = {name: budget.unit for name, budget in BUDGETS.items()} | {"top1": "%", "carbon": "gCO2e"}
        return asdict(self) | {"units": units}


def over_budget(
    curves: Sequence[LearningCurve],
    over: BudgetName = "epochs",
    *,
    reach: float | None = None,
    margin: float = 0.0,
    grid_intensity: float | None = None,
) -> BudgetResult:
    """Compare training runs over a budget; without two runs that share a range of it, there is no comparison.

    Hours, energy and money are compared only between runs on the same machine.
    """
    known = [curve for curve in curves if getattr(curve.last, over) is not None]
    if not known:
        raise RequestError(f"no training run has {BUDGETS[over].title.lower()}; {_WHY_UNKNOWN[over]}")
    within = "machine" if BUDGETS[over].depends_on_machine else None
    try:
        frame = frame_of(known)
        comparison = late_flips(frame, run="run", budget=over, margin=margin, within=within, ended="finished")
    except NothingSharedError:
        comparison = None
    carbon = tuple(_carbon_of(curve, grid_intensity) for curve in curves)
    reached = () if reach is None else tuple(reached_at(curve, reach) for curve in curves)
    return BudgetResult(over, curves[0].dataset, tuple(curves), comparison, reach, reached, carbon)


_WHY_UNKNOWN = {
    "epochs": "the records have no epochs",
    "images": "their records do not have epoch_images",
    "steps": "their records do not have epoch_images",
    "hours": "their records do not have train_device_hours_per_epoch",
    "energy": "the machine has no energy meter that favor can read",
    "money": "give the price of a device with --price-per-hour",
}


def _carbon_of(curve: LearningCurve, grid_intensity: float | None) -> float | None:
    """The carbon of a whole run, with the given intensity or that of its records."""
    intensity = curve.grid_intensity if grid_intensity is None else grid_intensity
    return None if intensity is None or curve.last.energy is None else carbon_of_energy(curve.last.energy, intensity)


def reached_at(curve: LearningCurve, accuracy: float) -> Reached | None:
    """What a run spent until its top-1 accuracy first reached a value in %; None if it never did.

    >>> points = [CurvePoint(60.0, 1, 100.0, 10.0, 1.0, None), CurvePoint(80.0, 2, 200.0, 20.0, 3.0, None)]
    >>> curve = LearningCurve("a", "a", "digits", "p", "m", 1, 0, True, 2, (), None, tuple(points))
    >>> reached_at(curve, 70.0).images, reached_at(curve, 70.0).hours, reached_at(curve, 90.0)
    (150.0, 2.0, None)
    """
    at = next((place for place, point in enumerate(curve.points) if point.top1 >= accuracy), None)
    if at is None:
        return None
    after = curve.points[at]
    before = curve.points[at - 1] if at else after
    share = (accuracy - before.top1) / (after.top1 - before.top1) if at else 1.0
    return Reached(curve.run, at == 0, **{name: _between(before, after, name, share) for name in BUDGETS})  # type: ignore[arg-type]


def _between(before: CurvePoint, after: CurvePoint, budget: str, share: float) -> float | None:
    low, high = getattr(before, budget), getattr(after, budget)
    return None if low is None or high is None else low + share * (high - low)


class NothingSharedError(RequestError):
    """No two runs can be compared over a budget."""


def late_flips(
    curves: pd.DataFrame,
    *,
    run: str = "name",
    budget: str = "epochs",
    metric: str = "top1",
    margin: float = 0.0,
    within: str | None = None,
    ended: str | None = None,
) -> FlipResult:
    """Pairs of runs whose order flips late, from learning curves (one row per run and budget).

    Two runs are compared at the budgets of both that lie in the range they share, interpolated linearly. A lead or
    deficit of `margin` or less, in the metric's unit, counts as none. With a column `within`, only runs that agree in
    it are compared. A run that is marked in the column `ended` keeps its last value: a larger budget changes nothing.

    >>> curves = pd.DataFrame({"name": ["short", "short", "long", "long"], "epochs": [10, 90, 10, 90],
    ...                        "top1": [60.0, 70.0, 50.0, 75.0]})
    >>> flip = late_flips(curves).flips[0]
    >>> flip.leads_early, flip.leads_late, flip.until
    ('short', 'long', 10.0)
    """
    columns = [column for column in (run, budget, metric, within, ended) if column is not None]
    require_columns(curves, columns, "a comparison over training budgets")
    usable, _ = complete_rows(curves, [metric, budget])
    by_run = {str(name): rows.sort_values(budget) for name, rows in usable.groupby(run, sort=False)}
    lines = {name: (numbers(rows, budget), numbers(rows, metric)) for name, rows in by_run.items()}
    ends = {name: np.inf if ended and rows[ended].all() else lines[name][0][-1] for name, rows in by_run.items()}
    sign = -1.0 if glossary_entry(metric).better == "lower" else 1.0
    compared, flips = 0, []
    for a, b in combinations(by_run, 2):
        shared = _shared_budgets(lines[a][0], lines[b][0], min(ends[a], ends[b]))
        if len(shared) < 2 or (within is not None and by_run[a][within].iloc[0] != by_run[b][within].iloc[0]):
            continue
        compared += 1
        leads = sign * (np.interp(shared, *lines[a]) - np.interp(shared, *lines[b]))
        flip = _flip(a, b, shared, leads, margin)
        if flip is not None:
            flips.append(flip)
    if not compared:
        raise NothingSharedError(f"no two runs have {metric} at two or more shared values of {budget}")
    flips.sort(key=lambda flip: -min(flip.early_lead, flip.final_deficit))
    return FlipResult(metric, budget, tuple(by_run), compared, tuple(flips), _warning(flips, budget, metric))


def _shared_budgets(a: np.ndarray, b: np.ndarray, end: float) -> np.ndarray:
    """The budgets of two runs from where both have begun."""
    both = np.unique(np.concatenate([a, b]))
    return both[(both >= max(a[0], b[0])) & (both <= end)]


def _flip(a: str, b: str, budgets: np.ndarray, leads_of_a: np.ndarray, margin: float) -> LateFlip | None:
    if leads_of_a[-1] > 0:
        a, b, leads_of_a = b, a, -leads_of_a
    early = np.flatnonzero(leads_of_a[:-1] > margin)
    if leads_of_a[-1] >= -margin or not len(early):
        return None
    return LateFlip(
        leads_early=a,
        leads_late=b,
        until=float(budgets[early[-1]]),
        final_budget=float(budgets[-1]),
        early_lead=float(leads_of_a[early].max()),
        final_deficit=float(-leads_of_a[-1]),
    )


def _warning(flips: Sequence[LateFlip], budget: str, metric: str) -> str | None:
    if not flips:
        return None
    flip, unit = flips[0], glossary_entry(metric).unit
    unit = "points" if unit == "%" else unit
    return (
        f"{flip.leads_early} leads {flip.leads_late} until {budget} {flip.until:g} "
        f"(by up to {flip.early_lead:.3g} {unit}) and is {flip.final_deficit:.3g} {unit} behind at "
        f"{flip.final_budget:g}: a comparison at a short budget does not predict the final order."
    )
