"""Exports of the wide table: CSV for people, Parquet for programs."""

import io
import json
import os
from pathlib import Path

import pandas as pd
import pyarrow as pa
from pyarrow import parquet

from favor.errors import WorkError
from favor.metrics import METRICS


def to_csv(table: pd.DataFrame) -> str:
    """The table as CSV text; what is unknown is an empty cell, and numbers are in the units of `docs/metrics.md`."""
    return table.to_csv(index=False, lineterminator="\n")


def to_parquet(table: pd.DataFrame) -> bytes:
    """The table as Parquet; each metric's column carries its unit, direction and definition.

    A column whose values differ in type, which Parquet has not, is written as the JSON of each value.
    """
    columns = {str(name): _one_type(table[name]) for name in table.columns}
    plain = pa.Table.from_pandas(pd.DataFrame(columns), preserve_index=False)
    fields = [field.with_metadata(_meaning(field.name)) for field in plain.schema]
    sink = io.BytesIO()
    parquet.write_table(plain.cast(pa.schema(fields)), sink)
    return sink.getvalue()


def write_whole(file: Path, content: bytes) -> None:
    """Put content under a file's name in one step, so that no reader ever sees half of it."""
    part = file.with_name(f".{file.name}.part-{os.getpid()}")
    try:
        part.write_bytes(content)
        part.replace(file)
    except OSError as error:
        part.unlink(missing_ok=True)
        raise WorkError(f"cannot write {file}: {error.strerror}") from error


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
