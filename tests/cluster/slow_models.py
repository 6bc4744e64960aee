"""A plugin with equal tiny models that train slowly enough to be disturbed, however fast the machine is."""

import os
import time
from functools import partial
from pathlib import Path
from typing import Unpack

from torch import Tensor, nn

import favor
from favor.zoo.encoder import Encoder, Options, Size
from favor.zoo.layers import PatchEmbed
from favor.zoo.registry import ImageSizes, Variant
from favor.zoo.taxonomy import How

PAUSE = float(os.environ.get("FAVOR_TEST_PAUSE", "0"))
HELD = Path(os.environ.get("FAVOR_TEST_HELD", os.devnull))
"""A folder: a model that has a file in it takes minutes after its first epoch, until the file is gone."""
NAMES = ("slow_a", "slow_b", "slow_c", "slow_d", "slow_e")


class Slow(Encoder):
    name = ""
    steps = 0

    def forward(self, x: Tensor) -> Tensor:
        if self.training:
            self.steps += 1
            time.sleep(1.5 if self.steps > 80 and (HELD / self.name).is_file() else PAUSE)
        return super().forward(x)


@favor.register(
    [Variant(name, {"name": name}) for name in ("fast", *NAMES)],
    title="Slow ViT",
    how=How.BASELINE,
    year=2020,
    paper=None,
    changes="Slow.",
    image_sizes=ImageSizes(32, 8, 8),
)
def slow_vit(name: str, **options: Unpack[Options]) -> nn.Module:
    model = Slow(Size(16, 2, 2, 2.0), embed=partial(PatchEmbed, patch_size=8), layer_scale=None, **options)
    model.name = name
    return model
