"""Training runs of unequal length: wherever accuracies are compared, they get no verdict, and the reason is said."""

import json
from pathlib import Path

import pandas as pd
import pytest
from msgspec.structs import replace
from typer.testing import CliRunner

import favor
from favor.analyze import Comparison, Request, Scope, correlate_datasets, evolution, recommend
from favor.analyze.compare import compare
from favor.analyze.effects import effect_of_condition, effect_of_model
from favor.analyze.matched import matched_every_way
from favor.cli import app
from favor.errors import RequestError
from favor.records import Record, append, gather, reading
from favor.records.published import card_fields
from favor.report.effects import effect_text
from favor.report.figures.correlations import dataset_correlation_figure

CIFAR = Scope("cifar10")
UNEQUAL = "training runs of unequal length: 1 to 3 epochs"


def trained(name: str, top1: float, epochs: float, minutes: float | None = 5.0, seed: int = 0, of: int = 0) -> Record:
    """The last record of a training of so many minutes, or of `of` epochs."""
    planned = {"minutes": minutes} if not of else {"recipe.epochs": of}
    return Record(
        name=name,
        model=card_fields()[name],
        task="accuracy",
        source="measured",
        conditions={
            "dataset": "cifar10",
            "pipeline": "mine@1",
            "pretraining": "none",
            "img_size": 32,
            "precision": "fp32",
            "distillation": False,
            "device": "cpu",
            "recipe.seed": seed,
            "epochs": epochs,
            "final": not of or epochs == of,
            **planned,
        },
        metrics={"top1": reading("top1", top1, method="each of 10000 images once")},
        environment={"host": "lab", "device_name": "a processor", "threads": 2},
        time=f"2026-11-16T00:00:{seed:02d}Z",
    )


def measured(name: str, throughput: float) -> Record:
    return Record(
        name=name,
        model=card_fields()[name],
        task="inference",
        source="measured",
        conditions={"img_size": 32, "device": "cpu", "precision": "fp32", "batch": "best"},
        metrics={
            "throughput": reading("throughput", throughput, 0.99 * throughput, 1.01 * throughput, method="test"),
            "inference_memory": reading("inference_memory", round(throughput * 1e6), method="test"),
        },
        environment={"host": "lab", "device_name": "a processor", "threads": 2},
    )


@pytest.fixture
def study(tmp_path: Path) -> Path:
    """The faster and more accurate of two models had three times as many epochs in its minutes."""
    models = (("vit_s16", 40.0, 1.0, 10.0), ("swin_ti", 60.0, 3.0, 20.0))
    for name, top1, epochs, throughput in models:
        append(tmp_path, [trained(name, top1, epochs), measured(name, throughput)])
    return tmp_path


def test_python_and_the_command_refuse_the_same_front(study: Path) -> None:
    with pytest.raises(RequestError, match=f"accuracies cannot be compared: {UNEQUAL}; train with --epochs"):
        favor.pareto("top1", "throughput", dataset="cifar10", study=study)
    done = CliRunner().invoke(app, ["pareto", "top1", "throughput", "--dataset", "cifar10", "--study", str(study)])
    assert UNEQUAL in str(done.exception)
    costs = favor.pareto("inference_memory", "throughput", dataset="cifar10", study=study)
    assert set(costs["model"]) == {"vit_s16", "swin_ti"}


def test_a_model_without_the_cost_takes_no_part_and_refuses_no_front(study: Path) -> None:
    append(study, [trained("cvt_13", 50.0, 3.0), measured("cvt_13", 15.0)])
    kept = [record for record in gather([study]).own if record.name != "vit_s16" or record.task == "accuracy"]
    other = study / "kept"
    append(other, kept)
    front = favor.pareto("top1", "throughput", dataset="cifar10", study=other)
    assert list(front["model"]) == ["swin_ti"]


def test_a_recommendation_by_speed_says_nothing_of_dominance_in_accuracy(study: Path) -> None:
    answer = recommend(gather([study]).table, Request("throughput", dataset="cifar10"))
    assert answer.favored is not None
    assert answer.favored.name == "swin_ti"
    assert answer.favored.on_front is None
    assert answer.why is not None
    assert answer.why.dominates == ()
    assert "top1" not in [loss.metric for loss in answer.why.gives_up]
    assert f"accuracies do not decide here: {UNEQUAL}" in answer.notes


def families(shortest: float) -> pd.DataFrame:
    """Four pairs of models; those of the family y are better, and were trained for three epochs."""
    params = [5e6, 10e6, 20e6, 40e6]
    top1 = [70.0, 75.0, 79.0, 81.0]
    epochs = [shortest] * 4 + [3.0] * 4
    return pd.DataFrame(
        {
            "name": [f"x{i}" for i in range(4)] + [f"y{i}" for i in range(4)],
            "family": ["x"] * 4 + ["y"] * 4,
            "params": [*params, *(1.03 * count for count in params)],
            "top1": [*top1, *(value + 2.0 + 0.1 * i for i, value in enumerate(top1))],
            "top1_epochs_low": epochs,
            "top1_epochs_high": epochs,
        }
    )


