"""Simulations of every model of the zoo on every built-in device, shipped as data: available without torch.

`benchmarks/make_simulated.py` makes `simulated.csv`; a test compares it with the simulation.
"""

import csv
import json
from collections.abc import Iterable, Mapping
from functools import cache
from importlib.resources import files

from favor.errors import RequestError
from favor.records.counted import counted_records
from favor.records.schema import Reading, Record, Scalar, reading
from favor.simulation.devices import Device, device, known_as

FILE_NAME = "simulated.csv"
WITH_INTERVAL = ("throughput", "latency_p50", "inference_memory")
WITHOUT_INTERVAL = ("best_batch_size", "max_batch_size")
COUNTED = "macs"
"""The column of the multiply-adds when the file was made: if they differ now, it is out of date."""
_OWN_CONDITIONS = ("img_size", "num_classes", "device", "precision", "compile", "batch", "fit_memory")


def is_called(name: str, other: str) -> bool:
    """Whether `called`, as a driver names a device, is the built-in device of this name.

    >>> is_called("a100", "NVIDIA A100-SXM4-40GB"), is_called("abacus", "abacus")
    (True, False)
    """
    try:
        return known_as(device(name), other)
    except RequestError:
        return False


def shipped_records(name: str) -> tuple[Record, ...]:
    """The simulated inference of the zoo on a built-in device, under the given name; empty if it is not built in.

    >>> shipped_records("abacus")
    ()
    """
    try:
        place = device(name)
    except RequestError:
        return ()
    cards = {record.name: record.model for record in counted_records()}
    return tuple(
        Record(
            name=row["name"],
            model=cards[row["name"]],
            task="inference",
            source="simulated",
            conditions=_conditions(row, place, name),
            metrics={metric: _reading(metric, row) for metric in (*WITH_INTERVAL, *WITHOUT_INTERVAL)},
            provenance={"file": FILE_NAME},
            environment={"device_name": place.title},
        )
        for row in _rows()
        if row["device"] == place.name
    )


def shipped_devices() -> tuple[str, ...]:
    """The built-in devices, by name."""
    return tuple(dict.fromkeys(row["device"] for row in _rows()))


@cache
def _rows() -> tuple[dict[str, str], ...]:
    text = (files("favor.simulation") / FILE_NAME).read_text(encoding="utf-8")
    return tuple(csv.DictReader(text.splitlines()))


def _conditions(row: Mapping[str, str], place: Device, name: str) -> dict[str, Scalar]:
    own: dict[str, Scalar] = {
        "img_size": int(row["img_size"]),
        "num_classes": 1000,
        "device": name,
        "precision": "amp-fp16",
        "compile": False,
        "batch": "best",
        "fit_memory": place.memory,
    }
    return own | (json.loads(row["operating_point"]) if row["operating_point"] else {})


def _reading(metric: str, row: Mapping[str, str]) -> Reading:
    low, high = (float(row[f"{metric}_{end}"]) if metric in WITH_INTERVAL else None for end in ("low", "high"))
    return reading(metric, float(row[metric]), low, high, method="simulated from the operator trace, amp, best batch")


def to_csv(records: Iterable[Record]) -> str:
    """Simulated records as the shipped file holds them; models that do not fit a device have no line."""
    counts = {record.name: record.metrics["macs"].value for record in counted_records()}
    columns = ["name", "device", "img_size", "operating_point", COUNTED]
    columns += [f"{metric}{end}" for metric in WITH_INTERVAL for end in ("", "_low", "_high")]
    columns += WITHOUT_INTERVAL
    lines = [",".join(columns)]
    for record in records:
        if record.status != "ok":
            continue
        point = {key: value for key, value in record.conditions.items() if key not in _OWN_CONDITIONS}
        quoted = '"' + json.dumps(point).replace('"', '""') + '"' if point else ""
        cells = [record.name, str(record.conditions["device"]), str(record.conditions["img_size"]), quoted]
        cells.append(f"{counts.get(record.name, 0):.0f}")
        for metric in WITH_INTERVAL:
            found = record.metrics[metric]
            cells += [f"{value:.6g}" for value in (found.value, found.low or 0.0, found.high or 0.0)]
        cells += [f"{record.metrics[metric].value:.0f}" for metric in WITHOUT_INTERVAL]
        lines.append(",".join(cells))
    return "\n".join(lines) + "\n"
