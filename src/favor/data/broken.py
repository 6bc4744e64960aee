"""Broken images are reported with their place, counted, and never end an epoch, up to a limit."""

import logging
from collections.abc import Iterable

from favor.data.sources import BrokenImage
from favor.errors import WorkError

_log = logging.getLogger("favor.data")

BROKEN_LIMIT = 100
"""Broken images in a run beyond which its data are not what their name says."""


class BrokenImages:
    """The broken images that a run has met, each counted once."""

    def __init__(self, limit: int = BROKEN_LIMIT) -> None:
        self.limit = limit
        self._places: set[str] = set()

    @property
    def count(self) -> int:
        return len(self._places)

    def add(self, found: Iterable[BrokenImage]) -> None:
        """Report those that are new; too many are an error."""
        for image in found:
            if image.place in self._places:
                continue
            self._places.add(image.place)
            _log.warning("broken image left out: %s (%s)", image.place, image.reason)
            if self.count > self.limit:
                raise WorkError(
                    f"more than {self.limit} broken images, the last: {image.place} ({image.reason}); "
                    "get the data set again, or take what is broken out of it"
                )
