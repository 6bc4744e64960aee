"""How sure an answer is: intervals, flags, undecided answers, and what models share; on records as users make them."""

import json
import re
import shlex
from pathlib import Path

import numpy as np
import pandas as pd
import pytest
from msgspec.structs import replace
from typer.testing import CliRunner

import favor
from favor.analyze import Request, compare, pareto, recommend
from favor.analyze.compare import MetricComparison
from favor.analyze.comparison import Comparison
from favor.analyze.intervals import COMPILED_OWN, SIMULATED_OWN, TRAINING_OWN, draw, shared_variance
from favor.analyze.limits import Limit
from favor.analyze.setting import Setting
from favor.analyze.trainings import Scope
from favor.cli import app
from favor.records import Record, append, gather, reading, table_of
from favor.records.loading import with_shipped
from favor.records.published import card_fields
from favor.simulation.calibration import shipped_calibration
from favor.training.recipe import load_recipe, pipeline_of

GIB = 2.0**30
FAST = Request("throughput")
CIFAR = Request(dataset="cifar10")


def measured(name: str, flags: str = "", host: str = "lab", device: str = "cpu", **metrics: object) -> Record:
    """A measurement as `favor measure` keeps it: a metric is a value, or a value with the ends of its interval."""
    readings = {
        metric: reading(metric, *(found if isinstance(found, tuple) else (found,)), method="test")
        for metric, found in metrics.items()
    }
    return Record(
        name=name,
        model=card_fields()[name],
        task="inference",
        source="measured",
        conditions={"img_size": 224, "num_classes": 1000, "device": device, "precision": "fp32", "batch": "best"},
        metrics=readings,
        environment={"host": host, "device_name": "a processor", "threads": 2, "flags": flags},
        time="2026-11-16T00:00:00Z",
    )


def trained(name: str, top1: float, seed: int = 0, epochs: float = 20, **more: object) -> Record:
    """The last record of a training, as `favor train` keeps it."""
    conditions = {
        "dataset": "cifar10",
        "pipeline": "laptop-cifar10@1",
        "pretraining": "none",
        "distillation": False,
        "img_size": 32,
        "batch_size": 128,
        "device": "cpu",
        "precision": "fp32",
        "recipe.seed": seed,
        "epochs": epochs,
        "final": True,
        **({"recipe.epochs": epochs} if "minutes" not in more else {}),
        **more,
    }
    return Record(
        name=name,
        model=card_fields()[name],
        task="accuracy",
        source="measured",
        conditions=conditions,
        metrics={
            "top1": reading("top1", top1, method="each of 10000 images once"),
            "train_hours_per_epoch": reading("train_hours_per_epoch", 0.1, method="test"),
        },
        environment={"host": "lab", "device_name": "a processor", "threads": 2},
        time=f"2026-11-16T00:{seed:02d}:00Z",
    )


def around(value: float, share: float) -> tuple[float, float, float]:
    return value, value * (1 - share), value * (1 + share)


def table(folder: Path, *records: Record) -> pd.DataFrame:
    append(folder, records)
    return gather([folder]).table


def chances(answer: favor.analyze.recommendation.Recommendation) -> dict[str, float | None]:
    return {choice.name: choice.probability_best for choice in answer.choices}


def run(*words: object) -> str:
    done = CliRunner().invoke(app, [str(word) for word in words])
    assert done.exit_code == 0, done.output
    return done.output


def test_a_number_without_an_interval_has_no_probability_of_being_best(tmp_path: Path) -> None:
    found = table(tmp_path, measured("vit_s16", throughput=60.0), measured("swin_ti", throughput=40.0))
    answer = recommend(found, FAST)
    assert answer.favored is not None
    assert answer.favored.name == "vit_s16"
    assert set(chances(answer).values()) == {None}
    assert any("certainty unknown: no interval of throughput is known" in note for note in answer.notes)
    front = {point.name: point.probability for point in pareto(_rows(found), ["top1", "throughput"]).points}
    assert front == {"vit_s16": None, "swin_ti": None}


def _judged(rows: pd.DataFrame, metric: str, a: str = "vit_s16", b: str = "swin_ti") -> MetricComparison:
    """Two models in one metric."""
    compared = compare(rows, a, b, dataset="cifar10").metrics
    return next(entry for entry in compared if entry.metric == metric)


def _rows(found: pd.DataFrame) -> pd.DataFrame:
    return Comparison(found, Scope("imagenet-1k")).compare(["throughput"]).rows


def test_a_rival_without_an_interval_takes_part_and_nobody_is_surely_the_best(tmp_path: Path) -> None:
    found = table(
        tmp_path,
        measured("vit_s16", throughput=around(60.0, 0.1)),
        measured("swin_ti", throughput=59.0),
        measured("cvt_13", throughput=around(20.0, 0.1)),
    )
    shares = chances(recommend(found, FAST))
    assert shares["swin_ti"] is None
    assert 0.4 < (shares["vit_s16"] or 0) < 0.7


def test_exact_quantities_need_no_interval_to_be_compared(tmp_path: Path) -> None:
    found = table(
        tmp_path,
        measured("vit_s16", inference_memory=0.3 * GIB, throughput=60.0),
        measured("swin_ti", inference_memory=0.4 * GIB, throughput=40.0),
    )
    answer = recommend(found, Request("memory"))
    assert chances(answer) == {"vit_s16": 1.0, "swin_ti": 0.0}
    pair = {entry.metric: entry for entry in compare(_rows(found), "vit_s16", "swin_ti").metrics}
    assert (pair["inference_memory"].verdict, pair["inference_memory"].test) == ("a", "exact")
    assert (pair["params"].verdict, pair["params"].test) == ("a", "counted")
    assert (pair["throughput"].verdict, pair["throughput"].test) == ("untested", "not tested: no interval")


def test_a_busy_measurement_may_be_much_better_but_not_worse(tmp_path: Path) -> None:
    quiet = [measured("swin_ti", throughput=around(40.0, 0.02)), measured("cvt_13", throughput=around(30.0, 0.02))]
    busy = [measured("vit_s16", "busy throughput:wide", throughput=around(20.0, 0.05))]
    sure = recommend(table(tmp_path / "quiet", *quiet), FAST)
    assert chances(sure)["swin_ti"] == 1.0
    found = table(tmp_path / "busy", *quiet, *busy)
    unsure = recommend(found, FAST)
    assert 0.5 < (chances(unsure)["swin_ti"] or 0) < 0.9
    assert any("measured on a busy machine, so their numbers may be better: vit_s16" in note for note in unsure.notes)
    drawn = draw(_rows(found), "throughput", 4000, np.random.default_rng(0))
    of_busy = drawn[:, list(_rows(found)["name"]).index("vit_s16")]
    assert np.quantile(of_busy, 0.975) == pytest.approx(20.0 * 6, rel=0.15)
    assert np.quantile(of_busy, 0.025) == pytest.approx(19.0, rel=0.02)


