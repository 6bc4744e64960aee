"""Measuring load: the time of batches, the largest rate within a latency limit, and the curves of both."""

import tempfile
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from itertools import pairwise
from pathlib import Path

from favor.errors import WorkError
from favor.machine.best_batch import GAIN, STALE_DOUBLINGS
from favor.machine.memory import is_out_of_memory
from favor.machine.stopping import Estimate, StoppingRule, quantile
from favor.machine.timing import time_calls
from favor.measurement.bench import Bench, FileWorkload
from favor.measurement.job import MeasureJob
from favor.measurement.load_search import LEAST_QUERIES, Batching, LargestRate, RateSearch
from favor.measurement.loadgen_traffic import LoadgenTraffic, Served
from favor.queueing import TOLERATED, largest_load
from favor.records.schema import BatchPoint, LoadCurves, RatePoint
from favor.trace.workload import Call, Workload
from favor.units import format_quantity, format_span

SHARE_OF_BATCHES = 0.15
"""The share of the budget for timing all batch sizes."""

DOUBLINGS = tuple(2**doublings for doublings in range(10))
"""The batch sizes that are tried, unless the graph fixes them."""

NOT_MLPERF = "a short run of MLCommons' load generator; not a result of MLPerf, and not comparable with one"

SHORTER_WAITS = (8, 3)
"""The longest waits that are tried, as divisors of the limit."""

MOST_BLOCKS = 20
INTERVAL = f"median of up to {MOST_BLOCKS} blocks, 95 % interval by ranks"
UNDECIDED = "max_qps:undecided"


def measure_load(bench: Bench, inference: Workload, job: MeasureJob) -> None:
    """Find the largest load of a model in its runtime; every figure is sent as soon as it is known."""
    bench.channel.environment({"load_note": NOT_MLPERF})
    calls: dict[int, Call] = {}

    def run(batch_size: int) -> None:
        if batch_size not in calls:
            calls[batch_size] = inference.at(batch_size)
        calls[batch_size].run()
        bench.device.synchronize()

    sizes = inference.batch_sizes if isinstance(inference, FileWorkload) else None
    batches = time_batches(bench, run, job.p99 if job.scenario != "offline" else None, sizes or DOUBLINGS)
    with tempfile.TemporaryDirectory(prefix="favor-load-") as folder:
        traffic = LoadgenTraffic(run, bench.clock, Path(folder))
        try:
            _TESTS[job.scenario](bench, traffic, job, batches)
        finally:
            traffic.close()


def time_batches(
    bench: Bench, run: Callable[[int], None], limit: float | None, sizes: Sequence[int] = DOUBLINGS
) -> tuple[BatchPoint, ...]:
    """The median times of batches of 1, 2, 4, ... images: as long as they gain, meet the limit, and fit the memory."""
    spent, budget = 0.0, SHARE_OF_BATCHES * bench.budget
    rule = StoppingRule(budget / 5, least_samples=5, least_seconds=min(0.5, budget / 10))
    points: list[BatchPoint] = []
    best, stale = 0.0, 0
    for batch in sizes:
        bench.channel.begin(f"a batch of {batch}")
        try:
            run(batch)  # which may compile for this batch size, for longer than the budget
            began = bench.clock.now()
            timing = time_calls(lambda batch=batch: run(batch), bench.device, bench.clock, rule)  # type: ignore[misc]
        except (RuntimeError, WorkError, MemoryError) as error:
            if batch == 1 or not is_out_of_memory(error):
                raise
            break
        spent += bench.clock.now() - began
        seconds = timing.quantile(0.5).value
        points.append(BatchPoint(batch_size=batch, throughput=batch / seconds, latency=seconds))
        bench.channel.load(LoadCurves(batches=tuple(points)))
        gained = points[-1].throughput > (1 + GAIN) * best
        best, stale = max(best, points[-1].throughput), 0 if gained else stale + 1
        too_long = limit is not None and seconds > limit
        if too_long or stale == STALE_DOUBLINGS or spent + 3 * seconds > budget:
            break
    return tuple(points)


