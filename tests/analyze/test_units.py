"""Quantities as people write them."""

import pytest
from hypothesis import given
from hypothesis import strategies as st

from favor.errors import RequestError
from favor.units import format_outward, format_quantity, parse_quantity


@pytest.mark.parametrize(
    ("text", "unit", "value"),
    [
        ("1GiB", "B", 2.0**30),
        ("1 GB", "B", 1e9),
        ("800mb", "B", 8e8),
        ("0.5 gib", "B", 2.0**29),
        ("50 ms", "s", 0.05),
        ("50ms", "s", 0.05),
        ("2 s", "s", 2.0),
        ("30M", "1", 30e6),
        ("1.5e6", "1", 1.5e6),
        ("30,000,000", "1", 30e6),
        ("22_000_000", "1", 22e6),
        ("82", "%", 82.0),
        ("82 %", "%", 82.0),
        ("82.5%", "%", 82.5),
        ("0.5%", "%", 0.5),
        ("90 min", "h", 1.5),
        ("250 mJ", "J", 0.25),
    ],
)
def test_what_people_write_is_understood(text: str, unit: str, value: float) -> None:
    assert parse_quantity(text, unit) == pytest.approx(value)


@pytest.mark.parametrize(
    ("text", "unit", "why"),
    [
        ("1Gb", "B", "'Gb' is not a unit"),
        ("1", "B", "the unit is missing"),
        ("50", "s", "the unit is missing"),
        ("30MB", "1", "'MB' is not a unit"),
        ("fast", "s", "as a number"),
        ("1,5GiB", "B", "as a number"),
        ("1,5000", "1", "as a number"),
        ("", "B", "as a number"),
        ("-5 ms", "s", "zero or more"),
        ("1e999 s", "s", "zero or more"),
        ("120", "%", "more than 100 %"),
        ("0.82", "%", "did you mean 82 %"),
    ],
)
def test_nonsense_is_refused_with_the_option_the_text_and_an_example(text: str, unit: str, why: str) -> None:
    with pytest.raises(RequestError) as refusal:
        parse_quantity(text, unit, "--max-thing")
    assert str(refusal.value).startswith(f"--max-thing: cannot read {text!r}")
    assert why in str(refusal.value)
    assert "write" in str(refusal.value)


@given(st.floats(1e-5, 1e15), st.sampled_from(["1", "B", "s"]))
def test_a_formatted_quantity_is_read_back_within_its_digits(value: float, unit: str) -> None:
    text = format_quantity(value, unit)
    assert parse_quantity(text, unit) == pytest.approx(value, rel=6e-3)


def test_formats_fit_the_size() -> None:
    assert format_quantity(22_059_496, "1") == "22.1M"
    assert format_quantity(4_602_600_000, "1") == "4.60G"
    assert format_quantity(0.00123, "s") == "1.23 ms"
    assert format_quantity(3.2e9, "B") == "2.98 GiB"
    assert format_quantity(12345.6, "img/s") == "12,346 img/s"
    assert format_quantity(999.9, "img/s") == "1,000 img/s"


@pytest.mark.parametrize(
    ("value", "unit", "outward", "shown"),
    [
        (3_423_256, "1", 1, "3.43M"),
        (3_420_000, "1", 1, "3.42M"),
        (999_999_999, "1", 1, "1,000M"),
        (307.2 * 2**20, "B", 1, "308 MiB"),
        (0.05004, "s", 1, "50.1 ms"),
        (81.528, "%", -1, "81.52 %"),
        (81.523, "%", -1, "81.52 %"),
    ],
)
def test_a_limit_is_rounded_so_that_it_holds_the_value(value: float, unit: str, outward: int, shown: str) -> None:
    assert format_outward(value, unit, outward) == shown
