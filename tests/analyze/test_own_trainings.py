"""Records as users make them: own training runs with several seeds, unfinished ones, two machines, two precisions."""

from pathlib import Path

import pandas as pd
import pytest
from msgspec.structs import replace
from typer.testing import CliRunner

from favor.analyze import Comparison, Request, Scope, compare, pareto, recommend
from favor.analyze.intervals import accuracy_interval
from favor.analyze.setting import Setting
from favor.cli import app
from favor.errors import RequestError
from favor.records import CardFields, Record, append, gather, reading, table_of
from favor.report.figures import all_figures
from favor.report.figures.evidence import evidence_of
from favor.report.figures.pretraining import pretraining_resolution
from favor.report.results_table import results_table

OWN = "deit3-finetune@1"
MODELS = ("vit_s16", "swin_ti", "cvt_13")
IMAGENET = Scope("imagenet-1k")


def a_training(name: str, top1: float, *, seed: int = 0, epoch: int = 50, of: int = 50, **more: object) -> Record:
    """The record of one epoch, as `favor finetune` writes it."""
    conditions = {
        "dataset": "imagenet-1k",
        "pipeline": OWN,
        "pretraining": "imagenet-21k",
        "distillation": False,
        "img_size": 224,
        "batch_size": 512,
        "device": "cuda:0",
        "precision": "amp-bf16",
        "recipe.seed": seed,
        "recipe.epochs": of,
        "epochs": epoch,
        "final": epoch == of,
        **more,
    }
    return Record(
        name=name,
        model=CardFields(name, name, None, None, 2021, "own"),
        task="accuracy",
        source="measured",
        conditions=conditions,
        metrics={"top1": reading("top1", top1, method="each of 50000 images once")},
        environment={"host": "lab", "device_name": "a card", "threads": 8},
        time=f"2026-11-16T00:{seed:02d}:{epoch % 60:02d}Z",
    )


def a_speed(name: str, throughput: float, host: str, precision: str = "fp32") -> Record:
    return replace(
        a_training(name, 0.0),
        task="inference",
        conditions={"img_size": 224, "device": "cpu", "precision": precision, "batch": "best", "batch_size": 8},
        metrics={"throughput": reading("throughput", throughput, method="test")},
        environment={"host": host, "device_name": "a processor", "threads": 2},
    )


def study(folder: Path, *records: Record) -> pd.DataFrame:
    append(folder, records)
    return gather([folder]).table


def rows_at_224(table: pd.DataFrame, scope: Scope = IMAGENET) -> pd.DataFrame:
    rows = Comparison(table, scope).compare_in(None).rows
    return rows[rows["img_size"] == 224].set_index("name")


def top1_of(table: pd.DataFrame, scope: Scope = IMAGENET) -> dict[str, float]:
    return rows_at_224(table, scope)["top1"].dropna().to_dict()


@pytest.fixture
def own(tmp_path: Path) -> pd.DataFrame:
    """Three models with accuracies that are not the published ones, beside everything that comes with favor."""
    return study(tmp_path, *(a_training(name, 60.0 + i) for i, name in enumerate(MODELS)))


def test_the_users_own_pipeline_decides_in_recommend_figures_and_fronts_alike(own: pd.DataFrame) -> None:
    answer = recommend(own, Request())
    assert answer.favored is not None
    assert (answer.favored.name, answer.favored.metrics["top1"].value) == ("cvt_13", 62.0)
    (note,) = [text for text in answer.notes if text.startswith("accuracy:")]
    assert f"measured; imagenet-1k, pipeline {OWN}" in note
    assert "(3 models)" in note
    assert "wtf-deit3 (published, 47 models)" in note
    assert set(evidence_of(own).rows(["top1"])["top1"]) == {60.0, 61.0, 62.0}
    assert top1_of(own) == dict(zip(MODELS, (60.0, 61.0, 62.0), strict=True))


def test_a_pipeline_that_is_asked_for_decides(own: pd.DataFrame) -> None:
    answer = recommend(own, Request(pipeline="wtf-deit3"))
    assert answer.choices[0].metrics["top1"].source == "published"
    with pytest.raises(RequestError, match="did you mean 'deit3-finetune@1'"):
        recommend(own, Request(pipeline="deit3-finetune"))