def test_a_flag_concerns_only_the_numbers_of_its_step(tmp_path: Path) -> None:
    record = measured(
        "vit_s16",
        "busy latency:drift",
        throughput=around(60.0, 0.02),
        latency_p50=around(0.02, 0.02),
        memory_process=6e8,
    )
    row = _rows(table(tmp_path, record, measured("swin_ti", throughput=40.0))).set_index("name").loc["vit_s16"]
    assert row["latency_p50_flags"] == "busy latency:drift"
    assert row["throughput_flags"] == "busy"
    assert pd.isna(row["memory_process_flags"])
    assert pd.isna(row["top1_flags"]) if "top1_flags" in row else True


def test_a_busy_number_is_not_tested_against_another(tmp_path: Path) -> None:
    busy = measured("vit_s16", "busy", throughput=around(60.0, 0.01))
    records = [busy, measured("swin_ti", throughput=around(40.0, 0.01))]
    speed = _judged(_rows(table(tmp_path, *records)), "throughput")
    assert (speed.verdict, speed.p, speed.test) == ("untested", None, "not tested: measured on a busy machine")


@pytest.fixture
def open_study(tmp_path: Path) -> Path:
    """Four models whose throughputs overlap, and one that is far behind."""
    append(
        tmp_path,
        [
            measured("tome_r8_s16", throughput=around(61.0, 0.07)),
            *(measured(name, throughput=around(60.0, 0.07)) for name in ("vit_s16", "cvt_13", "nextvit_s")),
            measured("swin_s", throughput=around(15.0, 0.07)),
        ],
    )
    return tmp_path


def test_no_model_in_most_draws_is_undecided_with_what_to_measure_and_how_long(open_study: Path) -> None:
    answer = favor.recommend(prefer="throughput", study=open_study)
    assert answer.favored is None
    assert {choice.name for choice in answer.undecided_between} == {"vit_s16", "tome_r8_s16", "cvt_13", "nextvit_s"}
    assert [choice.name for choice in answer.runners_up] == ["swin_s"]
    (why,) = answer.undecided
    assert why.startswith("undecided between tome_r8_s16 (")
    step = answer.to_decide
    assert step is not None
    assert step.metric == "throughput"
    budget = re.fullmatch(
        rf"favor measure (?:\S+ ){{4}}--study {open_study} --device cpu --threads 2 --budget (\d+) --repeat all",
        step.command or "",
    )
    assert budget is not None, step.command
    assert step.minutes == pytest.approx(4 * (10 + 3.5 * float(budget[1])) / 60, rel=0.01)
    content = json.loads(run("recommend", "--prefer", "throughput", "--study", open_study, "--json"))
    assert content["favored"] is None
    assert len(content["undecided_between"]) == 4
    assert content["to_decide"]["command"] == step.command
    shown = run("recommend", "--prefer", "throughput", "--study", open_study)
    assert "undecided between tome_r8_s16" in shown
    assert re.search(r"To decide: .*: favor measure .* \(about \d+ min\)", shown)


def test_the_time_to_decide_counts_from_the_time_that_was_spent(tmp_path: Path) -> None:
    def suggested(spent: float) -> float:
        speeds = {"vit_s16": 40.0, "swin_ti": 38.5, "cvt_13": 38.0}
        close = [measured(name, throughput=around(speed, 0.2)) for name, speed in speeds.items()]
        append(
            tmp_path / str(spent),
            [replace(record, environment={**record.environment, "budget": spent}) for record in close],
        )
        step = favor.recommend(prefer="throughput", study=tmp_path / str(spent)).to_decide
        assert step is not None
        return float(re.findall(r"--budget (\d+)", step.command or "")[0])

    assert suggested(8.0) == pytest.approx(2 * suggested(4.0), rel=0.02)


def test_a_number_near_its_limit_is_to_be_measured_until_it_is_clear(tmp_path: Path) -> None:
    append(
        tmp_path,
        [
            measured("vit_s16", throughput=around(60.0, 0.01), latency_p50=around(0.0297, 0.04)),
            measured("cvt_13", throughput=around(59.0, 0.01), latency_p50=around(0.0296, 0.05)),
            measured("swin_s", throughput=around(58.5, 0.01), latency_p50=around(0.0303, 0.05)),
            measured("nextvit_s", throughput=around(20.0, 0.01), latency_p50=around(0.010, 0.01)),
        ],
    )
    strict = favor.recommend(prefer="throughput", max_latency="29.5ms", study=tmp_path)
    assert strict.favored is None
    assert strict.to_decide is not None
    assert strict.to_decide.metric == "latency_p50"
    assert "just beyond a limit" in strict.undecided[0]


def test_a_limit_that_changes_nothing_is_not_said_to_decide() -> None:
    answer = favor.recommend(prefer="throughput", min_accuracy=82, max_params="200M", device="a100")
    assert answer.favored is not None
    assert answer.why is not None
    assert [binding.option for binding in answer.why.binding] == ["min_accuracy"]


def test_flagged_contenders_are_to_be_measured_again(tmp_path: Path) -> None:
    found = table(
        tmp_path,
        *(
            measured(name, "busy", throughput=around(50.0 + i, 0.05))
            for i, name in enumerate(("vit_s16", "swin_ti", "cvt_13"))
        ),
    )
    step = recommend(found, FAST).to_decide
    assert step is not None
    assert "busy" in step.why
    assert (step.command or "").endswith("--repeat flagged")


def test_a_contender_without_an_interval_is_named_and_to_be_measured(tmp_path: Path) -> None:
    append(
        tmp_path,
        [
            measured("vit_s16", throughput=around(11.3, 0.03)),
            *(measured(name, "throughput:contradictory", throughput=7.3) for name in ("cvt_13", "swin_ti")),
        ],
    )
    answer = favor.recommend(prefer="throughput", study=tmp_path)
    assert {choice.name for choice in answer.undecided_between} == {"vit_s16", "cvt_13", "swin_ti"}
    assert "cvt_13 (unknown)" in answer.undecided[0]
    assert answer.to_decide is not None
    assert re.search(r"favor measure .*cvt_13.* --repeat flagged", answer.to_decide.command or "")


