"""A run from its request to its records: stopping, failing, resuming, finetuning, and what is left behind."""

import json
import logging
import os
import pickle
import re
import shutil
import signal
import threading
import time
import zipfile
from collections.abc import Sequence
from contextlib import nullcontext
from dataclasses import replace
from pathlib import Path

import numpy as np
import pandas as pd
import pytest
import torch
from PIL import Image
from safetensors.torch import load_file, save_file
from torch import nn

import favor
from favor.analyze.budget import late_flips
from favor.analyze.learning_curves import learning_curves
from favor.analyze.trainings import results, trainings
from favor.data.loader import BatchPlan, Share
from favor.data.opening import open_data
from favor.errors import RequestError, WorkError
from favor.machine.device import Cpu, find_device
from favor.machine.messages import Channel
from favor.machine.precision import Precision
from favor.records.schema import Record
from favor.records.store import read
from favor.training import loop, run
from favor.training.callbacks import StepNews
from favor.training.checkpoint import BEST, load_model_file, newest_checkpoint, state_file
from favor.training.distributed import Processes
from favor.training.epoch_record import Epoch, Memory, Subject, epoch_record
from favor.training.evaluation import Scores
from favor.training.initial_weights import Start, start_from
from favor.training.predict import evaluate_checkpoint, open_classifier, predict
from favor.training.recipe import load_recipe, pipeline_of
from favor.training.request import TrainingRequest
from favor.training.run import Outcome, train
from favor.training.signals import Stopped, heeding_signals
from favor.training.state import Readings, Sums, Survey
from favor.training.step import Learner
from favor.training.survey import SHARE_OF_FREE_MEMORY
from favor.training.worker import run as run_worker

pytestmark = pytest.mark.usefixtures("tiny_models")
CHANGES = ("epochs=2", "warmup_epochs=0.5", "batch_size=240", "lr=3e-3")
CPU = find_device("cpu")


class Watcher:
    """Notes what it is told; does something after a step."""

    def __init__(self, at: int = -1, number: int = signal.SIGTERM) -> None:
        self.at, self.number = at, number
        self.notes: list[str] = []
        self.steps: list[StepNews] = []

    def note(self, text: str) -> None:
        self.notes.append(text)

    def stepped(self, news: StepNews) -> None:
        self.steps.append(news)
        if news.step == self.at:
            os.kill(os.getpid(), self.number)

    def evaluated(self, record: Record, news: StepNews) -> None:
        self.notes.append(f"epoch {record.conditions['epochs']}")


def asked(
    out: Path, model: str = "tiny_vit", data: str = "digits", *changes: str, **options: object
) -> TrainingRequest:
    recipe = load_recipe("laptop-digits", [*CHANGES, *changes])
    plain = {"device": "cpu", "threads": 1, "survey_seconds": 1e-9}
    return TrainingRequest(model, recipe, data, out, **{**plain, **options})  # type: ignore[arg-type]


@pytest.fixture(scope="module")
def done(tiny_models: list[str], tmp_path_factory: pytest.TempPathFactory) -> tuple[Path, Outcome]:
    out = tmp_path_factory.mktemp("done")
    return out, train(asked(out))


def test_a_run_leaves_a_record_an_epoch_and_the_last_one_is_its_result(done: tuple[Path, Outcome]) -> None:
    out, outcome = done
    records = read(out).records
    assert [(record.conditions["epochs"], record.conditions["final"]) for record in records] == [(1, False), (2, True)]
    assert len({record.request for record in records}) == 2
    assert outcome.record == records[-1]
    last = records[-1]
    assert last.name == "tiny_vit"
    assert (last.task, last.source, last.status) == ("accuracy", "measured", "ok")
    wanted = {"dataset": "digits", "pretraining": "none", "distillation": False, "img_size": 32, "batch_size": 240}
    assert wanted.items() <= dict(last.conditions).items()
    assert last.conditions["recipe.lr"] == 3e-3
    assert {
        *("top1", "top5", "loss", "train_loss", "train_throughput", "train_hours_per_epoch", "train_memory"),
        *("train_memory_total", "train_device_hours_per_epoch", "train_device_hours"),
        *("train_memory_process", "train_step_time", "train_step_time_end_to_end", "pipeline_idle_time"),
    } <= set(last.metrics)
    assert {"training_seconds", "evaluation_seconds", "program_seconds", "threads", "torch"} <= set(last.environment)
    assert last.environment["evaluation_images"] == 360


