"""Where the jobs of a study are, from the queue and the files of the nodes."""

import shutil
from pathlib import Path

import pytest

from favor.records.store import append
from favor.study import slurm_executor
from favor.study.allocation import allocations_of, key_of
from favor.study.cluster_queue import ClusterQueue, Whereabouts
from favor.study.folder import locked
from favor.study.plan import jobs_of
from favor.study.slurm_executor import Queued, queue_of
from favor.study.submission import Progress, ProgressFile, new_submission, submissions_of
from study.made_up import a_record, a_study

FIRST, SECOND, NEVER = jobs_of(a_study(names=("vit_s16", "swin_ti", "cvt_13"), phases=("inference",)))


@pytest.fixture
def queue(tmp_path: Path):
    """A submission of one allocation with two jobs, and a queue in which it has some state."""
    made = new_submission(tmp_path, "slurm", allocations_of((FIRST, SECOND), 1), repeats=False)

    def in_state(state: str | None, reason: str = "None", **progress: str) -> ClusterQueue:
        if progress:
            ProgressFile.of(tmp_path, made, 0).write(Progress(**progress))
        known = {} if state is None else {0: Queued(state, "n1", reason)}
        return ClusterQueue(tmp_path, (made,), {made.name: known})

    return in_state


def test_a_waiting_job_tells_why(queue) -> None:
    assert queue("PENDING", "Resources").find(FIRST) == Whereabouts("queued", reason="Resources")
    assert queue("PENDING", "Resources").alive((FIRST, SECOND, NEVER)) == (FIRST, SECOND)


def test_the_job_that_an_allocation_works_on_runs_and_the_others_wait(queue) -> None:
    now = queue("RUNNING", node="n1", job=key_of(FIRST), since="2026-11-17T14:00:00Z", step="latency")
    assert now.find(FIRST) == Whereabouts("running", "n1", "2026-11-17T14:00:00Z", "latency")
    assert now.find(SECOND) == Whereabouts("queued", reason="its allocation is running")
    assert now.running() == 1


def test_an_allocation_that_starts_on_another_node_has_not_reported_yet(queue) -> None:
    now = queue("RUNNING", node="n7", job=key_of(FIRST), since="2026-11-17T14:00:00Z", step="epoch 2")
    assert now.find(FIRST) == Whereabouts("queued", reason="its allocation is starting")
    assert now.alive((FIRST, SECOND)) == (FIRST, SECOND)


def test_a_requeued_job_waits_whatever_its_last_node_wrote(queue) -> None:
    now = queue("PENDING", "BeginTime", node="n1", job=key_of(FIRST), since="2026-11-17T14:00:00Z", step="epoch 2")
    assert now.find(FIRST) == Whereabouts("queued", reason="BeginTime")


@pytest.mark.parametrize("state", ["COMPLETED", "FAILED", "NODE_FAIL", "TIMEOUT", "CANCELLED", None])
def test_a_job_that_ended_without_a_record_is_lost_whatever_its_exit_code(queue, state: str | None) -> None:
    now = queue(state)
    assert now.find(FIRST) == Whereabouts("lost", reason=state or "ended unseen")
    assert now.alive((FIRST, SECOND)) == ()


def test_a_lost_job_tells_what_its_node_or_its_log_said_last(queue, tmp_path: Path) -> None:
    log = next((tmp_path / "cluster").glob("0001")) / "7_0_log.err"
    log.write_text(
        "submitit INFO - Loading\nslurmstepd: error: execve(): /no/python: No such file\nsrun: error: task 0\n"
    )
    assert queue("FAILED").find(FIRST).reason == "FAILED: slurmstepd: error: execve(): /no/python: No such file"
    assert queue("FAILED", node="n1", problem="disk full").find(FIRST) == Whereabouts("lost", "n1", reason="disk full")


def test_a_job_that_was_never_submitted_is_nowhere(queue) -> None:
    assert queue("RUNNING").find(NEVER) is None


def test_the_newest_submission_of_a_job_counts(queue, tmp_path: Path) -> None:
    (first,) = submissions_of(tmp_path)
    again = new_submission(tmp_path, "slurm", allocations_of((FIRST,), 1), repeats=False)
    known = {again.name: {0: Queued("PENDING", "", "Priority")}}
    both = ClusterQueue(tmp_path, (first, again), known | {first.name: {}})
    assert both.find(FIRST) == Whereabouts("queued", reason="Priority")
    assert both.find(SECOND).status == "lost"


def test_jobs_of_a_ray_run_that_ended_can_be_submitted_by_the_process_that_locks_the_folder(tmp_path: Path) -> None:
    made = new_submission(tmp_path, "ray", allocations_of((FIRST,), 1), repeats=False)
    with locked(tmp_path):
        assert ClusterQueue(tmp_path, (made,), {}).alive((FIRST,)) == ()


def test_a_job_in_slurms_queue_is_alive_although_ray_was_given_it_later(queue, tmp_path: Path) -> None:
    (first,) = submissions_of(tmp_path)
    again = new_submission(tmp_path, "ray", allocations_of((FIRST,), 1), repeats=False)
    both = ClusterQueue(tmp_path, (first, again), {first.name: {0: Queued("PENDING", "", "Resources")}})
    assert both.alive((FIRST, NEVER)) == (FIRST,)


def test_a_number_that_has_records_is_not_used_again(tmp_path: Path) -> None:
    first = new_submission(tmp_path, "slurm", allocations_of((FIRST,), 1), repeats=False)
    append(tmp_path, [a_record(FIRST)], writer=first.writer(0))
    shutil.rmtree(tmp_path / "cluster")
    assert new_submission(tmp_path, "slurm", allocations_of((FIRST,), 1), repeats=True).number == "0002"


def test_ray_jobs_are_lost_when_the_process_that_ran_them_is_gone(tmp_path: Path) -> None:
    made = new_submission(tmp_path, "ray", allocations_of((FIRST, SECOND), 1), repeats=False)
    ProgressFile.of(tmp_path, made, 0).write(Progress(node="n1", job=key_of(FIRST), since="s", step="latency"))
    with locked(tmp_path):
        assert ClusterQueue(tmp_path, (made,), {}).find(FIRST).status == "running"
    assert ClusterQueue(tmp_path, (made,), {}).find(FIRST).status == "lost"


def test_squeue_is_asked_once_and_read_with_and_without_arrays(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    array = new_submission(tmp_path, "slurm", allocations_of((FIRST, SECOND), 2), repeats=False)
    alone = new_submission(tmp_path, "slurm", allocations_of((NEVER,), 2), repeats=False)
    asked = []

    def ask(*command: str) -> str:
        asked.append(command)
        of_array = f"{array.name}|12_1|RUNNING|n2|None\n{array.name}|12_0|PENDING||Resources"
        return f"{of_array}\n{alone.name}|13|COMPLETING|n3|None"

    monkeypatch.setattr(slurm_executor, "ask_slurm", ask)
    known = queue_of([array, alone])
    assert len(asked) == 1
    assert known[array.name] == {
        1: Queued("RUNNING", "n2", "None"),
        0: Queued("PENDING", "", "Resources"),
    }
    assert known[alone.name][0].status == "running"
