"""Settings of a model: how a name carries them, and which values the annotations of a builder allow.

>>> def tome(size: Size, r: NotNegative = 8): ...  # doctest: +SKIP
"""

import ast
import math
import numbers
import types
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Annotated, Any, Literal, Union, get_args, get_origin

from favor.errors import RequestError, shown

LONGEST_NAME = 500
_WORDS = {"true": True, "false": False, "none": None}


@dataclass(frozen=True)
class AtLeast:
    """The smallest value of a whole number, as a part of its annotation."""

    least: int


Positive = Annotated[int, AtLeast(1)]
NotNegative = Annotated[int, AtLeast(0)]
FourPositive = tuple[Positive, Positive, Positive, Positive]
"""One number per stage of a hierarchy of four."""


def parse_name(text: str) -> tuple[str, dict[str, object]]:
    """A model's name without its settings, and the settings.

    Values are numbers, true, false, none, words, texts in quotes, and lists of them.

    >>> parse_name("linformer_s16(k=256, qkv_bias=false)")
    ('linformer_s16', {'k': 256, 'qkv_bias': False})
    """
    name, bracket, inside = text.strip().partition("(")
    if not bracket:
        return text, {}
    wrong = f"cannot read the settings in {shown(text)}; write NAME(KEY=VALUE,...), such as linformer_s16(k=256)"
    if len(text) > LONGEST_NAME or not inside.endswith(")"):
        raise RequestError(wrong)
    try:
        call = ast.parse(f"name({inside}", mode="eval").body
        if not isinstance(call, ast.Call) or not isinstance(call.func, ast.Name) or call.args:
            raise RequestError(wrong)
        settings = [(keyword.arg, _value(keyword.value)) for keyword in call.keywords]
    except (SyntaxError, ValueError, RecursionError, MemoryError) as error:
        raise RequestError(wrong) from error
    found = {key: value for key, value in settings if key is not None}
    if len(found) < len(settings):
        raise RequestError(f"{wrong}; each key once")
    return name.strip(), found


def spelled(name: str, settings: Mapping[str, object]) -> str:
    """A name with settings, as every command and record writes it: keys in order, no spaces.

    >>> spelled("evit_s16", {"shrink": (0.0, 0.5), "keep": 1.0})
    'evit_s16(keep=1,shrink=(0,0.5))'
    """
    listed = ",".join(f"{key}={_spelled_value(value)}" for key, value in sorted(settings.items()))
    return f"{name}({listed})" if settings else name


def respelled(text: str) -> str:
    """A name or pattern with its settings spelled as records spell them.

    >>> respelled("evit_*( shrink=[0, .5], keep = 1.0 )")
    'evit_*(keep=1,shrink=(0,0.5))'
    """
    return spelled(*parse_name(text))


def _value(node: ast.expr) -> object:
    if isinstance(node, ast.Name):
        return _WORDS.get(node.id.lower(), node.id)
    if isinstance(node, ast.List | ast.Tuple):
        return tuple(map(_value, node.elts))
    value = ast.literal_eval(node)
    if not isinstance(value, bool | int | float | str | None) or (
        isinstance(value, float) and not math.isfinite(value)
    ):
        raise ValueError(f"{value!r} is no value of a setting")
    return value


def _spelled_value(value: object) -> str:
    if isinstance(value, tuple):
        return f"({','.join(map(_spelled_value, value))}{',' if len(value) == 1 else ''})"
    if isinstance(value, float) and value.is_integer():
        return str(int(value))
    if isinstance(value, str) and value.isidentifier() and value.lower() not in _WORDS:
        return value
    return repr(value)


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
