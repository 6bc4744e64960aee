"""Doubts about a number reach every answer that rests on it, and what is suggested to measure removes them."""

import shlex
from collections.abc import Callable
from pathlib import Path

import pandas as pd
import pytest
from msgspec.structs import replace
from typer.testing import CliRunner

import favor
from favor.analyze import Request, recommend
from favor.analyze.flags import flags_on
from favor.analyze.limits import Limit
from favor.analyze.recommendation import Recommendation
from favor.cli import app
from favor.measurement.job import MeasureJob
from favor.metrics import METRICS
from favor.records import Record, append, gather, reading, table_of
from favor.records.loading import with_shipped
from favor.records.published import card_fields
from favor.study import running
from favor.study.plan import jobs_of
from favor.study.resolved import ResolvedStudy

WideTable = Callable[..., pd.DataFrame]
FAST = Request("throughput")


def measured(name: str, flags: str = "", task: str = "inference", runtime: str = "eager", **metrics: object) -> Record:
    """A measurement on two threads: a metric is a value, or a value with the share to the ends of its interval."""
    readings = {}
    for metric, found in metrics.items():
        value, *share = found if isinstance(found, tuple) else (found,)
        readings[metric] = reading(
            metric, value, *(value * (1 + sign * share[0]) for sign in (-1, 1) if share), method=""
        )
    conditions = {"img_size": 224, "num_classes": 1000, "device": "cpu", "precision": "fp32", "batch": "best"}
    return Record(
        name=name,
        model=card_fields()[name],
        task=task,
        source="measured",
        conditions=conditions | {"runtime": runtime},
        metrics=readings,
        environment={"host": "lab", "device_name": "a processor", "threads": 2, "flags": flags},
    )


def on(device: str, record: Record, source: str = "imported") -> Record:
    return replace(record, source=source, conditions={**record.conditions, "device": device})


def names(answer: Recommendation) -> set[str]:
    return {choice.called for choice in answer.undecided_between}


@pytest.mark.parametrize("flag", ["train_throughput:contradictory", "train_step:drift"])
def test_a_flag_of_a_training_step_concerns_all_that_is_computed_from_its_time(flag: str) -> None:
    concerned = {metric for metric in METRICS if flags_on(metric, flag) is not None}
    assert {
        "train_throughput",
        "train_step_time",
        "train_hours_per_epoch",
        "train_device_hours",
        "finetune_time",
    } < concerned
    assert {"train_energy_per_image", "train_carbon_per_epoch", "train_money"} < concerned
    assert not concerned & {"throughput", "latency_p50", "train_memory", "train_max_batch_size", "top1"}


def test_a_contradictory_training_speed_does_not_decide_by_the_hours_of_an_epoch(tmp_path: Path) -> None:
    def hours(speed: float, **of_speed: float) -> dict[str, object]:
        return {"train_throughput": (speed, 0.02), "train_hours_per_epoch": (1281167 / speed / 3600, 0.02)}

    # The larger one of a family is the faster one.
    speeds = {"vit_s16": 12.0, "vit_ti16": 9.0, "swin_ti": 7.0}
    append(tmp_path, [measured(name, task="training", **hours(speed)) for name, speed in speeds.items()])
    answer = favor.recommend(prefer="training-time", study=tmp_path)
    assert answer.objective == "train_hours_per_epoch"
    assert {choice.name: choice.metrics[answer.objective].flags for choice in answer.choices} == {
        **dict.fromkeys(("vit_s16", "vit_ti16"), "train_throughput:contradictory"),
        "swin_ti": None,
    }
    assert all((choice.probability_best or 0) < 0.9 for choice in answer.choices)


@pytest.mark.parametrize("flag", ["latency:contradictory", "throughput:contradictory"])
def test_a_load_that_is_predicted_from_a_number_in_doubt_does_not_decide(wide_table: WideTable, flag: str) -> None:
    def table(flags: str | None) -> pd.DataFrame:
        rows = [{"name": name, "top1": top1} for name, top1 in (("accurate", 85.0), ("good", 83.0))]
        run = {"source": "measured", "task": "inference", "device": "cpu", "precision": "fp32", "best_batch_size": 4}
        slow = run | {"name": "accurate", "latency_p50": 0.06, "throughput": 25.0, "flags": flags}
        return wide_table(*rows, slow, run | {"name": "good", "latency_p50": 0.01, "throughput": 150.0})

    at_20 = Request(limits=(Limit("qps", "max_qps", "min", 20.0, p99=0.05),))
    sure = recommend(table(None), at_20)
    assert sure.favored is not None
    assert sure.favored.name == "good"
    unsure = recommend(table(flag), at_20)
    assert names(unsure) == {"accurate", "good"}
    assert unsure.to_decide is not None
    assert unsure.to_decide.command == "favor load good accurate --p99 50ms --study my-study"


