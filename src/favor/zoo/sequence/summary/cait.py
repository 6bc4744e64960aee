"""CaiT: the class token joins late and gathers the image in two class-attention blocks.

Paper: Touvron et al., "Going deeper with Image Transformers", 2021, arXiv:2103.17239
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
        Variant("cait_xxs24", {"architecture": "cait_xxs24_224"}),
        Variant("cait_s24", {"architecture": "cait_s24_224"}, ("CaiT-S-24",)),
    ],
    title="CaiT",
    how=How.SUMMARY,
    year=2021,
    paper="2103.17239",
    origin="timm",
    complexity="O(N^2)",
    changes="Talking-heads attention without a class token; in the last two blocks only the class token attends.",
    notes=(
        "Drop path has the same rate in all blocks, where other networks let it grow from 0 with the depth, and the "
        "class-attention blocks have none; both as in the authors' code.",
        "LayerScale starts at 1e-5 with 24 blocks, as in the authors' code and the benchmark.",
    ),
    image_sizes=ImageSizes(multiple_of=16, at_least=32),
    miniature={"network": {"depth": 2, "embed_dim": 48, "num_heads": 3}},
)
def cait(architecture: str, network: Mapping[str, object] | None = None, **options: Unpack[Options]) -> nn.Module:
    return build_timm(architecture, network, **options)
