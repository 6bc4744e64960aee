"""Studies of tiny models for a cluster, and the command line as a user of the cluster calls it."""

import os
import subprocess
import sys
from collections.abc import Mapping
from pathlib import Path

from cluster.slow_models import NAMES
from favor.records.schema import Record
from favor.records.store import read
from favor.study.cluster_queue import ClusterQueue, Whereabouts
from favor.study.folder import saved_requests
from favor.study.progress import JobState, records_of, states_of_all

PLUGIN = Path(__file__).with_name("slow_models.py")
EPOCHS = 4
TRAINING = """\
plugins: [{plugin}]
train: {{recipe: laptop-digits, epochs: {epochs}, set: [warmup_epochs=1]}}
report: {{page: false, dataset: digits}}
"""
ALL_PHASES = f"""\
models: [fast, slow_a]
phases: [count, inference, accuracy]
energy: false
num_classes: 10
batch_size: 1
threads: 1
budget: {{measurement: 0.2 s}}
{TRAINING.format(plugin=PLUGIN, epochs=2)}"""
TRAININGS = f"""\
models: [{", ".join(NAMES)}]
phases: [accuracy]
threads: 1
{TRAINING.format(plugin=PLUGIN, epochs=EPOCHS)}"""


def favor_command(*words: str | Path) -> list[str]:
    return [sys.executable, "-m", "favor", *map(str, words)]


def called(environment: Mapping[str, str], *words: str | Path) -> subprocess.CompletedProcess[str]:
    """The result of a command of favor; an error fails the test."""
    done = subprocess.run(favor_command(*words), env=dict(environment), capture_output=True, text=True, check=False)
    assert done.returncode == 0, done.stderr
    return done


def users_environment(cluster: Mapping[str, str], folder: Path, pause: float = 0.0) -> dict[str, str]:
    """The environment of a user of a cluster: its own locks, and the pause in each step of the slow models."""
    source = str(Path(__file__).parents[2] / "src")
    paths = [source, *filter(None, [os.environ.get("PYTHONPATH")])]
    return dict(cluster) | {
        "XDG_RUNTIME_DIR": str(folder),
        "FAVOR_TEST_PAUSE": str(pause),
        "PYTHONPATH": os.pathsep.join(paths),
        "OMP_NUM_THREADS": "1",
    }


def states_and_places(folder: Path) -> tuple[dict[str, JobState], dict[str, Whereabouts]]:
    """The state of each job, and where the ones are that are left, by the model's name and phase."""
    queue = ClusterQueue.now(folder)
    states = {
        f"{one.job.name} {one.job.phase}": one for one in states_of_all(saved_requests(folder), records_of(folder))
    }
    left = {name: queue.find(state.job) for name, state in states.items() if state.status == "left"}
    return states, {name: place for name, place in left.items() if place is not None}


def epochs_of(place: Whereabouts | None) -> float:
    """The epochs that a running training has done; 0 before the first is known."""
    words = place.step.replace(",", "").split() if place is not None else []
    return float(words[1]) if words[:1] == ["epoch"] else 0.0


def learned(folder: Path, model: str, seed: int = 0) -> list[tuple[float, dict[str, float]]]:
    """The epochs of a training and what was learned in each, to the last bit."""
    records = [one for one in read(folder).records if (one.name, one.conditions.get("recipe.seed")) == (model, seed)]
    if failures := [one.reason for one in records if one.status != "ok"]:
        raise RuntimeError(f"the training of {model} with seed {seed} was recorded as failed: {failures}")
    names = ("top1", "top5", "loss", "train_loss")
    return [(one.conditions["epochs"], {name: one.metrics[name].value for name in names}) for one in records]


def without_costs(record: Record) -> tuple[object, ...]:
    """What a record says besides measured costs, and where and when."""
    exact = ("params", "macs", "flops", "top1", "top5", "loss", "train_loss") if record.task != "inference" else ()
    return record.request, record.status, tuple(record.metrics[name].value for name in exact if name in record.metrics)