IN_DOUBT = ("vit_s16", "busy throughput:wide")


def test_a_model_stays_open_for_the_runtime_in_which_its_number_says_nothing(tmp_path: Path) -> None:
    append(
        tmp_path,
        [
            measured("vit_s16", throughput=(10.0, 0.01)),
            measured(*IN_DOUBT, runtime="openvino", throughput=0.5),
            measured("swin_ti", throughput=(12.0, 0.01)),
        ],
    )
    answer = favor.recommend(prefer="throughput", study=tmp_path)
    assert names(answer) == {"swin_ti", "vit_s16 in openvino"}
    assert answer.considered == 2
    step = answer.to_decide
    assert step is not None
    runs = {words[2]: words for words in map(shlex.split, str(step.command).split("; "))}
    assert "openvino" in runs["vit_s16"]
    assert runs["vit_s16"][-2:] == ["--repeat", "flagged"]
    assert "--runtime" not in runs["swin_ti"]


@pytest.mark.parametrize(("eager", "doubtful", "shares"), [(10.0, 9.0, (0.2, 0.8)), (11.9, 2.0, (0.2, 0.8))])
def test_a_busy_number_in_another_runtime_takes_part_beside_the_best_one(
    tmp_path: Path, eager: float, doubtful: float, shares: tuple[float, float]
) -> None:
    append(
        tmp_path,
        [
            measured("vit_s16", throughput=(eager, 0.05)),
            measured(*IN_DOUBT, runtime="openvino", throughput=(doubtful, 0.05)),
            measured("swin_ti", throughput=(12.0, 0.05)),
        ],
    )
    chances = {
        choice.called: choice.probability_best
        for choice in favor.recommend(prefer="throughput", study=tmp_path).choices
    }
    assert set(chances) == {"vit_s16", "vit_s16 in openvino", "swin_ti"}
    assert shares[0] < (chances["swin_ti"] or 0) < shares[1]


def test_a_doubtful_runtime_that_cannot_be_better_is_no_second_row(tmp_path: Path) -> None:
    quiet = {"throughput": (10.0, 0.01), "latency_p50": (0.02, 0.01)}
    append(
        tmp_path,
        [
            *(measured(name, **quiet) for name in ("vit_s16", "swin_ti")),
            measured(*IN_DOUBT, runtime="openvino", throughput=(1.0, 0.01), latency_p50=6.0),
        ],
    )
    for asked in ({"prefer": "throughput"}, {"max_latency": "50ms"}):
        answer = favor.recommend(**asked, study=tmp_path)
        assert {choice.called for choice in answer.choices} == {"vit_s16", "swin_ti"}


def test_a_contradictory_number_does_not_displace_another_runtime(tmp_path: Path) -> None:
    append(
        tmp_path,
        [
            measured("vit_s16", throughput=(11.9, 0.01)),
            measured("vit_s16", "throughput:contradictory", runtime="openvino", throughput=(12.5, 0.01)),
            measured("swin_ti", throughput=(5.0, 0.01)),
        ],
    )
    answer = favor.recommend(prefer="throughput", study=tmp_path)
    assert {choice.called for choice in answer.choices} == {"vit_s16", "vit_s16 in openvino", "swin_ti"}


