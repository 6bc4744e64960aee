"""Simulations of timm's networks on every built-in device, shipped as data: available without torch.

`benchmarks/make_timm_simulated.py` makes `timm_simulated.csv.gz`, with a line per network and image size and columns
for every device; a test compares it with the simulation.
"""

import csv
import gzip
import io
from collections.abc import Iterable, Mapping
from functools import cache
from importlib.resources import files

from favor.errors import RequestError
from favor.records.schema import Reading, Record, reading
from favor.records.timm_results import timm_card
from favor.simulation.devices import device
from favor.simulation.shipped import METHOD, conditions_on
from favor.zoo.cards import TIMM

FILE_NAME = "timm_simulated.csv.gz"
_EVERYWHERE = {"macs": ("",), "inference_memory": ("", "_low", "_high")}
_ON_A_DEVICE = {
    "throughput": ("", "_low", "_high"),
    "latency_p50": ("", "_low", "_high"),
    "best_batch_size": ("",),
    "max_batch_size": ("",),
}


def shipped_timm_records(name: str) -> tuple[Record, ...]:
    """The simulated inference of timm's networks on a built-in device, under the given name; empty if not built in.

    Networks that do not fit into the device's memory are left out.

    >>> shipped_timm_records("abacus")
    ()
    """
    try:
        gpu = device(name)
    except RequestError:
        return ()
    metrics = dict.fromkeys(_EVERYWHERE, "") | dict.fromkeys(_ON_A_DEVICE, f"@{gpu.name}")
    return tuple(
        Record(
            name=TIMM + row["architecture"],
            model=timm_card(row["architecture"]),
            task="inference",
            source="simulated",
            conditions=conditions_on(gpu, name, int(row["img_size"])),
            metrics={metric: _reading(metric, row, where) for metric, where in metrics.items()},
            provenance={"file": FILE_NAME},
            environment={"device_name": gpu.title},
        )
        for row in _rows()
        if row.get(f"throughput@{gpu.name}")
    )


@cache
def _rows() -> tuple[dict[str, str], ...]:
    packed = (files("favor.simulation") / FILE_NAME).read_bytes()
    return tuple(csv.DictReader(io.StringIO(gzip.decompress(packed).decode())))


def _reading(metric: str, row: Mapping[str, str], where: str) -> Reading:
    value = row[f"{metric}{where}"]
    low, high = (row.get(f"{metric}{end}{where}") for end in ("_low", "_high"))
    ends = (None, None) if low is None or high is None else (float(low), float(high))
    method = METHOD if metric != "macs" else "counted on the operator trace"
    return reading(metric, float(value), *ends, method=method)


def to_bytes(records: Iterable[Record]) -> bytes:
    """Simulated records as the shipped file holds them; a network that does not fit a device has no number there."""
    lines: dict[tuple[str, int], dict[str, str]] = {}
    for record in records:
        if record.status != "ok":
            continue
        architecture, img_size = record.name.removeprefix(TIMM), int(record.conditions["img_size"])
        line = lines.setdefault((architecture, img_size), {"architecture": architecture, "img_size": str(img_size)})
        for metric, ends in _EVERYWHERE.items():
            line |= _cells(metric, ends, "", record)
        for metric, ends in _ON_A_DEVICE.items():
            line |= _cells(metric, ends, f"@{record.conditions['device']}", record)
    columns = dict.fromkeys(column for line in lines.values() for column in line)
    text = io.StringIO()
    writer = csv.DictWriter(text, columns, lineterminator="\n")
    writer.writeheader()
    writer.writerows(lines[key] for key in sorted(lines))
    return gzip.compress(text.getvalue().encode(), mtime=0)


def _cells(metric: str, ends: Iterable[str], where: str, record: Record) -> dict[str, str]:
    reading = record.metrics[metric]
    values = {"": reading.value, "_low": reading.low, "_high": reading.high}
    return {f"{metric}{end}{where}": f"{values[end]:.4g}" for end in ends}