def test_one_own_model_is_no_comparison_and_leaves_the_published_ones(tmp_path: Path) -> None:
    table = study(tmp_path, a_training("vit_s16", 60.0))
    assert recommend(table, Request()).accuracy_basis.startswith("imagenet-1k, pipeline wtf-deit3")
    assert len(top1_of(table)) == 47


def test_only_the_models_that_are_asked_about_choose_the_pipeline(own: pd.DataFrame) -> None:
    assert "wtf-deit3" in recommend(own, Request(among="wave*")).accuracy_basis
    assert OWN in recommend(own, Request(among="*_*")).accuracy_basis


def test_a_run_that_was_killed_is_no_result_unless_it_is_asked_for(tmp_path: Path) -> None:
    killed = [a_training("cvt_13", 30.0, epoch=1), a_training("cvt_13", 45.0, epoch=2)]
    table = study(tmp_path, *(a_training(name, 60.0) for name in MODELS[:2]), *killed)
    assert set(top1_of(table)) == set(MODELS[:2])
    assert "cvt_13" not in set(evidence_of(table).rows(["top1"])["name"])
    rows = rows_at_224(table, Scope("imagenet-1k", unfinished=True))
    assert (rows["top1"]["cvt_13"], rows["top1_unfinished"]["cvt_13"]) == (45.0, 2.0)
    assert pd.isna(rows["top1_unfinished"]["vit_s16"])
    assert "unfinished training runs: cvt_13" in recommend(table, Request(unfinished=True)).notes


def test_where_all_trainings_are_unfinished_the_option_that_includes_them_is_named(tmp_path: Path) -> None:
    runs = [a_training(name, 45.0, epoch=2, dataset="photos") for name in ("cvt_13", "vit_s16")]
    table = study(tmp_path, *runs)
    with pytest.raises(RequestError, match="all training runs on photos are unfinished; --unfinished includes them"):
        recommend(table, Request(dataset="photos"))
    assert recommend(table, Request(dataset="photos", unfinished=True), draws=0).limits == ()


def test_unfinished_trainings_of_unequal_length_are_to_be_finished(tmp_path: Path) -> None:
    runs = [a_training(name, 45.0, epoch=epoch, dataset="photos") for name, epoch in (("cvt_13", 2), ("vit_s16", 9))]
    table = study(tmp_path, *runs)
    how = "training runs of unequal length: 2 to 9 epochs; finish the training runs with `favor resume`"
    with pytest.raises(RequestError, match=f"all training runs on photos are unfinished; {how}"):
        recommend(table, Request(dataset="photos"))
    assert recommend(table, Request(dataset="photos", unfinished=True)).undecided == (
        f"accuracies cannot be compared: {how}",
    )


def test_an_earlier_epoch_of_a_finished_run_never_counts(tmp_path: Path) -> None:
    table = study(tmp_path, a_training("vit_s16", 99.0, epoch=49), *(a_training(name, 60.0) for name in MODELS))
    for unfinished in (False, True):
        assert top1_of(table, Scope("imagenet-1k", unfinished=unfinished))["vit_s16"] == 60.0


@pytest.mark.parametrize(
    ("condition", "usual", "other"),
    [
        ("pretraining_img_size", 224, 192),
        ("pretraining_pipeline", "deit3-pretrain@1", "deit3-pretrain@1 epochs=1"),
        ("epochs", 50, 300),
        ("minutes", 60.0, 5.0),
        ("pretraining", "none", "x"),
        ("precision", "amp-fp16", "fp32"),
    ],
)
def test_what_changes_a_quality_is_part_of_the_setting(
    tmp_path: Path, condition: str, usual: object, other: object
) -> None:
    def conditions(value: object) -> dict[str, object]:
        return {"epoch": value, "of": value} if condition == "epochs" else {condition: value}

    usually = [a_training(name, 60.0, **conditions(usual)) for name in MODELS]  # type: ignore[arg-type]
    newer = a_training("vit_s16", 50.0, seed=1, **conditions(other))  # type: ignore[arg-type]
    assert top1_of(study(tmp_path, *usually, newer))["vit_s16"] == 60.0


