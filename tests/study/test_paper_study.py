"""The study `paper` in miniature: the same file with small models and little data, from training runs to figures."""

import json
from collections import Counter
from collections.abc import Sequence
from dataclasses import replace
from importlib.resources import files
from pathlib import Path
from typing import Any

import msgspec
import numpy as np
import pandas as pd
import pytest
import yaml
from PIL import Image
from scipy.io import savemat
from typer.testing import CliRunner

from favor import load_records
from favor.analyze.trainings import results, trainings
from favor.cli import app
from favor.data import names
from favor.records import counted_table
from favor.records.schema import Record
from favor.records.store import append, read
from favor.report.figures import Figure, all_figures
from favor.zoo.encoder import Size
from study.in_this_process import in_this_process

pytestmark = pytest.mark.timeout(900)
SMALL, LARGER = Size(16, 2, 2), Size(32, 2, 2)
MODELS = {"vit_ti16": SMALL, "vit_s16": LARGER, "linformer_s16": SMALL, "gfnet_s16": SMALL, "evit_s16": LARGER}
"""Models of the paper, with the width, depth and heads of the miniature."""
SEEDS = [1, 2]
OVERRIDDEN = "vit_ti16"
"""It gets a learning rate of its own, as models that did not train stably did."""
OF_EVERY_STAGE = ["epochs=1", "warmup_epochs=0", "batch_size=2", "precision=fp32"]
FILLED = {
    *("Figure 1", "Figures 3 and 15", "Figures 4 and 18", "Figures 5 (left) and 21", "Figure 5 (right)"),
    *(f"Figure {number}" for number in (7, 8, 9, 10, 11, 12, 13, 14, 16, 17, 19, 20)),
    *(f"Table {number}" for number in (1, 2, 5, 6, 7)),
}


OWN = {
    "Figure 7": "your runs",
    "Table 2": "Your records",
    "Table 5": "Pearson, 5 models",
    "Table 6": "another device",
    "Table 7": "your records",
}
"""What a figure without names of models has only if it draws the study's numbers."""


def save(file: Path, value: int) -> None:
    file.parent.mkdir(parents=True, exist_ok=True)
    pixels = np.random.default_rng(value).integers(0, 255, (32, 32, 3), dtype=np.uint8)
    Image.fromarray(pixels).save(file)


def write_data(root: Path) -> None:
    """Four training and two test images in the layout of each dataset."""
    for name in ("imagenet-21k", "imagenet-1k", "places365_standard"):
        for number in range(6):
            save(root / name / ("train" if number < 4 else "val") / f"n{number % 2}" / f"{number}.png", number)
    for number in range(1, 7):
        save(root / "flowers-102" / "jpg" / f"image_{number:05d}.jpg", number)
    savemat(root / "flowers-102" / "imagelabels.mat", {"labels": np.array([[1, 2] * 3])})
    savemat(root / "flowers-102" / "setid.mat", {"trnid": [[1, 2]], "valid": [[3, 4]], "tstid": [[5, 6]]})
    cars = root / "stanford_cars"
    (cars / "devkit").mkdir(parents=True)
    for part, count in (("train", 4), ("test", 2)):
        rows = np.zeros((1, count), dtype=[("fname", object), ("class", object)])
        for number in range(count):
            save(cars / f"cars_{part}" / f"{number}.jpg", number)
            rows[0, number] = (f"{number}.jpg", np.array([[1 + number % 2]]))
        name = "devkit/cars_train_annos.mat" if part == "train" else "cars_test_annos_withlabels.mat"
        savemat(cars / name, {"annotations": rows})
    savemat(cars / "devkit" / "cars_meta.mat", {"class_names": np.array([["Audi", "BMW"]], dtype=object)})


def miniature() -> dict[str, Any]:
    """The file of the study; its stages and image sizes are as they are."""
    text = (files("favor.study") / "built_in" / "paper.yaml").read_text(encoding="utf-8")
    content: dict[str, Any] = yaml.safe_load(text)
    content |= {"models": list(MODELS), "precisions": ["fp32"], "device": "cpu", "threads": 1, "energy": False}
    content |= {"batch_size": {"inference": 2, "training": 2}, "budget": {"measurement": "0.1 s"}}
    content["report"] |= {"page": False, "min_accuracy": 0}
    for training in content["train"]:
        make_short(training)
        training |= {"processes": 2, "workers": 0, "accumulation": 1}
        if "seeds" in training:
            training["seeds"] = SEEDS
    first = content["train"][0]
    for stage in (first, first["finetune"][0]):
        stage["overrides"] = [{"models": [OVERRIDDEN], "set": ["lr=5e-4"]}]
    return content


def make_short(stage: dict[str, Any]) -> None:
    stage["set"] = [*stage.get("set", []), *OF_EVERY_STAGE]
    later = stage.get("finetune", [])
    for each in later if isinstance(later, list) else [later]:
        make_short(each)