def test_a_rival_whose_number_is_busy_and_without_an_interval_leaves_the_answer_open(tmp_path: Path) -> None:
    # Seen: vit_ti16 at 0.62 img/s instead of 37, from one call on a busy machine.
    leader = measured("afno_ti16", "busy", throughput=around(40.0, 0.1))
    brief = measured("vit_ti16", "busy throughput:wide", throughput=0.62)
    append(tmp_path / "brief", [leader, brief])
    answer = favor.recommend(prefer="throughput", study=tmp_path / "brief")
    assert [choice.name for choice in answer.undecided_between] == ["afno_ti16", "vit_ti16"]
    assert "vit_ti16 may be the best" in answer.undecided[0]
    assert answer.to_decide is not None
    assert (answer.to_decide.metric, "--repeat flagged" in (answer.to_decide.command or "")) == ("throughput", True)
    # A limit that the rival does not meet, whatever its speed, decides; so does a longer measurement.
    limited = favor.recommend(prefer="throughput", max_params="5.4M", study=tmp_path / "brief")
    assert limited.favored is not None
    append(tmp_path / "longer", [leader, measured("vit_ti16", throughput=around(37.0, 0.02))])
    assert favor.recommend(prefer="throughput", study=tmp_path / "longer").undecided_between == ()


def test_where_others_are_close_anyway_a_rival_that_says_nothing_is_measured_with_them(tmp_path: Path) -> None:
    close = [measured(name, throughput=around(40.0, 0.1)) for name in ("vit_s16", "swin_ti")]
    append(tmp_path, [*close, measured("cvt_13", "busy", throughput=0.6)])
    answer = favor.recommend(prefer="throughput", study=tmp_path)
    assert {choice.name for choice in answer.undecided_between} == {"vit_s16", "swin_ti", "cvt_13"}


def test_a_rival_that_may_meet_a_limit_after_all_leaves_the_answer_open(tmp_path: Path) -> None:
    slow = measured("vit_s16", throughput=around(20.0, 0.02), latency_p50=around(0.05, 0.02))
    brief = measured("swin_ti", "busy", throughput=around(40.0, 0.02), latency_p50=6.0)
    append(tmp_path, [slow, brief])
    answer = favor.recommend(prefer="throughput", max_latency="100ms", study=tmp_path)
    assert {choice.name for choice in answer.undecided_between} == {"vit_s16", "swin_ti"}
    assert answer.to_decide is not None
    assert answer.to_decide.metric == "latency_p50"


def test_a_contradiction_is_not_called_busy_and_an_exact_number_in_doubt_has_no_probability(tmp_path: Path) -> None:
    records = [
        measured("vit_s16", "inference_memory:contradictory", inference_memory=28e6),
        measured("swin_ti", inference_memory=60e6),
    ]
    append(tmp_path, records)
    answer = favor.recommend(prefer="memory", study=tmp_path)
    assert chances(answer)["vit_s16"] is None
    assert any(note.startswith("contradictory measurements, so their") and "vit_s16" in note for note in answer.notes)
    assert "certainty unknown: vit_s16 has no interval of inference_memory" in answer.notes
    shown = run("recommend", "--prefer", "memory", "--study", tmp_path)
    assert "busy" not in shown


def test_equal_published_accuracies_are_undecided_and_no_measurement_would_help() -> None:
    answer = favor.recommend()
    assert answer.favored is None
    assert {"cait_s24", "focalnet_s"} <= {choice.name for choice in answer.undecided_between}
    assert answer.to_decide is not None
    assert (answer.to_decide.metric, answer.to_decide.command) == ("top1", None)


def test_own_trainings_that_differ_less_than_their_seeds_ask_for_more_seeds(tmp_path: Path) -> None:
    scores = {"vit_s16": (80.0, 82.0), "swin_ti": (80.5, 81.7), "cvt_13": (80.2, 82.1)}
    records = [trained(name, top1, seed) for name, some in scores.items() for seed, top1 in enumerate(some)]
    answer = recommend(table(tmp_path, *records), Request(dataset="cifar10"))
    assert answer.favored is None
    assert answer.to_decide is not None
    assert "--recipe laptop-cifar10 --set seed=2" in (answer.to_decide.command or "")
    assert answer.to_decide.minutes == pytest.approx(len(answer.undecided_between) * 20 * 0.1 * 60)


def test_the_suggested_training_can_be_compared_with_those_that_are_there(tmp_path: Path) -> None:
    changes = ["lr=0.1", "clip_grad=null", "std=[0.5, 0.5, 0.5]"]
    pipeline = pipeline_of(load_recipe("laptop-cifar10", changes), minutes=5.0)
    names = ("evit_s16(keep=0.5)", "swin_ti")
    card = card_fields()["evit_s16"]
    records = [
        replace(trained("swin_ti", top1, seed, pipeline=pipeline, minutes=5.0), name=name, model=card)
        for name in names
        for seed, top1 in enumerate((80.0, 82.0))
    ]
    study = tmp_path / "my study"
    question = Request(dataset="cifar10").into([study])
    answer = recommend(table(study, *records), question)
    assert answer.to_decide is not None
    commands = [shlex.split(command) for command in (answer.to_decide.command or "").split("; ")]
    assert sorted(words[2] for words in commands) == sorted(names)
    for words in commands:
        options = list(zip(words[3::2], words[4::2], strict=True))
        sets = [value for option, value in options if option == "--set"]
        assert pipeline_of(load_recipe("laptop-cifar10", sets), minutes=5.0) == pipeline
        assert {"seed=2", "img_size=32"} <= set(sets)
        others = {option: value for option, value in options if option != "--set"}
        assert others == {
            "--recipe": "laptop-cifar10",
            "--data": "cifar10",
            "--minutes": "5.0",
            "--study": str(study),
        }


@pytest.mark.parametrize(
    "unknown", [{"pretraining": "imagenet-1k"}, {"pipeline": "mine@1:1f3a"}, {"pipeline": "my own@1:1f3a lr=0.1"}]
)
def test_no_training_is_suggested_where_the_first_weights_or_the_recipe_file_are_unknown(
    tmp_path: Path, unknown: dict[str, str]
) -> None:
    records = [
        trained(name, top1, seed, **unknown)
        for name in ("vit_s16", "swin_ti")
        for seed, top1 in enumerate((80.0, 82.0))
    ]
    answer = recommend(table(tmp_path, *records), Request(dataset="cifar10"))
    assert answer.to_decide is not None
    assert "train more seeds" in answer.to_decide.why
    assert answer.to_decide.command is None


