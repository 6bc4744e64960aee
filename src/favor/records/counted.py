"""The counts of our models, shipped as data: available without torch and before any measurement.

`benchmarks/make_counts.py` makes `counts.csv`; a test compares it with the counter.
"""

import csv
import json
from collections.abc import Mapping
from functools import cache
from importlib.resources import files
from typing import TYPE_CHECKING

from favor.records.schema import CardFields, Record, Scalar, reading

if TYPE_CHECKING:
    import pandas as pd

FILE_NAME = "counts.csv"
CARD_COLUMNS = CardFields.__struct_fields__
OPERATING_POINT = "operating_point"
"""The column with the assumptions for models whose work depends on the image, as a JSON object; else empty."""
COUNTED = ("params", "params_paper", "weight_bytes", "macs_matmul", "macs", "ops_mixed", "activations")


@cache
def counted_records() -> tuple[Record, ...]:
    """The counts of every model of the zoo, for one image of its own size and 1000 classes."""
    text = (files("favor.records") / FILE_NAME).read_text(encoding="utf-8")
    return tuple(_record(row) for row in csv.DictReader(text.splitlines()))


def counted_table() -> "pd.DataFrame":
    """The wide table of all counted records."""
    # pandas takes half a second to import, and the records do not need it.
    from favor.records.table import table_of

    return table_of(counted_records())


def _record(row: Mapping[str, str]) -> Record:
    return Record(
        name=row["name"],
        model=CardFields(
            family=row["family"],
            title=row["title"],
            where=row["where"] or None,
            how=row["how"] or None,
            year=int(row["year"]) if row["year"] else None,
            origin=row["origin"],
        ),
        task="count",
        source="measured",
        conditions={"img_size": int(row["img_size"]), "num_classes": 1000, "batch_size": 1} | _operating_point(row),
        metrics={name: reading(name, int(row[name]), method="counted on the operator trace") for name in COUNTED},
        provenance={"file": FILE_NAME},
    )


def _operating_point(row: Mapping[str, str]) -> dict[str, Scalar]:
    return json.loads(row[OPERATING_POINT]) if row[OPERATING_POINT] else {}