def _server(bench: Bench, traffic: LoadgenTraffic, job: MeasureJob, batches: Sequence[BatchPoint]) -> None:
    assert job.p99 is not None  # noqa: S101 - checked with the request
    if batches[0].latency > job.p99:
        one = format_quantity(batches[0].latency, "s")
        method = f"one image takes {one}, longer than the limit, so no rate meets it"
        _report(bench, Estimate(0.0, 0.0, 0.0), method, Batching(1), LoadCurves(batches=tuple(batches)))
        return
    largest = search_server(bench, traffic, job.p99, batches)
    if not largest.points:
        raise WorkError(
            f"a budget of {format_span(bench.budget)} is too short for {LEAST_QUERIES} queries at the expected rate; "
            "use a larger --budget"
        )
    if not largest.finished:
        bench.channel.flag("max_qps:wide")
    if not largest.decided:
        bench.channel.flag(UNDECIDED)
    answers = sum(point.answers for point in largest.points)
    method = (
        f"bisection with Poisson arrivals ({len(largest.points)} probes, {answers} answers), {largest.batching}; each "
        "probe decided by a sequential test of late answers"
    )
    rate = largest.rate
    if not rate.value:  # lower rates than these were not tested
        rate = Estimate(0.0, 0.0, min(point.rate for point in largest.points if not point.kept))
    _report(bench, rate, method, largest.batching, LoadCurves(largest.points, tuple(batches)))


def search_server(bench: Bench, traffic: LoadgenTraffic, limit: float, batches: Sequence[BatchPoint]) -> LargestRate:
    """The largest rate of Poisson arrivals within a limit; queueing theory says where to begin."""
    seconds = {point.batch_size: point.latency for point in batches}
    expected = largest_load(seconds, limit)
    highest = max(point.throughput for point in batches)

    def tell(rate: float, batching: Batching, left: float) -> None:
        bench.channel.begin(f"{format_quantity(rate, 'img/s')} in {batching}, about {format_span(left)} left")

    search = RateSearch(traffic, limit, (1 - SHARE_OF_BATCHES) * bench.budget, bench.clock, tell)
    first = max(expected.rate, 0.1 * highest)
    return search.run(first, highest, batchings(expected.largest_batch, seconds, limit))


