"""Progress of making a page, which takes some seconds."""

from collections.abc import Iterable, Sequence
from typing import Protocol, TypeVar

Item = TypeVar("Item")


class Track(Protocol):
    """Yields items one by one, and may show the progress."""

    def __call__(self, items: Sequence[Item], what: str) -> Iterable[Item]: ...


def unseen(items: Sequence[Item], what: str) -> Iterable[Item]:
    """Track without showing anything."""
    return items
