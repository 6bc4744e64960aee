"""CoaT: attention with convolutional relative positions, and attention between scales.

Paper: Xu et al., "Co-Scale Conv-Attentional Image Transformers", 2021, arXiv:2104.06399
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
        Variant("coat_ti", {"architecture": "coat_tiny"}, ("coat_tiny", "CoaT-Ti")),
        Variant(
            "coat_lite_ti",
            {"architecture": "coat_lite_tiny"},
            ("coat_lite_tiny",),
            notes=(
                "5,721,960 parameters; the benchmark's implementation has 5,722,728, because every stage has "
                "one more vector (64 + 128 + 256 + 320 channels).",
            ),
        ),
    ],
    title="CoaT",
    how=How.HYBRID,
    year=2021,
    paper="2104.06399",
    origin="timm",
    complexity="O(N)",
    changes="Factorized attention, linear in the tokens, with convolutional positions; CoaT also mixes between scales.",
    notes=(
        "The lite variant has serial blocks only, and no attention between scales.",
        "Drop path has the same rate in all blocks, where other networks let it grow from 0 with the depth.",
    ),
    image_sizes=ImageSizes(multiple_of=32, at_least=64),
    miniature={
        "network": {
            "embed_dims": (16, 16, 16, 16),
            "serial_depths": (1, 1, 1, 1),
            "parallel_depth": 1,
        }
    },
)
def coat(architecture: str, network: Mapping[str, object] | None = None, **options: Unpack[Options]) -> nn.Module:
    return build_timm(architecture, network, **options)
