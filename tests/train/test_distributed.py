"""Two processes give what one gives."""

from pathlib import Path

import pytest
import torch
from safetensors.torch import load_file

from favor.records.store import read
from train.driven import Driven

LAST = Path("runs/tiny_vit-laptop-digits-digits-32px-seed0/step-000000010.safetensors")


def test_two_processes_end_with_the_weights_of_one(driven: Driven) -> None:
    two, one = load_file(driven.out / "two" / LAST), load_file(driven.out / "one" / LAST)
    assert max(float((two[name] - one[name]).abs().max()) for name in one) < 1e-5
    assert max(float(weight.abs().max()) for weight in one.values()) > 0.5


def test_the_weights_have_moved_by_far_more_than_the_tolerance(driven: Driven) -> None:
    last, before = (
        load_file(driven.out / "one" / LAST),
        load_file(driven.out / "one" / LAST.with_name("step-000000009.safetensors")),
    )
    assert max(float((last[name] - before[name]).abs().max()) for name in last) > 1e-2
    assert all(torch.isfinite(weight).all() for weight in last.values())


def test_two_processes_write_each_epoch_once_with_the_scores_of_one(driven: Driven) -> None:
    two, one = read(driven.out / "two").records, read(driven.out / "one").records
    assert [record.request for record in two] == [record.request for record in one]
    assert [record.conditions["epochs"] for record in two] == [1, 2]
    for metric in ("top1", "top5", "loss", "train_loss"):
        values = [[record.metrics[metric].value for record in records] for records in (two, one)]
        assert values[0] == pytest.approx(values[1], abs=1e-4), metric
    assert [record.metrics["top1"].method for record in two] == ["each of 360 images once"] * 2
    assert {record.environment["processes"] for record in two} == {2}
