"""A study whose folder is deleted while a model is trained in it: the training ends, and does not make it again."""

import shutil
import subprocess
import sys
import time
from pathlib import Path

import pytest

from favor.errors import WorkError
from favor.records.schema import Record
from favor.training.callbacks import StepNews
from favor.training.recipe import load_recipe
from favor.training.request import TrainingRequest
from favor.training.run import train

pytestmark = pytest.mark.usefixtures("tiny_models")
PLUGIN = Path(__file__).with_name("tiny_models.py")


class Deletes:
    """Deletes a folder at a step."""

    def __init__(self, folder: Path, step: int) -> None:
        self.folder, self.step = folder, step

    def note(self, text: str) -> None:
        """Nothing happens."""

    def stepped(self, news: StepNews) -> None:
        if news.step == self.step:
            shutil.rmtree(self.folder)

    def evaluated(self, record: Record, news: StepNews) -> None:
        """Nothing happens."""


@pytest.mark.parametrize("save_every", [1e-9, 1e9], ids=["a checkpoint is next", "a record is next"])
@pytest.mark.parametrize("writer", [None, "0001-00000"])
def test_a_training_whose_study_is_deleted_ends_and_does_not_make_it_again(
    tmp_path: Path, writer: str | None, save_every: float
) -> None:
    study = tmp_path / "study"
    study.mkdir()
    recipe = load_recipe("laptop-digits", ("epochs=2", "warmup_epochs=0", "batch_size=240"))
    request = TrainingRequest(
        "tiny_vit", recipe, "digits", study, device="cpu", save_every=save_every, survey_seconds=1e-9, writer=writer
    )
    with pytest.raises(WorkError, match="study was deleted or moved while favor was working in it"):
        train(request, Deletes(study, 3))
    assert not study.exists()


def test_a_run_folder_that_is_deleted_is_a_failure_with_a_record(tmp_path: Path) -> None:
    recipe = load_recipe("laptop-digits", ("epochs=1", "warmup_epochs=0", "batch_size=240"))
    request = TrainingRequest(
        "tiny_vit", recipe, "digits", tmp_path, device="cpu", save_every=1e-9, survey_seconds=1e-9
    )
    with pytest.raises(WorkError, match="cannot write .*: No such file or directory"):
        train(request, Deletes(tmp_path / "runs", 3))
    assert '"status":"failed"' in (tmp_path / "records.jsonl").read_text()
    assert not (tmp_path / "runs").exists()


def test_the_command_ends_with_one_line_and_1(tmp_path: Path) -> None:
    study = tmp_path / "study"
    words = ("train", "tiny_vit", "--study", study, "--epochs", "300", "--set", "batch_size=240", "--device", "cpu")
    command = [sys.executable, "-m", "favor", "--plugin", PLUGIN, *words, "--threads", "1"]
    with subprocess.Popen(
        command, stderr=subprocess.PIPE, stdout=subprocess.DEVNULL, text=True, cwd=tmp_path
    ) as running:
        try:
            while not list(study.glob("runs/*/step-*.state.safetensors")):
                assert running.poll() is None, running.communicate()[1]
                time.sleep(0.05)
            study.rename(tmp_path / "moved")  # at once, while deleting takes its time
            _, told = running.communicate(timeout=120)
        finally:
            running.kill()
    assert running.returncode == 1, told
    error = f"error: {study} was deleted or moved while favor was working in it"
    assert [line for line in told.splitlines() if line.startswith("error")] == [error]
    assert "Traceback" not in told
    assert not study.exists()