def test_a_study_of_runs_can_be_ranked_and_its_curves_compared(done: tuple[Path, Outcome]) -> None:
    table = favor.load_records(done[0])
    basis = trainings(results(table), "digits")[0].setting
    assert basis.pipeline == "laptop-digits@1 epochs=2 batch_size=240 lr=0.003 warmup_epochs=0.5"
    assert (basis.pretraining, basis.distillation, basis.img_size) == ("none", False, 32)
    other = table.assign(name="other", top1=table["top1"] + [1.0, -1.0])
    [flip] = late_flips(pd.concat([table, other])).flips
    assert (flip.leads_early, flip.leads_late, flip.until) == ("other", "tiny_vit", 1.0)
    [curve] = learning_curves(table)
    assert [(point.epochs, point.images, point.steps) for point in curve.points] == [(1, 1200, 5), (2, 2400, 10)]
    assert curve.last.hours == pytest.approx(table["train_device_hours"].max(), rel=0.05)


def test_the_final_record_has_the_money_and_carbon_of_the_whole_training() -> None:
    scores = Scores(top1=50.0, top5=90.0, loss=1.0, images=10)
    sums = Sums(loss=1.0, images=100, seconds=10.0, joules=7.0)
    memory = Memory(largest=1, total=1, method="test")
    clocks = Readings(training=1800.0)
    ends = dict.fromkeys(("step_time_low", "step_time_high", "end_to_end_low", "end_to_end_high"))
    times = {"step_time": 1.0, "end_to_end": 1.0, "idle": 0.0, "evaluation_time": 1.0}
    survey = Survey(accumulation=1, memory=1, memory_method="test", **times, **ends)  # type: ignore[arg-type]
    recipe = load_recipe("laptop-digits")
    subject = Subject(
        "vit_xs4", recipe, "digits", Start("none"), None, "cpu", "cpu", grid_intensity=720.0, price_per_hour=3.0
    )
    for final in (False, True):
        epoch = Epoch(2, final, scores, sums, clocks, 100, 2, 50, memory, 3.6e6, "a meter")
        record = epoch_record(subject, epoch, survey, {})
        totals = {
            name: record.metrics[name].value for name in ("train_money", "train_carbon") if name in record.metrics
        }
        assert totals == ({"train_money": 3.0, "train_carbon": 720.0} if final else {})
        assert (record.conditions["price_per_hour"], record.conditions["grid_intensity"]) == (3.0, 720.0)


def test_a_changed_recipe_is_another_pipeline_but_for_seed_and_size() -> None:
    assert pipeline_of(load_recipe("laptop-digits", ["seed=3", "img_size=64"])) == "laptop-digits@1"
    assert pipeline_of(load_recipe("laptop-digits", ["epochs=9"]), minutes=5) == "laptop-digits@1 minutes=5"


def test_sigterm_saves_and_ends_and_the_resumed_run_ends_like_the_whole_one(
    tmp_path: Path, done: tuple[Path, Outcome]
) -> None:
    watcher = Watcher(at=2)
    stopped = train(asked(tmp_path), watcher)
    assert (stopped.ending, stopped.stopped_by) == ("stopped", "SIGTERM")
    found, _ = newest_checkpoint(stopped.folder)
    assert found is not None
    assert found.state.step == 2
    assert len(watcher.steps) == 2
    resumed = train(asked(tmp_path, resume=True))
    assert resumed.ending == "done"
    name = "step-000000010.safetensors"
    ours, whole = load_file(resumed.folder / name), load_file(done[1].folder / name)
    assert all(torch.equal(ours[key], whole[key]) for key in whole)


