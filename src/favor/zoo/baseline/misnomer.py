"""The misnomer's ViTs: ViT scaled in depth (D) or in width (W).

Paper: Dehghani et al., "The Efficiency Misnomer", 2021, arXiv:2110.12894, Table 2; the network is that of Dosovitskiy
et al., "An Image is Worth 16x16 Words: Transformers for Image Recognition at Scale", 2020, arXiv:2010.11929
"""

from functools import partial
from typing import Unpack

from torch import nn

from favor.zoo.encoder import Encoder, Options, Size
from favor.zoo.layers import PatchEmbed
from favor.zoo.positions import Learned
from favor.zoo.registry import ImageSizes, Variant, register
from favor.zoo.settings import Positive
from favor.zoo.taxonomy import How

GRID = {
    **{f"D{depth}": Size(384, depth, 6) for depth in (6, 8, 16, 24, 32, 48)},
    "W768": Size(192, 12, 3),
    "W1024": Size(384, 12, 6, mlp_ratio=1024 / 384),
    "W1536": Size(512, 12, 8, mlp_ratio=3.0),
    "W3072": Size(768, 12, 12),
    "W4096": Size(1024, 12, 16),
}
"""The rows of Table 2: D with their number of blocks, W with the width of their MLPs."""
MISPRINT = (
    "1536 hidden units in the MLPs, as the paper's parameters and multiply-adds require. Its Table 2 prints an "
    "FFN of 1024 for the D rows, a misprint."
)


def misnomer(size: Size, patch_size: Positive = 32, **options: Unpack[Options]) -> nn.Module:
    embed = partial(PatchEmbed, patch_size=patch_size)
    return Encoder(size, embed=embed, positions=Learned(class_token=True), layer_scale=None, **options)


for _row, _size in GRID.items():
    register(
        [Variant(f"misnomer_{_row.lower()}", {"size": _size}, notes=(MISPRINT,) if _row.startswith("D") else ())],
        title=f"ViT {_row}",
        how=How.BASELINE,
        year=2020,
        paper="2010.11929",
        complexity="O(N^2)",
        changes="Nothing but the size: the grid of depths and widths of The Efficiency Misnomer (arXiv:2110.12894), "
        "with patches of 32 px.",
        image_sizes=ImageSizes(multiple_of=32, at_least=32),
        notes=(
            "In the form of the original ViT: a position for the class token, no LayerScale.",
            "A head of 18,291 classes gives the paper's parameters; `num_classes` is 1000 unless given.",
        ),
    )(misnomer)
