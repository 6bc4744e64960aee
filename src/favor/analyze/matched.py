"""Two families or classes compared at equal parameters, equal compute or equal speed.

Paper: Dehghani et al., "The Efficiency Misnomer", ICLR 2022, section 3.2: neither match is fair alone, so show several.
"""

from dataclasses import asdict, dataclass
from typing import Any

import numpy as np
import pandas as pd

from favor.analyze.effects import PairedDifference, PairedEffect, paired_effect
from favor.analyze.reasons import undisturbed
from favor.analyze.selection import complete_rows, numbers, require_columns
from favor.analyze.trainings import unequal_lengths
from favor.errors import RequestError, unknown_name

# What a match is called, and the indicators that make it, the first that both sides have.
MATCHES = {
    "parameter-matched": ("params", "params_paper"),
    "compute-matched": ("macs", "flops", "ops_mixed", "macs_matmul"),
    "speed-matched": ("throughput", "latency_p50"),
}


@dataclass(frozen=True)
class MatchedComparison:
    """Pairs of one model of each side that cost about the same by `indicator`; the effect is b less a.

    `disturbed` models are left out: their indicator was measured on a busy machine or contradicts others.
    """

    match: str
    indicator: str
    tolerance: float
    a: str
    b: str
    models_a: int
    models_b: int
    effect: PairedEffect
    disturbed: int


@dataclass(frozen=True)
class MatchedResult:
    """The comparison under every match that the table allows, and why the others are missing."""

    a: str
    b: str
    quality: str
    comparisons: tuple[MatchedComparison, ...]
    missing: tuple[str, ...]
    verdict: str

    def to_dict(self) -> dict[str, Any]:
        """Plain content for JSON."""
        return asdict(self)


def matched(
    table: pd.DataFrame,
    a: str,
    b: str,
    indicator: str,
    *,
    group: str = "family",
    quality: str = "top1",
    tolerance: float = 0.1,
    match: str = "",
) -> MatchedComparison:
    """Compare the groups a and b in quality, each model paired with the one of the other side closest in cost.

    Pairs are one to one, as many as possible, and closest in total; a pair may differ by the share `tolerance`.

    >>> table = pd.DataFrame({"name": list("pqrs"), "family": ["x", "x", "y", "y"], "params": [5e6, 20e6, 5.1e6, 60e6],
    ...                       "top1": [72.0, 80.0, 74.0, 84.0]})
    >>> matched(table, "x", "y", "params").effect.pairs[0].changed
    'r'
    """
    require_columns(table, [group, quality, indicator], "a matched comparison")
    complete, _ = complete_rows(table, [quality, indicator])
    usable = undisturbed(complete, [indicator])
    side_a, side_b = (_side(table, usable, group, key) for key in (a, b))
    disturbed = int(complete[group].isin([a, b]).sum()) - len(side_a) - len(side_b)
    pairs = closest_pairs(np.log(numbers(side_a, indicator)), np.log(numbers(side_b, indicator)), np.log1p(tolerance))
    if not pairs:
        raise RequestError(f"no model of {a} is within {tolerance:.0%} of one of {b} by {indicator}")
    differences = [
        PairedDifference(
            base=str(row_a["name"]),
            changed=str(row_b["name"]),
            alike=f"{indicator} {row_a[indicator]:.4g} and {row_b[indicator]:.4g}",
            base_value=float(row_a[quality]),
            changed_value=float(row_b[quality]),
            difference=float(row_b[quality] - row_a[quality]),
        )
        for row_a, row_b in ((side_a.iloc[i], side_b.iloc[j]) for i, j in pairs)
    ]
    paired = pd.concat([side_a.iloc[[i for i, _ in pairs]], side_b.iloc[[j for _, j in pairs]]])
    effect = paired_effect(f"{b} over {a} at equal {indicator}", quality, differences, unequal_lengths(paired))
    sizes = (len(side_a), len(side_b))
    return MatchedComparison(match or indicator, indicator, tolerance, a, b, *sizes, effect, disturbed)


def matched_every_way(table: pd.DataFrame, a: str, b: str, *, group: str = "family") -> MatchedResult:
    """The comparison parameter-matched, compute-matched and speed-matched, as far as the table allows."""
    quality = "top1"
    comparisons, missing = [], []
    for match, indicators in MATCHES.items():
        known = [name for name in indicators if _both_have(table, a, b, group, name, quality)]
        sound = [name for name in known if _both_have(undisturbed(table, [name]), a, b, group, name, quality)]
        if not sound:
            which = "undisturbed " if known else ""
            missing.append(f"{match}: no {which}{' or '.join(indicators)} with {quality} on both sides")
            continue
        try:
            comparison = matched(table, a, b, sound[0], group=group, quality=quality, match=match)
        except RequestError as reason:
            missing.append(f"{match}: {reason}")
            continue
        comparisons.append(comparison)
    return MatchedResult(a, b, quality, tuple(comparisons), tuple(missing), _overall(a, b, comparisons))


def _side(table: pd.DataFrame, usable: pd.DataFrame, group: str, key: str) -> pd.DataFrame:
    if key not in set(table[group]):
        raise unknown_name(group, key, [str(known) for known in table[group].dropna().unique()])
    return usable[usable[group] == key]


def _both_have(table: pd.DataFrame, a: str, b: str, group: str, indicator: str, quality: str) -> bool:
    if indicator not in table.columns:
        return False
    usable, _ = complete_rows(table, [indicator, quality])
    return {a, b} <= set(usable[group])


def closest_pairs(a: np.ndarray, b: np.ndarray, widest: float) -> list[tuple[int, int]]:
    """One-to-one pairs within `widest`: first as many as possible, then the least total distance."""
    from scipy.optimize import linear_sum_assignment

    if not len(a) or not len(b):
        return []
    distance = np.abs(a[:, None] - b[None, :])
    allowed = distance <= widest
    # A forbidden pair costs more than all allowed ones together, so it is taken only where nothing else is left.
    cost = np.where(allowed, distance, widest * (min(distance.shape) + 1) + 1.0)
    return [(int(i), int(j)) for i, j in zip(*linear_sum_assignment(cost), strict=True) if allowed[i, j]]


def _overall(a: str, b: str, comparisons: list[MatchedComparison]) -> str:
    verdicts = {comparison.match: comparison.effect.verdict for comparison in comparisons}
    if not verdicts:
        return f"{a} and {b} cannot be matched with the numbers of this table"
    if unequal := next((comparison.effect.unequal for comparison in comparisons if comparison.effect.unequal), None):
        return f"{a} and {b} are not compared: {unequal}"
    distinct = set(verdicts.values())
    if distinct == {"better"}:
        return f"{b} is better than {a} under every match tested ({', '.join(verdicts)})"
    if distinct == {"worse"}:
        return f"{a} is better than {b} under every match tested ({', '.join(verdicts)})"
    by_match = ", ".join(f"{match}: {verdict}" for match, verdict in verdicts.items())
    if {"better", "worse"} <= distinct:
        return f"the answer depends on what is held equal: for {b}, {by_match}"
    return f"undecided between {a} and {b}: {by_match}"
