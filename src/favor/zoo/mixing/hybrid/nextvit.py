"""Next-ViT: several convolutional blocks for every attention block.

Paper: Li et al., "Next-ViT: Next Generation Vision Transformer for Efficient Deployment in Realistic Industrial
Scenarios", 2022, arXiv:2207.05501
"""

from collections.abc import Mapping
from typing import Unpack

from torch import nn

from favor.zoo.encoder import Options
from favor.zoo.registry import ImageSizes, Variant, register
from favor.zoo.taxonomy import How
from favor.zoo.timm_models import build_timm


@register(
    [Variant("nextvit_s", {"architecture": "nextvit_small"}, ("nextvit_small", "NextViT-S"))],
    title="Next-ViT",
    how=How.HYBRID,
    year=2022,
    paper="2207.05501",
    origin="timm",
    complexity="O(N^2)",
    changes="Stages of convolutional blocks that end with one attention block, whose keys and values are pooled.",
    notes=(
        "Counted in the form that is trained, as papers do; inference is measured in the form of `favor.fuse`, which "
        "folds the batch norms before the MLPs and those of the attentions' keys (61 to 34), as timm does.",
        "Drop path grows from 0 with the depth; in a block of both kinds attention has 3/4 of it, convolution 1/4.",
    ),
    image_sizes=ImageSizes(multiple_of=32, at_least=64),
    miniature={"network": {"depths": (1, 1, 5, 1), "stem_chs": (16, 16, 32)}},
)
def nextvit(architecture: str, network: Mapping[str, object] | None = None, **options: Unpack[Options]) -> nn.Module:
    return build_timm(architecture, network, **options)
