"""ResNet: the reference CNN.

Paper: He et al., "Deep Residual Learning for Image Recognition", 2015, arXiv:1512.03385
"""

from typing import Unpack

from torch import nn

from favor.zoo.encoder import Options
from favor.zoo.registry import ImageSizes, Variant, register
from favor.zoo.taxonomy import How
from favor.zoo.timm_models import build_timm


@register(
    [Variant(name, {"architecture": name}) for name in ("resnet18", "resnet50", "resnet101")],
    title="ResNet",
    how=How.BASELINE,
    year=2015,
    paper="1512.03385",
    origin="timm",
    complexity="O(N)",
    changes="No transformer: a convolutional network, the benchmark's point of reference across papers.",
    image_sizes=ImageSizes(multiple_of=1, at_least=32),
)
def resnet(architecture: str, **options: Unpack[Options]) -> nn.Module:
    return build_timm(architecture, **options)
