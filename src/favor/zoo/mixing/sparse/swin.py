"""Swin: attention inside local windows, which shift from block to block.

Paper: Liu et al., "Swin Transformer: Hierarchical Vision Transformer using Shifted Windows", 2021, arXiv:2103.14030
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
            "swin_ti", {"architecture": "swin_tiny_patch4_window7_224"}, ("swin_tiny_patch4_window7", "Swin-Ti-W7/4")
        ),
        Variant(
            "swin_s", {"architecture": "swin_small_patch4_window7_224"}, ("swin_small_patch4_window7", "Swin-S-W7/4")
        ),
    ],
    title="Swin",
    how=How.SPARSE,
    year=2021,
    paper="2103.14030",
    origin="timm",
    complexity="O(N)",
    changes="A hierarchy of four stages; tokens attend inside windows only, and every other block shifts the windows.",
    notes=(
        "Windows are the smallest of 7 or more that tile the last stage, and so all: 7 at 224 and 448 px, 12 at "
        "384 px, as in the paper. The complexity is linear over image sizes with the same window.",
    ),
    image_sizes=ImageSizes(multiple_of=32, at_least=64),
    miniature={"network": {"depths": (2, 2), "embed_dim": 24, "num_heads": (1, 2)}},
)
def swin(architecture: str, network: Mapping[str, object] | None = None, **options: Unpack[Options]) -> nn.Module:
    height, width = options["img_size"]
    windows = {"window_size": (window_size(height // 32), window_size(width // 32))}
    return build_timm(architecture, {**windows, **(network or {})}, **options)
