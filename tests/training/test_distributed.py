"""Two processes give what one gives."""

from pathlib import Path

import pytest
import torch
from safetensors.torch import load_file

from favor.machine.device import find_device
from favor.machine.energy import EnergyMeter
from favor.records.store import read
from favor.training import distributed, energy
from favor.training.callbacks import Nobody
from favor.training.distributed import device_of_this_process, workers_of_this_process
from training.driven import Driven

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
    as_run = {"processes", "micro_batch_size"}
    shared = [
        [dict(r.conditions.items() - {(key, r.conditions[key]) for key in as_run}) for r in s] for s in (two, one)
    ]
    assert shared[0] == shared[1]
    assert [record.conditions["epochs"] for record in two] == [1, 2]
    for metric in ("top1", "top5", "loss", "train_loss"):
        values = [[record.metrics[metric].value for record in records] for records in (two, one)]
        assert values[0] == pytest.approx(values[1], abs=1e-4), metric
    assert [record.metrics["top1"].method for record in two] == ["each of 360 images once"] * 2
    assert {record.environment["processes"] for record in two} == {2}


def test_costs_are_labeled_with_the_processes_and_given_for_the_largest_and_for_all(driven: Driven) -> None:
    two, one = read(driven.out / "two").records[-1], read(driven.out / "one").records[-1]
    labels = [[record.conditions[key] for key in ("processes", "micro_batch_size")] for record in (two, one)]
    assert labels == [[2, one.conditions["batch_size"] // 2], [1, one.conditions["batch_size"]]]  # type: ignore[operator]
    largest, total = (two.metrics[name].value for name in ("train_memory", "train_memory_total"))
    assert largest < one.metrics["train_memory"].value
    assert total == pytest.approx(2 * largest, rel=0.02)
    assert one.metrics["train_memory_total"].value == one.metrics["train_memory"].value
    for record, processes in ((two, 2), (one, 1)):
        hours = record.metrics["train_hours_per_epoch"].value
        assert record.metrics["train_device_hours_per_epoch"].value == pytest.approx(processes * hours)
        spent = record.environment["training_seconds"]
        rounding = 0.001 * processes / 3600  # the environment has milliseconds
        hours_of_all = pytest.approx(processes * spent / 3600, abs=rounding)  # type: ignore[operator]
        assert record.metrics["train_device_hours"].value == hours_of_all


@pytest.mark.parametrize(
    ("wanted", "found"), [(None, "cuda:3"), ("cuda", "cuda:3"), ("cuda:1", "cuda:1"), ("cpu", "cpu")]
)
def test_each_process_of_a_machine_has_a_gpu_of_its_own(
    wanted: str | None, found: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(torch.cuda, "is_available", lambda: True)
    monkeypatch.setenv("LOCAL_RANK", "3")
    assert device_of_this_process(wanted) == found


def test_the_processes_of_a_machine_share_its_cores(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(distributed, "usable_threads", lambda: 16)
    assert workers_of_this_process(None) == 16
    monkeypatch.setenv("LOCAL_WORLD_SIZE", "4")
    assert (workers_of_this_process(None), workers_of_this_process(7)) == (4, 7)
    monkeypatch.setenv("LOCAL_WORLD_SIZE", "64")
    assert workers_of_this_process(None) == 1


class Meter:
    method = "counted"

    def start(self) -> None:
        """Nothing happens."""

    def stop(self) -> float:
        return 5.0


def test_the_energy_of_one_device_is_not_told_of_the_images_of_several(monkeypatch: pytest.MonkeyPatch) -> None:
    meter: EnergyMeter = Meter()
    monkeypatch.setattr(energy, "find_energy_meter", lambda *_: meter)
    for processes, joules in ((1, 5.0), (2, None)):
        measured = energy.training_energy(find_device("cpu"), processes, Nobody())
        measured.start()
        assert measured.stop() == joules
