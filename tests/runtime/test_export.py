"""`favor export` writes a file that gives what the checkpoint gives, and a card that says how it is used."""

import json
import shutil
import subprocess
import sys
from pathlib import Path

import pytest
import torch
from PIL import Image
from typer.testing import CliRunner

from favor.cli import app
from favor.data.opening import open_data
from favor.errors import RequestError, WorkError
from favor.machine.device import find_device
from favor.runtime.card import ExportCard, card_file, read_card
from favor.training import export as exporting
from favor.training.checkpoint import save_model
from favor.training.distributed import Processes
from favor.training.export import ExportRequest, export
from favor.training.predict import evaluate_checkpoint, load_trained, open_classifier, predict
from favor.training.run_data import save_run_data

FILES = {"onnx": "model.onnx", "openvino": "model.xml"}


@pytest.fixture(scope="module")
def image(tmp_path_factory: pytest.TempPathFactory) -> Path:
    file = tmp_path_factory.mktemp("image") / "digit.png"
    Image.fromarray(open_data("digits").evaluation.images[3].permute(1, 2, 0).numpy()).save(file)
    return file


def scores(path: Path) -> tuple[float, float]:
    _, _, found = evaluate_checkpoint(path, None, find_device("cpu"), Processes(), 64, 0)
    return found.top1, found.loss


@pytest.mark.parametrize("form", FILES)
def test_an_exported_file_evaluates_and_predicts_as_its_checkpoint(
    form: str, checkpoint: Path, image: Path, tmp_path: Path
) -> None:
    file = tmp_path / FILES[form]
    card = export(ExportRequest(str(checkpoint), file, form, dynamic_batch=form == "onnx"))
    test = card.self_test
    assert (test.data, test.images, test.top1_agreement, test.top1_change) == ("digits", 64, 100.0, 0.0)
    assert 0 < test.relative_deviation < 1e-5
    assert scores(file) == pytest.approx(scores(checkpoint), rel=1e-4)
    [one], [other] = (predict(open_classifier(path, find_device("cpu")), [str(image)]) for path in (file, checkpoint))
    assert [guess.name for guess in one.guesses] == [guess.name for guess in other.guesses]
    assert one.guesses[0].probability == pytest.approx(other.guesses[0].probability, rel=1e-4)


@pytest.mark.parametrize("form", FILES)
def test_int8_is_calibrated_on_the_checkpoints_own_images_and_its_change_of_top1_is_told(
    form: str, checkpoint: Path, tmp_path: Path
) -> None:
    file = tmp_path / FILES[form]
    card = export(ExportRequest(str(checkpoint), file, form, "int8", dynamic_batch=True))
    test = card.self_test
    assert (card.calibration, test.data, test.images) == ("128 of digits", "digits", 360)
    assert test.top1_agreement > 80
    assert test.top1_change is not None
    assert test.top1_change_low < test.top1_change < test.top1_change_high  # type: ignore[operator]
    assert scores(file)[0] == pytest.approx(test.top1 + test.top1_change)  # type: ignore[operator]


def test_images_without_classes_calibrate_and_give_an_agreement_only(image: Path, tmp_path: Path) -> None:
    photos = f"folder:{image.parent}"
    request = ExportRequest("mixer_xs4", tmp_path / "a.onnx", precision="int8", calibration=photos, data=photos)
    card = export(request)
    assert card.self_test.data == f"folder:{image.parent.name}"
    assert card.calibration == f"1 of {card.self_test.data}"
    assert (card.self_test.images, card.self_test.top1, card.self_test.top1_change) == (1, None, None)


def test_the_card_says_what_the_checkpoint_says(checkpoint: Path, tmp_path: Path) -> None:
    file = tmp_path / "model.pt2"
    card = export(ExportRequest(str(checkpoint), file, "torch-export"))
    assert (card.model, card.img_size, card.mean, card.std) == ("tiny_vit", 32, (0.5,) * 3, (0.5,) * 3)
    assert card.classes == open_data("digits").classes
    assert card.source == "best.safetensors of run a, step 60"
    assert json.loads(card_file(file).read_text())["self_test"]["images"] == 64
    with pytest.raises(RequestError, match="may hold code, which favor does not run"):
        open_classifier(file, find_device("cpu"))


