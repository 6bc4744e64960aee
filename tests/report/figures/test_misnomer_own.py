"""The misnomer's Figures 1, 2, 3, 4, 5a and 5b from the reader's own trainings."""

from typing import Any

import pandas as pd
import pytest

from favor.analyze.learning_curves import learning_curves
from favor.analyze.trainings import Scope
from favor.records import CardFields, Record, reading, table_of
from favor.report.figures import all_figures
from favor.report.figures.indicator_scatter import indicator_pairs
from favor.report.figures.learning_curves import curve_plots, flip_sentence, schedules_figure, weight_decays_figure
from favor.report.figures.misnomer import depth_or_width_figure
from favor.report.figures.quality_over_costs import OTHERS, cost_plots, families_figure, families_of, quality_figure

FAMILIES = {"vit_xs4": "vit", "universal": "universal", "switch_xs": "switch"}


def family(name: str) -> str:
    return next(family for start, family in FAMILIES.items() if name.startswith(start))


def a_record(name: str, task: str, metrics: dict[str, float], **conditions: Any) -> Record:
    return Record(
        name=name,
        model=CardFields(family(name), family(name), None, None, 2021, "own"),
        task=task,  # type: ignore[arg-type]
        source="measured",
        conditions={"img_size": 32, **conditions},
        metrics={metric: reading(metric, value, method="test") for metric, value in metrics.items()},
        environment={"host": "lab", "device_name": "a processor", "torch": "2.15.0", "threads": 2},
        time="2026-11-17T00:00:00Z",
    )


def a_model(name: str, top1: float, params: float, throughput: float) -> list[Record]:
    """What `favor run misnomer` finds of a model."""
    return [
        a_record(name, "count", {"params": params, "macs": params * 70}, num_classes=10),
        a_record(name, "inference", {"throughput": throughput}, device="cpu", precision="fp32", batch="best"),
        *a_training(name, [top1]),
    ]


def a_training(
    name: str, top1: list[float], of: int | None = None, weight_decay: float = 0.05, seed: int = 0
) -> list[Record]:
    epochs = len(top1) if of is None else of
    return [
        a_record(
            name,
            "accuracy",
            {"top1": value, "train_device_hours_per_epoch": 0.1},
            dataset="cifar10",
            pipeline=f"p@1 epochs={epochs} weight_decay={weight_decay}",
            pretraining="none",
            distillation=False,
            batch_size=100,
            device="cpu",
            precision="fp32",
            **{"recipe.epochs": epochs, "recipe.weight_decay": weight_decay, "recipe.seed": seed, "epoch_images": 1000},
            epochs=epoch,
            final=epoch == epochs,
        )
        for epoch, value in enumerate(top1, start=1)
    ]


@pytest.fixture(scope="module")
def table() -> pd.DataFrame:
    models = (
        a_model("vit_xs4", 60.0, 3e5, 300.0),
        a_model("vit_xs4_d2", 55.0, 1.6e5, 500.0),
        a_model("vit_xs4_d8", 64.0, 6e5, 150.0),
        a_model("vit_xs4_w64", 54.0, 1.5e5, 450.0),
        a_model("vit_xs4_w160", 66.0, 8e5, 120.0),
        a_model("universal_xs4_w96", 57.0, 1e5, 300.0),
        a_model("switch_xs4", 62.0, 7.5e5, 250.0),
    )
    return table_of([record for model in models for record in model])


def test_kinds_are_drawn_over_each_cost_with_own_accuracies(table: pd.DataFrame) -> None:
    figure = quality_figure(table)
    assert figure.chart is not None
    assert "top-1 accuracy measured (cifar10" in figure.caption
    plots = figure.chart.to_dict()["concat"]
    assert [plot["title"] for plot in plots] == ["Parameters", "Multiply-adds", "Throughput"]
    drawn = {row["name"]: (row["series"], row["y"]) for row in plots[0]["data"]["values"]}
    assert drawn["switch_xs4"] == ("Switch Transformer", 62.0)
    assert "vit_xs4_d2" not in drawn


def test_without_a_second_kind_there_is_no_comparison(table: pd.DataFrame) -> None:
    assert quality_figure(table[table["family"] == "vit"]).chart is None


def test_depth_and_width_use_the_small_ladders_that_were_trained(table: pd.DataFrame) -> None:
    figure = depth_or_width_figure(table)
    assert figure.chart is not None
    assert "top-1 accuracy measured (cifar10" in figure.caption
    rows = figure.chart.to_dict()["concat"][0]["data"]["values"]
    ways = {(row["name"], row["way"]) for row in rows}
    assert {("vit_xs4", "depth"), ("vit_xs4", "width"), ("vit_xs4_d8", "depth"), ("vit_xs4_w160", "width")} <= ways


