"""Quantities as people write them ("1GiB", "50 ms", "30M", "82 %"), to and from the units that favor stores."""

import math
import re
from decimal import Decimal
from typing import Literal

from favor.errors import RequestError, shown

# A comma may only separate thousands: "1,5GiB" means one and a half to many people, and must not be read as fifteen.
_NUMBER_AND_UNIT = re.compile(
    r"\s*(?P<number>[+-]?(?:(?:\d{1,3}(?:,\d{3})+|\d[\d_]*)(?:\.\d*)?|\.\d+)(?:[eE][+-]?\d+)?)(?![\d,])\s*(?P<unit>\S.*?)?\s*"
)

LONGEST = 200  # characters: the pattern's time grows with the square of a text's length

_DECIMAL_BYTES = {"B": 1.0, "kB": 1e3, "KB": 1e3, "MB": 1e6, "GB": 1e9, "TB": 1e12}
_BINARY_BYTES = {"KiB": 2.0**10, "MiB": 2.0**20, "GiB": 2.0**30, "TiB": 2.0**40}
_COUNTS = {"": 1.0, "k": 1e3, "K": 1e3, "M": 1e6, "m": 1e6, "G": 1e9, "T": 1e12}

# For each stored unit: the suffixes that a number may have, and their factors. Where "" is missing, a bare number is
# refused, because a time of "50" could be seconds or milliseconds.
_WRITTEN: dict[str, dict[str, float]] = {
    "1": _COUNTS,
    "img": _COUNTS | {"img": 1.0, "images": 1.0},
    "img/s": {"": 1.0, "img/s": 1.0, "images/s": 1.0, "k": 1e3},
    "B": _DECIMAL_BYTES
    | _BINARY_BYTES
    # Lower case is common and clear; "Gb" and "Mb" mean bits and are refused.
    | {written.lower(): factor for written, factor in (_DECIMAL_BYTES | _BINARY_BYTES).items()},
    "s": {"s": 1.0, "sec": 1.0, "ms": 1e-3, "us": 1e-6, "µs": 1e-6, "μs": 1e-6, "min": 60.0, "h": 3600.0},
    "h": {"h": 1.0, "hours": 1.0, "min": 1 / 60, "s": 1 / 3600, "d": 24.0, "days": 24.0},
    "J": {"J": 1.0, "mJ": 1e-3, "kJ": 1e3, "Wh": 3600.0, "kWh": 3.6e6},
    "%": {"": 1.0, "%": 1.0},
    "pp": {"": 1.0, "pp": 1.0},
    "gCO2e": {"gCO2e": 1.0, "g": 1.0, "kgCO2e": 1e3, "kg": 1e3},
    "currency": {"": 1.0},
    "nat": {"": 1.0, "nat": 1.0},
}

_EXAMPLES = {
    "1": "30M or 30000000",
    "img": "64",
    "img/s": "500 img/s",
    "B": "1GiB or 800MB",
    "s": "50 ms or 0.05 s",
    "h": "12 h",
    "J": "0.5 J",
    "%": "82 or 82 %",
    "pp": "0.5",
    "gCO2e": "20 g",
    "currency": "12.50",
    "nat": "0.7",
}


def parse_quantity(text: str, unit: str, what: str = "value") -> float:
    """The number that a text stands for, in the stored `unit`; `what` names the option in the error.

    >>> parse_quantity("1GiB", "B"), parse_quantity("50 ms", "s"), parse_quantity("30M", "1")
    (1073741824.0, 0.05, 30000000.0)
    """
    refusal = f"{what}: cannot read {shown(text)}"
    match = _NUMBER_AND_UNIT.fullmatch(text) if len(text) <= LONGEST else None
    if match is None:
        raise RequestError(f"{refusal} as a number with a unit; write for example {_EXAMPLES[unit]}")
    written_unit = match["unit"] or ""
    factors = _WRITTEN[unit]
    if written_unit not in factors:
        why = f"{shown(written_unit)} is not a unit for it" if written_unit else "the unit is missing"
        raise RequestError(f"{refusal}: {why}; write for example {_EXAMPLES[unit]}")
    value = float(match["number"].replace(",", "").replace("_", "")) * factors[written_unit]
    _check(value, unit, written_unit, refusal)
    return value


def checked_number(value: float, unit: str, what: str) -> float:
    """A number in the stored `unit`, refused where the same number in a text would be; `what` names the option.

    >>> checked_number(82, "%", "min_accuracy")
    82.0
    """
    number = float(value)
    _check(number, unit, "", f"{what}: cannot read {shown(value)}")
    return number


