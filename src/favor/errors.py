"""Errors that a user can act on: one line that says what, where, why, and what to do."""

import difflib
from collections.abc import Iterable, Sequence

from favor.text import cut_to_line


class FavorError(Exception):
    """An error whose message is meant for the user; any other exception is a bug in favor."""


class RequestError(FavorError, ValueError):
    """The request was wrong and nothing was done; the message says what to do instead. Exit code 2."""


class WorkError(FavorError, RuntimeError):
    """The request was valid but the work failed. Exit code 1."""


Step = str | int
"""A key or a list index: one step of the path to a part of a file."""

SHOWN = 200
"""The most characters of foreign input that an error repeats."""


def shown(value: object) -> str:
    """A foreign value as an error shows it: on one line, quoted, and truncated if it is long.

    >>> shown("a\\nb"), len(shown("x" * 1000))
    ("'a\\\\nb'", 200)
    """
    text = repr(value)
    return text if len(text) <= SHOWN else f"{text[: SHOWN - 3]}..."


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
    by_lower = {candidate.lower(): candidate for candidate in known}
    cutoff = 0.5 if len(name) == 2 else 0.6  # half of t5 is in t4
    close = [by_lower[match] for match in difflib.get_close_matches(name.lower(), by_lower, n=3, cutoff=cutoff)]
    text = f"unknown {what} {shown(name)}"
    if close:
        text += "; did you mean " + " or ".join(repr(match) for match in close) + "?"
    if remedy:
        text += f" ({remedy})" if close else f"; {remedy}"
    return RequestError(text)
