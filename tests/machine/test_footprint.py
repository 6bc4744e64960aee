"""Carbon and money."""

import pytest
from hypothesis import given
from hypothesis import strategies as st

from favor.errors import RequestError
from favor.machine.footprint import carbon, footprint, money

amounts = st.floats(0, 1e9)


@given(amounts, amounts, amounts, st.floats(0, 2000))
def test_a_footprint_is_the_carbon_of_training_and_of_all_queries(training, queries, inference, intensity):
    parts = carbon(training, intensity) + queries * carbon(inference, intensity)
    assert footprint(training, queries, inference, intensity) == pytest.approx(parts, rel=1e-9)


def test_a_kilowatt_hour_at_400_grams_is_400_grams():
    assert footprint(training=3.6e6, queries=0, inference=1.0, intensity=400) == pytest.approx(400)


@pytest.mark.parametrize("wrong", [{"training": -1.0}, {"queries": float("inf")}, {"intensity": float("nan")}])
def test_what_cannot_be_an_amount_is_refused(wrong):
    with pytest.raises(RequestError, match=f"footprint: {next(iter(wrong))} must be"):
        footprint(**{"training": 1.0, "queries": 1.0, "inference": 1.0, "intensity": 1.0} | wrong)


def test_half_an_hour_costs_half_the_price():
    assert money(1800, 3.0) == pytest.approx(1.5)