def test_seeds_count_with_their_mean_and_say_how_many_they_are(tmp_path: Path) -> None:
    seeds = [a_training("vit_s16", top1, seed=seed) for seed, top1 in enumerate((90.0, 95.0, 70.0))]
    table = study(tmp_path, *seeds, a_training("swin_ti", 80.0))
    rows = rows_at_224(table)
    assert rows["top1"]["vit_s16"] == pytest.approx(85.0)
    assert rows["top1_std"]["vit_s16"] == pytest.approx(13.2288, abs=1e-4)
    assert (rows["top1_best"]["vit_s16"], rows["top1_seeds"]["vit_s16"]) == (95.0, 3)
    assert top1_of(table, Scope("imagenet-1k", seeds="best"))["vit_s16"] == 95.0
    favored = recommend(table, Request()).favored
    assert favored is not None
    assert favored.metrics["top1"].seeds is not None
    assert favored.metrics["top1"].seeds.n == 3


def test_one_fine_tuning_of_two_seeds_of_a_pretraining_counts_with_its_mean(tmp_path: Path) -> None:
    first, second = (a_training("vit_s16", top1, pretraining_seed=seed) for seed, top1 in (("0", 80.0), ("1", 82.0)))
    rows = rows_at_224(study(tmp_path, first, second, a_training("swin_ti", 80.0, pretraining_seed="0")))
    assert (rows["top1"]["vit_s16"], rows["top1_seeds"]["vit_s16"]) == (81.0, 2)
    assert rows["top1_seeds"]["swin_ti"] == 1


def test_a_model_with_overrides_is_compared_with_the_others_and_says_so(tmp_path: Path) -> None:
    usual = [a_training(name, 60.0) for name in MODELS[:2]]
    table = study(tmp_path, *usual, a_training("cvt_13", 62.0, overrides="lr=0.0005"))
    assert top1_of(table) == {"vit_s16": 60.0, "swin_ti": 60.0, "cvt_13": 62.0}
    (note,) = [text for text in recommend(table, Request()).notes if text.startswith("accuracy:")]
    assert "(3 models); overrides of the study: cvt_13 (lr=0.0005);" in note
    assert "overrides" not in Comparison(table, Scope("imagenet-1k", pipeline="wtf-deit3")).accuracy_note("published")
    markdown = results_table(Comparison(table, IMAGENET).compare_in(None).rows, ["top1"]).to_markdown()
    assert "1. trained with lr=0.0005 (override of the study)" in markdown


def test_trainings_with_different_overrides_are_no_seeds_of_one(tmp_path: Path) -> None:
    tried = [a_training("vit_s16", 20.0, seed=2), a_training("vit_s16", 50.0, seed=3, overrides="lr=0.001")]
    last = [a_training("vit_s16", top1, seed=seed, overrides="lr=0.0005") for seed, top1 in ((0, 80.0), (1, 82.0))]
    rows = rows_at_224(study(tmp_path, *tried, *last, a_training("swin_ti", 80.0)))
    assert (rows["top1"]["vit_s16"], rows["top1_seeds"]["vit_s16"]) == (81.0, 2)


def test_more_seeds_of_a_model_with_overrides_are_not_suggested_without_them(tmp_path: Path) -> None:
    close = [a_training(name, 80.0 + seed, seed=seed, pretraining="none") for name in MODELS[:2] for seed in (0, 1)]
    own = [replace(run, conditions={**run.conditions, "overrides": "lr=0.0005"}) for run in close[:2]]
    to_decide = recommend(study(tmp_path, *own, *close[2:]), Request()).to_decide
    assert to_decide is not None
    assert (to_decide.metric, to_decide.command) == ("top1", None)


