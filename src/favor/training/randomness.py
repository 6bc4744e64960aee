"""Every random number of a training run follows from seed, step and sample, so there is no generator state to save.

A resumed run draws the same numbers as one that was never stopped. Drop path is drawn per sample,
so it does not depend on how many processes share a batch. All other draws of a model (Gumbel noise,
dropout, random features) follow from seed, step and process.
"""

import random

import numpy as np
import torch
from numpy.typing import NDArray
from torch import Tensor, nn

from favor.data.draws import Draw, uniform
from favor.zoo.layers import DropPath

_ROUND = 1 << 40
_SEEDS = 1 << 32


def seed_all(seed: int, *place: int) -> None:
    """Seed all generators that a model may draw from: PyTorch's on all devices, numpy's and Python's."""
    mixed = int(np.random.SeedSequence([seed, *place]).generate_state(1, np.uint64)[0])
    torch.manual_seed(mixed % (1 << 63))
    np.random.seed(mixed % _SEEDS)
    random.seed(mixed)


class SampleDraws:
    """The seed, step and samples that the next random numbers belong to."""

    def __init__(self, seed: int) -> None:
        self._seed, self._step = seed, 0
        self._samples: NDArray[np.int64] = np.zeros(0, dtype=np.int64)
        self._calls = 0

    def begin(self, step: int, samples: NDArray[np.int64]) -> None:
        """Set the samples of the next forward pass."""
        self._step, self._samples, self._calls = step, samples, 0

    def keep(self, rows: int, rate: float) -> NDArray[np.bool_]:
        """Whether each row keeps its branch; with more rows than samples, each sample has several rows."""
        self._calls += 1
        number = np.arange(rows)
        keys = np.resize(self._samples, rows) + _ROUND * (number // max(len(self._samples), 1))
        return uniform(self._seed + _ROUND * self._calls, self._step, keys, Draw.DROP_PATH) >= rate


class DropPathBySample(DropPath):
    """Drop path whose random numbers follow from the sample."""

    def __init__(self, rate: float, draws: SampleDraws) -> None:
        super().__init__(rate)
        self.draws = draws

    def forward(self, x: Tensor) -> Tensor:
        if not self.training or self.rate == 0.0:
            return x
        kept = torch.from_numpy(self.draws.keep(x.shape[0], self.rate)).to(x.device, x.dtype, non_blocking=True)
        return x * kept.div_(1.0 - self.rate).view(-1, *(1,) * (x.ndim - 1))


def draw_drop_path_by_sample(model: nn.Module, seed: int) -> SampleDraws:
    """Replace the model's drop paths, ours and timm's; set the samples on the returned draws before each pass."""
    from timm.layers import DropPath as TimmDropPath

    draws = SampleDraws(seed)
    for parent in list(model.modules()):
        for name, part in list(parent.named_children()):
            if isinstance(part, DropPath):
                setattr(parent, name, DropPathBySample(part.rate, draws))
            elif isinstance(part, TimmDropPath):
                setattr(parent, name, DropPathBySample(part.drop_prob or 0.0, draws))
    return draws
