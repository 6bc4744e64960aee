"""Numbers on their way into the page: one column a metric, with source, setting and provenance as numbered texts."""

import math
from collections.abc import Sequence
from dataclasses import dataclass, field

import pandas as pd

from favor.analyze.intervals import shared_variance
from favor.analyze.origins import shown_sources
from favor.analyze.selection import numbers
from favor.analyze.setting import Setting
from favor.metrics import METRICS

_MOST_EXACT = 2**53  # up to here a whole number is itself in JavaScript


@dataclass(frozen=True)
class Texts:
    """Repeated texts, each stored once and referred to by its number."""

    known: dict[str, int] = field(default_factory=dict)

    def number(self, text: object) -> int | None:
        """The number of a text; None for what is unknown.

        >>> texts = Texts()
        >>> texts.number("measured"), texts.number("published"), texts.number("measured"), texts.number(None)
        (0, 1, 0, None)
        """
        if not isinstance(text, str | Setting) or not str(text):
            return None
        return self.known.setdefault(str(text), len(self.known))


@dataclass(frozen=True)
class Column:
    """One metric of all models, in their order; what is unknown is None.

    `source` (as tables show it), `setting`, `provenance`, `flags` (reasons to distrust a measurement) and `stretch` (in
    which models took turns) are numbers of texts: one for all models, or a list. `shared` is the share of the variance
    that the models of one stretch have in common, or all models without one. A number in a setting other than `kept`
    does not compare with the others and is not drawn beside them.
    """

    value: list[float | None]
    low: list[float | None] | None
    high: list[float | None] | None
    source: int | list[int | None] | None
    setting: int | list[int | None] | None
    provenance: int | list[int | None] | None
    flags: int | list[int | None] | None
    shared: list[float | None] | None
    stretch: int | list[int | None] | None
    kept: int | None


def column(rows: pd.DataFrame, metric: str, texts: Texts, kept: Setting | None = None) -> Column | None:
    """A metric of assembled rows; None where no row has a number."""
    if metric not in rows.columns or not rows[metric].notna().any():
        return None
    value = [_plain(number) for number in numbers(rows, metric)]
    known = [number is not None for number in value]
    return Column(
        value=value,
        low=_ends(rows, f"{metric}_low", known),
        high=_ends(rows, f"{metric}_high", known),
        source=_texts(_with_shown_source(rows, metric), f"{metric}_source", known, texts),
        setting=_texts(rows, f"{metric}_setting", known, texts),
        provenance=_texts(rows, f"{metric}_provenance", known, texts),
        flags=_texts(rows, f"{metric}_flags", known, texts),
        shared=_ends(_with_shared(rows, metric), f"{metric}_shared", known),
        stretch=_texts(rows, f"{metric}_stretch", known, texts),
        kept=texts.number(kept),
    )


def _with_shared(rows: pd.DataFrame, metric: str) -> pd.DataFrame:
    """The rows with what simulated numbers, and those of models that took turns, have in common."""
    shares = shared_variance(rows, metric)
    return rows.assign(**{f"{metric}_shared": shares}) if shares.any() else rows


def _with_shown_source(rows: pd.DataFrame, metric: str) -> pd.DataFrame:
    """The rows with the source as tables show it."""
    if not METRICS[metric].extrapolated:
        return rows
    return rows.assign(**{f"{metric}_source": shown_sources(rows, metric)})


def _plain(number: float) -> float | None:
    """A number as JSON has it: whole ones without a point, which halves their length.

    >>> _plain(22059496.0), _plain(82.54), _plain(float("nan"))
    (22059496, 82.54, None)
    """
    if math.isnan(number):
        return None
    return int(number) if number.is_integer() and abs(number) < _MOST_EXACT else float(number)


def _ends(rows: pd.DataFrame, name: str, known: Sequence[bool]) -> list[float | None] | None:
    """One end of the intervals (or their shared part), to six digits; a limit is never compared with an end."""
    if name not in rows.columns:
        return None
    ends = [
        None if math.isnan(end) or not there else _plain(float(f"{end:.6g}"))
        for end, there in zip(numbers(rows, name), known, strict=True)
    ]
    return ends if any(end is not None for end in ends) else None


def _texts(rows: pd.DataFrame, name: str, known: Sequence[bool], texts: Texts) -> int | list[int | None] | None:
    if name not in rows.columns:
        return None
    # Rows share their texts and settings: each object is asked for its number once.
    objects = rows[name].to_numpy(dtype=object)
    shared = {id(text): text for text, there in zip(objects, known, strict=True) if there}
    numbered = {key: texts.number(text) for key, text in shared.items()}
    of_models = [numbered[id(text)] if there else None for text, there in zip(objects, known, strict=True)]
    different = {number for number, there in zip(of_models, known, strict=True) if there}
    return different.pop() if len(different) == 1 else of_models
