"""`favor budget` on records as users make them: unfinished runs, several seeds, changed recipes, two machines."""

import json
from pathlib import Path
from typing import Any

import pytest
from msgspec.structs import replace
from typer.testing import CliRunner

from favor.analyze.budget import over_budget, reached_at
from favor.analyze.learning_curves import LearningCurve, learning_curves
from favor.cli import app
from favor.errors import RequestError
from favor.records import CardFields, Record, append, reading, table_of

EPOCH_IMAGES = 1000


def a_run(
    name: str,
    top1: list[float],
    *,
    of: int | None = None,
    seed: int = 0,
    hours: float = 0.5,
    host: str = "lab",
    **more: Any,
) -> list[Record]:
    """The records of a training, one per epoch, as `favor train` writes them; it is finished after `of` epochs."""
    energy = more.pop("energy", None)
    planned = len(top1) if of is None else of
    metrics = {"train_device_hours_per_epoch": reading("train_device_hours_per_epoch", hours, method="test")}
    if energy is not None:
        metrics["train_energy_per_image"] = reading("train_energy_per_image", energy, method="test")
    return [
        Record(
            name=name,
            model=CardFields(name, name, None, None, 2021, "own"),
            task="accuracy",
            source="measured",
            conditions={
                "dataset": "cifar10",
                "pipeline": "laptop-cifar10@1",
                "pretraining": "none",
                "distillation": False,
                "img_size": 32,
                "batch_size": 100,
                "device": "cpu",
                "precision": "fp32",
                "recipe.name": "laptop-cifar10",
                "recipe.weight_decay": 0.05,
                "recipe.epochs": planned,
                "recipe.seed": seed,
                "epochs": epoch,
                "epoch_images": EPOCH_IMAGES,
                "final": epoch == planned,
                **more,
            },
            metrics={"top1": reading("top1", value, method="test"), **metrics},
            environment={"host": host, "device_name": "a processor", "torch": "2.15.0", "threads": 2},
            time=f"2026-11-17T00:00:{epoch:02d}Z",
        )
        for epoch, value in enumerate(top1, start=1)
    ]


def curves_of(*runs: list[Record], **options: Any) -> dict[str, LearningCurve]:
    curves = learning_curves(table_of([record for run in runs for record in run]), **options)
    return {curve.run: curve for curve in curves}


def budget(folder: Path, *runs: list[Record], options: tuple[str, ...] = ()) -> Any:
    append(folder, [record for run in runs for record in run])
    return CliRunner().invoke(app, ["budget", str(folder), *options], catch_exceptions=False)


def test_a_curve_says_what_was_spent_until_each_evaluation() -> None:
    curve = curves_of(a_run("vit", [40.0, 60.0], energy=2.0), price_per_hour=3.0)["vit"]
    assert [(p.epochs, p.images, p.steps, p.hours, p.energy, p.money) for p in curve.points] == [
        (1, 1000, 10, 0.5, 2000.0, 1.5),
        (2, 2000, 20, 1.0, 4000.0, 3.0),
    ]


def test_seeds_are_averaged_and_an_unfinished_one_is_left_out() -> None:
    [curve] = curves_of(
        a_run("vit", [40.0, 60.0], hours=1.0),
        a_run("vit", [50.0, 70.0], hours=2.0, seed=1),
        a_run("vit", [0.0], of=2, seed=2),
    ).values()
    assert (curve.seeds, curve.unfinished_seeds, curve.finished) == (2, 1, True)
    assert [(point.top1, point.hours) for point in curve.points] == [(45.0, 1.5), (65.0, 3.0)]


def test_unfinished_seeds_alone_are_averaged_as_far_as_all_of_them_are() -> None:
    [curve] = curves_of(a_run("vit", [40.0, 60.0], of=5), a_run("vit", [50.0], of=5, seed=1)).values()
    assert (curve.seeds, curve.unfinished_seeds, curve.finished, curve.planned_epochs) == (2, 2, False, 5)
    assert [point.top1 for point in curve.points] == [45.0]


def test_seeds_of_a_training_of_so_many_minutes_end_at_different_epochs() -> None:
    def in_minutes(seed: int, last: float) -> list[Record]:
        first, final = a_run("vit", [40.0, 50.0 + seed], seed=seed, minutes=5)
        return [*of_minutes([first]), *of_minutes([final], epochs=last)]

    [curve] = curves_of(in_minutes(0, 1.5), in_minutes(1, 1.7)).values()
    assert [(point.epochs, point.top1) for point in curve.points] == [(1, 40.0), (1.6, 50.5)]


