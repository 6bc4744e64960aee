"""One measurement: the job, the real worker, and the record of what it found."""

import gc
import json
from dataclasses import replace
from pathlib import Path

import pytest
from msgspec import structs

from favor.machine.clock import WallClock
from favor.machine.device import Cpu, find_device
from favor.machine.messages import Channel, Findings
from favor.machine.process import InterruptedJob
from favor.measurement import head_to_head
from favor.measurement import measure as measuring
from favor.measurement.head_to_head import measure_head_to_head
from favor.measurement.job import MeasureJob
from favor.measurement.measure import Interrupted, measure
from favor.records.rounds import pairs
from favor.records.schema import from_data, to_data
from favor.records.store import append, read
from favor.text import cut_to_line
from measurement.test_phases import a_job

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


@register([Variant("meter_mini"), Variant("meter_mini_too")], title="Mini", how=None, year=2026, paper=None,
          changes="Small.", image_sizes=ImageSizes(default=32))
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


def quick(name: str, **changes) -> MeasureJob:
    from favor.zoo.registry import loaded_plugins

    plugins = tuple(str(file) for file in loaded_plugins())
    usual = {"num_classes": 10, "budget": 0.5, "threads": 1, "time_limit": 120.0, "img_size": 32, "plugins": plugins}
    return replace(a_job(name=name), **usual | changes)


def test_a_real_child_measures_a_small_model_whatever_it_prints(plugin):
    steps = []
    record = measure(quick("meter_mini"), steps.append)
    assert (record.status, record.reason) == ("ok", None)
    assert {"imports", "building", "latency", "memory", "throughput_search", "throughput"} <= set(steps)
    value = {name: reading.value for name, reading in record.metrics.items()}
    quantiles = ("latency_p50", "latency_p90", "latency_p99")
    known = [value[name] for name in quantiles if name in value]
    assert 0 < known[0] <= known[-1]
    assert known == sorted(known)
    # On a busy machine there may be too few calls.
    assert [name for name in quantiles if f"{name}_missing" not in record.environment] == list(quantiles[: len(known)])
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


def test_real_children_take_turns_and_their_records_can_be_compared_round_by_round(plugin):
    names = ("meter_mini", "meter_mini_too", "meter_greedy")
    found = measure_head_to_head([quick(name, memory_limit=2**31) for name in names], 3.0, WallClock(), processors=2)
    assert [(record.name, record.status) for record in found] == [(name, "ok") for name in names[:2]]
    assert len({record.environment["stretch"] for record in found}) == 1
    rounds = [len(record.environment["round_throughput"].split()) for record in found]
    assert rounds[0] == rounds[1] >= 1
    assert {"latency_p50", "throughput", "best_batch_size", "inference_memory"} <= found[0].metrics.keys()
    quiet = [_without_busy_rounds(record) for record in found]
    assert len(pairs(*quiet).ratios) == rounds[0]


def _without_busy_rounds(record):
    return structs.replace(record, environment={**record.environment, "busy_rounds": ""})


def test_a_real_child_that_wants_more_memory_than_its_limit_is_out_of_memory(plugin):
    if find_device("cpu").total_memory() < 2**32:
        pytest.skip("the machine has too little memory to limit it")
    record = measure(quick("meter_greedy", memory_limit=3 * 2**30, img_size=224))
    assert record.status == "out_of_memory"
    assert "latency: " in record.reason
    assert "allocate" in record.reason
    assert record.environment["memory_limit_on"] == "private memory"


@pytest.mark.parametrize(("limit", "flags"), [(2**20, ["memory_limit:exceeded"]), (2**50, [])])
def test_a_resident_peak_above_the_limit_is_flagged(limit, flags, monkeypatch):
    from favor.machine import environment
    from favor.measurement import worker

    findings = Findings()
    monkeypatch.setattr(Cpu, "limit_memory", lambda self, limit: None)
    monkeypatch.setattr(environment, "look_at_load", lambda: 0.0)
    monkeypatch.setattr(environment, "others_between", lambda before, after: 0.0)
    monkeypatch.setattr(worker, "measure_phase", lambda bench, job: None)
    try:
        worker.measure(a_job(memory_limit=limit), Channel(findings.take))
    finally:
        gc.unfreeze()
    assert findings.flags == flags
    assert findings.environment["memory_limit_on"] == "nothing"


