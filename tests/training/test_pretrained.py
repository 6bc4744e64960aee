"""Published weights in `favor predict`, `evaluate`, `finetune`, `train` and `export`, with their own preprocessing."""

import io
import json
import os
import subprocess
import sys
from dataclasses import replace
from pathlib import Path

import numpy as np
import pytest
import timm
import torch
from PIL import Image
from safetensors.torch import save, save_file
from typer.testing import CliRunner

import favor
from fake_hub import FakeHub
from favor.analyze.creation import creation
from favor.cli import app
from favor.data.framing import Framing, center_cut
from favor.data.image_files import FolderPlaces, ImageFiles
from favor.errors import RequestError
from favor.machine.device import find_device
from favor.runtime.card import read_card
from favor.training.initial_weights import Start, start_from
from favor.training.predict import Classifier, open_classifier
from favor.training.preprocessing import framing_for, normalization_for, recipe_keys_for
from favor.training.recipe import load_recipe
from favor.zoo.checkpoints import checkpoint, imagenet_classes

VIT = "vit_tiny_patch16_224.augreg_in21k_ft_in1k"
CPU = find_device("cpu")


def publish(hub: FakeHub, name: str = VIT, seed: int = 0) -> torch.nn.Module:
    torch.manual_seed(seed)
    theirs = timm.create_model(name).eval()
    theirs.get_classifier().weight.data.normal_()
    hub.files[f"timm/{name}/model.safetensors"] = save(theirs.state_dict())
    return theirs


def photo(file: Path, size: tuple[int, int] = (600, 300)) -> Path:
    rng = np.random.default_rng(0)
    small = Image.fromarray(rng.integers(0, 256, (15, 20, 3), dtype=np.uint8))
    small.resize(size, Image.Resampling.BICUBIC).save(file)
    return file


def run(*words: str, code: int = 0) -> str:
    result = CliRunner().invoke(app, list(words))
    assert result.exit_code == code, result.output + str(result.exception)
    return result.stdout


@pytest.mark.parametrize(("model", "tag"), [("vit_ti16", None), ("resnet50", "tv_in1k"), ("resnet50", "a1_in1k")])
def test_images_are_prepared_as_timm_prepares_them(tmp_path: Path, model: str, tag: str | None) -> None:
    chosen = checkpoint(model, tag)
    config = timm.data.resolve_data_config(pretrained_cfg=timm.get_pretrained_cfg(chosen.name).to_dict())
    file = photo(tmp_path / "photo.png")
    with Image.open(file) as image:
        expected = timm.data.create_transform(**config)(image)
    fetched = ImageFiles(FolderPlaces(Path(), [str(file)]), np.zeros(1, dtype=np.int64)).fetch(
        np.zeros(1, dtype=np.int64), center_cut(framing_for(chosen), 1)
    )
    ours = normalization_for(chosen)(fetched.images.float().div(255))[0]
    assert ours.shape == expected.shape
    assert float((ours - expected).abs().mean()) < 0.01
    other = framing_for(checkpoint(model, "gluon_in1k" if tag else None, 384))
    assert other != framing_for(chosen)


def test_weights_that_want_squashed_images_get_them() -> None:
    chosen = checkpoint("timm:tiny_vit_21m_512", "dist_in22k_ft_in1k")
    assert framing_for(chosen).mode == chosen.crop_mode == "squash"


def test_images_are_cropped_as_timm_crops_them_at_the_larger_size_of_the_weights(tmp_path: Path) -> None:
    chosen = checkpoint("resnet50", "a1_in1k")
    assert (chosen.img_size, chosen.test_img_size) == (224, 288)
    published = timm.get_pretrained_cfg(chosen.name).to_dict()
    config = timm.data.resolve_data_config(pretrained_cfg=published, use_test_size=True)
    framing = framing_for(chosen, 288)
    assert (framing.img_size, framing.crop_ratio) == (config["input_size"][-1], config["crop_pct"]) == (288, 1.0)
    assert framing_for(chosen).evaluation_side == 235  # 224 / 0.95


def test_published_weights_are_evaluated_and_predicted_with_at_the_size_of_their_best_accuracy(
    tmp_path: Path, fake_hub: FakeHub
) -> None:
    publish(fake_hub, "resnet18.a1_in1k")
    classifier = open_classifier(Path("resnet18"), CPU, "a1_in1k", 288)
    assert (classifier.img_size, classifier.framing.crop_ratio) == (288, 1.0)
    words = ["predict", "resnet18", str(photo(tmp_path / "photo.png")), "--weights", "a1_in1k", "--device", "cpu"]
    small, large = (json.loads(run(*words, "--json", *size)) for size in ((), ("--img-size", "288")))
    assert small != large
    with pytest.raises(RequestError, match="runs at its own image size; --img-size is for published weights"):
        open_classifier(tmp_path, CPU, img_size=288)


