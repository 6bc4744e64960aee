"""The same study on this machine, on a real Slurm and on a real Ray."""

import json
import subprocess
from collections import Counter
from pathlib import Path

import psutil
import pytest

from cluster.slurm_cluster import SlurmCluster, wait_until
from cluster.studies import ALL_PHASES, PLUGIN, called, favor_command, users_environment, without_costs
from favor.records.store import read
from favor.study.submission import submissions_of

pytestmark = pytest.mark.timeout(600)  # many processes, each of which imports torch

SLURM = ("--executor", "slurm", "--set", "partition=main", "--set", "time_limit=10 min", "--set", "allocations=1")


@pytest.fixture(scope="module")
def answers(slurm: SlurmCluster, ray: None, tmp_path_factory: pytest.TempPathFactory) -> dict[str, tuple[Path, dict]]:
    """The folder and the printed answer of one study by each executor; a worker of Ray is killed in a training."""
    folder = tmp_path_factory.mktemp("executors")
    file = folder / "tiny.yaml"
    file.write_text(ALL_PHASES)
    options = {"slurm": (*SLURM, "--wait"), "local": (), "ray": ("--executor", "ray", "--set", "allocations=2")}
    # Each has a folder of its own for locks, so that all run at once.
    running = {
        name: subprocess.Popen(
            favor_command("run", file, "--study", folder / name, "--json", *words),
            env=users_environment(slurm.environment, folder / f"locks-{name}", pause=0.05 if name == "ray" else 0.0),
            stdout=subprocess.PIPE,
            stderr=subprocess.PIPE,
            text=True,
        )
        for name, words in options.items()
    }
    wait_until(lambda: running["ray"].poll() is not None or _kill_worker(folder / "locks-ray"), 250.0)
    found = {}
    for name, process in running.items():
        out, said = process.communicate(timeout=250)
        assert process.returncode == 0, (name, said)
        found[name] = (folder / name, json.loads(out))
    return found


def _kill_worker(locks: Path) -> bool:
    """Kill the worker of Ray that supervises a training; False if there is none yet."""
    for process in psutil.process_iter(["cmdline"]):
        try:
            trains = "favor.training.worker" in (process.info["cmdline"] or [])
            if trains and process.environ().get("XDG_RUNTIME_DIR") == str(locks):
                process.parent().kill()
                return True
        except psutil.Error:  # it has just ended
            continue
    return False


@pytest.mark.parametrize("executor", ["slurm", "ray"])
def test_a_cluster_finds_the_records_of_one_machine_and_no_others(answers: dict, executor: str) -> None:
    there, here = (Counter(map(without_costs, read(answers[name][0]).records)) for name in (executor, "local"))
    assert set(there) == set(here)  # on one machine, models that compete are measured again
    assert max(there.values()) == 1
    assert {record.task for record in read(answers[executor][0]).records} == {"count", "inference", "accuracy"}


@pytest.mark.parametrize("executor", ["slurm", "ray"])
def test_a_cluster_gives_the_answer_of_one_machine(answers: dict, executor: str) -> None:
    there, here = answers[executor][1], answers["local"][1]
    assert there["done"] == here["done"] == there["jobs"] == 6
    assert there["answer"]["undecided"] == here["answer"]["undecided"]
    chosen = [answer["answer"]["favored"]["accuracy"]["favored"] for answer in (there, here)]
    names = [best and best["name"] for best in chosen]  # none, if the two equal models are a tie
    assert names[0] == names[1]


def test_records_name_the_cluster_as_host_and_the_node(answers: dict) -> None:
    for executor, host in (("slurm", "favor-test"), ("ray", "ray")):
        timed = [record.environment for record in read(answers[executor][0]).records if record.task != "count"]
        assert {environment["host"] for environment in timed} == {host}
        assert all(environment["node"] for environment in timed)
    assert all("node" not in record.environment for record in read(answers["local"][0]).records)


def test_each_allocation_writes_a_file_of_its_own(answers: dict) -> None:
    folder = answers["slurm"][0]
    short, trainings = submissions_of(folder)
    assert (len(short.allocations), len(short.allocations[0]), len(trainings.allocations)) == (1, 4, 2)
    written = {file.stem for file in (folder / "records").iterdir()}
    assert written == {short.writer(0), trainings.writer(0), trainings.writer(1)}
    assert not (folder / "records.jsonl").exists()


def test_a_study_that_is_done_submits_nothing(answers: dict, slurm: SlurmCluster, tmp_path: Path) -> None:
    folder = answers["slurm"][0]
    user = users_environment(slurm.environment, tmp_path)
    said = called(user, "--plugin", PLUGIN, "resume", folder, "--json")
    assert "nothing is left to submit" in said.stderr
    assert json.loads(said.stdout)["answer"] == answers["slurm"][1]["answer"]
    assert len(submissions_of(folder)) == 2


def test_two_nodes_train_one_model_with_slurms_ranks(slurm: SlurmCluster, tmp_path: Path) -> None:
    file, study = tmp_path / "two.yaml", tmp_path / "study"
    file.write_text(
        ALL_PHASES.replace("[count, inference, accuracy]", "[accuracy]").replace("[fast, slow_a]", "[fast]")
    )
    user = users_environment(slurm.environment, tmp_path)
    called(user, "run", file, "--study", study, *SLURM, "--set", "nodes=2", "--wait")
    records = read(study).records
    assert [record.conditions["epochs"] for record in records] == [1, 2]
    assert {record.environment["processes"] for record in records} == {2}
