"""Two models side by side, metric by metric, with a verdict only if a test supports one."""

import math
from collections.abc import Mapping, Sequence
from dataclasses import asdict, dataclass
from types import MappingProxyType
from typing import Any, Literal

import pandas as pd

from favor.analyze.effects import SIGNIFICANT
from favor.analyze.intervals import Z, with_quality_intervals
from favor.analyze.recommendation import Reading, Seeds, reading_of
from favor.errors import unknown_name
from favor.metrics import METRICS

Verdict = Literal["a", "b", "undecided", "equal", "untested"]


@dataclass(frozen=True)
class MetricComparison:
    """Both models in one metric; `ratio` is b over a. `test` is the basis of the verdict."""

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

    Counts are exact. If both models have several seeds, Welch's t-test over the seeds decides. An accuracy without an
    interval gets the one that follows from the number of test images. Other numbers without intervals, or from two
    settings, are shown but not tested; nor is the accuracy of a model in `flags` (name to reason), which is from
    another configuration.
    """
    row_a, row_b, img_size = _rows_at_one_size(with_quality_intervals(assembled, dataset), a, b)
    metrics = [metric for metric in METRICS if metric in assembled.columns]
    has_a, has_b = ({metric for metric in metrics if pd.notna(row[metric])} for row in (row_a, row_b))
    flagged = {name: flags[name] for name in (a, b) if name in flags}
    return PairComparison(
        a=a,
        b=b,
        img_size=img_size,
        metrics=tuple(
            _compare_metric(metric, reading_of(row_a, metric), reading_of(row_b, metric), tuple(flagged))
            for metric in metrics
            if metric in has_a & has_b
        ),
        only_a=tuple(metric for metric in metrics if metric in has_a - has_b),
        only_b=tuple(metric for metric in metrics if metric in has_b - has_a),
        flagged=flagged,
    )


def _rows_at_one_size(assembled: pd.DataFrame, a: str, b: str) -> tuple[pd.Series, pd.Series, int | None]:
    """The rows of both models at the image size for which they share the most metrics."""
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
    row_a, row_b = max(pairs, key=lambda pair: (pair[0][metrics].notna() & pair[1][metrics].notna()).sum())
    same = row_a["img_size"] == row_b["img_size"]
    return row_a, row_b, int(row_a["img_size"]) if same else None


def _compare_metric(metric: str, a: Reading, b: Reading, flagged: Sequence[str]) -> MetricComparison:
    entry = METRICS[metric]
    p, test = _test(metric, a, b)
    if entry.group == "quality" and flagged:
        p, test = None, f"not tested: the accuracy of {' and '.join(flagged)} is flagged"
    verdict: Verdict = "untested"
    if entry.group == "counted":
        verdict = _leader(a.value, b.value, entry.better)
    elif p is not None:
        verdict = _leader(a.value, b.value, entry.better) if p < SIGNIFICANT else "undecided"
    ratio = b.value / a.value if a.value else None
    return MetricComparison(metric, entry.unit, entry.better, a, b, b.value - a.value, ratio, p, verdict, test)


def _leader(a: float, b: float, better: str) -> Verdict:
    if a == b:
        return "equal"
    if better == "neither":
        return "untested"
    return "a" if (a > b) == (better == "higher") else "b"


def _test(metric: str, a: Reading, b: Reading) -> tuple[float | None, str]:
    """The p-value of a two-sided test, over seeds or else from the intervals, and its name or why there is none."""
    if METRICS[metric].group == "counted":
        return None, "counted" if a.source == b.source == "measured" else "published counts, rounded"
    if a.setting != b.setting:
        return None, f"not tested: {a.setting or 'unknown setting'} and {b.setting or 'unknown setting'} differ"
    if a.seeds and b.seeds and a.seeds.std is not None and b.seeds.std is not None:
        return _welch(a.seeds, b.seeds), f"Welch's t-test of the means over {a.seeds.n} and {b.seeds.n} seeds"
    if a.low is None or a.high is None or b.low is None or b.high is None:
        return None, "not tested: no interval"
    error = math.hypot(a.high - a.low, b.high - b.low) / (2 * Z)
    if error == 0:
        return float(a.value == b.value), "z-test of the intervals"
    quality = METRICS[metric].group == "quality"
    test = "z-test, interval from the number of test images" if quality else "z-test of the intervals"
    return math.erfc(abs(b.value - a.value) / error / math.sqrt(2)), test


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
