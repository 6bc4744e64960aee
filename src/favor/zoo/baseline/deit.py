"""DeiT: ViT trained on ImageNet alone, by a better recipe.

Paper: Touvron et al., "Training data-efficient image transformers & distillation through attention", 2020,
arXiv:2012.12877
"""

from typing import Unpack

from torch import nn

from favor.zoo.encoder import Encoder, Options, Size
from favor.zoo.registry import register, vit_sizes
from favor.zoo.taxonomy import How


@register(
    vit_sizes("deit_{size}16", aliases=["deit_{word}_patch16_LS", "DeiT-{letter}/16"]),
    title="DeiT",
    how=How.BASELINE,
    year=2020,
    paper="2012.12877",
    complexity="O(N^2)",
    changes="Nothing in the network: DeiT changes ViT's training and adds a distillation token.",
    notes=(
        "Without the distillation token, as the benchmark trains without a teacher.",
        "As in the benchmark's row DeiT-S/16: LayerScale 1e-4, and a class token without a position. The original DeiT "
        "has no LayerScale, and its class token has a position (22,050,664 parameters at S instead of 22,059,496).",
        "The class token starts with a standard deviation of 1e-6, like our ViT's; DeiT's starts with 0.02.",
    ),
)
def deit(size: Size, **options: Unpack[Options]) -> nn.Module:
    return Encoder(size, **options)
