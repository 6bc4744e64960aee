"""What a job does on a signal: it puts itself back into the queue only if nobody else decides about it."""

import subprocess
import sys
import time
from pathlib import Path
from types import SimpleNamespace

import psutil
import pytest

from favor.study import slurm_executor
from favor.study.allocation import allocations_of
from favor.study.allocation_worker import Work
from favor.study.plan import jobs_of
from favor.study.slurm_executor import Queued, SlurmWork
from favor.study.submission import Progress, ProgressFile, new_submission
from study.made_up import a_study

STUDY = a_study(names=("vit_s16",), phases=("inference",))


@pytest.fixture
def work(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Work:
    pytest.importorskip("submitit")
    monkeypatch.setenv("SLURMD_NODENAME", "n1")
    monkeypatch.setenv("SLURM_JOB_ID", "7")
    allocations = allocations_of(jobs_of(STUDY), 1)
    submission = new_submission(tmp_path, "slurm", allocations, repeats=False)
    return Work(tmp_path, submission, 0, allocations[0], STUDY.machine, (), None)


def test_a_running_job_asks_its_worker_to_save_and_comes_back(work: Work, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(slurm_executor, "ask_slurm", lambda *command: "RUNNING")
    progress = ProgressFile.of(work.study, work.submission, 0)
    progress.write(Progress(node="n1", job="some job", step="epoch 3"))
    saving = (
        "import signal, sys, time; signal.signal(15, lambda *_: (time.sleep(0.5), sys.exit(7))); "
        "print(flush=True); time.sleep(60)"
    )
    worker = subprocess.Popen([sys.executable, "-c", saving], stdout=subprocess.PIPE)
    assert worker.stdout is not None
    worker.stdout.readline()
    began = time.monotonic()
    monkeypatch.setattr(slurm_executor.psutil, "Process", _parent_of(worker))
    slurm_work = SlurmWork(work)
    again = slurm_work.checkpoint()
    assert time.monotonic() - began < 30
    assert worker.poll() == 7  # it was given the time to save
    assert again.function is slurm_work
    assert progress.read() == Progress(node="n1")  # status no longer says that it runs


def test_a_worker_that_ends_on_its_own_at_that_moment_does_not_keep_the_job_from_coming_back(
    work: Work, monkeypatch: pytest.MonkeyPatch
) -> None:
    class Ended:
        def terminate(self) -> None:
            raise psutil.NoSuchProcess(7)

        def is_running(self) -> bool:
            return False

    monkeypatch.setattr(slurm_executor, "ask_slurm", lambda *command: "RUNNING")
    monkeypatch.setattr(slurm_executor.psutil, "Process", lambda: SimpleNamespace(children=lambda: [Ended()]))
    slurm_work = SlurmWork(work)
    assert slurm_work.checkpoint().function is slurm_work


@pytest.mark.parametrize("state", ["COMPLETING", "CANCELLED", "PENDING", ""])
def test_a_job_that_was_canceled_or_requeued_by_slurm_only_ends(
    work: Work, monkeypatch: pytest.MonkeyPatch, state: str
) -> None:
    monkeypatch.setattr(slurm_executor, "ask_slurm", lambda *command: state)
    monkeypatch.setattr(slurm_executor.psutil, "Process", lambda: SimpleNamespace(children=list))
    with pytest.raises(SystemExit):
        SlurmWork(work).checkpoint()


@pytest.mark.parametrize(
    ("state", "status"),
    [
        ("PENDING", "queued"),
        ("RUNNING", "running"),
        ("COMPLETING", "running"),
        ("NODE_FAIL", "ended"),
        ("REQUEUED", "queued"),
    ],
)
def test_slurms_states_are_waiting_running_or_ended(state: str, status: str) -> None:
    assert Queued(state, "n1", "None").status == status


def _parent_of(worker: "subprocess.Popen[bytes]"):
    class Worker:
        def terminate(self) -> None:
            worker.terminate()

        def is_running(self) -> bool:
            return worker.poll() is None

    class Parent:
        def children(self) -> list[Worker]:
            return [Worker()]

    return Parent