def test_trainings_of_unequal_length_get_no_verdict(tmp_path: Path) -> None:
    lengths = {"vix_vit": (0.008, 0.010, 1.12), "vix_vil": (1.1, 1.11, 1.12)}
    records = [
        trained(name, 20.0 + 10 * i + seed, seed, epochs, minutes=5.0)
        for i, (name, some) in enumerate(lengths.items())
        for seed, epochs in enumerate(some)
    ]
    found = table(tmp_path, *records)
    rows = Comparison(found, Scope("cifar10")).compare_in(None).rows
    accuracy = _judged(rows, "top1", "vix_vit", "vix_vil")
    assert (accuracy.verdict, accuracy.p) == ("untested", None)
    assert accuracy.test == "not tested: training runs of unequal length: 0.008 to 1.12 epochs"
    answer = recommend(found, Request(dataset="cifar10"))
    assert answer.favored is None
    assert "training runs of unequal length: 0.008 to 1.12 epochs" in answer.undecided[0]
    by_params = recommend(found, Request("params", dataset="cifar10"))
    assert by_params.favored is not None
    assert any("training runs of unequal length" in note for note in by_params.notes)
    equal = [trained(name, 20.0 + 10 * i, 0, 1.1, minutes=5.0) for i, name in enumerate(lengths)]
    assert recommend(table_of(equal), Request(dataset="cifar10")).favored is not None


def test_what_all_models_of_a_card_share_does_not_make_their_order_uncertain() -> None:
    # In eager mode: compiled times also have a wide spread of each model's own.
    answer = favor.recommend(prefer="throughput", min_accuracy=82, device="jetson-orin", runtime="eager")
    shares = chances(answer)
    assert (shares["vit_s16"] or 0) + (shares["tome_r8_s16"] or 0) > 0.9
    # The same network at the same speed: the more accurate one goes first in every draw. A limit on accuracy would let
    # the other one win where the first misses it.
    unlimited = favor.recommend(prefer="throughput", device="jetson-orin", runtime="eager", among="*it_s16", top=20)
    assert chances(unlimited)["deit_s16"] == 0.0


def test_half_of_the_draws_is_not_most_of_them() -> None:
    answer = favor.recommend(prefer="latency", min_accuracy=82, device="jetson-orin", runtime="eager")
    assert answer.favored is None
    assert {choice.name for choice in answer.undecided_between} == {"vit_s16", "vit_b16"}
    assert answer.to_decide is not None
    assert answer.to_decide.why == "latency (median) is simulated; measure it on jetson-orin"
    assert answer.to_decide.minutes == pytest.approx(2 * (10 + 3.5 * 20) / 60)


def test_simulated_numbers_move_together_and_measured_ones_do_not() -> None:
    rows = pd.DataFrame(
        {
            "name": ["vit_s16", "swin_ti", "deit_s16"],
            "throughput": [1000.0, 800.0, 1000.0],
            "throughput_low": [670.0, 536.0, 670.0],
            "throughput_high": [1490.0, 1192.0, 1490.0],
            "throughput_source": "simulated",
        }
    )
    vit, swin, deit = np.log(draw(rows, "throughput", 4000, np.random.default_rng(0))).T
    assert np.corrcoef(vit, swin)[0, 1] == pytest.approx(1 - 0.1**2 / 0.2034**2, abs=0.03)
    assert np.std(vit - swin) == pytest.approx(0.1 * np.sqrt(2), rel=0.05)
    assert np.std(vit) == pytest.approx(0.2034, rel=0.05)
    assert (vit == deit).all()
    apart = draw(rows.assign(throughput_source="measured"), "throughput", 4000, np.random.default_rng(0))
    assert abs(np.corrcoef(apart[:, 0], apart[:, 1])[0, 1]) < 0.05
    assert (apart[:, 0] != apart[:, 2]).all()


def test_compiled_models_and_trainings_share_less_of_a_simulated_interval() -> None:
    def own(metric: str) -> np.ndarray:
        numbers = {metric: 10.0, f"{metric}_low": 6.7, f"{metric}_high": 14.9, f"{metric}_source": "simulated"}
        rows = pd.DataFrame({f"{metric}_setting": [Setting(), Setting(runtime="compile")]}).assign(**numbers)
        return np.sqrt(1 - shared_variance(rows, metric)) * 0.2043

    assert own("throughput") == pytest.approx([SIMULATED_OWN, COMPILED_OWN], rel=0.01)
    assert own("finetune_time") == pytest.approx([TRAINING_OWN] * 2, rel=0.01)


def test_what_a_simulated_model_does_not_share_is_the_spread_of_families_that_the_fit_has_not_seen() -> None:
    left = shipped_calibration().residuals
    assert (left.within, left.compiled) == pytest.approx((SIMULATED_OWN, COMPILED_OWN), rel=0.05)
    assert np.hypot(left.within, left.training) == pytest.approx(TRAINING_OWN, rel=0.05)


def _p_of_top1(rows: pd.DataFrame) -> float:
    compared = compare(rows, "vit_s16", "swin_ti", dataset="imagenet-1k").metrics
    p = next(entry.p for entry in compared if entry.metric == "top1")
    assert p is not None
    return p


def test_accuracies_on_the_same_images_move_together_and_seeds_do_not(tmp_path: Path) -> None:
    published = Comparison(gather([]).table, Scope("imagenet-1k")).compare_in(None).rows
    pair = published[published["name"].isin(["vit_s16", "swin_ti"]) & published["top1"].notna()]
    drawn = draw(pair, "top1", 4000, np.random.default_rng(0))
    assert np.corrcoef(drawn[:, 0], drawn[:, 1])[0, 1] == pytest.approx(0.4, abs=0.05)
    together, apart = (_p_of_top1(rows) for rows in (pair, pair.drop(columns="top1_shared")))
    assert together < 0.05 < apart
    records = [trained(n, 80.0 + 4 * seed, seed) for n in ("vit_s16", "swin_ti", "cvt_13") for seed in range(3)]
    own = Comparison(table(tmp_path, *records), Scope("cifar10")).compare_in(None).rows
    own = own[own["top1"].notna()]
    drawn = draw(own, "top1", 4000, np.random.default_rng(0))
    assert abs(np.corrcoef(drawn[:, 0], drawn[:, 1])[0, 1]) < 0.1