def test_a_family_of_one_model_is_a_dot_without_a_line(table: pd.DataFrame) -> None:
    rows = table[table["top1"].notna()]
    assert families_of(rows) == {name: "vit" if family(name) == "vit" else OTHERS for name in rows["name"]}
    assert families_figure(table).chart is not None


def test_the_scope_chooses_the_accuracies() -> None:
    names = ("vit_xs4", "vit_xs4_d2", "vit_xs4_d8", "vit_xs4_w64", "vit_xs4_w160", "universal_xs4_w96", "switch_xs4")
    records = [
        record
        for size, name in enumerate(names, start=1)
        for record in (
            *a_training(name, [40.0], weight_decay=0.5),
            *a_training(name, [30.0], of=3),
            *a_model(name, 60.0, size * 1e5, 1000.0 / size),
            *a_training(name, [70.0], seed=1),
        )
    ]
    pipeline = "p@1 epochs=1 weight_decay=0.5"
    for scope, expected in (
        (Scope(), 65.0),
        (Scope(seeds="best"), 70.0),
        (Scope(pipeline=pipeline), 40.0),
        (Scope(unfinished=True), 30.0),
    ):
        charts = {figure.id: figure.chart for figure in all_figures(table_of(records), scope)}
        for name in ("misnomer-quality", "misnomer-depth-width", "misnomer-families"):
            chart = charts[name]
            assert chart is not None
            assert {row["y"] for row in chart.to_dict()["concat"][0]["data"]["values"]} == {expected}


def test_points_of_a_cost_plot_are_in_the_axes_units() -> None:
    rows = pd.DataFrame({"name": ["a", "b"], "params": [2e6, 4e6], "top1": [50.0, 60.0]})
    [plot] = cost_plots(rows, {"a": "x", "b": "y"})
    assert [(point.x, point.y) for point in plot.points] == [(2.0, 50.0), (4.0, 60.0)]


def test_indicators_are_paired_if_five_models_have_both() -> None:
    rows = pd.DataFrame({"name": list("abcde"), "how": None, "params": [1e6, 2e6, 3e6, 4e6, 5e6]})
    rows = rows.assign(macs=[5e9, 4e9, 3e9, 2e9, 1e9], throughput=[1.0, 2.0, 3.0, 4.0, None])
    [pair] = indicator_pairs(rows)
    assert (pair.x.column, pair.y.column) == ("params", "macs")
    assert pair.spearman == pytest.approx(-1.0)


def test_two_schedules_are_drawn_with_their_late_flip_and_two_weight_decays_apart_from_them() -> None:
    short, long = a_training("vit_xs4", [60.0, 65.0]), a_training("vit_xs4", [50.0, 60.0, 66.0, 70.0])
    decayed = a_training("vit_xs4", [45.0, 62.0, 68.0, 75.0], weight_decay=0.5)
    table = table_of([*short, *long, *decayed])
    schedules, decays = schedules_figure(table), weight_decays_figure(table)
    flip = "vit_xs4 (epochs=2, weight_decay=0.05) leads until 2 epochs (by up to 10.0 points) and is 5.0 points behind"
    assert flip in schedules.caption
    assert "weight_decay=0.5)" not in schedules.caption
    assert "vit_xs4 (epochs=4, weight_decay=0.05) leads until 1 epochs (by up to 5.0 points)" in decays.caption
    assert schedules.chart is not None
    assert [plot["title"] for plot in schedules.chart.to_dict()["concat"]] == ["Epochs", "Steps", "Device time"]
    priced = schedules_figure(table.assign(price_per_hour=2.5))
    assert priced.chart is not None
    assert "Over money: vit_xs4 (epochs=2, weight_decay=0.05) leads until 0.5 currency" in priced.caption
    money = priced.chart.to_dict()["concat"][-1]
    assert (money["title"], max(row["x"] for row in money["data"]["values"])) == ("Money", 1.0)


def test_curves_without_a_flip_say_so_and_a_single_training_is_not_drawn() -> None:
    table = table_of([*a_training("vit_xs4", [60.0, 65.0]), *a_training("vit_xs4", [61.0, 68.0, 70.0])])
    assert flip_sentence(curve_plots(learning_curves(table))[:1]) == "Over epochs: no late flip."
    assert weight_decays_figure(table).chart is None
