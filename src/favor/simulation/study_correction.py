"""Corrections from the measurements of a study on the simulated devices."""

from collections.abc import Iterable, Sequence

from favor.errors import FavorError
from favor.records.schema import Record
from favor.simulation.calibration import Calibration
from favor.simulation.correction import (
    LEAST,
    NO_CORRECTION,
    Correction,
    batch_size_of,
    correction_from,
    measurements_on,
)
from favor.simulation.devices import Device
from favor.simulation.networks import network
from favor.simulation.simulation import OnDevice, Passes

MOST = 20
"""The most measurements that are used: each costs a trace, and more hardly improve one factor."""


def local_corrections(
    records: Iterable[Record],
    devices: Sequence[Device],
    precision: str,
    calibration: Calibration,
    runtime: str = "eager",
) -> dict[str, Correction]:
    """The correction of every device that has enough measurements in a runtime."""
    listed = list(records)
    corrections = {}
    for device in devices:
        measured = measurements_on(device, listed, precision, runtime)
        if len(measured) < LEAST:
            continue
        ratios = [_ratio(record, device, calibration, runtime) for record in _spread_out(measured)]
        corrections[device.name] = correction_from([ratio for ratio in ratios if ratio is not None])
    return corrections


def _spread_out(records: Sequence[Record]) -> list[Record]:
    """A selection in even steps from the slowest to the fastest."""
    ordered = sorted(records, key=lambda record: record.metrics["throughput"].value)
    if len(ordered) <= MOST:
        return ordered
    return [ordered[round(step * (len(ordered) - 1) / (MOST - 1))] for step in range(MOST)]


def _ratio(record: Record, device: Device, calibration: Calibration, runtime: str) -> float | None:
    """Measured over simulated time; None if the model is unknown (its plugin is not loaded) or cannot be traced."""
    batch_size, img_size = batch_size_of(record), record.conditions.get("img_size")
    if batch_size is None:
        return None
    side = int(img_size) if isinstance(img_size, int | float) else None
    classes = int(record.conditions.get("num_classes", 1000))
    attention = str(record.conditions.get("attention", "fused"))
    try:
        traced = network(record.name, "inference", str(record.conditions["precision"]), side, classes, attention)
        passes = Passes(traced, "lamb", compiled=runtime == "compile")
        simulated = OnDevice(passes, device, calibration, NO_CORRECTION).seconds(batch_size)
    except FavorError:
        return None
    return batch_size / record.metrics["throughput"].value / simulated
