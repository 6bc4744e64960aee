"""`favor measure --for`: only what could be the answer is measured, through the one runner."""

import json
import math
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from msgspec.structs import replace
from typer.testing import CliRunner, Result

from favor.analyze.flags import DISTURBED, UNSTEADY
from favor.analyze.intervals import UNKNOWN, Z
from favor.analyze.targeting import SURE, Candidate
from favor.cli import app
from favor.errors import RequestError
from favor.evidence import load_evidence
from favor.machine.device import find_device
from favor.machine.energy import EnergySource
from favor.machine.environment import usable_threads
from favor.measurement.job import MeasureJob
from favor.records.counted import counted_records
from favor.records.schema import CardFields, Record, reading
from favor.records.store import append, read
from favor.study.local_executor import LocalExecutor
from favor.study.options import study_from_options
from favor.study.resolve import machine_of
from favor.study.resolved import ResolvedStudy
from favor.study.targeted import measure_for, measured_in, question, targets

MACS = {record.name: record.metrics["macs"].value for record in counted_records()}
SURPRISE = dict(zip(sorted(MACS), np.exp(np.random.default_rng(3).normal(0, 0.25, len(MACS))), strict=True))


def seconds(name: str) -> float:
    """A made-up time that multiply-adds do not tell exactly."""
    return float(MACS[name] / 1e11 * SURPRISE[name])


@pytest.fixture
def ran(monkeypatch: pytest.MonkeyPatch) -> list[MeasureJob]:
    """The jobs that an executor with made-up times did."""
    machine, jobs = machine_of(find_device("cpu"), usable_threads()), []

    def execute(self: LocalExecutor, job: MeasureJob, budget: float, *_: object) -> tuple[Record, ...]:
        jobs.append(job)
        latency, width = seconds(job.name), 0.02 * math.sqrt(20 / budget)
        metrics = {"latency_p50": latency, "throughput": 1 / latency, "inference_memory": 1e8}
        record = Record(
            name=job.name,
            model=CardFields(),
            task="inference",
            source="measured",
            conditions=job.conditions,
            metrics={
                key: reading(key, value, value * (1 - width), value * (1 + width), method="made up")
                for key, value in metrics.items()
            },
            environment={
                "device_name": machine.device_name,
                "torch": machine.torch,
                "threads": machine.threads,
                "budget": budget,
            },
        )
        return (record,)

    monkeypatch.setattr(LocalExecutor, "execute", execute)
    return jobs


def run(*words: str) -> Result:
    return CliRunner(env={"COLUMNS": "200"}).invoke(app, ["measure", *words])


def test_few_models_are_measured_and_the_answer_is_that_of_all(ran: list[MeasureJob], tmp_path: Path) -> None:
    done = run("--for", "min-accuracy=80 prefer=latency", "--study", str(tmp_path), "--json")
    assert done.exit_code == 0, done.output + str(done.exception)
    told = json.loads(done.stdout)
    everyone = targets(load_evidence()[0], question("min-accuracy=80 prefer=latency", None), "a processor")
    fastest = min(everyone, key=lambda one: seconds(one.name))
    assert told["answer"]["favored"]["name"] == fastest.name
    assert len(told["measured"]) <= 0.4 * told["candidates"]
    assert {record.name for record in read(tmp_path).records} == {job.name for job in ran}


def test_the_same_command_measures_nothing_twice(ran: list[MeasureJob], tmp_path: Path) -> None:
    words = ("--for", "min-accuracy=80 prefer=latency", "--study", str(tmp_path))
    assert run(*words).exit_code == 0
    first = len(ran)
    again = run(*words)
    assert again.exit_code == 0
    assert len(ran) == first
    assert "Favored:" in again.output


def test_no_model_below_the_accuracy_is_measured(ran: list[MeasureJob], tmp_path: Path) -> None:
    done = run("--for", "min-accuracy=81.5 prefer=throughput", "--study", str(tmp_path), "--json")
    assert done.exit_code == 0, done.output
    choices = json.loads(done.stdout)["answer"]
    assert choices["favored"]["metrics"]["top1"]["value"] >= 81.5


