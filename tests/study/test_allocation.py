"""Jobs dealt to allocations, their keys, and the files of a submission."""

import json
from dataclasses import replace
from pathlib import Path

import pytest

from favor.errors import RequestError, WorkError
from favor.study import submission as submission_module
from favor.study.allocation import allocations_of, key_of
from favor.study.plan import jobs_of
from favor.study.schema import Train
from favor.study.submission import Progress, ProgressFile, new_submission, submissions_of, withdraw
from study.made_up import a_study

TRAIN = Train(recipe="laptop-digits", data="digits", seeds=(0, 1))
JOBS = jobs_of(a_study(phases=("count", "inference", "accuracy"), train=TRAIN))


def test_trainings_have_an_allocation_each_and_short_jobs_share_a_few() -> None:
    allocations = allocations_of(JOBS, shared_by=4)
    short, trainings = allocations[:4], allocations[4:]
    assert [len(one.jobs) for one in short] == [3, 3, 3, 3]
    assert [len(one.jobs) for one in trainings] == [1] * 12
    assert all(one.trains and not one.measures for one in trainings)
    assert sorted(str(job) for one in allocations for job in one.jobs) == sorted(map(str, JOBS))


def test_fewer_short_jobs_than_allocations_leave_none_empty() -> None:
    assert [len(one.jobs) for one in allocations_of(JOBS[:2], shared_by=4)] == [1, 1]
    assert allocations_of((), shared_by=4) == ()


def test_only_measurements_need_a_device_for_themselves() -> None:
    counts, measured = JOBS[:6], JOBS[6:12]
    assert not allocations_of(counts, 1)[0].measures
    assert allocations_of((*counts, *measured), 1)[0].measures


def test_every_job_has_a_key_of_its_own_that_budgets_do_not_change() -> None:
    assert len({key_of(job) for job in JOBS}) == len(JOBS)
    measured, trained = JOBS[6], JOBS[-1]
    assert key_of(replace(measured, budget=99.0, time_limit=1.0)) == key_of(measured)
    assert key_of(replace(trained, threads=7)) == key_of(trained)


def test_submissions_are_numbered_and_read_back(tmp_path: Path) -> None:
    first = new_submission(tmp_path, "slurm", allocations_of(JOBS[:2], 1), repeats=False)
    second = new_submission(tmp_path, "ray", allocations_of(JOBS[-1:], 1), repeats=True)
    assert submissions_of(tmp_path) == (first, second)
    assert (first.number, second.number) == ("0001", "0002")
    assert first.writer(3) < first.writer(12) < second.writer(0)
    assert first.allocations == ((key_of(JOBS[0]), key_of(JOBS[1])),)
    withdraw(tmp_path, second)
    assert submissions_of(tmp_path) == (first,)


def test_of_two_that_submit_at_once_one_is_refused(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    new_submission(tmp_path, "slurm", allocations_of(JOBS[:2], 1), repeats=False)
    monkeypatch.setattr(submission_module, "submissions_of", lambda study: ())
    with pytest.raises(RequestError, match="being submitted by another favor"):
        new_submission(tmp_path, "slurm", allocations_of(JOBS[:2], 1), repeats=False)


def test_a_full_disk_leaves_no_half_submission(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    def full(file: Path, content: bytes) -> None:
        raise WorkError(f"cannot write {file}: No space left on device")

    with monkeypatch.context() as patch:
        patch.setattr(submission_module, "write_whole", full)
        with pytest.raises(WorkError, match="No space left"):
            new_submission(tmp_path, "slurm", allocations_of(JOBS[:2], 1), repeats=False)
    assert new_submission(tmp_path, "slurm", allocations_of(JOBS[:2], 1), repeats=False).number == "0001"


def test_a_damaged_progress_is_unknown_and_a_damaged_submission_an_error(tmp_path: Path) -> None:
    made = new_submission(tmp_path, "slurm", allocations_of(JOBS[:2], 1), repeats=False)
    progress = ProgressFile.of(tmp_path, made, 0)
    assert progress.read() is None
    progress.write(Progress(node="n1", job="j", since="2026-11-17T14:00:00Z", step="epoch 2"))
    assert progress.read() == Progress(node="n1", job="j", since="2026-11-17T14:00:00Z", step="epoch 2")
    progress.file.write_text('{"node":')
    assert progress.read() is None
    (made.folder_in(tmp_path) / "submission.json").write_text("{}")
    with pytest.raises(RequestError, match="was changed"):
        submissions_of(tmp_path)


@pytest.mark.parametrize(
    "change",
    [{"number": "../../../etc"}, {"number": "0002"}, {"name": "favor-a,other"}, {"name": "x"}, {"executor": "at"}],
    ids=str,
)
def test_a_submission_names_neither_files_elsewhere_nor_jobs_of_others(tmp_path: Path, change: dict[str, str]) -> None:
    made = new_submission(tmp_path, "slurm", allocations_of(JOBS[:2], 1), repeats=False)
    file = made.folder_in(tmp_path) / "submission.json"
    file.write_text(json.dumps(json.loads(file.read_text()) | change))
    with pytest.raises(RequestError, match=r"submission.json .*; restore it, or delete"):
        submissions_of(tmp_path)


@pytest.mark.parametrize("content", [b"\xff", b"[" * 100_000, b'{"a\\u001b[2J\\n": 1}'], ids=["bytes", "deep", "names"])
def test_whatever_is_in_the_files_of_a_submission_the_refusal_is_one_line(tmp_path: Path, content: bytes) -> None:
    made = new_submission(tmp_path, "slurm", allocations_of(JOBS[:2], 1), repeats=False)
    ProgressFile.of(tmp_path, made, 0).file.write_bytes(content)
    assert ProgressFile.of(tmp_path, made, 0).read() is None
    (made.folder_in(tmp_path) / "submission.json").write_bytes(content)
    with pytest.raises(RequestError) as refused:
        submissions_of(tmp_path)
    assert str(refused.value).isprintable()
