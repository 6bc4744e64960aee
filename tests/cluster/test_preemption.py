"""Training runs on a real Slurm, stopped in every way that a cluster knows: nothing is lost, doubled or different."""

import subprocess
import time
from pathlib import Path

import pytest

from cluster.disturb import DISTURBANCES, disturb
from cluster.slow_models import NAMES
from cluster.slurm_cluster import SlurmCluster
from cluster.studies import (
    EPOCHS,
    PLUGIN,
    TRAININGS,
    called,
    epochs_of,
    favor_command,
    learned,
    states_and_places,
    users_environment,
)
from favor.study.submission import submissions_of

pytestmark = pytest.mark.timeout(600)  # many processes, each of which imports torch
SECONDS = 550.0


def test_disturbed_trainings_end_as_if_never_disturbed(
    slurm: SlurmCluster, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    file, study = tmp_path / "slow.yaml", tmp_path / "study"
    file.write_text(TRAININGS)
    monkeypatch.setenv("SLURM_CONF", slurm.environment["SLURM_CONF"])
    held = tmp_path / "held"
    held.mkdir()
    for name in NAMES:
        (held / name).touch()
    user = users_environment(slurm.environment, tmp_path, pause=0.04) | {"FAVOR_TEST_HELD": str(held)}
    asked = ("--executor", "slurm", "--set", "partition=main", "--set", "time_limit=10 min")
    called(user, "run", file, "--study", study, *asked)
    assert [len(one.allocations) for one in submissions_of(study)] == [4, 1]  # MaxArraySize is 4
    words = (
        "train",
        "fast",
        "--recipe",
        "laptop-digits",
        "--epochs",
        EPOCHS,
        "--set",
        "warmup_epochs=1",
        "--threads",
        1,
    )
    command = favor_command("--plugin", PLUGIN, *words, "--study", tmp_path / "undisturbed")
    undisturbed = subprocess.Popen(command, env=user | {"FAVOR_TEST_PAUSE": "0"}, stderr=subprocess.DEVNULL)

    first, second = submissions_of(study)
    places_in_queue = {name: (first, index) for index, name in enumerate(NAMES[:4])} | {NAMES[4]: (second, 0)}
    disturbances = dict(zip(NAMES, DISTURBANCES, strict=True))
    killed = f"{NAMES[DISTURBANCES.index('SIGKILL')]} accuracy"
    resumed = False
    deadline = time.monotonic() + SECONDS
    while True:
        assert time.monotonic() < deadline, states_and_places(study)[1]
        states, places = states_and_places(study)
        if all(state.status == "done" for state in states.values()):
            break
        assert not any(state.status == "failed" for state in states.values())
        for name in list(disturbances):
            place = places.get(f"{name} accuracy")
            if epochs_of(place) >= 1.0:
                assert place is not None
                assert place.node.startswith("n")
                assert disturb(slurm, study, *places_in_queue[name], disturbances.pop(name))
                (held / name).unlink()
        lost = [name for name, place in places.items() if place.status == "lost"]
        assert set(lost) <= {killed}
        if lost and not resumed:
            said = called(user, "--plugin", PLUGIN, "resume", study).stderr
            assert "submitted 1 job in 1 allocation" in said
            resumed = True
        slurm.start_delayed()
        time.sleep(1.0)
    assert not disturbances
    assert resumed
    assert undisturbed.wait(60) == 0
    expected = learned(tmp_path / "undisturbed", "fast")
    assert [epochs for epochs, _ in expected] == list(range(1, EPOCHS + 1))
    for name in NAMES:
        assert learned(study, name) == expected, name
