"""From what is asked to records: requests, what is there already, and the real child process."""

import gc
import json
from dataclasses import replace
from pathlib import Path

import pytest
from msgspec import structs

from favor.errors import RequestError
from favor.machine.device import Cpu, find_device
from favor.machine.messages import Channel, Findings, one_line
from favor.machine.process import InterruptedMeasurement
from favor.measure import meters, training
from favor.measure.meters import Interrupted, Measured, find_done, measure, measure_all, requests_for
from favor.measure.request import Request, Settings
from favor.records.schema import Record, from_data, to_data
from favor.records.store import append, read
from measure.test_phases import a_request

PLUGIN = """
import sys
import torch
from favor import register
from favor.zoo.encoder import Encoder, Size
from favor.zoo.registry import ImageSizes, Variant

print("rubbish {on stdout")
print("rubbish on stderr", file=sys.stderr)


class Greedy(torch.nn.Module):
    def __init__(self):
        super().__init__()
        self.head = torch.nn.Linear(3, 10)

    def forward(self, images):
        kept = torch.ones(2**32)  # 16 GiB
        return self.head(images.mean((2, 3))) + kept.sum()


@register([Variant("meter_mini")], title="Mini", how=None, year=2026, paper=None, changes="Small.",
          image_sizes=ImageSizes(default=32))
def meter_mini(**options):
    print("more rubbish")
    return Encoder(Size(48, 2, 3), **options)


@register([Variant("meter_greedy")], title="Greedy", how=None, year=2026, paper=None, changes="Wants 16 GiB.")
def meter_greedy(num_classes, img_size, in_chans, drop_path):
    return Greedy()
"""


@pytest.fixture(scope="module")
def plugin(tmp_path_factory) -> Path:
    from favor.zoo.registry import load_plugin

    file = tmp_path_factory.mktemp("plugin") / "meter_models.py"
    file.write_text(PLUGIN)
    load_plugin(file)
    return file  # its models stay for the other tests of this process, which must not mind


def quick(name: str, **changes) -> Request:
    settings = Settings(num_classes=10, budget=0.5, threads=1, device="cpu")
    return replace(requests_for([name], settings, Cpu())[0], time_limit=120.0, **changes)


def test_a_real_child_measures_a_small_model_whatever_it_prints(plugin):
    steps = []
    record = measure(quick("meter_mini"), steps.append)
    assert (record.status, record.reason) == ("ok", None)
    assert {"imports", "building", "latency", "memory", "throughput_search", "throughput"} <= set(steps)
    value = {name: reading.value for name, reading in record.metrics.items()}
    assert 0 < value["latency_p50"] <= value["latency_p90"] <= value["latency_p99"]
    assert value["throughput"] > 0
    assert value["best_batch_size"] >= 1
    weights = 4 * (48 * 768 + 48 * 2 + 2 * 4 * 48 * 48)
    assert weights < value["inference_memory"] < value["memory_process"]
    assert record.model.origin == "plugin"
    assert record.conditions["img_size"] == 32
    assert record.conditions["fused"] is False
    assert record.environment["threads"] == 1
    assert {"others_before", "others_during", "throughput_search_curve", "flags"} <= record.environment.keys()
    assert from_data(json.loads(json.dumps(to_data(record)))) == record


def test_a_real_child_that_wants_more_memory_than_its_limit_is_out_of_memory(plugin):
    if find_device("cpu").total_memory() < 2**32:
        pytest.skip("the machine has too little memory to limit it")
    record = measure(quick("meter_greedy", memory_limit=3 * 2**30, num_classes=10))
    assert record.status == "out_of_memory"
    assert "latency: " in record.reason
    assert "allocate" in record.reason
    assert record.environment["memory_limit_on"] == "private memory"


@pytest.mark.parametrize(("limit", "flags"), [(2**20, ["memory_limit:exceeded"]), (2**50, [])])
def test_a_resident_peak_above_the_limit_is_flagged(limit, flags, monkeypatch):
    from favor.machine import environment
    from favor.measure import worker

    findings = Findings()
    monkeypatch.setattr(Cpu, "limit_memory", lambda self, limit: None)
    monkeypatch.setattr(environment, "look_at_load", lambda: 0.0)
    monkeypatch.setattr(environment, "others_between", lambda before, after: 0.0)
    monkeypatch.setattr(worker, "_measure_phase", lambda bench, request: None)
    try:
        worker._measure(a_request(memory_limit=limit), Channel(findings.take))
    finally:
        gc.unfreeze()
    assert findings.flags == flags
    assert findings.environment["memory_limit_on"] == "nothing"


def test_a_real_child_says_at_which_operating_point_it_trains(monkeypatch):
    from favor.measure import worker
    from favor.measure.bench import Bench
    from measure.fakes import FakeClock

    findings = Findings()
    monkeypatch.setattr(training, "measure_training", lambda bench, workload, request: None)
    bench = Bench(Cpu(), FakeClock(), Channel(findings.take), budget=1.0)
    worker._measure_phase(bench, a_request(name="avit_ti16", phase="training", img_size=32, batch_size=2))
    assert findings.conditions["survival"].startswith("by halting scores")
    assert findings.conditions["imposed_mean_survival"] == 0.75


