"""A study's measurements reach trackers once each, with their counts, and no tracker can hurt the records."""

import importlib.util
import json
from collections.abc import Callable
from pathlib import Path

import pytest
import torch
from msgspec.structs import replace
from typer.testing import CliRunner

from fake_trackers import FAKES
from favor.cli import app
from favor.errors import RequestError
from favor.machine.device import Cpu
from favor.machine.messages import Channel, Findings
from favor.measurement import measure as measure_module
from favor.measurement.job import MeasureJob
from favor.records.schema import Record
from favor.records.store import append, read
from favor.study.folder import save_requests, saved_requests
from favor.study.plan import jobs_of
from favor.study.resolved import ResolvedStudy
from favor.study.sent_results import send_results
from favor.study.session import Session, begin, extend
from favor.study.train_jobs import TrainJob, stage_request
from favor.training.trackers import TRACKERS
from study.made_up import a_record, a_study

Told = Callable[[], list[dict[str, object]]]


def measured_study(folder: Path, *log: str, **changes: object) -> tuple[ResolvedStudy, list[Record]]:
    """Two models that were counted and measured."""
    study = a_study(("vit_s16", "swin_ti"), log=log, **changes)
    save_requests(folder, [study])
    records = [a_record(job) for job in jobs_of(study) if isinstance(job, MeasureJob)]
    append(folder, records)
    return study, records


def runs_of(told: list[dict[str, object]], name: str) -> list[dict[str, object]]:
    """What was told to a tracker, run by run: the settings and all metrics."""
    runs: list[dict[str, object]] = []
    for one in told:
        if one["tracker"] != name:
            continue
        if one["call"] == "init":
            runs.append({**one, "metrics": {}})
        elif one["call"] == "param":
            runs[-1]["config"][one["key"]] = one["value"]  # type: ignore[index]
        elif one["call"] == "log":
            runs[-1]["metrics"] |= one["metrics"]  # type: ignore[operator]
        elif one["call"] == "finish":
            runs[-1]["end"] = one.get("status", one.get("exit_code"))
    return runs


def test_every_tracker_gets_a_run_for_each_measurement_with_the_counts_of_its_model(tmp_path: Path, told: Told) -> None:
    study, _ = measured_study(tmp_path / "mine", *FAKES)
    send_results(Session((study,), tmp_path / "mine"))
    for name in FAKES:
        runs = runs_of(told(), name)
        assert [str(run["name"])[:25] for run in runs] == ["vit_s16@224 inference fp3", "swin_ti@224 inference fp3"]
        assert {run["study"] for run in runs} == {"mine"}
        vit = runs[0]
        assert vit["metrics"]["throughput"] == 10.0  # type: ignore[index]
        assert vit["metrics"]["params"] == 22059496  # type: ignore[index]
        settings = vit["config"]
        assert settings["task"] == "inference"  # type: ignore[index]
        assert (settings["model"], settings["how"], settings["device"]) == ("vit_s16", "baseline", "cpu")  # type: ignore[index]
        assert settings["host"] == "made-up-host"  # type: ignore[index]
    assert [run["end"] for run in runs_of(told(), "mlflow")] == ["FINISHED"] * 2


def test_tensorboard_shows_measurements_as_rows_of_hparams(tmp_path: Path) -> None:
    from tensorboard.backend.event_processing.event_accumulator import EventAccumulator

    study, _ = measured_study(tmp_path, "tensorboard")
    send_results(Session((study,), tmp_path))
    (folder,) = tmp_path.glob("tensorboard/vit_s16_224_inference_fp32-*")
    board = EventAccumulator(str(folder))
    board.Reload()
    assert [event.value for event in board.Scalars("throughput [img/s]")] == [10.0]
    content = b"".join(file.read_bytes() for file in folder.iterdir())
    assert b"_hparams_/session_start_info" in content
    assert b"made-up-host" in content