@pytest.fixture(scope="module")
def ran(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """The folder of the study after it ran."""
    place = tmp_path_factory.mktemp("paper")
    write_data(place / "data")
    (place / "paper.yaml").write_text(yaml.safe_dump(miniature()))
    whole = {name: replace(known, num_classes=None, size=None) for name, known in names.SETS.items()}
    with in_this_process(place, MODELS) as patch:
        patch.setattr(names, "SETS", whole)  # else records name a few images of a set as a part of it
        done = CliRunner().invoke(app, ["run", str(place / "paper.yaml"), "--study", str(place / "study"), "--wait"])
    assert done.exit_code == 0, done.output[-3000:]
    return place / "study"


def with_accuracies(records: Sequence[Record]) -> list[Record]:
    """The records with accuracies that differ: two test images give the same one to every model.

    The best ones are those of `vit_s16`, so that it is on every front, however fast it was. The flags of tests that run
    beside this one are gone, since busy numbers are left out of figures.
    """
    draws = np.random.default_rng(0)
    found = []
    for record in records:
        metrics = dict(record.metrics)
        if "top1" in metrics:
            best = 10 if record.name == "vit_s16" else 0
            metrics["top1"] = msgspec.structs.replace(metrics["top1"], value=float(draws.uniform(70, 80) + best))
        environment = {key: value for key, value in record.environment.items() if key != "flags"}
        found.append(msgspec.structs.replace(record, metrics=metrics, environment=environment))
    return found


def on_a_second_device(records: Sequence[Record]) -> list[Record]:
    """The measurements as another machine would have made them, at half of the speed."""
    copies = []
    for record in records:
        if record.task in ("inference", "training"):
            metrics = dict(record.metrics)
            if "throughput" in metrics:
                fast = metrics["throughput"]
                metrics["throughput"] = msgspec.structs.replace(fast, value=fast.value / 2, low=None, high=None)
            environment = {**record.environment, "host": "other", "device_name": "another device"}
            copies.append(msgspec.structs.replace(record, metrics=metrics, environment=environment))
    return copies


def test_every_training_of_the_benchmark_ends_with_a_record(ran: Path) -> None:
    finals = [record for record in read(ran).records if record.conditions.get("final") is True]
    assert {record.status for record in finals} == {"ok"}
    about = ("dataset", "img_size", "pretraining", "pretraining_img_size")
    by_stage = Counter(tuple(record.conditions.get(name) for name in about) for record in finals)
    everyone, seeds = len(MODELS), len(SEEDS)
    tuned = "imagenet-21k+imagenet-1k"
    assert by_stage == {
        ("imagenet-21k", 224, "none", None): everyone + seeds,
        ("imagenet-21k", 192, "none", None): everyone,
        ("imagenet-1k", 224, "imagenet-21k", 224): everyone + seeds,
        ("imagenet-1k", 384, "imagenet-21k", 224): everyone,
        ("imagenet-1k", 224, "imagenet-21k", 192): everyone,
        ("cars", 224, tuned, 224): everyone,
        ("flowers102", 224, tuned, 224): everyone,
        ("places365", 224, tuned, 224): everyone,
    }


def test_a_model_with_an_override_is_compared_with_all_others(ran: Path) -> None:
    deciding = trainings(results(load_records(ran)), "imagenet-1k")[0]
    assert deciding.models == len(MODELS)
    assert (deciding.setting.img_size, deciding.setting.pretraining_img_size) == (224, 224)
    tuned = [
        record
        for record in read(ran).records
        if record.conditions.get("pipeline") == deciding.setting.pipeline
        and (record.conditions["img_size"], record.conditions.get("pretraining_img_size")) == (224, 224)
        and record.conditions["recipe.seed"] == 0
    ]
    assert {record.name: record.conditions.get("overrides") for record in tuned} == {
        name: "lr=0.0005" if name == OVERRIDDEN else None for name in MODELS
    }


@pytest.fixture(scope="module")
def figures(ran: Path, tmp_path_factory: pytest.TempPathFactory) -> dict[str, Figure]:
    """The benchmark's figures from records of the study, those of a second device, and counts that ship with favor."""
    records = with_accuracies(read(ran).records)
    both = tmp_path_factory.mktemp("two")
    append(both, [*records, *on_a_second_device(records)])
    counts = counted_table()
    table = pd.concat([load_records(both), counts[counts["name"].isin(list(MODELS))]], ignore_index=True)
    return {figure.source: figure for figure in all_figures(table) if figure.id.startswith("benchmark-")}


def test_its_records_alone_fill_every_figure_and_table_of_the_paper(figures: dict[str, Figure]) -> None:
    assert set(figures) >= FILLED
    assert {source: figure.missing for source, figure in figures.items() if figure.missing} == {}


@pytest.mark.parametrize("source", sorted(FILLED))
def test_a_figure_draws_own_numbers(source: str, figures: dict[str, Figure]) -> None:
    assert OWN.get(source, "vit_s16") in json.dumps(figures[source].chart.to_dict())  # type: ignore[union-attr]
