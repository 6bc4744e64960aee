"""Many lines at once: a chunk of a file becomes columns in one step, and is checked column by column.

`schema.check` says what is wrong with one line. Here the same rules are put to thousands of lines at a time, many
times faster, and the answer is only yes or no: whatever is out of the ordinary is a no, and is left to the check of
single lines. A test holds the two to the same tables.
"""

from typing import Any

import pandas as pd
import pyarrow as pa
import pyarrow.compute as pc
from pyarrow import json as arrow_json

from favor.metrics import METRICS
from favor.records import schema
from favor.records.frame import ENDS, provenance_text
from favor.records.store import BYTE_ORDER_MARK, Chunk

_OBJECTS = ("model", "conditions", "environment", "provenance", "metrics")
_TEXTS = ("request", "time", "name", "task", "source", "status", "reason")
_CARD = [(key, pa.int64() if key == "year" else pa.string()) for key in schema.CardFields.__slots__]
# Texts are declared, or one that looks like a time would be read as a time.
_DECLARED = pa.schema([("schema", pa.int64()), ("model", pa.struct(_CARD)), *((key, pa.string()) for key in _TEXTS)])
_TIME = r"^\d{4}-\d\d-\d\dT\d\d:\d\d:\d\d(\.\d+)?Z$"
_CHOICES = {"task": schema.TASKS, "source": schema.SOURCES, "status": schema.STATUSES}
_NUMBERS = {pa.int64(), pa.float64()}
_SCALARS = {pa.string(), pa.bool_(), pa.null(), *_NUMBERS}

# The parser calls itself for each bracket, and some ten thousand deep it takes the whole process down.
_MOST_BRACKETS = 1000

_Columns = dict[str, Any]


def frame_of_chunk(chunk: Chunk) -> pd.DataFrame | None:
    """The rows of a chunk, as `frame_of` gives them; None if one of them may not be a record."""
    if chunk.data.startswith(BYTE_ORDER_MARK) or _may_be_deep(chunk.data):
        return None
    try:
        table = arrow_json.read_json(
            pa.BufferReader(chunk.data),
            read_options=arrow_json.ReadOptions(use_threads=False, block_size=len(chunk.data)),
            parse_options=arrow_json.ParseOptions(explicit_schema=_DECLARED),
        )
        table.validate(full=True)
    except pa.ArrowInvalid:
        return None
    record = {name: table[name].combine_chunks() for name in table.column_names}
    if table.num_rows != chunk.lines or not _are_records(record):
        return None
    card, conditions, environment, provenance, metrics = (_inside(record.get(key)) for key in _OBJECTS)
    if not (_are_cards(card) and all(map(_are_scalars, (conditions, environment, provenance)))):
        return None
    # Among floats a whole number loses how it was written, which the text of a provenance shows.
    if any(column.type == pa.float64() for column in provenance.values()):
        return None
    if not schema.TAKEN_COLUMNS.isdisjoint(conditions) or not all(map(_are_readings, metrics, metrics.values())):
        return None
    unknown = pa.nulls(table.num_rows)
    columns = {name: record[name] for name in _TEXTS if name != "request"} | card | conditions
    columns["provenance"] = _texts_of(provenance, table.num_rows)
    columns |= {column: environment.get(key, unknown) for column, key in schema.MACHINE_COLUMNS.items()}
    for name, readings in metrics.items():
        inside = _inside(readings)
        columns |= {name + end: inside.get(key, unknown).cast(pa.float64()) for end, key in ENDS.items()}
    return pd.DataFrame({name: _to_pandas(values) for name, values in columns.items()}, copy=False)


def _may_be_deep(data: bytes) -> bool:
    long_lines = (line for line in data.split(b"\n") if len(line) > _MOST_BRACKETS)
    return any(line.count(b"[") + line.count(b"{") > _MOST_BRACKETS for line in long_lines)


