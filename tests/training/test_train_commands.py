"""The commands: what they print, and how they end."""

import json
import os
import resource
import signal
import subprocess
import sys
import time
from pathlib import Path

import pytest
from typer.testing import CliRunner

from favor import load_records
from favor.analyze.comparison import Comparison, Scope
from favor.cli import app
from favor.errors import RequestError
from favor.machine.locks import measuring
from favor.machine.messages import Findings
from favor.records.store import read
from favor.study import local_executor
from favor.training.request import TrainingRequest
from study.in_this_process import in_this_process

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
    [record] = json.loads(favor("train", "tiny_vit", *QUICK, "--study", tmp_path, "--json"))
    assert (record["name"], record["conditions"]["epochs"], record["conditions"]["final"]) == ("tiny_vit", 2, True)
    [run] = (tmp_path / "runs").iterdir()
    scores = json.loads(favor("evaluate", run, "--json", "--workers", "0"))
    best = max(record.metrics["top1"].value for record in read(tmp_path).records)
    assert (scores["top1"]["value"], scores["top1"]["unit"]) == (pytest.approx(best), "%")
    assert scores["top1"]["low"] < best < scores["top1"]["high"]
    assert (scores["model"], scores["dataset"], scores["images"]) == ("tiny_vit", "digits", 360)
    assert "top-5" in favor("evaluate", run)
    changes = ("--recipe", "laptop-digits", "--data", "synthetic", "--img-size", "40", "--study", tmp_path, *QUICK)
    table = favor("finetune", run, *changes)
    assert "on synthetic, 40 px" in table
    from PIL import Image

    Image.new("RGB", (50, 40), "red").save(tmp_path / "red.png")
    [prediction] = json.loads(favor("predict", run, tmp_path / "red.png", "--json"))
    assert len(prediction["predictions"]) == 5
    (tmp_path / "text.png").write_text("no image")
    assert "red.png" in favor("predict", run, tmp_path / "red.png", tmp_path / "text.png", code=1)
    assert favor("predict", run, tmp_path / "text.png", code=1) == ""


def test_fine_tunings_of_two_runs_into_one_study_are_two_results(tmp_path: Path) -> None:
    runs = []
    with in_this_process(tmp_path, {}):
        for number, changes in enumerate(((), ("--epochs", "1"), ("--set", "seed=1"))):
            favor("train", "tiny_vit", *QUICK, *changes, "--study", tmp_path / f"{number}")
            runs += (tmp_path / f"{number}" / "runs").iterdir()
        tune = ("--recipe", "laptop-digits", "--data", "synthetic", *QUICK, "--study", tmp_path / "tuned", "--json")
        told = [json.loads(favor("finetune", run, *tune))[0]["conditions"] for run in runs]
        again = json.loads(favor("finetune", runs[0], *tune))[0]["conditions"]
    pipelines = [str(conditions["pretraining_pipeline"]) for conditions in told]
    assert pipelines[0].replace("epochs=2", "epochs=1") == pipelines[1]
    assert pipelines[0] == pipelines[2]
    assert [conditions["pretraining_seed"] for conditions in told] == ["0", "0", "1"]
    assert again == told[0]
    finals = [record for record in read(tmp_path / "tuned").records if record.conditions["final"] is True]
    assert [dict(record.conditions) for record in finals] == told
    rows = Comparison(load_records(tmp_path / "tuned"), Scope("synthetic")).compare_in(None).rows
    assert rows["top1_seeds"].tolist() == [2]


def test_two_processes_of_a_command_share_each_batch_and_give_the_result_of_one(tmp_path: Path) -> None:
    quick = (*QUICK, "--workers", "0", "--epochs", "1", "--json")
    [two] = json.loads(favor("train", "tiny_vit", *quick, "--processes", "2", "--study", tmp_path / "two"))
    [one] = json.loads(favor("train", "tiny_vit", *quick, "--study", tmp_path / "one"))
    labels = [(record["conditions"]["processes"], record["conditions"]["micro_batch_size"]) for record in (two, one)]
    assert labels == [(2, 120), (1, 240)]
    assert two["metrics"]["loss"]["value"] == pytest.approx(one["metrics"]["loss"]["value"], abs=1e-4)


