"""What a setting of a builder may be: its annotation says it, and a value that does not fit is refused before building.

>>> def tome(size: Size, r: NotNegative = 8): ...  # doctest: +SKIP
"""

import math
import numbers
import types
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Annotated, Any, Literal, Union, get_args, get_origin

from favor.errors import RequestError


@dataclass(frozen=True)
class AtLeast:
    """The smallest value of a whole number, as a part of its annotation."""

    least: int


Positive = Annotated[int, AtLeast(1)]
NotNegative = Annotated[int, AtLeast(0)]
FourPositive = tuple[Positive, Positive, Positive, Positive]
"""One number per stage of a hierarchy of four."""


def check_setting(name: str, value: object, wanted: Any) -> None:
    """Refuse a value that its annotation does not allow; annotations that say nothing of values allow all."""
    if not _fits(value, wanted):
        raise RequestError(f"{name} is {_described(wanted)}, not {value!r}")


def _fits(value: object, wanted: Any) -> bool:
    kind, inner = get_origin(wanted), get_args(wanted)
    if kind is Annotated:
        return _fits(value, inner[0]) and all(_reaches(value, bound) for bound in inner[1:])
    if kind in (Union, types.UnionType):
        return any(_fits(value, choice) for choice in inner)
    if kind is Literal:
        return value in inner
    if kind is tuple and inner[-1] is not Ellipsis:
        items = _items(value)
        return items is not None and len(items) == len(inner) and all(map(_fits, items, inner))
    if kind in (tuple, Sequence):
        items = _items(value)
        return items is not None and all(_fits(item, inner[0]) for item in items)
    if kind is Mapping:
        return isinstance(value, Mapping)
    return _is_a(value, wanted)


def _is_a(value: object, wanted: Any) -> bool:
    """Whether a value is of a class; numpy's numbers are numbers, true and false are none."""
    if wanted is int:
        return isinstance(value, numbers.Integral) and not isinstance(value, bool)
    if wanted is float:
        return isinstance(value, numbers.Real) and not isinstance(value, bool) and math.isfinite(value)
    return not isinstance(wanted, type) or isinstance(value, wanted)


def _items(value: object) -> list[object] | None:
    """The values of a sequence; a text is one value."""
    return list(value) if isinstance(value, Sequence) and not isinstance(value, str) else None


def _reaches(value: Any, bound: object) -> bool:
    return not isinstance(bound, AtLeast) or value >= bound.least


def _described(wanted: Any) -> str:
    """The annotation in words.

    >>> _described(tuple[Positive, Positive])
    '2 values, each a whole number of 1 or more'
    """
    kind, inner = get_origin(wanted), get_args(wanted)
    if kind is Annotated:
        bounds = [f" of {bound.least} or more" for bound in inner[1:] if isinstance(bound, AtLeast)]
        return _described(inner[0]) + "".join(bounds)
    if kind in (Union, types.UnionType):
        return " or ".join(map(_described, inner))
    if kind is Literal:
        return "one of " + ", ".join(map(repr, inner))
    if kind is tuple and inner[-1] is not Ellipsis:
        each = ", ".join(dict.fromkeys(map(_described, inner)))
        return f"{len(inner)} values, each {each}"
    if kind in (tuple, Sequence):
        return f"a sequence, each value {_described(inner[0])}"
    words = {int: "a whole number", float: "a number", bool: "true or false", str: "a text", type(None): "None"}
    return words.get(wanted) or ("a mapping" if kind is Mapping else f"a {getattr(wanted, '__name__', wanted)}")
