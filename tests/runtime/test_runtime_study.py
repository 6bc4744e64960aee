"""The finding of the study of runtimes, from its records: who changes places, who gains most."""

import importlib.util
from pathlib import Path
from types import ModuleType

import pytest

from favor.records import Record, reading
from favor.records.published import card_fields

ROOT = Path(__file__).parents[2]


@pytest.fixture(scope="module")
def benchmark() -> ModuleType:
    spec = importlib.util.spec_from_file_location("make_runtime_study", ROOT / "benchmarks" / "make_runtime_study.py")
    assert spec is not None
    assert spec.loader is not None
    module = importlib.util.module_from_spec(spec)
    spec.loader.exec_module(module)
    return module


def ran(name: str, runtime: str, precision: str, speed: float, flags: str = "") -> Record:
    return Record(
        name=name,
        model=card_fields()[name],
        task="inference",
        source="measured",
        conditions={"img_size": 224, "device": "cpu", "precision": precision, "runtime": runtime},
        metrics={"throughput": reading("throughput", speed, 0.95 * speed, 1.05 * speed, method="test")},
        environment={"device_name": "a processor", "threads": 2, "budget": 2.0, "torch": "2.15.0", "flags": flags},
    )


RECORDS = (
    ran("vit_s16", "eager", "fp32", 30.0),
    ran("swin_ti", "eager", "fp32", 40.0, flags="busy"),
    ran("vit_s16", "openvino", "fp32", 60.0),
    ran("swin_ti", "openvino", "fp32", 44.0),
    ran("vit_s16", "openvino", "int8", 90.0),
)


def test_it_counts_the_pairs_that_change_places_and_names_who_gains_most(benchmark: ModuleType) -> None:
    text = benchmark.section(RECORDS)
    assert "| eager | openvino | 1 of 1 | 1 | swin_ti and vit_s16 |" in text
    assert "openvino: 1.48 times the speed of eager mode (geometric mean); vit_s16 gains most (2.00)" in text
    assert "| `swin_ti` | 40 ± ? | 44 (1.10) | missing |" in text
    assert "1 to 1 of 1 pairs of models change their order by their values, and up to 1 beyond their intervals" in text
    assert "openvino int8 is the fastest of 3 ways to run: 3.00 times the speed of eager mode" in text
    assert "Of the 5 measurements (budget 2 to 2 s), none have a wide interval and 1 were taken while other" in text
    assert "a processor (2 threads, torch 2.15.0)" in text


def test_a_quiet_speed_stays_and_its_interval_covers_a_busy_one_too(benchmark: ModuleType) -> None:
    busy = ran("vit_s16", "openvino", "fp32", 5.0, flags="busy")
    for repeated in ([busy, RECORDS[2]], [RECORDS[2], busy]):
        found = benchmark.speeds_of(repeated)["openvino"]["vit_s16"]
        assert (found.value, found.low, found.high) == (60.0, 4.75, 63.0)


def test_overlapping_intervals_are_no_change_of_places(benchmark: ModuleType) -> None:
    near = (*RECORDS[:2], ran("vit_s16", "openvino", "fp32", 46.0), RECORDS[3])
    assert "| eager | openvino | 1 of 1 | 0 |  |" in benchmark.section(near)


def test_only_what_is_between_the_marks_is_replaced(benchmark: ModuleType) -> None:
    page = f"before\n{benchmark.MARK}\nold\n{benchmark.END}\nafter\n"
    made = benchmark.with_section(page, "new")
    assert made == f"before\n{benchmark.MARK}\n\nnew\n\n{benchmark.END}\nafter\n"
    assert benchmark.with_section(made, "new") == made