def test_the_spread_between_seeds_is_in_the_interval_and_in_the_chances(tmp_path: Path) -> None:
    steady = [a_training("vit_s16", 85.0 + d, seed=seed) for seed, d in enumerate((-0.1, 0.0, 0.1))]
    lucky = [a_training("swin_ti", 84.0 + d, seed=seed) for seed, d in enumerate((-8.0, 0.0, 8.0))]
    table = study(tmp_path, *steady, *lucky, a_training("cvt_13", 84.0))
    rows = rows_at_224(table)
    half = (rows["top1_high"] - rows["top1_low"]) / 2
    # Student's t at 2 degrees of freedom: 4.303 * 8 / sqrt(3), and the test images beside it.
    assert half["swin_ti"] == pytest.approx(19.87, abs=0.05)
    assert half["vit_s16"] < 0.5
    # One seed varies as those do that are known: the pooled deviation is 5.66, at 4 degrees of freedom.
    assert half["cvt_13"] == pytest.approx(2.776 * 5.657, abs=0.05)
    answer = recommend(table, Request())
    assert answer.favored is None
    # The two others are above vit_s16 in nearly half of the draws each.
    chances = {choice.name: choice.probability_best or 0.0 for choice in answer.undecided_between}
    assert set(chances) == set(MODELS)
    assert 0.2 < chances["vit_s16"] < 0.4
    counted = rows.loc[list(MODELS)].reset_index()
    front = {point.name: point.probability for point in pareto(counted, ["top1", "params"]).points}
    assert 0.2 < (front["swin_ti"] or 0.0) < 0.8


def test_an_accuracy_on_the_users_images_has_the_interval_of_as_many_as_it_was_evaluated_on(tmp_path: Path) -> None:
    runs = [a_training(name, top1, dataset="photos") for name, top1 in (("cvt_13", 75.0), ("vit_s16", 50.0))]
    counted = [replace(run, environment={**run.environment, "evaluation_images": 48}) for run in runs]
    scope = Scope("photos")
    table = study(tmp_path / "counted", *counted)
    rows = rows_at_224(table, scope).dropna(subset=["top1"])
    assert (rows["top1_low"]["cvt_13"], rows["top1_high"]["cvt_13"]) == accuracy_interval(75.0, 48)
    assert (rows["top1_shared"] > 0).all()  # both were evaluated on the same images
    assert "top1_low" not in rows_at_224(study(tmp_path / "uncounted", *runs), scope).columns
    answer = recommend(table, Request(dataset="photos"))
    assert answer.favored is not None
    assert answer.favored.probability_best is not None
    wrong = [replace(run, environment={**run.environment, "evaluation_images": -1}) for run in runs]
    assert "top1_low" not in rows_at_224(study(tmp_path / "wrong", *wrong), scope).columns


def test_two_models_are_compared_by_a_test_over_their_seeds(tmp_path: Path) -> None:
    seeds = {"vit_s16": (80.0, 81.0, 79.0), "swin_ti": (84.0, 85.0, 83.0), "cvt_13": (70.0, 99.0, 92.0)}
    table = study(tmp_path, *(a_training(n, top1, seed=s) for n, runs in seeds.items() for s, top1 in enumerate(runs)))
    rows = Comparison(table, Scope("imagenet-1k")).compare_in(None).rows
    (better,) = [entry for entry in compare(rows, "vit_s16", "swin_ti").metrics if entry.metric == "top1"]
    assert (better.verdict, better.test) == ("b", "Welch's t-test of the means over 3 and 3 seeds")
    assert better.p == pytest.approx(0.00805, abs=1e-4)
    # 87 % against 80 % on 50,000 images, but one of the three training runs failed.
    (close,) = [entry for entry in compare(rows, "vit_s16", "cvt_13").metrics if entry.metric == "top1"]
    assert close.verdict == "undecided"


def test_where_the_best_seeds_are_shown_the_means_that_were_tested_stand_beside_the_verdict(tmp_path: Path) -> None:
    seeds = {"vit_s16": (85.0, 85.1, 84.9), "swin_ti": (80.0, 80.1, 79.9, 80.0, 80.2, 79.8, 80.0, 86.0)}
    table = study(tmp_path, *(a_training(n, top1, seed=s) for n, runs in seeds.items() for s, top1 in enumerate(runs)))
    rows = Comparison(table, Scope("imagenet-1k", seeds="best")).compare_in(None).rows
    (top1,) = [entry for entry in compare(rows, "vit_s16", "swin_ti").metrics if entry.metric == "top1"]
    assert (top1.verdict, top1.difference) == ("a", pytest.approx(0.9))
    assert top1.tested == (pytest.approx(85.0), pytest.approx(80.75))
    shown = CliRunner().invoke(app, ["compare", "vit_s16", "swin_ti", "--seeds", "best", "--study", str(tmp_path)])
    assert "85.00 % and 80.75 %" in shown.stdout
    shown = CliRunner().invoke(app, ["compare", "vit_s16", "swin_ti", "--study", str(tmp_path)])
    assert "85.00 % and 80.75 %" not in shown.stdout


