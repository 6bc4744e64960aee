"""A metric's own conditions: what is measured in two phases, or at two batch sizes, is not one ranking."""

from dataclasses import replace

import pandas as pd

from favor.analyze.assembling import assemble, comparable
from favor.analyze.run_settings import RunSettings
from favor.analyze.setting import in_run_setting
from favor.records.schema import CardFields, Record, Task, reading
from favor.records.table import table_of


def a_record(
    name: str, task: Task, metrics: dict[str, float], time: int = 0, device: str = "cpu", **more: str | int | float
) -> Record:
    return Record(
        name=name,
        model=CardFields(name, name, None, None, 2021, "own"),
        task=task,
        source="measured",
        conditions={"img_size": 224, "device": device, "precision": "fp32", **more},
        metrics={metric: reading(metric, value, method="test") for metric, value in metrics.items()},
        environment={"host": "lab", "device_name": "a processor", "threads": 2},
        time=f"2026-11-16T00:00:{time:02d}Z",
    )


def value_of(table: pd.DataFrame, name: str, column: str) -> object:
    return table.set_index("name").loc[name, column]


def test_what_an_image_costs_and_what_an_epoch_costs_are_two_metrics() -> None:
    records = [
        a_record("a", "inference", {"money_per_image": 1e-6, "carbon_per_image": 1e-4, "max_batch_size": 4000}),
        a_record("a", "training", {"train_money_per_epoch": 3.0, "train_max_batch_size": 90}, time=5, batch="given"),
    ]
    table = assemble(table_of(records))
    assert value_of(table, "a", "money_per_image") == 1e-6
    assert value_of(table, "a", "train_money_per_epoch") == 3.0
    assert (value_of(table, "a", "max_batch_size"), value_of(table, "a", "train_max_batch_size")) == (4000, 90)


def test_throughput_at_a_given_batch_size_is_another_setting_than_at_the_best() -> None:
    records = [
        a_record("a", "inference", {"throughput": 50.0}, batch="best"),
        a_record("b", "inference", {"throughput": 40.0}, batch="best"),
        a_record("c", "inference", {"throughput": 30.0}, batch="given", batch_size=1),
    ]
    table = assemble(table_of(records))
    assert str(value_of(table, "c", "throughput_setting")).endswith(", batch 1")
    kept, setting, dropped = comparable(table, "throughput")
    assert dropped == 1
    assert setting is not None
    assert setting.batch_size is None
    assert kept.set_index("name")["throughput"].dropna().to_dict() == {"a": 50.0, "b": 40.0}


def test_the_throughput_at_the_best_batch_size_stands_for_the_model_even_if_it_is_older() -> None:
    records = [
        a_record("a", "inference", {"throughput": 50.0}, batch="best"),
        a_record("a", "inference", {"throughput": 10.0}, time=9, batch="given", batch_size=1),
    ]
    table = table_of(records)
    assert value_of(assemble(table), "a", "throughput") == 50.0
    assert value_of(assemble(table, setting=RunSettings(table).best(["throughput"])), "a", "throughput") == 50.0


def test_the_batch_size_of_what_others_measured_makes_no_setting_of_its_own() -> None:
    imported = {"name": ["a", "b"], "source": "imported", "device": "a100", "throughput": [9.0, 8.0]}
    table = assemble(pd.DataFrame({**imported, "batch_size": [256, 128]}))
    assert set(table["throughput_setting"].map(str)) == {"a100"}


def test_process_memory_of_a_training_is_a_metric_of_its_own_also_in_older_records() -> None:
    records = [
        a_record("a", "inference", {"memory_process": 1e9}, batch="best"),
        a_record("a", "training", {"memory_process": 3e9, "memory_reserved": 2e9}, batch="best"),
    ]
    table = assemble(table_of(records))
    assert value_of(table, "a", "memory_process") == 1e9
    assert value_of(table, "a", "train_memory_process") == 3e9
    assert value_of(table, "a", "train_memory_reserved") == 2e9


def test_what_depends_on_a_limit_or_a_price_says_which() -> None:
    records = [
        a_record("a", "inference", {"max_batch_size": 4.0, "money_per_image": 1.0}, fit_memory=2**33, price_per_hour=2),
        a_record("b", "training", {"train_hours_per_epoch": 4.0}, epoch_images=1_281_167),
    ]
    table = assemble(table_of(records)).set_index("name")
    assert str(table.loc["a", "max_batch_size_setting"]).endswith(", memory 8 GiB")
    assert str(table.loc["a", "money_per_image_setting"]).endswith(", price 2 per hour")
    assert str(table.loc["b", "train_hours_per_epoch_setting"]).endswith(", epoch of 1281167 images")


def test_a_run_setting_covers_a_metric_under_whatever_own_conditions() -> None:
    records = [a_record("a", "inference", {"throughput": 5.0, "max_batch_size": 4.0}, fit_memory=10, batch="best")]
    table = table_of(records)
    setting = RunSettings(table).best(["throughput", "max_batch_size"])
    assert setting is not None
    assembled = assemble(table, setting=setting)
    assert in_run_setting(assembled["max_batch_size_setting"], setting).all()
    assert in_run_setting(assembled["throughput_setting"], setting).all()
    assert not in_run_setting(pd.Series([replace(setting, layout="channels_last")]), setting).any()