def _inside(objects: Any) -> _Columns:
    """The columns inside of a column of objects; what is inside of a null is null."""
    if objects is None or pa.types.is_null(objects.type):
        return {}
    return dict(zip((field.name for field in objects.type), objects.flatten(), strict=True))


def _are_objects(column: Any) -> bool:
    return column is None or pa.types.is_struct(column.type) or pa.types.is_null(column.type)


def _are_all(values: Any, choices: tuple[str | int | None, ...]) -> bool:
    return set(choices).issuperset(pc.unique(values).to_pylist())


def _are_records(record: _Columns) -> bool:
    return (
        set(schema.RECORD_KEYS).issuperset(record)
        and all(record[key].null_count == 0 for key in schema.REQUIRED_KEYS)
        and all(_are_objects(record.get(key)) for key in _OBJECTS)
        and _are_all(record["schema"], (schema.SCHEMA,))
        and all(_are_all(record[key], choices) for key, choices in _CHOICES.items())
        and not any("" in pc.unique(record[key]).to_pylist() for key in ("name", "request"))
        and bool(pc.all(pc.match_substring_regex(record["time"], _TIME)).as_py() is not False)
        and pc.equal(record["status"], "ok").equals(record["reason"].is_null())
    )


def _are_cards(card: _Columns) -> bool:
    if card.keys() != set(schema.CardFields.__slots__):
        return False
    years = pc.min_max(card["year"]).as_py()
    if years["min"] is not None and not schema.FIRST_YEAR <= years["min"] <= years["max"] <= schema.LAST_YEAR:
        return False
    classes = pa.table([card["where"], card["how"]], ["where", "how"]).group_by(["where", "how"]).aggregate([])
    return set(schema.CARD_CLASSES).issuperset(
        zip(*(classes[key].to_pylist() for key in ("where", "how")), strict=True)
    )


def _are_scalars(columns: _Columns) -> bool:
    return all(
        column.type in _SCALARS and (column.type != pa.float64() or _are_finite(column)) for column in columns.values()
    )


def _are_finite(numbers: Any) -> bool:
    # A number too large for a float comes as an infinite one.
    return pc.all(pc.is_finite(numbers)).as_py() is not False


def _are_readings(name: str, readings: Any) -> bool:
    if name not in METRICS or not _are_objects(readings):
        return False
    inside = _inside(readings)
    if not inside:
        return readings.null_count == len(readings)
    value, low, high = (inside.get(key, pa.nulls(len(readings))) for key in ("value", "low", "high"))
    unit, method = inside.get("unit", pa.nulls(len(readings))), inside.get("method", pa.nulls(len(readings)))
    return (
        set(schema.Reading.__slots__).issuperset(inside)
        and value.null_count == unit.null_count == readings.null_count
        and _are_all(unit, (METRICS[name].unit, None))
        and method.type in (pa.string(), pa.null())
        and value.type in _NUMBERS
        and low.type in {*_NUMBERS, pa.null()}
        and high.type in {*_NUMBERS, pa.null()}
        and all(_are_finite(end.cast(pa.float64())) for end in (value, low, high))
        and all(pc.all(pc.greater_equal(end.cast(pa.float64()), 0.0)).as_py() is not False for end in (value, low))
        and pc.all(pc.less_equal(low.cast(pa.float64()), value)).as_py() is not False
        and pc.all(pc.less_equal(value, high.cast(pa.float64()))).as_py() is not False
    )


def _texts_of(provenance: _Columns, size: int) -> Any:
    if not provenance:
        return pa.nulls(size, pa.string())
    columns = (column.to_pylist() for column in provenance.values())
    known = (dict(zip(provenance, values, strict=True)) for values in zip(*columns, strict=True))
    return pa.array([provenance_text(values) for values in known], pa.string())


def _to_pandas(column: Any) -> Any:
    if column.type in (pa.string(), pa.null()):
        return pd.array(pa.chunked_array([column.cast(pa.large_string())]), dtype="str")
    return column.to_pandas()
