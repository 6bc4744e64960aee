"""Trackers get the numbers of the records, and what goes wrong with them does not end a training.

wandb, mlflow and trackio are large, so most tests use small modules with the same calls (`fake_trackers.py`). The tests
with the packages themselves run where these are installed: `pip install 'favor[mlflow,trackio,wandb]'`.
"""

import importlib.util
import json
import os
import signal
import sqlite3
import sys
from collections.abc import Callable
from dataclasses import replace
from pathlib import Path

import pytest
from typer.testing import CliRunner

from fake_trackers import FAKES
from favor.cli import app
from favor.errors import RequestError
from favor.records.schema import CardFields, Record, reading
from favor.records.store import read
from favor.study.schema import StudyFile
from favor.training.callbacks import StepNews
from favor.training.recipe import load_recipe
from favor.training.request import TrainingRequest
from favor.training.run import train
from favor.training.trackers import TRACKERS, TrackedRun, require_trackers

pytestmark = pytest.mark.usefixtures("tiny_models")


class Watcher:
    """Collects notes; stops the training at a step."""

    def __init__(self, at: int = -1) -> None:
        self.at = at
        self.notes: list[str] = []

    def note(self, text: str) -> None:
        self.notes.append(text)

    def stepped(self, news: StepNews) -> None:
        if news.step == self.at:
            os.kill(os.getpid(), signal.SIGTERM)

    def evaluated(self, record: Record, news: StepNews) -> None:
        """Records are read from the study."""


def asked(study: Path, *log: str, **options: object) -> TrainingRequest:
    recipe = load_recipe("laptop-digits", ["epochs=2", "warmup_epochs=0.5", "batch_size=240"])
    plain = {"device": "cpu", "threads": 1, "survey_seconds": 1e-9, "log": log}
    return TrainingRequest("tiny_vit", recipe, "digits", study, **{**plain, **options})  # type: ignore[arg-type]


def curve(told: list[dict[str, object]], metric: str) -> list[tuple[object, object]]:
    logged = [one for one in told if one["call"] == "log" and metric in one["metrics"]]  # type: ignore[operator]
    return [(one["step"], one["metrics"][metric]) for one in logged]  # type: ignore[index]


def of_records(study: Path, metric: str = "top1") -> list[tuple[int, float]]:
    return [(5 * int(one.conditions["epochs"]), one.metrics[metric].value) for one in read(study).records]


def test_trackers_get_the_settings_and_every_epoch_s_numbers(
    tmp_path: Path, told: Callable[[], list[dict[str, object]]]
) -> None:
    study = tmp_path / "mine"
    outcome = train(asked(study, *FAKES))
    for name in FAKES:
        of_this = [one for one in told() if one["tracker"] == name]
        first = next(one for one in of_this if one["call"] == "init")
        assert first["study"] == "mine"
        assert str(first["name"]).startswith(outcome.folder.name)
        parameters = [{one["key"]: one["value"]} for one in of_this if one["call"] == "param"]
        settings = {key: value for one in [first["config"], *parameters] for key, value in one.items()}  # type: ignore[attr-defined]
        assert (settings["model"], settings["dataset"], settings["recipe.batch_size"]) == ("tiny_vit", "digits", 240)
        for metric in ("top1", "train_loss"):
            assert curve(of_this, metric) == of_records(study, metric)
        assert curve(of_this, "epochs") == [(5, 1.0), (10, 2.0)]
    ends = {str(one["tracker"]): one.get("status", one.get("exit_code")) for one in told() if one["call"] == "finish"}
    assert ends == {"wandb": 0, "mlflow": "FINISHED", "trackio": None}


def test_an_early_stop_is_the_end_of_a_tracked_run_and_not_an_interruption(
    tmp_path: Path, told: Callable[[], list[dict[str, object]]]
) -> None:
    request = asked(tmp_path / "mine", *FAKES)
    slow = ["epochs=9", "warmup_epochs=0", "batch_size=700", "lr=1e-12", "min_lr=0", "patience=1"]
    outcome = train(replace(request, recipe=load_recipe("laptop-digits", slow)))
    assert outcome.record is not None
    assert (outcome.ending, outcome.record.conditions["final"]) == ("done", True)
    assert outcome.record.conditions["epochs"] < 9
    ends = {str(one["tracker"]): one.get("status", one.get("exit_code")) for one in told() if one["call"] == "finish"}
    assert ends == {"wandb": 0, "mlflow": "FINISHED", "trackio": None}


