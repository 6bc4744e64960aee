"""Records: the schema, the append-only store, the table, importers, our models' counts, and the papers' tables.

Names are imported on first use: a process that only appends records needs no pandas.
"""

import importlib
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from favor.records.counted import counted_records, counted_table
    from favor.records.loading import Gathered, gather
    from favor.records.published import published_table
    from favor.records.schema import CardFields, Reading, Record, from_data, reading, request_of, to_data
    from favor.records.store import Problem, ReadResult, append, read
    from favor.records.table import RecordsWarning, load, table_of

_HOMES = {
    "CardFields": "favor.records.schema",
    "Gathered": "favor.records.loading",
    "Problem": "favor.records.store",
    "ReadResult": "favor.records.store",
    "Reading": "favor.records.schema",
    "Record": "favor.records.schema",
    "RecordsWarning": "favor.records.table",
    "append": "favor.records.store",
    "counted_records": "favor.records.counted",
    "counted_table": "favor.records.counted",
    "from_data": "favor.records.schema",
    "gather": "favor.records.loading",
    "load": "favor.records.table",
    "published_table": "favor.records.published",
    "read": "favor.records.store",
    "reading": "favor.records.schema",
    "request_of": "favor.records.schema",
    "table_of": "favor.records.table",
    "to_data": "favor.records.schema",
}

__all__ = [
    "CardFields",
    "Gathered",
    "Problem",
    "ReadResult",
    "Reading",
    "Record",
    "RecordsWarning",
    "append",
    "counted_records",
    "counted_table",
    "from_data",
    "gather",
    "load",
    "published_table",
    "read",
    "reading",
    "request_of",
    "table_of",
    "to_data",
]


def __getattr__(name: str) -> object:
    if name in _HOMES:
        return getattr(importlib.import_module(_HOMES[name]), name)
    raise AttributeError(f"module 'favor.records' has no attribute {name!r}")


def __dir__() -> list[str]:
    return sorted(__all__)
