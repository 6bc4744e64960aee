"""Load tests: batches on a fake device, real queries of the load generator, and requests that are refused."""

import importlib.util
import json
import re
import statistics
import threading
import time
from collections.abc import Callable
from pathlib import Path

import pytest
from msgspec import structs
from typer.testing import CliRunner

from favor.cli import app
from favor.cli.load import print_loads
from favor.errors import RequestError
from favor.machine import timing
from favor.machine.clock import WallClock
from favor.machine.device import Cpu, Peak
from favor.machine.messages import Channel, Findings, RubbishError
from favor.machine.stopping import Estimate
from favor.measurement import load, loadgen_traffic
from favor.measurement.bench import Bench
from favor.measurement.job import MeasureJob
from favor.measurement.load import batchings, measure_load, rate_of, time_batches
from favor.measurement.load_search import Batching, LargestRate
from favor.measurement.loadgen_traffic import LoadgenTraffic, Query, Served, require_loadgen
from favor.records.schema import BatchPoint, LoadCurves, RatePoint, from_line, reading
from favor.records.store import read
from favor.trace.workload import Call
from measurement.fakes import fake_bench
from report.test_load import a_load

SERVICE = 0.002


class Sleeper:
    """A model whose batches take 2 ms, whatever their size."""

    def __init__(self) -> None:
        self.batches: list[int] = []
        self.clock = WallClock()

    def __call__(self, batch_size: int) -> None:
        self.batches.append(batch_size)
        end = self.clock.now() + SERVICE
        while self.clock.now() < end:
            pass


@pytest.fixture
def sleeper() -> Sleeper:
    return Sleeper()


@pytest.fixture
def traffic(sleeper: Sleeper, tmp_path: Path):
    made = LoadgenTraffic(sleeper, WallClock(), tmp_path)
    yield made
    made.close()


def test_queries_of_the_load_generator_come_at_the_rate_and_are_all_answered(traffic, sleeper) -> None:
    latencies: list[float] = []
    endured = traffic.poisson(100.0, Batching(4), 1.0, 60.0, lambda latency, _: bool(latencies.append(latency)))
    assert endured
    assert 60 < len(latencies) < 140
    assert min(latencies) >= SERVICE
    assert sum(sleeper.batches) == len(latencies)
    assert set(sleeper.batches) <= {1, 2, 4}


def test_all_probes_get_the_same_arrivals_scaled_by_the_rate(traffic, monkeypatch: pytest.MonkeyPatch) -> None:
    came: list[float] = []

    def query(at: float, found_empty: bool, samples: int) -> Query:
        came.append(at)
        return Query(at, found_empty, samples)

    monkeypatch.setattr(loadgen_traffic, "Query", query)

    def arrivals(rate: float, pattern: int = loadgen_traffic.PATTERN) -> list[float]:
        """When the queries came, in mean times between two of them."""
        monkeypatch.setattr(loadgen_traffic, "PATTERN", pattern)
        came.clear()
        traffic.poisson(rate, Batching(8), 50 / rate, 60.0, lambda latency, found_empty: False)
        return [rate * (at - came[0]) for at in came]

    def apart(one: list[float], other: list[float]) -> float:
        return statistics.median(abs(a - b) for a, b in zip(one, other, strict=False))

    first = arrivals(80.0)
    assert len(first) > 30
    same, slower, another = (apart(first, arrivals(*each)) for each in ((80.0,), (50.0,), (80.0, 35)))
    assert 4 * max(same, slower) < another


def test_a_probe_ends_soon_after_it_is_decided(traffic) -> None:
    clock, answers = WallClock(), []
    began = clock.now()

    def enough(latency: float, found_empty: bool) -> bool:
        answers.append(latency)
        return len(answers) == 20

    assert traffic.poisson(100.0, Batching(1), 60.0, 0.05, enough)
    assert len(answers) == 20
    assert clock.now() - began < 10.0


