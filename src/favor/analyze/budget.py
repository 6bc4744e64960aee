"""Accuracy over training budget, with a warning about runs that lead early and lose late.

Paper: Dehghani et al., "The Efficiency Misnomer", ICLR 2022, section 2.1, Figures 2 and 3.
"""

from collections.abc import Sequence
from dataclasses import asdict, dataclass
from itertools import combinations
from typing import Any

import numpy as np
import pandas as pd

from favor.analyze.selection import complete_rows, numbers, require_columns
from favor.errors import RequestError
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
class BudgetResult:
    """The order of runs by budget: all pairs compared over the budgets they share, and those that flip."""

    metric: str
    budget: str
    runs: tuple[str, ...]
    pairs: int
    flips: tuple[LateFlip, ...]
    warning: str | None

    def to_dict(self) -> dict[str, Any]:
        """Plain content for JSON."""
        return asdict(self)


def late_flips(
    curves: pd.DataFrame, *, run: str = "name", budget: str = "epochs", metric: str = "top1", margin: float = 0.0
) -> BudgetResult:
    """Pairs of runs whose order flips late, from learning curves (one row per run and budget).

    A lead or deficit of `margin` or less, in the metric's unit, counts as none.

    >>> curves = pd.DataFrame({"name": ["short", "short", "long", "long"], "epochs": [10, 90, 10, 90],
    ...                        "top1": [60.0, 70.0, 50.0, 75.0]})
    >>> flip = late_flips(curves).flips[0]
    >>> flip.leads_early, flip.leads_late, flip.until
    ('short', 'long', 10.0)
    """
    require_columns(curves, [run, budget, metric], "a comparison over training budgets")
    usable, _ = complete_rows(curves, [metric])
    by_run = {
        str(name): dict(zip(rows[budget].astype(float), numbers(rows, metric), strict=True))
        for name, rows in usable.groupby(run)
    }
    sign = -1.0 if glossary_entry(metric).better == "lower" else 1.0
    compared, flips = 0, []
    for a, b in combinations(by_run, 2):
        shared = sorted(set(by_run[a]) & set(by_run[b]))
        if len(shared) < 2:
            continue
        compared += 1
        leads = sign * np.array([by_run[a][at] - by_run[b][at] for at in shared])
        flip = _flip(a, b, shared, leads, margin)
        if flip is not None:
            flips.append(flip)
    if not compared:
        raise RequestError(f"no two runs have {metric} at two or more shared values of {budget}")
    flips.sort(key=lambda flip: -min(flip.early_lead, flip.final_deficit))
    return BudgetResult(metric, budget, tuple(by_run), compared, tuple(flips), _warning(flips, budget))


def _flip(a: str, b: str, budgets: Sequence[float], leads_of_a: np.ndarray, margin: float) -> LateFlip | None:
    if leads_of_a[-1] > 0:
        a, b, leads_of_a = b, a, -leads_of_a
    early = np.flatnonzero(leads_of_a[:-1] > margin)
    if leads_of_a[-1] >= -margin or not len(early):
        return None
    return LateFlip(
        leads_early=a,
        leads_late=b,
        until=budgets[int(early[-1])],
        final_budget=budgets[-1],
        early_lead=float(leads_of_a[early].max()),
        final_deficit=float(-leads_of_a[-1]),
    )


def _warning(flips: Sequence[LateFlip], budget: str) -> str | None:
    if not flips:
        return None
    flip = flips[0]
    return (
        f"{flip.leads_early} leads {flip.leads_late} until {budget} {flip.until:g} (by up to {flip.early_lead:.3g}) "
        f"and is {flip.final_deficit:.3g} behind at {flip.final_budget:g}: "
        "a comparison at a short budget does not predict the final order."
    )
