"""SwinV2: Swin with cosine attention and continuous relative positions.

Paper: Liu et al., "Swin Transformer V2: Scaling Up Capacity and Resolution", 2021, arXiv:2111.09883
"""

from collections.abc import Mapping
from typing import Unpack

from torch import nn

from favor.zoo.encoder import Options
from favor.zoo.registry import ImageSizes, Variant, register
from favor.zoo.stages import window_size
from favor.zoo.taxonomy import How
from favor.zoo.timm_models import build_timm


@register(
    [
        Variant(
            "swinv2_ti", {"architecture": "swinv2_tiny_window8_256"}, ("swinv2_tiny_patch4_window7", "SwinV2-Ti-W7/4")
        )
    ],
    title="SwinV2",
    how=How.SPARSE,
    year=2021,
    paper="2111.09883",
    origin="timm",
    complexity="O(N)",
    changes="Swin's windows with cosine attention, norms after the branches, and positions from a small network.",
    notes=(
        "Windows are the smallest of 7 or more that tile the last stage, and so all: 7 at 224 and 448 px, 12 at "
        "384 px. The complexity is linear over image sizes with the same window.",
    ),
    image_sizes=ImageSizes(multiple_of=32, at_least=64),
    miniature={"network": {"depths": (2, 2), "embed_dim": 24, "num_heads": (1, 2)}},
)
def swinv2(architecture: str, network: Mapping[str, object] | None = None, **options: Unpack[Options]) -> nn.Module:
    height, width = options["img_size"]
    windows = {"window_size": (window_size(height // 32), window_size(width // 32))}
    return build_timm(architecture, {**windows, **(network or {})}, **options)
