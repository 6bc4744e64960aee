"""Where the sequence gets shorter, so does the time: CPU time of one thread, which a busy machine hardly changes."""

import statistics
import time
from collections.abc import Iterator

import pytest
import torch

import favor
from equality import images
from favor.zoo.operating_point import impose_operating_point

SHORTER = {
    "dynamicvit_s16": 0.9,
    "evit_s16": 0.9,
    "avit_s16": 0.9,
    "evit_fuse_s16": 0.9,
    "tome_r8_s16": 0.97,
    "tome_r13_s16": 0.9,
    "gtp_s16": 0.97,
    "tokenlearner_8_50_s16": 0.9,
}
"""The share of ViT-S's time below which each must stay: well above what is measured, and below one."""
ROUNDS = 5


@pytest.fixture(autouse=True)
def one_thread() -> Iterator[None]:
    before = torch.get_num_threads()
    torch.set_num_threads(1)
    yield
    torch.set_num_threads(before)


@pytest.fixture(scope="module")
def vit() -> torch.nn.Module:
    return favor.create_model("vit_s16").eval()


def share_of_time(model: torch.nn.Module, baseline: torch.nn.Module) -> float:
    """The median over rounds of the ratio of their CPU times, one pass each."""
    x = images(1, 3, 224, 224)

    def seconds(called: torch.nn.Module) -> float:
        start = time.process_time()
        called(x)
        return time.process_time() - start

    with torch.inference_mode():
        seconds(model), seconds(baseline)
        return statistics.median(seconds(model) / seconds(baseline) for _ in range(ROUNDS))


@pytest.mark.parametrize("name", SHORTER)
def test_a_shorter_sequence_takes_less_time(name: str, vit: torch.nn.Module) -> None:
    model = favor.create_model(name).eval()
    impose_operating_point(model)
    assert share_of_time(model, vit) < SHORTER[name]


def test_a_model_that_removes_nothing_takes_no_less(vit: torch.nn.Module) -> None:
    assert share_of_time(favor.create_model("evit_s16", keep=1.0).eval(), vit) > 0.9
