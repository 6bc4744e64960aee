"""The uncertainty of simulated times: residuals of held-out families, and what a specification leaves open."""

from math import exp, hypot, log2
from statistics import NormalDist

from favor.simulation.calibration import Calibration
from favor.simulation.correction import Correction
from favor.simulation.devices import Device
from favor.simulation.devices import device as described
from favor.simulation.time_model import Estimate

Z = NormalDist().inv_cdf(0.975)
PRODUCTS_PER_DOUBLING, BYTES_PER_DOUBLING = 0.06, 0.15
"""The extra deviation for every doubling relative to the device of the fit: of the products per cycle of a
multiprocessor (faster tensor cores are harder to feed), and of the memory bandwidth per CUDA-core operation (work that
was hidden behind memory traffic becomes visible)."""


def spread(
    estimated: Estimate,
    device: Device,
    calibration: Calibration,
    correction: Correction,
    *,
    training: bool = False,
    compiled: bool = False,
) -> float:
    """The standard deviation of the logarithm of a simulated time.

    On devices that the fit has seen run like this it is that of held-out families, plus that of what no table of the
    fit shows. On other devices the rates that bound the time are uncertain too, each for its share of the time. With
    measurements of the device, the standard error of the correction takes the place of these.
    """
    residuals, reference = calibration.residuals, described(calibration.device)
    total = max(estimated.seconds, 1e-12)
    seen = calibration.has_seen(device.name, training=training, compiled=compiled)
    own = [residuals.compiled if compiled else residuals.within]
    if training:
        own += [residuals.training, 0.0 if seen else residuals.training_elsewhere]
    host = residuals.host * estimated.host / total
    if correction.measurements:
        return hypot(*own, host, correction.deviation)
    full = residuals.full * estimated.full / total
    if seen:
        return hypot(*own, host, full)
    denser = PRODUCTS_PER_DOUBLING * abs(log2(device.products_per_cycle / reference.products_per_cycle))
    wider = BYTES_PER_DOUBLING * max(0.0, log2(_bytes_per_operation(device) / _bytes_per_operation(reference)))
    return hypot(
        *own,
        host,
        full,
        hypot(residuals.matrix, device.sustained_deviation, denser) * estimated.matrix / total,
        hypot(residuals.lanes, wider) * estimated.lanes / total,
        hypot(residuals.memory, device.bandwidth_deviation, wider) * estimated.memory / total,
    )


def _bytes_per_operation(device: Device) -> float:
    return device.bandwidth / device.operations_per_second


def bounds(value: float, deviation: float) -> tuple[float, float]:
    """The 95 % interval around a value, given the standard deviation of its logarithm.

    >>> [round(bound, 2) for bound in bounds(1.0, 0.1)]
    [0.82, 1.22]
    """
    return value * exp(-Z * deviation), value * exp(Z * deviation)