def batchings(largest: int, seconds: dict[int, float], limit: float) -> list[Batching]:
    """The batchings to try: the one that is expected to be the best, its neighbors, and with a wait.

    >>> [str(one) for one in batchings(2, {1: 0.01, 2: 0.012, 4: 0.09}, 0.08)]
    ['batches of up to 2', 'batches of up to 1', 'batches of up to 2 after 10 ms', 'batches of up to 2 after 26.7 ms']
    """
    neighbors = [size for size in (2 * largest, largest // 2) if size in seconds and seconds[size] < limit]
    waits = [limit / part for part in SHORTER_WAITS] if largest > 1 else []
    return [Batching(largest), *map(Batching, neighbors), *(Batching(largest, wait) for wait in waits)]


def _single_stream(bench: Bench, traffic: LoadgenTraffic, job: MeasureJob, batches: Sequence[BatchPoint]) -> None:
    stream = _stream(bench, traffic, job, 1, batches[0].latency)
    point = stream.point
    method = f"one query after another, {point.answers} answers, p99 {format_quantity(point.p99, 's')}; {INTERVAL}"
    _report(bench, _best_of(bench, [stream]), method, Batching(1), LoadCurves((point,), tuple(batches)))


def _multi_stream(bench: Bench, traffic: LoadgenTraffic, job: MeasureJob, batches: Sequence[BatchPoint]) -> None:
    """The most images per query, one query after another, whose latency meets the limit."""
    streams: list[_Stream] = []
    for batch in batches:
        streams.append(_stream(bench, traffic, job, batch.batch_size, batch.latency, share=1 / len(batches)))
        if not streams[-1].point.kept:
            break
    points = tuple(stream.point for stream in streams)
    best = max((point for point in points if point.kept), key=lambda point: point.rate, default=points[0])
    answers = sum(point.answers for point in points)
    method = f"queries of {best.largest_batch} images, one after another, {answers} answers in all; {INTERVAL}"
    batching = Batching(best.largest_batch)
    _report(bench, _best_of(bench, streams), method, batching, LoadCurves(points, tuple(batches)))


@dataclass(frozen=True)
class _Stream:
    """Queries of one size, one after another: images per second, and the latencies."""

    rate: Estimate
    point: RatePoint


def _stream(
    bench: Bench, traffic: LoadgenTraffic, job: MeasureJob, samples: int, expected: float, share: float = 1.0
) -> _Stream:
    bench.channel.begin(f"queries of {samples}, one after another")
    assert job.p99 is not None  # noqa: S101 - checked with the request
    latencies = traffic.one_after_another(samples, share * (1 - SHARE_OF_BATCHES) * bench.budget / 2, expected)
    late = sum(latency > job.p99 for latency in latencies)
    p99, rate = quantile(latencies, 0.99), rate_of(traffic.served)
    surely_kept = p99.high is not None and p99.high <= job.p99
    surely_late = p99.low is not None and p99.low > job.p99
    kept = late <= TOLERATED * len(latencies)
    decided = surely_kept if kept else surely_late
    return _Stream(rate, _point(rate.value, samples, latencies, late, kept, decided))


def _best_of(bench: Bench, streams: Sequence[_Stream]) -> Estimate:
    """The most images per second within the limit, with an interval from what surely meets it to what may meet it."""
    if not all(stream.point.decided for stream in streams):
        bench.channel.flag(UNDECIDED)
    surely = [stream.rate.low for stream in streams if stream.point.kept and stream.point.decided]
    perhaps = [stream.rate.high for stream in streams if stream.point.kept or not stream.point.decided]
    return Estimate(
        max((stream.point.rate for stream in streams if stream.point.kept), default=0.0),
        max((low for low in surely if low is not None), default=0.0),
        None if None in perhaps else max((high for high in perhaps if high is not None), default=0.0),
    )


def rate_of(served: Sequence[Served]) -> Estimate:
    """Images per second: the median over blocks of consecutive batches, with its interval by ranks.

    >>> rate_of([Served(2, 0.5)] * 20 + [Served(4, 0.5)] * 20)
    Estimate(value=6.0, low=4.0, high=8.0)
    """
    blocks = min(len(served), MOST_BLOCKS)
    bounds = [block * len(served) // blocks for block in range(blocks + 1)]
    rates = [
        sum(batch.images for batch in served[begin:end]) / sum(batch.seconds for batch in served[begin:end])
        for begin, end in pairwise(bounds)
    ]
    return quantile(rates, 0.5)


def _offline(bench: Bench, traffic: LoadgenTraffic, job: MeasureJob, batches: Sequence[BatchPoint]) -> None:
    best = max(batches, key=lambda point: point.throughput)
    bench.channel.begin(f"all queries at once, batches of {best.batch_size}")
    # One query that holds all images: it is answered with the last of them.
    latencies = traffic.all_at_once(best.batch_size, (1 - SHARE_OF_BATCHES) * bench.budget / 4, best.throughput)
    rate, images = rate_of(traffic.served), sum(batch.images for batch in traffic.served)
    point = _point(rate.value, best.batch_size, latencies, 0, kept=True, decided=True)
    method = f"{images} images that came at once, batches of {best.batch_size}; no latency limit; {INTERVAL}"
    _report(bench, rate, method, Batching(best.batch_size), LoadCurves((point,), tuple(batches)))


def _point(rate: float, largest: int, latencies: Sequence[float], late: int, kept: bool, decided: bool) -> RatePoint:
    p50, p90, p99 = (quantile(latencies, share).value for share in (0.5, 0.9, 0.99))
    return RatePoint(
        rate=rate,
        largest_batch=largest,
        longest_wait=0.0,
        p50=p50,
        p90=p90,
        p99=p99,
        answers=len(latencies),
        late=late,
        kept=kept,
        decided=decided,
    )


def _report(bench: Bench, rate: Estimate, method: str, batching: Batching, curves: LoadCurves) -> None:
    bench.channel.conditions({"largest_batch": batching.largest, "longest_wait": batching.wait})
    bench.channel.load(curves)
    bench.channel.found("max_qps", rate, method)


_TESTS = {
    "server": _server,
    "single-stream": _single_stream,
    "multi-stream": _multi_stream,
    "offline": _offline,
}
