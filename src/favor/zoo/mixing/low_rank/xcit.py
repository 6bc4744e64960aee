"""XCiT: attention between channels instead of tokens.

Paper: El-Nouby et al., "XCiT: Cross-Covariance Image Transformers", 2021, arXiv:2106.09681
"""

from collections.abc import Mapping
from typing import Unpack

from torch import nn

from favor.zoo.encoder import Options
from favor.zoo.registry import Variant, register
from favor.zoo.taxonomy import How
from favor.zoo.timm_models import build_timm


@register(
    [
        Variant("xcit_ti12_p16", {"architecture": "xcit_tiny_12_p16_224"}, ("xcit_tiny_12_p16", "XCiT-Ti-12/16")),
        Variant("xcit_s12_p16", {"architecture": "xcit_small_12_p16_224"}, ("xcit_small_12_p16", "XCiT-S-12/16")),
    ],
    title="XCiT",
    how=How.LOW_RANK,
    year=2021,
    paper="2106.09681",
    origin="timm",
    complexity="O(N)",
    changes="Each head attends over its channels through their d x d covariance across all tokens; a depthwise "
    "convolution mixes neighboring patches, and two class attention blocks at the end fill the class token.",
    notes=(
        "LayerScale starts at 1 with 12 blocks, as in the paper and the authors' code.",
        "Drop path has the same rate in all blocks, where other networks let it grow from 0 with the depth, and the "
        "class-attention blocks have none; both as in the authors' code.",
        "timm's class attention projects the query of the class token only; the authors' code and the benchmark's "
        "project the queries of all tokens: 4.80 G multiply-adds at S instead of 4.86 G, 1.23 G at Ti instead of 1.25 "
        "G.",
    ),
    miniature={"network": {"embed_dim": 48, "depth": 2, "num_heads": 3}},
)
def xcit(architecture: str, network: Mapping[str, object] | None = None, **options: Unpack[Options]) -> nn.Module:
    return build_timm(architecture, network, **options)
