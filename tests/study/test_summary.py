"""What a study says at its end, from records that are made up."""

from functools import cache
from pathlib import Path

import pandas as pd
import pytest
from msgspec.structs import replace

from favor.cli.study_text import answer_told
from favor.records import counted_table, published_table, table_of
from favor.records.schema import reading
from favor.study.plan import jobs_of
from favor.study.resolved import Machine
from favor.study.schema import Report
from favor.study.summary import answer
from study.made_up import ENVIRONMENT, a_record, a_study

# top-1 of the benchmark: vit_s16 82.54, vit_ti16 74.27, swin_ti 82.91, wavevit_s 83.91, cvt_13 82.35,
# efficientformerv2_s0 71.53
FIGURES = {
    "vit_s16": (13.0, 0.090, 110e6),
    "vit_ti16": (40.0, 0.030, 30e6),
    "swin_ti": (14.0, 0.100, 130e6),
    "wavevit_s": (5.0, 0.250, 120e6),
    "cvt_13": (6.0, 0.200, 90e6),
    "efficientformerv2_s0": (60.0, 0.025, 20e6),
}
FOLDER = Path("runs/mine")
STUDY = a_study(report=Report(min_accuracy=80, page=False, indicators=("params", "throughput")))


@cache
def found_of_study():
    return found()


def found(study=STUDY, figures=FIGURES, flags=None, trainings=()):
    """The answer from measurements, some of which have `flags` by name."""
    jobs = [job for job in jobs_of(study) if job.phase == "inference" and job.name in figures]
    metrics = ("throughput", "latency_p50", "inference_memory")
    own = [
        a_record(
            job,
            metrics=dict(zip(metrics, figures[job.name], strict=True)),
            environment=ENVIRONMENT | {"flags": (flags or {}).get(job.name, "")},
        )
        for job in jobs
    ]
    own += trainings
    tables = [published_table(), counted_table(), *([table_of(own)] if own else [])]
    return answer(study, pd.concat(tables, ignore_index=True), FOLDER)


def test_speed_and_memory_are_favored_among_those_that_are_accurate_enough_and_accuracy_among_all():
    favored = {goal: answer.favored.name for goal, answer in found_of_study().favored.items()}
    assert favored == {"speed": "swin_ti", "memory": "cvt_13", "accuracy": "wavevit_s"}


def test_without_a_least_accuracy_the_fastest_and_the_smallest_are_favored():
    study = a_study(report=Report(page=False))
    favored = {goal: answer.favored.name for goal, answer in found(study).favored.items()}
    assert favored["speed"] == favored["memory"] == "efficientformerv2_s0"


def test_a_study_on_the_gpus_of_a_cluster_is_answered_before_their_names_are_known():
    cluster = Machine(device="cuda", label="", device_name="", torch="2.99.0", threads=2)
    assert found(a_study(machine=cluster), figures={}).models == len(FIGURES)


def test_models_outside_of_the_study_are_not_favored():
    assert found_of_study().favored["accuracy"].considered == len(FIGURES)


def test_the_figures_of_a_favored_model_are_those_of_the_study():
    figures = found_of_study().figures["speed"]
    assert [figures[name].value for name in ("throughput", "inference_memory", "top1")] == [14.0, 130e6, 82.91]


def test_the_figures_of_a_model_that_is_favored_in_another_precision_are_not_those_in_the_first():
    study = a_study(precisions=("fp32", "bf16"), report=STUDY.report)
    jobs = [job for job in jobs_of(study) if job.phase == "inference" and job.name == "swin_ti"]
    half = [
        a_record(job, metrics={"throughput": 28.0}, environment=ENVIRONMENT) for job in jobs if job.precision == "bf16"
    ]
    result = found(trainings=half)
    figures = result.figures["speed"]
    assert result.favored["speed"].favored.called == "swin_ti in eager bf16"
    assert figures["throughput"].value == 28.0
    assert not {"latency_p50", "inference_memory"} & set(figures)


def test_vit_has_its_place_and_those_that_beat_it_are_named():
    standing = {(each.name, each.metric): each for each in found_of_study().standing}
    small = standing["vit_s16", "throughput"]
    assert (small.place, small.of, small.on_front, small.beaten_by) == (4, 6, False, ("swin_ti",))
    assert small.without_intervals == ("swin_ti",)
    assert "vit_s16: 4th of 6 by throughput (beaten by swin_ti in numbers without intervals);" in "".join(
        answer_told(STUDY, found_of_study()).sentences
    )
    tiny = standing["vit_ti16", "throughput"]
    assert (tiny.place, tiny.on_front, tiny.beaten_by) == (2, True, ())
    assert tiny.probability is None, "its throughput has no interval"
    by_memory = standing["vit_s16", "inference_memory"]
    assert (by_memory.place, by_memory.on_front) == (4, True)
    assert by_memory.probability > 0.3
    assert {each.name for each in found_of_study().standing} == {"vit_s16", "vit_ti16"}