def test_the_median_and_the_99th_percentile_are_different_limits(tmp_path: Path) -> None:
    append(
        tmp_path,
        [
            measured("vit_s16", latency_p50=around(0.10, 0.01), latency_p99=around(0.20, 0.01)),
            measured("cvt_13", latency_p50=around(0.12, 0.01), latency_p99=around(0.14, 0.01)),
        ],
    )
    by_median = favor.recommend(prefer="latency", max_latency="150ms", study=tmp_path)
    assert by_median.favored is not None
    assert by_median.favored.name == "vit_s16"
    by_tail = favor.recommend(prefer="latency", max_p99="150ms", study=tmp_path)
    assert by_tail.favored is not None
    assert by_tail.favored.name == "cvt_13"
    shown = run("recommend", "--prefer", "latency", "--max-latency", "150ms", "--study", tmp_path)
    assert "Tested: max_latency 150 ms against latency (median): the median of single images" in shown
    shown = run("recommend", "--prefer", "latency", "--max-p99", "150ms", "--study", tmp_path)
    assert "Tested: max_p99 150 ms against latency (p99): the 99th percentile of single images" in shown


def test_the_memory_of_the_process_is_limited_apart_and_at_inference(tmp_path: Path) -> None:
    append(
        tmp_path,
        [
            measured("vit_s16", throughput=around(60.0, 0.01), inference_memory=9e7, memory_process=7e8),
            measured("cvt_13", throughput=around(40.0, 0.01), inference_memory=8e7, memory_process=6e8),
            # Its training needs more, which does not matter here.
            *(trained(name, 80.0) for name in ("cvt_13", "vit_s16")),
        ],
    )
    tensors = favor.recommend(prefer="throughput", max_memory="100MB", study=tmp_path)
    process = favor.recommend(prefer="throughput", max_process_memory="650MB", study=tmp_path)
    assert (tensors.favored and tensors.favored.name, [c.name for c in process.choices]) == ("vit_s16", ["cvt_13"])
    assert [limit["tested"] for limit in process.to_dict()["limits"]] == [
        "peak resident memory of the process at inference"
    ]


def test_limits_hold_on_all_devices_that_are_named(tmp_path: Path) -> None:
    fast_here = {"vit_s16": 0.010, "cvt_13": 0.020}
    fast_there = {"vit_s16": 0.050, "cvt_13": 0.020}
    append(
        tmp_path,
        [
            *(measured(name, latency_p50=around(value, 0.01)) for name, value in fast_here.items()),
            *(measured(n, host="board", device="npu", latency_p50=around(v, 0.01)) for n, v in fast_there.items()),
        ],
    )
    here = favor.recommend(prefer="latency", max_latency="30ms", device="cpu", study=tmp_path)
    assert here.favored is not None
    assert here.favored.name == "vit_s16"
    both = favor.recommend(prefer="latency", max_latency="30ms", device=["cpu", "npu"], study=tmp_path)
    assert both.favored is not None
    assert both.favored.name == "cvt_13"
    assert both.favored.metrics["latency_p50@npu"].value == 0.020
    shown = run(
        *["recommend", "--prefer", "latency", "--max-latency", "30ms", "--device", "cpu", "--device", "npu", "--study"],
        tmp_path,
    )
    assert "Latency (median) on npu" in shown
    assert "max_latency on npu decides: without it vit_s16 would be favored" in shown
    with pytest.raises(favor.errors.RequestError, match="others need a limit"):
        favor.recommend(prefer="latency", device=["cpu", "npu"], study=tmp_path)
    # The text of a machine is a device, too, and has commas.
    (machine,) = {choice.metrics["latency_p50"].setting for choice in here.choices}
    text = str(machine).partition("machine ")[2]
    alone = favor.recommend(prefer="latency", max_latency="30ms", device=text, study=tmp_path)
    assert alone.favored == here.favored


def test_a_part_of_a_devices_name_suggests_the_device() -> None:
    with pytest.raises(favor.errors.RequestError, match="unknown device 'jetson'; did you mean 'jetson-orin'"):
        favor.recommend(prefer="throughput", device="jetson")


def test_a_file_that_describes_a_device_is_not_a_device_of_the_records() -> None:
    with pytest.raises(favor.errors.RequestError, match="mine.yaml is a file; simulate models on its device first"):
        favor.recommend(prefer="throughput", device="mine.yaml")


def test_published_times_of_another_machine_do_not_stand_in_for_ones_own(tmp_path: Path) -> None:
    training = [
        Record(
            name=name,
            model=card_fields()[name],
            task="training",
            source="measured",
            conditions={"img_size": 224, "device": "cpu", "precision": "fp32", "epoch_images": 1281167},
            metrics={"train_hours_per_epoch": reading("train_hours_per_epoch", *around(hours, 0.02), method="test")},
            environment={"host": "lab", "device_name": "a processor", "threads": 2},
        )
        for name, hours in (("vit_s16", 30.0), ("swin_ti", 20.0), ("cvt_13", 40.0))
    ]
    answer = recommend(table(tmp_path, *training), Request("training-time"))
    assert answer.objective == "train_hours_per_epoch"
    assert {choice.name for choice in answer.choices} == {"vit_s16", "swin_ti", "cvt_13"}
    assert {choice.metrics[answer.objective].source for choice in answer.choices} == {"measured"}


def test_only_a_model_that_exists_can_be_created_with_the_classes_and_size_of_the_study(tmp_path: Path) -> None:
    records = [trained("vix_vil", 80.0), trained("vix_vit", 70.0)]
    answer = recommend(table(tmp_path, *records), Request(dataset="cifar10"))
    assert answer.favored is not None
    assert answer.favored.command == 'favor.create_model("vix_vil", num_classes=10)'
    unknown = table_of(
        [
            Record(
                name=name,
                model=card_fields()["vit_s16"],
                task="accuracy",
                source="measured",
                conditions=r.conditions,
                metrics=r.metrics,
            )
            for name, r in zip(("gone_s", "lost_s"), records, strict=True)
        ]
    )
    assert recommend(unknown, Request(dataset="cifar10")).favored.command is None  # type: ignore[union-attr]


def test_classes_and_test_images_are_those_of_the_data_sets() -> None:
    from favor.analyze.creation import CLASSES
    from favor.analyze.intervals import TEST_IMAGES
    from favor.data import names

    known = names.SETS
    for name, classes in CLASSES.items():
        assert name not in known or known[name].num_classes == classes
    for name, images in TEST_IMAGES.items():
        assert name not in known or (known[name].size or (0, 0))[1] == images
    assert {one.name for one in known.values() if one.num_classes} <= set(CLASSES)


def test_a_limit_of_the_page_is_a_limit_of_the_command() -> None:
    assert Limit.named("max_p99", 0.1) == Limit("max_p99", "latency_p99", "max", 0.1)


NOISE = (1.0, 0.5, 0.9, 0.4, 1.1, 0.7, 1.0, 0.6)  # of the machine, in each round


