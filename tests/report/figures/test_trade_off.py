"""Quality against a cost: fronts, flags and what is drawn."""

from typing import Any

import pandas as pd
import pytest

from favor.report.figures.fronts import front_sentences
from favor.report.figures.scatter import marks_sentence, scatter_layers
from favor.report.figures.trade_off import TradeOff, trade_off, trade_off_layers, trade_off_panels


def table(*rows: tuple[str, float, float, int], **columns: Any) -> pd.DataFrame:
    names = ("name", "throughput", "top1", "img_size")
    return pd.DataFrame([dict(zip(names, row, strict=True)) for row in rows]).assign(how="kernel", **columns)


FIVE = (
    ("fast", 100.0, 70.0, 224),
    ("good", 10.0, 80.0, 224),
    ("worse", 9.0, 79.0, 224),
    ("good", 5.0, 80.5, 384),
    ("fast", 40.0, 71.0, 384),
)


def corners(info: TradeOff) -> list[tuple[str, float]]:
    return [(corner.name, corner.x) for corner in info.front]


def test_the_front_is_who_nobody_beats_from_the_slowest_up() -> None:
    info = trade_off(table(*FIVE), "throughput", base_size=224)
    assert corners(info) == [("good", 5.0), ("good", 10.0), ("fast", 40.0), ("fast", 100.0)]
    assert [point.named for point in info.scatter.points] == [True, True, False, True, True]


def test_the_high_resolution_front_is_that_of_larger_images_alone() -> None:
    info = trade_off(table(*FIVE), "throughput", base_size=224)
    assert [(corner.name, corner.x) for corner in info.high_resolution] == [("good", 5.0), ("fast", 40.0)]
    assert trade_off(table(*FIVE), "throughput", base_size=384).high_resolution == ()
    assert trade_off(table(*FIVE), "throughput", base_size=None).high_resolution == ()


def test_a_flagged_model_is_drawn_and_makes_no_front() -> None:
    info = trade_off(table(*FIVE), "throughput", base_size=224, flags={"fast": "another configuration"})
    assert {name for name, _ in corners(info)} == {"good"}
    assert [point.flag for point in info.scatter.points if point.name == "fast"] == ["another configuration"] * 2


def test_a_lower_cost_is_better_where_the_glossary_says_so() -> None:
    rows = (
        table(*FIVE)
        .rename(columns={"throughput": "train_memory"})
        .assign(train_memory=lambda t: t["train_memory"] * 2**30)
    )
    info = trade_off(rows, "train_memory", base_size=224)
    assert corners(info) == [("good", 5.0)]
    assert info.step == "step-after"
    assert trade_off(table(*FIVE), "throughput", base_size=224).step == "step-before"


def test_simulated_numbers_are_hollow_and_said_to_be() -> None:
    rows = table(*FIVE, throughput_source=["measured", "simulated", "measured", "measured", "measured"])
    info = trade_off(rows, "throughput", base_size=224)
    assert [point.simulated for point in info.scatter.points] == [False, True, False, False, False]
    assert "Hollow" in info.scatter.marks_sentence()
    layer = layer_of_points(trade_off_layers(info).to_dict())
    assert layer["encoding"]["fillOpacity"] == {
        "condition": [{"test": "(datum['simulated'] === 'yes')", "value": 0}],
        "value": 0.85,
    }
    assert [row["simulated"] for row in layer["data"]["values"]] == ["no", "yes", "no", "no", "no"]


KNOWN = {"throughput_low": 1.0, "throughput_high": 200.0, "top1_low": 60.0, "top1_high": 90.0}


def test_sound_measurements_with_intervals_have_no_marks() -> None:
    info = trade_off(table(*FIVE, **KNOWN), "throughput", base_size=224)
    assert info.scatter.marks_sentence() == ""
    encoding = layer_of_points(trade_off_layers(info).to_dict())["encoding"]
    assert not {"fillOpacity", "strokeWidth", "strokeOpacity"} & set(encoding)


def test_a_number_without_an_interval_has_a_blurred_edge_and_is_counted() -> None:
    rows = table(*FIVE, **KNOWN | {"throughput_low": [1.0, None, None, 1.0, 1.0]})
    info = trade_off(rows, "throughput", base_size=224)
    assert [point.unsure for point in info.scatter.points] == [False, True, True, False, False]
    assert info.scatter.marks_sentence() == " Blurred edge: 2 with a number without an interval."
    layer = layer_of_points(trade_off_layers(info).to_dict())
    (condition,) = layer["encoding"]["strokeWidth"]["condition"]
    assert condition == {"test": "(datum.unsure === 1)", "value": 5}
    assert [row.get("unsure") for row in layer["data"]["values"]] == [None, 1, 1, None, None]
    exact = trade_off(rows.rename(columns={"throughput": "params"}), "params", base_size=224)
    assert not any(point.unsure for point in exact.scatter.points), "counts are exact"


def test_a_busy_or_contradictory_number_has_a_ring_and_is_counted() -> None:
    flags = ["busy", None, "throughput:contradictory", "throughput:wide", None]
    info = trade_off(table(*FIVE, **KNOWN, throughput_flags=flags), "throughput", base_size=224)
    assert [point.doubtful for point in info.scatter.points] == [True, False, True, False, False]
    assert info.scatter.marks_sentence() == " Orange ring: 2 measured on a busy machine, or contradictory."
    ring, _ = [layer for layer in trade_off_layers(info).to_dict()["layer"] if layer["mark"]["type"] == "point"]
    assert ring["data"]["values"] == [{"x": 100.0, "y": 70.0}, {"x": 9.0, "y": 79.0}]