def test_what_a_tracker_has_is_not_sent_again_and_a_repeated_measurement_is(tmp_path: Path, told: Told) -> None:
    study, records = measured_study(tmp_path, "wandb")
    session = Session((study,), tmp_path)
    send_results(session)
    send_results(session)
    assert len(runs_of(told(), "wandb")) == 2
    append(tmp_path, [replace(records[0], time="2026-11-17T01:00:00Z")])
    send_results(session)
    ids = [run["id"] for run in runs_of(told(), "wandb")]
    assert (len(ids), len(set(ids))) == (3, 3)
    other = Session((study.model_copy(update={"log": ("trackio",)}),), tmp_path)
    send_results(other)
    assert len(runs_of(told(), "trackio")) == 2


def test_a_study_that_was_moved_sends_nothing_again(tmp_path: Path, told: Told) -> None:
    study, _ = measured_study(tmp_path / "mine", "wandb")
    send_results(Session((study,), tmp_path / "mine"))
    (tmp_path / "mine").rename(tmp_path / "renamed")
    send_results(Session((study,), tmp_path / "renamed"))
    assert len(runs_of(told(), "wandb")) == 2


def test_a_list_of_many_results_can_be_read(tmp_path: Path, told: Told) -> None:
    study, _ = measured_study(tmp_path, "wandb")
    (tmp_path / "sent.txt").write_text("".join(f"wandb {number:032x}\n" for number in range(50_000)))
    send_results(Session((study,), tmp_path))
    send_results(Session((study,), tmp_path))
    assert len(runs_of(told(), "wandb")) == 2


def test_a_model_that_was_only_counted_is_sent_with_its_counts(tmp_path: Path, told: Told) -> None:
    study = a_study(("vit_s16",), phases=("count",), log=("wandb",))
    save_requests(tmp_path, [study])
    send_results(Session((study,), tmp_path))
    (run,) = runs_of(told(), "wandb")
    assert (run["name"], run["metrics"]["params"]) == ("vit_s16@224 count", 22059496)  # type: ignore[index]


def test_a_failed_measurement_is_a_failed_run_with_its_reason(tmp_path: Path, told: Told) -> None:
    study = a_study(("vit_s16",), log=("wandb", "mlflow"))
    save_requests(tmp_path, [study])
    (job,) = [job for job in jobs_of(study) if isinstance(job, MeasureJob)]
    record = replace(a_record(job), metrics={}, status="out_of_memory", reason="too large")
    append(tmp_path, [record])
    send_results(Session((study,), tmp_path))
    (run,) = runs_of(told(), "wandb")
    assert (run["end"], run["config"]["reason"], run["metrics"]) == (1, "too large", {})  # type: ignore[index]
    (run,) = runs_of(told(), "mlflow")
    assert run["end"] == "FAILED"


