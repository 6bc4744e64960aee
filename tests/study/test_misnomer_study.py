"""The study `misnomer` in miniature, from its own file: a few models on some digits, to the figures of the paper."""

import json
from importlib.resources import files
from pathlib import Path

import numpy as np
import pytest
import yaml
from typer.testing import CliRunner

from favor.cli import app
from favor.data import opening
from favor.evidence import load_evidence
from favor.records import read, table
from favor.report.figures import Figure, all_figures
from study.in_this_process import in_this_process
from study.some_digits import some_digits

MODELS = ["vit_xs4_d2", "vit_xs4", "vit_xs4_w64", "universal_xs4_w96", "switch_xs4_w64"]
RECIPE = (
    "name: miniature\nversion: 1\ndoc: of this test\ndata: digits\nimg_size: 32\nepochs: 1\nbatch_size: 40\n"
    "optimizer: adamw\nlr: 1e-3\nweight_decay: 0.05\n"
)


def miniature(folder: Path) -> Path:
    """The built-in file with fewer models, another recipe and fewer epochs, and nothing else changed."""
    text = (files("favor.study") / "built_in" / "misnomer.yaml").read_text(encoding="utf-8")
    study = yaml.safe_load(text)
    (folder / "recipe.yaml").write_text(RECIPE)
    study["models"] = MODELS
    study |= {"device": "cpu", "threads": 1, "price_per_hour": 2.0}
    for training in study["train"]:
        training["recipe"], training["epochs"] = "recipe.yaml", training["epochs"] // 4
    study["budget"]["measurement"] = "0.1 s"
    study["report"] |= {"dataset": "digits", "page": False}
    (folder / "miniature.yaml").write_text(yaml.safe_dump(study))
    return folder / "miniature.yaml"


@pytest.fixture(scope="module")
def study(tmp_path_factory: pytest.TempPathFactory) -> Path:
    folder = tmp_path_factory.mktemp("misnomer")
    with in_this_process(folder, {}) as patch:
        patch.setitem(opening.INSIDE_PACKAGE, "digits", some_digits)
        done = CliRunner().invoke(app, ["run", str(miniature(folder)), "--study", str(folder / "study"), "--wait"])
    assert done.exit_code == 0, done.output
    return folder / "study"


@pytest.fixture(scope="module")
def figures(study: Path) -> dict[str, Figure]:
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(table, "flagged", tuple)  # times may contradict each other while other tests are running
        evidence = load_evidence([study])[0]
    return {figure.id: figure for figure in all_figures(evidence)}


def test_every_model_is_measured_and_trained_and_one_with_two_schedules_and_two_weight_decays(study: Path) -> None:
    records = read(study).records
    assert {record.status for record in records} == {"ok"}
    assert {record.name for record in records if "throughput" in record.metrics} == set(MODELS)
    final = [record for record in records if record.conditions.get("final") is True]
    trained = [(record.name, record.conditions["epochs"], record.conditions["recipe.weight_decay"]) for record in final]
    assert sorted(trained) == sorted([*((name, 1, 0.05) for name in MODELS), ("vit_xs4", 3, 0.05), ("vit_xs4", 3, 0.5)])


def test_the_price_of_the_study_is_in_the_result_of_each_training(study: Path) -> None:
    final = [record for record in read(study).records if record.conditions.get("final") is True]
    for record in final:
        money, hours = (record.metrics[name].value for name in ("train_money", "train_device_hours"))
        assert money == pytest.approx(2.0 * hours)


@pytest.mark.parametrize(
    "name",
    [
        *("misnomer-quality", "misnomer-schedules", "misnomer-weight-decays", "misnomer-depth-width"),
        *("misnomer-families", "misnomer-indicator-scatter"),
    ],
)
def test_a_figure_of_the_paper_is_filled_from_its_records(name: str, figures: dict[str, Figure]) -> None:
    figure = figures[name]
    assert figure.chart is not None, figure.missing
    assert "measured" in figure.caption
    assert "published" not in figure.caption
    drawn = json.dumps(figure.chart.to_dict())
    assert "vit_xs4" in drawn
    assert "misnomer_" not in drawn
    if name in ("misnomer-schedules", "misnomer-weight-decays"):
        assert "Money" in [plot["title"] for plot in figure.chart.to_dict()["concat"]]


def test_the_accuracies_drawn_are_those_of_the_records(study: Path, figures: dict[str, Figure]) -> None:
    own = {
        record.name: record.metrics["top1"].value
        for record in read(study).records
        if record.conditions.get("final") is True and record.conditions["recipe.epochs"] == 1
    }
    values = [
        row
        for chart in figures["misnomer-quality"].chart.to_dict()["concat"]  # type: ignore[union-attr]
        for row in chart["data"]["values"]
    ]
    assert {row["name"] for row in values} == {"vit_xs4", "vit_xs4_w64", "universal_xs4_w96", "switch_xs4_w64"}
    for row in values:
        assert row["y"] == pytest.approx(own[row["name"]], rel=1e-3)


def test_favor_budget_shows_its_curves(study: Path) -> None:
    done = CliRunner().invoke(app, ["budget", str(study), "--over", "hours", "--json"])
    assert done.exit_code == 0, done.output
    curves = {curve["run"]: curve for curve in json.loads(done.stdout)["curves"]}
    assert set(curves) == {
        *(name for name in MODELS if name != "vit_xs4"),
        "vit_xs4 (epochs=1, weight_decay=0.05)",
        "vit_xs4 (epochs=3, weight_decay=0.05)",
        "vit_xs4 (epochs=3, weight_decay=0.5)",
    }
    hours = [point["hours"] for point in curves["vit_xs4 (epochs=3, weight_decay=0.5)"]["points"]]
    assert hours == sorted(hours)
    assert np.all(np.array(hours) > 0)
