"""Two models side by side, metric by metric, with a verdict only if a test supports one."""

import math
from collections.abc import Mapping, Sequence
from dataclasses import asdict, dataclass
from statistics import median
from types import MappingProxyType
from typing import Any, Literal

import pandas as pd

from favor.analyze.effects import SIGNIFICANT
from favor.analyze.flags import disturbance
from favor.analyze.intervals import (
    LEAST_ROUNDS,
    deviations,
    is_linear,
    round_values,
    shared_variance,
    with_quality_intervals,
)
from favor.analyze.recommendation import Reading, Seeds, reading_of, text_in
from favor.analyze.signed_rank import signed_rank_p
from favor.analyze.trainings import unequal_lengths
from favor.errors import unknown_name
from favor.metrics import METRICS

Verdict = Literal["a", "b", "undecided", "equal", "untested"]
_EXACT = ("counted", "exact", "imported as exact", "published, rounded")


@dataclass(frozen=True)
class MetricComparison:
    """Both models in one metric; `ratio` is b over a. `test` is the basis of the verdict.

    `tested` are the numbers that the test compared if others are shown: the means over seeds, where the best are shown.
    """

    metric: str
    unit: str
    better: str
    a: Reading
    b: Reading
    difference: float
    ratio: float | None
    p: float | None
    verdict: Verdict
    test: str
    tested: tuple[float, float] | None = None


@dataclass(frozen=True)
class PairComparison:
    """Two models at one image size; metrics that only one of them has are listed apart.

    `flagged` gives the models whose accuracy is from another configuration, with the reason; it is shown, not tested.
    """

    a: str
    b: str
    img_size: int | None
    metrics: tuple[MetricComparison, ...]
    only_a: tuple[str, ...]
    only_b: tuple[str, ...]
    flagged: dict[str, str]

    def to_dict(self) -> dict[str, Any]:
        """Plain content for JSON."""
        return asdict(self)


def compare(
    assembled: pd.DataFrame,
    a: str,
    b: str,
    *,
    dataset: str | None = None,
    flags: Mapping[str, str] = MappingProxyType({}),
) -> PairComparison:
    """Compare two models of an assembled table in every metric that both have.

    Counts and memory are exact. If both models have several seeds, Welch's t-test over the seeds decides. An accuracy
    without an interval gets the one that follows from the number of test images. What both share, such as the test
    images, does not count. Other numbers without intervals, from two settings, of training runs of unequal length or
    measured on a busy machine are shown but not tested; nor is the accuracy of a model in `flags` (name to reason),
    which is from another configuration.

    If the compared numbers were measured in turns, the ratios of the rounds decide, not the intervals.
    """
    assembled = with_quality_intervals(assembled, dataset)
    row_a, row_b, img_size = _rows_at_one_size(assembled, a, b)
    metrics = [metric for metric in METRICS if metric in assembled.columns]
    has_a, has_b = ({metric for metric in metrics if pd.notna(row[metric])} for row in (row_a, row_b))
    flagged = {name: flags[name] for name in (a, b) if name in flags}
    return PairComparison(
        a=a,
        b=b,
        img_size=img_size,
        metrics=tuple(
            _compare_metric(metric, row_a, row_b, tuple(flagged)) for metric in metrics if metric in has_a & has_b
        ),
        only_a=tuple(metric for metric in metrics if metric in has_a - has_b),
        only_b=tuple(metric for metric in metrics if metric in has_b - has_a),
        flagged=flagged,
    )


def _rows_at_one_size(assembled: pd.DataFrame, a: str, b: str) -> tuple[pd.Series, pd.Series, int | None]:
    """The rows of both models at an image size at which both have an accuracy, else with the most metrics in common."""
    for name in (a, b):
        if name not in set(assembled["name"]):
            raise unknown_name("model with records", name, [str(known) for known in assembled["name"].unique()])
    metrics = [metric for metric in METRICS if metric in assembled.columns]
    rows_a, rows_b = (assembled[assembled["name"] == name] for name in (a, b))
    pairs = [
        (row_a, row_b)
        for _, row_a in rows_a.iterrows()
        for _, row_b in rows_b.iterrows()
        if row_a["img_size"] == row_b["img_size"] or pd.isna(row_a["img_size"]) or pd.isna(row_b["img_size"])
    ]
    pairs = pairs or [(rows_a.iloc[0], rows_b.iloc[0])]

    def in_common(pair: tuple[pd.Series, pd.Series]) -> tuple[bool, int]:
        both = pair[0][metrics].notna() & pair[1][metrics].notna()
        return bool(both.get("top1", default=False)), int(both.sum())

    row_a, row_b = max(pairs, key=in_common)
    same = row_a["img_size"] == row_b["img_size"]
    return row_a, row_b, int(row_a["img_size"]) if same else None


def _compare_metric(metric: str, row_a: pd.Series, row_b: pd.Series, flagged: Sequence[str]) -> MetricComparison:
    entry, a, b = METRICS[metric], reading_of(row_a, metric), reading_of(row_b, metric)
    ratios = _round_ratios(metric, row_a, row_b)
    in_doubt = disturbance(a.flags) or disturbance(b.flags)
    in_turns = len(ratios) >= LEAST_ROUNDS and a.setting == b.setting and not in_doubt
    p, test = _in_turns(ratios) if in_turns else _test(metric, a, b, pd.DataFrame([row_a, row_b]))
    ratio = median(ratios) if in_turns else b.value / a.value if a.value else None
    if entry.group == "quality" and flagged:
        p, test = None, f"not tested: the accuracy of {' and '.join(flagged)} is flagged"
    verdict: Verdict = "untested"
    tested = None
    if test in _EXACT:
        verdict = _leader(a.value, b.value, entry.better)
    elif p is not None:
        values = (1.0, median(ratios)) if in_turns else _tested_values(a, b)
        verdict = _leader(*values, entry.better) if p < SIGNIFICANT else "undecided"
        tested = None if in_turns or values == (a.value, b.value) else values
    return MetricComparison(metric, entry.unit, entry.better, a, b, b.value - a.value, ratio, p, verdict, test, tested)


