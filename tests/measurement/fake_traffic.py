"""Traffic to a server of known service times, in virtual time: queues without a clock."""

import random
from collections.abc import Callable, Mapping

from favor.measurement.load_search import Batching, OnAnswer
from measurement.fakes import FakeClock


class FakeTraffic:
    """Poisson arrivals, always in the same pattern, at a server whose batches take so many seconds."""

    def __init__(
        self, clock: FakeClock, seconds: Mapping[int, float], seed: int = 1, jitter: Callable[[], float] = lambda: 1.0
    ) -> None:
        self.clock, self.seconds, self.seed, self.jitter = clock, seconds, seed, jitter
        self.rates: list[float] = []

    def poisson(self, rate: float, batching: Batching, seconds: float, limit: float, on_answer: OnAnswer) -> bool:
        self.rates.append(rate)
        draw = random.Random(self.seed)  # noqa: S311
        began = self.clock.now()
        arrivals: list[tuple[float, bool]] = []
        now = coming = draw.expovariate(rate)
        answered = 0.0
        while now < seconds:
            while coming <= now:
                arrivals.append((coming, coming >= answered and not arrivals))
                coming += draw.expovariate(rate)
            batch = batching.take(len(arrivals), now - arrivals[0][0]) if arrivals else 0
            if not batch:
                due = [coming] if not arrivals else [coming, arrivals[0][0] + batching.wait]
                now = max(now, min(due)) + 1e-12
                continue
            now += self.seconds[batch] * self.jitter()
            answered = now
            self.clock.time = began + now
            taken, arrivals = arrivals[:batch], arrivals[batch:]
            enough = [on_answer(now - arrived, found_empty) for arrived, found_empty in taken]
            if any(enough):
                break
            if len(arrivals) > 4 * rate * limit + 100:
                self.clock.time = began + now
                return False
        self.clock.time = began + now
        return True