def test_families_are_not_compared_at_equal_cost() -> None:
    assert matched_every_way(families(3.0), "x", "y").verdict.startswith("y is better than x")
    result = matched_every_way(families(1.0), "x", "y")
    assert result.verdict == f"x and y are not compared: {UNEQUAL}"
    (comparison,) = result.comparisons
    assert (comparison.effect.verdict, comparison.effect.p, comparison.effect.low) == ("untested", None, None)
    assert comparison.effect.mean == pytest.approx(2.15)


def x_formers(shortest: float) -> pd.DataFrame:
    alike = {"dataset": "cifar10", "source": "measured", "pipeline": "mine@1", "minutes": 5, "final": True}
    pairs = (("vix_vit", "vix_vin", 9.0), ("vix_hybrid_vit", "vix_hybrid_vin", 9.5))
    return pd.DataFrame(
        [
            row
            for base, changed, gain in pairs
            for row in (
                {"name": base, "epochs": shortest, "top1": 56.0, **alike},
                {"name": changed, "epochs": 3.0, "top1": 56.0 + gain, **alike},
            )
        ]
    )


def test_an_effect_is_not_tested() -> None:
    pairs = [("vix_vit", "vix_vin"), ("vix_hybrid_vit", "vix_hybrid_vin")]
    assert effect_of_model(x_formers(3.0), "Nystrom attention", pairs).verdict == "better"
    effect = effect_of_model(x_formers(1.0), "Nystrom attention", pairs)
    assert (effect.verdict, effect.p, effect.p_rank, effect.low) == ("untested", None, None, None)
    assert effect.mean == pytest.approx(9.25)
    assert effect_text(effect) == f"untested: +9.25 points, 2 pairs ({UNEQUAL})"


def test_the_effect_of_a_condition_is_not_tested() -> None:
    def rows(shortest: float) -> pd.DataFrame:
        usual = {"dataset": "cifar10", "source": "measured", "minutes": 5.0, "final": True}
        old = [{"name": name, "pipeline": "old", "epochs": shortest, "top1": 50.0, **usual} for name in "ab"]
        gains = zip("ab", (8.0, 8.1), strict=True)
        new = [{"name": name, "pipeline": "new", "epochs": 3.0, "top1": 50.0 + gain, **usual} for name, gain in gains]
        return pd.DataFrame([*old, *new])

    assert effect_of_condition(rows(3.0), "pipeline", "old", "new").verdict == "better"
    effect = effect_of_condition(rows(1.0), "pipeline", "old", "new")
    assert (effect.verdict, effect.unequal) == ("untested", UNEQUAL)


def test_the_command_says_which_effect_is_not_tested(tmp_path: Path) -> None:
    append(tmp_path, [trained("vix_vit", 40.0, 1.0), trained("vix_vin", 60.0, 3.0)])
    done = CliRunner().invoke(app, ["effects", "--study", str(tmp_path)])
    assert f"Nystrom attention (measured) is not tested: {UNEQUAL}" in done.stderr


def test_the_fronts_of_years_are_refused() -> None:
    rows = pd.DataFrame({"name": ["a", "b"], "year": [2020, 2022], "top1": [80.0, 82.0], "throughput": [9.0, 9.5]})
    lengths = {"top1_epochs_low": [1.0, 3.0], "top1_epochs_high": [1.0, 3.0]}
    assert len(evolution(rows)) == 2
    with pytest.raises(RequestError, match=UNEQUAL):
        evolution(rows.assign(**lengths))


def test_accuracies_of_unequal_length_are_not_correlated(study: Path) -> None:
    append(study, [trained("cvt_13", 50.0, 3.0), measured("cvt_13", 15.0)])
    refusal = f"accuracies cannot be compared: {UNEQUAL}; train with --epochs"
    words = ["correlate", "--dataset", "cifar10", "--study", str(study)]
    assert str(CliRunner().invoke(app, [*words, "top1", "throughput"]).exception) == refusal
    # Without the short run they are comparable, and costs are compared in any case.
    append(study, [trained("deit_s16", 50.0, 3.0), measured("deit_s16", 12.0)])
    assert CliRunner().invoke(app, [*words, "top1", "throughput", "--without", "vit_s16"]).exit_code == 0
    done = CliRunner().invoke(app, [*words, "top1", "throughput", "inference_memory", "--json"])
    found = json.loads(done.stdout)
    assert (found["columns"], found["unequal"]) == (["throughput", "inference_memory"], [refusal])
    assert f"left out: {refusal}" in CliRunner().invoke(app, [*words, "top1", "throughput", "inference_memory"]).stderr


NAMES = ("vit_s16", "swin_ti", "cvt_13")
LONG, SHORT = ({"vit_s16": 2.0, "swin_ti": 2.0, "cvt_13": length} for length in (2.0, 6.0))


def trained_on(folder: Path, lengths: dict[str, dict[str, float]]) -> pd.DataFrame:
    """Three models, trained for some minutes on every dataset, for so many epochs."""
    runs = [
        replace(run, conditions={**run.conditions, "dataset": dataset})
        for dataset, epochs in lengths.items()
        for place, name in enumerate(NAMES)
        for run in [trained(name, 40.0 + (7 * place + len(dataset)) % 20, epochs[name])]
    ]
    append(folder, runs)
    return gather([folder]).table


