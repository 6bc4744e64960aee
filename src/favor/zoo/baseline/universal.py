"""Universal Transformer: one block, whose weights are used at every depth.

Paper: Dehghani et al., "Universal Transformers", 2018, arXiv:1807.03819; the example of parameter sharing in Dehghani
et al., "The Efficiency Misnomer", 2021, arXiv:2110.12894
"""

from dataclasses import replace
from typing import Unpack

from torch import nn

from favor.zoo.card_notes import LAYER_SCALE
from favor.zoo.encoder import Encoder, Options, Size
from favor.zoo.registry import register, vit_sizes
from favor.zoo.taxonomy import How


class UniversalEncoder(Encoder):
    """A ViT with the parameters of one block and the cost of all."""

    def __init__(self, size: Size, **options: Unpack[Options]) -> None:
        super().__init__(replace(size, depth=1), **options)
        block = self.blocks[0]
        block.drop_path.rate = options["drop_path"]  # type: ignore[union-attr]
        self.blocks = nn.ModuleList([block] * size.depth)


@register(
    vit_sizes("universal_{size}16"),
    title="Universal Transformer",
    how=How.BASELINE,
    year=2018,
    paper="1807.03819",
    complexity="O(N^2)",
    changes="Every block has the same weights: few parameters at the full cost of ViT.",
    notes=(
        "A baseline, as it changes neither the mixing nor the sequence nor the MLP. It shows that the number of "
        "parameters says nothing about the cost.",
        "Only the weights are shared: the paper's depth embedding and its halting per token are left out. The "
        "Efficiency Misnomer compares a Universal Transformer in Mesh TensorFlow (Figure 1). It says that parameters "
        "are shared in depth, and nothing about the other two.",
        "Drop path has the same rate at every depth, because there is only one block.",
        LAYER_SCALE,
    ),
)
def universal(size: Size, **options: Unpack[Options]) -> nn.Module:
    return UniversalEncoder(size, **options)