def standing_of(result, name, metric):
    return next(each for each in result.standing if (each.name, each.metric) == (name, metric))


@pytest.mark.parametrize("flags", ["busy", "throughput:contradictory"])
def test_a_model_that_was_disturbed_beats_nobody_and_has_no_rank(flags):
    result = found(flags={"swin_ti": flags})
    small = standing_of(result, "vit_s16", "throughput")
    assert (small.place, small.of, small.disturbed, small.on_front, small.beaten_by) == (3, 5, 1, True, ())
    told = "".join(answer_told(STUDY, result).sentences)
    assert "vit_s16: 3rd of 5 by throughput, 1 busy or contradictory left out (on the Pareto front" in told
    memory = standing_of(result, "vit_s16", "inference_memory")
    assert (memory.of, memory.disturbed) == (6, 0), "load does not change memory"


def test_a_vit_that_was_disturbed_has_no_rank():
    result = found(flags={"vit_s16": "busy"})
    small = standing_of(result, "vit_s16", "throughput")
    assert (small.place, small.on_front, small.probability, small.beaten_by) == (None, None, None, ())
    assert "vit_s16: no rank by throughput, which is busy or contradictory; " in "".join(
        answer_told(STUDY, result).sentences
    )
    assert standing_of(result, "vit_ti16", "throughput").of == 5


def test_a_model_that_was_slow_because_of_another_program_is_no_strongest_disagreement():
    slow = FIGURES | {"efficientformerv2_s0": (0.8, 1.2, 20e6)}
    assert "efficientformerv2_s0" in found(figures=slow).disagreement.warning
    result = found(figures=slow, flags={"efficientformerv2_s0": "busy"})
    assert (result.disagreement.pairs[0].n, result.disagreement.excluded.disturbed) == (5, 1)
    (told,) = [text for text in answer_told(STUDY, result).sentences if text.startswith("Costs disagree")]
    assert "efficientformerv2_s0" not in told
    assert told.endswith("Left out: 1 model with a busy or contradictory cost.")


def in_minutes(name, top1, epochs):
    """The record of a training that ended after five minutes."""
    conditions = {"dataset": "cifar10", "pipeline": "mine@1", "img_size": 224, "minutes": 5.0}
    job = next(job for job in jobs_of(STUDY) if job.phase == "inference" and job.name == name)
    return replace(
        a_record(job),
        task="accuracy",
        conditions={**conditions, "epochs": epochs, "final": True},
        metrics={"top1": reading("top1", top1, method="made up")},
    )


def test_trainings_of_unequal_length_give_vit_no_place_on_a_front():
    study = a_study(report=Report(page=False, dataset="cifar10"))
    accuracies = {"vit_s16": 40.0, "swin_ti": 60.0, "cvt_13": 50.0}

    def answered(epochs):
        runs = [in_minutes(name, top1, epochs.get(name, 3.0)) for name, top1 in accuracies.items()]
        return found(study, trainings=runs)

    equal = standing_of(answered({}), "vit_s16", "throughput")
    assert (equal.on_front, equal.beaten_by) == (False, ("swin_ti",))
    result = answered({"vit_s16": 1.0})
    unequal = standing_of(result, "vit_s16", "throughput")
    assert (unequal.place, unequal.on_front, unequal.beaten_by) == (4, None, ())
    told = answer_told(study, result).sentences
    why = "accuracies cannot be compared: training runs of unequal length: 1 to 3 epochs; train with --epochs"
    assert f"No model is favored for accuracy: {why}" in told
    assert not any("beaten by" in text for text in told)


def test_an_accuracy_of_another_configuration_beats_nobody():
    study = a_study(names=(*FIGURES, "linformer_s16"), report=STUDY.report)
    figures = {**FIGURES, "linformer_s16": (100.0, 0.01, 1e6)}
    result = found(study, figures)
    tiny = next(each for each in result.standing if (each.name, each.metric) == ("vit_ti16", "throughput"))
    assert (tiny.place, tiny.on_front) == (3, True)
    assert result.favored["speed"].favored.name == "swin_ti"


