"""FocalNet: focal modulation, a hierarchy of convolutional contexts that modulates each token.

Paper: Yang et al., "Focal Modulation Networks", 2022, arXiv:2203.11926
"""

from typing import Unpack

from torch import nn

from favor.zoo.encoder import Options
from favor.zoo.registry import ImageSizes, Variant, register
from favor.zoo.taxonomy import How
from favor.zoo.timm_models import build_timm


@register(
    [
        Variant("focalnet_ti", {"architecture": "focalnet_tiny_srf"}, ("focalnet_tiny_srf", "FocalNet-Ti-Srf")),
        Variant("focalnet_s", {"architecture": "focalnet_small_srf"}, ("focalnet_small_srf", "FocalNet-S-Srf")),
    ],
    title="FocalNet",
    how=How.SHUFFLING,
    year=2022,
    paper="2203.11926",
    origin="timm",
    complexity="O(N)",
    changes="Replaces attention by gated contexts of growing size, taken by depthwise convolutions.",
    notes=("The variants with a small receptive field (srf), as in the benchmark.",),
    image_sizes=ImageSizes(multiple_of=32, at_least=64),
)
def focalnet(architecture: str, **options: Unpack[Options]) -> nn.Module:
    return build_timm(architecture, **options)
