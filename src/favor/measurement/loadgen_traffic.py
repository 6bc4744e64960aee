"""Traffic by MLCommons' load generator to a system under test in this process: a session, and dynamic batching.

The load generator runs in a thread of its own and decides when queries come. The model runs in the thread that asks
for the traffic, as it does everywhere else.
"""

import threading
from collections import deque
from collections.abc import Callable, Sequence
from importlib.util import find_spec
from pathlib import Path
from typing import TYPE_CHECKING, Any, NamedTuple

from favor.errors import MissingHereError, WorkError
from favor.machine.clock import Clock
from favor.measurement.load_search import Batching, OnAnswer

if TYPE_CHECKING:
    from mlperf_loadgen import QuerySample, TestSettings

PACKAGE, MODULE = "mlcommons-loadgen", "mlperf_loadgen"
PATTERN = 29
"""The seed of the arrivals: the same in all probes and runs."""

LEAST_PATIENCE = 0.5
"""Seconds of arrivals that may wait; the load generator gives up when more do, which is also how a probe is ended."""


def require_loadgen() -> None:
    """Refuse to test the load without the load generator."""
    if find_spec(MODULE) is None:
        raise MissingHereError(f"load tests need {PACKAGE}, not installed here; pip install 'favor[load]'")


class Query:
    """Samples that came together: its answer is complete with the last of them."""

    def __init__(self, came: float, found_empty: bool, samples: int) -> None:
        self.came, self.found_empty, self.left = came, found_empty, samples


class Served(NamedTuple):
    """A batch that was answered, and the seconds since the one before it, or since the first query came."""

    images: int
    seconds: float