def in_turns(record: Record, stretch: str = "1", busy: str = "", own: tuple[float, ...] = (1.0,) * 8) -> Record:
    """A measurement in turns with others, as `favor run` keeps it."""
    speed = record.metrics["throughput"].value
    rounds = " ".join(f"{speed * factor * mine:.5g}" for factor, mine in zip(NOISE, own, strict=True))
    environment = {**record.environment, "stretch": stretch, "round_throughput": rounds, "busy_rounds": busy}
    return replace(record, environment=environment)


def test_the_drift_of_a_machine_is_shared_by_models_that_took_turns(tmp_path: Path) -> None:
    apart = [measured("vit_s16", throughput=around(60.0, 0.3)), measured("swin_ti", throughput=around(57.0, 0.3))]
    assert (chances(recommend(table(tmp_path / "apart", *apart), FAST))["vit_s16"] or 0) < 0.7
    jitter = (1.0, 1.01, 0.99, 1.0, 1.01, 0.99, 1.0, 1.0)
    turns = [in_turns(apart[0], own=jitter), in_turns(apart[1])]
    found = table(tmp_path / "in_turns", *turns)
    assert (chances(recommend(found, FAST))["vit_s16"] or 0) > 0.95
    drawn = np.log(draw(_rows(found).dropna(subset=["throughput"]), "throughput", 4000, np.random.default_rng(0)))
    assert np.corrcoef(drawn.T)[0, 1] > 0.99
    two_stretches = [turns[0], in_turns(apart[1], stretch="2")]
    assert (chances(recommend(table(tmp_path / "stretches", *two_stretches), FAST))["vit_s16"] or 0) < 0.7


def test_simulated_numbers_share_their_device_and_measured_ones_their_turns_in_one_table() -> None:
    devices = ["t4", "t4", "a100", "a100", "cpu", "cpu"]
    rounds = " ".join(str(factor) for factor in NOISE)
    rows = pd.DataFrame(
        {
            "throughput": [100.0, 90.0, 80.0, 70.0, 60.0, 50.0],
            "throughput_source": ["simulated"] * 4 + ["measured"] * 2,
            "throughput_setting": [Setting(device=device) for device in devices],
            "throughput_stretch": [None] * 4 + ["1"] * 2,
            "throughput_rounds": [None] * 4 + [rounds] * 2,
        }
    )
    rows = rows.assign(throughput_low=rows["throughput"] / 1.5, throughput_high=rows["throughput"] * 1.5)
    together = np.corrcoef(np.log(draw(rows, "throughput", 4000, np.random.default_rng(0))).T)
    simulated = 1 - (SIMULATED_OWN / (np.log(1.5) / 1.96)) ** 2
    expected = np.eye(6)
    for first, share in ((0, simulated), (2, simulated), (4, 1.0)):
        expected[first, first + 1] = expected[first + 1, first] = share
    assert together == pytest.approx(expected, abs=0.05)


def test_a_study_in_turns_does_not_change_what_simulations_share() -> None:
    asked = {"prefer": "throughput", "device": "t4", "runtime": "eager"}
    assert chances(favor.recommend(**asked, study="example:runtimes")) == chances(favor.recommend(**asked))


def test_a_disturbed_round_says_nothing_of_what_models_share(tmp_path: Path) -> None:
    own = (3.0, 1.0, 1.0, 1.0, 1.0, 1.0, 1.0, 1.0)
    records = [measured("vit_s16", throughput=around(60.0, 0.3)), measured("swin_ti", throughput=around(57.0, 0.3))]
    disturbed = [in_turns(records[0], own=own), in_turns(records[1])]
    left_out = [in_turns(records[0], busy="1", own=own), in_turns(records[1])]

    def share(name: str, some: list[Record]) -> float:
        rows = _rows(table(tmp_path / name, *some)).dropna(subset=["throughput"])
        return float(shared_variance(rows, "throughput")[0])

    assert share("disturbed", disturbed) < 0.9
    assert share("left out", left_out) == pytest.approx(1.0)


def test_rounds_that_are_no_numbers_are_refused(tmp_path: Path) -> None:
    records = [measured("vit_s16", throughput=around(60.0, 0.3)), measured("swin_ti", throughput=around(57.0, 0.3))]
    torn = replace(in_turns(records[0]), environment={**in_turns(records[0]).environment, "round_throughput": "fast"})
    with pytest.raises(favor.errors.RequestError, match="rounds must be numbers above zero, not 'fast'"):
        recommend(table(tmp_path, torn, in_turns(records[1])), FAST)


def test_two_models_that_took_turns_are_compared_round_by_round(tmp_path: Path) -> None:
    records = [measured("vit_s16", throughput=around(60.0, 0.3)), measured("swin_ti", throughput=around(57.0, 0.3))]
    append(tmp_path / "apart", records)
    append(tmp_path / "in_turns", [in_turns(record) for record in records])

    def judged(study: str) -> dict:  # type: ignore[type-arg]
        done = CliRunner().invoke(app, ["compare", "vit_s16", "swin_ti", "--study", str(tmp_path / study), "--json"])
        return next(entry for entry in json.loads(done.stdout)["metrics"] if entry["metric"] == "throughput")

    assert judged("apart")["verdict"] == "undecided"
    turns = judged("in_turns")
    assert (turns["verdict"], turns["test"]) == ("a", "Wilcoxon's signed-rank test of 8 rounds in turns")
    assert turns["ratio"] == pytest.approx(0.95, abs=0.001)


@pytest.mark.parametrize("flags", ["throughput:contradictory", "busy"])
def test_numbers_in_doubt_are_not_tested_in_turns_either(tmp_path: Path, flags: str) -> None:
    speeds = {"vit_s16": (60.0, flags), "swin_ti": (57.0, "")}
    found = [measured(name, flags, throughput=around(speed, 0.3)) for name, (speed, flags) in speeds.items()]
    throughput = _judged(_rows(table(tmp_path, *map(in_turns, found))), "throughput")
    why = "measured on a busy machine" if flags == "busy" else "the measurements are contradictory"
    assert (throughput.verdict, throughput.p, throughput.test) == ("untested", None, f"not tested: {why}")


def test_rounds_of_another_runtime_do_not_decide(tmp_path: Path) -> None:
    speeds = {"vit_s16": (60.0, 90.0), "swin_ti": (57.0, 99.0)}
    eager = [measured(name, throughput=around(speed, 0.3), latency_p50=0.1) for name, (speed, _) in speeds.items()]
    faster = [measured(name, throughput=around(speed, 0.3)) for name, (_, speed) in speeds.items()]
    exported = [replace(record, conditions={**record.conditions, "runtime": "onnxruntime"}) for record in faster]
    append(tmp_path, [*map(in_turns, eager), *(in_turns(record, stretch="2") for record in exported)])
    done = CliRunner().invoke(app, ["compare", "vit_s16", "swin_ti", "--study", str(tmp_path), "--json"])
    throughput = next(entry for entry in json.loads(done.stdout)["metrics"] if entry["metric"] == "throughput")
    assert "onnxruntime" not in throughput["a"]["setting"]
    assert (throughput["verdict"], throughput["ratio"]) == ("a", pytest.approx(0.95, abs=0.001))


