"""The batch size with the highest throughput: doubled up to what memory holds, then refined."""

from collections.abc import Callable
from dataclasses import dataclass
from typing import Literal

GAIN = 0.02
REFINED_GAIN = 0.01
STALE_DOUBLINGS = 2
REFINING_ROUNDS = 2

Ended = Literal["no gain", "memory", "budget"]


class DoesNotFitError(Exception):
    """A batch that does not fit into memory."""


@dataclass(frozen=True)
class Search:
    """The best batch size, the throughput (img/s) of every size that was tried, and why doubling ended."""

    best: int
    curve: tuple[tuple[int, float], ...]
    ended: Ended

    def curve_text(self) -> str:
        """The curve as one string.

        >>> Search(2, ((1, 10.24), (2, 14.1)), "no gain").curve_text()
        '1:10.24 2:14.1'
        """
        return " ".join(f"{batch}:{throughput:.4g}" for batch, throughput in self.curve)


def search_best_batch(
    throughput: Callable[[int], float],
    *,
    smallest: int = 1,
    largest: int | None = None,
    affordable: Callable[[int, float], bool] = lambda batch, seconds: True,
    powers_of_two: bool = False,
) -> Search:
    """Search for the batch size with the highest throughput, in few and short measurements.

    `throughput(batch)` measures, or raises DoesNotFitError; at the `smallest` batch, where the search starts, the error
    is passed on. `largest` is known to fit into memory. `affordable(batch, seconds)` says whether there is time for a
    batch that is expected to take that long. With `powers_of_two`, no other sizes are tried. The winner's throughput is
    the best of many noisy figures and therefore too optimistic: measure it again.

    >>> search_best_batch(lambda batch: batch / (1 + batch / 8) - 0.02 * batch).best
    48
    """
    curve = {smallest: throughput(smallest)}
    if powers_of_two and largest is not None:
        largest = 1 << (largest.bit_length() - 1)
    ended, limit = _grow(throughput, curve, largest, affordable)
    for _ in range(0 if powers_of_two else REFINING_ROUNDS):
        before, refused = max(curve.values()), False
        for batch in _between_neighbors(curve, limit):
            if not affordable(batch, _seconds(curve, batch)):
                continue
            try:
                curve[batch] = throughput(batch)
            except DoesNotFitError:
                limit, refused = min(limit or batch, batch - 1), True
        if not refused and max(curve.values()) <= (1 + REFINED_GAIN) * before:
            break
    return Search(_best(curve), tuple(sorted(curve.items())), ended)


def _grow(
    throughput: Callable[[int], float],
    curve: dict[int, float],
    largest: int | None,
    affordable: Callable[[int, float], bool],
) -> tuple[Ended, int | None]:
    """Double the batch until it stops paying off; returns why it ended and the largest batch that may still fit."""
    record, stale = max(curve.values()), 0
    while True:
        last = max(curve)
        batch = 2 * last if largest is None else min(2 * last, largest)
        if batch <= last:
            return "memory", largest
        if not affordable(batch, _seconds(curve, batch)):
            return "budget", largest
        try:
            curve[batch] = throughput(batch)
        except DoesNotFitError:
            return "memory", batch - 1
        if curve[batch] > (1 + GAIN) * record:
            record, stale = curve[batch], 0
            continue
        stale += 1
        if stale == STALE_DOUBLINGS:
            return "no gain", largest


def _between_neighbors(curve: dict[int, float], limit: int | None) -> list[int]:
    """The batch sizes midway between the best one and its neighbors among those tried."""
    tried, best = sorted(curve), _best(curve)
    index = tried.index(best)
    left = [tried[index - 1]] if index > 0 else []
    right = [tried[index + 1]] if index + 1 < len(tried) else [limit] if limit is not None else []
    middles = [(best + other) // 2 for other in (*left, *right)]
    return [batch for batch in middles if batch not in curve]


def _best(curve: dict[int, float]) -> int:
    return max(curve, key=lambda batch: curve[batch])


def _seconds(curve: dict[int, float], batch: int) -> float:
    """How long a batch will take at the throughput of the largest one that was tried."""
    return batch / curve[max(curve)]
