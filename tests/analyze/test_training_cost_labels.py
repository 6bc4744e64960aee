"""Training costs are compared only if they were run alike: processes, micro-batches, optimizer and batch size."""

import pandas as pd
import pytest
from msgspec.structs import replace

from favor.analyze.comparison import Comparison
from favor.analyze.setting import Setting, numbered_settings
from favor.metrics import METRICS
from favor.records import Record, reading, table_of
from favor.records.published import card_fields

MEMORIES = ("train_memory", "train_memory_total", "train_memory_process", "train_memory_reserved")
STEP_TIMES = ("train_step_time", "train_throughput", "train_step_time_end_to_end", "pipeline_idle_time")


def settings(metric: str, *rows: dict[str, object]) -> list[Setting]:
    common = {"device": "cpu", "batch_size": 32, "batch": "given", "source": "measured", "epoch_images": 100}
    return numbered_settings(pd.DataFrame([common | row for row in rows]), ("device",), metric)[1]


@pytest.mark.parametrize("metric", [*MEMORIES, *STEP_TIMES])
def test_a_cost_with_other_micro_batches_is_another_setting(metric: str) -> None:
    whole, split = {"processes": 1, "micro_batch_size": 32}, {"processes": 1, "micro_batch_size": 4}
    assert [setting.micro_batch_size for setting in settings(metric, whole, split)] == [None, 4]


@pytest.mark.parametrize("metric", [*MEMORIES, *STEP_TIMES, "train_hours_per_epoch"])
def test_a_cost_of_eight_processes_is_another_setting_than_that_of_one(metric: str) -> None:
    found = settings(metric, {"processes": 1, "micro_batch_size": 32}, {"processes": 8, "micro_batch_size": 32})
    assert [setting.processes for setting in found] == [None, 8]


def test_device_hours_of_one_and_of_eight_processes_are_compared() -> None:
    assert len(settings("train_device_hours_per_epoch", {"processes": 1}, {"processes": 8})) == 1


@pytest.mark.parametrize("metric", [*MEMORIES, *STEP_TIMES])
def test_one_process_with_whole_batches_is_the_same_setting_as_a_measured_step(metric: str) -> None:
    assert len(settings(metric, {}, {"processes": 1, "micro_batch_size": 32})) == 1


STEP_COSTS = ("train_memory", "train_step_time", "train_throughput", "train_hours_per_epoch", "train_energy_per_image")
OF_A_PIPELINE = ("train_device_hours", "finetune_time", "train_energy", "train_carbon", "train_money")


def training(name: str, optimizer: str = "lamb", task: str = "training", **conditions: object) -> Record:
    """Costs of training as `favor measure` records them, or with the task "accuracy" as `favor train` does."""
    how = {"optimizer": optimizer, "reference_batch": 2048, "epoch_images": 1000}
    recipe = {"recipe.optimizer": optimizer, "epoch_images": 1000}
    return Record(
        name=name,
        model=card_fields()[name],
        task=task,
        source="measured",
        conditions={"img_size": 224, "device": "cpu", **(how if task == "training" else recipe), **conditions},
        metrics={metric: reading(metric, 10.0, method="test") for metric in STEP_COSTS},
        environment={"host": "lab", "device_name": "a processor", "threads": 2, "torch": "2"},
    )


def compared(metric: str, *records: Record) -> int:
    """How many models are in one column."""
    rows = Comparison(table_of(records)).compare([metric]).rows
    return int(rows[metric].notna().sum())


GIVEN = {"batch": "given", "batch_size": 8}


@pytest.mark.parametrize("metric", STEP_COSTS)
def test_costs_with_different_optimizers_are_not_compared(metric: str) -> None:
    with_lamb = training("vit_s16", "lamb", **GIVEN)
    assert compared(metric, with_lamb, training("swin_ti", "lamb", **GIVEN)) == 2
    assert compared(metric, with_lamb, training("swin_ti", "sgd", **GIVEN)) == 1
    trained = training("swin_ti", "sgd", "accuracy", batch_size=8, **{"recipe.batch_size": 8})
    assert compared(metric, with_lamb, trained) == 1
    assert compared(metric, training("vit_s16", "sgd", **GIVEN), trained) == 2


@pytest.mark.parametrize("metric", ["train_memory", "train_step_time", "train_throughput", "train_energy_per_image"])
def test_trainings_with_different_batch_sizes_are_not_compared(metric: str) -> None:
    small, large = (
        training(name, "lamb", "accuracy", batch_size=size, **{"recipe.batch_size": size})
        for name, size in (("vit_s16", 64), ("swin_ti", 1024))
    )
    assert compared(metric, small, large) == 1


def test_memory_at_the_best_batch_sizes_of_two_models_is_not_compared() -> None:
    models = [training(name, batch="best", micro_batch_size=size) for name, size in (("vit_s16", 4), ("swin_ti", 32))]
    assert compared("train_memory", *models) == 1
    assert compared("train_step_time", *models) == 2
    assert compared("train_throughput", *models) == 2


@pytest.mark.parametrize("metric", ["train_step_time", "train_throughput"])
def test_the_reference_batch_counts_where_the_batch_size_is_searched(metric: str) -> None:
    references = {"vit_s16": 64, "swin_ti": 128}
    searched = [training(name, batch="best", reference_batch=size) for name, size in references.items()]
    given = [training(name, reference_batch=size, **GIVEN) for name, size in references.items()]
    assert compared(metric, *searched) == 1
    assert compared(metric, *given) == 2


def test_every_cost_of_a_training_step_depends_on_the_optimizer() -> None:
    whole = {*OF_A_PIPELINE, "train_loss"}
    of_training = {name for name in METRICS if name.startswith("train_")} - whole
    assert {name for name in of_training if "optimizer" not in METRICS[name].conditions} == set()


@pytest.mark.parametrize("metric", OF_A_PIPELINE)
def test_costs_of_whole_trainings_are_compared_on_one_data_set_and_in_one_pipeline(metric: str) -> None:
    def whole(name: str, dataset: str = "cifar10", pipeline: str = "laptop-cifar10@1") -> Record:
        record = training(name, task="accuracy", dataset=dataset, pipeline=pipeline)
        return replace(record, metrics={metric: reading(metric, 10.0, method="test")})

    assert compared(metric, whole("vit_s16"), whole("swin_ti")) == 2
    assert compared(metric, whole("vit_s16"), whole("swin_ti", dataset="digits")) == 1
    assert compared(metric, whole("vit_s16"), whole("swin_ti", pipeline="laptop-cifar10@1 epochs=2")) == 1
