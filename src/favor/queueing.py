"""The load that one server with dynamic batching can take within a latency limit, by queueing theory. Imports no torch.

The model is a bulk-service queue: queries arrive as a Poisson process, a batch of b images takes exactly s(b) seconds,
and a server that is free takes the largest batch, a power of two, of the queries that wait. `docs/load.md` has the
formulas.
"""

from collections.abc import Mapping
from dataclasses import dataclass
from functools import lru_cache
from math import ceil, inf

import numpy as np

TOLERATED = 0.01
"""The share of answers that may be late: the limit is on the 99th percentile."""

_MOMENTS = 12
"""At how many moments of a service a query is assumed to arrive."""

_MOST_WAITING = 800
_FILLED = 4
_HALVINGS = 9


def batch_taken(waiting: int, largest: int) -> int:
    """The batch that a free server takes: the largest power of two that waits and is allowed.

    >>> [batch_taken(waiting, 4) for waiting in (0, 1, 3, 4, 9)]
    [0, 1, 2, 4, 4]
    """
    most = min(waiting, largest)
    return 1 << (most.bit_length() - 1) if most else 0


@dataclass(frozen=True)
class Load:
    """The largest rate within a limit, in queries per second, and the largest batch that reaches it."""

    rate: float
    largest_batch: int


def largest_load(seconds: Mapping[int, float], limit: float, enough: float = inf) -> Load:
    """The largest rate at which 99 % of the answers come within `limit` seconds, for the best largest batch.

    `seconds` are the times of batches of 1, 2, 4, ... images. Rates above `enough` are not looked at: the chain of a
    fast server has hundreds of states, and solving it takes seconds.

    >>> load = largest_load({1: 0.010, 2: 0.012, 4: 0.016}, limit=0.05)
    >>> load.largest_batch, 100 < load.rate < 250
    (4, True)
    """
    return _largest_load(tuple(sorted(seconds.items())), limit, enough)


@lru_cache(maxsize=4096)
def _largest_load(services: tuple[tuple[int, float], ...], limit: float, enough: float) -> Load:
    if services[0][1] >= limit:
        return Load(0.0, 1)
    low, high = 0.0, min(enough, max(batch / time for batch, time in services))
    # Larger batches than arrive within the limit are never full.
    allowed = [batch for batch, time in services if time < limit and batch <= max(1.0, _FILLED * high * limit)]
    if high == enough and (largest := next((one for one in allowed if _is_kept(enough, services, one, limit)), None)):
        return Load(enough, largest)
    for _ in range(_HALVINGS):
        middle = (low + high) / 2
        # The one that was the best so far comes first.
        keeping = (largest for largest in allowed if _is_kept(middle, services, largest, limit))
        largest = next(keeping, None)
        if largest is None:
            high = middle
        else:
            low = middle
            allowed.sort(key=lambda batch: batch != largest)
    return Load(low, allowed[0])


def _is_kept(rate: float, services: tuple[tuple[int, float], ...], largest: int, limit: float) -> bool:
    seconds = {batch: time for batch, time in services if batch <= largest}
    return late_share(rate, seconds, limit) <= TOLERATED


def late_share(rate: float, seconds: Mapping[int, float], limit: float) -> float:
    """The share of queries that are answered after more than `limit` seconds, in the long run.

    With batches of 1 alone this is the M/D/1 queue: of 80 queries a second that take 10 ms each, 15 % wait 40 ms.

    >>> round(late_share(80.0, {1: 0.010}, 0.050), 2)
    0.15
    """
    largest = max(seconds)
    if rate >= max(batch / time for batch, time in seconds.items()):
        return 1.0
    states = min(_MOST_WAITING, ceil(1.5 * rate * limit) + 2 * largest + 30)
    taken = np.array([batch_taken(max(1, waiting), largest) for waiting in range(states)])
    arrivals = {batch: _poisson(rate * time, states) for batch, time in seconds.items()}
    left = _left_behind(taken, arrivals)
    times = np.array([seconds[batch] for batch in taken])
    # A query arrives at any moment alike: while the server is idle, or during a service, by their lengths.
    idle, served = left[0] / rate, left * times
    everything = idle + served.sum()
    late = idle * (seconds[1] > limit)
    for batch, time in seconds.items():
        started = np.flatnonzero(taken == batch)
        waiting = np.zeros(states)
        np.add.at(waiting, np.maximum(started - batch, 0), served[started])
        late += _late_during(waiting, time, rate, seconds, limit)
    return float(min(1.0, late / everything))


def _left_behind(taken: np.ndarray, arrivals: Mapping[int, np.ndarray]) -> np.ndarray:
    """The stationary distribution of how many wait when a service ends."""
    states = len(taken)
    moves = np.zeros((states, states))
    for waiting, batch in enumerate(taken):
        rest = max(0, waiting - batch)
        moves[waiting, rest:] = arrivals[int(batch)][: states - rest]
    moves[:, -1] += 1 - moves.sum(axis=1)  # more than there are states for
    equations = moves.T - np.eye(states)
    equations[-1] = 1.0
    return np.maximum(np.linalg.solve(equations, np.eye(states)[-1]), 0.0)


def _late_during(waiting: np.ndarray, time: float, rate: float, seconds: Mapping[int, float], limit: float) -> float:
    """The late part of the queries that arrive during services of so many seconds.

    `waiting` weighs how many wait when such a service begins.
    """
    largest, states, late = max(seconds), len(waiting), 0.0
    ahead = np.arange(states)
    taken = np.array([batch_taken(max(1, count), largest) for count in range(states)])
    times = np.array([seconds[batch] for batch in taken])
    moments = ((np.arange(_MOMENTS) + 0.5) / _MOMENTS * time)[:, None]
    before = np.stack([np.convolve(waiting, chances)[:states] for chances in _poisson(rate * moments, states)])
    fewer = np.cumsum(_poisson(rate * (time - moments), states), axis=1)
    for batch, next_time in seconds.items():
        # The next batch is this one if so many more arrive until the service ends.
        chance = -_chance_of_fewer(fewer, batch - ahead - 1)
        chance += 1.0 if batch == largest else _chance_of_fewer(fewer, 2 * batch - ahead - 1)
        # Whoever does not get into it waits for full ones; arrivals meanwhile are taken at their mean.
        full = np.where(ahead < batch, 0, (ahead - batch) // largest)
        place = ahead - batch - full * largest
        until = time - moments + next_time + full * seconds[largest]
        own = np.clip((place + 1 + rate * until).astype(int), 1, states - 1)
        further = times[own] + np.where(place >= taken[own], times[own], 0.0)
        answered = until + np.where(ahead < batch, 0.0, further)
        late += float((before * chance)[answered > limit].sum())
    return late / _MOMENTS


def _chance_of_fewer(cumulative: np.ndarray, count: np.ndarray) -> np.ndarray:
    return np.where(count <= 0, 0.0, cumulative[:, np.clip(count - 1, 0, cumulative.shape[1] - 1)])


def _poisson(mean: float | np.ndarray, count: int) -> np.ndarray:
    """The chances of 0, 1, ... arrivals.

    >>> _poisson(2.0, 3).round(3).tolist()
    [0.135, 0.271, 0.271]
    """
    numbers = np.arange(count)
    logarithms = np.concatenate([[0.0], np.cumsum(np.log(numbers[1:]))])
    return np.exp(-mean + numbers * np.log(np.maximum(mean, 1e-300)) - logarithms)
