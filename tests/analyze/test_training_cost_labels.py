"""Training costs are compared only if they were run alike: processes and micro-batches are part of the setting."""

import pandas as pd
import pytest

from favor.analyze.setting import Setting, numbered_settings


def settings(metric: str, *rows: dict[str, object]) -> list[Setting]:
    common = {"device": "cpu", "batch_size": 32, "batch": "given", "source": "measured", "epoch_images": 100}
    return numbered_settings(pd.DataFrame([common | row for row in rows]), ("device",), metric)[1]


@pytest.mark.parametrize("metric", ["train_memory", "train_memory_total"])
def test_memory_with_other_micro_batches_is_another_setting(metric: str) -> None:
    whole, split = {"processes": 1, "micro_batch_size": 32}, {"processes": 1, "micro_batch_size": 4}
    assert [setting.micro_batch_size for setting in settings(metric, whole, split)] == [None, 4]


@pytest.mark.parametrize("metric", ["train_memory", "train_step_time", "train_throughput", "train_hours_per_epoch"])
def test_a_cost_of_eight_processes_is_another_setting_than_that_of_one(metric: str) -> None:
    found = settings(metric, {"processes": 1, "micro_batch_size": 32}, {"processes": 8, "micro_batch_size": 32})
    assert [setting.processes for setting in found] == [None, 8]


def test_device_hours_of_one_and_of_eight_processes_are_compared() -> None:
    assert len(settings("train_device_hours_per_epoch", {"processes": 1}, {"processes": 8})) == 1


def test_one_process_with_whole_batches_is_the_same_setting_as_a_measured_step() -> None:
    assert len(settings("train_memory", {}, {"processes": 1, "micro_batch_size": 32})) == 1
