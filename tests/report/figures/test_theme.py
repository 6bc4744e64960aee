"""The palette and the themes: legible on light and dark pages, and no two classes alike."""

import json
import re
from importlib.resources import files

import altair as alt
import pytest

from favor.report.class_style import CLASS_STYLES, UNKNOWN_CLASS, class_style
from favor.report.figures.theme import Rows, class_encodings, layered, one_plot, series_colors, theme
from favor.zoo.taxonomy import How

STYLE_SHEET = files("favor.report").joinpath("assets", "page.css").read_text()
LIGHT_PAGE, DARK_PAGE = re.search(r"--page: light-dark\((#\w+), (#\w+)\)", STYLE_SHEET).groups()


def luminance(color: str) -> float:
    parts = [int(color[i : i + 2], 16) / 255 for i in (1, 3, 5)]
    linear = [part / 12.92 if part <= 0.03928 else ((part + 0.055) / 1.055) ** 2.4 for part in parts]
    return 0.2126 * linear[0] + 0.7152 * linear[1] + 0.0722 * linear[2]


def contrast(a: str, b: str) -> float:
    low, high = sorted((luminance(a), luminance(b)))
    return (high + 0.05) / (low + 0.05)


def test_contrast_is_21_between_black_and_white() -> None:
    assert contrast("#000000", "#ffffff") == pytest.approx(21)


@pytest.mark.parametrize("page", [LIGHT_PAGE, DARK_PAGE])
def test_every_marker_stands_out_from_the_page(page: str) -> None:
    colors = [style.color for style in (*CLASS_STYLES.values(), UNKNOWN_CLASS)] + series_colors(8)
    assert min(contrast(color, page) for color in colors) >= 3


@pytest.mark.parametrize(("dark", "page"), [(False, LIGHT_PAGE), (True, DARK_PAGE)])
def test_text_can_be_read_in_both_themes(dark: bool, page: str) -> None:
    config = theme(dark)
    for color in (config["axis"]["labelColor"], config["axis"]["titleColor"], config["style"]["soft-label"]["color"]):
        assert contrast(color, page) >= 4.5


def test_every_class_has_a_color_and_a_marker_of_its_own() -> None:
    assert list(CLASS_STYLES) == [how.key for how in How]
    styles = [*CLASS_STYLES.values(), UNKNOWN_CLASS]
    for part in ("color", "shape", "path", "title"):
        assert len({getattr(style, part) for style in styles}) == len(styles)


def test_a_class_that_is_not_known_has_its_own_look() -> None:
    assert class_style(None) == class_style(float("nan")) == class_style("no such class") == UNKNOWN_CLASS
    assert class_style("kernel").title == "Kernel Attention"


def test_a_theme_is_plain_data_with_no_background_of_its_own() -> None:
    assert json.loads(json.dumps(theme(dark=True)))["background"] is None
    assert theme(dark=True) != theme(dark=False)


def test_the_legend_names_the_classes_that_are_there_in_the_taxonomys_order() -> None:
    scale = class_encodings(["Token Merging", "Baseline"])["shape"].to_dict()["scale"]
    assert scale["domain"] == ["Baseline", "Token Merging"]
    assert scale["range"] == [class_style("baseline").path, class_style("merging").path]


def test_rows_are_shared_when_charts_are_put_together() -> None:
    rows = [{"x": 1.0, "y": 2.0}]
    point = alt.Chart(Rows(rows)).mark_point().encode(x="x:Q", y="y:Q")
    spec = one_plot(layered(point, point.mark_line())).to_dict()
    assert spec["data"]["values"] is rows