def test_a_real_child_says_at_which_operating_point_it_trains(monkeypatch):
    from favor.measurement import worker
    from favor.measurement.bench import Bench
    from measurement.fakes import FakeClock

    findings = Findings()
    monkeypatch.setattr("favor.measurement.training.measure_training", lambda bench, workload, job: None)
    bench = Bench(Cpu(), FakeClock(), Channel(findings.take), budget=1.0)
    worker.measure_phase(bench, a_job(name="avit_ti16", phase="training", img_size=32, batch_size=2))
    assert findings.conditions["survival"].startswith("by halting scores")
    assert findings.conditions["imposed_mean_survival"] == 0.75


def test_a_job_survives_the_way_to_the_worker():
    job = a_job(plugins=("a:b.py", "ü.py"), fit_memory=2**33)
    assert MeasureJob.from_json(job.to_json()) == job


def test_the_best_batch_and_a_given_one_are_different_conditions_and_numbers_stay_numbers():
    assert "batch_size" not in a_job(batch_size=None).conditions
    assert a_job(batch_size=4).conditions["batch_size"] == 4
    assert a_job(batch_size=None).conditions["batch"] == "best"


def test_limits_that_are_not_given_are_set_when_the_job_starts(monkeypatch):
    asked = []

    def supervise(command, request, **options):
        asked.append((json.loads(request), options["time_limit"]))
        return Findings(status="ok")

    monkeypatch.setattr(measuring, "supervise", supervise)
    measure(a_job(budget=2.0))
    measure(a_job(budget=2.0, runtime="compile", time_limit=9.0, memory_limit=2**40))
    (first, its_time), (second, second_time) = asked
    assert (its_time, first["time_limit"], second_time) == (210.0, 210.0, 9.0)
    assert 0 < first["memory_limit"] < find_device("cpu").total_memory()
    assert second["memory_limit"] == 2**40


def test_each_worker_that_compiles_starts_with_empty_caches_of_its_own(tmp_path, monkeypatch):
    monkeypatch.setenv("TORCHINDUCTOR_CACHE_DIR", str(tmp_path))
    monkeypatch.setenv("TRITON_CACHE_DIR", str(tmp_path))
    (tmp_path / "kernel.so").touch()
    caches = []

    def supervised(environment):
        inductor, triton = (Path(environment[f"{compiler}_CACHE_DIR"]) for compiler in ("TORCHINDUCTOR", "TRITON"))
        caches.append(inductor)
        assert triton.is_relative_to(inductor)
        assert not list(inductor.iterdir())
        return Findings(status="ok")

    def supervised_in_turns(command, requests, *, environments, **_):
        return tuple(supervised(environment) for environment in environments)

    monkeypatch.setattr(measuring, "supervise", lambda *_, environment, **__: supervised(environment))
    monkeypatch.setattr(head_to_head, "supervise_in_turns", supervised_in_turns)
    job = a_job(runtime="compile")
    measure(job)
    measure_head_to_head([job, job], 1.0, WallClock(), processors=2)
    assert len(set(caches)) == 3
    assert not any(cache.exists() for cache in caches)
    assert [file.name for file in tmp_path.iterdir()] == ["kernel.so"]


def test_what_an_interrupted_measurement_had_found_is_in_its_record(monkeypatch):
    findings = Findings(status="failed", reason="throughput: interrupted")
    Channel(findings.take).found("latency_p50", 0.5, "test")

    def interrupted(*arguments, **options):
        raise InterruptedJob(findings)

    monkeypatch.setattr(measuring, "supervise", interrupted)
    with pytest.raises(Interrupted) as caught:
        measure(a_job())
    assert (caught.value.record.status, caught.value.record.reason) == ("failed", "throughput: interrupted")
    assert caught.value.record.metrics["latency_p50"].value == 0.5


def test_flags_are_on_the_record_once_each(monkeypatch):
    findings = Findings(status="ok", flags=["busy", "latency:drift", "busy"])
    monkeypatch.setattr(measuring, "supervise", lambda *arguments, **options: findings)
    assert measure(a_job()).environment["flags"] == "busy latency:drift"


def test_a_record_can_be_stored(tmp_path, monkeypatch):
    findings = Findings(conditions={"survival": "imposed"})
    channel = Channel(findings.take)
    channel.found("throughput", 12.5, "test")
    channel.done()
    monkeypatch.setattr(measuring, "supervise", lambda *arguments, **options: findings)
    record = measure(a_job(name="avit_s16"))
    append(tmp_path, [record])
    assert read(tmp_path).records == (record,)
    assert record.conditions["survival"] == "imposed"
    assert record.model.how == "removal"


def test_a_reason_is_one_line_of_bounded_length():
    assert cut_to_line("a\n  b\t c") == "a b c"
    assert len(cut_to_line("x" * 1000)) == 300