def test_the_line_that_creates_a_model_gives_the_size_of_its_accuracy() -> None:
    line = creation("resnet50", 224, "imagenet-1k", "timm", "a3_in1k")  # trained at 160 px
    assert line == 'favor.create_model("resnet50", img_size=224, pretrained="a3_in1k")'


def test_finetune_starts_from_the_hub_and_ends_with_a_report(tmp_path: Path, fake_hub: FakeHub) -> None:
    publish(fake_hub, "test_vit.r160_in1k")
    for kind, number in (("cat", 1), ("dog", 2)):
        (tmp_path / "photos" / kind).mkdir(parents=True)
        for image in range(6):
            colored = np.full((40, 40, 3), 60 * number + image, dtype=np.uint8)
            Image.fromarray(colored).save(tmp_path / "photos" / kind / f"{image}.png")
    environment = {
        "HF_ENDPOINT": fake_hub.address,
        "HF_HUB_CACHE": str(tmp_path / "cache"),
        "HF_HUB_DISABLE_XET": "1",
        "XDG_RUNTIME_DIR": str(tmp_path),
    }
    words = ["finetune", "timm:test_vit", "--pretrained", "--data", f"folder:{tmp_path / 'photos'}", "--epochs", "1"]
    command = [sys.executable, "-m", "favor", *words, "--study", str(tmp_path / "study"), "--device", "cpu"]
    done = subprocess.run(command, env=os.environ | environment, capture_output=True, text=True, check=False)
    assert done.returncode == 0, done.stderr
    assert "GET timm/test_vit.r160_in1k/model.safetensors" in fake_hub.asked
    assert list((tmp_path / "study" / "runs").glob("*/report.html")), done.stdout + done.stderr


def test_predict_names_imagenet_s_classes_with_timm_s_probabilities(tmp_path: Path, fake_hub: FakeHub) -> None:
    theirs = publish(fake_hub)
    file = photo(tmp_path / "photo.png", (248, 248))
    found = json.loads(run("predict", "ViT-Ti/16", str(file), "--pretrained", "--device", "cpu", "--json"))
    with Image.open(file) as image:
        pixels = torch.from_numpy(np.asarray(image)[12:236, 12:236].copy()).permute(2, 0, 1)[None]
    with torch.no_grad():
        expected = theirs((pixels.float() / 255 - 0.5) / 0.5).softmax(1)[0].topk(5)
    names = [guess["class"] for guess in found[0]["predictions"]]
    info = timm.data.ImageNetInfo()
    assert names == [info.index_to_description(label) for label in expected.indices.tolist()]
    ours = [guess["probability"] for guess in found[0]["predictions"]]
    assert ours == pytest.approx(expected.values.tolist(), rel=1e-3)


