"""Accuracies that belong to another configuration than our model.

A published accuracy belongs to the configuration that was trained. If that is known to differ from ours, or if its
parameters or multiply-adds differ by more than 2 %, the accuracy must not decide. Nor must a published accuracy that a
teacher helped to reach, whichever pipelines are compared. Where the zoo has that
configuration as a name with settings (`trained_as`), a record of it has the accuracy and is not flagged.
"""

import functools
from collections.abc import Iterable
from dataclasses import dataclass

import pandas as pd

from favor.analyze.setting import Setting, column_of
from favor.analyze.trained_as import DEFAULT_PIPELINE, package_rows, trained_as

TOLERANCE = 0.02

_COUNTS_TO_COMPARE = ("params", "params_paper", "macs", "macs_matmul")
_TRAINING = ["name", "top1_source", "top1_pipeline"]  # identifies an accuracy of an assembled table
_FOREIGN = ("published", "imported")
_DISTILLED = "trained with a teacher (distillation), unlike the models it is compared with"
_IMG_SIZE, _NUM_CLASSES = 224, 1000  # at which the benchmark's configurations were counted


@dataclass(frozen=True)
class BenchmarkConfiguration:
    """The parameters and multiply-adds of one image that a model of the benchmark had; None where not known."""

    params: float
    macs: float | None


@functools.cache
def known_deviations() -> dict[str, str]:
    """Models whose implementation in the benchmark is known to differ from the paper's, and how.

    Three bugs of the benchmark's code are not listed, because they do not affect an accuracy at 224 px: its FNet
    changes the heads of models built after it, not its own; its SLAB runs only at 224 px; and its Swin's window of 7
    does not tile 384 px.
    """
    return {row["name"]: row["why"] for row in package_rows("known_deviations.csv") if row["kind"] == "configuration"}


@functools.cache
def counting_conventions() -> dict[str, str]:
    """Models whose multiply-adds the benchmark counted by another convention: the models themselves are equal."""
    return {row["name"]: row["why"] for row in package_rows("known_deviations.csv") if row["kind"] == "convention"}


@functools.cache
def benchmark_configurations() -> dict[str, BenchmarkConfiguration]:
    """By name, what the models of the benchmark cost as it trained them.

    >>> benchmark_configurations()["evit_s16(keep=1)"] == benchmark_configurations()["evit_s16"]
    True
    """
    counted = {
        row["name"]: BenchmarkConfiguration(float(row["params"]), float(row["gmacs"]) * 1e9 if row["gmacs"] else None)
        for row in package_rows("benchmark_configurations.csv")
    }
    return counted | {known: counted[name] for name, known in trained_as().items() if name in counted}


def deviations(table: pd.DataFrame, assembled: pd.DataFrame) -> dict[str, str]:
    """By name, why the accuracy in an assembled table is not the accuracy of our model.

    `table` is the wide table behind it, with the published counts and ours. A measured accuracy is our model's own
    and never deviates.
    """
    by_row = zip(assembled["name"], deviations_by_row(table, assembled), strict=True)
    return {str(name): why for name, why in by_row if why is not None}


def deviations_by_row(table: pd.DataFrame, assembled: pd.DataFrame) -> list[str | None]:
    """For every row of an assembled table, why its own accuracy is not our model's; None where it is.

    If pipelines are mixed, a model may have several accuracies, some of which deviate.
    """
    trainings = list(zip(*(assembled[column] for column in _TRAINING), strict=True))
    foreign = assembled[assembled["top1_source"].isin(_FOREIGN)]
    if not len(foreign):
        return [None] * len(trainings)
    in_benchmark = set(foreign.loc[foreign["top1_pipeline"] == DEFAULT_PIPELINE, "name"])
    of_benchmark = _benchmark_deviations(table, in_benchmark) | {
        name: f"{why} (in the benchmark's implementation)" for name, why in known_deviations().items()
    }
    of_counts = _count_deviations(table, foreign)
    distilled = [
        source == "published" and isinstance(setting, Setting) and setting.distillation is True
        for source, setting in zip(assembled["top1_source"], column_of(assembled, "top1_setting"), strict=True)
    ]
    return [
        (of_benchmark.get(name) if pipeline == DEFAULT_PIPELINE and source in _FOREIGN else None)
        or of_counts.get((name, source, str(pipeline)))
        or (_DISTILLED if with_teacher else None)
        for (name, source, pipeline), with_teacher in zip(trainings, distilled, strict=True)
    ]


