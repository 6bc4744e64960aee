"""The effect of a change, all else equal: paired differences with an interval and a test.

Papers: Jeevan and Sethi, "Hybrid X-formers for Vision", Tables 1 to 6 (linear attention, convolutional embedding,
rotary positions); Nauen et al., "Which Transformer to Favor", Table 1 (the new pipeline over the original papers').
"""

import math
from collections import Counter
from collections.abc import Callable, Iterable, Sequence
from contextlib import suppress
from dataclasses import asdict, dataclass, replace
from typing import Any, Literal

import numpy as np
import pandas as pd

from favor.analyze.intervals import CONFIDENCE
from favor.analyze.reasons import disturbed_rows
from favor.analyze.selection import complete_rows, require_columns
from favor.analyze.setting import (
    QUALITY_CONDITIONS,
    RUN_CONDITIONS,
    SEEDS,
    SOURCES,
    column_of,
    known_conditions,
    numbered_settings,
)
from favor.analyze.signed_rank import signed_rank_p
from favor.analyze.trainings import (
    DEFAULT_SCOPE,
    Scope,
    are_unequal,
    chosen_setting,
    has_accuracy,
    is_early,
    results,
    said_lengths,
    timed_epochs,
    trainings,
)
from favor.errors import RequestError
from favor.metrics import metric as glossary_entry

SIGNIFICANT = 1 - CONFIDENCE

# An accuracy depends on the training and not on the machine, a cost on the machine and not on the training.
_ALIKE_IN_QUALITY = ("source", "img_size", *QUALITY_CONDITIONS)
_ALIKE_IN_COST = ("source", "img_size", "num_classes", *RUN_CONDITIONS)


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
    `source` is the common source of all values, if there is one. `unequal` says how the training runs differ in length;
    then nothing is tested. `seeds` says how several seeds are combined; it is None for a cost.
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
    verdict: Literal["better", "worse", "undecided", "untested"]
    pairs: tuple[PairedDifference, ...]
    source: str | None = None
    unequal: str | None = None
    seeds: Literal["mean", "best"] | None = None

    def to_dict(self) -> dict[str, Any]:
        """Plain content for JSON."""
        return asdict(self)


def paired_effect(
    change: str, metric: str, pairs: Sequence[PairedDifference], unequal: str | None = None
) -> PairedEffect:
    """Mean, interval and test of paired differences; without a test if the training runs are `unequal` in length.

    >>> effect = paired_effect("x", "top1", [PairedDifference("a", "b", "", 0.0, d, d) for d in (1.0, 2.0, 3.0)])
    >>> effect.mean, effect.verdict
    (2.0, 'undecided')
    """
    from scipy.special import stdtr, stdtrit

    entry = glossary_entry(metric)
    differences = np.array([pair.difference for pair in pairs])
    n = len(differences)
    if not n:
        raise RequestError(f"{change}: no two rows that differ in it alone have {metric}")
    mean = float(differences.mean())
    low = high = p = p_rank = None
    if n > 1 and unequal is None:
        error = float(differences.std(ddof=1)) / math.sqrt(n)
        half = float(stdtrit(n - 1, 0.5 + CONFIDENCE / 2)) * error
        low, high = mean - half, mean + half
        p = float(2 * stdtr(n - 1, -abs(mean) / error)) if error > 0 else float(mean == 0)
        p_rank = signed_rank_p(differences)
    verdict = _verdict(mean, p, entry.better) if unequal is None else "untested"
    return PairedEffect(
        change, metric, entry.unit, n, mean, low, high, p, p_rank, verdict, tuple(pairs), unequal=unequal
    )


def _verdict(mean: float, p: float | None, better: str) -> Literal["better", "worse", "undecided"]:
    if p is None or p >= SIGNIFICANT or mean == 0 or better == "neither":
        return "undecided"
    return "better" if (mean > 0) == (better == "higher") else "worse"


