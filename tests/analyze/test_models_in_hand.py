"""Models that the user trained on images of their own: which are compared, and that the answer can be used at once."""

import shlex
from pathlib import Path
from typing import Any

import pytest
import torch
import typer
from msgspec.structs import replace
from typer.testing import CliRunner

import favor
from favor.analyze import Comparison, Request, Scope, recommend
from favor.cli import app
from favor.errors import RequestError
from favor.records import CardFields, Record, append, gather, reading
from favor.study.resolved import ResolvedStudy
from favor.training.checkpoint import save_model
from favor.training.recipe import load_recipe
from favor.training.state import Trained

PHOTOS = "folder:photos"
BICUBIC = "eval_crop_ratio=0.9504950495049505 interpolation=bicubic"
HALVES = "interpolation=bicubic mean=(0.5, 0.5, 0.5) std=(0.5, 0.5, 0.5)"


def tuned(name: str, weights: str, top1: float, brings: str = "", *, size: int = 224, **more: object) -> Record:
    """The last record of `favor finetune NAME --pretrained --data folder:photos`."""
    asked: dict[str, Any] = {"changes": "batch_size=8", "epochs": 20, "seed": 0, "dataset": PHOTOS} | more
    conditions = {
        "dataset": asked["dataset"],
        "pipeline": " ".join(filter(None, ("transfer@1", asked["changes"], brings))),
        "pretraining": weights,
        "pretraining_img_size": 224,
        "distillation": False,
        "img_size": size,
        "batch_size": 8,
        "device": "cpu",
        "precision": "amp-bf16",
        "recipe.epochs": asked["epochs"],
        "recipe.seed": asked["seed"],
        "epochs": 15,  # it stopped early
        "final": True,
    }
    run = f"{name}-{weights}-{size}px-seed{asked['seed']}".replace(":", "_")
    return Record(
        name=name,
        model=CardFields(name, name, None, None, 2021, "own"),
        task="accuracy",
        source="measured",
        conditions=conditions,
        metrics={"top1": reading("top1", top1, method="each of 400 images once")},
        environment={"host": "lab", "device_name": "a card", "threads": 8, "evaluation_images": 400, "run": run},
        time="2026-11-16T00:00:00Z",
    )


THREE = (
    tuned("vit_ti16", "timm:vit_tiny_patch16_224.augreg_in21k_ft_in1k", 90.0, HALVES),
    tuned("resnet18", "timm:resnet18.a1_in1k", 80.0, BICUBIC, size=288),
    tuned("timm:levit_128s", "timm:levit_128s.fb_dist_in1k", 60.0),
)


def recommended(study: Path, *words: object) -> str:
    return CliRunner().invoke(app, ["recommend", "--study", str(study), *map(str, words)]).output


def test_models_that_one_recipe_fine_tuned_each_from_its_published_weights_are_compared(tmp_path: Path) -> None:
    append(tmp_path, THREE)
    answer = recommend(gather([tmp_path]).table, Request(dataset=PHOTOS))
    assert answer.favored is not None
    assert (answer.favored.name, answer.considered) == ("vit_ti16", 3)
    assert [choice.img_size for choice in answer.choices] == [224, 288, 224]
    (note,) = [text for text in answer.notes if text.startswith("accuracy:")]
    assert "pipeline transfer@1 batch_size=8, each model from published weights of its own" in note
    assert "(3 models); initial weights, their preprocessing and image size are each model's own: " in note
    assert "resnet18 (resnet18.a1_in1k, 288 px)" in note
    table = CliRunner().invoke(app, ["table", str(tmp_path), "--markdown", "--metrics", "top1"]).output
    assert "fine-tuned from levit_128s.fb_dist_in1k, with its preprocessing" in table
    assert "left out" not in table
    raw = THREE[0].conditions["pipeline"]
    assert recommend(gather([tmp_path]).table, Request(dataset=PHOTOS, pipeline=str(raw))).considered == 3


@pytest.mark.parametrize(
    "other",
    [
        tuned("cvt_13", "timm:cvt_13.in1k", 99.0, changes="epochs=3 batch_size=8", epochs=3),
        tuned("cvt_13", "timm:cvt_13.in1k", 99.0, changes="batch_size=8 lr=0.1"),
        tuned("cvt_13", "timm:cvt_13.in1k+digits", 99.0),
        tuned("cvt_13", "file:weights.pt", 99.0),
        tuned("cvt_13", "imagenet-21k", 99.0),
    ],
)
def test_other_recipes_and_weights_that_are_not_published_stay_apart(tmp_path: Path, other: Record) -> None:
    append(tmp_path, (*THREE, other))
    answer = recommend(gather([tmp_path]).table, Request(dataset=PHOTOS))
    assert answer.considered == 3
    assert "cvt_13" not in [choice.name for choice in answer.choices]


def test_of_two_published_weights_of_a_model_the_better_ones_count_and_they_are_no_seeds_of_one(tmp_path: Path) -> None:
    better = [tuned("vit_ti16", "timm:vit_tiny.augreg", top1, seed=seed) for seed, top1 in enumerate((92.0, 94.0))]
    append(tmp_path, (*better, *THREE))
    rows = Comparison(gather([tmp_path]).table, Scope(PHOTOS)).compare_in(None).trained.set_index("name")
    vit = rows.loc["vit_ti16"]
    assert (vit["top1"], vit["top1_seeds"]) == (93.0, 2)
    assert (vit["top1_published_weights"], vit["top1_run"]) == ("vit_tiny.augreg", better[1].environment["run"])


