"""The misnomer's models cost what its tables print, and its message holds: cost indicators disagree."""

import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from dataclasses import dataclass

import pytest
import torch
from torch import nn

import favor
from favor.records import published
from favor.records.schema import Record
from favor.trace.counts import count
from favor.zoo.encoder import Size

CLASSES = 18_291
"""Of the dataset that the paper pretrained on."""


def printed_rows(table: str) -> list[Record]:
    return [
        record
        for record in published.records()
        if record.provenance["paper"] == "the_efficiency_misnomer" and record.provenance.get("table") == table
    ]


GRID = printed_rows("2")
PATCHES = printed_rows("1")


def test_the_grid_has_the_paper_s_eleven_rows() -> None:
    assert len(GRID) == 11
    assert {record.name for record in GRID} == set(favor.list_models(family="misnomer"))


@pytest.mark.parametrize("row", GRID, ids=[record.name for record in GRID])
def test_parameters_of_the_grid_are_the_printed_digits_and_multiply_adds_are_within_one_percent(row: Record) -> None:
    counted = count(row.name, num_classes=CLASSES)
    assert round(counted.params / 1e6, 2) == round(row.metrics["params"].value / 1e6, 2)
    assert counted.macs_matmul == pytest.approx(row.metrics["macs"].value, rel=0.01)


def test_the_d_rows_do_not_come_out_with_the_printed_ffn_of_1024_and_their_cards_say_so() -> None:
    deep = [record for record in GRID if record.name.startswith("misnomer_d")]
    assert len(deep) == 6
    for row in deep:
        depth = int(row.name.removeprefix("misnomer_d"))
        with torch.device("meta"):
            narrow = favor.create_model(row.name, num_classes=CLASSES, size=Size(384, depth, 6, 1024 / 384))
        parameters = sum(parameter.numel() for parameter in narrow.parameters())
        assert round(parameters / 1e6, 2) < round(row.metrics["params"].value / 1e6, 2) - 2
        assert "1024" in " ".join(favor.card(row.name).notes)
    assert "misprint" not in " ".join(favor.card("misnomer_w1024").notes)


def test_every_row_of_the_grid_has_50_tokens_at_224_px() -> None:
    for row in GRID:
        with torch.device("meta"):
            assert favor.create_model(row.name).tokens.count == 50


@pytest.mark.parametrize("row", PATCHES, ids=[record.name for record in PATCHES])
def test_vit_b_of_all_patch_sizes_but_the_misprinted_has_the_printed_parameters_and_multiply_adds(row: Record) -> None:
    counted = count(row.name)
    printed = round(row.metrics["params"].value / 1e6, 1)
    assert round(counted.params / 1e6, 1) == (86.6 if row.name == "vit_b8" else printed)
    if row.name != "vit_b64":
        assert counted.macs_matmul == pytest.approx(row.metrics["macs"].value, rel=0.01)


def test_patch_8_has_more_parameters_than_patch_16_where_the_paper_prints_fewer() -> None:
    printed = {record.name: record.metrics["params"].value for record in PATCHES}
    assert printed["vit_b8"] < printed["vit_b16"]
    assert count("vit_b8").params - count("vit_b16").params == 9_216
    assert "9,216" in " ".join(favor.card("vit_b8").notes)


def test_the_row_of_patch_64_contradicts_itself() -> None:
    printed = next(record for record in PATCHES if record.name == "vit_b64")
    with torch.device("meta"):
        assert favor.create_model("vit_b64").tokens.count == 17
        assert favor.create_model("vit_b64", img_size=192).tokens.count == 10
    assert count("vit_b64").macs_matmul / 1e9 == pytest.approx(1.60, abs=0.005)
    assert printed.metrics["macs"].value / 1e9 == 0.93
    assert count("vit_b64", img_size=192).macs_matmul / 1e9 == pytest.approx(0.93, rel=0.015)
    notes = " ".join(favor.card("vit_b64").notes)
    assert "1.60" in notes
    assert "0.93" in notes


@dataclass(frozen=True)
class Indicators:
    """What three cost indicators say of one model."""

    params: int
    macs: int
    seconds: float


def compared(first: nn.Module, second: nn.Module, side: int, runs: int = 5) -> tuple[Indicators, Indicators]:
    """Both models' costs; the times are the best of alternating runs, as other work can only add to them."""
    x = torch.randn(1, 3, side, side)
    best = [float("inf"), float("inf")]
    with torch.inference_mode(), one_thread():
        for _ in range(runs):
            for index, model in enumerate((first.eval(), second.eval())):
                best[index] = min(best[index], seconds(lambda model=model: model(x)))
    counts = [count(model, img_size=side) for model in (first, second)]
    a, b = (Indicators(c.params, c.macs_matmul, t) for c, t in zip(counts, best, strict=True))
    return a, b


@contextmanager
def one_thread() -> Iterator[None]:
    """Threads that wait for each other on a busy machine would be measured in place of the models."""
    before = torch.get_num_threads()
    torch.set_num_threads(1)
    try:
        yield
    finally:
        torch.set_num_threads(before)


def seconds(work: Callable[[], object]) -> float:
    start = time.perf_counter()
    work()
    return time.perf_counter() - start


def test_shared_weights_have_fewer_parameters_than_a_small_vit_and_cost_more_in_work_and_time() -> None:
    universal, vit = compared(favor.create_model("universal_s16"), favor.create_model("vit_ti16"), side=224)
    assert universal.params < vit.params / 2
    assert universal.macs > 3 * vit.macs
    assert universal.seconds > 1.3 * vit.seconds


def test_experts_have_more_parameters_than_a_large_vit_and_cost_less_in_work_and_time() -> None:
    switch, vit = compared(favor.create_model("switch_8_ti16"), favor.create_model("vit_s16"), side=224)
    assert switch.params > 1.2 * vit.params
    assert switch.macs < vit.macs / 3
    assert switch.seconds < vit.seconds / 1.3


def test_depth_has_fewer_parameters_and_multiply_adds_than_width_and_takes_longer() -> None:
    deep = favor.create_model("misnomer_d48", size=Size(32, 48, 1), img_size=128)
    wide = favor.create_model("misnomer_w1024", size=Size(192, 2, 3), img_size=128)
    slow, fast = compared(deep, wide, side=128)
    assert slow.params < fast.params
    assert slow.macs < fast.macs
    assert slow.seconds > 1.5 * fast.seconds
