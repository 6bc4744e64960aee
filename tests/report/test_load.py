"""Load tests on the page: a section for each setting, drawn from the records' curves."""

import msgspec

from favor.records.schema import BatchPoint, CardFields, LoadCurves, RatePoint, Record, reading
from favor.report.load import breakpoints, load_comparisons, load_sections


def point(rate: float, p99: float) -> RatePoint:
    return RatePoint(
        rate=rate,
        largest_batch=4,
        longest_wait=0.0,
        p50=p99 / 4,
        p90=p99 / 2,
        p99=p99,
        answers=100,
        late=0,
        kept=True,
        decided=True,
    )


def a_load(name: str, rates: dict[float, float], throughputs: dict[int, float], **conditions: object) -> Record:
    usual = {"device": "cpu", "precision": "fp32", "runtime": "eager", "img_size": 224, "scenario": "server"}
    usual |= {"p99_limit": 0.05, "largest_batch": 4, "longest_wait": 0.0}
    return Record(
        name=name,
        model=CardFields(),
        task="load",
        source="measured",
        conditions=usual | conditions,  # type: ignore[arg-type]
        metrics={"max_qps": reading("max_qps", max(rates), max(0.0, max(rates) - 1), max(rates) + 1, method="made up")},
        environment={"device_name": "a processor", "threads": 2},
        load=LoadCurves(
            tuple(point(*each) for each in rates.items()),
            tuple(BatchPoint(batch_size=b, throughput=t, latency=b / t) for b, t in throughputs.items()),
        ),
    )


SINGLE = a_load("single", {10.0: 0.01, 20.0: 0.02, 24.0: 0.2}, {1: 20.0, 2: 24.0, 4: 24.5})
BATCHED = a_load("batched", {10.0: 0.03, 20.0: 0.03, 40.0: 0.05}, {1: 10.0, 2: 24.5, 4: 50.0})


def test_a_section_has_the_loads_the_breakpoints_and_a_chart() -> None:
    (section,) = load_sections([SINGLE, BATCHED])
    assert section.title == "Server, p99 within 50.0 ms"
    assert section.setting == "cpu, fp32, eager, 224 px, a processor, 2 threads"
    assert section.rows == (
        ("batched", "40 img/s", "39 to 41", "up to 4", "still gaining at 4"),
        ("single", "24 img/s", "23 to 25", "up to 4", "2"),
    )
    assert section.breakpoints == (
        "In batches of 4, batched overtakes single: more images per second.",
        "At 24 img/s, batched overtakes single: a lower p99.",
    )
    assert section.drawing.spec is not None
    (fast,) = load_sections([a_load("fast", {1891.0: 0.02}, {1: 1891.0})])
    assert fast.rows[0][1:3] == ("1,891 img/s", "1,890 to 1,892")
    assert "not results of MLPerf" in section.drawing.caption


def test_a_multi_stream_is_drawn_with_all_its_query_sizes() -> None:
    sizes = {1: (20.0, 0.05), 2: (24.0, 0.08), 4: (23.0, 0.17)}
    rates = tuple(msgspec.structs.replace(point(*each), largest_batch=size) for size, each in sizes.items())
    slow = a_load("slow", {24.0: 0.08}, {1: 20.0}, scenario="multi-stream", largest_batch=2)
    slow = msgspec.structs.replace(
        slow, load=LoadCurves(rates, (BatchPoint(batch_size=1, throughput=20, latency=0.05),))
    )
    (compared,) = load_comparisons([slow])
    assert [(point.largest_batch, point.rate) for point in compared.curves[0].rates] == [(1, 20), (2, 24), (4, 23)]
    (section,) = load_sections([slow])
    assert "with each query size" in section.drawing.caption


def test_runtimes_and_limits_are_not_compared_with_each_other() -> None:
    other = a_load("batched", {10.0: 0.03}, {1: 10.0}, runtime="openvino")
    looser = a_load("batched", {10.0: 0.03}, {1: 10.0}, p99_limit=0.1)
    compared = load_comparisons([SINGLE, other, looser])
    assert [len(one.curves) for one in compared] == [1, 1, 1]
    assert all(breakpoints(one) == () for one in compared)


def test_the_last_test_of_a_model_counts_and_failures_do_not() -> None:
    again = a_load("single", {30.0: 0.05}, {1: 30.0})
    failed = Record(name="x", model=CardFields(), task="load", source="measured", status="failed", reason="why")
    (compared,) = load_comparisons([SINGLE, again, failed])
    assert [(curve.name, curve.max_qps) for curve in compared.curves] == [("single", 30.0)]


def test_a_load_without_a_rate_that_keeps_the_limit_is_drawn_by_its_batches() -> None:
    none = a_load("slow", {0.5: 1.0}, {1: 2.0})
    curves = LoadCurves(batches=none.load.batches if none.load else ())
    (section,) = load_sections([msgspec.structs.replace(none, load=curves)])
    assert section.drawing.spec is not None
