"""A study whose machine is a cluster: any node of the kind does its jobs, and devices are never mixed."""

from dataclasses import replace
from pathlib import Path

import pytest
import torch

from favor.cli.study import on_each_device, study_answer
from favor.errors import RequestError
from favor.machine.device import find_device
from favor.machine.environment import describe
from favor.records.store import append
from favor.study.folder import save_requests
from favor.study.plan import jobs_of
from favor.study.progress import states_of
from favor.study.resolved import Machine
from favor.study.session import resume
from study.made_up import ENVIRONMENT, a_record, a_study

CLUSTER = Machine(device="cuda", label="", device_name="", torch="2.99.0", threads=2)
STUDY = a_study(names=("vit_s16", "swin_ti"), phases=("inference",), machine=CLUSTER)
FIRST, SECOND = jobs_of(STUDY)


def found_on(label: str, name: str, job=FIRST, **environment):
    return a_record(replace(job, device_label=label), environment=ENVIRONMENT | {"device_name": name} | environment)


def status(*records) -> list[str]:
    return [state.status for state in states_of((FIRST, SECOND), records, CLUSTER)]


def test_a_job_is_done_by_any_node_with_a_gpu() -> None:
    assert "device" not in FIRST.conditions
    assert status(found_on("a100", "NVIDIA A100")) == ["done", "left"]
    assert status(found_on("a100", "NVIDIA A100"), found_on("v100", "Tesla V100", SECOND)) == ["done", "done"]


def test_a_job_for_gpus_is_not_done_by_a_processor_or_other_software() -> None:
    assert status(found_on("cpu", "Some processor")) == ["left", "left"]
    assert status(found_on("a100", "NVIDIA A100", torch="2.98.0")) == ["left", "left"]
    assert status(found_on("a100", "NVIDIA A100", threads=1)) == ["left", "left"]


def test_the_answer_is_given_for_each_kind_of_device(tmp_path: Path) -> None:
    append(tmp_path, [found_on("a100", "NVIDIA A100"), found_on("v100", "Tesla V100", SECOND)], writer="0001-00000")
    assert [one.machine.label for one in on_each_device(STUDY, tmp_path)] == ["a100", "v100"]
    assert on_each_device(a_study(), tmp_path) == [a_study()]


def test_the_page_has_the_answer_of_the_first_device(tmp_path: Path) -> None:
    append(tmp_path, [found_on("a100", "NVIDIA A100"), found_on("v100", "Tesla V100", SECOND)], writer="0001-00000")
    assert "2 models on a cluster (a100)" in study_answer(STUDY, tmp_path).title


def test_a_study_on_a_cluster_resumes_from_any_machine_with_the_same_pytorch(tmp_path: Path) -> None:
    here = CLUSTER.model_copy(update={"torch": str(torch.__version__)})
    save_requests(tmp_path / "same", [a_study(machine=here)])
    assert resume(tmp_path / "same").studies[0].machine == here
    save_requests(tmp_path / "other", [STUDY])
    with pytest.raises(RequestError, match="started on a cluster \\(cuda\\), 2 threads, torch 2.99.0"):
        resume(tmp_path / "other")


def test_nodes_of_a_cluster_are_one_host_and_named_beside_it(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("FAVOR_CLUSTER", "big")
    monkeypatch.setenv("FAVOR_NODE", "n17")
    described = describe(find_device("cpu"), 1)
    assert (described["host"], described["node"]) == ("big", "n17")
