"""Exports of the wide table: CSV for people, Parquet for programs."""

import csv
import io
import json
import re

import pandas as pd
import pyarrow as pa
from pyarrow import parquet

from favor.metrics import METRICS

_FORMULA = re.compile(r"'*[=+\-@\t\r\n]")


def to_csv(table: pd.DataFrame) -> str:
    """The table as CSV text; unknown values are empty cells, and numbers are in the units of `docs/metrics.md`.

    A string that a spreadsheet would run as a formula gets a leading apostrophe; `from_csv` removes it again.
    """
    safe = table.rename(columns=_with_apostrophe)
    for column in safe.columns[[kind.kind == "O" for kind in safe.dtypes]]:
        safe[column] = safe[column].map(_with_apostrophe, na_action="ignore")
    written = safe.to_csv(index=False, lineterminator="\n")
    if "\r" in written:  # readers take it for the end of a line, but pandas does not quote it
        written = safe.to_csv(index=False, lineterminator="\n", quoting=csv.QUOTE_NONNUMERIC)
    return written


def from_csv(text: str) -> pd.DataFrame:
    """The table that `to_csv` wrote."""
    table = pd.read_csv(io.StringIO(text), keep_default_na=False, na_values=[""])
    for column in table.select_dtypes(include=["object", "str"]):
        table[column] = table[column].map(_without_apostrophe, na_action="ignore")
    return table.rename(columns=_without_apostrophe)


def _with_apostrophe(value: object) -> object:
    """A string that starts like a formula, after any apostrophes, with one more apostrophe; other values unchanged.

    >>> _with_apostrophe("=cmd|' /C calc'!A0")
    "'=cmd|' /C calc'!A0"
    """
    return f"'{value}" if isinstance(value, str) and _FORMULA.match(value) else value


def _without_apostrophe(value: object) -> object:
    return value[1:] if isinstance(value, str) and value.startswith("'") and _FORMULA.match(value) else value


def to_parquet(table: pd.DataFrame) -> bytes:
    """The table as Parquet; each metric's column carries its unit, direction and definition.

    A column with values of several types, which Parquet does not support, is written as the JSON of each value.
    """
    columns = {str(name): _one_type(table[name]) for name in table.columns}
    plain = pa.Table.from_pandas(pd.DataFrame(columns), preserve_index=False)
    fields = [field.with_metadata(_meaning(field.name)) for field in plain.schema]
    sink = io.BytesIO()
    parquet.write_table(plain.cast(pa.schema(fields)), sink)
    return sink.getvalue()


def _one_type(column: pd.Series) -> pd.Series:
    if column.dtype != object:
        return column
    if {type(value) for value in column[column.notna()]} <= {bool}:
        return column.astype("boolean")
    return column.map(json.dumps, na_action="ignore").astype("str")


def _meaning(column: str) -> dict[str, str]:
    name = column.removesuffix("_low").removesuffix("_high")
    if name not in METRICS:
        return {}
    metric = METRICS[name]
    return {"unit": metric.unit, "better": metric.better, "definition": metric.definition}