def test_a_limit_on_a_further_device_is_not_met_on_a_similar_one() -> None:
    here = [measured(name, latency_p50=(0.01, 0.01), inference_memory=1e8) for name in ("vit_s16", "swin_ti")]
    a100 = [on("a100", measured(name, latency_p50=0.001, inference_memory=1e8)) for name in ("vit_s16", "swin_ti")]
    fast = Request("latency", (Limit.named("max_latency", 0.03),), device="cpu", also_on=("a10",))
    answer = recommend(with_shipped([*here, *a100]), fast)
    assert answer.favored is None
    assert "max_latency on a10 cannot be checked: no numbers for latency_p50" in answer.undecided
    # What the device itself says decides, although the similar one knows more.
    a10 = [on("a10", measured(name, latency_p50=value)) for name, value in (("vit_s16", 0.02), ("swin_ti", 0.05))]
    known = with_shipped([*here, *a100, *a10])
    answer = recommend(known, fast)
    assert [choice.name for choice in answer.choices] == ["vit_s16"]
    assert answer.choices[0].metrics["latency_p50@a10"].value == 0.02
    both = Request("latency", (*fast.limits, Limit.named("max_memory", 2e8)), device="cpu", also_on=("a10",))
    assert recommend(known, both).undecided == ("max_memory on a10 cannot be checked: no numbers for inference_memory",)


def binding(folder: Path, **rival: object) -> list[str]:
    """What decides where a limit on memory leaves a slow model only, beside a rival without the limit."""
    flags = str(rival.pop("flags", ""))
    append(
        folder,
        [
            measured("vit_s16", throughput=(60.0, 0.02), inference_memory=1e8),
            measured("swin_ti", flags, **rival, inference_memory=9e8),
        ],
    )
    answer = favor.recommend(prefer="throughput", max_memory="200MB", study=folder)
    assert answer.favored is not None
    assert answer.why is not None
    return [str(one) for one in answer.why.binding]


def test_without_a_limit_another_model_would_be_favored_only_if_the_draws_say_so(tmp_path: Path) -> None:
    would = "max_memory decides: without it swin_ti would be favored"
    may = "max_memory may decide: without it swin_ti may be favored"
    assert binding(tmp_path / "clear", throughput=(90.0, 0.02)) == [would]
    assert binding(tmp_path / "close", throughput=(60.0, 0.02)) == [may]
    assert binding(tmp_path / "busy", throughput=3.0, flags="busy") == [may]
    assert binding(tmp_path / "slow", throughput=(30.0, 0.02)) == []


MODELS = ("vit_s16", "swin_ti", "cvt_13")
STUDIES = {
    "throughput": "measure --precision bf16 --img-size 384 --attention plain --threads 1",
    "throughput of a batch": "measure --batch-size 16 --runtime compile",
    "train_hours_per_epoch": "measure --phase training --optimizer adamw --epoch-images 5000",
    "train_step_time": "measure --phase training --batch-size best --reference-batch 256",
    "max_qps": "load --p99 50ms --runtime openvino --precision fp16",
}


def jobs_asked_for(monkeypatch: pytest.MonkeyPatch, command: str) -> list[MeasureJob]:
    """The jobs of a command line; none of them runs."""
    asked: list[ResolvedStudy] = []

    def remember(study: ResolvedStudy, *_: object, **__: object) -> None:
        asked.append(study)
        raise KeyboardInterrupt

    monkeypatch.setattr(running, "run_request", remember)
    done = CliRunner().invoke(app, shlex.split(command)[1:])
    assert asked, (command, done.output, done.exception)
    return [job for job in jobs_of(asked[0]) if isinstance(job, MeasureJob)]


def result(job: MeasureJob, metric: str, value: float, flags: str = "") -> Record:
    """What a job finds: a quiet number with an interval, or one that says nothing."""
    ends = () if flags else (0.99 * value, 1.01 * value)
    return Record(
        name=job.name,
        model=card_fields()[job.name],
        task=job.phase,
        source="measured",
        conditions=job.conditions,
        metrics={metric: reading(metric, value, *ends, method="")},
        environment={"host": "lab", "device_name": "a processor", "threads": job.threads, "flags": flags},
    )


def evidence(some: list[Record]) -> pd.DataFrame:
    """The records with an accuracy for every model: the later ones have the higher."""
    accuracy = {
        "dataset": "imagenet-1k",
        "pipeline": "theirs",
        "source": "published",
        "status": "ok",
        "provenance": None,
    }
    sizes = {record.conditions["img_size"] for record in some}
    rows = [
        {"name": name, "family": "none", "how": "baseline", "top1": 80.0 + place, "img_size": size} | accuracy
        for place, name in enumerate(MODELS)
        for size in sizes
    ]
    return pd.concat([table_of(some), pd.DataFrame(rows)], ignore_index=True)


