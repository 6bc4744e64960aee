"""The studies `vix-cifar10` and `vix-tiny-imagenet` in miniature, each from its own file, to the paper's tables."""

import json
from dataclasses import replace
from importlib.resources import files
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import torch
import yaml
from typer.testing import CliRunner

from favor.analyze.comparison import Scope
from favor.cli import app
from favor.data import names, opening
from favor.data.in_memory import InMemory
from favor.data.sources import Splits
from favor.evidence import load_evidence
from favor.records.schema import Record
from favor.records.store import read
from favor.report.figures.x_formers import x_formers_figure
from favor.zoo.encoder import Size
from study.in_this_process import in_this_process

MODELS = ["vix_vit", "vix_vin", "vix_hybrid_vit"]
TINY = Size(dim=16, depth=1, heads=2)
STUDIES = {"vix-cifar10": ("cifar10", 32, 10), "vix-tiny-imagenet": ("tiny-imagenet", 64, 200)}
IMAGES = 4


def some_images(side: int, classes: int) -> Splits:
    drawn = np.random.default_rng(0).integers(0, 255, (IMAGES, 3, side, side), dtype=np.uint8)
    part = InMemory(torch.from_numpy(drawn), np.arange(IMAGES) % classes)
    return Splits(tuple(map(str, range(classes))), part, part)


def miniature(name: str) -> dict[str, Any]:
    """The built-in file with fewer models and seeds, one epoch of small batches, on a CPU, and nothing else changed."""
    text = (files("favor.study") / "built_in" / f"{name}.yaml").read_text(encoding="utf-8")
    content: dict[str, Any] = yaml.safe_load(text)
    assert content["train"]["seeds"] == [0, 1, 2]
    assert content["batch_size"] == {"training": 64}
    content |= {"models": MODELS, "precisions": ["fp32"], "device": "cpu", "threads": 1, "energy": False}
    content |= {"batch_size": {"inference": 1, "training": 2}, "budget": {"measurement": "0.1 s"}}
    content["train"] |= {"seeds": [0, 1], "set": ["batch_size=2", "epochs=1", "precision=fp32"]}
    content["train"] |= {"workers": 0, "accumulation": 1}
    content["report"] |= {"page": False}
    return content


@pytest.fixture(scope="module", params=list(STUDIES))
def ran(request: pytest.FixtureRequest, tmp_path_factory: pytest.TempPathFactory) -> tuple[str, Path]:
    """The dataset of a study, and the study's folder after it ran."""
    dataset, side, classes = STUDIES[request.param]
    place = tmp_path_factory.mktemp(request.param)
    (place / "study.yaml").write_text(yaml.safe_dump(miniature(request.param)))
    (place / "data" / names.SETS[dataset].places[0]).mkdir(parents=True)
    with in_this_process(place, dict.fromkeys(MODELS, TINY)) as patch:
        patch.setitem(opening.READERS, dataset, lambda _: some_images(side, classes))
        patch.setattr(names, "SETS", {**names.SETS, dataset: replace(names.SETS[dataset], size=None)})
        done = CliRunner().invoke(app, ["run", str(place / "study.yaml"), "--study", str(place / "study"), "--wait"])
    assert done.exit_code == 0, done.output[-3000:]
    return dataset, place / "study"


def finals(study: Path) -> list[Record]:
    return [record for record in read(study).records if record.conditions.get("final") is True]


def test_every_model_is_trained_with_every_seed_in_plain_attention(ran: tuple[str, Path]) -> None:
    dataset, study = ran
    about = [(record.name, record.conditions["recipe.seed"]) for record in finals(study)]
    assert sorted(about) == sorted((name, seed) for name in MODELS for seed in (0, 1))
    assert {record.conditions["dataset"] for record in finals(study)} == {dataset}
    assert {record.conditions["attention"] for record in finals(study)} == {"plain"}


def test_every_column_of_the_papers_tables_is_known(ran: tuple[str, Path]) -> None:
    _, study = ran
    for name in MODELS:
        known = {metric for record in read(study).records if record.name == name for metric in record.metrics}
        assert known >= {"params", "params_paper", "model_size_paper", "top1", "top5", "train_memory"}


def test_with_plain_attention_vit_takes_more_memory_than_nystrom_attention(ran: tuple[str, Path]) -> None:
    _, study = ran
    memory = {r.name: r.metrics["train_memory"].value for r in read(study).records if r.task == "training"}
    assert memory["vix_vit"] > 2 * memory["vix_vin"]


def test_the_effects_come_from_its_records(ran: tuple[str, Path]) -> None:
    dataset, study = ran
    done = CliRunner().invoke(app, ["effects", "--study", str(study), "--dataset", dataset, "--json"])
    own = {entry["change"]: entry for entry in json.loads(done.stdout) if entry["source"] == "measured"}
    assert set(own) == {"Nystrom attention", "convolutional embedding"}
    means = {name: np.mean([r.metrics["top1"].value for r in finals(study) if r.name == name]) for name in MODELS}
    assert own["Nystrom attention"]["mean"] == pytest.approx(means["vix_vin"] - means["vix_vit"])


def test_the_figure_draws_the_best_seed_if_asked(ran: tuple[str, Path]) -> None:
    dataset, study = ran
    if dataset != "cifar10":
        pytest.skip("the paper's figure is of CIFAR-10")
    table = load_evidence([study])[0]
    for seeds, over in (("mean", np.mean), ("best", max)):
        figure = x_formers_figure(table, Scope(seeds=seeds))  # type: ignore[arg-type]
        assert figure.chart is not None
        assert "top-1 accuracy measured" in figure.caption
        drawn = {row["name"]: row["y"] for row in figure.chart.to_dict()["layer"][0]["data"]["values"]}
        for name in MODELS:
            values = [r.metrics["top1"].value for r in finals(study) if r.name == name]
            assert drawn[name] == pytest.approx(over(values), rel=1e-3)