def _check(value: float, unit: str, written_unit: str, refusal: str) -> None:
    """Refuse numbers below zero, above 100 %, and bare fractions, which would be read a hundred times too small."""
    if not math.isfinite(value) or value < 0:
        raise RequestError(f"{refusal}: it must be zero or more; write for example {_EXAMPLES[unit]}")
    if unit != "%":
        return
    if value > 100:
        raise RequestError(f"{refusal}: more than 100 %; write for example {_EXAMPLES['%']}")
    if 0 < value <= 1 and not written_unit:
        raise RequestError(
            f"{refusal}: this is a percentage; did you mean {value * 100:g} %? (write {value:g}% if not)"
        )


def format_quantity(value: float, unit: str) -> str:
    """A number for people, in a unit that fits its size.

    >>> format_quantity(1073741824, "B"), format_quantity(0.05, "s"), format_quantity(22059496, "1")
    ('1.00 GiB', '50.0 ms', '22.1M')
    """
    if unit == "1":
        return _scaled(value, ((1e12, "T"), (1e9, "G"), (1e6, "M"), (1e3, "k"))) or f"{value:g}"
    if unit == "B":
        return (
            _scaled(value, ((2.0**40, " TiB"), (2.0**30, " GiB"), (2.0**20, " MiB"), (2.0**10, " KiB")))
            or f"{value:g} B"
        )
    if unit == "s":
        return _scaled(value, ((1.0, " s"), (1e-3, " ms"), (1e-6, " µs"))) or f"{value:g} s"
    if unit == "%":
        return f"{value:.2f} %"
    if unit == "pp":
        return f"{value:+.2f} pp"
    return f"{format_number(value)} {unit}"


def format_number(value: float) -> str:
    """A number with three significant digits, or with its whole integer part.

    >>> format_number(0.01234), format_number(1891.3)
    ('0.0123', '1,891')
    """
    # From 999.5 on three digits would be written as 1e+03.
    return f"{value:,.0f}" if abs(value) >= 999.5 else f"{value:.3g}"


def format_difference(size: float, unit: str) -> str:
    """The size of a difference for people: percentages differ by points.

    >>> format_difference(9.21, "%"), format_difference(0.05, "s")
    ('9.21 points', '50.0 ms')
    """
    return f"{size:.2f} points" if unit == "%" else format_quantity(size, unit)


def option_text(value: float, unit: str) -> str:
    """The shortest text without spaces that `parse_quantity` reads as exactly this number, of equal ones the integer.

    >>> option_text(209715200, "B"), option_text(0.15, "s"), option_text(3e7, "1"), option_text(80.5, "%")
    ('200MiB', '150ms', '30M', '80.5')
    """
    # A bare percentage of at most one is refused: it could mean a hundred times as much.
    factors = {suffix: factor for suffix, factor in _WRITTEN[unit].items() if suffix or unit != "%" or value > 1}
    texts = [f"{value / factor:.12g}{suffix}" for suffix, factor in factors.items()]
    exact = [text for text in texts if parse_quantity(text, unit) == value]
    return min(exact, key=lambda text: (len(text), "." in text), default=f"{value:.17g}{next(iter(factors))}")


def format_span(seconds: float) -> str:
    """A duration for people.

    >>> format_span(42), format_span(250), format_span(9000)
    ('42 s', '4.2 min', '2.5 h')
    """
    if seconds < 90:
        return f"{seconds:.0f} s"
    return f"{seconds / 60:.1f} min" if seconds < 5400 else f"{seconds / 3600:.1f} h"


def format_outward(value: float, unit: str, outward: Literal[1, -1]) -> str:
    """Like `format_quantity`, but always rounded up (1) or down (-1), so that a limit of this size admits the value.

    >>> format_quantity(3_423_256, "1"), format_outward(3_423_256, "1", 1)
    ('3.42M', '3.43M')
    """
    text = format_quantity(value, unit)
    if (value - parse_quantity(text, unit)) * outward <= 0:
        return text
    digits = text[: len(text) - len(text.lstrip("0123456789,."))]
    number = Decimal(digits.replace(",", ""))
    moved = number + outward * Decimal(1).scaleb(int(number.as_tuple().exponent))
    return f"{moved:,}{text.removeprefix(digits)}"


def _scaled(value: float, scales: tuple[tuple[float, str], ...]) -> str | None:
    """The value in the largest scale that leaves a number of at least one, with three digits; None below all scales."""
    for factor, suffix in scales:
        scaled = value / factor
        if abs(scaled) >= 1:
            digits = 2 if abs(scaled) < 10 else 1 if abs(scaled) < 100 else 0
            return f"{scaled:,.{digits}f}{suffix}"
    return None