def effect_of_model(
    table: pd.DataFrame,
    change: str,
    pairs: Iterable[tuple[str, str]],
    metric: str = "top1",
    scope: Scope = DEFAULT_SCOPE,
) -> PairedEffect:
    """The effect of replacing one model by another (base, changed), each pair under equal conditions.

    If a cost was measured in several settings, only the setting that most pairs share counts at each image size: two
    measurements of the same pair are not two pairs.
    """
    require_columns(table, ["name", metric], "a paired comparison")
    usable = _usable(table, metric, scope)
    is_quality = glossary_entry(metric).group == "quality"
    alike = known_conditions(usable, _ALIKE_IN_QUALITY if is_quality else _ALIKE_IN_COST, metric)
    epochs = column_of(usable, "epochs").astype(float) if scope.unfinished else timed_epochs(usable)
    keyed = alike.assign(name=usable["name"], _value=usable[metric], _epochs=epochs if is_quality else math.nan)
    if is_quality and scope.unfinished:
        trainings = keyed[["name", *alike.columns]]
        keyed = keyed[_stand_for_runs(trainings, usable)]
    runs = keyed.groupby(["name", *alike.columns], dropna=False).agg(
        value=("_value", _over_seeds(metric, scope)), least=("_epochs", "min"), most=("_epochs", "max")
    )
    by_name: dict[str, dict[tuple[str, ...], _Runs]] = {}
    for key, *row in runs.itertuples(name=None):
        parts = key if isinstance(key, tuple) else (key,)
        by_name.setdefault(str(parts[0]), {})[tuple(_text(part) for part in parts[1:])] = _Runs(*map(float, row))
    found = [
        (conditions, (base, run), (changed, other))
        for base, changed in pairs
        for conditions, run in by_name.get(base, {}).items()
        if (other := by_name.get(changed, {}).get(conditions)) is not None
    ]
    kept = {conditions for conditions, *_ in found}
    if not is_quality:
        fixed = [list(alike.columns).index(name) for name in ("source", "img_size") if name in alike]
        shared = Counter(conditions for conditions, *_ in found).most_common()
        kept = set({tuple(key[i] for i in fixed): key for key, _ in reversed(shared)}.values())
    found = [pair for pair in found if pair[0] in kept]
    differences = [
        PairedDifference(base, changed, ", ".join(filter(None, key)), run.value, other.value, other.value - run.value)
        for key, (base, run), (changed, other) in found
    ]
    lengths = [(min(run.least, other.least), max(run.most, other.most)) for _, (_, run), (_, other) in found]
    return paired_effect(change, metric, differences, _unequal_in(lengths))


@dataclass(frozen=True)
class _Runs:
    """What runs under equal conditions reach, and the fewest and the most epochs if these were not planned."""

    value: float
    least: float
    most: float


def _unequal_in(lengths: Iterable[tuple[float, float]]) -> str | None:
    """A remark on pairs whose training runs, from the shortest to the longest, differ in length; None if none do."""
    unequal = [ends for ends in lengths if are_unequal(*ends)]
    return said_lengths(min(least for least, _ in unequal), max(most for _, most in unequal)) if unequal else None


def _usable(table: pd.DataFrame, metric: str, scope: Scope) -> pd.DataFrame:
    """The rows with an undisturbed number; qualities only of the scope's pipeline, if it ran."""
    usable, _ = complete_rows(results(table, scope.unfinished), [metric])
    usable = usable[~disturbed_rows(usable, metric)]
    if scope.pipeline is None or glossary_entry(metric).group != "quality":
        return usable
    chosen = usable[column_of(usable, "pipeline") == scope.pipeline]
    return chosen if len(chosen) else usable


def _over_seeds(metric: str, scope: Scope) -> str:
    """How pandas combines seeds: costs always by their mean."""
    entry = glossary_entry(metric)
    if entry.group != "quality" or scope.seeds == "mean":
        return "mean"
    return "max" if entry.better == "higher" else "min"


def _stand_for_runs(trainings: pd.DataFrame, rows: pd.DataFrame) -> np.ndarray:
    """Mask of the rows that stand for their runs: the final ones, or the latest epochs if no seed has finished."""
    training = trainings.groupby(list(trainings.columns), dropna=False, sort=False).ngroup()
    early = is_early(rows)
    has_finished = pd.Series(~early, index=training.index).groupby(training).transform("any").to_numpy(dtype=bool)
    runs = pd.DataFrame({"training": training, **{seed: column_of(rows, seed) for seed in SEEDS}})
    is_latest = ~runs.duplicated(keep="last").to_numpy(dtype=bool)
    return ~early | (~has_finished & is_latest)


