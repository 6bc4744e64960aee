"""Local correction: one factor for a device, from measurements on it."""

from collections.abc import Iterable, Sequence
from dataclasses import dataclass
from math import exp, log, sqrt
from statistics import median

from favor.machine.precision import resolve_precision
from favor.records.schema import EAGER, Record
from favor.simulation.devices import Device, known_as

LEAST = 5
"""Measurements that a correction needs: fewer cannot separate the device's deviation from the models'."""
SIMULATED_LAYOUT = "nchw"
_MEDIAN_OF_NORMAL = 1.2533  # standard error of a median over that of a mean
_MAD_TO_DEVIATION = 1.4826


@dataclass(frozen=True)
class Correction:
    """A factor on simulated times; `deviation` is the standard error of its logarithm."""

    factor: float = 1.0
    measurements: int = 0
    deviation: float = 0.0


NO_CORRECTION = Correction()


def correction_from(ratios: Sequence[float]) -> Correction:
    """The correction from ratios of measured to simulated times; none if there are too few.

    >>> correction_from([1.1, 1.2, 1.2, 1.2, 1.3]).factor
    1.2
    >>> correction_from([1.1, 1.2]).measurements
    0
    """
    if len(ratios) < LEAST:
        return NO_CORRECTION
    logs = [log(ratio) for ratio in ratios]
    middle = median(logs)
    deviation = _MAD_TO_DEVIATION * median(abs(value - middle) for value in logs)
    return Correction(round(exp(middle), 12), len(ratios), _MEDIAN_OF_NORMAL * deviation / sqrt(len(ratios)))


def measurements_on(device: Device, records: Iterable[Record], precision: str, runtime: str = "eager") -> list[Record]:
    """The newest throughput record of every model on a device, at a precision, in a runtime and a known batch size."""
    newest: dict[tuple[str, object], Record] = {}
    for record in records:
        if (
            record.status == "ok"
            and record.source in ("measured", "imported")
            and record.task == "inference"
            and "throughput" in record.metrics
            and batch_size_of(record) is not None
            and record.conditions.get("runtime", EAGER) == runtime
            and record.conditions.get("layout", SIMULATED_LAYOUT) == SIMULATED_LAYOUT
            and record.conditions.get("precision") == resolve_precision(precision, "cuda")
            and _is_on(device, record)
        ):
            newest[record.name, record.conditions.get("img_size")] = record
    return list(newest.values())


def batch_size_of(record: Record) -> int | None:
    """The batch size of a throughput: the one given, or the best one found."""
    given = record.conditions.get("batch_size")
    if isinstance(given, int | float):
        return int(given)
    best = record.metrics.get("best_batch_size")
    return None if best is None else int(best.value)


def _is_on(device: Device, record: Record) -> bool:
    names = (record.conditions.get("device"), record.environment.get("device_name"))
    return any(isinstance(name, str) and known_as(device, name) for name in names)
