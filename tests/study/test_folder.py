"""A study's folder: what it was asked for, and the lock."""

import signal
import subprocess
import sys
import threading

import pytest

from favor.errors import RequestError
from favor.study.folder import REQUEST_FILE, is_at_work, locked, save_requests, saved_requests
from favor.study.resolved import PlannedModel
from favor.study.schema import Budget, Report, Train
from favor.yaml_file import MOST_BYTES
from study.made_up import a_study

HOLD = """
import sys, time
from pathlib import Path
from favor.study.folder import locked
with locked(Path(sys.argv[1])):
    print("locked", flush=True)
    time.sleep(60)
"""


def test_what_was_asked_for_comes_back_as_it_was(tmp_path):
    study = a_study(
        phases=("count", "inference", "accuracy"),
        budget=Budget(measurement="2.5 s", total="6 min"),
        train=Train(recipe="laptop-digits", data="digits", minutes=0.5, seeds=(0, 1)),
        report=Report(min_accuracy=80, pipeline="vix"),
    )
    save_requests(tmp_path, [study, a_study()])
    assert saved_requests(tmp_path) == (study, a_study())
    assert [path.name for path in tmp_path.iterdir()] == [REQUEST_FILE]


@pytest.mark.parametrize(
    ("old", "new", "told"),
    [
        ("vit_s16", "vit_b16", "was changed since the study began"),
        ("measurement: 20.0 s", "measurement: 30.0 s", "was changed since the study began"),
        ("num_classes: 1000", "num_classes: many", "was changed: num_classes"),
        ("precisions:", "precision:", "was changed: precision: Extra inputs are not permitted"),
        ("format: 2", "format: 9", "was not written by this version of favor"),
    ],
)
def test_a_request_that_was_changed_or_is_foreign_is_refused_with_the_reason(tmp_path, old, new, told):
    save_requests(tmp_path, [a_study()])
    file = tmp_path / REQUEST_FILE
    assert old in file.read_text()
    file.write_text(file.read_text().replace(old, new, 1))
    with pytest.raises(RequestError) as refused:
        saved_requests(tmp_path)
    assert told in str(refused.value)
    assert "\n" not in str(refused.value)


def test_a_folder_without_a_study_says_how_to_begin_one(tmp_path):
    with pytest.raises(RequestError, match="there is no such folder; `favor run --study .*nowhere` starts one"):
        saved_requests(tmp_path / "nowhere")
    with pytest.raises(RequestError, match="the folder has neither study.yaml nor records.jsonl"):
        saved_requests(tmp_path)


def test_a_folder_with_records_alone_is_a_study_in_which_nothing_was_asked_for(tmp_path):
    (tmp_path / "records.jsonl").write_text("")
    assert saved_requests(tmp_path) == ()


def test_two_at_once_in_one_folder_are_refused_and_a_killed_one_leaves_no_lock(tmp_path):
    other = subprocess.Popen([sys.executable, "-c", HOLD, str(tmp_path)], stdout=subprocess.PIPE, text=True)
    try:
        assert other.stdout.readline() == "locked\n"
        assert is_at_work(tmp_path)
        refused = f"another favor \\(process {other.pid} since [0-9:]+\\); wait for it with --wait"
        with pytest.raises(RequestError, match=refused), locked(tmp_path):
            pass
    finally:
        other.send_signal(signal.SIGKILL)
        other.wait()
    assert not is_at_work(tmp_path)
    with locked(tmp_path):
        assert is_at_work(tmp_path)
    assert not is_at_work(tmp_path / "nowhere")


def test_a_folder_that_cannot_be_is_refused(tmp_path):
    (tmp_path / "a-file").write_text("")
    with (
        pytest.raises(RequestError, match="cannot write: .*; choose another folder"),
        locked(tmp_path / "a-file"),
    ):
        pass


def test_one_that_waits_gets_the_folder_when_the_other_is_done(tmp_path):
    other = subprocess.Popen([sys.executable, "-c", HOLD, str(tmp_path)], stdout=subprocess.PIPE, text=True)
    assert other.stdout.readline() == "locked\n"
    threading.Timer(0.5, other.kill).start()
    with locked(tmp_path, wait=True):
        assert other.wait() == -signal.SIGKILL


def test_a_folder_may_have_been_asked_for_more_than_a_study_file_may_say(tmp_path):
    models = tuple(PlannedModel(name=f"model_{number:05d}", how=None, img_sizes=(224,)) for number in range(3000))
    study = a_study().model_copy(update={"models": models})
    save_requests(tmp_path, [study] * 2)
    assert (tmp_path / REQUEST_FILE).stat().st_size > MOST_BYTES
    assert saved_requests(tmp_path) == (study, study)


def test_64_requests_of_many_models_come_back_and_what_could_not_be_read_again_is_not_saved(tmp_path):
    models = tuple(PlannedModel(name=f"model_{number:05d}", how=None, img_sizes=(224,)) for number in range(200))
    study = a_study().model_copy(update={"models": models})
    save_requests(tmp_path, [study] * 64)
    assert saved_requests(tmp_path) == (study,) * 64
    with pytest.raises(RequestError, match="128 requests are too long for one study; choose another --study"):
        save_requests(tmp_path, [study] * 128)
    assert len(saved_requests(tmp_path)) == 64


def test_a_folder_s_file_cannot_take_minutes_and_gigabytes(tmp_path):
    (tmp_path / REQUEST_FILE).write_text("format: 2\nrequests:\n" + "- [a]\n" * 150_000)
    with pytest.raises(RequestError, match="more than 200,000 values, the limit for a YAML file"):
        saved_requests(tmp_path)
    (tmp_path / REQUEST_FILE).write_text("format: 2\n#" + "x" * 2**20)
    with pytest.raises(RequestError, match="larger than the limit of 1.04858 MB"):
        saved_requests(tmp_path)