def _benchmark_deviations(table: pd.DataFrame, names: Iterable[str]) -> dict[str, str]:
    """The models whose counts differ from the configuration that the benchmark trained."""
    ours = _at_benchmark_conditions(table[table["source"] == "measured"]) if "source" in table.columns else table[:0]
    own = {count: _latest(ours, count) for count in ("params", "macs_matmul")}
    deviations: dict[str, str] = {}
    for name in sorted(set(names) & set(benchmark_configurations())):
        theirs = benchmark_configurations()[name]
        # The benchmark counts no element-wise work except norms, so its count is compared with our matrix products.
        macs = None if name in counting_conventions() else theirs.macs
        for count, figure in (("params", theirs.params), ("macs_matmul", macs)):
            our_count = own[count].get(name)
            if figure is not None and our_count is not None and (said := _apart(count, figure, our_count)):
                deviations[name] = said
    return deviations


def _latest(rows: pd.DataFrame, count: str) -> dict[str, float]:
    """By name, the last of the rows' counts."""
    if count not in rows.columns:
        return {}
    known = rows[["name", count]].dropna()
    return {str(name): float(value) for name, value in zip(known["name"], known[count], strict=True)}


def _at_benchmark_conditions(rows: pd.DataFrame) -> pd.DataFrame:
    for column, value in (("img_size", _IMG_SIZE), ("num_classes", _NUM_CLASSES)):
        if column in rows.columns:
            rows = rows[rows[column].isna() | (rows[column] == value)]
    return rows


def _count_deviations(table: pd.DataFrame, foreign: pd.DataFrame) -> dict[tuple[str, str, str], str]:
    """The accuracies that were reported with counts other than ours (same source, and pipeline if given).

    The key is the accuracy's: name, source and pipeline.
    """
    conditions = [column for column in ("img_size", "num_classes", "pipeline") if column in table.columns]
    counts_in_table = [count for count in _COUNTS_TO_COMPARE if count in table.columns]
    table = table.loc[table["name"].isin(foreign["name"]), ["name", "source", *conditions, *counts_in_table]]
    stated = table.merge(
        foreign[_TRAINING].drop_duplicates(),
        left_on=["name", "source"],
        right_on=["name", "top1_source"],
    )
    if "pipeline" in stated.columns:
        stated = stated[stated["pipeline"].isna() | (stated["pipeline"] == stated["top1_pipeline"])]
    ours = table[table["source"] == "measured"]
    deviations: dict[tuple[str, str, str], str] = {}
    for count in counts_in_table:
        columns = ["name", count, *(column for column in conditions if column != "pipeline")]
        both = (
            stated[[*columns, *_TRAINING[1:]]]
            .dropna(subset=[count])
            .merge(ours[columns].dropna(subset=[count]), on="name", suffixes=("", "_ours"))
        )
        for column in columns[2:]:
            both = both[both[column].isna() | both[f"{column}_ours"].isna() | (both[column] == both[f"{column}_ours"])]
        counts = zip(*(both[column] for column in (*_TRAINING, count, f"{count}_ours")), strict=True)
        for name, source, pipeline, theirs, our_count in counts:
            if said := _apart(count, float(theirs), float(our_count)):
                deviations[str(name), str(source), str(pipeline)] = said
    return deviations


def _apart(count: str, theirs: float, ours: float) -> str | None:
    """The reason for a flag: two counts that differ too much.

    >>> _apart("params", 20e6, 21e6)
    'published with 20,000,000 params, ours has 21,000,000 (4.8% apart)'
    """
    apart = abs(theirs - ours) / ours
    return (
        f"published with {theirs:,.0f} {count}, ours has {ours:,.0f} ({apart:.1%} apart)" if apart > TOLERANCE else None
    )
