"""The commands: what they print, and how they end."""

import json
import os
import signal
import subprocess
import sys
import time
from pathlib import Path

import pytest
from typer.testing import CliRunner

from favor.cli import app
from favor.errors import RequestError
from favor.records.store import read
from favor.train import several

PLUGIN = str(Path(__file__).with_name("tiny_models.py"))
QUICK = ("--epochs", "2", "--set", "warmup_epochs=0.5", "--set", "batch_size=240", "--device", "cpu", "--threads", "1")
pytestmark = pytest.mark.usefixtures("tiny_models")


def favor(*arguments: object, code: int = 0) -> str:
    done = CliRunner().invoke(app, [str(word) for word in arguments])
    if done.exception is not None and not isinstance(done.exception, SystemExit):
        raise done.exception
    assert done.exit_code == code, done.output
    return done.stdout


def test_train_evaluate_finetune_and_predict_from_the_command_line(tmp_path: Path) -> None:
    [record] = json.loads(favor("train", "tiny_vit", *QUICK, "--out", tmp_path, "--json"))
    assert (record["name"], record["conditions"]["epochs"], record["conditions"]["final"]) == ("tiny_vit", 2, True)
    [run] = (tmp_path / "runs").iterdir()
    scores = json.loads(favor("evaluate", run, "--json", "--workers", "0"))
    best = max(record.metrics["top1"].value for record in read(tmp_path).records)
    assert scores["top1"] == {"value": pytest.approx(best), "unit": "%"}
    assert (scores["model"], scores["dataset"], scores["images"]) == ("tiny_vit", "digits", 360)
    assert "top-5" in favor("evaluate", run)
    changes = ("--recipe", "laptop-digits", "--data", "synthetic", "--img-size", "40", "--out", tmp_path, *QUICK)
    table = favor("finetune", run, *changes)
    assert "on synthetic, 40 px" in table
    from PIL import Image

    Image.new("RGB", (50, 40), "red").save(tmp_path / "red.png")
    [prediction] = json.loads(favor("predict", run, tmp_path / "red.png", "--json"))
    assert len(prediction["predictions"]) == 5
    (tmp_path / "text.png").write_text("no image")
    assert "red.png" in favor("predict", run, tmp_path / "red.png", tmp_path / "text.png", code=1)
    assert favor("predict", run, tmp_path / "text.png", code=1) == ""


def test_a_model_that_is_killed_is_a_record_and_the_next_goes_on(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    def command(model: str, arguments: object) -> list[str]:
        end = "os.kill(os.getpid(), signal.SIGKILL)" if model == "tiny_vit" else "sys.exit(0)"
        return [sys.executable, "-c", f"import os, signal, sys; {end}"]

    monkeypatch.setattr(several, "command_for", command)
    favor("train", "tiny_vit", "tiny_performer", *QUICK, "--out", tmp_path, "--json", code=1)
    [record] = read(tmp_path).records
    assert (record.name, record.status) == ("tiny_vit", "failed")
    assert record.reason == "killed by SIGKILL; --resume goes on from its last checkpoint"


def test_one_of_several_that_is_refused_is_not_told_as_the_run_that_is_there(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    favor("train", "tiny_vit", *QUICK, "--out", tmp_path, "--json")
    monkeypatch.setattr(several, "_run", lambda command: 0 if "--resume" in command else 2)
    both = ("train", "tiny_vit", "tiny_vit?", *QUICK, "--out", tmp_path, "--json")
    monkeypatch.setattr("favor.cli.train.expand", lambda _names: ["tiny_vit", "tiny_vit"])
    assert json.loads(favor(*both, code=1)) == []
    assert [record["name"] for record in json.loads(favor(*both, "--resume"))] == ["tiny_vit"] * 2


def test_the_command_for_one_of_several_models_says_the_same_as_the_one_for_all(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    asked: list[list[str]] = []
    monkeypatch.setattr(several, "_run", lambda command: asked.append(list(command)) or 0)
    changes = ("--set", "lr=1e-3", "--resume", "--accumulation", "2", "--workers", "3")
    favor("train", "tiny_vit", "tiny_performer", *QUICK, *changes, "--out", tmp_path, "--json", code=1)
    assert [command[-1] for command in asked] == ["tiny_vit", "tiny_performer"]
    words = asked[0][asked[0].index("train") + 1 : -1]
    pairs = {" ".join(words[place : place + 2]) for place in range(len(words))}
    wanted = {f"--out {tmp_path}", "--set epochs=2", "--set lr=1e-3", "--accumulation 2", "--workers 3", "--threads 1"}
    assert wanted <= pairs
    assert "--resume" in words
    assert ["--plugin", PLUGIN] in [asked[0][place : place + 2] for place in range(len(asked[0]))]


@pytest.mark.parametrize(
    ("arguments", "message"),
    [
        (["train", "tiny_vit", "--minutes", "5", "--epochs", "3"], "--minutes and --epochs both say"),
        (["train", "tiny_vit", "--set", "epochz=3"], "did you mean 'epochs'"),
        (["train", "tiny_vt"], "did you mean 'tiny_vit'"),
        (["train", "tiny_vit", "--set", "img_size=33"], "multiple of 8"),
        (["train", "tiny_vit", "--data", "digit"], "did you mean 'digits'"),
        (["train", "tiny_vit", "tiny_performer", "--data", "digit"], "did you mean 'digits'"),
        (["finetune", __file__, "--recipe", "laptop-digits"], "does not say of which model; add --model"),
        (["train", "tiny_vit", "--recipe", "laptop"], "unknown recipe"),
        (["evaluate", "nowhere.safetensors"], "there is no such file"),
        (["predict", __file__, "image.png"], "torn, or not a safetensors file"),
        (["finetune", "nowhere.safetensors", "--recipe", "laptop-digits"], "there is no such file"),
    ],
)
def test_a_wrong_request_is_refused_before_anything_is_done(
    tmp_path: Path, arguments: list[str], message: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.chdir(tmp_path)
    with pytest.raises(RequestError, match=message):
        favor(*arguments)
    assert not (tmp_path / "favor-runs").exists() or not list((tmp_path / "favor-runs").rglob("*.safetensors"))


def test_sigterm_ends_the_command_with_0_and_a_checkpoint(tmp_path: Path) -> None:
    command = [sys.executable, "-m", "favor", "--plugin", PLUGIN, "train", "tiny_vit", "--out", str(tmp_path)]
    quick = ["--epochs", "10000", "--set", "batch_size=240", "--device", "cpu"]
    child = subprocess.Popen([*command, *quick], stderr=subprocess.PIPE, stdout=subprocess.PIPE, text=True)
    assert child.stderr is not None
    for line in child.stderr:
        if "epoch 1:" in line:
            break
    started = time.monotonic()
    os.kill(child.pid, signal.SIGTERM)
    said = child.stderr.read()
    assert child.wait() == 0, said
    assert "stopped by SIGTERM; saved in" in said
    assert time.monotonic() - started < 30
    assert list(tmp_path.rglob("step-*.state.safetensors"))
