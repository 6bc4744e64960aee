"""Two forms of a model are compared image by image."""

import pytest
import torch

from favor.errors import WorkError
from favor.runtime.compare import change_of_top1, compare


def test_deviation_and_agreement_are_of_the_same_images() -> None:
    expected = torch.tensor([[4.0, 0.0], [0.0, 1.0], [1.0, 0.0], [0.0, 2.0]])
    found = torch.tensor([[4.0, 0.5], [0.0, 1.0], [1.0, 1.2], [0.0, 2.0]])
    comparison = compare(expected, found, torch.tensor([0, 1, 0, 0]))
    assert (comparison.images, comparison.agreement, comparison.top1) == (4, 75.0, 75.0)
    assert comparison.deviation == pytest.approx(1.2)
    assert comparison.relative == pytest.approx(0.3)
    assert comparison.change is not None
    assert comparison.change.value == -25.0


def test_without_labels_only_the_agreement_is_known() -> None:
    comparison = compare(torch.eye(3), torch.eye(3))
    assert (comparison.deviation, comparison.agreement, comparison.top1, comparison.change) == (0.0, 100.0, None, None)


def test_the_interval_of_a_change_holds_in_nineteen_of_twenty_draws() -> None:
    generator = torch.Generator().manual_seed(0)
    images, lost, won, hits = 400, 0.05, 0.02, 0
    for _ in range(1000):
        draw = torch.rand(images, generator=generator)
        before = draw >= won  # right answers that are kept or lost; the first share is won
        after = (draw < won) | (draw >= won + lost)
        change = change_of_top1(before, after)
        hits += change.low <= 100 * (won - lost) <= change.high
    assert 930 <= hits <= 970


def test_no_change_has_an_interval_too() -> None:
    right = torch.ones(50, dtype=torch.bool)
    change = change_of_top1(right, right)
    assert change.value == 0.0
    assert change.low < 0 < change.high


def test_outputs_that_are_not_finite_are_refused() -> None:
    with pytest.raises(WorkError, match="not finite"):
        compare(torch.ones(1, 2), torch.tensor([[1.0, torch.nan]]))
    with pytest.raises(WorkError, match="of shape"):
        compare(torch.ones(1, 2), torch.ones(1, 3))
