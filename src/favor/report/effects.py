"""What one change of a Vision X-former does, all else equal: the paper's numbers and the reader's, side by side."""

from dataclasses import dataclass

import pandas as pd

from favor.analyze.effects import PairedEffect, x_former_effects
from favor.analyze.setting import column_of
from favor.analyze.trainings import DEFAULT_SCOPE, Scope
from favor.text import plural
from favor.units import format_quantity

# What is shown, and the metric and dataset behind it.
_SHOWN = {
    "Accuracy on CIFAR-10": ("top1", "cifar10"),
    "Accuracy on Tiny ImageNet": ("top1", "tiny-imagenet"),
    "Training memory": ("train_memory", None),
}


@dataclass(frozen=True)
class EffectRow:
    """A change, and its effect by the paper's numbers and by the reader's; empty if no pair has the numbers."""

    change: str
    paper: str
    own: str


@dataclass(frozen=True)
class EffectTable:
    """The effects on one quantity; `heads` are the titles of the columns of the paper and of the reader."""

    title: str
    heads: tuple[str, str]
    rows: tuple[EffectRow, ...]


def effect_tables(table: pd.DataFrame, scope: Scope = DEFAULT_SCOPE) -> tuple[EffectTable, ...]:
    """The effects on each quantity that two X-formers have which differ in one part alone."""
    sources = column_of(table, "source")
    paper, own = table[sources == "published"], table[sources == "measured"]
    tables = []
    for title, (metric, dataset) in _SHOWN.items():
        by_source = [_told(part, metric, dataset, scope) for part in (paper, own)]
        changes = dict.fromkeys(change for effects in by_source for change in effects)
        if changes:
            rows = (EffectRow(change, *(effects.get(change, "") for effects in by_source)) for change in changes)
            of_runs = ("", "") if dataset is None else (", best of three runs", f", {scope.seeds} over seeds")
            heads = (f"The paper{of_runs[0]}", f"Your records{of_runs[1]}")
            tables.append(EffectTable(title, heads, tuple(rows)))
    return tuple(tables)


def _told(table: pd.DataFrame, metric: str, dataset: str | None, scope: Scope) -> dict[str, str]:
    trained = table if dataset is None else table[column_of(table, "dataset") == dataset]
    return {effect.change: effect_text(effect) for effect in x_former_effects(trained, metric, scope)}


def effect_text(effect: PairedEffect) -> str:
    """An effect in words, with its interval and the number of pairs.

    >>> from favor.analyze.effects import PairedDifference, paired_effect
    >>> pairs = [PairedDifference("a", "b", "", 80.0, 80.0 + gain, gain) for gain in (1.0, 1.1, 1.2)]
    >>> effect_text(paired_effect("x", "top1", pairs))
    'better: +1.10 points (+0.85 to +1.35), 3 pairs'
    """
    mean, low, high = (
        None if end is None else _signed(end, effect.unit) for end in (effect.mean, effect.low, effect.high)
    )
    unit = " points" if effect.unit == "%" else ""
    interval = f" ({low} to {high})" if low is not None else ""
    why = f" ({effect.unequal})" if effect.unequal else ""
    return f"{effect.verdict}: {mean}{unit}{interval}, {plural(effect.n, 'pair')}{why}"


def _signed(value: float, unit: str) -> str:
    text = f"{abs(value):.2f}" if unit == "%" else format_quantity(abs(value), unit)
    return f"{'-' if value < 0 else '+'}{text}"
