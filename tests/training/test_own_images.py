"""Fine-tuning on a folder of one's own images: without configuration, from the folder to the report and back."""

import csv
import io
import json
import random
import re
import shutil
import time
from pathlib import Path

import numpy as np
import pytest
import torch
from PIL import Image
from rich.console import Console
from rich.progress import Progress
from typer.testing import CliRunner, Result

import favor
from favor.cli import app
from favor.cli.train import count_images
from favor.data.augment import Normalization
from favor.data.framing import Framing
from favor.data.loader import BatchPlan
from favor.errors import RequestError
from favor.machine.device import find_device
from favor.machine.openmp_wait import wait_asleep
from favor.machine.precision import Precision
from favor.records.store import read
from favor.training.answers import Answer, worst
from favor.training.checkpoint import BEST, load_model_file, newest_checkpoint, save_model
from favor.training.distributed import Processes
from favor.training.predict import (
    WORTH_SEARCHING,
    Classifier,
    best_prediction_batch,
    evaluate_checkpoint,
    images_in,
    open_classifier,
    predict,
)
from favor.training.preprocessing import carried_by
from favor.training.recipe import load_recipe
from favor.training.request import TrainingRequest
from favor.training.run import train
from favor.training.run_data import FILE
from favor.training.schedule import schedule_of
from favor.training.state import Best, Trained
from favor.training.step import Learner
from favor.training.transfer_recipe import fitted_to

CPU = find_device("cpu")
COLORS = {"röd sky": (200, 40, 40), "blue sea": (40, 60, 200)}
HERE = ("--device", "cpu", "--workers", "0")
ASKED = (*HERE, "--threads", "1", "--set", "lr=3e-3")  # a tiny model without pretraining needs more than a small rate
pytestmark = pytest.mark.usefixtures("tiny_models")


def paint(root: Path, count: int = 10, seed: int = 0) -> Path:
    """Photos of two colors, with what else is in people's folders."""
    rng = random.Random(seed)  # noqa: S311
    for name, color in COLORS.items():
        (root / name).mkdir(parents=True, exist_ok=True)
        for k in range(count):
            shade = tuple(max(0, min(255, part + rng.randint(-40, 40))) for part in color)
            Image.new("RGB", (48, 36), shade).save(root / name / f"IMG {k}.JPG")
        (root / name / ".DS_Store").write_bytes(b"litter")
    return root


def checkpoint_of(model: str, file: Path, *changes: str, img_size: int = 32) -> Path:
    """A checkpoint of favor's with fresh weights."""
    torch.manual_seed(0)
    known = Trained(
        favor="0",
        run="a",
        step=0,
        epochs=0.0,
        model=model,
        img_size=img_size,
        in_chans=3,
        classes=tuple("0123456789"),
        dataset="digits",
        pretraining="none",
        recipe=load_recipe("laptop-digits", [f"img_size={img_size}", *changes]),
        top1=None,
    )
    save_model(file, favor.create_model(model, num_classes=10, img_size=img_size), known)
    return file


def run(*words: object, code: int = 0) -> Result:
    done = CliRunner().invoke(app, [str(word) for word in words])
    if done.exception is not None and not isinstance(done.exception, SystemExit):
        raise done.exception
    assert done.exit_code == code, done.output
    return done


@pytest.fixture(scope="module")
def tuned(tmp_path_factory: pytest.TempPathFactory, tiny_models: list[str]) -> tuple[Path, Path, Result]:
    """A folder, the run that was trained on it with nothing but the folder's name, and what was said."""
    root = tmp_path_factory.mktemp("own")
    weights, photos = checkpoint_of("tiny_vit", root / "start.safetensors"), paint(root / "photos")
    done = run("finetune", weights, "--data", f"folder:{photos}", *ASKED, "--study", root / "study")
    [folder] = (root / "study" / "runs").iterdir()
    return photos, folder, done


def test_a_folder_is_learned_without_a_word_of_configuration(tuned: tuple[Path, Path, Result]) -> None:
    photos, folder, done = tuned
    about, _ = load_model_file(folder / BEST)
    assert about.classes == ("blue sea", "röd sky")
    assert about.recipe.name == "transfer"
    assert (about.recipe.batch_size, about.img_size) == (8, 32)
    assert f"folder:{photos}: 2 classes, 16 images for training, 4 for evaluation" in done.stderr
    assert re.search(r"1 job to do on .*: about [\d.]+ (s|min)", done.stderr)
    assert re.search(r"20 epochs of 2 steps with 8 images: at most about [\d.]+ (s|min)", done.stderr)
    assert "4 of 4 evaluation images correct, 100.0 % (95 % interval: 51.0 to 100.0 %)" in done.stdout
    assert f"report: {folder / 'report.html'}" in done.stderr


