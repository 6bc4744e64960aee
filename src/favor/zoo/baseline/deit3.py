"""DeiT III: a simpler and longer training of ViT, with LayerScale.

Paper: Touvron et al., "DeiT III: Revenge of the ViT", 2022, arXiv:2204.07118
"""

from typing import Unpack

from torch import nn

from favor.zoo.encoder import Encoder, Options, Size
from favor.zoo.registry import register, vit_sizes
from favor.zoo.taxonomy import How


@register(
    vit_sizes("deit3_{size}16", "s b", aliases=["DeiT3-{letter}/16"]),
    title="DeiT III",
    how=How.BASELINE,
    year=2022,
    paper="2204.07118",
    complexity="O(N^2)",
    changes="LayerScale 1e-4 on both residual branches, and a class token without a position.",
    notes=(
        "The benchmark took both changes over for its ViT, so the network equals `vit_*16`. The training recipe is the "
        "benchmark's too.",
        "The class token starts with a standard deviation of 1e-6, like our ViT's; DeiT III's starts with 0.02.",
    ),
)
def deit3(size: Size, **options: Unpack[Options]) -> nn.Module:
    return Encoder(size, **options)