def _round_ratios(metric: str, row_a: pd.Series, row_b: pd.Series) -> list[float]:
    """b over a in every round that was quiet for both; empty unless the compared numbers were measured in turns."""
    stretch = text_in(row_a, f"{metric}_stretch")
    if stretch is None or stretch != text_in(row_b, f"{metric}_stretch"):
        return []
    rounds_a, rounds_b = (round_values(text_in(row, f"{metric}_rounds") or "") for row in (row_a, row_b))
    ratios = (b / a for a, b in zip(rounds_a, rounds_b, strict=False))  # one may have dropped out early
    return [ratio for ratio in ratios if not math.isnan(ratio)]


def _in_turns(ratios: Sequence[float]) -> tuple[float, str]:
    """The p-value of rounds in which two models took turns: load that lasts longer than a round slows both alike."""
    p = signed_rank_p([math.log(ratio) for ratio in ratios])
    return p, f"Wilcoxon's signed-rank test of {len(ratios)} rounds in turns"


def _leader(a: float, b: float, better: str) -> Verdict:
    if a == b:
        return "equal"
    if better == "neither":
        return "untested"
    return "a" if (a > b) == (better == "higher") else "b"


def _test(metric: str, a: Reading, b: Reading, rows: pd.DataFrame) -> tuple[float | None, str]:
    """The p-value of a two-sided test, over seeds or else from the intervals, and its name or why there is none."""
    entry = METRICS[metric]
    if entry.group == "counted":
        return None, "counted" if a.source == b.source == "measured" else _exactness(a, b)
    if a.setting != b.setting:
        return None, f"not tested: {a.setting or 'unknown setting'} and {b.setting or 'unknown setting'} differ"
    if doubts := {disturbance(a.flags), disturbance(b.flags)} - {None}:
        why = "measured on a busy machine" if "busy" in doubts else "the measurements are contradictory"
        return None, f"not tested: {why}"
    if entry.exact and a.low is None and b.low is None:
        return None, _exactness(a, b)
    if unequal := unequal_lengths(rows) if entry.group == "quality" else None:
        return None, f"not tested: {unequal}"
    if seeds := _several_seeds(a, b):
        return _welch(*seeds), f"Welch's t-test of the means over {seeds[0].n} and {seeds[1].n} seeds"
    if a.low is None or a.high is None or b.low is None or b.high is None:
        return None, "not tested: no interval"
    if not is_linear(metric) and min(a.value, b.value) <= 0:
        return None, "not tested: a value of zero has no ratio"
    z = _distance(metric, a, b, rows)
    test = "z-test, on the same test images" if entry.group == "quality" else "z-test of the intervals"
    return math.erfc(z / math.sqrt(2)), test


def _exactness(a: Reading, b: Reading) -> str:
    sources = {a.source, b.source}
    return "published, rounded" if "published" in sources else "imported as exact" if "imported" in sources else "exact"


def _several_seeds(a: Reading, b: Reading) -> tuple[Seeds, Seeds] | None:
    """The seeds behind both numbers; None unless both have several."""
    if a.seeds is None or b.seeds is None or a.seeds.std is None or b.seeds.std is None:
        return None
    return a.seeds, b.seeds


def _tested_values(a: Reading, b: Reading) -> tuple[float, float]:
    """What a test compares: means over seeds, even where the best seed is shown."""
    seeds = _several_seeds(a, b)
    return (seeds[0].mean, seeds[1].mean) if seeds else (a.value, b.value)


def _distance(metric: str, a: Reading, b: Reading, rows: pd.DataFrame) -> float:
    """The difference in standard deviations of what the models do not share, on the scale that is drawn on."""
    below, above = deviations(rows, metric)
    first_is_lower = a.value < b.value
    facing = (above[0], below[1]) if first_is_lower else (below[0], above[1])
    shared = shared_variance(rows, metric)
    own = math.hypot(*(side * math.sqrt(1 - share) for side, share in zip(facing, shared, strict=True)))
    common = abs(facing[0] * math.sqrt(shared[0]) - facing[1] * math.sqrt(shared[1]))
    apart = abs(b.value - a.value) if is_linear(metric) else abs(math.log(b.value / a.value))
    error = math.hypot(own, common)
    return (0.0 if apart == 0 else math.inf) if error == 0 else apart / error


def _welch(a: Seeds, b: Seeds) -> float:
    """The two-sided p-value of Welch's t-test, which does not assume equal variances.

    >>> round(_welch(Seeds(3, 80.0, 1.0, 81.0), Seeds(3, 84.0, 1.0, 85.0)), 3)
    0.008
    """
    from scipy.special import stdtr

    parts = [(seeds.std or 0.0) ** 2 / seeds.n for seeds in (a, b)]
    if not sum(parts):
        return float(a.mean == b.mean)
    freedom = sum(parts) ** 2 / sum(part**2 / (seeds.n - 1) for part, seeds in zip(parts, (a, b), strict=True))
    return float(2 * stdtr(freedom, -abs(a.mean - b.mean) / math.sqrt(sum(parts))))