def test_sigterm_inside_a_slow_step_ends_it_at_once_and_the_resumed_run_ends_like_the_whole_one(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    whole = train(asked(tmp_path / "whole", "tiny_cnn"))
    slow = threading.Event()
    objective = Learner.objective

    def slow_from_the_third_step(self, batch):
        loss = objective(self, batch)
        calls.append(time.monotonic())
        if len(calls) == 3 + survey_calls:
            os.kill(os.getpid(), signal.SIGTERM)
            slow.wait(60)
        return loss

    calls: list[float] = []
    survey_calls = 10**9
    monkeypatch.setattr(Learner, "objective", slow_from_the_third_step)
    monkeypatch.setattr(run, "learn", lambda *parts: learn_after_survey(*parts))

    def learn_after_survey(*parts):
        nonlocal survey_calls
        survey_calls = len(calls)
        return loop.learn(*parts)

    stopped = train(asked(tmp_path / "cut", "tiny_cnn"))
    assert time.monotonic() - calls[-1] < 20
    assert (stopped.ending, stopped.stopped_by) == ("stopped", "SIGTERM")
    found, _ = newest_checkpoint(stopped.folder)
    assert found is not None
    assert found.state.step == 2
    monkeypatch.undo()
    resumed = train(asked(tmp_path / "cut", "tiny_cnn", resume=True))
    name = "step-000000010.safetensors"
    ours, theirs = load_file(resumed.folder / name), load_file(whole.folder / name)
    assert all(torch.equal(ours[key], theirs[key]) for key in theirs)
    assert any("running_mean" in key for key in theirs)


def _signal_soon_and_go_back(loss: torch.Tensor) -> None:
    threading.Timer(0.05, os.kill, (os.getpid(), signal.SIGTERM)).start()
    loss.backward()


def test_a_stop_does_not_wait_for_the_end_of_a_backward_pass() -> None:
    deep = nn.Sequential(*(nn.Linear(1024, 1024) for _ in range(30)))
    learner = Learner(deep, load_recipe("laptop-digits"), BatchPlan(2048, 2048), 10, Precision.named("fp32", "cpu"))
    images = torch.zeros(2048, 1024, requires_grad=True)
    loss = learner.model(images).sum()
    with heeding_signals() as stop, pytest.raises(Stopped), stop.at_once():
        _signal_soon_and_go_back(loss)
    assert images.grad is None


def test_sigterm_in_the_survey_ends_it_at_once(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    def endless(*arguments):
        os.kill(os.getpid(), signal.SIGTERM)
        threading.Event().wait(60)

    monkeypatch.setattr(run, "survey", endless)
    started = time.monotonic()
    stopped = train(asked(tmp_path))
    assert time.monotonic() - started < 30
    assert (stopped.ending, stopped.stopped_by, stopped.record) == ("stopped", "SIGTERM", None)
    assert not (tmp_path / "records.jsonl").exists()


def test_sigterm_in_an_evaluation_leaves_it_to_the_resumed_run(tmp_path: Path) -> None:
    stopped = train(asked(tmp_path), Watcher(at=5))
    assert stopped.ending == "stopped"
    found, _ = newest_checkpoint(stopped.folder)
    assert found is not None
    assert (found.state.step, found.state.evaluated) == (5, 0)
    train(asked(tmp_path, resume=True))
    assert [record.conditions["epochs"] for record in read(tmp_path).records] == [1, 2]


def test_signals_mean_again_what_they_meant_before(tmp_path: Path) -> None:
    before = signal.getsignal(signal.SIGTERM)
    train(asked(tmp_path), Watcher(at=1, number=signal.SIGINT))
    assert signal.getsignal(signal.SIGTERM) is before
    assert signal.getsignal(signal.SIGINT) is signal.default_int_handler


def test_a_torn_checkpoint_is_replaced_by_the_one_before_and_said(tmp_path: Path, done: tuple[Path, Outcome]) -> None:
    stopped = train(asked(tmp_path, save_every=1e-9), Watcher(at=2))
    torn = state_file(stopped.folder, 2)
    torn.write_bytes(torn.read_bytes()[:-100])
    watcher = Watcher()
    resumed = train(asked(tmp_path, resume=True), watcher)
    assert "truncated" in watcher.notes[0]
    assert "resumed from step 1" in watcher.notes[1]
    name = "step-000000010.safetensors"
    ours, whole = load_file(resumed.folder / name), load_file(done[1].folder / name)
    assert all(torch.equal(ours[key], whole[key]) for key in whole)


def test_a_run_is_not_started_twice_and_not_resumed_with_another_recipe(done: tuple[Path, Outcome]) -> None:
    out, outcome = done
    with pytest.raises(RequestError, match="already has a run, at step 10 of 10; continue it with --resume"):
        train(asked(out))
    with pytest.raises(RequestError, match="was started with lr 0.003, not 0.004"):
        train(asked(out, "tiny_vit", "digits", "lr=4e-3", resume=True))
    again = train(asked(out, resume=True))
    assert (again.ending, again.record) == ("done", outcome.record)
    assert len(read(out).records) == 2


def test_two_runs_at_once_in_one_folder_are_refused(tmp_path: Path) -> None:
    class Intruder(Watcher):
        def stepped(self, news: StepNews) -> None:
            with pytest.raises(RequestError, match="is being trained by process [0-9]+ since [0-9:]+; wait for it"):
                train(asked(tmp_path))
            self.notes.append("refused")

    watcher = Intruder()
    train(asked(tmp_path), watcher)
    assert "refused" in watcher.notes


def test_a_loss_that_is_not_finite_ends_the_run_with_a_diagnosis_and_a_record(tmp_path: Path) -> None:
    with pytest.raises(WorkError) as error:
        train(asked(tmp_path, "exploding"))
    text = str(error.value)
    for part in ("the loss is", "epoch 1, step 2 of 5", "learning rate", "gradient norm", "the model (Exploding)"):
        assert part in text
    assert "try --set lr=0.001" in text
    [record] = read(tmp_path).records
    assert (record.status, record.reason) == ("failed", text)
    assert "epochs" not in record.conditions


def test_a_last_step_that_was_too_large_ends_the_run_with_a_diagnosis_too(tmp_path: Path) -> None:
    wild = ("optimizer=sgd", "lr=1e30", "clip_grad=null", "schedule=constant", "warmup_epochs=0", "batch_size=1437")
    with pytest.raises(WorkError, match="loss of the evaluation is nan after 1 epochs .learning rate 1e.30.*clip_grad"):
        train(asked(tmp_path, "tiny_vit", "digits", *wild))
    [record] = read(tmp_path).records
    assert record.status == "failed"
    assert "the first module whose output is not finite is" in str(record.reason)


@pytest.fixture(scope="module")
def photos(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """Two classes, four images of each to train on and three to evaluate on; one of each split is broken."""
    root = tmp_path_factory.mktemp("photos")
    for split, count in (("train", 4), ("val", 3)):
        for name in "ab":
            (root / split / name).mkdir(parents=True)
            for k in range(count):
                Image.new("RGB", (32, 32), (60 * k, 10, 10)).save(root / split / name / f"{k}.png")
        (root / split / "b" / "2.png").write_bytes(b"no image")
    return root


def test_a_process_without_an_evaluation_image_tells_that_the_evaluation_of_the_others_diverged(
    tmp_path: Path, photos: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    copied = tmp_path / "photos"
    shutil.copytree(photos, copied)
    for file in (copied / "val").rglob("*.png"):
        file.write_bytes(b"no image")
    of_all = Scores(top1=0.0, top5=0.0, loss=float("nan"), images=5)
    monkeypatch.setattr(loop, "evaluate", lambda *_: of_all)
    with pytest.raises(WorkError, match="loss of the evaluation is nan after 1 epochs .*: this process has no"):
        train(asked(tmp_path, "tiny_vit", f"folder:{copied}", "batch_size=4", workers=0))


def test_broken_images_that_are_alone_in_their_micro_batches_do_not_end_the_run(tmp_path: Path, photos: Path) -> None:
    one_by_one = asked(tmp_path, "tiny_vit", f"folder:{photos}", "batch_size=2", accumulation=2, workers=0)
    outcome = train(one_by_one)
    assert outcome.record is not None
    assert outcome.record.environment["broken_images"] == 2
    assert outcome.record.metrics["top1"].method == "each of 5 images once"
    assert outcome.record.metrics["train_loss"].method == "7 images"


def test_the_worker_tells_which_images_it_leaves_out_among_them_pipes_and_devices(
    tmp_path: Path, photos: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(logging.getLogger("favor"), "handlers", [])
    copied = tmp_path / "photos"
    shutil.copytree(photos, copied)
    os.mkfifo(copied / "train" / "a" / "pipe.png")
    (copied / "train" / "a" / "zero.png").symlink_to("/dev/zero")
    Image.new("1", (14_000, 12_000)).save(copied / "train" / "a" / "huge.png")
    told: list[str] = []
    run_worker(
        asked(tmp_path, "tiny_vit", f"folder:{copied}", "batch_size=4", workers=0).to_json(), Channel(told.append)
    )
    notes = [json.loads(line).get("note", "") for line in told]
    broken = sorted(note.removeprefix("skipped a broken image: ") for note in notes if note.startswith("skipped"))
    no_file = "(this is a folder, a pipe or a device, not a regular file)"
    assert broken == [
        f"{copied}/train/a/huge.png (14000 x 12000 pixels; 168 megapixels exceed the limit of 89)",
        f"{copied}/train/a/pipe.png {no_file}",
        f"{copied}/train/a/zero.png {no_file}",
        f"{copied}/train/b/2.png (not an image in one of the formats JPEG, PNG, WEBP, BMP, TIFF, PPM, GIF)",
        f"{copied}/val/b/2.png (not an image in one of the formats JPEG, PNG, WEBP, BMP, TIFF, PPM, GIF)",
    ]
    [*_, record] = read(tmp_path).records
    assert (record.status, record.environment["broken_images"]) == ("ok", 5)


def test_training_images_of_which_none_can_be_read_end_the_run(tmp_path: Path, photos: Path) -> None:
    copied = tmp_path / "photos"
    shutil.copytree(photos, copied)
    for file in (copied / "train").rglob("*.png"):
        file.write_bytes(b"no image")
    with pytest.raises(WorkError, match="none of the training images could be read"):
        train(asked(tmp_path, "tiny_vit", f"folder:{copied}", "batch_size=4", workers=0))


def test_a_run_is_not_resumed_on_other_classes(tmp_path: Path, photos: Path) -> None:
    copied = tmp_path / "photos"
    shutil.copytree(photos, copied)
    request = asked(tmp_path, "tiny_vit", f"folder:{copied}", "batch_size=2", workers=0, resume=True)
    assert train(request, Watcher(at=2)).ending == "stopped"
    for split in ("train", "val"):
        (copied / split / "b").rename(copied / split / "c")
    with pytest.raises(RequestError, match="has 2 classes .a, b., the data have 2 classes .a, c."):
        train(request)


def test_a_run_is_not_resumed_on_renamed_images_and_goes_on_with_its_own(tmp_path: Path, photos: Path) -> None:
    copied = tmp_path / "photos"
    shutil.copytree(photos, copied)
    request = asked(tmp_path, "tiny_vit", f"folder:{copied}", "batch_size=2", workers=0, resume=True)
    assert train(request, Watcher(at=2)).ending == "stopped"
    image, other = copied / "train" / "a" / "0.png", copied / "train" / "a" / "9.png"
    image.rename(other)
    with pytest.raises(RequestError, match="were added, removed or renamed since the run was started; use") as refused:
        train(request)
    assert "\n" not in str(refused.value)
    other.rename(image)
    moved = tmp_path / "elsewhere" / "photos"
    moved.parent.mkdir()
    copied.rename(moved)
    watcher = Watcher()
    assert train(replace(request, data=f"folder:{moved}"), watcher).ending == "done"
    assert watcher.notes[0].startswith("resumed from step 2 of")


def test_a_run_can_be_resumed_with_smaller_micro_batches_and_this_is_said(tmp_path: Path) -> None:
    train(asked(tmp_path), Watcher(at=2))
    watcher = Watcher()
    outcome = train(asked(tmp_path, resume=True, accumulation=3), watcher)
    assert any("split into 3 micro-batches, not 1" in note for note in watcher.notes)
    assert outcome.record is not None
    assert outcome.record.environment["accumulation"] == 3
    assert "micro-batches of 80 images" in outcome.record.metrics["train_memory"].method


class WithATwin(Processes):
    """The first of two processes, of which the second does the same."""

    def sums(self, values: Sequence[float]) -> tuple[float, ...]:
        return tuple(2 * value for value in values)


def test_device_hours_count_each_part_of_a_run_with_the_processes_that_it_had(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    folder = train(asked(tmp_path), Watcher(at=7)).folder  # in the second of two epochs
    alone, _ = newest_checkpoint(folder)
    monkeypatch.setattr(run, "joined", lambda _kind: nullcontext(WithATwin(Share(0, 2))))
    outcome = train(asked(tmp_path, resume=True, price_per_hour=2.0))
    last, _ = newest_checkpoint(folder)
    assert alone is not None
    assert last is not None
    assert outcome.record is not None
    before, after = alone.state.clocks.training, last.state.clocks.training
    metrics = {name: reading.value for name, reading in outcome.record.metrics.items()}
    assert metrics["train_device_hours"] == pytest.approx((before + 2 * (after - before)) / 3600)
    assert metrics["train_money"] == pytest.approx(2.0 * metrics["train_device_hours"])
    assert 1 < metrics["train_device_hours_per_epoch"] / metrics["train_hours_per_epoch"] < 2


def test_a_folder_that_cannot_be_made_is_refused(tmp_path: Path) -> None:
    (tmp_path / "file").touch()
    with pytest.raises(RequestError, match="cannot write: Not a directory; choose another folder"):
        train(asked(tmp_path / "file"))


def test_parts_that_follow_the_progress_are_told_it_from_0_to_1(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    told: list[float] = []
    monkeypatch.setattr(loop, "tell_progress", lambda _model, fraction: told.append(fraction))
    train(asked(tmp_path))
    assert told == pytest.approx([step / 9 for step in range(10)])


@pytest.mark.parametrize(("has_bf16", "precision"), [(False, "fp32"), (True, "amp-bf16")])
def test_amp_is_fp32_where_the_processor_would_emulate_bfloat16_and_the_user_is_told(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, has_bf16: bool, precision: str
) -> None:
    capabilities = {"avx512_bf16": has_bf16, "amx_bf16": False, "avx2": True, "cpu_name": "bf16"}
    monkeypatch.setattr(torch.cpu, "get_capabilities", lambda: capabilities)
    watcher = Watcher()
    outcome = train(asked(tmp_path, "tiny_vit", "digits", "precision=amp", "epochs=1"), watcher)
    assert outcome.record is not None
    assert outcome.record.conditions["precision"] == precision
    assert any("no known bfloat16 instructions" in note for note in watcher.notes) is not has_bf16


def test_accumulation_keeps_the_batch_and_so_the_result(tmp_path: Path) -> None:
    changes = ("optimizer=sgd", "lr=0.1", "drop_path=0.2")
    name = "step-000000010.safetensors"
    ends = []
    for parts in (1, 3):
        outcome = train(asked(tmp_path / str(parts), "tiny_vit", "digits", *changes, accumulation=parts))
        assert outcome.record is not None
        assert outcome.record.environment["accumulation"] == parts
        assert outcome.record.conditions["micro_batch_size"] == outcome.record.conditions["batch_size"] // parts
        ends.append(load_file(outcome.folder / name))
    assert max(float((ends[0][key] - ends[1][key]).abs().max()) for key in ends[0]) < 1e-5


def test_a_budget_of_time_fits_the_schedule_to_the_steps_that_it_allows(tmp_path: Path) -> None:
    watcher = Watcher()
    outcome = train(asked(tmp_path, minutes=0.02, survey_seconds=0.05), watcher)
    assert outcome.record is not None
    conditions = outcome.record.conditions
    assert conditions["minutes"] == 0.02
    assert "recipe.epochs" not in conditions
    assert str(conditions["pipeline"]).endswith("minutes=0.02")
    kept, _ = load_model_file(outcome.folder / BEST)
    assert pipeline_of(kept.recipe, kept.minutes) == conditions["pipeline"]
    assert any("0.02 minutes" in note and "steps" in note for note in watcher.notes)
    assert conditions["final"] is True
    assert watcher.steps[-1].step == watcher.steps[-1].steps
    seconds = sum(float(outcome.record.environment[f"{clock}_seconds"]) for clock in ("training", "evaluation"))
    assert 0.2 < seconds < 6.0


def test_finetuning_has_other_classes_and_another_resolution(tmp_path: Path, done: tuple[Path, Outcome]) -> None:
    watcher = Watcher()
    request = asked(tmp_path, "tiny_vit", "synthetic", "img_size=64", init=done[1].folder)
    outcome = train(request, watcher)
    assert outcome.record is not None
    assert outcome.record.conditions["pretraining"] == "digits"
    assert outcome.record.conditions["pretraining_img_size"] == 32
    assert outcome.record.metrics["finetune_time"].value > 0
    assert any("resampled to the new token grid: positions.weight" in note for note in watcher.notes)
    assert any("new head, since the weights have none for these classes" in note for note in watcher.notes)
    further = train(asked(tmp_path / "third", data="digits", init=outcome.folder / BEST))
    assert further.record is not None
    assert further.record.conditions["pretraining"] == "digits+synthetic"
    assert further.record.conditions["pretraining_img_size"] == 64
    # Weights that were learned at two resolutions make two runs, which stand beside each other.
    assert "-after-digits-32px-" in outcome.folder.name
    assert "-after-digits+synthetic-64px-" in further.folder.name


def test_fine_tunings_of_two_pretrainings_stand_beside_each_other_and_say_what_came_before(
    tmp_path: Path, done: tuple[Path, Outcome]
) -> None:
    shorter = train(asked(tmp_path / "shorter", "tiny_vit", "digits", "epochs=1", "seed=5"))
    tuned = [train(asked(tmp_path, "tiny_vit", "synthetic", init=one.folder)) for one in (done[1], shorter)]
    before = [outcome.record.conditions for outcome in tuned if outcome.record is not None]
    assert [conditions["pretraining_seed"] for conditions in before] == ["0", "5"]
    pipelines = [str(conditions["pretraining_pipeline"]) for conditions in before]
    assert pipelines[0] == "laptop-digits@1 epochs=2 batch_size=240 lr=0.003 warmup_epochs=0.5"
    assert pipelines[1] == pipelines[0].replace("epochs=2", "epochs=1")
    assert len({conditions["initial_weights"] for conditions in before}) == len({one.folder for one in tuned}) == 2
    third = train(asked(tmp_path / "third", data="digits", init=tuned[1].folder))
    assert third.record is not None
    assert third.record.conditions["pretraining_pipeline"] == f"{pipelines[1]} + {before[1]['pipeline']}"
    assert third.record.conditions["pretraining_seed"] == "5+0"


def test_first_weights_that_changed_since_they_were_asked_for_are_refused(
    tmp_path: Path, done: tuple[Path, Outcome]
) -> None:
    with pytest.raises(RequestError, match="has changed since the training was requested; request it again"):
        train(asked(tmp_path, init=done[1].folder, init_hash="0" * 16))


def test_weights_of_another_model_are_refused(tmp_path: Path, done: tuple[Path, Outcome]) -> None:
    with pytest.raises(RequestError, match="holds tiny_vit, not tiny_performer"):
        train(asked(tmp_path, "tiny_performer", init=done[1].folder / BEST))
    with pytest.raises(RequestError, match="there is no such file"):
        train(asked(tmp_path, init=tmp_path / "none.safetensors"))
    assert not (tmp_path / "records.jsonl").exists()


def test_plain_weights_are_taken_under_the_models_own_names(tmp_path: Path, done: tuple[Path, Outcome]) -> None:
    weights = load_file(done[1].folder / BEST)
    torch.save({"state_dict": weights}, tmp_path / "plain.pth")
    outcome = train(
        asked(tmp_path, "tiny_vit", "digits", "lr=1e-9", "min_lr=0", "warmup_lr=0", init=tmp_path / "plain.pth")
    )
    ours = load_file(outcome.folder / BEST)
    assert all(torch.allclose(ours[key], weights[key], atol=1e-6) for key in weights)


@pytest.mark.parametrize(
    ("content", "message"),
    [
        (b"hello world", "cannot be read as weights; truncated, or another kind of file"),
        (b"", "cannot be read as weights; truncated, or another kind of file"),
        (pickle.dumps({"weight": print}, 2), "a pickle with more than weights, which favor does not execute"),
    ],
    ids=["text", "empty", "a function"],
)
def test_files_that_are_no_weights_are_refused(tmp_path: Path, content: bytes, message: str) -> None:
    (tmp_path / "weights.pth").write_bytes(content)
    with pytest.raises(RequestError, match=message):
        start_from(tmp_path / "weights.pth", "tiny_vit")


def test_weights_without_names_are_refused(tmp_path: Path) -> None:
    torch.save({1: torch.zeros(2)}, tmp_path / "weights.pth")
    with pytest.raises(RequestError, match="not a dict of weights by name"):
        start_from(tmp_path / "weights.pth", "tiny_vit")


def test_a_weight_file_whose_parts_do_not_fit_each_other_is_refused(tmp_path: Path) -> None:
    file = tmp_path / "weights.pth"
    torch.save({"a": torch.zeros(2)}, file, _use_new_zipfile_serialization=False)
    content = bytearray(file.read_bytes())
    key = re.findall(rb"X.\0\0\0(\d{6,})", bytes(content))[
        0
    ]  # of the storage: named with the weight, and before its bytes
    content[content.rindex(key)] ^= 1
    file.write_bytes(content)
    with pytest.raises(RequestError, match="cannot be read as weights.*AssertionError: storage key"):
        start_from(file, "tiny_vit")


def test_a_weight_that_is_larger_than_its_file_is_refused(tmp_path: Path) -> None:
    torch.save({"head.weight": torch.zeros(1).expand(10**6, 10**6)}, tmp_path / "weights.pth")
    with pytest.raises(RequestError, match=r"a tensor of shape \(1000000, 1000000\), which is larger than the file"):
        start_from(tmp_path / "weights.pth", "tiny_vit")


def test_a_weight_file_that_unpacks_to_more_than_its_size_is_refused_and_an_ordinary_one_is_read(
    tmp_path: Path,
) -> None:
    plain, packed = tmp_path / "plain.pth", tmp_path / "packed.pth"
    weights = {f"{number}.weight": torch.zeros(1000) for number in range(20)}
    torch.save(weights, plain)
    with zipfile.ZipFile(plain) as source, zipfile.ZipFile(packed, "w", zipfile.ZIP_DEFLATED) as target:
        for member in source.infolist():
            target.writestr(member.filename, source.read(member))
    assert packed.stat().st_size < plain.stat().st_size / 5
    with pytest.raises(RequestError, match=r"packed.pth: unpacks to 8\d,\d+ bytes, more than the file has") as refused:
        start_from(packed, "tiny_vit")
    assert "\n" not in str(refused.value)
    for saved, zipped in ((plain, True), (tmp_path / "older.pth", False)):
        torch.save(weights, saved, _use_new_zipfile_serialization=zipped)
        read_back = start_from(saved, "tiny_vit").weights
        assert read_back is not None
        assert read_back.keys() == weights.keys()
    plain.write_bytes(plain.read_bytes()[:-100])
    with pytest.raises(RequestError, match=r"cannot be read as weights; truncated, or another kind of file"):
        start_from(plain, "tiny_vit")


def test_an_error_of_a_weight_file_is_one_line_of_bounded_length(tmp_path: Path) -> None:
    header = ('{"' + "x\\n" * 5000 + '": 1}').encode()
    (tmp_path / "weights.safetensors").write_bytes(len(header).to_bytes(8, "little") + header)
    with pytest.raises(RequestError, match="cannot be read as weights") as refused:
        start_from(tmp_path / "weights.safetensors", "tiny_vit")
    assert str(refused.value).isprintable()
    assert len(str(refused.value)) < 500


def changed(file: Path, source: Path, weights: float = 1.0, **known: object) -> Path:
    """A copy of a checkpoint of which something else is known, its weights multiplied."""
    about, tensors = load_model_file(source)
    header = {"favor.trained": about.model_copy(update=known).model_dump_json()}
    save_file({name: value * weights for name, value in tensors.items()}, file, header)
    return file


def test_data_that_a_checkpoint_was_not_trained_on_are_not_taken_for_its_own(
    tmp_path: Path, done: tuple[Path, Outcome]
) -> None:
    best = done[1].folder / BEST
    for dataset, message in (
        ("folder:photos", "was trained on folder:photos; say where it is now: --data folder:PATH"),
        ("digits[100+20]", "was trained on digits.100.20., but digits was found; choose with --data"),
    ):
        file = changed(tmp_path / "other.safetensors", best, dataset=dataset)
        with pytest.raises(RequestError, match=message):
            evaluate_checkpoint(file, None, CPU, Processes(), batch_size=64, workers=0)
    _, _, scores = evaluate_checkpoint(file, "digits", CPU, Processes(), batch_size=64, workers=0)
    assert scores.images == 360


def test_a_checkpoint_whose_outputs_are_no_numbers_is_told(tmp_path: Path, done: tuple[Path, Outcome]) -> None:
    file = changed(tmp_path / "nan.safetensors", done[1].folder / BEST, weights=float("nan"))
    with pytest.raises(WorkError, match="the loss is nan: the model.s weights or outputs"):
        evaluate_checkpoint(file, None, CPU, Processes(), batch_size=64, workers=0)


def test_a_checkpoint_scores_what_its_record_says_on_its_own(done: tuple[Path, Outcome]) -> None:
    _, outcome = done
    about, _, scores = evaluate_checkpoint(outcome.folder, None, CPU, Processes(), batch_size=7, workers=0)
    records = {record.conditions["epochs"]: record for record in read(done[0]).records}
    best = records[about.epochs]
    assert scores.top1 == best.metrics["top1"].value == about.top1
    assert scores.loss == pytest.approx(best.metrics["loss"].value, rel=1e-5)
    with pytest.raises(RequestError, match="10 classes .0, 1, 2, ...., synthetic has 10 classes .pattern 0"):
        evaluate_checkpoint(outcome.folder, "synthetic", CPU, Processes(), batch_size=64, workers=0)


def test_predictions_are_those_of_the_evaluation_and_a_broken_image_is_told(
    tmp_path: Path, done: tuple[Path, Outcome]
) -> None:
    digits = open_data("digits").evaluation
    pixels = digits.images[0].permute(1, 2, 0).numpy().astype(np.uint8)  # type: ignore[attr-defined]
    Image.fromarray(pixels).save(tmp_path / "digit.png")
    (tmp_path / "broken.png").write_bytes(b"no image")
    about = open_classifier(done[1].folder, CPU)
    whole, broken = predict(about, [str(tmp_path / "digit.png"), str(tmp_path / "broken.png")], batch_size=2)
    assert len(whole.guesses) == 5
    probabilities = [guess.probability for guess in whole.guesses]
    assert probabilities == sorted(probabilities, reverse=True)
    assert {guess.name for guess in whole.guesses} < set(about.classes)
    assert broken.guesses == ()
    assert broken.reason is not None
    assert "not an image in one of the formats JPEG" in broken.reason


def test_mixed_precision_trains_in_bfloat16(tmp_path: Path, done: tuple[Path, Outcome]) -> None:
    outcome = train(asked(tmp_path, "tiny_vit", "digits", "precision=amp-bf16"))
    assert outcome.record is not None
    assert outcome.record.conditions["precision"] == "amp-bf16"
    name = "step-000000010.safetensors"
    ours, exact = load_file(outcome.folder / name), load_file(done[1].folder / name)
    assert all(weight.dtype is torch.float32 for weight in ours.values())
    differences = [float((ours[key] - exact[key]).abs().max()) for key in exact]
    assert 1e-5 < max(differences) < 0.1  # the same training, in numbers of 8 bits


def test_where_memory_is_short_the_batch_is_cut_and_this_is_said(
    tmp_path: Path, done: tuple[Path, Outcome], monkeypatch: pytest.MonkeyPatch
) -> None:
    assert done[1].record is not None
    needed = done[1].record.metrics["train_memory"].value
    monkeypatch.setattr(Cpu, "room", lambda *_: needed / SHARE_OF_FREE_MEMORY * 0.5)
    watcher = Watcher()
    outcome = train(asked(tmp_path), watcher)
    assert outcome.record is not None
    parts = outcome.record.environment["accumulation"]
    assert isinstance(parts, int)
    assert parts > 1
    assert any(
        f"each batch of 240 is split into {parts} micro-batches of {240 // parts}" in note for note in watcher.notes
    )
    assert outcome.record.metrics["train_memory"].value < 0.6 * needed