def test_an_exported_file_resizes_images_as_its_checkpoint_and_a_card_without_a_word_about_it_means_bicubic(
    checkpoint: Path, tmp_path: Path
) -> None:
    trained, model = load_trained(checkpoint, torch.device("cpu"))
    bilinear = trained.recipe.model_copy(update={"interpolation": "bilinear"})
    source, file, cpu = tmp_path / "best.safetensors", tmp_path / "model.onnx", find_device("cpu")
    save_model(source, model, trained.model_copy(update={"recipe": bilinear}))
    assert export(ExportRequest(str(source), file)).interpolation == "bilinear"
    assert [open_classifier(path, cpu).framing.interpolation for path in (source, file)] == ["bilinear"] * 2
    older = json.loads(card_file(file).read_text())
    del older["interpolation"]
    card_file(file).write_text(json.dumps(older))
    assert open_classifier(file, cpu).framing.interpolation == "bicubic"


def test_without_real_images_the_self_test_is_on_generated_ones(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.delenv("FAVOR_DATA", raising=False)
    file = tmp_path / "model.onnx"
    done = CliRunner().invoke(app, ["export", "mixer_xs4", "-o", str(file)])
    assert done.exit_code == 0, done.output
    assert "compared on generated images" in done.stderr
    assert "mixer_xs4 has random weights" in done.stderr
    assert "top-1 agreement" in done.stdout
    with pytest.raises(RequestError, match="mixer_xs4 with fresh weights, seed 0 knows no classes"):
        open_classifier(file, find_device("cpu"))


def test_the_change_of_top1_is_printed_in_points(checkpoint: Path, tmp_path: Path) -> None:
    done = CliRunner(env={"COLUMNS": "300"}).invoke(app, ["export", str(checkpoint), "-o", str(tmp_path / "a.onnx")])
    assert done.exit_code == 0, done.output
    assert "+0.00 points (-4.20 to +4.20)" in done.stdout


def test_a_run_on_own_images_is_compared_on_them(checkpoint: Path, tmp_path: Path) -> None:
    digits, photos = open_data("digits").evaluation, tmp_path / "photos"
    for place, label in enumerate(digits.labels[:60]):
        file = photos / str(label) / f"{place}.png"
        file.parent.mkdir(parents=True, exist_ok=True)
        Image.fromarray(digits.images[place].permute(1, 2, 0).numpy()).save(file)
    own = open_data(f"folder:{photos}")
    trained, model = load_trained(checkpoint, torch.device("cpu"))
    save_run_data(tmp_path / "run", f"folder:{photos}", own)
    save_model(tmp_path / "run" / "best.safetensors", model, trained.model_copy(update={"dataset": "folder:photos"}))
    test = export(ExportRequest(str(tmp_path / "run"), tmp_path / "model.onnx")).self_test
    assert test.data.startswith("folder")
    assert (test.images, test.top1_agreement) == (len(own.evaluation), 100.0)


@pytest.mark.parametrize(
    ("words", "text"),
    [
        (["vit_xs4", "-o", "a.onnx", "--precision", "int8"], "int8 needs images to calibrate with; name a dataset"),
        (
            ["vit_xs4", "-o", "a.pt2", "--runtime", "torch-export", "--precision", "int8"],
            "use --runtime onnx or openvino",
        ),
        (["vit_xs4", "-o", "a.onnx", "--calibration", "digits"], "only int8 is calibrated; add --precision int8"),
        (["vit_xs4", "-o", "a.onnx", "--runtime", "openvino"], "ends in .xml; use -o a.xml"),
        (["vit_xs4", "-o", "no/such/a.onnx"], "no/such: there is no such folder"),
        (["vit_xs5", "-o", "a.onnx"], "did you mean 'vit_xs4'"),
        (["nowhere.safetensors", "-o", "a.onnx"], "there is no such file"),
        (["nowhere.onnx", "-o", "a.onnx"], "nowhere.onnx: a file of `favor export`, not a checkpoint; name the model,"),
        (
            ["vit_xs4", "-o", "a.onnx", "--precision", "int8", "--calibration", "folder:nowhere"],
            "--calibration: dataset 'folder:nowhere': no such folder or file",
        ),
        (["vit_xs4", "-o", "a.onnx", "--img-size", "0"], "vit_xs4 cannot take an image of 0 x 0 px"),
        (["vit_xs4", "-o", "a.onnx", "--data", "folder:nowhere"], "--data: dataset 'folder:nowhere': no such folder"),
    ],
)
def test_a_wrong_request_is_one_line_and_writes_nothing(
    words: list[str], text: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.chdir(tmp_path)
    refused = CliRunner().invoke(app, ["export", *words]).exception
    assert isinstance(refused, RequestError)
    assert text in str(refused)
    assert "\n" not in str(refused)
    assert not list(tmp_path.iterdir())


def test_a_file_without_its_own_card_is_refused(checkpoint: Path, tmp_path: Path) -> None:
    file = tmp_path / "model.onnx"
    export(ExportRequest(str(checkpoint), file))
    assert isinstance(read_card(file), ExportCard)
    other = tmp_path / "other.onnx"
    other.write_bytes(file.read_bytes() + b"x")
    with pytest.raises(RequestError, match=r"other.onnx.json is not beside it"):
        read_card(other)
    card_file(other).write_text(card_file(file).read_text())
    with pytest.raises(RequestError, match="not the file that other.onnx.json was written for"):
        read_card(other)
    card_file(other).write_text('{"favor": 1}')
    with pytest.raises(RequestError, match="export the model again"):
        read_card(other)


@pytest.fixture(scope="module", params=FILES)
def exported(request: pytest.FixtureRequest, checkpoint: Path, tmp_path_factory: pytest.TempPathFactory) -> Path:
    file = tmp_path_factory.mktemp("exported") / FILES[request.param]
    export(ExportRequest(str(checkpoint), file, request.param, dynamic_batch=True))
    return file


def test_a_file_may_be_renamed_together_with_its_card(exported: Path, tmp_path: Path) -> None:
    for part in exported.parent.iterdir():
        shutil.copy(part, tmp_path / part.name.replace("model", "digits"))
    assert open_classifier(tmp_path / f"digits{exported.suffix}", find_device("cpu")).model == "tiny_vit"


@pytest.mark.parametrize("kind", ["mps", "cuda"])
def test_an_exported_file_runs_on_the_cpu_where_its_runtime_does_not_run_on_the_device(
    kind: str, exported: Path, image: Path, monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture
) -> None:
    monkeypatch.setattr("onnxruntime.get_available_providers", lambda: ["CPUExecutionProvider"])
    device = find_device("cpu")
    assert open_classifier(exported, device).model == "tiny_vit"
    assert "running on the CPU" not in caplog.text
    device.kind = kind
    [found] = predict(open_classifier(exported, device), [str(image)])
    assert len(found.guesses) == 5
    [told] = [message for logger, _, message in caplog.record_tuples if logger == "favor.training"]
    assert f"running on the CPU, since {'onnxruntime' if exported.suffix == '.onnx' else 'openvino'} does not" in told
    assert "--runtime" not in told


@pytest.mark.parametrize(
    ("changed", "why"),
    [
        ({"in_chans": 1}, "takes images of shape any x 3 x 32 x 32, but its card says any x 1 x 32 x 32; export"),
        ({"img_size": 64}, "takes images of shape any x 3 x 32 x 32, but its card says any x 3 x 64 x 64; export"),
        (
            {"num_classes": 2, "classes": ["cat", "dog"]},
            "has 10 outputs, but its card says 2 classes; export the model again",
        ),
        ({"num_classes": 2}, "num_classes is 2, but it names 10 classes; export the model again"),
        ({"format": "torch-export"}, "but its card says torch-export; export the model again"),
        (
            {"dynamic_batch": False},
            "takes images of shape any x 3 x 32 x 32, but its card says 1 x 3 x 32 x 32; export the model again",
        ),
        ({"precision": "int8"}, "a graph in fp32, but its card says int8; export the model again"),
        ({"mean": [1e300, 0.5, 0.5]}, "json: mean[0]: Input should be less than or equal to 1000; export the model"),
        ({"std": [0.5, 1e-300, 0.5]}, "json: std[1]: Input should be greater than or equal to 0.001; export the model"),
        ({"std": [0.5, 0.5, 0.0]}, "json: std[2]: Input should be greater than or equal to 0.001; export the model"),
        ({"std": [float("nan")] * 3}, "json: std[0]: Input should be a finite number; export the model again"),
    ],
)
def test_a_card_that_contradicts_its_file_is_refused_in_one_line(
    exported: Path, changed: dict[str, object], why: str, tmp_path: Path
) -> None:
    file = shutil.copytree(exported.parent, tmp_path / "copy") / exported.name
    assert open_classifier(file, find_device("cpu")).img_size == 32
    card_file(file).write_text(json.dumps(json.loads(card_file(file).read_text()) | changed))
    with pytest.raises(RequestError) as refused:
        open_classifier(file, find_device("cpu"))
    assert why in str(refused.value)
    assert str(refused.value).isprintable()


@pytest.mark.parametrize("form", FILES)
@pytest.mark.parametrize("precision", ["fp16", "int8"])
def test_a_card_with_another_precision_or_batch_size_than_its_file_is_refused(
    form: str, precision: str, checkpoint: Path, tmp_path: Path
) -> None:
    file, cpu = tmp_path / FILES[form], find_device("cpu")
    card = export(ExportRequest(str(checkpoint), file, form, precision))
    assert open_classifier(file, cpu).precision == precision
    card_file(file).write_text(card.model_copy(update={"precision": "fp32"}).model_dump_json())
    with pytest.raises(RequestError, match=f"a graph in {precision}, but its card says fp32; export the model again"):
        open_classifier(file, cpu)
    card_file(file).write_text(card.model_copy(update={"dynamic_batch": True}).model_dump_json())
    with pytest.raises(RequestError, match="takes images of shape 1 x 3 x 32 x 32, but its card says any x 3"):
        open_classifier(file, cpu)


@pytest.mark.parametrize("form", FILES)
def test_a_file_whose_outputs_rounding_does_not_explain_is_not_written_and_an_older_one_stays(
    form: str, checkpoint: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    file = tmp_path / FILES[form]
    opened = exporting.open_exported
    with monkeypatch.context() as patched:
        patched.setattr(exporting, "open_exported", lambda request: lambda x: 1.03 * opened(request)(x))
        with pytest.raises(WorkError, match="not written, .* differ from eager mode by 3.0e-02 of the largest one"):
            export(ExportRequest(str(checkpoint), file, form))
        assert not list(tmp_path.iterdir())
    card = export(ExportRequest(str(checkpoint), file, form))
    before = {part.name: part.read_bytes() for part in tmp_path.iterdir()}
    assert before.keys() == {*card.sha256, card_file(file).name}
    monkeypatch.setattr(exporting, "open_exported", lambda request: lambda x: 1.03 * opened(request)(x))
    with pytest.raises(WorkError, match="not written"):
        export(ExportRequest(str(checkpoint), file, form, dynamic_batch=True))
    assert {part.name: part.read_bytes() for part in tmp_path.iterdir()} == before
    assert read_card(file) == card


def test_int8_of_a_checkpoint_whose_images_are_not_here_says_how_to_name_others(
    checkpoint: Path, tmp_path: Path
) -> None:
    trained, model = load_trained(checkpoint, torch.device("cpu"))
    copied = tmp_path / "copied.safetensors"
    save_model(copied, model, trained.model_copy(update={"dataset": "folder:photos"}))
    with pytest.raises(
        RequestError, match=r"\(folder:photos\) are not available; .* --calibration NAME\[:PATH\]"
    ) as refused:
        export(ExportRequest(str(copied), tmp_path / "model.onnx", precision="int8"))
    assert "--data" not in str(refused.value)
    assert list(tmp_path.iterdir()) == [copied]


def test_nothing_is_reported_to_the_makers_of_openvino() -> None:
    code = (
        "from favor.runtime.telemetry import without_telemetry; without_telemetry()\n"
        "import nncf, openvino, sys; from nncf.telemetry import telemetry\n"
        "assert sys.modules['openvino_telemetry'] is None and 'Mock' in type(telemetry).__name__"
    )
    done = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=False)
    assert done.returncode == 0, done.stderr