def of_minutes(records: list[Record], **more: Any) -> list[Record]:
    """The records without the recipe's epochs, which a training of so many minutes does not have."""
    return [
        replace(
            record,
            conditions={key: value for key, value in record.conditions.items() if key != "recipe.epochs"} | more,
        )
        for record in records
    ]


def test_two_trainings_of_a_model_are_named_by_what_differs() -> None:
    runs = curves_of(
        a_run("vit", [40.0, 60.0]),
        a_run("vit", [30.0, 65.0], **{"recipe.weight_decay": 0.3, "pipeline": "laptop-cifar10@1 weight_decay=0.3"}),
        a_run("mixer", [30.0, 50.0]),
    )
    assert list(runs) == ["vit (weight_decay=0.05)", "vit (weight_decay=0.3)", "mixer"]
    assert [curve.seeds for curve in runs.values()] == [1, 1, 1]


def test_own_recipes_of_one_name_and_version_are_told_apart_by_their_values() -> None:
    assert set(curves_of(a_run("vit", [1.0]), a_run("vit", [2.0], **{"recipe.lr": 0.1}))) == {
        "vit (lr=none)",
        "vit (lr=0.1)",
    }


def test_a_run_that_was_resumed_elsewhere_is_one_curve_with_the_costs_of_both_parts() -> None:
    before = a_run("vit", [40.0, 60.0], of=4, hours=1.0, processes=8, micro_batch_size=12)
    after = a_run("vit", [0.0, 0.0, 70.0, 80.0], of=4, hours=3.0, processes=4, micro_batch_size=25, host="home")[2:]
    [curve] = curves_of(before, after).values()
    assert (curve.finished, curve.seeds, curve.unfinished_seeds) == (True, 1, 0)
    assert [point.hours for point in curve.points] == [1.0, 2.0, 5.0, 8.0]
    assert curve.machine.count("host") == 2
    back = a_run("vit", [0.0] * 3 + [80.0], of=4, hours=1.0, processes=8, micro_batch_size=12)[3:]
    [curve] = curves_of(before, after[:1], back).values()
    assert [point.hours for point in curve.points] == [1.0, 2.0, 5.0, 6.0]


def test_two_runs_from_the_start_are_two_curves_even_if_one_is_unfinished() -> None:
    here, there = a_run("vit", [40.0, 60.0], of=4), a_run("vit", [40.0, 60.0, 70.0, 80.0], host="home")
    assert [len(curve.points) for curve in curves_of(here, there).values()] == [2, 4]
    mixed = [record for both in zip(here, there, strict=False) for record in both] + there[2:]
    assert [len(curve.points) for curve in curves_of(mixed).values()] == [2, 4]


def test_runs_with_other_micro_batches_cost_other_hours_and_are_named_by_them() -> None:
    runs = curves_of(
        a_run("vit", [40.0], hours=1.0, processes=1, micro_batch_size=100),
        a_run("vit", [40.0], hours=3.0, processes=1, micro_batch_size=10),
    )
    assert {name: curve.last.hours for name, curve in runs.items()} == {
        "vit (micro_batch_size=100)": 1.0,
        "vit (micro_batch_size=10)": 3.0,
    }
    one, two = a_run("vit", [40.0], processes=1), a_run("vit", [40.0], processes=2)
    assert list(curves_of(one, two)) == ["vit (processes=1)", "vit (processes=2)"]


def test_a_short_schedule_that_has_ended_is_compared_with_a_long_one() -> None:
    runs = curves_of(a_run("vit", [60.0, 70.0]), a_run("vit", [50.0, 60.0, 70.0, 80.0]))
    result = over_budget(tuple(runs.values()), "images", margin=1.0).comparison
    assert result is not None
    [flip] = result.flips
    assert (flip.leads_early, flip.leads_late) == ("vit (epochs=2)", "vit (epochs=4)")
    assert (flip.until, flip.final_budget, flip.early_lead, flip.final_deficit) == (2000, 4000, 10.0, 10.0)


def test_an_unfinished_run_is_compared_only_as_far_as_it_is() -> None:
    runs = curves_of(a_run("short", [60.0, 70.0], of=4), a_run("long", [50.0, 60.0, 70.0, 80.0]))
    result = over_budget(tuple(runs.values())).comparison
    assert result is not None
    assert (result.pairs, result.flips) == (1, ())