def test_each_model_is_asked_for_in_each_phase_at_its_own_image_size(plugin):
    settings = Settings(phases=("inference", "training"), device="cpu")
    asked = requests_for(["meter_mini", "vit_ti16"], settings, Cpu())
    assert [(request.name, request.phase, request.img_size) for request in asked] == [
        ("meter_mini", "inference", 32),
        ("meter_mini", "training", 32),
        ("vit_ti16", "inference", 224),
        ("vit_ti16", "training", 224),
    ]
    assert [request.batch_size for request in asked] == [None, 8, None, 8]
    assert all(str(plugin) in request.plugins for request in asked)


def test_a_size_that_a_model_cannot_take_is_refused_before_anything_starts():
    with pytest.raises(RequestError, match="multiple of 16"):
        requests_for(["vit_ti16"], Settings(img_size=225), Cpu())


@pytest.mark.parametrize(
    ("change", "why"),
    [
        ({"precision": "fp31"}, "unknown precision 'fp31'; did you mean 'fp32'"),
        ({"optimizer": "lambda"}, "unknown optimizer 'lambda'; did you mean 'lamb'"),
        ({"batch_size": 0}, "batch size must be 1 or more"),
        ({"budget": 0.0}, "budget must be a number of seconds above zero"),
        ({"price_per_hour": -1.0}, "price per hour must be a number from zero up"),
    ],
)
def test_what_cannot_be_measured_is_refused(change, why):
    with pytest.raises(RequestError, match=why):
        a_request(**change)


@pytest.mark.parametrize(
    ("change", "why"),
    [
        ({"threads": 0}, "number of threads must be 1 or more, not 0"),
        ({"time_limit": 0.0}, "time limit must be a number of seconds above zero, not 0.0"),
        ({"memory_limit": 0}, "memory limit in bytes must be 1 or more, not 0"),
        ({"memory_limit": -5}, "memory limit in bytes must be 1 or more, not -5"),
        ({"fit_memory": -5}, "memory to fit in bytes must be 1 or more, not -5"),
        ({"batch_size": 10**20}, "batch size must be 2147483647 or less"),
        ({"precision": "fp31"}, "unknown precision 'fp31'"),
    ],
)
def test_what_cannot_be_asked_for_is_refused_in_settings_and_requests_and_never_replaced(change, why):
    with pytest.raises(RequestError, match=why):
        Settings(**change)
    with pytest.raises(RequestError, match=why):
        a_request(**change)


def test_a_request_survives_the_way_to_the_child():
    request = a_request(plugins=("a:b.py", "ü.py"), fit_memory=2**33)
    assert Request.from_json(request.to_json()) == request


def test_the_best_batch_and_a_given_one_are_different_conditions_and_numbers_stay_numbers():
    assert "batch_size" not in a_request(batch_size=None).conditions()
    assert a_request(batch_size=4).conditions()["batch_size"] == 4
    assert a_request(batch_size=None).conditions()["batch"] == "best"


def a_machine(request: Request) -> dict:
    import torch

    return {"device_name": Cpu().name, "torch": str(torch.__version__), "threads": request.threads}


def a_record(request: Request, **changes) -> Record:
    findings = Findings(status="ok", environment=a_machine(request), conditions={"fused": False})
    from datetime import UTC, datetime

    return structs.replace(meters._record(request, findings, datetime.now(UTC)), **changes)


def test_what_was_measured_on_this_machine_is_done():
    request = a_request()
    record = a_record(request)
    assert find_done(request, Cpu(), [record]) == record
    later_by_an_earlier_clock = a_record(request, time="2020-01-01T00:00:00Z")
    assert find_done(request, Cpu(), [record, later_by_an_earlier_clock]) == later_by_an_earlier_clock


@pytest.mark.parametrize(
    "changes",
    [
        {"status": "failed", "reason": "x"},
        {"source": "simulated"},
        {"name": "vit_b16"},
        {"task": "training"},
        {"environment": {"device_name": "another", "threads": 2}},
    ],
)
def test_what_failed_or_was_another_model_phase_or_machine_is_not_done(changes):
    request = a_request()
    assert find_done(request, Cpu(), [a_record(request, **changes)]) is None


@pytest.mark.parametrize("change", [{"precision": "bf16"}, {"batch_size": 8}, {"fit_memory": 2**30}, {"threads": 1}])
def test_what_was_asked_otherwise_is_not_done(change):
    assert find_done(a_request(**change), Cpu(), [a_record(a_request())]) is None


def test_another_budget_does_not_make_it_another_request():
    assert find_done(a_request(budget=5.0), Cpu(), [a_record(a_request())]) is not None


