"""Text as people read it."""

import pytest

from favor.text import ordinal


@pytest.mark.parametrize(
    ("number", "text"),
    [
        (1, "1st"),
        (2, "2nd"),
        (3, "3rd"),
        (4, "4th"),
        (10, "10th"),
        (11, "11th"),
        (12, "12th"),
        (13, "13th"),
        (21, "21st"),
        (22, "22nd"),
        (103, "103rd"),
        (111, "111th"),
        (1012, "1012th"),
    ],
)
def test_a_place_in_a_ranking_is_an_english_ordinal(number: int, text: str) -> None:
    assert ordinal(number) == text