def test_where_no_two_models_were_trained_alike_none_is_favored(tmp_path: Path) -> None:
    other = tuned("resnet18", "timm:resnet18.a1_in1k", 80.0, changes="lr=0.1")
    append(tmp_path, (THREE[0], other))
    shown = recommended(tmp_path, "--dataset", PHOTOS)
    assert "No model can be favored." in shown
    assert "accuracies cannot be compared: only one model was trained with folder:photos, pipeline transfer@1" in shown
    assert "100%" not in shown
    alone = recommended(tmp_path, "--dataset", PHOTOS, "--among", "resnet18")
    assert "resnet18 is the only model" in alone
    assert "100%" not in alone


def test_the_answer_names_the_run_and_no_fresh_weights(tmp_path: Path) -> None:
    append(tmp_path / "a study", THREE)
    folder = tmp_path / "a study" / "runs" / str(THREE[0].environment["run"])
    folder.mkdir(parents=True)
    shown = recommended(tmp_path / "a study", "--dataset", PHOTOS)
    assert f"Use it: favor predict '{folder}' photo.jpg\n" in shown
    assert "create_model" not in shown
    assert "With published weights" not in shown


def test_own_accuracies_on_another_dataset_are_pointed_out(tmp_path: Path) -> None:
    append(tmp_path, (*THREE, tuned("vit_ti16", "none", 70.0, dataset="digits")))
    hint = "your own accuracies are on folder:photos, digits: choose with --dataset NAME"
    assert f"note: {hint}\n" in recommended(tmp_path)
    without_numbers = recommended(tmp_path, "--prefer", "latency", "--device", "cpu")
    assert "no model has a number for latency_p50 on cpu" in without_numbers
    assert f"note: {hint}\n" in without_numbers
    with pytest.raises(RequestError, match=f"no model that matches 'timm:lev.*; {hint}"):
        recommend(gather([tmp_path]).table, Request(among="timm:levit_128s", pipeline="wtf-deit3"))
    assert "choose with --dataset" not in recommended(tmp_path, "--dataset", "digits")


def test_the_papers_front_on_imagenet_does_not_decide_on_other_images(tmp_path: Path) -> None:
    append(tmp_path, THREE)
    answer = favor.recommend(prefer="latency", dataset=PHOTOS, study=tmp_path)
    assert (answer.favored, answer.ranked_by) == (None, "numbers")
    assert "no model has a number for latency_p50" in answer.undecided[0]


def test_suggested_commands_run_as_they_are_printed(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    names, study = ("vit_xs4", "vix_vil"), tmp_path / "study"
    trained = [tuned(name, "none", 80.0, size=32, dataset="digits") for name in names]
    run = study / "runs" / str(trained[0].environment["run"])
    run.mkdir(parents=True)
    checkpoint(run / "best.safetensors")
    append(study, (*trained, quantized(trained[0])))
    words = ("--dataset", "digits", "--max-p99", "50ms", "--qps", "20")
    resolved: list[ResolvedStudy] = []

    def keep(request: ResolvedStudy, *_: object, **__: object) -> None:
        resolved.append(request)
        raise typer.Exit

    monkeypatch.setattr("favor.study.running.run_request", keep)
    for precision, weights in (("fp32", None), ("int8", str(run))):
        shown = recommended(study, *words, "--precision", precision)
        (line,) = [line for line in shown.splitlines() if line.startswith("Run: ")]
        command = line.removeprefix("Run: ").split("; then ")[0]
        done = CliRunner().invoke(app, shlex.split(command)[1:])
        assert done.exit_code == 0, (command, done.output)
        assert (resolved[-1].num_classes, resolved[-1].checkpoint) == (10, weights)


def checkpoint(file: Path) -> None:
    known = Trained(
        favor="0",
        run="a",
        step=0,
        epochs=0.0,
        model="vit_xs4",
        img_size=32,
        in_chans=3,
        classes=tuple("0123456789"),
        dataset="digits",
        pretraining="none",
        recipe=load_recipe("laptop-digits"),
        top1=None,
    )
    torch.manual_seed(0)
    save_model(file, favor.create_model("vit_xs4", num_classes=10), known)


def quantized(trained: Record) -> Record:
    """Its measurement in int8, with the change of accuracy."""
    of_training = ("dataset", "pipeline", "pretraining", "distillation", "img_size", "recipe.epochs")
    conditions = {name: trained.conditions[name] for name in of_training}
    ran = {"num_classes": 10, "device": "cpu", "precision": "int8", "runtime": "openvino", "batch": "best"}
    values = {"throughput": 99.0, "latency_p50": 0.01, "top1_change": -0.5}
    return replace(
        trained,
        task="inference",
        conditions={**conditions, **ran},
        metrics={name: reading(name, value, value, value, method="test") for name, value in values.items()},
        environment={"host": "lab", "device_name": "a processor", "threads": 2},
    )