def test_datasets_with_training_runs_of_unequal_length_are_not_correlated(tmp_path: Path) -> None:
    why = "cars: accuracies cannot be compared: training runs of unequal length: 2 to 6 epochs; train with --epochs"
    table = trained_on(tmp_path / "three", {"cifar10": LONG, "cifar100": LONG, "cars": SHORT})
    result = correlate_datasets(table)
    assert (result.columns, result.unequal) == (("cifar10", "cifar100"), (why,))
    assert correlate_datasets(table, without=["cvt_13"]).unequal == ()
    words = ["correlate", "--datasets", "--study"]
    assert f"left out: {why}" in CliRunner().invoke(app, [*words, str(tmp_path / "three")]).stderr
    trained_on(tmp_path / "two", {"cifar10": LONG, "cars": SHORT})
    assert str(CliRunner().invoke(app, [*words, str(tmp_path / "two")]).exception) == why


def test_the_figure_of_datasets_says_why_it_is_not_drawn(tmp_path: Path) -> None:
    table = trained_on(tmp_path, {"cifar10": LONG, "cars": SHORT})
    figure = dataset_correlation_figure(table)
    assert figure.chart is None
    assert figure.missing is not None
    assert figure.missing.startswith("Not drawn: cars: accuracies cannot be compared: ")


# ---- unfinished training runs ----


@pytest.fixture
def unfinished(tmp_path: Path) -> Path:
    """One training has finished its 100 epochs, the other is at epoch 3."""
    append(tmp_path, [trained("vit_s16", 60.0, 100, of=100), trained("cvt_13", 61.0, 100, of=100)])
    append(tmp_path, [trained("swin_ti", 20.0 + epoch, epoch, of=100) for epoch in (1, 2, 3)])
    return tmp_path


def test_an_unfinished_training_is_not_ranked_or_tested_against_a_finished_one(unfinished: Path) -> None:
    scope = Scope("cifar10", unfinished=True)
    table = gather([unfinished]).table
    answer = recommend(table, Request(dataset="cifar10", unfinished=True))
    said = "accuracies cannot be compared: training runs of unequal length: 3 to 100 epochs; leave out --unfinished"
    assert (answer.favored, answer.undecided) == (None, (said,))
    rows = Comparison(table, scope).compare_in(None).rows
    accuracy = next(e for e in compare(rows, "vit_s16", "swin_ti", dataset="cifar10").metrics if e.metric == "top1")
    assert (accuracy.verdict, accuracy.p) == ("untested", None)
    finished = next(e for e in compare(rows, "vit_s16", "cvt_13", dataset="cifar10").metrics if e.metric == "top1")
    assert finished.p is not None
    assert recommend(table, Request(dataset="cifar10")).choices[0].name == "cvt_13"


def test_a_correlation_takes_the_option_that_its_refusal_names(tmp_path: Path) -> None:
    runs = [trained(name, 60.0 + place, 50, of=100) for place, name in enumerate(NAMES)]
    append(tmp_path, [replace(run, conditions={**run.conditions, "dataset": "photos"}) for run in runs])
    words = ["correlate", "top1", "params", "--dataset", "photos", "--study", str(tmp_path)]
    refused = str(CliRunner().invoke(app, words).exception)
    assert refused == "all training runs on photos are unfinished; --unfinished includes them"
    assert CliRunner().invoke(app, [*words, "--unfinished"]).exit_code == 0


def test_trainings_that_are_equally_far_are_compared(tmp_path: Path) -> None:
    append(tmp_path, [trained("vit_s16", 60.0, 50, of=100), trained("swin_ti", 40.0, 50, of=100)])
    answer = recommend(gather([tmp_path]).table, Request(dataset="cifar10", unfinished=True))
    assert answer.favored is not None
    assert answer.favored.name == "vit_s16"


@pytest.mark.parametrize("seeds", ["mean", "best"])
def test_an_unfinished_seed_does_not_count_beside_a_finished_one(unfinished: Path, seeds: str) -> None:
    append(unfinished, [trained("vit_s16", 99.0, 3, seed=1, of=100)])
    table = gather([unfinished]).table
    scope = Scope("cifar10", unfinished=True, seeds=seeds)  # type: ignore[arg-type]
    rows = Comparison(table, scope).compare_in(None).trained
    row = rows.set_index("name").loc["vit_s16"]
    assert (row["top1"], row["top1_seeds"], row["top1_epochs_low"]) == (60.0, 1, 100.0)
    assert pd.isna(row["top1_unfinished"])


def test_python_gets_the_setting_of_every_number(study: Path) -> None:
    costs = ("inference_memory", "throughput")
    front = favor.pareto(*costs, dataset="cifar10", study=study)
    assert front["throughput_setting"].str.startswith("cpu, fp32").all()
    words = ["pareto", *costs, "--dataset", "cifar10", "--study", str(study), "--json"]
    assert json.loads(CliRunner().invoke(app, words).stdout)["setting"].startswith("cpu, fp32, eager")
