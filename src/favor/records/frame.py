"""From lines to columns: one row per record, before rows that belong together are joined."""

from collections.abc import Iterable, Mapping
from typing import Any

import numpy as np
import pandas as pd

from favor.metrics import METRICS
from favor.records.schema import MACHINE_COLUMNS, RECORD_COLUMNS

# A metric's columns, and the part of its reading that is in each.
ENDS = {"": "value", "_low": "low", "_high": "high"}
# Numbers even where all are unknown, and no value tells.
_NUMBERS = frozenset({"year", *(name + end for name in METRICS for end in ("", "_low", "_high"))})
_PROVENANCE = ("paper", "table", "section", "file", "row")


def frame_of(lines: Iterable[Mapping[str, Any]]) -> pd.DataFrame:
    """One row per checked line: the record's columns, `environment.*` of the machine, conditions, and metrics."""
    cells = [_cells(data) for data in lines]
    names = dict.fromkeys((*RECORD_COLUMNS, *MACHINE_COLUMNS, *(name for row in cells for name in row)))
    return pd.DataFrame({name: _column(name, [row.get(name) for row in cells]) for name in names}, copy=False)


def _column(name: str, values: list[Any]) -> Any:
    """Values as the simplest column: texts, whole numbers where none is missing, numbers, or objects if they differ."""
    types = set(map(type, values))
    if name in _NUMBERS and types != {int}:
        return np.array(values, dtype=np.float64)
    if types <= {str, type(None)}:
        return pd.array(values, dtype="str")
    if types == {bool}:
        return np.array(values)
    if types == {int} and min(values) >= -(2**63) and max(values) < 2**63:
        return np.array(values, dtype=np.int64)
    if types <= {int, float, type(None)}:
        return np.array(values, dtype=np.float64)
    return np.array(values, dtype=object)


def provenance_text(provenance: Mapping[str, str | int | None]) -> str | None:
    """Where a number comes from, in short; None for what was measured here.

    >>> provenance_text({"paper": "the_efficiency_misnomer", "table": "1", "row": "ViT-B/8"})
    'the_efficiency_misnomer, Table 1, ViT-B/8'
    """
    known = {key: value for key, value in provenance.items() if value is not None}
    if not known:
        return None
    line = known.pop("line", None)
    ordered = sorted(known, key=lambda key: (_PROVENANCE.index(key) if key in _PROVENANCE else len(_PROVENANCE), key))
    text = ", ".join(f"Table {known[key]}" if key == "table" else str(known[key]) for key in ordered)
    return text if line is None else f"{text}:{line}"


def machine_text(host: Any, device_name: Any, torch: Any, threads: Any) -> str | None:
    """A machine in short, with all that tells measurements apart; None where nothing is known of it.

    >>> machine_text("lab-3", "a processor", "2.15.0", 2)
    'a processor, host lab-3, 2 threads, torch 2.15.0'
    """
    told = ((device_name, "{}"), (host, "host {}"), (threads, "{} threads"), (torch, "torch {}"))
    return ", ".join(text.format(_whole(value)) for value, text in told if not pd.isna(value)) or None


def _whole(value: Any) -> Any:
    # A column of whole numbers with gaps holds floats.
    return int(value) if isinstance(value, float) and value.is_integer() else value


def _cells(data: Mapping[str, Any]) -> dict[str, Any]:
    model, environment = data["model"], data.get("environment") or {}
    row = {name: model.get(name, data.get(name)) for name in RECORD_COLUMNS}
    row["provenance"] = provenance_text(data.get("provenance") or {})
    row |= {column: environment.get(key) for column, key in MACHINE_COLUMNS.items()}
    row |= data.get("conditions") or {}
    for name, reading in (data.get("metrics") or {}).items():
        if reading is not None:
            row |= {name + end: _float(reading.get(key)) for end, key in ENDS.items()}
    return row


def _float(number: float | None) -> float | None:
    return None if number is None else float(number)
