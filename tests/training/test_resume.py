"""A run that was killed goes on as if it never had been; a run that is asked to stop saves itself."""

from pathlib import Path

import pytest
import torch
from safetensors.torch import load_file

from favor.records.store import read
from favor.training.checkpoint import newest_checkpoint
from training.driven import MODELS, Driven

RUN = "-laptop-digits-digits-32px-seed0"


Killed = tuple[str, Path, dict[str, int]]
"""A model, a folder with its whole run and its killed one, and how often that was killed."""


@pytest.fixture(params=MODELS)
def killed(request: pytest.FixtureRequest, driven: Driven) -> Killed:
    return request.param, driven.out / request.param, driven.kills[request.param]


def test_a_run_that_was_killed_at_random_steps_and_moments_ends_bit_equal_to_one_that_never_was(
    killed: Killed,
) -> None:
    model, out, kills = killed
    assert kills["by_step"] == 3
    for name in ("step-000000015.safetensors", "best.safetensors", "step-000000015.state.safetensors"):
        whole, resumed = (load_file(out / part / "runs" / (model + RUN) / name) for part in ("whole", "killed"))
        assert whole.keys() == resumed.keys()
        assert all(torch.equal(whole[key], resumed[key]) for key in whole), name


def test_the_weights_of_a_killed_run_are_not_those_of_its_start(killed: Killed) -> None:
    model, out, _ = killed
    folder = out / "killed" / "runs" / (model + RUN)
    last, before = (load_file(folder / f"step-0000000{step}.safetensors") for step in (15, 14))
    assert any(not torch.equal(last[key], before[key]) for key in last)


def test_a_killed_run_writes_each_epoch_once_with_the_same_numbers_as_the_whole_one(
    killed: Killed,
) -> None:
    _, out, _ = killed
    whole, resumed = (read(out / part).records for part in ("whole", "killed"))
    assert [record.conditions["epochs"] for record in resumed] == [1, 2, 3]
    assert [record.request for record in resumed] == [record.request for record in whole]
    for metric in ("top1", "top5", "loss", "train_loss"):
        assert [r.metrics[metric].value for r in resumed] == [r.metrics[metric].value for r in whole], metric


def test_the_clocks_go_on_where_they_were(killed: Killed) -> None:
    model, out, _ = killed
    seconds = [record.environment for record in read(out / "killed").records]
    for clock in ("training_seconds", "evaluation_seconds", "program_seconds"):
        readings = [float(one[clock]) for one in seconds]
        assert readings == sorted(readings)
        assert readings[0] > 0
    found, _ = newest_checkpoint(out / "killed" / "runs" / (model + RUN))
    assert found is not None
    assert found.state.clocks.training >= float(seconds[-1]["training_seconds"]) - 1e-3
    assert found.state.clocks.program > found.state.clocks.training + found.state.clocks.evaluation
