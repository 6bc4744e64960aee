"""The effect of a change, all else equal: paired differences with an interval and a test.

Papers: Jeevan and Sethi, "Hybrid X-formers for Vision", Tables 1 to 6 (linear attention, convolutional embedding,
rotary positions); Nauen et al., "Which Transformer to Favor", Table 1 (the new pipeline over the original papers').
"""

import math
from collections.abc import Sequence
from dataclasses import asdict, dataclass
from typing import Any, Literal

import numpy as np
import pandas as pd

from favor.analyze.comparison import results
from favor.analyze.intervals import CONFIDENCE
from favor.analyze.selection import complete_rows, require_columns
from favor.errors import RequestError
from favor.metrics import metric as glossary_entry

SIGNIFICANT = 1 - CONFIDENCE


@dataclass(frozen=True)
class PairedDifference:
    """One comparison with all else equal: the value without and with the change.

    `alike` says what is equal, `of` its first part alone: the model, where models are compared with themselves.
    """

    base: str
    changed: str
    alike: str
    base_value: float
    changed_value: float
    difference: float
    of: str = ""


@dataclass(frozen=True)
class PairedEffect:
    """The mean difference that a change makes over n pairs, its 95 % interval and the p of a two-sided paired t-test.

    `p_rank` is the p of Wilcoxon's signed-rank test, which an outlier cannot sway. Interval and tests are None where
    they are not defined (fewer than two pairs). `verdict` is "better" or "worse" only where the t-test is significant.
    """

    change: str
    metric: str
    unit: str
    n: int
    mean: float
    low: float | None
    high: float | None
    p: float | None
    p_rank: float | None
    verdict: Literal["better", "worse", "undecided"]
    pairs: tuple[PairedDifference, ...]

    def to_dict(self) -> dict[str, Any]:
        """Plain content for JSON."""
        return asdict(self)

    def sentence(self) -> str:
        """The result in words.

        >>> paired_effect("pipeline", "top1", [PairedDifference("a", "a", "", 80.0, 81.0, 1.0)]).sentence()
        'pipeline: top1 +1 % on average over 1 pair; not tested'
        """
        pairs = f"{self.n} pair" + ("" if self.n == 1 else "s")
        text = f"{self.change}: {self.metric} {self.mean:+.3g} {self.unit} on average over {pairs}"
        if self.low is None or self.high is None or self.p is None:
            return f"{text}; not tested"
        return f"{text} (95 % interval {self.low:+.3g} to {self.high:+.3g}, p = {self.p:.2g}): {self.verdict}"


def paired_effect(change: str, metric: str, pairs: Sequence[PairedDifference]) -> PairedEffect:
    """Mean, interval and test of paired differences.

    >>> effect = paired_effect("x", "top1", [PairedDifference("a", "b", "", 0.0, d, d) for d in (1.0, 2.0, 3.0)])
    >>> effect.mean, effect.verdict
    (2.0, 'undecided')
    """
    from scipy import stats

    entry = glossary_entry(metric)
    differences = np.array([pair.difference for pair in pairs])
    n = len(differences)
    if not n:
        raise RequestError(f"{change}: no two rows that differ in it alone have {metric}")
    mean = float(differences.mean())
    low = high = p = p_rank = None
    if n > 1:
        error = float(differences.std(ddof=1)) / math.sqrt(n)
        half = float(stats.t.ppf(0.5 + CONFIDENCE / 2, n - 1)) * error
        low, high = mean - half, mean + half
        p = float(2 * stats.t.sf(abs(mean) / error, n - 1)) if error > 0 else float(mean == 0)
        p_rank = float(stats.wilcoxon(differences).pvalue) if differences.any() else 1.0
    return PairedEffect(
        change, metric, entry.unit, n, mean, low, high, p, p_rank, _verdict(mean, p, entry.better), tuple(pairs)
    )


def _verdict(mean: float, p: float | None, better: str) -> Literal["better", "worse", "undecided"]:
    if p is None or p >= SIGNIFICANT or mean == 0 or better == "neither":
        return "undecided"
    return "better" if (mean > 0) == (better == "higher") else "worse"


def effect_of_condition(
    table: pd.DataFrame,
    condition: str,
    base: str,
    changed: str,
    metric: str = "top1",
    *,
    by: Sequence[str] = ("name", "dataset"),
) -> PairedEffect:
    """The effect of one condition's value over another's, for rows that agree in the columns `by`.

    Rows that agree in all of it are averaged.
    """
    require_columns(table, [condition, metric, *by], "a paired comparison")
    usable, _ = complete_rows(results(table), [metric])
    usable = usable[usable[condition].isin([base, changed])]
    values = usable.groupby([*by, condition], dropna=False)[metric].mean().unstack(condition).dropna()
    if not {base, changed} <= set(values.columns):
        raise RequestError(f"no rows with {condition} {base!r} and {changed!r} agree in {', '.join(by)}")
    found = [
        PairedDifference(
            base=base,
            changed=changed,
            alike=", ".join(_text(part) for part in (key if isinstance(key, tuple) else (key,))),
            base_value=float(row[base]),
            changed_value=float(row[changed]),
            difference=float(row[changed] - row[base]),
            of=_text(key[0] if isinstance(key, tuple) else key),
        )
        for key, row in values.iterrows()
    ]
    return paired_effect(f"{condition}: {base} to {changed}", metric, found)


def _text(value: object) -> str:
    return "" if pd.isna(value) else f"{value:g}" if isinstance(value, float) else str(value)  # type: ignore[call-overload]