def test_accuracies_do_not_depend_on_the_machine_and_speeds_do(tmp_path: Path) -> None:
    speeds = [a_speed(name, 10.0, "lab") for name in MODELS] + [a_speed(name, 99.0, "desk") for name in MODELS[:2]]
    speeds += [a_speed(name, 50.0, "lab", "bf16") for name in MODELS[:1]]
    table = study(tmp_path, *speeds, *(a_training(name, 60.0) for name in MODELS))
    comparison = Comparison(table, Scope("imagenet-1k"))
    compared = comparison.compare(["top1", "throughput"])
    assert isinstance(compared.run, Setting)
    assert (compared.run.host, compared.run.precision) == ("lab", "fp32")
    rows = compared.rows.dropna(subset=["top1", "throughput"])
    assert rows.set_index("name")["throughput"].to_dict() == dict.fromkeys(MODELS, 10.0)
    elsewhere = comparison.compare(["throughput"], "desk").rows
    assert set(elsewhere["throughput"].dropna()) == {99.0}


def test_pretraining_resolutions_are_compared_all_else_equal() -> None:
    def tuned(name: str, top1: float, at: int, **more: object) -> Record:
        return a_training(name, top1, pretraining_img_size=at, **more)  # type: ignore[arg-type]

    def epoch(at: int, hours: float, host: str) -> Record:
        record = a_training("vit_s16", 0.0, dataset="imagenet-21k", img_size=at, pipeline="deit3-pretrain@1")
        metrics = {"train_hours_per_epoch": reading("train_hours_per_epoch", hours, method="clock")}
        return replace(record, metrics=metrics, environment={"host": host, "device_name": "a card", "threads": 8})

    records = [tuned("vit_s16", 82.0, 224), tuned("vit_s16", 81.9, 192)]
    # The same model for fewer epochs, on another dataset, at another size, each at one resolution only.
    records += [tuned("vit_s16", 50.0, 192, epoch=5, of=5), tuned("vit_s16", 92.0, 224, dataset="cars")]
    records += [tuned("vit_s16", 83.5, 224, img_size=384), tuned("vit_s16", 20.0, 192, epoch=2)]
    records += [epoch(224, 3.0, "lab"), epoch(192, 2.0, "lab"), epoch(192, 40.0, "an old one")]
    info = pretraining_resolution(table_of(records))
    assert info.mean == pytest.approx(-0.1)
    assert [(model.name, model.speedup, model.difference) for model in info.models] == [("vit_s16", 1.5, -0.1)]


def run(*words: object) -> str:
    done = CliRunner().invoke(app, [str(word) for word in words])
    assert done.exit_code == 0, done.output
    return done.output


@pytest.mark.filterwarnings("error")
def test_the_commands_name_the_pipeline_and_mark_what_is_unfinished_without_a_warning(tmp_path: Path) -> None:
    study(tmp_path, *(a_training(name, 60.0) for name in MODELS[:2]), a_training("cvt_13", 75.0, epoch=48))
    output = run("pareto", "top1", "params", "--study", tmp_path, "--unfinished")
    assert "(unfinished: epoch 48)" in output
    assert f"pipeline {OWN}" in output
    assert "wtf-deit3 (published, 47 models)" in output
    assert "cvt_13" not in run("pareto", "top1", "params", "--study", tmp_path, "--all")


def test_devices_correlate_before_anything_is_measured() -> None:
    output = run("correlate", "--devices")
    assert "a100" in output
    assert "(simulated)" in output


def test_figures_of_own_records_are_all_drawn_or_say_what_they_need(own: pd.DataFrame) -> None:
    assert {figure.id for figure in all_figures(own)} >= {"benchmark-parameters", "benchmark-pretraining-resolution"}


def test_of_two_image_sizes_with_equally_many_models_the_smaller_decides_whichever_came_last() -> None:
    sizes = [a_training(name, 80.0, img_size=size) for size in (224, 384) for name in MODELS]
    for records in (sizes, sizes[::-1]):
        basis = Comparison(table_of(records), IMAGENET).basis
        assert basis is not None
        assert basis.img_size == 224
