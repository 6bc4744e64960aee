"""What a node does with an allocation; the jobs themselves are pretended."""

from dataclasses import replace
from pathlib import Path

import pytest
import torch

from favor.errors import RequestError, WorkError
from favor.records.store import append, read
from favor.study import allocation_worker, runner
from favor.study.allocation import allocations_of, key_of
from favor.study.allocation_worker import Work, work_on
from favor.study.folder import save_requests
from favor.study.plan import jobs_of
from favor.study.resolved import Machine
from favor.study.schema import Budget, Train
from favor.study.submission import Progress, ProgressFile, new_submission
from study.made_up import ENVIRONMENT, a_record, a_study

CLUSTER = Machine(device="cpu", label="cpu", device_name="", torch=str(torch.__version__), threads=2)
HERE = ENVIRONMENT | {"torch": CLUSTER.torch}
STUDY = a_study(names=("vit_s16", "swin_ti"), phases=("inference",), machine=CLUSTER)
FIRST, SECOND = jobs_of(STUDY)


@pytest.fixture
def done(monkeypatch: pytest.MonkeyPatch) -> list:
    """The jobs that were done; each finds a made-up record."""
    jobs = []

    class Pretended:
        def __init__(self, folder: Path, writer: str) -> None:
            assert writer == "0001-00000"

        def execute(self, job, budget, on_step, on_note):
            jobs.append(job)
            on_step("latency")
            return (a_record(job, environment=HERE),)

    monkeypatch.setattr(allocation_worker, "LocalExecutor", Pretended)
    return jobs


def work_in(folder: Path, repeats: bool = False, **changes) -> Work:
    save_requests(folder, [STUDY])
    allocations = allocations_of((FIRST, SECOND), 1)
    submission = new_submission(folder, "slurm", allocations, repeats)
    work = Work(folder, submission, 0, allocations[0], CLUSTER, (), None)
    return replace(work, **changes)


def progress_of(work: Work) -> Progress | None:
    return ProgressFile.of(work.study, work.submission, work.index).read()


def test_a_node_does_the_jobs_without_a_record_and_writes_a_file_of_its_own(tmp_path: Path, done: list) -> None:
    work = work_in(tmp_path)
    append(tmp_path, [a_record(FIRST, environment=HERE)])
    work_on(work, "big", "n7")
    assert done == [SECOND]
    assert [record.name for record in read(tmp_path / "records" / "0001-00000.jsonl").records] == ["swin_ti"]
    progress = progress_of(work)
    assert progress is not None
    assert (progress.node, progress.job, progress.problem) == ("n7", key_of(SECOND), "")


def test_an_allocation_that_was_stopped_goes_on_where_it_stopped(tmp_path: Path, done: list) -> None:
    work = work_in(tmp_path, repeats=True)
    append(tmp_path, [a_record(job, environment=HERE) for job in (FIRST, SECOND)])
    append(tmp_path, [a_record(FIRST, environment=HERE)], writer="0001-00000")
    work_on(work, "big", "n7")
    assert done == [SECOND]  # of the repeated jobs, this allocation had done the first
    work_on(work, "big", "n7")
    assert done == [SECOND]


@pytest.mark.parametrize(
    ("reason", "kept"),
    [
        ("latency: killed by SIGKILL", False),
        ("training: killed by SIGTERM; last line of stderr: x", False),
        ("imports: killed by SIGUSR2", False),
        ("latency: killed by SIGSEGV", True),
        ("latency: ended with exit code 1", True),
    ],
)
def test_a_worker_that_the_cluster_kills_leaves_its_job_to_do(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, reason: str, kept: bool
) -> None:
    class Killed:
        def __init__(self, folder: Path, writer: str) -> None: ...

        def execute(self, job, budget, on_step, on_note):
            if job == FIRST:
                return (a_record(job, environment=HERE, metrics={"throughput": 1.0}, status="failed", reason=reason),)
            return (a_record(job, environment=HERE),)

    monkeypatch.setattr(allocation_worker, "LocalExecutor", Killed)
    work_on(work_in(tmp_path), "big", "n7")
    assert [record.name for record in read(tmp_path).records] == [*(["vit_s16"] if kept else []), "swin_ti"]


def test_jobs_that_the_total_budget_leaves_out_have_a_reason(tmp_path: Path, done: list) -> None:
    work = work_in(tmp_path)
    save_requests(tmp_path, [STUDY.model_copy(update={"budget": Budget(total="1 s")})])
    work_on(work, "big", "n7")
    assert done == []
    progress = progress_of(work)
    assert progress is not None
    assert progress.problem == "the total budget of the study ran out"


def test_a_node_with_another_pytorch_refuses_and_says_so_to_status(tmp_path: Path, done: list) -> None:
    other = CLUSTER.model_copy(update={"torch": "1.0"})
    work = work_in(tmp_path, machine=other)
    with pytest.raises(RequestError, match="node n7 has PyTorch .*, the study 1.0"):
        work_on(work, "big", "n7")
    assert done == []
    progress = progress_of(work)
    assert progress is not None
    assert progress.problem.startswith("node n7 has PyTorch")


def test_a_full_disk_ends_the_allocation_with_a_reason(
    tmp_path: Path, done: list, monkeypatch: pytest.MonkeyPatch
) -> None:
    def full(folder, records, writer):
        raise WorkError("cannot write records: No space left on device")

    monkeypatch.setattr(runner, "append", full)
    work = work_in(tmp_path)
    with pytest.raises(WorkError, match="No space left on device"):
        work_on(work, "big", "n7")
    assert done == [FIRST]
    progress = progress_of(work)
    assert progress is not None
    assert "No space left on device" in progress.problem


def test_the_processes_of_an_allocation_replace_those_of_the_study(tmp_path: Path) -> None:
    train = Train(recipe="laptop-digits", data="digits", processes=3)
    study = a_study(names=("vit_s16",), phases=("accuracy",), train=train, machine=CLUSTER)
    (job,) = jobs_of(study)
    work = work_in(tmp_path, allocation=allocations_of((job,), 1)[0], processes=8)
    (placed,) = allocation_worker.jobs_of_allocation(work)
    assert (placed.train.processes, placed.threads) == (8, 16)  # two threads for each
    assert key_of(placed) == key_of(job)
    assert allocation_worker.jobs_of_allocation(replace(work, processes=None)) == (job,)
