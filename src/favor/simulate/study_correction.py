"""Corrections from a study: what was measured on the devices that are simulated, against what is simulated for it."""

from collections.abc import Iterable, Sequence

from favor.errors import FavorError
from favor.records.schema import Record
from favor.simulate.calibration import Calibration
from favor.simulate.correction import LEAST, Correction, batch_size_of, correction_from, measurements_on
from favor.simulate.devices import Device
from favor.simulate.kernels import kernels_of
from favor.simulate.networks import network
from favor.simulate.time_model import estimate

MOST = 20
"""Measurements that are used: each costs a trace, and more make one factor hardly surer."""


def local_corrections(
    records: Iterable[Record], devices: Sequence[Device], precision: str, calibration: Calibration
) -> dict[str, Correction]:
    """The correction of each device that the records have enough measurements of."""
    known = list(records)
    found = {}
    for place in devices:
        measured = measurements_on(place, known, precision)
        if len(measured) < LEAST:
            continue
        ratios = [_ratio(record, place, calibration) for record in _spread_out(measured)]
        found[place.name] = correction_from([ratio for ratio in ratios if ratio is not None])
    return found


def _spread_out(records: Sequence[Record]) -> list[Record]:
    """As many as are used, from the slowest to the fastest in even steps."""
    ordered = sorted(records, key=lambda record: record.metrics["throughput"].value)
    if len(ordered) <= MOST:
        return ordered
    return [ordered[round(place * (len(ordered) - 1) / (MOST - 1))] for place in range(MOST)]


def _ratio(record: Record, place: Device, calibration: Calibration) -> float | None:
    """Measured over simulated time; None where the model is not known here, as one of a plugin, or cannot be traced."""
    batch_size, img_size = batch_size_of(record), record.conditions.get("img_size")
    if batch_size is None:
        return None
    side = int(img_size) if isinstance(img_size, int | float) else None
    classes = int(record.conditions.get("num_classes", 1000))
    try:
        subject = network(record.name, "inference", str(record.conditions["precision"]), side, classes)
        kernels = kernels_of(subject.batches().trace_at(batch_size).steps)
    except FavorError:
        return None
    return batch_size / record.metrics["throughput"].value / estimate(place, kernels, calibration).seconds
