"""Training as a job: a process that writes its own records, and what is written for it where it could not."""

import sys

import pytest

from favor.errors import WorkError
from favor.records.schema import CardFields, Record, reading
from favor.records.store import append, read
from favor.study import train_process
from favor.study.progress import states_of
from favor.study.schema import Stage, Train
from favor.study.train_jobs import TrainJob, stage_arguments, stage_conditions
from study.made_up import MACHINE

TRAIN = Train(recipe="laptop-digits", data="digits", minutes=0.5)
JOB = TrainJob("vit_ti16", 1, TRAIN, "cpu", 2, ("my_models.py",))
TWO_STAGES = TRAIN.model_copy(update={"finetune": Stage(recipe="laptop-cifar10", data="cifar10", epochs=3)})
LONG_JOB = TrainJob("vit_ti16", 1, TWO_STAGES, "cpu", 2, ())

# It stands in for `favor train`: says what it was asked, writes what it is told to, and ends as it is told to.
CHILD = """
import sys
from pathlib import Path
print("asked: " + " ".join(sys.argv[2:]), file=sys.stderr)
print("epoch 1 of 2", file=sys.stderr)
plan = Path(sys.argv[1])
words = sys.argv[2:]
out = Path(words[words.index("--out") + 1])
lines, code = (plan / "lines").read_bytes(), int((plan / "code").read_text())
with (out / "records.jsonl").open("ab") as file:
    file.write(lines)
sys.exit(code)
"""


def final(stage, dataset, run="run-1"):
    conditions = {"dataset": dataset, "final": True, **stage_conditions(stage, 1)}
    metrics = {"top1": reading("top1", 97.0, method="made up")}
    return Record("vit_ti16", CardFields(), "accuracy", "measured", conditions, metrics, environment={"run": run})


@pytest.fixture
def child(monkeypatch, tmp_path):
    """A child that writes the given records and ends with the given code; returns the steps that it told."""
    from favor.records.schema import to_line

    (tmp_path / "study").mkdir()
    monkeypatch.setattr(train_process, "COMMAND", (sys.executable, "-c", CHILD, str(tmp_path)))

    def run(job, records=(), code=0):
        (tmp_path / "lines").write_bytes(b"".join(to_line(record) for record in records))
        (tmp_path / "code").write_text(str(code))
        steps = []
        found = train_process.train(job, tmp_path / "study", steps.append)
        append(tmp_path / "study", found)
        return found, steps

    run.folder = tmp_path / "study"
    return run


def test_the_command_says_all_that_the_study_asks(tmp_path):
    words = stage_arguments(JOB, TRAIN, tmp_path, ())
    assert words[:4] == ["--plugin", "my_models.py", "train", "vit_ti16"]
    told = " ".join(words)
    for part in ("--recipe laptop-digits", "--data digits", f"--out {tmp_path}", "--set seed=1", "--minutes 0.5"):
        assert part in told
    assert "--resume" in words
    assert "--epochs" not in words
    later = stage_arguments(LONG_JOB, TWO_STAGES.finetune, tmp_path, [final(TWO_STAGES, "digits", "run-7")])
    assert " ".join(later).endswith(f"--epochs 3 --init {tmp_path / 'runs' / 'run-7'}")


def test_every_word_of_the_command_is_one_that_favor_train_takes(tmp_path):
    from typer.main import get_command

    from favor.cli import app

    known = {word for option in get_command(app).commands["train"].params for word in option.opts}
    words = stage_arguments(LONG_JOB, TWO_STAGES.finetune, tmp_path, [final(TWO_STAGES, "digits")])
    words += stage_arguments(JOB, TRAIN, tmp_path, ())[2:]
    assert {word for word in words if word.startswith("--")} <= known


def test_a_training_that_ended_well_leaves_its_own_records_and_nothing_of_ours(child):
    found, steps = child(JOB, [final(TRAIN, "digits")])
    assert found == ()
    assert steps[0] == "laptop-digits on digits"
    assert steps[-1] == "epoch 1 of 2"
    assert len(read(child.folder).records) == 1


def test_what_is_trained_already_is_not_trained_again(child):
    append(child.folder, [final(TRAIN, "digits")])
    assert child(JOB, code=1) == ((), [])


def test_a_crash_without_a_word_becomes_a_record_that_the_study_knows(child):
    (found,), _ = child(JOB, code=7)
    assert (found.status, found.reason) == (
        "failed",
        "training: ended with exit code 7; its last words: epoch 1 of 2",
    )
    (state,) = states_of([JOB], read(child.folder).records, MACHINE)
    assert state.status == "failed"


def test_a_failure_that_the_training_wrote_itself_is_not_written_twice(child):
    conditions = {"dataset": "digits", **stage_conditions(TRAIN, 1)}
    own = Record("vit_ti16", CardFields(), "accuracy", "measured", conditions, status="failed", reason="not finite")
    assert child(JOB, [own], code=1)[0] == ()
    (state,) = states_of([JOB], read(child.folder).records, MACHINE)
    assert state.reason == "failed: not finite"


def test_a_training_that_was_told_to_stop_is_left(child):
    assert child(JOB, code=0)[0] == ()
    (state,) = states_of([JOB], (), MACHINE)
    assert state.status == "left"


def test_the_second_stage_needs_the_end_of_the_first(child, tmp_path):
    with pytest.raises(WorkError, match="cannot be fine-tuned"):
        stage_arguments(LONG_JOB, TWO_STAGES.finetune, tmp_path, ())
    append(child.folder, [final(TWO_STAGES, "digits")])
    _, steps = child(LONG_JOB, [final(TWO_STAGES.finetune, "cifar10")])
    assert steps[0] == "laptop-cifar10 on cifar10"
    (state,) = states_of([LONG_JOB], read(child.folder).records, MACHINE)
    assert state.status == "done"


def test_a_leashed_command_is_told_to_stop_when_the_one_that_started_it_is_gone(tmp_path):
    import signal
    import subprocess

    script = (
        "import time\n"
        "import favor.cli\n"
        "favor.cli.main = lambda: (print('at work', flush=True), time.sleep(60))\n"
        "import runpy; runpy.run_module('favor.cli.leashed', run_name='__main__')\n"
    )
    process = subprocess.Popen(
        [sys.executable, "-c", script], stdin=subprocess.PIPE, stdout=subprocess.PIPE, stderr=subprocess.PIPE
    )
    assert process.stdout.readline() == b"at work\n"
    process.stdin.close()
    assert process.wait(timeout=20) == -signal.SIGTERM
