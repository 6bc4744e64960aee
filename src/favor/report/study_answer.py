"""The answer that a study ended with, as its terminal told it."""

from dataclasses import dataclass


@dataclass(frozen=True)
class StudyAnswer:
    """A table of the favored models by goal, and the sentences below it."""

    title: str
    columns: tuple[str, ...]
    rows: tuple[tuple[str, ...], ...]
    sentences: tuple[str, ...]