def effect_of_condition(
    table: pd.DataFrame,
    condition: str,
    base: str,
    changed: str,
    metric: str = "top1",
    *,
    by: Sequence[str] = ("name", "dataset"),
    scope: Scope = DEFAULT_SCOPE,
) -> PairedEffect:
    """The effect of one condition's value over another's, for rows that agree in the columns `by`.

    Rows that agree in all of these are averaged, or the best of them counts, as the scope says for seeds.
    """
    require_columns(table, [condition, metric, *by], "a paired comparison")
    usable = _usable(table, metric, replace(scope, unfinished=False))
    usable = usable[usable[condition].isin([base, changed])]
    by_row = usable.groupby([*by, condition], dropna=False)[metric].agg(_over_seeds(metric, scope))
    values = by_row.unstack(condition).dropna()
    if not {base, changed} <= set(values.columns):
        raise RequestError(f"no rows with {condition} {base!r} and {changed!r} agree in {', '.join(by)}")
    differences = [
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
    lengths = timed_epochs(usable).groupby([usable[name] for name in by], dropna=False).agg(["min", "max"])
    ends = lengths[lengths.index.isin(values.index)].itertuples(index=False, name=None)
    is_quality = glossary_entry(metric).group == "quality"
    change = f"{condition}: {base} to {changed}"
    return paired_effect(change, metric, differences, _unequal_in(ends) if is_quality else None)


def _text(value: object) -> str:
    return "" if pd.isna(value) else f"{value:g}" if isinstance(value, float) else str(value)  # type: ignore[call-overload]


def linear_attention_pairs(
    names: Iterable[str], mixer: Literal["performer", "linformer", "nystrom"]
) -> list[tuple[str, str]]:
    """Vision X-formers that differ in the attention alone: the paper marks it by the last letter (ViT, ViP, ViL, ViN).

    >>> linear_attention_pairs(["vix_hybrid_vit", "vix_hybrid_vin", "vix_fnet"], "nystrom")
    [('vix_hybrid_vit', 'vix_hybrid_vin')]
    """
    letter = {"performer": "p", "linformer": "l", "nystrom": "n"}[mixer]

    def swapped(name: str) -> str | None:
        stem = name.removesuffix("_rope")
        return stem[:-1] + letter + name[len(stem) :] if stem.endswith("t") else None

    return _known_pairs(names, swapped)


def convolutional_embedding_pairs(names: Iterable[str]) -> list[tuple[str, str]]:
    """Vision X-formers that differ in the embedding alone: linear, and convolutional ("hybrid").

    >>> convolutional_embedding_pairs(["vix_vit", "vix_hybrid_vit"])
    [('vix_vit', 'vix_hybrid_vit')]
    """
    return _known_pairs(names, lambda name: name.replace("vix_", "vix_hybrid_", 1))


def rotary_position_pairs(names: Iterable[str]) -> list[tuple[str, str]]:
    """Vision X-formers that differ in the positions alone: learned, and rotary.

    >>> rotary_position_pairs(["vix_vin", "vix_vin_rope"])
    [('vix_vin', 'vix_vin_rope')]
    """
    return _known_pairs(names, lambda name: f"{name}_rope")


def x_former_effects(table: pd.DataFrame, metric: str = "top1", scope: Scope = DEFAULT_SCOPE) -> list[PairedEffect]:
    """What linear attention, convolutional embedding and rotary positions change, the reader's own results first.

    Results of different sources are not mixed; changes without a pair are left out. Of several trainings of the same
    models on a dataset, one counts: two results of a pair are not two pairs.
    """
    table = table[table["name"].astype(str).str.startswith("vix_")]
    names = [str(name) for name in table["name"].unique()]
    changes = {
        "Performer attention": linear_attention_pairs(names, "performer"),
        "Linformer attention": linear_attention_pairs(names, "linformer"),
        "Nystrom attention": linear_attention_pairs(names, "nystrom"),
        "convolutional embedding": convolutional_embedding_pairs(names),
        "rotary positions": rotary_position_pairs(names),
    }
    is_quality = glossary_entry(metric).group == "quality"
    effects = []
    for source in sorted(table["source"].unique(), key=SOURCES.index):
        of_source = table[table["source"] == source]
        # The paper prints the best of three runs.
        is_printed = source == "published"
        if is_quality and not is_printed and not scope.any_pipeline:
            of_source = _of_one_training(of_source, scope)
        seeds: Literal["mean", "best"] = "best" if is_printed else scope.seeds
        for change, pairs in changes.items():
            with suppress(RequestError):  # no pair has the metric
                effect = effect_of_model(of_source, change, pairs, metric, DEFAULT_SCOPE if is_printed else scope)
                effects.append(replace(effect, source=str(source), seeds=seeds if is_quality else None))
    return effects


def _of_one_training(table: pd.DataFrame, scope: Scope) -> pd.DataFrame:
    """The results of one training per dataset: that of the scope's pipeline if it ran there, else the usual one."""
    table = results(table, scope.unfinished)
    number, settings = numbered_settings(table, (*QUALITY_CONDITIONS, "img_size"))
    ranked = [trainings(table, str(name)) for name in table["dataset"].dropna().unique() if has_accuracy(table, name)]
    deciding = []
    for of_dataset in ranked:
        has_run = any(training.setting.pipeline == scope.pipeline for training in of_dataset)
        deciding.append(settings.index(chosen_setting(of_dataset, scope.pipeline if has_run else None)))
    return table[np.isin(number, deciding)]


def left_out_of_effects(table: pd.DataFrame, metric: str, effects: Sequence[PairedEffect]) -> list[str]:
    """The Vision X-formers that are in no pair of the reader's own, because other load disturbed their number."""
    of_x_formers = table[table["name"].astype(str).str.startswith("vix_") & column_of(table, metric).notna()]
    disturbed = set(of_x_formers["name"][disturbed_rows(of_x_formers, metric)])
    own = [pair for effect in effects if effect.source == "measured" for pair in effect.pairs]
    return sorted(disturbed.difference(name for pair in own for name in (pair.base, pair.changed)))


def _known_pairs(names: Iterable[str], swapped: Callable[[str], str | None]) -> list[tuple[str, str]]:
    known = {name for name in names if name.startswith("vix_")}
    found = []
    for name in sorted(known):
        stem, *settings = name.partition("(")  # as in vix_vit(grid=16)
        other = swapped(stem)
        changed = None if other is None else "".join((other, *settings))
        if changed in known and changed != name:
            found.append((name, changed))
    return found
