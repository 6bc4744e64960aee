"""The benchmark's models as it trained them: names with settings, where those of the zoo's model are others."""

import csv
import functools
from importlib import resources

import pandas as pd

DEFAULT_PIPELINE = "wtf-deit3"


def package_rows(file: str) -> list[dict[str, str]]:
    """The rows of a CSV file of this package; lines with # are comments."""
    lines = resources.files("favor.analyze").joinpath(file).read_text(encoding="utf-8").splitlines()
    return list(csv.DictReader(line for line in lines if not line.startswith("#")))


@functools.cache
def trained_as() -> dict[str, str]:
    """By the name in the benchmark, the name with the settings that it was trained in.

    >>> trained_as()["evit_s16"]
    'evit_s16(keep=1)'
    """
    return {row["name"]: row["trained_as"] for row in package_rows("known_deviations.csv") if row["trained_as"]}


def with_benchmark_rows(table: pd.DataFrame) -> pd.DataFrame:
    """The table with the benchmark's rows under the names that they belong to, for those that have own records.

    A study of `evit_s16(keep=1)` gets the published accuracy of `evit_s16`, which was trained so.
    """
    own = set(table["name"])
    wanted = {name: known for name, known in trained_as().items() if known in own}
    if not wanted or not {"source", "pipeline"} <= set(table.columns):
        return table
    of_benchmark = table[(table["source"] == "published") & (table["pipeline"] == DEFAULT_PIPELINE)]
    attached = set(of_benchmark["name"])
    published = of_benchmark[[wanted.get(name, name) not in attached for name in of_benchmark["name"]]]
    return pd.concat([published.assign(name=published["name"].map(wanted)), table], ignore_index=True)