def test_the_headline_says_that_the_certainty_is_unknown(tmp_path: Path) -> None:
    without = [measured("vit_s16", throughput=60.0), measured("swin_ti", throughput=40.0)]
    append(tmp_path / "without", without)
    assert run("recommend", "--prefer", "throughput", "--study", tmp_path / "without").startswith(
        "Favored: vit_s16 (certainty unknown)\n"
    )
    known = [measured("vit_s16", throughput=around(60.0, 0.02)), measured("swin_ti", throughput=around(40.0, 0.02))]
    append(tmp_path / "known", known)
    assert run("recommend", "--prefer", "throughput", "--study", tmp_path / "known").startswith("Favored: vit_s16\n")


def test_accuracy_can_be_preferred_by_its_name(tmp_path: Path) -> None:
    assert Request("accuracy") == Request()
    assert favor.recommend(prefer="accuracy") == favor.recommend()


def test_a_disturbed_number_proves_no_dominance(tmp_path: Path) -> None:
    def dominated(**flags: str) -> tuple[str, ...]:
        speeds = {"nextvit_s": 90.0, "vit_s16": 60.0, "swin_ti": 40.0}
        records = [
            measured(name, flags.get(name, ""), throughput=around(speed, 0.01), latency_p50=around(1 / speed, 0.01))
            for name, speed in speeds.items()
        ]
        answer = recommend(table(tmp_path / "-".join(flags or ["quiet"]), *records), FAST)
        assert answer.favored is not None
        assert answer.favored.name == "nextvit_s"
        return tuple(sorted(answer.why.dominates)) if answer.why else ()

    assert dominated() == ("swin_ti", "vit_s16")
    assert dominated(swin_ti="throughput:contradictory") == ("vit_s16",)
    assert dominated(nextvit_s="busy") == ()


def test_one_model_within_the_limits_is_called_the_only_one(tmp_path: Path) -> None:
    found = table(
        tmp_path,
        measured("vit_s16", throughput=around(60.0, 0.02), latency_p50=around(0.02, 0.01)),
        measured("swin_ti", throughput=around(40.0, 0.02), latency_p50=around(0.04, 0.01)),
    )
    answer = recommend(found, Request("throughput", (Limit.named("max_latency", 0.03),)))
    assert answer.why is not None
    assert answer.why.summary == "vit_s16 is the only model within the limits (of 2 models)"


def test_the_front_shows_intervals_and_doubts_beside_its_numbers(tmp_path: Path) -> None:
    records = [
        measured("vit_s16", "busy", throughput=around(60.0, 0.02)),
        measured("swin_ti", throughput=40.0),
        measured("cvt_13", throughput=around(30.0, 0.05)),
    ]
    append(tmp_path, records)
    shown = run("pareto", "top1", "throughput", "--all", "--study", tmp_path)
    assert re.search(r"vit_s16 .*60 img/s ± 2.0% \(busy\)", shown)
    assert re.search(r"swin_ti .*40 img/s ± \?", shown)
    points = {point["name"]: point for point in json.loads(run("pareto", "--json", "--study", tmp_path))["points"]}
    busy = points["vit_s16"]["readings"]["throughput"]
    assert (busy["value"], busy["low"], busy["high"], busy["flags"]) == (60.0, 58.8, 61.2, "busy")
    frame = favor.pareto("top1", "throughput", everyone=True, study=tmp_path).set_index("model")
    assert (frame.loc["vit_s16", "throughput_low"], frame.loc["vit_s16", "throughput_flags"]) == (58.8, "busy")


def test_a_limit_without_intervals_does_not_turn_undecided_into_favored(tmp_path: Path) -> None:
    found = table(
        tmp_path,
        measured("vit_s16", throughput=around(60.0, 0.1), memory_process=0.7 * GIB),
        measured("swin_ti", throughput=around(59.9, 0.1), memory_process=0.8 * GIB),
        measured("cvt_13", throughput=around(59.8, 0.1), memory_process=0.8 * GIB),
    )
    assert recommend(found, FAST).favored is None
    limited = recommend(found, Request("throughput", (Limit.named("max_process_memory", 1.5 * GIB),)))
    assert limited.favored is None
    assert {choice.name for choice in limited.undecided_between} == {"vit_s16", "swin_ti", "cvt_13"}


def test_close_numbers_without_intervals_favor_nobody(tmp_path: Path) -> None:
    speeds = {"vit_s16": 60.0, "swin_ti": 59.9, "cvt_13": 59.8}
    answer = recommend(table(tmp_path, *(measured(name, throughput=speed) for name, speed in speeds.items())), FAST)
    assert answer.favored is None
    assert set(chances(answer).values()) == {None}
    assert answer.to_decide is not None
    assert "--repeat all" in str(answer.to_decide.command)


def test_a_contradictory_number_may_also_be_too_good(tmp_path: Path) -> None:
    found = table(
        tmp_path,
        measured("vit_s16", "throughput:contradictory", throughput=around(60.0, 0.02)),
        measured("swin_ti", throughput=around(40.0, 0.02)),
    )
    assert (chances(recommend(found, FAST))["vit_s16"] or 0) < 0.8


def test_pareto_refuses_trainings_of_unequal_length(tmp_path: Path) -> None:
    append(tmp_path, [trained("vit_s16", 40.0, epochs=0.01, minutes=1.0), trained("swin_ti", 60.0, minutes=1.0)])
    metrics = ("top1", "train_hours_per_epoch")
    done = CliRunner().invoke(app, ["pareto", *metrics, "--dataset", "cifar10", "--study", str(tmp_path)])
    assert "accuracies cannot be compared: training runs of unequal length" in str(done.exception)


def test_compare_takes_the_image_size_of_the_accuracies(tmp_path: Path) -> None:
    append(tmp_path, [trained("vit_s16", 60.0), trained("swin_ti", 50.0)])
    words = ["compare", "vit_s16", "swin_ti", "--dataset", "cifar10", "--study", str(tmp_path), "--json"]
    pair = json.loads(CliRunner().invoke(app, words).stdout)
    assert pair["img_size"] == 32
    assert "top1" in [entry["metric"] for entry in pair["metrics"]]


