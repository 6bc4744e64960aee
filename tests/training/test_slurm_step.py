"""Ranks and the meeting point of several processes, from Slurm's variables."""

from types import SimpleNamespace

import pytest

from favor.training import slurm_step
from favor.training.slurm_step import variables_of_slurm

STEP = {
    "SLURM_JOB_ID": "123456",
    "SLURM_STEP_ID": "0",
    "SLURM_PROCID": "9",
    "SLURM_LOCALID": "1",
    "SLURM_NTASKS": "16",
    "SLURM_STEP_NUM_TASKS": "16",
    "SLURM_STEP_TASKS_PER_NODE": "8(x2)",
    "SLURM_STEP_NODELIST": "gpu[07-08]",
}


@pytest.fixture(autouse=True)
def _address(monkeypatch: pytest.MonkeyPatch) -> None:
    """Only Slurm knows the nodes' addresses."""

    def unknown(node: str, port: None) -> None:
        raise OSError

    def scontrol(command: list[str], **_: object) -> SimpleNamespace:
        return SimpleNamespace(stdout=f"NodeName={command[-1]} NodeAddr=10.0.0.1-{command[-1]} Port=1\n")

    monkeypatch.setattr(slurm_step.socket, "getaddrinfo", unknown)
    monkeypatch.setattr(slurm_step.subprocess, "run", scontrol)


def test_a_task_of_a_step_has_the_variables_that_torchrun_would_set() -> None:
    assert variables_of_slurm(STEP) == {
        "RANK": "9",
        "WORLD_SIZE": "16",
        "LOCAL_RANK": "1",
        "LOCAL_WORLD_SIZE": "8",
        "MASTER_ADDR": "10.0.0.1-gpu07",
        "MASTER_PORT": "13456",
    }


def test_two_jobs_on_one_node_meet_at_different_ports() -> None:
    ports = {variables_of_slurm(STEP | {"SLURM_JOB_ID": str(number)})["MASTER_PORT"] for number in range(100)}
    assert len(ports) == 100


def test_steps_of_one_job_and_of_jobs_with_similar_numbers_meet_at_different_ports() -> None:
    steps = [{"SLURM_JOB_ID": str(123456 + job), "SLURM_STEP_ID": str(step)} for job in range(100) for step in range(8)]
    assert len({variables_of_slurm(STEP | step)["MASTER_PORT"] for step in steps}) == 800


def test_torchruns_variables_and_a_chosen_meeting_point_go_first() -> None:
    assert variables_of_slurm(STEP | {"RANK": "3", "WORLD_SIZE": "4"}) == {}
    chosen = variables_of_slurm(STEP | {"MASTER_ADDR": "here", "MASTER_PORT": "29500"})
    assert (chosen["MASTER_ADDR"], chosen["MASTER_PORT"]) == ("here", "29500")


def test_a_batch_script_and_a_single_task_are_one_process() -> None:
    batch_script = {name: value for name, value in STEP.items() if "STEP" not in name}
    assert variables_of_slurm(batch_script) == {}
    assert variables_of_slurm(STEP | {"SLURM_STEP_NUM_TASKS": "1"}) == {}
    assert variables_of_slurm({}) == {}
