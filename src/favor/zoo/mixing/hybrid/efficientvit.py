"""EfficientViT: convolutions, and multi-scale linear attention with a ReLU kernel.

Paper: Cai et al., "EfficientViT: Multi-Scale Linear Attention for High-Resolution Dense Prediction", 2022,
arXiv:2205.14756
"""

from collections.abc import Mapping
from typing import Unpack

from torch import nn

from favor.zoo.encoder import Options
from favor.zoo.registry import ImageSizes, Variant, register
from favor.zoo.taxonomy import How
from favor.zoo.timm_models import build_timm


@register(
    [
        Variant("efficientvit_b1", {"architecture": "efficientvit_b1"}, ("efficient_vit_b1",)),
        Variant("efficientvit_b2", {"architecture": "efficientvit_b2"}, ("efficient_vit_b2", "Efficient ViT-B-2")),
    ],
    title="EfficientViT",
    how=How.HYBRID,
    year=2022,
    paper="2205.14756",
    origin="timm",
    complexity="O(N)",
    changes="Inverted residual convolutions first, then ReLU linear attention over tokens of several scales.",
    image_sizes=ImageSizes(multiple_of=32, at_least=64),
    miniature={
        "network": {"widths": (8, 16, 16, 32, 32), "depths": (1, 1, 1, 1, 1), "head_dim": 16, "head_widths": (64, 64)}
    },
)
def efficientvit(
    architecture: str, network: Mapping[str, object] | None = None, **options: Unpack[Options]
) -> nn.Module:
    return build_timm(architecture, **options, **(network or {}))
