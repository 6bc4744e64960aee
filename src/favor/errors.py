"""Errors that a user can act on: one line that says what, where, why, and what to do."""

import difflib
from collections.abc import Callable, Iterable, Iterator, Sequence
from typing import ParamSpec, TypeVar

from favor.text import cut_to_line


class FavorError(Exception):
    """An error whose message is meant for the user; any other exception is a bug in favor."""


class RequestError(FavorError, ValueError):
    """The request was wrong and nothing was done; the message says what to do instead. Exit code 2."""


class MissingHereError(RequestError):
    """The request is right, but this machine lacks what it needs; a dry run only mentions it."""


class WorkError(FavorError, RuntimeError):
    """The request was valid but the work failed. Exit code 1."""


Arguments = ParamSpec("Arguments")
Result = TypeVar("Result")


def if_here(
    missing_here: list[str] | None,
    function: Callable[Arguments, Result],
    *arguments: Arguments.args,
    **named: Arguments.kwargs,
) -> Result | None:
    """Call a function. A dry run gives a list: what this machine lacks is appended to it, and the result is None."""
    try:
        return function(*arguments, **named)
    except MissingHereError as error:
        if missing_here is None:
            raise
        missing_here.append(str(error))
        return None


Step = str | int
"""A key or a list index: one step of the path to a part of a file."""

SHOWN = 200
"""The most characters of foreign input that an error repeats."""


def shown(value: object) -> str:
    """A foreign value as an error shows it: on one line, quoted, and truncated if it is long.

    >>> shown("a\\nb"), len(shown("x" * 1000))
    ("'a\\\\nb'", 200)
    """
    text = ""
    for piece in _pieces(value):
        text += piece
        if len(text) > SHOWN:
            return f"{text[: SHOWN - 3]}..."
    return text


def _pieces(value: object, depth: int = 0) -> Iterator[str]:
    """The repr of a value, made only as far as it is read: that of a pickle of a hundred bytes may have terabytes."""
    if isinstance(value, str | bytes):
        yield repr(value[: SHOWN + 1])
    elif type(value) is int and value.bit_length() > 8 * SHOWN:  # Python refuses to write integers of 4,300 digits
        yield f"an integer of {value.bit_length():,} bits"
    elif type(value) not in _BRACKETS:
        yield repr(value)
    elif depth == _DEEPEST:
        yield "..."
    else:
        left, right = _BRACKETS[type(value)]
        yield left
        for index, part in enumerate(value.items() if isinstance(value, dict) else value):  # type: ignore[arg-type, var-annotated]
            yield ", " if index else ""
            if isinstance(value, dict):
                yield from _pieces(part[0], depth + 1)
                yield ": "
                part = part[1]
            yield from _pieces(part, depth + 1)
        yield ",)" if isinstance(value, tuple) and len(value) == 1 else right


_BRACKETS: dict[type, tuple[str, str]] = {tuple: ("(", ")"), list: ("[", "]"), dict: ("{", "}")}
_DEEPEST = 20


def one_line(error: BaseException) -> str:
    """The message of a library's error on one line, truncated if it is long; its type if there is no message.

    >>> one_line(ValueError("no tar file:\\n- not gzip")), one_line(MemoryError())
    ('no tar file: - not gzip', 'MemoryError')
    """
    return cut_to_line(str(error), SHOWN) or type(error).__name__


def path_text(path: Sequence[Step]) -> str:
    """A path as people write it.

    >>> path_text(("train", "seeds", 0))
    'train.seeds[0]'
    """
    text = ""
    for step in path:
        if isinstance(step, int):
            text += f"[{step}]"
        else:
            name = step if step.isidentifier() and len(step) <= SHOWN else shown(step)
            text += f".{name}" if text else name
    return text


def unknown_name(what: str, name: str, known: Iterable[str], remedy: str = "") -> RequestError:
    """The error for an unknown name, with similar names as suggestions.

    >>> str(unknown_name("model", "linfomer_s16", ["linformer_s16", "vit_s16"]))
    "unknown model 'linfomer_s16'; did you mean 'linformer_s16'?"
    """
    by_lower = {candidate.lower(): candidate for candidate in known if len(name) <= SHOWN}
    cutoff = 0.5 if len(name) == 2 else 0.6  # half of t5 is in t4
    close = [by_lower[match] for match in difflib.get_close_matches(name.lower(), by_lower, n=3, cutoff=cutoff)]
    text = f"unknown {what} {shown(name)}"
    if close:
        text += "; did you mean " + " or ".join(repr(match) for match in close) + "?"
    if remedy:
        text += f" ({remedy})" if close else f"; {remedy}"
    return RequestError(text)
