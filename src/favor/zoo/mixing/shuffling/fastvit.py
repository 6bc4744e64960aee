"""FastViT: token mixing by depthwise convolutions whose branches and skips fold into one for inference.

Paper: Vasu et al., "FastViT: A Fast Hybrid Vision Transformer using Structural Reparameterization", 2023,
arXiv:2303.14189
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
        Variant("fastvit_t8", {"architecture": "fastvit_t8"}),
        Variant("fastvit_s12", {"architecture": "fastvit_s12"}, ("FastViT-12", "FastViT-S12")),
    ],
    title="FastViT",
    how=How.SHUFFLING,
    year=2023,
    paper="2303.14189",
    origin="timm",
    complexity="O(N)",
    changes="Four stages that mix tokens by convolutions; training-time branches become one convolution for inference.",
    notes=(
        "Counted in the form that is trained, as papers do; inference is measured in the form of `favor.fuse`, where "
        "every batch norm and branch is part of a convolution: t8 moves 94 MB per image instead of 216.",
    ),
    image_sizes=ImageSizes(multiple_of=32, at_least=64),
    miniature={"network": {"layers": (1, 1, 1, 1), "embed_dims": (16, 16, 32, 32)}},
)
def fastvit(architecture: str, network: Mapping[str, object] | None = None, **options: Unpack[Options]) -> nn.Module:
    return build_timm(architecture, network, **options)
