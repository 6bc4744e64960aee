"""Accuracies that belong to another configuration than the model we would hand over.

A published accuracy belongs to the configuration it was trained in. Where that is known to differ from ours, or where
its parameters or multiply-adds are more than 2 % apart from ours, the accuracy must not decide.
"""

import csv
import functools
from importlib import resources

import pandas as pd

from favor.analyze.assemble import DEFAULT_PIPELINE

TOLERANCE = 0.02

_COUNTS_TO_COMPARE = ("params", "params_paper", "macs", "macs_matmul")


@functools.cache
def known_deviations() -> dict[str, str]:
    """Models whose implementation in the benchmark is known to differ from the paper's, and how."""
    text = resources.files("favor.analyze").joinpath("known_deviations.csv").read_text(encoding="utf-8")
    return {row["name"]: row["why"] for row in csv.DictReader(text.splitlines())}


def deviations(table: pd.DataFrame, assembled: pd.DataFrame) -> dict[str, str]:
    """By name, why the accuracy that stands in an assembled table is not the accuracy of our model.

    `table` is the wide table that it was assembled from: it has the published and our own counts to compare. An
    accuracy that was measured is our model's own and never deviates.
    """
    foreign = assembled[assembled["top1_source"].isin(["published", "imported"])]
    if not len(foreign):
        return {}
    in_benchmark = foreign.loc[foreign["top1_pipeline"] == DEFAULT_PIPELINE, "name"]
    known = {
        name: f"{why} (in the benchmark's implementation)"
        for name, why in known_deviations().items()
        if name in set(in_benchmark)
    }
    return _count_deviations(table, foreign) | known


def _count_deviations(table: pd.DataFrame, foreign: pd.DataFrame) -> dict[str, str]:
    """Where the counts that were stated with the accuracy (same source, same pipeline if stated) are not ours."""
    conditions = [column for column in ("img_size", "num_classes", "pipeline") if column in table.columns]
    stated = table.merge(
        foreign[["name", "top1_source", "top1_pipeline"]].drop_duplicates("name"),
        left_on=["name", "source"],
        right_on=["name", "top1_source"],
    )
    if "pipeline" in stated.columns:
        stated = stated[stated["pipeline"].isna() | (stated["pipeline"] == stated["top1_pipeline"])]
    ours = table[table["source"] == "measured"]
    found: dict[str, str] = {}
    for count in _COUNTS_TO_COMPARE:
        if count not in table.columns:
            continue
        columns = ["name", count, *(column for column in conditions if column != "pipeline")]
        both = (
            stated[columns]
            .dropna(subset=[count])
            .merge(ours[columns].dropna(subset=[count]), on="name", suffixes=("", "_ours"))
        )
        for column in columns[2:]:
            both = both[both[column].isna() | both[f"{column}_ours"].isna() | (both[column] == both[f"{column}_ours"])]
        for name, theirs, our_count in zip(both["name"], both[count], both[f"{count}_ours"], strict=True):
            apart = abs(theirs - our_count) / our_count
            if apart > TOLERANCE:
                found[name] = f"published with {theirs:,.0f} {count}, ours has {our_count:,.0f} ({apart:.1%} apart)"
    return found
