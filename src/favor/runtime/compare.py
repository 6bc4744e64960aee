"""How far the outputs of a model are from those of its float32 form in eager mode, on the same images."""

import math
from dataclasses import dataclass
from statistics import NormalDist

from torch import Tensor

from favor.errors import WorkError

Z = NormalDist().inv_cdf(0.975)


@dataclass(frozen=True)
class Change:
    """The change of top-1 in percentage points, with its 95 % interval."""

    value: float
    low: float
    high: float


@dataclass(frozen=True)
class Comparison:
    """`deviation` is the largest difference of an output, `relative` the same as a share of the largest output.

    `agreement` is the share of images with the same top-1 class in %; `top1` that of eager mode, where labels exist.
    """

    images: int
    deviation: float
    relative: float
    agreement: float
    top1: float | None = None
    change: Change | None = None


def compare(expected: Tensor, outputs: Tensor, labels: Tensor | None = None) -> Comparison:
    """Compare the outputs (images × classes) of two forms of a model."""
    if expected.shape != outputs.shape:
        raise WorkError(f"the outputs are of shape {tuple(outputs.shape)}, in eager mode {tuple(expected.shape)}")
    if not (expected.isfinite().all() and outputs.isfinite().all()):
        raise WorkError("some outputs are not finite; the model cannot be compared with eager mode")
    deviation = float((outputs - expected).abs().max())
    before, after = expected.argmax(1), outputs.argmax(1)
    return Comparison(
        images=len(expected),
        deviation=deviation,
        relative=deviation / max(float(expected.abs().max()), 1e-30),
        agreement=100.0 * float((before == after).double().mean()),
        top1=None if labels is None else 100.0 * float((before == labels).double().mean()),
        change=None if labels is None else change_of_top1(before == labels, after == labels),
    )


def change_of_top1(before: Tensor, after: Tensor) -> Change:
    """The change of a share of right answers on the same images, with Bonett and Price's interval for paired shares.

    >>> import torch
    >>> right = torch.ones(100, dtype=torch.bool)
    >>> change = change_of_top1(right, right & (torch.arange(100) >= 3))
    >>> change.value, round(change.low, 2), round(change.high, 2)
    (-3.0, -7.2, 1.32)
    """
    images = len(before)
    lost, won = int((before & ~after).sum()), int((~before & after).sum())
    # one more image each way keeps the interval from closing where nothing has changed
    down, up = (lost + 1) / (images + 2), (won + 1) / (images + 2)
    half = Z * math.sqrt((down + up - (up - down) ** 2) / (images + 2))
    return Change(100.0 * (won - lost) / images, 100.0 * (up - down - half), 100.0 * (up - down + half))