def test_hours_are_interpolated_and_compared_only_on_one_machine() -> None:
    fast = a_run("fast", [60.0, 62.0], hours=0.5)
    slow = a_run("slow", [50.0, 70.0], hours=1.0)
    [flip] = over_budget(tuple(curves_of(fast, slow).values()), "hours").comparison.flips  # type: ignore[union-attr]
    assert (flip.leads_early, flip.until, flip.final_budget) == ("fast", 1.0, 2.0)
    elsewhere = a_run("slow", [50.0, 70.0], hours=1.0, host="home")
    apart = tuple(curves_of(fast, elsewhere).values())
    assert over_budget(apart, "hours").comparison is None
    assert over_budget(apart, "epochs").comparison is not None


def test_images_to_reach_an_accuracy_are_interpolated_or_not_reached() -> None:
    curve = curves_of(a_run("vit", [40.0, 60.0, 55.0]))["vit"]
    reached = reached_at(curve, 50.0)
    assert reached is not None
    assert (reached.images, reached.epochs, reached.hours, reached.energy) == (1500.0, 1.5, 0.75, None)
    assert reached_at(curve, 60.1) is None
    at_first = reached_at(curve, 30.0)
    assert at_first is not None
    assert (at_first.at_first, at_first.images) == (True, 1000.0)


def test_the_command_prints_numbers_with_units_and_what_is_unfinished(tmp_path: Path) -> None:
    done = budget(
        tmp_path,
        a_run("short", [60.0, 70.0, 71.0]),
        a_run("long", [50.0, 60.0, 80.0]),
        a_run("begun", [30.0], of=3),
        options=("--reach", "75", "--over", "images", "--price-per-hour", "4"),
    )
    assert done.exit_code == 0, done.output
    text = " ".join(done.output.split())
    assert "1,000 img" in text
    assert "6 currency" in text
    assert "not reached" in text
    assert "2,750 img" in text
    assert "short leads long until 2,000 img (by up to 10.0 points), and is 9.0 points behind at 3,000 img." in text
    assert "begun is unfinished: 1 of 3 epochs" in text


def test_json_has_curves_units_and_flips(tmp_path: Path) -> None:
    options = ("--json", "--reach", "90", "--grid-intensity", "360")
    answer = json.loads(budget(tmp_path, a_run("vit", [40.0, 60.0], energy=5.0), options=options).stdout)
    assert answer["units"]["energy"] == "J"
    assert (answer["reached"], answer["comparison"], answer["carbon"]) == ([None], None, [1.0])
    assert [point["energy"] for point in answer["curves"][0]["points"]] == [5000.0, 10000.0]


def test_price_and_carbon_intensity_of_the_records_are_used_unless_others_are_given() -> None:
    run = a_run("vit", [40.0, 60.0], energy=5.0, price_per_hour=4.0, grid_intensity=360.0)
    own, given = learning_curves(table_of(run)), learning_curves(table_of(run), price_per_hour=1.0)
    assert (own[0].last.money, given[0].last.money) == (4.0, 1.0)
    assert over_budget(own).carbon == (1.0,)
    assert over_budget(own, grid_intensity=720.0).carbon == (2.0,)


@pytest.mark.parametrize(
    ("options", "why"),
    [
        (("--over", "energy"), "no training run has energy"),
        (("--over", "money"), "--price-per-hour"),
        (("--dataset", "digits"), "no training run is on digits"),
    ],
)
def test_what_is_not_known_is_refused_with_the_reason(tmp_path: Path, options: tuple[str, ...], why: str) -> None:
    with pytest.raises(RequestError, match=why):
        budget(tmp_path, a_run("vit", [40.0, 60.0]), options=options)


def test_trainings_on_two_data_sets_need_a_choice(tmp_path: Path) -> None:
    runs = a_run("vit", [40.0]), a_run("vit", [50.0], dataset="digits")
    with pytest.raises(RequestError, match="choose with --dataset: cifar10, digits"):
        budget(tmp_path, *runs)
    assert curves_of(*runs, dataset="digits")["vit"].last.top1 == 50.0


def test_a_study_without_trainings_is_refused() -> None:
    with pytest.raises(RequestError, match="no training"):
        learning_curves(table_of([]))
