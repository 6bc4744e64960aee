"""From records to columns: one row per record, before rows that belong together are joined."""

from collections.abc import Iterable, Mapping, Sequence
from itertools import chain
from operator import attrgetter
from typing import Any

import numpy as np
import pandas as pd
import pyarrow as pa

from favor.metrics import METRICS
from favor.records.rounds import ROUND_KEYS
from favor.records.schema import (
    BUDGET_COLUMN,
    IMAGES_COLUMN,
    MACHINE_COLUMNS,
    RECORD_COLUMNS,
    RUN_COLUMN,
    CardFields,
    Reading,
    Record,
    Scalar,
)
from favor.text import plural

# The suffixes of a metric's columns, and the field of its reading that each holds.
ENDS = {"": "value", "_low": "low", "_high": "high"}
# Numeric columns even if all values are missing.
_NUMBERS = frozenset({"year", *(name + end for name in METRICS for end in ENDS)})
_PROVENANCE = ("paper", "table", "section", "file", "row")
_UNKNOWN = Reading(np.nan, "")
_LONGEST_BUDGET = 1e9  # seconds; a record may say anything
# Earlier versions of favor wrote the memory of training under the name of that of inference.
_OF_TRAINING = {"memory_process": "train_memory_process", "memory_reserved": "train_memory_reserved"}


def frame_of(records: Sequence[Record]) -> pd.DataFrame:
    """One row per record: the record's columns, `environment.*` of the machine, conditions, and metrics."""
    cards = [record.model for record in records]
    values: dict[str, Iterable[Any]] = {
        name: map(attrgetter(name), cards if name in CardFields.__struct_fields__ else records)
        for name in RECORD_COLUMNS
    }
    values["provenance"] = [provenance_text(record.provenance) for record in records]
    values["flags"] = [_text(record.environment.get("flags") or None) for record in records]
    if any("stretch" in record.environment for record in records):
        values["stretch"] = [_text(record.environment.get("stretch")) for record in records]
        for metric in ROUND_KEYS:
            values[f"{metric}_rounds"] = [_quiet_rounds(record, metric) for record in records]
    if any("evaluation_images" in record.environment for record in records):
        values[IMAGES_COLUMN] = [_count(record.environment.get("evaluation_images")) for record in records]
    if any("budget" in record.environment for record in records):
        values[BUDGET_COLUMN] = [_seconds(record.environment.get("budget")) for record in records]
    if any("run" in record.environment for record in records):
        values[RUN_COLUMN] = [_text(record.environment.get("run")) for record in records]
    for column, key in MACHINE_COLUMNS.items():
        values[column] = [record.environment.get(key) for record in records]
    for key in dict.fromkeys(chain.from_iterable(record.conditions for record in records)):
        values[key] = [record.conditions.get(key) for record in records]
    metrics = [_metrics(record) for record in records]
    for name in dict.fromkeys(chain.from_iterable(metrics)):
        readings = [of_record.get(name, _UNKNOWN) for of_record in metrics]
        values |= {name + end: map(attrgetter(part), readings) for end, part in ENDS.items()}
    return pd.DataFrame({name: _column(name, list(column)) for name, column in values.items()}, copy=False)


def _metrics(record: Record) -> Mapping[str, Reading]:
    if record.task not in ("training", "accuracy") or record.metrics.keys().isdisjoint(_OF_TRAINING):
        return record.metrics
    return {_OF_TRAINING.get(name, name): found for name, found in record.metrics.items()}


def _column(name: str, values: list[Any]) -> Any:
    """Values as the simplest column: strings, integers if none is missing, floats, or objects if types differ."""
    types = set(map(type, values))
    if name in _NUMBERS and types != {int}:
        return np.array(values, dtype=np.float64)
    if types <= {str, type(None)}:
        return pd.array(pa.chunked_array([pa.array(values, pa.large_string())]), dtype="str")
    if types == {bool}:
        return np.array(values)
    if types == {int} and min(values) >= -(2**63) and max(values) < 2**63:
        return np.array(values, dtype=np.int64)
    if types <= {int, float, type(None)}:
        return np.array(values, dtype=np.float64)
    return np.array(values, dtype=object)


def _quiet_rounds(record: Record, metric: str) -> str | None:
    """A metric in each round, as text from the record; nan for rounds in which other programs ran."""
    text = _text(record.environment.get(ROUND_KEYS[metric]))
    busy = str(record.environment.get("busy_rounds", "")).split()
    rounds = enumerate(text.split() if text else (), start=1)
    return " ".join("nan" if str(number) in busy else value for number, value in rounds) or None


def _count(value: Scalar | None) -> float | None:
    return float(value) if type(value) is int and value > 0 else None


def _seconds(value: Scalar | None) -> float | None:
    if isinstance(value, bool) or not isinstance(value, int | float):
        return None
    return float(value) if 0 < value < _LONGEST_BUDGET else None


def _text(value: Scalar | None) -> str | None:
    return None if value is None else str(value)


def provenance_text(provenance: Mapping[str, Scalar]) -> str | None:
    """The source of a number in short; None for the user's own measurements.

    >>> provenance_text({"paper": "the_efficiency_misnomer", "table": "1", "row": "ViT-B/8"})
    'the_efficiency_misnomer, Table 1, ViT-B/8'
    """
    if not provenance:
        return None
    line = provenance.get("line")
    ordered = sorted(
        provenance.keys() - {"line"},
        key=lambda key: (_PROVENANCE.index(key) if key in _PROVENANCE else len(_PROVENANCE), key),
    )
    text = ", ".join(f"Table {provenance[key]}" if key == "table" else str(provenance[key]) for key in ordered)
    return text if line is None else f"{text}:{line}"


def machine_text(host: Any, device_name: Any, torch: Any, threads: Any) -> str | None:
    """A short description of a machine, with all that distinguishes measurements; None if nothing is known about it.

    >>> machine_text("lab-3", "a processor", "2.15.0", 2)
    'a processor, host lab-3, 2 threads, torch 2.15.0'
    >>> machine_text("lab-3", "a processor", None, 1.0)
    'a processor, host lab-3, 1 thread'
    """
    threads = None if pd.isna(threads) else plural(_whole(threads), "thread")
    parts = ((device_name, "{}"), (host, "host {}"), (threads, "{}"), (torch, "torch {}"))
    return ", ".join(text.format(_whole(value)) for value, text in parts if not pd.isna(value)) or None


def _whole(value: Any) -> Any:
    # A column of whole numbers with gaps holds floats.
    return int(value) if isinstance(value, float) and value.is_integer() else value