def test_a_tracker_that_fails_in_the_middle_is_one_warning(
    tmp_path: Path, told: Callable[[], list[dict[str, object]]], monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("FAIL", "log")
    watcher = Watcher()
    outcome = train(asked(tmp_path / "mine", *FAKES, "tensorboard"), watcher)
    assert outcome.ending == "done"
    assert len(read(tmp_path / "mine").records) == 2
    assert [note for note in watcher.notes if note.startswith("warning")] == [
        f"warning: --log {name} failed (ConnectionError: the server is gone); training continues, and its records "
        "are complete"
        for name in FAKES
    ]
    assert any((outcome.folder / "tensorboard").iterdir())


def test_a_tracker_that_does_not_start_refuses_a_new_training_and_lets_a_resumed_one_go_on(
    tmp_path: Path, told: Callable[[], list[dict[str, object]]], monkeypatch: pytest.MonkeyPatch
) -> None:
    study = tmp_path / "mine"
    train(asked(study, "wandb"), Watcher(at=8))
    assert told()[-1] == {"tracker": "wandb", "call": "finish", "exit_code": 1}
    monkeypatch.setenv("FAIL", "init")
    watcher = Watcher()
    assert train(asked(study, "wandb", resume=True), watcher).ending == "done"
    assert sum(note.startswith("warning: --log wandb failed") for note in watcher.notes) == 1
    with pytest.raises(RequestError, match=r"--log wandb cannot start .*the server is gone.*WANDB_MODE=offline"):
        train(asked(tmp_path / "other", "wandb"))
    assert not (tmp_path / "other" / "records.jsonl").exists()


def test_a_resumed_run_goes_on_where_it_was(
    tmp_path: Path, told: Callable[[], list[dict[str, object]]], monkeypatch: pytest.MonkeyPatch
) -> None:
    from tensorboard.backend.event_processing.event_accumulator import EventAccumulator

    study = tmp_path / "mine"
    train(asked(study, *TRACKERS), Watcher(at=8))  # stopped in the second of two epochs
    monkeypatch.setenv("KNOWN_RUN", "7")
    outcome = train(asked(study, *TRACKERS, resume=True))
    runs = [(one["id"], one["name"]) for one in told() if one["call"] == "init"]
    assert (len(runs), len(set(runs))) == (5, 2)  # MLflow finds its run; Trackio has no id
    assert [one["status"] for one in told() if one["call"] == "update"] == ["RUNNING"]
    assert [one["status"] for one in told() if one["call"] == "finish" and "status" in one] == ["KILLED", "FINISHED"]
    board = EventAccumulator(str(outcome.folder / "tensorboard"))
    board.Reload()
    points = [(event.step, event.value) for event in board.Scalars("top1 [%]")]
    assert points == [(step, pytest.approx(value)) for step, value in of_records(study)]


def test_a_tracker_that_is_not_installed_is_asked_for_in_one_line(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("importlib.util.find_spec", lambda _name: None)
    for name in TRACKERS:
        result = CliRunner().invoke(app, ["train", "vit_xs4", "--log", name, "--study", str(tmp_path / "mine")])
        assert str(result.exception) == f"--log {name}: {name} is not installed; `pip install 'favor[{name}]'`"
    assert not (tmp_path / "mine").exists()


def test_a_folder_named_wandb_is_not_the_package(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    (tmp_path / "wandb").mkdir()
    monkeypatch.setattr(sys, "path", [str(tmp_path)])
    monkeypatch.delitem(sys.modules, "wandb", raising=False)
    with pytest.raises(RequestError, match="wandb is not installed"):
        require_trackers(["wandb"])


def test_an_unknown_tracker_is_refused_with_the_known_ones() -> None:
    result = CliRunner().invoke(app, ["train", "vit_xs4", "--log", "wanbd"])
    assert str(result.exception).startswith("--log: unknown tracker 'wanbd'; did you mean 'wandb'?")


def test_a_study_file_names_trackers_as_the_command_line_does() -> None:
    study = {"name": "x", "models": ("vit_xs4",), "train": {"recipe": "laptop-digits", "log": ("wandb", "mlflow")}}
    assert StudyFile.model_validate(study).train[0].log == ("wandb", "mlflow")


def needs(name: str) -> pytest.MarkDecorator:
    return pytest.mark.skipif(
        importlib.util.find_spec(name) is None, reason=f"{name} is not installed; `pip install 'favor[{name}]'`"
    )


def logged(name: str, folder: Path) -> None:
    """A run of two epochs, stopped and resumed between them."""
    for epoch in (1, 2):
        run = TrackedRun("0a1b2c3d", "a-run", "mine", folder, {"recipe.batch_size": 240}, 5 if epoch == 2 else None)
        tracker = TRACKERS[name](run)
        metrics = {"top1": reading("top1", 40.25 * epoch, method="test")}
        conditions = {"epochs": epoch}
        record = Record("vit_xs4", CardFields(), "accuracy", "measured", conditions=conditions, metrics=metrics)
        tracker.add(record, 5 * epoch)
        tracker.close("done" if epoch == 2 else "stopped")


@needs("wandb")
def test_weights_and_biases_keeps_an_offline_run(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("WANDB_MODE", "offline")
    logged("wandb", tmp_path)
    files = list(tmp_path.glob("wandb/offline-run-*/*.wandb"))
    assert files
    content = b"".join(file.read_bytes() for file in files)
    for word in (b"mine", b"a-run", b"recipe.batch_size", b"top1", b"80.5"):
        assert word in content


@needs("mlflow")
def test_mlflow_keeps_a_run_in_a_database(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("MLFLOW_TRACKING_URI", f"sqlite:///{tmp_path / 'mlflow.db'}")
    logged("mlflow", tmp_path)
    from mlflow import MlflowClient

    client = MlflowClient()
    (run,) = client.search_runs([client.get_experiment_by_name("mine").experiment_id])
    assert (run.info.status, run.data.params) == ("FINISHED", {"recipe.batch_size": "240"})
    history = client.get_metric_history(run.info.run_id, "top1")
    assert [(point.step, point.value) for point in history] == [(5, 40.25), (10, 80.5)]


@needs("trackio")
def test_trackio_keeps_a_local_run(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("trackio.utils.TRACKIO_DIR", tmp_path / "trackio", raising=False)
    monkeypatch.setattr("trackio.sqlite_storage.TRACKIO_DIR", tmp_path / "trackio", raising=False)
    logged("trackio", tmp_path)
    (file,) = (tmp_path / "trackio").glob("mine*.db")
    rows = sqlite3.connect(file).execute("select step, metrics from metrics order by step").fetchall()
    assert [(step, json.loads(values)["top1"]) for step, values in rows] == [(5, 40.25), (10, 80.5)]
