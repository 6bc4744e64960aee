"""The glossary: its page tells what the code says, and an unknown name says what is close."""

from pathlib import Path

import pytest

from favor.errors import RequestError
from favor.metrics import METRICS, metric

PAGE = Path(__file__).parents[1] / "docs" / "metrics.md"
RECORDS_PAGE = PAGE.with_name("records.md")


def test_the_page_has_a_row_for_every_metric_and_no_other() -> None:
    rows = [line for line in PAGE.read_text().splitlines() if line.startswith("| `")]
    expected = [f"| `{m.name}` | {m.title} | {m.unit} | {m.better} | {m.definition} |" for m in METRICS.values()]
    assert rows == expected


def test_the_page_of_records_names_the_metrics_that_may_be_negative() -> None:
    signed = ", ".join(f"`{name}`" for name, entry in METRICS.items() if entry.signed)
    assert f"never negative, except {signed};" in RECORDS_PAGE.read_text()


def test_every_metric_has_a_unit_a_direction_and_a_sentence() -> None:
    for entry in METRICS.values():
        assert entry.unit
        assert entry.better in ("lower", "higher", "neither")
        assert entry.definition.endswith(".")


def test_an_unknown_metric_says_what_is_close() -> None:
    with pytest.raises(RequestError, match="unknown metric 'thruput'; did you mean 'throughput'"):
        metric("thruput")


def test_the_costs_of_training_are_of_that_phase() -> None:
    of_training = {name for name, entry in METRICS.items() if entry.phase == "training"}
    assert of_training == {name for name in METRICS if name.startswith(("train_", "finetune_", "pipeline_idle_"))}