def test_a_rival_whose_training_is_unfinished_is_named_with_its_epoch(tmp_path: Path) -> None:
    finished = [trained("vit_s16", 60.0, epochs=10), trained("cvt_13", 55.0, epochs=10)]
    early = [trained("swin_ti", 40.0 + epoch, epochs=epoch, final=False, **{"recipe.epochs": 10}) for epoch in (2, 3)]
    found = table(tmp_path, *finished, *early)
    told = "not ranked, because training is unfinished: swin_ti (epoch 3 of 10); "
    assert f"{told}--unfinished includes it" in recommend(found, Request("params", dataset="cifar10")).notes
    # Where accuracy decides, a run of another length would be refused.
    resumed = f"{told}`favor resume my-study` finishes it, so that accuracies can be compared"
    for asked in ((None, ()), ("params", (Limit.named("min_accuracy", 30.0),))):
        assert resumed in recommend(found, Request(*asked, dataset="cifar10")).notes
        assert recommend(found, Request(*asked, dataset="cifar10", unfinished=True)).undecided
    far = [trained(name, 40.0, epochs=9.5, final=False, **{"recipe.epochs": 10}) for name in ("swin_ti", "deit_s16")]
    further = table_of([*finished, *far])
    assert any(note.endswith("; --unfinished includes them") for note in recommend(further, CIFAR).notes)
    assert recommend(further, Request(dataset="cifar10", unfinished=True)).favored is not None
    included = recommend(found, Request("params", dataset="cifar10", unfinished=True))
    assert "unfinished training runs: swin_ti" in included.notes
    assert not any("not ranked" in note for note in included.notes)
    # Training runs of another length would not be included.
    other = trained("swin_ti", 43.0, epochs=3, final=False, **{"recipe.epochs": 90})
    assert not any("unfinished" in note for note in recommend(table_of([*finished, other]), CIFAR).notes)
    assert not any("unfinished" in note for note in recommend(table_of(finished), CIFAR).notes)


def test_a_finished_training_is_not_called_unfinished_for_its_earlier_epochs() -> None:
    epochs = [trained("swin_ti", 40.0 + n, epochs=n, final=n == 10, **{"recipe.epochs": 10}) for n in (1, 5, 10)]
    answer = recommend(table_of([trained("vit_s16", 60.0, epochs=10), *epochs]), CIFAR)
    assert not any("unfinished" in note for note in answer.notes)


def test_only_pipelines_that_can_be_chosen_are_offered() -> None:
    models = ("vit_s16", "swin_ti")
    longer = [trained(name, 60.0 + i, epochs=20) for i, name in enumerate(models)]
    shorter = [trained(name, 50.0 + i, epochs=5) for i, name in enumerate(models)]
    note = Comparison(table_of([*longer, *shorter]), Scope("cifar10")).accuracy_note("measured")
    assert "--pipeline" not in note
    assert (
        "left out, not comparable: cifar10, pipeline laptop-cifar10@1, not pretrained, no distillation, 5 epochs"
        in note
    )
    theirs = [trained(name, 70.0 + i, pipeline="theirs") for i, name in enumerate(models)]
    note = Comparison(table_of([*longer, *shorter, *theirs]), Scope("cifar10")).accuracy_note("measured")
    offered = note.partition("other pipelines: ")[2].partition(" (choose with --pipeline NAME)")[0]
    assert len(offered.split(";")) == 1
    for name in ("theirs", "laptop-cifar10@1"):
        assert (name in offered) != (name in note.partition(";")[2].partition("(")[0])


def test_measuring_decides_a_tie_between_the_numbers_of_others_for_this_machine_only() -> None:
    speeds = {"vit_s16": 1000.0, "swin_ti": 1000.5}
    theirs = [
        replace(measured(name, device="rtx3090", throughput=speed), source="imported") for name, speed in speeds.items()
    ]
    for device in (None, "rtx3090"):
        answer = recommend(with_shipped(theirs), Request("throughput", device=device))
        assert answer.to_decide is not None
        why = "throughput was measured on another machine (rtx3090); measuring it here decides for this machine only"
        assert answer.to_decide.why == why


def test_dominance_by_numbers_without_intervals_is_said_to_be_that(tmp_path: Path) -> None:
    accurate = {"vit_s16": 60.0, "swin_ti": 90.0, "cvt_13": 40.0}
    append(tmp_path / "none", [measured(name, throughput=speed) for name, speed in accurate.items()])
    limits = ("--prefer", "throughput", "--min-accuracy", "70")
    shown = run("recommend", *limits, "--study", tmp_path / "none")
    assert "dominates vit_s16, cvt_13 in numbers without intervals" in shown
    front = run("pareto", "top1", "throughput", "--study", tmp_path / "none")
    assert "1 of 3 models are on the front, by numbers without intervals;" in front
    speeds = accurate | {"swin_ti": around(90.0, 0.01), "vit_s16": around(60.0, 0.01)}
    append(tmp_path / "some", [measured(name, throughput=speed) for name, speed in speeds.items()])
    shown = run("recommend", *limits, "--study", tmp_path / "some")
    assert "  dominates vit_s16; dominates cvt_13 in numbers without intervals" in shown
    front = run("pareto", "top1", "throughput", "--study", tmp_path / "some")
    assert "on the front, partly by numbers without intervals;" in front
    speeds = {name: around(speed, 0.01) for name, speed in accurate.items()}
    append(tmp_path / "all", [measured(name, throughput=speed) for name, speed in speeds.items()])
    for command in (("recommend", *limits), ("pareto", "top1", "throughput"), ("pareto", "params", "macs")):
        assert "without intervals" not in run(*command, "--study", tmp_path / "all")


@pytest.mark.parametrize("spread", [0.02, 0.2])
def test_a_relaxed_limit_gives_the_answer_that_it_promises(tmp_path: Path, spread: float) -> None:
    times = {"vit_s16": 0.10, "swin_ti": 0.11, "cvt_13": 0.30}
    append(tmp_path, [measured(name, latency_p50=around(time, spread)) for name, time in times.items()])
    asked = ("recommend", "--among", "*_*", "--study", str(tmp_path))
    refused = CliRunner().invoke(app, [*asked, "--max-latency", "50ms"]).output
    way = re.search(r"Relax one limit: max_latency from .* to (.*) \(by .*\) (gives|may give) (.*)", refused)
    assert way is not None, refused
    answer = json.loads(run(*asked, "--max-latency", way[1], "--json"))
    if way[2] == "gives":
        assert answer["favored"]["name"] == way[3]
    else:
        names = [choice["name"] for choice in answer["undecided_between"]]
        assert way[3] == f"{' or '.join(names)} (undecided)"