def test_published_weights_are_exported_with_their_preprocessing_and_their_classes_in_words(
    tmp_path: Path, fake_hub: FakeHub, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.delenv("FAVOR_DATA", raising=False)
    publish(fake_hub)
    file, image = tmp_path / "vit.onnx", photo(tmp_path / "photo.png")
    run("export", "ViT-Ti/16", "--pretrained", "-o", str(file), "--images", "2")
    written, framing = read_card(file), framing_for(checkpoint("vit_ti16"))
    assert (written.model, written.source, written.dataset, written.epochs) == ("vit_ti16", VIT, "imagenet-1k", None)
    assert (written.img_size, written.crop_ratio, written.mean) == (224, framing.crop_ratio, (0.5, 0.5, 0.5))
    assert open_classifier(file, CPU).training == open_classifier(Path("vit_ti16"), CPU, pretrained=True).training
    as_json = (str(image), "--device", "cpu", "--json")
    [of_file], [of_weights] = (
        json.loads(run("predict", *words, *as_json)) for words in ((str(file),), ("vit_ti16", "--pretrained"))
    )
    found, expected = (
        {guess["class"]: guess["probability"] for guess in one["predictions"]} for one in (of_file, of_weights)
    )
    assert found == pytest.approx(expected, rel=1e-3)


def test_int8_of_published_weights_needs_images_before_the_weights_are_downloaded(
    tmp_path: Path, fake_hub: FakeHub
) -> None:
    words = ["export", "vit_ti16", "--weights", "augreg_in21k_ft_in1k", "-o", str(tmp_path / "a.onnx")]
    result = CliRunner().invoke(app, [*words, "--precision", "int8"])
    assert isinstance(result.exception, RequestError)
    assert "name a dataset with --calibration NAME[:PATH]" in str(result.exception)
    assert not fake_hub.asked


def test_weights_without_imagenet_s_classes_predict_nothing(fake_hub: FakeHub) -> None:
    with pytest.raises(RequestError, match="augreg_in21k has no classifier for ImageNet-1k's classes"):
        open_classifier(Path("vit_ti16"), CPU, "augreg_in21k")
    assert not fake_hub.asked


def test_evaluate_refuses_data_of_other_classes(fake_hub: FakeHub) -> None:
    publish(fake_hub)
    result = CliRunner().invoke(app, ["evaluate", "vit_ti16", "--pretrained", "--data", "digits", "--device", "cpu"])
    assert isinstance(result.exception, RequestError)
    assert "has 1000 classes (n01440764, n01443537, n01484850, ...), digits has 10 classes" in str(result.exception)


@pytest.mark.parametrize("split", [".", "val"])
def test_evaluate_takes_all_images_for_published_weights(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, split: str
) -> None:
    classes, png, folder = imagenet_classes(checkpoint("vit_ti16")), io.BytesIO(), tmp_path / "imagenet-1k"
    Image.new("RGB", (8, 8)).save(png, "png")
    for name in classes:
        (folder / split / name).mkdir(parents=True)
        for number in range(2):
            (folder / split / name / f"{number}.png").write_bytes(png.getvalue())
    framing, normalization = Framing(8), normalization_for(checkpoint("vit_ti16"))
    guessed = Classifier(
        *("vit_ti16", classes, "imagenet-1k", None, framing, normalization, torch.device("cpu")),
        run=lambda images: torch.eye(1000)[:1].expand(len(images), -1),
        training="with weights",
    )
    monkeypatch.setattr("favor.training.predict.open_classifier", lambda *_: guessed)
    words = ("evaluate", "vit_ti16", "--pretrained", "--device", "cpu", "--workers", "0", "--json")
    found = json.loads(run(*words, "--data", f"imagenet-1k:{folder}"))
    assert (found["dataset"], found["images"], found["top1"]["value"]) == ("imagenet-1k[0+2000]", 2000, 0.1)
    monkeypatch.setenv("FAVOR_DATA", str(tmp_path))
    result = CliRunner().invoke(app, list(words))
    assert "was trained on imagenet-1k, but imagenet-1k[0+2000] was found; choose with --data" in str(result.exception)


@pytest.mark.parametrize(
    ("words", "why"),
    [
        (("evaluate", "vit_ti16", "--data", "imagenet-1k"), "dataset imagenet-1k: "),
        (("evaluate", "vit_ti16"), "dataset imagenet-1k: "),
        (("predict", "vit_ti16", "empty"), "empty: no images in this folder"),
    ],
)
def test_missing_images_are_refused_before_weights_are_downloaded(
    tmp_path: Path, fake_hub: FakeHub, monkeypatch: pytest.MonkeyPatch, words: tuple[str, ...], why: str
) -> None:
    publish(fake_hub)
    monkeypatch.chdir(tmp_path)
    monkeypatch.setenv("FAVOR_DATA", str(tmp_path))
    (tmp_path / "empty").mkdir()
    result = CliRunner().invoke(app, [*words, "--pretrained", "--device", "cpu"])
    assert isinstance(result.exception, RequestError)
    assert str(result.exception).startswith(why)
    assert not fake_hub.asked


def test_weights_whose_preprocessing_favor_does_not_have_are_refused_before_they_are_downloaded(
    fake_hub: FakeHub, monkeypatch: pytest.MonkeyPatch
) -> None:
    nearest = replace(checkpoint("vit_ti16"), interpolation="nearest")
    monkeypatch.setattr("favor.training.predict.checkpoint", lambda *_: nearest)
    with pytest.raises(RequestError, match="wants images resized as center, nearest; favor resizes as center, squash"):
        open_classifier(Path("vit_ti16"), CPU, pretrained=True)
    assert not fake_hub.asked


@pytest.mark.parametrize(
    "words",
    [
        ("predict", "vit_ti16", "photo.jpg"),
        ("evaluate", "vit_ti16"),
        ("finetune", "vit_ti16", "--data", "folder:photos"),
    ],
)
def test_the_name_of_a_model_without_pretrained_says_what_to_add(words: tuple[str, ...]) -> None:
    result = CliRunner().invoke(app, list(words))
    assert isinstance(result.exception, RequestError)
    told = "vit_ti16 is a model, not a checkpoint; for published weights of vit_ti16 add --pretrained"
    assert str(result.exception) == told


def test_the_preprocessing_of_weights_is_a_recipe_s_unless_it_is_told_otherwise() -> None:
    keys = recipe_keys_for(checkpoint("resnet50", "tv_in1k"))
    recipe = load_recipe("deit3-finetune", [*keys, "std=[0.5, 0.5, 0.5]"])
    assert (recipe.img_size, recipe.interpolation) == (224, "bilinear")
    assert round(recipe.img_size / recipe.eval_crop_ratio) == 256
    assert (recipe.mean, recipe.std) == ((0.485, 0.456, 0.406), (0.5, 0.5, 0.5))


def test_a_start_from_published_weights_drops_the_head_for_other_classes_and_keeps_it_for_the_same(
    fake_hub: FakeHub,
) -> None:
    theirs = publish(fake_hub)
    start = start_from(Path(f"timm:{VIT}"), "vit_ti16")
    assert (start.pretraining, start.img_size) == (f"timm:{VIT}", 224)
    same, other = favor.create_model("vit_ti16"), favor.create_model("vit_ti16")
    start.give_weights(same, imagenet_classes(checkpoint("vit_ti16")))
    said = start.give_weights(other, tuple(str(number) for number in range(1000)))
    assert torch.equal(same.head.weight, theirs.head.weight)
    assert "new head, since the weights have none for these classes" in str(said)
    assert torch.equal(other.blocks[0].mixer.qkv.weight, theirs.blocks[0].attn.qkv.weight)


def test_finetune_takes_a_file_in_timm_s_layout(tmp_path: Path) -> None:
    theirs = timm.create_model(VIT)
    save_file(theirs.state_dict(), tmp_path / "model.safetensors")
    start = start_from(tmp_path / "model.safetensors", "vit_ti16")
    ours = favor.create_model("vit_ti16")
    assert start.give_weights(ours, ()) == "all weights copied as they are"
    assert torch.equal(ours.head.weight, theirs.head.weight)


def test_finetune_starts_from_published_weights_with_their_preprocessing_unless_told_otherwise(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    asked: list[tuple[list[str], dict[str, object]]] = []
    monkeypatch.setattr("favor.cli.train.train_models", lambda names, *rest: asked.append((names, rest[-1])))
    run("finetune", "vit_ti16", "--pretrained", "--img-size", "32", "--set", "mean=[0.1, 0.2, 0.3]")
    ((names, options),) = asked
    assert (names, options["init"]) == (["vit_ti16"], f"timm:{VIT}")
    recipe = load_recipe("laptop-digits", options["set"])  # type: ignore[arg-type]
    assert (recipe.img_size, recipe.mean, recipe.std) == (32, (0.1, 0.2, 0.3), (0.5, 0.5, 0.5))


def test_train_starts_from_the_weights_of_a_tag(monkeypatch: pytest.MonkeyPatch) -> None:
    asked: list[dict[str, object]] = []
    monkeypatch.setattr("favor.cli.train.train_models", lambda *given: asked.append(given[-1]))
    run("train", "vit_s16", "--weights", "augreg_in1k")
    assert asked[0]["init"] == "timm:vit_small_patch16_224.augreg_in1k"
    assert not asked[0]["set"]


def test_train_starts_one_model_from_published_weights() -> None:
    for names in (["vit_ti16", "vit_s16"], ["vit_*16"]):
        result = CliRunner().invoke(app, ["train", *names, "--pretrained"])
        assert isinstance(result.exception, RequestError)
        assert "name one model" in str(result.exception)


@pytest.mark.parametrize("model", ["vit_xs4", "timm:test_efficientnet"])
def test_a_head_for_new_classes_starts_at_zero_and_one_for_the_same_classes_is_kept(model: str) -> None:
    old, new = ("ant", "bee", "cat"), ("dog", "elk", "fox")
    trained = favor.create_model(model, num_classes=3).eval()
    start = Start("photos", trained.state_dict(), favor.card(model).image_sizes.default, old)
    images = torch.randn(2, 3, *[favor.card(model).image_sizes.default] * 2)
    for classes, expected in ((new, torch.zeros(2, 3)), (old, trained(images))):
        tuned = favor.create_model(model, num_classes=3).eval()
        start.give_weights(tuned, classes)
        torch.testing.assert_close(tuned(images), expected)