def test_several_drawings_are_counted_together() -> None:
    drawings = [trade_off(table(*FIVE), "throughput", base_size=224).scatter for _ in range(2)]
    assert marks_sentence(drawings) == " Blurred edge: 10 with a number without an interval."


def test_trainings_of_unequal_length_make_no_front() -> None:
    lengths = {f"top1_epochs_{end}": [1.0, 1.0, 3.0, 1.0, 1.0] for end in ("low", "high")}
    info = trade_off(table(*FIVE, **lengths), "throughput", base_size=224)
    assert (info.front, info.high_resolution) == ((), ())
    assert info.unequal == "training runs of unequal length: 1 to 3 epochs"
    assert front_sentences(info).startswith("No front is drawn, because the accuracies cannot be compared.")
    assert len(info.scatter.points) == 5
    flagged = trade_off(table(*FIVE, **lengths), "throughput", base_size=224, flags={"worse": "another configuration"})
    assert flagged.front, "it is never on the front, so its training decides nothing"


def test_intervals_are_error_bars_in_the_axes_units() -> None:
    rows = table(*FIVE, throughput_low=8.0, throughput_high=12.0)
    info = trade_off(rows, "throughput", base_size=224)
    assert info.scatter.points[1].x_low == 8.0
    rules = [layer for layer in trade_off_layers(info).to_dict()["layer"] if layer["mark"]["type"] == "rule"]
    assert [rule["data"]["values"][1] for rule in rules] == [{"low": 8.0, "high": 12.0, "y": 80.0}]


def test_of_very_many_points_only_the_front_keeps_its_intervals() -> None:
    many = [(f"m{i}", 1.0 + i, 70.0 - i / 10, 224) for i in range(5)] + [("low", 0.5, 10.0, 224)] * 300
    info = trade_off(table(*many, throughput_low=0.4, throughput_high=9.0), "throughput", base_size=224)
    rules = [layer for layer in trade_off_layers(info).to_dict()["layer"] if layer["mark"]["type"] == "rule"]
    assert len(rules[0]["data"]["values"]) == len(info.front) == 5


def test_size_tells_the_resolution_only_where_there_are_several() -> None:
    several = trade_off(table(*FIVE), "throughput", base_size=224)
    one = trade_off(table(*FIVE[:3]), "throughput", base_size=224)
    assert "size" in layer_of_points(trade_off_layers(several).to_dict())["encoding"]
    assert "size" not in layer_of_points(trade_off_layers(one).to_dict())["encoding"]


def test_names_have_the_image_size_where_it_is_not_the_usual() -> None:
    spec = trade_off_layers(trade_off(table(*FIVE), "throughput", base_size=224), widths=(600,)).to_dict()
    texts = [
        row["name"] for layer in spec["layer"] if layer["mark"]["type"] == "text" for row in layer["data"]["values"]
    ]
    assert "good@384" in texts
    assert "fast" in texts
    assert "worse" not in texts


def test_at_two_widths_one_set_of_names_is_seen() -> None:
    spec = scatter_layers(trade_off(table(*FIVE), "throughput", base_size=224).scatter).to_dict()
    shown = [layer["mark"]["fillOpacity"]["expr"] for layer in spec["layer"] if layer["mark"]["type"] == "text"]
    assert shown == ["width < 430 ? 0 : 1", "width < 430 ? 1 : 0"]


def test_an_unknown_class_and_an_unknown_size_are_drawn() -> None:
    rows = table(("x", 1.0, 70.0, 224), ("y", 2.0, 69.0, 224)).assign(how=None, img_size=float("nan"))
    points = trade_off(rows, "throughput", base_size=224).scatter.points
    assert points[0].img_size is None
    assert points[0].class_title == "Class unknown"


def layer_of_points(spec: dict[str, Any]) -> dict[str, Any]:
    (found,) = [layer for layer in spec["layer"] if layer["mark"]["type"] == "point"]
    return found


def test_a_class_has_its_color_and_marker_in_every_panel() -> None:
    first = table(*FIVE).assign(how=["kernel", "fixed", "fixed", "kernel", "kernel"])
    second = table(*FIVE).assign(how="fourier")
    infos = {title: trade_off(rows, "throughput", base_size=224) for title, rows in (("a", first), ("b", second))}
    looks = [layer_of_points(panel)["encoding"] for panel in trade_off_panels(infos).to_dict()["concat"]]
    assert [look["fill"]["scale"]["domain"] for look in looks] == [
        ["Fixed Attention", "Kernel Attention", "Fourier Attention"]
    ] * 2
    for channel in ("fill", "stroke", "shape"):
        assert looks[0][channel] == looks[1][channel]


@pytest.mark.parametrize("columns", [{}, {"throughput_low": 1.0, "throughput_high": 200.0}])
def test_two_thousand_models_stay_below_200_kilobytes(columns: dict[str, float]) -> None:
    import json

    many = [(f"timm:some_rather_long_network_name_{i}", 1 + i % 977 / 3, 60 + i % 311 / 13, 224) for i in range(2000)]
    spec = trade_off_layers(trade_off(table(*many, **columns), "throughput", base_size=224)).to_dict()
    assert len(json.dumps(spec, separators=(",", ":"))) < 200_000
