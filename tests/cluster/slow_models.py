"""A plugin with equal tiny models that train slowly enough to be disturbed, however fast the machine is."""

import os
import time
from functools import partial
from typing import Unpack

from torch import Tensor, nn

import favor
from favor.zoo.encoder import Encoder, Options, Size
from favor.zoo.layers import PatchEmbed
from favor.zoo.registry import ImageSizes, Variant
from favor.zoo.taxonomy import How

PAUSE = float(os.environ.get("FAVOR_TEST_PAUSE", "0"))
NAMES = ("slow_a", "slow_b", "slow_c", "slow_d", "slow_e")


class Slow(Encoder):
    def forward(self, x: Tensor) -> Tensor:
        if self.training:
            time.sleep(PAUSE)
        return super().forward(x)


@favor.register(
    [Variant(name) for name in ("fast", *NAMES)],
    title="Slow ViT",
    how=How.BASELINE,
    year=2020,
    paper=None,
    changes="Slow.",
    image_sizes=ImageSizes(32, 8, 8),
)
def slow_vit(**options: Unpack[Options]) -> nn.Module:
    return Slow(Size(16, 2, 2, 2.0), embed=partial(PatchEmbed, patch_size=8), layer_scale=None, **options)