@pytest.mark.parametrize(
    ("words", "why"),
    [
        (("--for", "prefer=latency"), "name it with --study"),
        (("--for", "prefer=speed", "--study", "s"), "preference"),
        (("--for", "fastest", "--study", "s"), "is not OPTION=VALUE"),
        (("--for", "min-accuracy=80", "--study", "s"), "`favor recommend` answers it at once"),
        (("--for", "prefer=training-time", "--study", "s"), "not a metric of inference"),
        (("--for", "prefer=latency", "--study", "s", "vit_s16"), "use --among PATTERN"),
        (("--for", "prefer=latency", "--study", "s", "--phase", "training"), "leave out"),
        (("--for", "prefer=latency", "--study", "s", "--runtime", "eager", "--runtime", "compile"), "one runtime"),
        (
            ("--for", "prefer=latency", "--study", "s", "--runtime", "openvino", "--precision", "int8"),
            "unknown in int8",
        ),
        (("--for", "prefer=energy", "--study", "s", "--no-energy"), "--no-energy turns off"),
        (("--among", "timm", "vit_s16"), "--among needs --for"),
        ((), "name a model"),
    ],
)
def test_a_wrong_question_is_refused_in_one_line(
    words: tuple[str, ...], why: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.chdir(tmp_path)
    done = run(*words)
    assert isinstance(done.exception, RequestError), done.output
    assert why in str(done.exception)
    assert "\n" not in str(done.exception)


def test_an_accuracy_that_no_model_reaches_is_refused_before_anything_is_measured(
    ran: list[MeasureJob], tmp_path: Path
) -> None:
    done = run("--for", "min-accuracy=99.9 prefer=latency", "--study", str(tmp_path / "s"))
    assert "no model meets the limits" in str(done.exception)
    assert ran == []


def test_among_timm_the_candidates_are_networks_with_weights_at_the_image_size_of_the_accuracy() -> None:
    request = question("min-accuracy=84 prefer=latency", "timm")
    found = targets(load_evidence(timm=True)[0], request, "a processor")
    assert all(one.name.startswith("timm:") and one.known["top1"] >= 84 for one in found)
    assert {one.img_size for one in found} > {224, 288, 384}
    found = [one for one in found if one.deviation == 0.0]  # with a simulation
    times = {(one.name, one.img_size): one for one in found}

    def measure(name: str, img_size: int, budget: float) -> Record:
        value = math.exp(times[name, img_size].predictors["latency_p50"][0]) * 1.5
        metrics = {"latency_p50": reading("latency_p50", value, value * 0.98, value * 1.02, method="made up")}
        return Record(name, CardFields(), "inference", "measured", {"img_size": img_size}, metrics)

    answered = measure_for(found, request, {}, measure, 20.0)
    fastest = min(found, key=lambda one: one.predictors["latency_p50"][0])
    assert answered.favored == fastest
    assert len(answered.measured) < 0.1 * len(found)


def test_a_question_about_energy_is_refused_before_anything_is_measured_where_no_meter_is_found(
    ran: list[MeasureJob], tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    none = (EnergySource("rapl", False, "no counters"),)
    monkeypatch.setattr("favor.machine.energy.energy_sources", lambda *_: none)
    done = run("--for", "prefer=energy", "--study", str(tmp_path))
    assert isinstance(done.exception, RequestError), done.output
    assert "no meter here (rapl: no counters)" in str(done.exception)
    assert ran == []


@pytest.mark.parametrize(
    ("condition", "other", "asked"), [("runtime", "openvino", "eager"), ("precision", "bf16", "fp32")]
)
def test_the_answer_is_in_the_runtime_and_the_precision_that_were_measured(
    condition: str, other: str, asked: str, ran: list[MeasureJob], tmp_path: Path
) -> None:
    words = ("--for", "min-accuracy=80 prefer=latency", "--study", str(tmp_path), "--json")
    assert run(*words).exit_code == 0
    faster = []
    for record in read(tmp_path).records:
        latency = record.metrics["latency_p50"].value / 10
        metrics = {"latency_p50": reading("latency_p50", latency, 0.99 * latency, 1.01 * latency, method="made up")}
        faster.append(replace(record, conditions={**record.conditions, condition: other}, metrics=metrics))
    append(tmp_path, faster)
    again = run(*words)
    assert again.exit_code == 0, again.output + str(again.exception)
    assert json.loads(again.stdout)["answer"]["favored"][condition] == asked


def test_a_model_that_the_installed_timm_does_not_have_is_left_out_and_the_next_one_is_measured(
    ran: list[MeasureJob], tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    words = ("--for", "min-accuracy=80 prefer=latency", "--json", "--study")
    whole = json.loads(run(*words, str(tmp_path / "whole")).stdout)
    missing = whole["answer"]["favored"]["name"]
    ran.clear()

    def resolved(*words: Any) -> ResolvedStudy:
        if missing in words[1]:
            raise RequestError(f"unknown model {missing!r}")
        return study_from_options(*words)

    monkeypatch.setattr("favor.study.options.study_from_options", resolved)
    for folder in ("part", "whole"):
        done = run(*words, str(tmp_path / folder))
        assert done.exit_code == 0, done.output + str(done.exception)
    assert ran
    assert missing not in [job.name for job in ran]


def predicted(name: str, latency: float) -> Candidate:
    return Candidate(name, 224, name, {"top1": 80.0, "params": 1e7}, {"latency_p50": (math.log(latency),)})


def timed(name: str, latency: float, flags: str = "", width: float | None = 0.02) -> Record:
    ends: tuple[float, ...] = () if width is None else (latency * (1 - width), latency * (1 + width))
    metrics = {"latency_p50": reading("latency_p50", latency, *ends, method="made up")}
    conditions, environment = {"img_size": 224}, {"flags": flags}
    return Record(name, CardFields(), "inference", "measured", conditions, metrics, environment=environment)


FASTEST = question("prefer=latency", None)
FAST, SLOW = predicted("fast", 0.08), predicted("slow", 0.1)


def test_a_disturbed_measurement_is_repeated_with_the_same_budget_before_it_counts() -> None:
    budgets = []

    def measure(name: str, img_size: int, budget: float) -> Record:
        if name == "slow":
            return timed("slow", 0.1)
        budgets.append(budget)
        return timed("fast", 0.4, "busy") if len(budgets) == 1 else timed("fast", 0.08)

    answered = measure_for([FAST, SLOW], FASTEST, {}, measure, 20.0)
    assert answered.favored == FAST
    assert answered.certainty == "100% sure"
    assert budgets == [5.0, 5.0]


def test_a_disturbed_measurement_of_an_earlier_run_is_made_again() -> None:
    known = {("fast", 224): timed("fast", 0.4, "busy"), ("slow", 224): timed("slow", 0.1)}
    answered = measure_for([FAST, SLOW], FASTEST, known, lambda name, img_size, budget: timed(name, 0.08), 20.0)
    assert answered.favored == FAST


def test_a_model_that_is_disturbed_twice_leaves_the_answer_open() -> None:
    def measure(name: str, img_size: int, budget: float) -> Record:
        return timed("slow", 0.1) if name == "slow" else timed("fast", 0.4, "busy")

    assert measure_for([FAST, SLOW], FASTEST, {}, measure, 20.0).chance < SURE


def test_an_answer_is_not_called_sure_while_a_measurement_says_nothing() -> None:
    def measure(name: str, img_size: int, budget: float) -> Record:
        return timed("slow", 0.1) if name == "slow" else timed("fast", 0.4, "busy", width=None)

    answered = measure_for([FAST, SLOW], FASTEST, {}, measure, 20.0)
    assert answered.open == (FAST,)
    assert answered.certainty.startswith("not sure, since other programs disturbed fast")


OWN = math.log(1.02 / 0.98) / (2 * Z)


@pytest.mark.parametrize(
    ("flags", "width", "deviation"),
    [
        ("", 0.02, OWN),
        ("", None, UNKNOWN / Z),
        ("latency:drift", 0.02, math.hypot(OWN, UNSTEADY)),
        ("busy", 0.02, math.hypot(OWN, DISTURBED / Z)),
        ("throughput:drift", 0.02, OWN),
    ],
)
def test_flags_and_a_missing_interval_widen_a_number_as_in_the_answer(
    flags: str, width: float | None, deviation: float
) -> None:
    found = measured_in(timed("fast", 0.4, flags, width), ("latency_p50",))
    assert found.values["latency_p50"] == (0.4, pytest.approx(deviation))
