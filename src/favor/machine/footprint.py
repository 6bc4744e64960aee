"""Carbon and money: from energy, number of queries, the grid's carbon intensity and a price per hour."""

from favor.errors import RequestError

JOULES_PER_KWH = 3.6e6


def footprint(training: float, queries: float, inference: float, intensity: float) -> float:
    """The carbon of training a model once and running it `queries` times, in gCO2e.

    `training` is the energy of the whole training and `inference` that of one query, in joules; `intensity` is the
    grid's, in gCO2e per kWh: (training + queries x inference) x intensity, as in "The efficiency misnomer".

    >>> footprint(training=3.6e9, queries=1e6, inference=0.36, intensity=400)
    400040.0
    """
    for name, value in (
        ("training", training),
        ("queries", queries),
        ("inference", inference),
        ("intensity", intensity),
    ):
        if not 0 <= value < float("inf"):
            raise RequestError(f"footprint: {name} must be zero or more, not {value}")
    return carbon(training + queries * inference, intensity)


def carbon(energy: float, intensity: float) -> float:
    """The carbon in gCO2e of an energy in joules, on a grid with so many gCO2e per kWh.

    >>> carbon(3.6e6, 400)
    400.0
    """
    return energy / JOULES_PER_KWH * intensity


def money(seconds: float, price_per_hour: float) -> float:
    """The price of some time, in the currency of the price per hour.

    >>> money(1800, 2.5)
    1.25
    """
    return seconds / 3600 * price_per_hour
