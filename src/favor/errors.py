"""Errors that a user can act on: one line that says what, where, why, and what to do."""

import difflib
from collections.abc import Iterable


class FavorError(Exception):
    """An error whose text is meant for the user; anything else that is raised is a defect of favor."""


class RequestError(FavorError, ValueError):
    """The request was wrong: nothing was done, and the text says what to ask instead. Exit code 2."""


class WorkError(FavorError, RuntimeError):
    """The request was right but the work failed. Exit code 1."""


def unknown_name(what: str, name: str, known: Iterable[str], remedy: str = "") -> RequestError:
    """The error for a name that is not known, with what is close to it.

    >>> str(unknown_name("model", "linfomer_s16", ["linformer_s16", "vit_s16"]))
    "unknown model 'linfomer_s16'; did you mean 'linformer_s16'?"
    """
    by_lower = {candidate.lower(): candidate for candidate in known}
    close = [by_lower[match] for match in difflib.get_close_matches(name.lower(), by_lower, n=3, cutoff=0.6)]
    text = f"unknown {what} {name!r}"
    if close:
        text += "; did you mean " + " or ".join(repr(match) for match in close) + "?"
    if remedy:
        text += f" ({remedy})" if close else f"; {remedy}"
    return RequestError(text)