def test_more_queries_than_can_be_answered_are_given_up(traffic, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(loadgen_traffic, "LEAST_PATIENCE", 0.01)
    assert not traffic.poisson(5000.0, Batching(1), 30.0, 0.01, lambda latency, found_empty: False)


@pytest.mark.parametrize(
    "send",
    [
        lambda traffic: traffic.poisson(100.0, Batching(4), 10.0, 0.05, lambda latency, found_empty: False),
        lambda traffic: traffic.one_after_another(1, 10.0, SERVICE),
        lambda traffic: traffic.one_after_another(4, 10.0, SERVICE),
        lambda traffic: traffic.all_at_once(8, 10.0, 1000.0),
    ],
    ids=["server", "single-stream", "multi-stream", "offline"],
)
def test_a_model_that_fails_under_load_raises_its_own_error_after_the_load_generator_has_ended(
    send: Callable[[LoadgenTraffic], object], tmp_path: Path
) -> None:
    batches: list[int] = []

    def fail_at_the_third(batch_size: int) -> None:
        batches.append(batch_size)
        if len(batches) == 3:
            raise MemoryError("no room for the third batch")

    before = set(threading.enumerate())
    traffic = LoadgenTraffic(fail_at_the_third, WallClock(), tmp_path)
    with pytest.raises(MemoryError, match="no room for the third batch"):
        send(traffic)
    assert len(batches) == 3
    assert set(threading.enumerate()) <= before
    traffic.close()


def test_queries_of_several_images_are_answered_with_their_last_image(traffic, sleeper) -> None:
    latencies = traffic.one_after_another(4, 0.3, SERVICE)
    assert latencies
    assert min(latencies) >= SERVICE
    assert set(sleeper.batches) == {4}


def test_all_images_at_once_are_one_query(traffic, sleeper) -> None:
    (latency,) = traffic.all_at_once(8, 0.2, 1000.0)
    assert [batch.images for batch in traffic.served] == sleeper.batches
    assert sum(sleeper.batches) >= 100
    assert latency == pytest.approx(sum(batch.seconds for batch in traffic.served))


def test_batches_are_doubled_while_they_gain_and_keep_the_limit(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(timing.gc, "collect", lambda: 0)  # takes longer than all the rest
    bench, device, findings = fake_bench(budget=20.0)

    def run(batch_size: int) -> None:
        device.queue(0.010 + 0.001 * batch_size if batch_size < 16 else 0.002 * batch_size)
        device.synchronize()

    points = time_batches(bench, run, limit=None)
    assert [point.batch_size for point in points] == [1, 2, 4, 8, 16, 32, 64]
    assert points[0].latency == pytest.approx(0.011)
    assert points[3].throughput == pytest.approx(8 / 0.018)
    assert findings.load == LoadCurves(batches=points)
    short = time_batches(bench, run, limit=0.013)
    assert [point.batch_size for point in short] == [1, 2, 4]


def test_compiling_for_a_batch_size_does_not_use_up_the_budget(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(timing.gc, "collect", lambda: 0)
    bench, device, _ = fake_bench(budget=20.0)
    compiled: set[int] = set()

    def run(batch_size: int) -> None:
        device.queue(0.01 if batch_size in compiled else 60.0)
        compiled.add(batch_size)
        device.synchronize()

    points = time_batches(bench, run, limit=0.05, sizes=(1, 2, 4))
    assert [(point.batch_size, point.latency) for point in points] == [
        (size, pytest.approx(0.01)) for size in (1, 2, 4)
    ]


class FixedBatches:
    """A file whose graph fixes the batch size: batches of 1, 2 and 4 images, which all take 5 ms."""

    batch_sizes = (1, 2, 4)

    def __init__(self) -> None:
        self.batches: set[int] = set()

    def at(self, batch_size: int) -> Call:
        self.batches.add(batch_size)
        return Call(lambda: time.sleep(0.005), ())

    def peak(self, batch_size: int, *, roughly: bool) -> Peak:
        raise NotImplementedError


@pytest.mark.parametrize(
    ("scenario", "batch", "method"),
    [
        ("server", 4, "bisection with Poisson arrivals"),
        ("single-stream", 1, "one query after another"),
        ("multi-stream", 4, "queries of 4 images"),
        ("offline", 4, "images that came at once, batches of 4"),
    ],
)
def test_every_scenario_serves_the_batches_of_a_file(
    scenario: str, batch: int, method: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(timing.gc, "collect", lambda: 0)  # takes longer than all the rest
    findings, inference = Findings(), FixedBatches()
    bench = Bench(Cpu(), WallClock(), Channel(findings.take), 3.0)
    p99 = None if scenario == "offline" else 10.0
    job = MeasureJob("a", "load", 32, "fp32", "cpu", "cpu", 1, runtime="openvino", scenario=scenario, p99=p99)
    measure_load(bench, inference, job)
    found = findings.metrics["max_qps"]
    assert 0 < found.value <= batch / 0.005
    if scenario != "server":
        assert found.low <= found.value <= found.high
        assert found.low > 0 or findings.flags == ["max_qps:undecided"]
    assert method in found.method
    assert findings.conditions["largest_batch"] == batch
    assert inference.batches == {1, 2, 4}
    assert findings.load is not None
    assert [point.batch_size for point in findings.load.batches] == [1, 2, 4]


def test_where_no_tested_rate_meets_the_limit_lower_ones_are_unknown(monkeypatch: pytest.MonkeyPatch) -> None:
    findings = Findings()
    late = [structs.replace(POINT, rate=rate, kept=False) for rate in (8.0, 5.0)]
    seems_kept = structs.replace(POINT, rate=4.0)  # where the budget ended
    found = LargestRate(Estimate(0.0, 0.0, 0.0), Batching(4), (*late, seems_kept), finished=False, decided=False)
    monkeypatch.setattr("favor.measurement.load.search_server", lambda *_: found)
    bench = Bench(Cpu(), WallClock(), Channel(findings.take), 3.0)
    job = MeasureJob("a", "load", 32, "fp32", "cpu", "cpu", 1, runtime="openvino", scenario="server", p99=10.0)
    measure_load(bench, FixedBatches(), job)
    rate = findings.metrics["max_qps"]
    assert (rate.value, rate.low, rate.high) == (0.0, 0.0, 5.0)
    assert findings.flags == ["max_qps:wide", "max_qps:undecided"]


class Streams:
    """Queries one after another: those of so many images take their time in milliseconds, each tenth a little more."""

    def __init__(self, milliseconds: dict[int, float], queries: int) -> None:
        self.milliseconds, self.queries = milliseconds, queries
        self.served: list[Served] = []

    def one_after_another(self, samples: int, seconds: float, expected: float) -> list[float]:
        latencies = [self.milliseconds[samples] * (1.1 if at % 10 == 9 else 1.0) / 1000 for at in range(self.queries)]
        self.served = [Served(samples, latency) for latency in latencies]
        return latencies

    def close(self) -> None:
        pass


@pytest.mark.parametrize(
    ("queries", "p99", "low", "high", "flags"),
    [
        (400, 0.025, 2 / 0.0202, 2 / 0.0202, []),
        (100, 0.025, 0.0, 100.0, ["max_qps:undecided"]),  # too few queries to know their p99
        (400, 0.0215, 1 / 0.0101, 1 / 0.0101, []),  # queries of two are late
        (400, 0.005, 0.0, 0.0, []),
    ],
)
def test_the_interval_of_a_stream_reaches_from_what_surely_meets_the_limit_to_what_may(
    queries: int, p99: float, low: float, high: float, flags: list[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    findings = Findings()
    bench = Bench(Cpu(), WallClock(), Channel(findings.take), 3.0)
    job = MeasureJob("a", "load", 32, "fp32", "cpu", "cpu", 1, scenario="multi-stream", p99=p99)
    batches = tuple(BatchPoint(batch_size=size, throughput=size / 0.01, latency=0.01) for size in (1, 2))
    monkeypatch.setattr(load, "time_batches", lambda *_: batches)
    monkeypatch.setattr(load, "LoadgenTraffic", lambda *_: Streams({1: 10.0, 2: 20.0}, queries))
    measure_load(bench, FixedBatches(), job)
    rate = findings.metrics["max_qps"]
    assert (rate.low, rate.high) == (pytest.approx(low), pytest.approx(high))
    assert rate.low <= rate.value <= rate.high  # type: ignore[operator]
    assert findings.flags == flags


def test_the_interval_of_all_images_at_once_is_that_of_blocks_of_batches() -> None:
    steady = [Served(8, 0.1)] * 100
    assert rate_of(steady) == Estimate(80.0, pytest.approx(80.0), pytest.approx(80.0))
    halfway = rate_of([*steady[:50], *[Served(8, 0.2)] * 50])
    assert (halfway.low, halfway.high) == (pytest.approx(40.0), pytest.approx(80.0))
    assert rate_of(steady[:5]) == Estimate(pytest.approx(80.0), None, None)


def test_a_table_of_several_runtimes_says_which_is_which(capsys: pytest.CaptureFixture[str]) -> None:
    one, other = (a_load("a", {20.0: 0.02}, {1: 20.0}, runtime=runtime) for runtime in ("eager", "openvino"))
    print_loads([one, other], as_json=False)
    shown = capsys.readouterr().out
    assert "Load on cpu, fp32, server, p99 within 50.0 ms" in shown
    assert re.search(r"a .* eager .* 20 img/s", shown)
    assert re.search(r"a .* openvino .* 20 img/s", shown)
    print_loads([one], as_json=False)
    assert "Load on cpu, eager, fp32, server" in capsys.readouterr().out
    print_loads([a_load("fast", {1891.0: 0.02}, {1: 1891.0})], as_json=False)
    assert "1,890 to 1,892 img/s" in capsys.readouterr().out


def test_no_batch_beyond_the_limit_is_tried() -> None:
    assert batchings(1, {1: 0.01, 2: 0.2}, 0.05) == [Batching(1)]


POINT = RatePoint(
    rate=10.0,
    largest_batch=4,
    longest_wait=0.0,
    p50=0.01,
    p90=0.02,
    p99=0.03,
    answers=9,
    late=1,
    kept=True,
    decided=False,
)


def test_curves_come_through_the_channel_and_rubbish_does_not() -> None:
    findings = Findings()
    curves = LoadCurves((POINT,), (BatchPoint(batch_size=1, throughput=10.0, latency=0.1),))
    Channel(findings.take).load(curves)
    assert findings.load == curves
    with pytest.raises(RubbishError, match="'load' cannot be"):
        findings.take('{"load": {"rates": [{"rate": -1}]}}')


def test_without_the_load_generator_one_line_says_what_to_install(monkeypatch: pytest.MonkeyPatch) -> None:
    find = importlib.util.find_spec
    monkeypatch.setattr(loadgen_traffic, "find_spec", lambda name: None if name == "mlperf_loadgen" else find(name))
    with pytest.raises(
        RequestError, match=r"load tests need mlcommons-loadgen, not installed here; pip install 'favor\[load\]'"
    ):
        require_loadgen()


@pytest.mark.parametrize(
    ("words", "why"),
    [
        ([], "server needs p99"),
        (["--p99", "50"], "--p99: cannot read '50': the unit is missing"),
        (["--p99", "50ms", "--scenario", "offline"], "offline has no latency limit"),
        (["--p99", "50ms", "--scenario", "sever"], "did you mean 'server'"),
        (["--p99", "50ms", "--runtime", "openvno"], "did you mean 'openvino'"),
        (["--p99", "50ms", "--runtime", "openvino", "--precision", "bf16"], "openvino does not run bf16"),
        (["--p99", "50ms", "--precision", "int8", "--calibration", "digits"], "eager does not run int8; onnxruntime"),
        (["--p99", "50ms", "--runtime", "openvino", "--precision", "int8"], "int8 needs images to calibrate with"),
    ],
)
def test_a_wrong_load_test_is_refused_before_anything_runs(words: list[str], why: str) -> None:
    answer = CliRunner().invoke(app, ["load", "vit_xs4", *words])
    assert isinstance(answer.exception, RequestError)
    assert why in str(answer.exception)


def test_a_tiny_model_is_tested_for_real_and_its_record_has_the_curves(tmp_path: Path) -> None:
    words = [
        "load",
        "vit_xs4",
        "--p99",
        "2s",
        "--budget",
        "4",
        "--threads",
        "1",
        "--wait",
        "--study",
        str(tmp_path / "s"),
    ]
    answer = CliRunner().invoke(app, [*words, "--json"])
    assert answer.exit_code == 0, answer.output
    (record,) = read(tmp_path / "s").records
    assert record.task == "load"
    assert record.conditions["p99_limit"] == 2.0
    assert (record.conditions["scenario"], record.conditions["runtime"]) == ("server", "eager")
    assert record.metrics["max_qps"].value > 0
    assert record.load is not None
    assert record.load.batches[0].batch_size == 1
    assert any(point.kept for point in record.load.rates)
    assert "not a result of MLPerf" in str(record.environment["load_note"])
    (printed,) = json.loads(answer.stdout)
    assert from_line(json.dumps(printed).encode()) == record
    again = CliRunner().invoke(app, words)
    assert "nothing is left to do" in again.output


def test_int8_is_tested_under_load_and_its_agreement_is_on_the_record(tmp_path: Path) -> None:
    words = ["load", "vit_xs4", "--p99", "5s", "--budget", "2", "--threads", "1", "--wait", "--study", str(tmp_path)]
    int8 = ["--runtime", "onnxruntime", "--precision", "int8", "--calibration", "digits"]
    answer = CliRunner().invoke(app, [*words, *int8])
    assert answer.exit_code == 0, answer.output
    (record,) = read(tmp_path).records
    assert record.metrics["max_qps"].value > 0
    assert (record.conditions["precision"], record.conditions["calibration"]) == ("int8", "digits")
    assert record.environment["provider"] == "CPUExecutionProvider"
    assert {"preparation_time", "file_size", "top1_agreement"} <= record.metrics.keys()


def test_a_load_of_zero_comes_with_its_reason_and_an_interval_with_its_unit(
    capsys: pytest.CaptureFixture[str],
) -> None:
    served = a_load("served", {20.0: 0.02}, {1: 20.0})
    late = a_load("late", {8.0: 0.6, 5.92: 0.453}, {1: 6.0}, largest_batch=1)
    slow = a_load("slow", {5.0: 0.5}, {1: 5.0})
    none = {"max_qps": reading("max_qps", 0.0, method="one image takes 200 ms, longer than the limit")}
    late, slow = (structs.replace(record, metrics=none) for record in (late, slow))
    print_loads([served, late, structs.replace(slow, load=LoadCurves())], as_json=False)
    shown = capsys.readouterr()
    assert "19 to 21 img/s" in shown.out
    assert "late: no load from 5.92 img/s up meets the limit; p99 was 453 ms at 5.92 img/s; a larger" in shown.err
    assert "slow: no load meets the limit; one image takes 200 ms, longer than the limit\n" in shown.err
    assert "served: no load" not in shown.err


@pytest.mark.parametrize("scenario", ["single-stream", "multi-stream"])
def test_a_stream_whose_single_images_are_late_has_no_lower_rate_to_test(
    scenario: str, capsys: pytest.CaptureFixture[str]
) -> None:
    late = a_load("late", {8.0: 0.6}, {1: 8.0}, largest_batch=1)
    none = {"max_qps": reading("max_qps", 0.0, method="one query after another")}
    print_loads(
        [structs.replace(late, metrics=none, conditions={**late.conditions, "scenario": scenario})], as_json=False
    )
    shown = capsys.readouterr()
    assert "late: single images miss the limit; their p99 was 600 ms\n" in shown.err
    assert "--budget" not in shown.err
