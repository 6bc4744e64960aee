"""Trains a tiny model in one process and in two, then tiny models in processes that are killed, until they are done.

`python driver.py OUT SEED MODEL...` prints how often each was killed, as JSON. The processes are forked from this one,
which has imported everything and never ran a backward pass, so that each of them starts at once.
"""

import json
import os
import random
import signal
import socket
import sys
import threading
import time
import warnings
from collections.abc import Sequence
from pathlib import Path

import torch

import favor
from favor.data.opening import open_data
from favor.records.schema import Record
from favor.training.callbacks import StepNews
from favor.training.recipe import load_recipe
from favor.training.request import TrainingRequest
from favor.training.run import train

OVERRIDES = ("epochs=3", "warmup_epochs=1", "drop_path=0.2", "batch_size=240", "lr=3e-3")
STEPS = 15
# Adam divides by the gradient's size, so that the rounding of a gradient that is zero in theory becomes a whole step.
TWO = ("epochs=2", "warmup_epochs=0", "schedule=constant", "batch_size=240", "optimizer=sgd", "lr=0.1", "drop_path=0.2")


class Executioner:
    """Kills its own process after some step."""

    def __init__(self, at: int) -> None:
        self.at = at

    def note(self, text: str) -> None:
        print(text, file=sys.stderr)  # noqa: T201

    def stepped(self, news: StepNews) -> None:
        if news.step == self.at:
            os.kill(os.getpid(), signal.SIGKILL)

    def evaluated(self, record: Record, news: StepNews) -> None:
        """Nothing happens."""


def request(model: str, out: Path, resume: bool, changes: Sequence[str] = OVERRIDES) -> TrainingRequest:
    recipe = load_recipe("laptop-digits", changes)
    return TrainingRequest(
        model, recipe, "digits", out, resume=resume, device="cpu", save_every=1e-9, survey_seconds=1e-9
    )


def ends_well(
    model: str, out: Path, resume: bool, at: int = -1, after: float | None = None, changes: Sequence[str] = OVERRIDES
) -> bool:
    """Train in a forked process, killed after a step or a time; whether it lived to the end."""
    child = os.fork()
    if child == 0:
        if after is not None:
            threading.Timer(after, lambda: os.kill(os.getpid(), signal.SIGKILL)).start()
        ending = train(request(model, out, resume, changes), Executioner(at)).ending
        os._exit(0 if ending == "done" else 1)
    _, status = os.waitpid(child, 0)
    code = os.waitstatus_to_exitcode(status)
    if code not in (0, -signal.SIGKILL):
        raise SystemExit(f"the training ended with {code}")
    return code == 0


def kill_until_done(model: str, out: Path, chance: random.Random) -> dict[str, int]:
    """Train once without a kill, once with many; how many there were."""
    start = time.perf_counter()
    ends_well(model, out / "whole", resume=False)
    seconds = time.perf_counter() - start
    kills = {"by_step": 0, "by_time": 0}
    for at in sorted(chance.sample(range(1, STEPS), 3)):
        kills["by_step"] += not ends_well(model, out / "killed", resume=True, at=at)
    while not ends_well(model, out / "killed", resume=True, after=chance.uniform(0.2, 1.1) * seconds):
        kills["by_time"] += 1
    return kills


def train_by_two(model: str, out: Path) -> None:
    """Train in two processes, with the variables that torchrun sets."""
    with socket.socket() as free:
        free.bind(("127.0.0.1", 0))
        port = str(free.getsockname()[1])
    children = []
    for rank in ("0", "1"):
        child = os.fork()
        if child == 0:
            os.environ |= {"RANK": rank, "LOCAL_RANK": rank, "WORLD_SIZE": "2"}
            os.environ |= {"MASTER_ADDR": "127.0.0.1", "MASTER_PORT": port}
            os._exit(0 if train(request(model, out, resume=False, changes=TWO)).ending == "done" else 1)
        children.append(child)
    if any(os.waitpid(child, 0)[1] for child in children):
        raise SystemExit("one of the two processes failed")


def main() -> None:
    out, seed, *models = sys.argv[1:]
    warnings.simplefilter("ignore")
    torch.set_num_threads(1)
    favor.load_plugin(Path(__file__).with_name("tiny_models.py"))
    # What takes seconds to import, once for all processes.
    import timm.layers  # noqa: F401

    open_data("digits")
    torch.optim.Adam(torch.nn.Linear(1, 1).parameters())
    ends_well("tiny_vit", Path(out) / "one", resume=False, changes=TWO)
    train_by_two("tiny_vit", Path(out) / "two")
    chance = random.Random(int(seed))  # noqa: S311 - no secrets here
    print(json.dumps({model: kill_until_done(model, Path(out) / model, chance) for model in models}))  # noqa: T201


if __name__ == "__main__":
    main()
