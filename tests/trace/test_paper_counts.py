"""The size of a model as the X-formers paper counts it: what a layer summary calls its total size."""

import pytest
from torch import nn

from favor.trace.counts import count

MIB = 2**20


@pytest.mark.parametrize(("name", "printed"), [("vix_vil", 77.70), ("vix_fnet", 60.12), ("vix_cvp", 100.17)])
def test_the_size_is_the_printed_one_where_our_modules_are_the_authors(name: str, printed: float) -> None:
    assert count(name, img_size=32, num_classes=10).model_size_paper / MIB == pytest.approx(printed, rel=1e-3)


def test_attention_weights_count_whichever_implementation_of_attention_runs() -> None:
    fused, plain = (
        count("vix_vit", img_size=32, num_classes=10, attention=attention).model_size_paper
        for attention in ("fused", "plain")
    )
    assert fused == plain
    assert fused / MIB == pytest.approx(209.39, rel=0.02)  # the authors' modules of dropout are missing here
    weights = 4 * 4 * 1025**2  # four layers of four heads
    assert fused > 2 * 4 * weights


def test_the_size_is_that_of_one_image_in_float32_and_the_loss_is_not_part_of_it() -> None:
    net = nn.Sequential(nn.Conv2d(3, 2, 1), nn.ReLU(), nn.Flatten(), nn.Linear(2 * 16, 5))
    for options in ({}, {"batch_size": 3}, {"training": True}):
        image, outputs, params = 3 * 16, 2 * 16 + 2 * 16 + 2 * 16 + 5, (3 * 2 + 2) + (2 * 16 * 5 + 5)
        assert count(net, img_size=4, **options).model_size_paper == 4 * (image + 2 * outputs + params)