class LoadgenTraffic:
    """Queries of the load generator, answered by `run(batch_size)`, which returns when the batch is done.

    The load generator writes its logs into the folder. They are not results of MLPerf: the runs are much too short.
    `served` are the batches of the last run in their order.
    """

    def __init__(self, run: Callable[[int], None], clock: Clock, folder: Path) -> None:
        import mlperf_loadgen

        self._loadgen: Any = mlperf_loadgen
        self._run, self._clock, self._folder = run, clock, folder
        self._waiting: deque[tuple[int, Query]] = deque()
        self._changed = threading.Condition()
        self._in_service, self._most_waiting, self._flushed = 0, 0, False
        self._failure: Exception | None = None
        self.served: list[Served] = []
        self._system = self._loadgen.ConstructSUT(self._issue, self._flush)
        self._samples = self._loadgen.ConstructQSL(1, 1, lambda indices: None, lambda indices: None)

    def close(self) -> None:
        """Free what the load generator holds."""
        self._loadgen.DestroyQSL(self._samples)
        self._loadgen.DestroySUT(self._system)

    def poisson(self, rate: float, batching: Batching, seconds: float, limit: float, on_answer: OnAnswer) -> bool:
        """Send queries as a Poisson process; see `Traffic`."""
        settings = self._settings("Server", seconds)
        settings.server_target_qps = rate
        settings.server_target_latency_ns = int(limit * 1e9)
        most = int(rate * max(4 * limit, LEAST_PATIENCE)) + 2 * batching.largest + 20
        settings.server_max_async_queries = most
        enough = self._answer(settings, batching, on_answer)
        return enough or self._most_waiting <= most

    def one_after_another(self, samples: int, seconds: float, expected: float) -> list[float]:
        """Send a query of so many samples when the one before is answered; returns the latencies of the queries.

        A query takes about `expected` seconds.
        """
        settings = self._settings("SingleStream" if samples == 1 else "MultiStream", seconds)
        settings.single_stream_expected_latency_ns = settings.multi_stream_expected_latency_ns = int(expected * 1e9)
        settings.multi_stream_samples_per_query = samples
        return self._latencies(settings, Batching(samples))

    def all_at_once(self, largest_batch: int, seconds: float, rate: float) -> list[float]:
        """Send one query with as many samples as take so many seconds at a rate; returns its latency."""
        settings = self._settings("Offline", seconds)
        settings.offline_expected_qps = rate
        settings.max_duration_ms = 0
        return self._latencies(settings, Batching(largest_batch))

    def _settings(self, scenario: str, seconds: float) -> "TestSettings":
        settings = self._loadgen.TestSettings()
        settings.scenario = getattr(self._loadgen.TestScenario, scenario)
        settings.mode = self._loadgen.TestMode.PerformanceOnly
        settings.min_duration_ms = settings.max_duration_ms = max(1, int(seconds * 1000))
        settings.min_query_count = 1
        settings.schedule_rng_seed = PATTERN
        return settings

    def _latencies(self, settings: "TestSettings", batching: Batching) -> list[float]:
        """Answer all queries; only Poisson arrivals can be ended early."""
        latencies: list[float] = []

        def on_answer(latency: float, found_empty: bool) -> bool:
            latencies.append(latency)
            return False

        self._answer(settings, batching, on_answer)
        return latencies

    def _answer(self, settings: "TestSettings", batching: Batching, on_answer: OnAnswer) -> bool:
        """Answer queries until the load generator has sent its last; True if `on_answer` had enough before."""
        self._waiting.clear()
        self._flushed, self._most_waiting, self._failure, self.served = False, 0, None, []
        sending = threading.Thread(target=self._send, args=(settings,), daemon=True)
        sending.start()
        enough, before = False, 0.0
        try:
            while not enough and (batch := self._next_batch(batching)):
                try:
                    self._run(len(batch))
                finally:
                    done = self._clock.now()
                    self._complete(batch)
                self.served.append(Served(len(batch), done - (before if self.served else batch[0][1].came)))
                before = done
                for _, query in batch:
                    query.left -= 1
                    if query.left == 0 and not enough:
                        enough = on_answer(done - query.came, query.found_empty)
        finally:
            # The load generator cannot be stopped, and must end before it is closed: the model answers no more, but
            # every query is completed. Poisson arrivals pile up until it gives up; otherwise it waits for each answer.
            is_poisson = settings.scenario == self._loadgen.TestScenario.Server
            while batch := self._next_batch(batching, answers=not is_poisson):
                self._complete(batch)
            sending.join()
        if self._failure is not None:
            raise WorkError(f"the load generator failed: {self._failure}") from self._failure
        return enough

    def _send(self, settings: "TestSettings") -> None:
        output = self._loadgen.LogOutputSettings()
        output.outdir = str(self._folder)
        output.copy_summary_to_stdout = False
        logs = self._loadgen.LogSettings()
        logs.log_output = output
        logs.enable_trace = False
        no_file = str(self._folder / "none.config")  # instead of an audit.config in the current folder
        try:
            self._loadgen.StartTestWithLogSettings(self._system, self._samples, settings, logs, no_file)
        except Exception as error:  # noqa: BLE001 - raised again in the thread that waits for queries
            self._failure = error
        finally:
            self._flush()

    def _issue(self, samples: "Sequence[QuerySample]") -> None:
        """Called by the load generator, in its thread."""
        with self._changed:
            came = self._clock.now()
            query = Query(came, not self._waiting and not self._in_service, len(samples))
            self._waiting.extend((sample.id, query) for sample in samples)
            self._most_waiting = max(self._most_waiting, len(self._waiting) + self._in_service)
            self._changed.notify()

    def _flush(self) -> None:
        """Called by the load generator after its last query."""
        with self._changed:
            self._flushed = True
            self._changed.notify()

    def _next_batch(self, batching: Batching, answers: bool = True) -> list[tuple[int, Query]]:
        """The next batch at once, or without `answers` after the last query has come; empty when no more will come."""
        with self._changed:
            self._in_service = 0
            while True:
                waiting = len(self._waiting)
                if self._flushed and not waiting:
                    return []
                waited = self._clock.now() - self._waiting[0][1].came if waiting else 0.0
                size = batching.take(waiting, waited) if answers else 0
                if self._flushed and not size:
                    size = waiting if not answers else batching.take(waiting, batching.wait)
                if size:
                    self._in_service = size
                    return [self._waiting.popleft() for _ in range(size)]
                self._changed.wait(max(0.0, batching.wait - waited) if waiting and answers else None)

    def _complete(self, batch: Sequence[tuple[int, Query]]) -> None:
        responses = [self._loadgen.QuerySampleResponse(identity, 0, 0) for identity, _ in batch]
        self._loadgen.QuerySamplesComplete(responses)
