"""SwiftFormer: additive attention by one global query, and convolutions in place of the MLP.

Paper: Shaker et al., "SwiftFormer: Efficient Additive Attention for Transformer-based Real-time Mobile Vision
Applications", 2023, arXiv:2303.15446
"""

from collections.abc import Mapping
from typing import Unpack

from torch import nn

from favor.zoo.encoder import Options
from favor.zoo.registry import ImageSizes, Variant, register
from favor.zoo.taxonomy import How
from favor.zoo.timm_models import build_timm_with_one_head

_MORE_NORMS = "{} parameters; the benchmark's implementation has {}, because every stage has one more batch norm."


@register(
    [
        Variant(
            "swiftformer_xs",
            {"architecture": "swiftformer_xs"},
            notes=(_MORE_NORMS.format("3,254,360", "3,255,232"),),
        ),
        Variant(
            "swiftformer_s",
            {"architecture": "swiftformer_s"},
            ("SwiftFormer",),
            notes=(_MORE_NORMS.format("5,867,128", "5,868,136"),),
        ),
    ],
    title="SwiftFormer",
    how=How.SHUFFLING,
    year=2023,
    paper="2303.15446",
    origin="timm",
    complexity="O(N)",
    changes="The queries are pooled into one global query that multiplies the keys; the MLP block is convolutional.",
    notes=("With one head: timm's network averages a second one that is meant for a teacher.",),
    image_sizes=ImageSizes(multiple_of=32, at_least=64),
    miniature={"network": {"layers": (1, 1, 1, 1), "embed_dims": (16, 16, 32, 32)}},
)
def swiftformer(
    architecture: str, network: Mapping[str, object] | None = None, **options: Unpack[Options]
) -> nn.Module:
    return build_timm_with_one_head(architecture, network, **options)