@pytest.mark.parametrize("study", STUDIES)
def test_what_is_suggested_to_measure_is_comparable_with_what_is_known(
    monkeypatch: pytest.MonkeyPatch, study: str
) -> None:
    verb, _, options = STUDIES[study].partition(" ")
    jobs = jobs_asked_for(monkeypatch, f"favor {verb} {' '.join(MODELS)} {options} --device cpu")
    metric = study.partition(" ")[0]
    good, bad = (1.0, 9.0) if METRICS[metric].better == "lower" else (90.0, 10.0)
    known = [result(jobs[0], metric, good), *(result(job, metric, bad, "busy") for job in jobs[1:])]
    prefer = {"inference": "throughput", "training": "training-time"}.get(jobs[0].phase)
    limits = (Limit("qps", "max_qps", "min", 20.0, p99=0.05),) if prefer is None else ()
    step = recommend(evidence(known), Request(prefer, limits)).to_decide
    assert step is not None
    assert step.command is not None
    suggested = [job for command in step.command.split("; ") for job in jobs_asked_for(monkeypatch, command)]
    assert as_asked(suggested) == as_asked(jobs)
    answer = recommend(evidence([*known, *(result(job, metric, good) for job in suggested)]), Request(prefer, limits))
    assert {choice.metrics[metric].flags for choice in answer.choices} == {None}


def as_asked(jobs: list[MeasureJob]) -> dict[str, tuple[object, ...]]:
    return {job.name: (job.conditions, job.device, job.threads) for job in jobs}


def test_what_a_limit_lacks_is_measured_as_the_rest_was(monkeypatch: pytest.MonkeyPatch) -> None:
    options = STUDIES["throughput"].partition(" ")[2]
    jobs = jobs_asked_for(monkeypatch, f"favor measure {' '.join(MODELS)} {options} --device cpu")
    asked = Request("throughput", (Limit.named("max_p99", 1.0),))
    command = recommend(evidence([result(job, "throughput", 10.0) for job in jobs]), asked).next_steps[0]
    assert command.endswith("--repeat all")
    assert as_asked(jobs_asked_for(monkeypatch, command)) == as_asked(jobs)


def test_the_load_to_test_is_in_the_runtime_of_the_service_times(wide_table: WideTable) -> None:
    def served(name: str, runtime: str, factor: float) -> dict[str, object]:
        times = {"latency_p50": 0.01 / factor, "throughput": 150.0 * factor, "best_batch_size": 4}
        run = {"source": "measured", "task": "inference", "device": "cpu", "precision": "fp32", "runtime": runtime}
        return {"name": name, **run, **times}

    rows = [{"name": name, "top1": top1} for name, top1 in (("one", 85.0), ("two", 83.0))]
    times = [served("one", "eager", 1.0), served("one", "openvino", 2.0), served("two", "eager", 1.0)]
    limits = (Limit("qps", "max_qps", "min", 200.0, p99=0.05),)
    answer = recommend(wide_table(*rows, *times), Request("throughput", limits))
    assert "favor load one --p99 50ms --study my-study --runtime openvino" in answer.next_steps


def test_the_names_in_a_command_are_words_of_the_shell(wide_table: WideTable) -> None:
    name = "evit_s16(keep=0.5)"
    table = wide_table({"name": name, "top1": 80.0}, {"name": "vit_s16", "top1": 79.0})
    first = recommend(table, FAST).next_steps[0]
    assert first == f"favor measure '{name}' vit_s16 --study my-study"


def test_a_quiet_contradiction_is_known_although_a_busy_measurement_followed(tmp_path: Path) -> None:
    slow = measured("vit_s16", throughput=(1.79, 0.02), latency_p50=(0.104, 0.02), best_batch_size=4.0)
    busy = measured("vit_s16", "busy", throughput=(9.0, 0.02), latency_p50=(0.2, 0.02), best_batch_size=4.0)
    rival = measured("swin_ti", throughput=(7.0, 0.02))
    append(tmp_path, [slow, rival, busy])
    found = gather([tmp_path]).table
    answer = recommend(found, FAST)
    flags = {choice.name: choice.metrics["throughput"].flags for choice in answer.choices}
    assert flags == {"vit_s16": "throughput:contradictory", "swin_ti": None}
    assert all((choice.probability_best or 0) < 0.95 for choice in answer.choices)
