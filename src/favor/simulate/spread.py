"""How far a simulated time may be off, as an interval: what held-out families left, and what a specification leaves."""

from math import exp, hypot, log2
from statistics import NormalDist

from favor.simulate.calibration import Residuals
from favor.simulate.correction import Correction
from favor.simulate.devices import Device
from favor.simulate.time_model import Estimate

Z = NormalDist().inv_cdf(0.975)
PRODUCTS_PER_DOUBLING, BYTES_PER_DOUBLING = 0.06, 0.15
"""How much less sure a time is for every doubling, against the device of the fit, of the products that a
multiprocessor's cycle holds: the faster the matrix units, the more of the time goes to feeding them. And of the bytes
that memory has for every operation of the lanes: what hides behind memory there shows."""


def spread(
    found: Estimate, device: Device, reference: Device, residuals: Residuals, correction: Correction, training: bool
) -> float:
    """The standard deviation of the logarithm of a simulated time.

    On the device of the fit it is that of held-out families, and more for what no table of the fit shows. Elsewhere the
    rates that bound the time are uncertain too, each for its share of the time; measurements of the device replace that
    by what they leave open.
    """
    total = max(found.seconds, 1e-12)
    own = [residuals.within, residuals.training if training else 0.0]
    host = residuals.host * found.host / total
    if correction.measurements:
        return hypot(*own, host, correction.deviation)
    full = residuals.full * found.full / total
    if device.name == reference.name:
        return hypot(*own, host, full)
    denser = PRODUCTS_PER_DOUBLING * abs(log2(device.products_per_cycle / reference.products_per_cycle))
    wider = BYTES_PER_DOUBLING * max(0.0, log2(_bytes_per_operation(device) / _bytes_per_operation(reference)))
    return hypot(
        *own,
        host,
        full,
        hypot(residuals.matrix, device.sustained_deviation, denser) * found.matrix / total,
        hypot(residuals.lanes, wider) * found.lanes / total,
        hypot(residuals.memory, wider) * found.memory / total,
    )


def _bytes_per_operation(device: Device) -> float:
    return device.bandwidth / device.operations_per_second


def bounds(value: float, deviation: float) -> tuple[float, float]:
    """The 95 % interval around a value whose logarithm deviates so much.

    >>> [round(bound, 2) for bound in bounds(1.0, 0.1)]
    [0.82, 1.22]
    """
    return value * exp(-Z * deviation), value * exp(Z * deviation)
