"""The models that can still win: those whose speed on this machine decides the answer of a study. Imports no torch."""

from collections.abc import Collection

import pandas as pd

from favor.analyze.deviations import deviations
from favor.analyze.setting import column_of
from favor.study.resolved import ResolvedStudy
from favor.study.summary import compared_models

MARGIN = 0.1
"""A first measurement is rough: a model that is slower by this share, beyond its interval, may still be the fastest."""


def accurate_enough(study: ResolvedStudy, table: pd.DataFrame) -> frozenset[str]:
    """The models that can be favored for speed: those whose accuracy is high enough, or not known yet."""
    rows = compared_models(study, table)
    top1 = column_of(rows, "top1").astype(float)
    known = rows[top1.notna()]
    too_low = set() if study.report.min_accuracy is None else set(rows["name"][top1 < study.report.min_accuracy])
    flagged = set(deviations(table, known)) if len(known) else set()
    return frozenset(model.name for model in study.models) - too_low - flagged


def contenders(
    study: ResolvedStudy, table: pd.DataFrame, doubtful: Collection[tuple[str, int]] = ()
) -> list[tuple[str, int]]:
    """The models (name and image size) that may be the fastest with the study's minimum accuracy, the fastest first.

    A `doubtful` model can always win, since its measurement proves nothing. The table holds the study's records and
    those that ship with favor.
    """
    rows = compared_models(study, table)
    if "throughput" not in rows.columns:
        return []
    if "top1" in rows.columns:
        rows = rows[rows["top1"].notna()]
    is_ranked = rows["name"].isin(accurate_enough(study, table)) & rows["throughput"].notna()
    rows = rows[is_ranked].sort_values("throughput", ascending=False)
    sized = zip(rows["name"], rows["img_size"], strict=True)
    is_doubtful = pd.Series([model in doubtful for model in sized], index=rows.index, dtype=bool)
    low, high = (_end(rows, end) for end in ("low", "high"))
    to_beat = low[~is_doubtful].max()
    can_win = rows[is_doubtful | (high * (1 + MARGIN) >= to_beat)]
    return [(str(name), int(size)) for name, size in zip(can_win["name"], can_win["img_size"], strict=True)]


def _end(rows: pd.DataFrame, end: str) -> pd.Series:
    """An end of the throughput's interval, or the value itself where it is unknown."""
    column = f"throughput_{end}"
    return rows[column].fillna(rows["throughput"]) if column in rows.columns else rows["throughput"]