def test_a_class_without_evaluation_images_is_named_before_the_training(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    photos = paint(tmp_path / "photos")
    assert count_images(f"folder:{photos}") == 16
    assert "leaves out" not in capsys.readouterr().err
    for k in range(1, 10):
        (photos / "röd sky" / f"IMG {k}.JPG").unlink()
    assert count_images(f"folder:{photos}") == 9
    assert "warning: the accuracy leaves out röd sky: no evaluation images" in capsys.readouterr().err


def test_the_report_holds_its_pictures_and_reaches_nobody(tuned: tuple[Path, Path, Result]) -> None:
    page = (tuned[1] / "report.html").read_text()
    assert page.count("data:image/jpeg;base64,") == 4
    assert "http" not in page.replace("http-equiv", "")
    assert "<script" not in page
    assert "51.0 to 100.0 %" in page
    assert "röd sky" in page


def test_evaluate_finds_the_folder_and_the_evaluation_images_of_the_training(tuned: tuple[Path, Path, Result]) -> None:
    photos, folder, _ = tuned
    found = json.loads(run("evaluate", folder, "--json", "--workers", "0", "--device", "cpu").stdout)
    assert (found["dataset"], found["place"], found["images"]) == ("folder", str(photos), 4)
    assert found["top1"] == {
        "value": 100.0,
        "unit": "%",
        "low": pytest.approx(51.0, abs=0.1),
        "high": pytest.approx(100),
    }
    assert "51.01 to 100.00 %" in run("evaluate", folder / BEST, "--device", "cpu").stdout


def test_evaluate_takes_all_images_of_another_folder_and_the_split_of_its_own(
    tmp_path: Path, tuned: tuple[Path, Path, Result]
) -> None:
    photos, folder, _ = tuned
    others = paint(tmp_path / "others", 3, seed=1)

    def images(data: str) -> int:
        return evaluate_checkpoint(folder, data, CPU, Processes(), 64, 0)[2].images

    assert images(f"folder:{others}") == 6
    assert images(f"folder:{photos}") == 4
    for file in (others / "röd sky").iterdir():
        file.unlink()
    (others / "röd sky").rmdir()
    assert images(f"folder:{others}") == 3  # a class that is missing is no reason to refuse the others
    paint(others, 2)
    paint(tmp_path / "downloaded" / "val", 1)
    assert images(f"folder:{tmp_path / 'downloaded'}") == 2  # without training images
    (others / "green tree").mkdir()
    with pytest.raises(RequestError, match="class 'green tree' is not among .*; remove its folder, or train"):
        images(f"folder:{others}")


def test_images_that_were_moved_are_not_evaluated_on_what_was_trained_on(
    tmp_path: Path, tuned: tuple[Path, Path, Result]
) -> None:
    photos, folder, _ = tuned
    run_folder, moved = shutil.copytree(folder, tmp_path / "run"), shutil.copytree(photos, tmp_path / "moved")
    kept = json.loads((run_folder / FILE).read_text())
    (run_folder / FILE).write_text(json.dumps(kept | {"data": f"folder:{tmp_path / 'gone'}"}))
    with pytest.raises(RequestError, match="the images of this run are not there; name them with --data folder:PATH"):
        run("evaluate", run_folder, *HERE)
    _, data, scores = evaluate_checkpoint(run_folder, f"folder:{moved}", CPU, Processes(), 64, 0)
    assert (scores.images, data.place) == (4, str(moved))
    paint(moved, 11)  # another set of images
    assert evaluate_checkpoint(run_folder, f"folder:{moved}", CPU, Processes(), 64, 0)[2].images == 22


def test_evaluate_shows_how_far_it_is(monkeypatch: pytest.MonkeyPatch, tuned: tuple[Path, Path, Result]) -> None:
    _, folder, _ = tuned
    bar = Progress(console=Console(file=io.StringIO()))
    monkeypatch.setattr("favor.cli.train.progress_bar", lambda: bar)
    run("evaluate", folder, *HERE, "--batch-size", 3)
    [task] = bar.tasks
    assert (task.description, task.completed, task.total) == ("evaluating", 4, 4)


def test_a_study_instead_of_a_run_names_one_of_its_runs(tuned: tuple[Path, Path, Result]) -> None:
    _, folder, _ = tuned
    for above in (folder.parent, folder.parent.parent):
        with pytest.raises(RequestError, match=f"no checkpoint in this folder; .*, such as {re.escape(str(folder))}$"):
            run("predict", above, "photo.jpg", *HERE)


def test_a_checkpoint_alone_does_not_know_its_owners_folder(tmp_path: Path, tuned: tuple[Path, Path, Result]) -> None:
    photos, folder, _ = tuned
    content = (folder / BEST).read_bytes()
    assert str(photos).encode() not in content
    (tmp_path / BEST).write_bytes(content)
    with pytest.raises(RequestError, match="was trained on folder:photos; say where it is now"):
        run("evaluate", tmp_path / BEST)
    (tmp_path / FILE).write_text('{"data": 3}')
    with pytest.raises(RequestError, match=r"data.json: .*; name the images with --data"):
        run("evaluate", tmp_path / BEST)


def test_predict_reads_folders_and_tells_what_it_cannot_read(tmp_path: Path, tuned: tuple[Path, Path, Result]) -> None:
    _, folder, _ = tuned
    paint(tmp_path / "new" / "trip", 9, seed=2)
    (tmp_path / "new" / "broken.jpg").write_bytes(b"no image")
    (tmp_path / "new" / "IMG_1.HEIC").write_bytes(b"a phone's")
    (tmp_path / "new" / "notes.txt").write_text("not an image")
    Image.new("RGB", (9, 9), COLORS["röd sky"]).save(tmp_path / "new" / "=1+2.png")
    asked = ("predict", folder, tmp_path / "new", "--csv", tmp_path / "out.csv", *HERE)
    done = run(*asked, code=1)
    assert f"{tmp_path / 'new' / 'broken.jpg'}: cannot be read (not an image in one of the formats" in done.stderr
    assert f"{tmp_path / 'new' / 'IMG_1.HEIC'}: cannot be read (not a format that favor reads; convert" in done.stderr
    assert "out.csv: 19 images classified, 2 not" in done.stderr
    with (tmp_path / "out.csv").open(newline="", encoding="utf-8") as file:
        rows = {Path(row["image"]).name + row["image"].count("sea") * "sea": row for row in csv.DictReader(file)}
    assert list(next(iter(rows.values()))) == [
        "image",
        "class_1",
        "probability_1",
        "class_2",
        "probability_2",
        "reason",
    ]
    read = [row for row in rows.values() if not row["reason"]]
    assert len(read) == 19
    right = [row["class_1"] == ("blue sea" if "sea" in row["image"] else "röd sky") for row in read]
    assert all(right)
    assert all(float(row["probability_1"]) > 0.5 for row in read)
    told = json.loads(run(*asked[:3], "--json", "--device", "cpu", code=1).stdout)
    assert sum(bool(one["predictions"]) for one in told) == 19


def test_a_class_that_a_spreadsheet_would_run_is_escaped_in_csv(
    tmp_path: Path, tuned: tuple[Path, Path, Result], monkeypatch: pytest.MonkeyPatch
) -> None:
    photos, folder, _ = tuned
    about, weights = load_model_file(folder / BEST)
    model = favor.create_model("tiny_vit", num_classes=2, img_size=32)
    model.load_state_dict(weights)
    save_model(tmp_path / BEST, model, about.model_copy(update={"classes": ("=cmd()", "@x")}))
    monkeypatch.chdir(photos / "blue sea")
    run("predict", tmp_path / BEST, "IMG 0.JPG", "--csv", tmp_path / "out.csv", "--device", "cpu")
    assert "IMG 0.JPG,'=cmd()," in (tmp_path / "out.csv").read_text()


def test_predictions_do_not_depend_on_the_batch_and_come_in_order(tuned: tuple[Path, Path, Result]) -> None:
    photos, folder, _ = tuned
    trained = open_classifier(folder, CPU)
    files, refused = images_in([photos, photos / "blue sea" / ".DS_Store"])
    assert not refused
    one, many = (list(predict(trained, files, batch_size)) for batch_size in (1, 7))
    assert [found.image for found in many] == files
    assert many[-1].guesses == ()
    for a, b in zip(one, many, strict=True):
        assert [guess.name for guess in a.guesses] == [guess.name for guess in b.guesses]
        assert [guess.probability for guess in a.guesses] == pytest.approx([g.probability for g in b.guesses], abs=1e-4)


def test_many_images_are_classified_in_batches_of_the_best_size() -> None:
    def run(images: torch.Tensor) -> torch.Tensor:
        sizes.append(len(images))
        time.sleep(0.002 if len(images) <= 4 else 0.002 * len(images))
        return images.new_zeros(len(images), 2)

    sizes: list[int] = []
    plain = Classifier("a", ("x", "y"), "d", None, Framing(8), Normalization(), torch.device("cpu"), run, "with none")
    assert best_prediction_batch(plain, 100, 16) == 16
    assert not sizes
    assert best_prediction_batch(plain, 16 * WORTH_SEARCHING, 16) == 4


def test_a_folder_without_images_has_nothing_to_predict(tmp_path: Path) -> None:
    (tmp_path / "notes.txt").touch()
    with pytest.raises(RequestError, match=r"no images in this folder; favor reads .jpg"):
        images_in([tmp_path])


def test_a_training_that_is_done_says_so_if_its_images_have_changed(tuned: tuple[Path, Path, Result]) -> None:
    photos, folder, _ = tuned
    asked = (*ASKED, "--data", f"folder:{photos}", "--study", folder.parent.parent)
    start = photos.parent / "start.safetensors"
    assert "have changed" not in run("finetune", start, *asked).stderr
    before = photos / "blue sea" / "IMG 3.JPG"
    before.rename(before.with_name("IMG 77.JPG"))
    try:
        again = run("finetune", start, *asked, "--json")
    finally:
        before.with_name("IMG 77.JPG").rename(before)
    assert "have changed since this training; train again with another --study" in again.stderr
    assert json.loads(again.stdout)[0]["conditions"]["final"] is True


def test_the_result_of_another_folder_of_the_same_name_is_not_shown_as_this_ones(
    tmp_path: Path, tuned: tuple[Path, Path, Result]
) -> None:
    photos, folder, _ = tuned
    others = paint(tmp_path / photos.name, seed=1)
    asked = (*ASKED, "--data", f"folder:{others}", "--study", folder.parent.parent)
    with pytest.raises(RequestError, match=rf"was trained on {photos}, another folder of this name; choose another"):
        run("finetune", photos.parent / "start.safetensors", *asked)


@pytest.mark.parametrize("images", [2, 3, 7, 8, 15, 20, 40, 63, 100, 321, 5000, 100_000])
@pytest.mark.parametrize("given", [(), ("epochs=1",), ("epochs=2", "batch_size=2")])
def test_batch_epochs_and_warm_up_fit_any_number_of_images(images: int, given: tuple[str, ...]) -> None:
    recipe = load_recipe("transfer", [*given, *fitted_to(images, given)])
    plan = BatchPlan(images, recipe.batch_size)
    schedule = schedule_of(recipe, plan.steps)
    assert schedule.steps == recipe.epochs * plan.steps
    if not given:
        assert plan.steps * plan.batch_size >= 0.8 * images
        assert min(images, 8) <= recipe.batch_size <= 35
        assert 5 <= recipe.epochs <= 20


def test_what_is_set_by_hand_is_not_fitted() -> None:
    assert fitted_to(40, ["epochs=3", "batch_size=5", "warmup_epochs=0"]) == []


@pytest.mark.parametrize("wrong", ["batch_size=0", "batch_size=-3", "batch_size=many", "epochs=0", "epochs=1.5"])
def test_a_batch_size_or_epochs_below_1_are_refused_in_one_line(tmp_path: Path, wrong: str) -> None:
    start, photos = checkpoint_of("tiny_vit", tmp_path / "start.safetensors"), paint(tmp_path / "photos", 2)
    key = wrong.partition("=")[0]
    with pytest.raises(RequestError, match=f"--set {key}: must be an integer of at least 1, not ") as refused:
        run("finetune", start, "--data", f"folder:{photos}", *HERE, "--set", wrong, "--study", tmp_path / "study")
    assert "\n" not in str(refused.value)
    assert not (tmp_path / "study").exists()


def test_lower_layers_learn_more_slowly_and_the_head_at_the_full_rate(tiny_models: list[str]) -> None:
    model = favor.create_model("tiny_vit", num_classes=2, img_size=32)
    recipe = load_recipe("transfer", ["img_size=32", "layer_decay=0.5"])
    learner = Learner(model, recipe, BatchPlan(8, 8), 2, Precision.named("fp32", "cpu"))
    learner.update(1.0)
    rates = {id(p): group["lr"] for group in learner.optimizer.param_groups for p in group["params"]}
    by_name = {name: rates[id(parameter)] for name, parameter in model.named_parameters()}
    assert by_name["head.weight"] == by_name["head.bias"] == 1.0
    assert by_name["class_token"] == 0.5**12
    order = [by_name[name] for name in by_name if not name.startswith("head.")]
    assert order == sorted(order)
    assert max(order) == 0.5
    assert {group["weight_decay"] for group in learner.optimizer.param_groups} == {0.0, 0.05}
    decays = {id(p): group["weight_decay"] for group in learner.optimizer.param_groups for p in group["params"]}
    assert decays[id(model.head.bias)] == 0.0


def test_training_ends_when_nothing_gets_better_and_a_resumed_run_knows_it(tmp_path: Path) -> None:
    recipe = load_recipe("laptop-digits", ["epochs=9", "batch_size=700", "lr=1e-12", "warmup_epochs=0", "min_lr=0"])
    recipe = recipe.model_copy(update={"patience": 2})
    asked = TrainingRequest("tiny_vit", recipe, "digits", study=tmp_path, device="cpu", threads=1, survey_seconds=0.01)
    outcome = train(asked)
    records = read(tmp_path).records
    assert outcome.record is not None
    found, _ = newest_checkpoint(outcome.folder)
    assert found is not None
    assert found.state.best is not None
    assert outcome.record.conditions["epochs"] == found.state.best.epochs + 2 < 9
    assert [record.conditions["final"] for record in records] == [False] * (len(records) - 1) + [True]
    again = train(TrainingRequest(**{**vars(asked), "resume": True}))
    assert (again.ending, again.record) == ("done", outcome.record)
    assert len(read(tmp_path).records) == len(records)


def test_of_equal_accuracies_the_lower_loss_is_better() -> None:
    best = Best(top1=80.0, epochs=1, loss=0.5)
    assert best.is_worse_than(80.0, 0.4)
    assert best.is_worse_than(81.0, 9.0)
    assert not best.is_worse_than(80.0, 0.5)
    assert not Best(top1=80.0, epochs=1).is_worse_than(80.0, 0.1)  # of a checkpoint that does not know its loss


def test_preprocessing_travels_with_a_checkpoint_into_its_fine_tuning(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, tiny_models: list[str]
) -> None:
    asked: list[dict[str, object]] = []
    monkeypatch.setattr("favor.cli.train.train_models", lambda *given: asked.append(given[-1]))
    changes = ("mean=[0.1, 0.2, 0.3]", "eval_crop_ratio=0.8")
    file, photos = (
        checkpoint_of("tiny_vit", tmp_path / "a.safetensors", *changes, img_size=40),
        paint(tmp_path / "p", 2),
    )
    run("finetune", file, "--data", f"folder:{photos}")
    run("finetune", file, "--data", f"folder:{photos}", "--img-size", "48", "--set", "std=[0.2, 0.2, 0.2]")
    run("finetune", file, "--data", "digits", "--recipe", "laptop-cifar10")
    recipes = [load_recipe(str(options["recipe"]), options["set"]) for options in asked]  # type: ignore[arg-type]
    assert [recipe.name for recipe in recipes] == ["transfer", "transfer", "laptop-cifar10"]
    assert [recipe.img_size for recipe in recipes] == [40, 48, 32]
    assert [recipe.mean for recipe in recipes] == [(0.1, 0.2, 0.3)] * 3
    assert [recipe.std[0] for recipe in recipes] == [0.5, 0.2, 0.5]
    assert [recipe.eval_crop_ratio for recipe in recipes] == [0.8, 0.8, 1.0]
    assert recipes[0].batch_size == 2


def test_weights_of_timm_bring_the_preprocessing_of_the_file_beside_them_or_of_the_published_ones(
    tmp_path: Path,
) -> None:
    file = tmp_path / "model.safetensors"
    file.write_bytes(b"weights")
    guessed = carried_by(file, "vit_ti16")
    assert "mean=[0.5, 0.5, 0.5]" in guessed.keys
    assert "does not say how images are prepared; preparing them as for vit_tiny_patch16_224" in str(guessed.note)
    config = {"input_size": [3, 240, 240], "mean": [0.4, 0.4, 0.4], "std": [0.2, 0.2, 0.2], "crop_pct": 0.96}
    beside = tmp_path / "config.json"
    beside.write_text(json.dumps({"architecture": "x", "pretrained_cfg": config | {"interpolation": "bilinear"}}))
    told = carried_by(file, "vit_ti16")
    assert set(told.keys) >= {"img_size=240", "mean=[0.4, 0.4, 0.4]", "interpolation=bilinear", "eval_crop_ratio=0.96"}
    beside.write_text(json.dumps({"pretrained_cfg": config | {"mean": ["a"]}}))
    with pytest.raises(RequestError, match=r"config.json: pretrained_cfg.mean.*; remove it"):
        carried_by(file, "vit_ti16")
    beside.unlink()
    assert carried_by(file, "linformer_s16").keys == ()


def test_weights_behind_a_link_are_read_by_the_name_of_the_link(tmp_path: Path) -> None:
    """In the cache of the Hugging Face Hub, a `model.safetensors` is a link to a file that is named by its hash."""
    blob, file = tmp_path / "a1dec8f1", tmp_path / "model.safetensors"
    checkpoint_of("tiny_vit", tmp_path / "start.safetensors").rename(blob)
    file.symlink_to(blob.name)
    photos = paint(tmp_path / "photos", 2)
    run("finetune", file, "--data", f"folder:{photos}", *ASKED, "--epochs", "1", "--study", tmp_path / "study")


def test_a_mean_of_zero_is_read_from_a_config_and_a_crop_ratio_near_zero_is_refused(tmp_path: Path) -> None:
    file, beside = tmp_path / "model.safetensors", tmp_path / "config.json"
    file.write_bytes(b"weights")
    config = {"input_size": [3, 240, 240], "mean": [0.0, 0.0, 0.0], "std": [1.0, 1.0, 1.0], "crop_pct": 0.96}
    config |= {"interpolation": "bicubic"}
    beside.write_text(json.dumps({"pretrained_cfg": config}))
    assert {"mean=[0.0, 0.0, 0.0]", "std=[1.0, 1.0, 1.0]"} <= set(carried_by(file, "vit_ti16").keys)
    for changed in ({"crop_pct": 1e-9}, {"crop_pct": float("nan")}, {"mean": [float("nan"), 0.5, 0.5]}):
        beside.write_text(json.dumps({"pretrained_cfg": config | changed}))
        with pytest.raises(
            RequestError, match=rf"config.json: pretrained_cfg.{next(iter(changed))}.*; remove it"
        ) as no:
            carried_by(file, "vit_ti16")
        assert "\n" not in str(no.value)


def test_the_worst_mistakes_are_the_surest_and_without_mistakes_the_least_sure_answers() -> None:
    right = [Answer(k, 0, 0, 0.5 + k / 100) for k in range(20)]
    assert [answer.sample for answer in worst(right)] == list(range(8))
    wrong = [Answer(30, 0, 1, 0.6), Answer(31, 0, 1, 0.9)]
    assert [answer.sample for answer in worst(right + wrong)] == [31, 30]


def test_threads_wait_asleep_unless_the_user_says_how_they_wait() -> None:
    for environment, expected in (
        ({}, {"GOMP_SPINCOUNT": "1000"}),
        ({"GOMP_SPINCOUNT": "5"}, {"GOMP_SPINCOUNT": "5"}),
        ({"OMP_WAIT_POLICY": "active"}, {"OMP_WAIT_POLICY": "active"}),
    ):
        wait_asleep(environment)
        assert environment == expected


def test_images_that_are_seldom_broken_do_not_shift_the_others(
    tmp_path: Path, tuned: tuple[Path, Path, Result]
) -> None:
    photos, folder, _ = tuned
    (tmp_path / "torn.png").write_bytes(b"torn")
    files = [str(photos / "blue sea" / "IMG 0.JPG"), str(tmp_path / "torn.png"), str(photos / "röd sky" / "IMG 0.JPG")]
    found = list(predict(open_classifier(folder, CPU), files, batch_size=3))
    assert [one.guesses[0].name if one.guesses else None for one in found] == ["blue sea", None, "röd sky"]
    assert np.isclose(sum(guess.probability for guess in found[0].guesses), 1.0)
