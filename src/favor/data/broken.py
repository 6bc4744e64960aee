"""Broken images: reported with their location, counted and skipped, up to a limit."""

import logging
from collections.abc import Iterable

from favor.data.sources import BrokenImage
from favor.errors import WorkError

_log = logging.getLogger("favor.data")

BROKEN_LIMIT = 100
"""With more broken images than this, something is wrong with the dataset."""


class BrokenImages:
    """The broken images of a run, each counted once."""

    def __init__(self, limit: int = BROKEN_LIMIT) -> None:
        self.limit = limit
        self._places: dict[str, str] = {}

    @property
    def lines(self) -> tuple[str, ...]:
        """Each with the reason."""
        return tuple(f"{place}: {reason}" for place, reason in self._places.items())

    @property
    def count(self) -> int:
        return len(self._places)

    def add(self, images: Iterable[BrokenImage]) -> None:
        """Report new ones; raise an error if there are too many."""
        for image in images:
            if image.place in self._places:
                continue
            self._places[image.place] = image.reason
            _log.warning("skipped a broken image: %s (%s)", image.place, image.reason)
            if self.count > self.limit:
                raise WorkError(
                    f"more than {self.limit} broken images, the last: {image.place} ({image.reason}); "
                    "download the dataset again, or remove the broken images"
                )