def test_the_costs_that_disagree_are_told_over_the_models_of_the_study():
    (pair,) = found_of_study().disagreement.pairs
    assert (pair.x, pair.y, pair.n) == ("params", "throughput", 6)
    assert pair.flipped > 0


def test_before_anything_is_measured_speed_and_memory_are_open_and_accuracy_is_known():
    result = found(figures={})
    assert result.favored["accuracy"].favored.name == "wavevit_s"
    assert result.standing == ()
    assert all(
        found.ranked_by != "numbers" or found.favored is None
        for goal, found in result.favored.items()
        if goal != "accuracy"
    )


def test_no_cost_is_decided_while_models_that_may_be_better_are_not_measured():
    """A study that ran out of time on a busy machine had favored the smallest of the first seven models."""
    some = {name: FIGURES[name] for name in ("vit_s16", "vit_ti16", "swin_ti", "efficientformerv2_s0")}
    result = found(figures=some)
    assert set(result.favored) == {"accuracy"}
    assert result.undecided["memory"] == "vit_s16 is the best so far, but not all models are measured"
    assert (result.untried, result.to_measure_them) == (("wavevit_s", "cvt_13"), "favor resume runs/mine")
    missing = "Not measured yet, but may be better: wavevit_s, cvt_13. To measure: `favor resume runs/mine`"
    assert missing in answer_told(STUDY, result).sentences
    too_low = {name: figures for name, figures in FIGURES.items() if name not in ("vit_ti16", "efficientformerv2_s0")}
    assert found(figures=too_low).favored["memory"].favored.name == "cvt_13"
    assert not found(figures=too_low).untried


def test_models_that_nobody_has_trained_are_told_of_by_their_costs():
    study = a_study(names=("gtp_s16", "universal_s16"), report=STUDY.report)
    result = found(study, {"gtp_s16": (10.0, 0.1, 1e8), "universal_s16": (20.0, 0.05, 1e8)})
    assert set(result.undecided) == {"speed", "memory", "accuracy"}
    assert result.favored == {}
    assert result.disagreement.pairs[0].n == 2


def test_a_pipeline_of_the_study_replaces_the_benchmarks():
    report = Report(page=False, pipeline="misnomer", indicators=("params", "throughput"))
    study = a_study(names=("misnomer_d6", "misnomer_w768", "vit_b16"), report=report)
    result = found(
        study, {"misnomer_d6": (40.0, 0.02, 1e8), "misnomer_w768": (50.0, 0.02, 1e8), "vit_b16": (3, 0.4, 1e9)}
    )
    found_accuracy = result.favored["accuracy"]
    assert "pipeline misnomer" in found_accuracy.accuracy_basis
    assert found_accuracy.favored.name == "misnomer_d6"
    assert [choice.name for choice in found_accuracy.runners_up] == ["misnomer_w768"]


def test_the_answer_is_plain_data_with_units():
    import json

    data = json.loads(json.dumps(found_of_study().to_dict(), allow_nan=False))
    assert data["favored"]["speed"]["favored"]["name"] == "swin_ti"
    speed = data["figures"]["speed"]["throughput"]
    assert speed.items() >= {"value": 14.0, "unit": "img/s", "low": None, "high": None, "source": "measured"}.items()
    assert {each["unit"] for each in data["vit"] if each["metric"] == "inference_memory"} == {"B"}
    assert data["models"] == 6
    assert data["disagreement"]["pairs"][0]["share"] == pytest.approx(found_of_study().disagreement.pairs[0].share)


def test_an_undecided_study_says_so_and_what_to_measure_to_decide():
    speeds = {"swin_ti": 14.0, "vit_s16": 13.0, "cvt_13": 13.0}
    jobs = [job for job in jobs_of(STUDY) if job.phase == "inference" and job.name in speeds]
    own = []
    for job in jobs:
        record = a_record(job)
        speed = speeds[job.name]
        wide = reading("throughput", speed, speed - 3.4, speed + 3.4, method="made up")
        own.append(replace(record, metrics={**record.metrics, "throughput": wide}))
    tables = [published_table(), counted_table(), table_of(own)]
    told = answer_told(STUDY, answer(STUDY, pd.concat(tables, ignore_index=True), FOLDER))
    at = next(number for number, text in enumerate(told.sentences) if text.startswith("No model is favored for speed"))
    assert "swin_ti" in told.sentences[at]
    assert "vit_s16" in told.sentences[at]
    assert told.sentences[at + 1].startswith("To decide: throughput ")
    assert "--study runs/mine" in told.sentences[at + 1]
