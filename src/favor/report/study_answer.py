"""The answer of a study, in the words that the terminal printed."""

from dataclasses import dataclass


@dataclass(frozen=True)
class StudyAnswer:
    """A table of the favored models by goal, and the sentences below it."""

    title: str
    columns: tuple[str, ...]
    rows: tuple[tuple[str, ...], ...]
    sentences: tuple[str, ...]