def test_a_tracker_that_fails_is_one_warning_and_the_rest_is_sent_later(
    tmp_path: Path, told: Told, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    study, _ = measured_study(tmp_path, "wandb", "trackio")
    monkeypatch.setenv("FAIL", "finish")
    send_results(Session((study,), tmp_path))
    said = " ".join(capsys.readouterr().err.split())
    for name in ("wandb", "trackio"):
        assert said.count(f"warning: --log {name} failed (ConnectionError: the server is gone)") == 1
    assert f"`favor resume {tmp_path}` sends the rest" in said
    monkeypatch.delenv("FAIL")
    send_results(Session((study,), tmp_path))
    assert [run["end"] for run in runs_of(told(), "wandb") if "end" in run] == [0, 0]


def test_an_edited_file_of_what_was_sent_is_a_warning_with_its_line(
    tmp_path: Path, told: Told, capsys: pytest.CaptureFixture[str]
) -> None:
    study, _ = measured_study(tmp_path, "wandb")
    (tmp_path / "sent.txt").write_text("# a comment\nwandb: 7\n")
    send_results(Session((study,), tmp_path))
    assert "sent.txt:2: not a tracker and an id; delete the line" in " ".join(capsys.readouterr().err.split())
    assert told() == []


def test_where_results_are_sent_does_not_make_another_study(tmp_path: Path) -> None:
    study = a_study()
    begin(study, tmp_path)
    logged = study.model_copy(update={"log": ("wandb",)})
    assert begin(logged, tmp_path).studies == (logged,)
    assert saved_requests(tmp_path) == (logged,)
    other = a_study(phases=("inference",), command="measure")
    extend(other, tmp_path)
    # The same command without --log still sends its results, as what failed before is to be sent later.
    assert extend(study, tmp_path).studies == (logged,)
    extend(study.model_copy(update={"log": ("mlflow",)}), tmp_path)
    assert saved_requests(tmp_path) == (study.model_copy(update={"log": ("wandb", "mlflow")}), other)


def test_without_a_study_there_is_nothing_to_send() -> None:
    with pytest.raises(RequestError, match="--log sends the records of a study; name the study with --study DIR"):
        extend(a_study(log=("wandb",)), None)


def test_trainings_of_a_study_have_its_trackers_and_their_own(tmp_path: Path) -> None:
    train = {"recipe": "laptop-digits", "data": "digits", "log": ("mlflow", "wandb")}
    study = a_study(("vit_ti16",), phases=("accuracy",), train=train, log=("wandb", "trackio"))
    (job,) = jobs_of(study)
    assert isinstance(job, TrainJob)
    request = stage_request(job, job.lineages[0], tmp_path, (), resume=True)
    assert request.log == ("mlflow", "wandb", "trackio")
    (unlogged,) = jobs_of(study.model_copy(update={"log": ()}))
    assert unlogged == job


def pretend_to_measure(monkeypatch: pytest.MonkeyPatch) -> None:
    def supervise(
        command: object, request: str, *, time_limit: object, on_step: object, environment: object
    ) -> Findings:
        asked = json.loads(request)
        findings = Findings()
        channel = Channel(findings.take)
        channel.environment({"device_name": Cpu().name, "torch": torch.__version__, "threads": asked["threads"]})
        channel.found("throughput", 12.0, "made up")
        channel.done()
        return findings

    monkeypatch.setattr(measure_module, "supervise", supervise)


def test_measure_and_resume_send_what_they_found(tmp_path: Path, told: Told, monkeypatch: pytest.MonkeyPatch) -> None:
    pretend_to_measure(monkeypatch)
    study, run = tmp_path / "mine", CliRunner().invoke
    plain = run(app, ["measure", "vit_xs4", "--img-size", "32", "--study", str(study)])
    assert plain.exit_code == 0, plain.output
    assert told() == []
    assert run(app, ["resume", str(study), "--log", "wandb"]).exit_code == 0
    assert len(runs_of(told(), "wandb")) == 1
    more = ["measure", "vit_xs4", "vit_ti16", "--img-size", "32", "--batch-size", "1", "--study", str(study)]
    result = run(app, [*more, "--log", "trackio"])
    assert result.exit_code == 0, result.output
    assert "trackio talks" not in result.stdout
    (trackio,) = [one["metrics"] for one in runs_of(told(), "trackio") if "vit_xs4" in str(one["name"])]
    assert trackio["throughput"] == 12.0  # type: ignore[index]
    assert len(read(study).records) == 3


def test_trackers_are_checked_before_anything_is_measured(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    study, run = str(tmp_path / "mine"), CliRunner().invoke
    for command in (["measure", "vit_xs4"], ["load", "vit_xs4", "--p99", "1s"], ["run", "quick"]):
        result = run(app, [*command, "--study", study, "--log", "wanbd"])
        assert str(result.exception).startswith("--log: unknown tracker 'wanbd'; did you mean 'wandb'?")
    find_spec = importlib.util.find_spec
    monkeypatch.setattr("importlib.util.find_spec", lambda name: None if name in TRACKERS else find_spec(name))
    for name in TRACKERS:
        for command in (["measure", "vit_xs4"], ["run", "quick"]):
            result = run(app, [*command, "--study", study, "--log", name])
            assert str(result.exception) == f"--log {name}: {name} is not installed; `pip install 'favor[{name}]'`"
    assert not Path(study).exists()
