"""EfficientFormerV2: convolutions at high resolution, attention at low resolution, sizes found by search.

Paper: Li et al., "Rethinking Vision Transformers for MobileNet Size and Speed", 2022, arXiv:2212.08059
"""

from typing import Unpack

from torch import nn

from favor.zoo.encoder import Options
from favor.zoo.registry import ImageSizes, Variant, register
from favor.zoo.taxonomy import How
from favor.zoo.timm_models import build_timm_with_one_head


@register(
    [
        Variant("efficientformerv2_s0", {"architecture": "efficientformerv2_s0"}, ("EfficientFormerV2-S0",)),
        Variant("efficientformerv2_s1", {"architecture": "efficientformerv2_s1"}, ("EfficientFormerV2-S1",)),
    ],
    title="EfficientFormerV2",
    how=How.HYBRID,
    year=2022,
    paper="2212.08059",
    origin="timm",
    complexity="O(N^2)",
    changes="Four stages of convolutional blocks; the last two stages add attention with local queries and biases.",
    notes=(
        "Without the distillation head, as the benchmark trains without a teacher.",
        "Attention biases are resampled to other image sizes; the authors' tables fit one size only.",
        "Counted in the form that is trained, as papers do; inference is measured in the form of `favor.fuse`, which "
        "folds all batch norms but the one before the head into convolutions (75 to 1 at S0).",
    ),
    image_sizes=ImageSizes(multiple_of=32, at_least=64),
)
def efficientformerv2(architecture: str, **options: Unpack[Options]) -> nn.Module:
    return build_timm_with_one_head(architecture, **options)