def test_a_sweep_keeps_records_as_they_come_and_goes_on_where_it_stopped(tmp_path, monkeypatch):
    measured = []

    def pretend(request, on_step):
        measured.append(request.name)
        on_step("latency")
        if request.name == "vit_b16" and len(measured) == 2:
            raise Interrupted(structs.replace(a_record(request), status="failed", reason="latency: interrupted"))
        return a_record(request)

    monkeypatch.setattr(meters, "measure", pretend)
    requests = [a_request(name=name) for name in ("vit_ti16", "vit_b16", "vit_l16")]
    with pytest.raises(Interrupted):
        list(measure_all(requests, Cpu(), tmp_path))
    assert [record.name for record in read(tmp_path).records] == ["vit_ti16"]
    again = list(measure_all(requests, Cpu(), tmp_path))
    assert [each.was_there for each in again] == [True, False, False]
    assert measured == ["vit_ti16", "vit_b16", "vit_b16", "vit_l16"]


def test_what_an_interrupted_measurement_had_found_is_kept_as_a_failure(tmp_path, monkeypatch):
    findings = Findings(status="failed", reason="throughput: interrupted")
    Channel(findings.take).found("latency_p50", 0.5, "test")

    def interrupted(*arguments, **options):
        raise InterruptedMeasurement(findings)

    monkeypatch.setattr(meters, "supervise", interrupted)
    with pytest.raises(Interrupted):
        list(measure_all([a_request()], Cpu(), tmp_path))
    (kept,) = read(tmp_path).records
    assert (kept.status, kept.reason) == ("failed", "throughput: interrupted")
    assert kept.metrics["latency_p50"].value == 0.5
    assert find_done(a_request(), Cpu(), [kept]) is None


def test_what_has_a_flag_is_measured_again_on_request_only(tmp_path, monkeypatch):
    flagged, quiet = a_request(name="vit_ti16"), a_request(name="vit_s16")
    busy = structs.replace(
        a_record(flagged), environment=a_machine(flagged) | {"flags": "busy"}, time="2026-01-01T00:00:00Z"
    )
    append(tmp_path, [busy, structs.replace(a_record(quiet), time="2026-01-01T00:00:00Z")])
    monkeypatch.setattr(meters, "measure", lambda request, on_step: a_record(request))
    assert [each.was_there for each in measure_all([flagged, quiet], Cpu(), tmp_path)] == [True, True]
    assert [each.was_there for each in measure_all([flagged, quiet], Cpu(), tmp_path, again=True)] == [False, True]
    # the new record has no flag, so that the same command has nothing more to do
    assert [each.was_there for each in measure_all([flagged, quiet], Cpu(), tmp_path, again=True)] == [True, True]


@pytest.mark.parametrize("study", ["a_file", "a_file/study"])
def test_a_study_that_cannot_be_written_to_is_refused_before_anything_is_measured(study, tmp_path, monkeypatch):
    (tmp_path / "a_file").write_text("not a folder")
    monkeypatch.setattr(meters, "measure", lambda request, on_step: pytest.fail("measured for nothing"))
    with pytest.raises(RequestError, match="cannot write records to .*; name a folder"):
        list(measure_all([a_request()], Cpu(), tmp_path / study))
    assert (tmp_path / "a_file").read_text() == "not a folder"


def test_lines_of_a_study_that_cannot_be_read_are_told(tmp_path, monkeypatch):
    (tmp_path / "records.jsonl").write_text("rubbish\n")
    monkeypatch.setattr(meters, "measure", lambda request, on_step: a_record(request))
    with pytest.warns(UserWarning, match="records.jsonl:1: corrupt line, skipped"):
        list(measure_all([], Cpu(), tmp_path))
    problems = []
    assert len(list(measure_all([a_request()], Cpu(), tmp_path, on_problem=problems.append))) == 1
    assert [problem.line for problem in problems] == [1]


def test_a_failure_is_a_record_and_the_next_one_goes_on(tmp_path, monkeypatch):
    outcomes = iter([Findings(status="timeout", reason="latency: not done after 1 s"), Findings(status="ok")])
    monkeypatch.setattr(meters, "supervise", lambda *arguments, **options: next(outcomes))
    done = list(measure_all([a_request(name="vit_ti16"), a_request(name="vit_s16")], Cpu(), tmp_path))
    assert [each.record.status for each in done] == ["timeout", "ok"]
    assert all(isinstance(each, Measured) for each in done)
    assert [record.status for record in read(tmp_path).records] == ["timeout", "ok"]


def test_flags_are_on_the_record_once_each(monkeypatch):
    findings = Findings(status="ok", flags=["busy", "latency:drift", "busy"])
    monkeypatch.setattr(meters, "supervise", lambda *arguments, **options: findings)
    assert measure(a_request()).environment["flags"] == "busy latency:drift"


def test_a_record_can_be_stored(tmp_path, monkeypatch):
    findings = Findings(conditions={"survival": "imposed"})
    channel = Channel(findings.take)
    channel.found("throughput", 12.5, "test")
    channel.done()
    monkeypatch.setattr(meters, "supervise", lambda *arguments, **options: findings)
    record = measure(a_request(name="avit_s16"))
    append(tmp_path, [record])
    assert read(tmp_path).records == (record,)
    assert record.conditions["survival"] == "imposed"
    assert record.model.how == "removal"


def test_a_reason_is_one_line_of_bounded_length():
    assert one_line("a\n  b\t c") == "a b c"
    assert len(one_line("x" * 1000)) == 300
