"""What stands at an axis: unit, direction, range and ticks."""

import pytest
from hypothesis import given
from hypothesis import strategies as st

from favor.report.figures.axes import axis_of, factor_scale, log_ticks, quantity, x_axis


@pytest.mark.parametrize(
    ("metric", "values", "title"),
    [
        ("throughput", [10.0, 20.0], "Throughput [img/s], higher is better →"),
        ("params", [5e6, 22e6], "← Parameters [M], lower is better"),
        ("train_memory", [3 * 2**30, 5 * 2**30], "← Training memory [GiB], lower is better"),
        ("train_memory", [2**20, 5 * 2**20], "← Training memory [MiB], lower is better"),
        ("1/throughput", [0.002, 0.05], "← Time per image [ms], lower is better"),
        ("best_batch_size", [8.0, 16.0], "Best batch size [img]"),
    ],
)
def test_the_title_has_unit_and_an_arrow_towards_the_better_end(metric: str, values: list[float], title: str) -> None:
    assert axis_of(metric, values).arrowed() == title


def test_values_are_shown_in_the_axes_unit() -> None:
    axis = axis_of("inference_memory", [2**30, 3 * 2**30])
    assert axis.shown(1.5 * 2**30) == 1.5
    assert axis.unit == "GiB"


@given(st.lists(st.floats(1e-3, 1e9), min_size=2, max_size=20, unique=True))
def test_every_value_is_inside_the_axis_in_order(values: list[float]) -> None:
    axis = axis_of("throughput", values)
    places = [axis.place(axis.shown(value)) for value in sorted(values)]
    assert places == sorted(places)
    assert places[0] >= -1e-3
    assert places[-1] <= 1.001


def test_a_wide_range_is_logarithmic_and_a_narrow_one_is_not() -> None:
    assert axis_of("throughput", [1.0, 100.0]).log
    assert not axis_of("throughput", [50.0, 100.0]).log
    assert not axis_of("throughput", [0.0, 100.0]).log


def test_a_cost_is_never_drawn_below_zero() -> None:
    assert axis_of("throughput", [1.0, 11.0]).low >= 0


def test_ticks_of_a_log_axis_are_at_1_2_and_5() -> None:
    assert log_ticks(3.0, 220.0).to_dict()["values"] == [5, 10, 20, 50, 100, 200]
    assert log_ticks(0.5, 30_000.0).to_dict()["values"] == [1, 10, 100, 1000, 10_000]


def test_factors_have_room_and_one_among_them() -> None:
    low, high = factor_scale([3.0, 5.0])[0].to_dict()["domain"]
    assert low < 1
    assert high > 5


def test_an_axis_encodes_the_field_that_it_is_given() -> None:
    encoded = x_axis(axis_of("throughput", [10.0, 20.0]), "low").to_dict()
    assert encoded["field"] == "low"
    assert encoded["scale"]["type"] == "linear"


def test_the_time_per_image_is_a_quantity_besides_the_glossary() -> None:
    assert quantity("1/throughput").better == "lower"
    assert quantity("params").title == "Parameters"


def test_a_few_tiny_networks_do_not_stretch_an_axis() -> None:
    usual = [70.0 + place / 50 for place in range(500)]
    axis = axis_of("top1", [*usual, 5.0, 6.0])
    assert axis.low > 69
    assert axis_of("top1", [*usual[:50], 5.0]).low < 5, "of few values each is drawn where it is"
    assert axis_of("top1", usual).low < 70, "without outliers nothing is left out"