def test_a_model_that_is_killed_is_a_record_and_the_next_goes_on(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    killed = "import os, signal, sys; request = sys.stdin.readline()\n"
    killed += "if 'tiny_vit' in request: os.kill(os.getpid(), signal.SIGKILL)\n"
    killed += 'os.write(int(sys.argv[1]), b\'{"refused": "not today"}\\n\')'
    monkeypatch.setattr(local_executor, "worker_command", lambda module: (sys.executable, "-c", killed))
    favor("train", "tiny_vit", "tiny_performer", *QUICK, "--study", tmp_path, "--json", code=1)
    [record] = read(tmp_path).records
    assert (record.name, record.status) == ("tiny_vit", "failed")
    assert record.reason == "start: killed by SIGKILL"
    status, title = json.loads(favor("status", tmp_path, "--json")), "{}@32 accuracy laptop-digits seed 0"
    assert status["failed"] == [{"job": title.format("tiny_vit"), "reason": "failed: start: killed by SIGKILL"}]
    assert status["left"] == [title.format("tiny_performer")]


def test_a_checkpoint_that_does_not_fit_on_the_disk_is_one_line_and_the_training_continues_later(
    tmp_path: Path,
) -> None:
    arguments = ["train", "tiny_vit", *QUICK, "--save-every", "1", "--resume", "--study", str(tmp_path)]
    limits = resource.getrlimit(resource.RLIMIT_FSIZE)
    resource.setrlimit(resource.RLIMIT_FSIZE, (20_000, limits[1]))  # what a full disk does, without a disk of our own
    try:
        done = CliRunner().invoke(app, arguments)
    finally:
        resource.setrlimit(resource.RLIMIT_FSIZE, limits)
    assert done.exit_code == 1
    [line] = [line for line in done.stderr.splitlines() if line.startswith("[1/1]")]
    assert "failed: cannot write" in line
    assert ".safetensors: File too large; " in line
    favor(*arguments)
    last = read(tmp_path).records[-1]
    assert (last.status, last.conditions["final"]) == ("ok", True)


def test_what_is_trained_already_is_told_and_not_trained_again(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    trained = json.loads(favor("train", "tiny_vit", *QUICK, "--study", tmp_path, "--json"))
    monkeypatch.setattr(local_executor, "supervise", lambda *_, **__: pytest.fail("trained for nothing"))
    assert json.loads(favor("train", "tiny_vit", *QUICK, "--study", tmp_path, "--json")) == trained
    assert json.loads(favor("train", "tiny_vit", *QUICK, "--study", tmp_path, "--resume", "--json")) == trained


def test_a_run_that_was_begun_is_refused_without_resume_and_goes_on_with_it(tmp_path: Path) -> None:
    favor("train", "tiny_vit", *QUICK, "--study", tmp_path, "--json")
    records = tmp_path / "records.jsonl"
    records.write_bytes(b"".join(records.read_bytes().splitlines(keepends=True)[:1]))  # as if it had been killed
    with pytest.raises(RequestError, match="already has a run, .*; continue it with --resume"):
        favor("train", "tiny_vit", *QUICK, "--study", tmp_path)
    assert len(read(tmp_path).records) == 1


def test_the_options_of_the_command_reach_the_worker(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    asked: list[TrainingRequest] = []

    def supervise(command: tuple[str, ...], request: str, **options: object) -> Findings:
        assert command[-1] == "favor.training.worker"
        asked.append(TrainingRequest.from_json(request))
        return Findings(status="failed", reason="training: no")

    monkeypatch.setattr(local_executor, "supervise", supervise)
    changes = ("--set", "lr=1e-3", "--set", "seed=3", "--resume", "--accumulation", "2", "--workers", "3")
    favor("train", "tiny_vit", "tiny_performer", *QUICK, *changes, "--study", tmp_path, "--json", code=1)
    assert [request.model for request in asked] == ["tiny_vit", "tiny_performer"]
    request = asked[0]
    assert (request.recipe.epochs, request.recipe.lr, request.recipe.seed) == (2, 1e-3, 3)
    assert (request.accumulation, request.workers, request.threads, request.resume) == (2, 3, 1, True)
    assert request.study == tmp_path
    assert PLUGIN in request.plugins


@pytest.mark.parametrize(
    ("arguments", "message"),
    [
        (["train", "tiny_vit", "--minutes", "5", "--epochs", "3"], "epochs and minutes both say"),
        (["train", "tiny_vit", "--set", "epochz=3"], "did you mean 'epochs'"),
        (["train", "tiny_vt"], "did you mean 'tiny_vit'"),
        (["train", "tiny_vit", "--set", "img_size=33"], "multiple of 8"),
        (["train", "tiny_vit", "--data", "digit"], "did you mean 'digits'"),
        (["train", "tiny_vit", "tiny_performer", "--data", "digit"], "did you mean 'digits'"),
        (["finetune", __file__, "--recipe", "laptop-digits"], "does not name its model; add --model"),
        (["train", "tiny_vit", "--recipe", "laptop"], "unknown recipe"),
        (["evaluate", "nowhere.safetensors"], "there is no such file"),
        (["predict", __file__, "image.png"], "truncated, or not a safetensors file"),
        (["finetune", "nowhere.safetensors", "--recipe", "laptop-digits"], "there is no such file"),
    ],
)
def test_a_wrong_request_is_refused_before_anything_is_done(
    tmp_path: Path, arguments: list[str], message: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.chdir(tmp_path)
    with pytest.raises(RequestError, match=message):
        favor(*arguments)
    assert not list(tmp_path.rglob("*.safetensors"))
    assert not (tmp_path / "runs").exists()


def test_nobody_trains_on_a_device_that_is_being_measured(tmp_path: Path) -> None:
    with (
        measuring("cpu", tmp_path / "other", wait=False),
        pytest.raises(RequestError, match="cpu is being measured by process .*--wait waits for it"),
    ):
        favor("train", "tiny_vit", *QUICK, "--study", tmp_path / "mine")
    assert not (tmp_path / "mine" / "records.jsonl").exists()


def test_sigterm_ends_the_command_with_0_and_a_checkpoint(tmp_path: Path) -> None:
    command = [sys.executable, "-m", "favor", "--plugin", PLUGIN, "train", "tiny_vit", "--study", str(tmp_path)]
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
