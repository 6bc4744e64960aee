"""EViT-fuse: keep the patches that the class token attends to most, fuse the others into one token.

Paper: Liang et al., "Not All Patches are What You Need: Expediting Vision Transformers via Token Reorganizations",
2022, arXiv:2202.07800
"""

from typing import Unpack

import torch
from torch import Tensor, nn

from favor.zoo.card_notes import ON_DEIT
from favor.zoo.encoder import Encoder, Options, Size
from favor.zoo.layers import take_with_class_token
from favor.zoo.positions import Learned
from favor.zoo.registry import register, vit_sizes
from favor.zoo.sequence.removal.evit import SHRINK, KeepAttentive, quarter
from favor.zoo.slots import Reducer, Tokens
from favor.zoo.taxonomy import How


class FuseInattentive(KeepAttentive):
    """As EViT, and the sum of the other patches, weighed by the class token's attention, is one more token."""

    def reorganise(self, x: Tensor, attention: Tensor, index: Tensor) -> Tensor:
        weights = attention.scatter(1, index, 0.0)
        fused = weights[:, None] @ x[:, 1:]
        return torch.cat([take_with_class_token(x, index), fused], dim=1)


@register(
    vit_sizes("evit_fuse_{size}16", "ti s b l", aliases=["evit_{word}_patch16_fuse", "EViT Fuse-{letter}/16"]),
    title="EViT-fuse",
    how=How.MERGING,
    year=2022,
    paper="2202.07800",
    complexity="O(N^2)",
    changes="Blocks 4, 7 and 10 of 12 keep 70 % of the patches and fuse the others into one token.",
    notes=(
        ON_DEIT,
        "The weights of the fused patches do not sum to one, and a fused token competes with the patches in the next "
        "fusing block, both as in the authors' code.",
        "In training the share of kept patches falls from 1 to 0.7 along a half cosine, from 1/30 to 11/30 of the run: "
        "epochs 10 to 110 of 300 in the authors' released command. A training loop that reports no progress trains at "
        "0.7 throughout. Evaluation always keeps 0.7. Settings: `keep`, `shrink`.",
        "The benchmark's implementation keeps all tokens (4.60 GMACs at S instead of 3.03): `evit_fuse_s16(keep=1)`.",
    ),
)
def evit_fuse(
    size: Size, keep: float = 0.7, shrink: tuple[float, float] = SHRINK, **options: Unpack[Options]
) -> nn.Module:
    def reducer(index: int, dim: int, tokens: Tokens) -> Reducer | None:
        return None if quarter(index, size.depth) is None else FuseInattentive(keep, shrink)

    return Encoder(size, reducer=reducer, layer_scale=None, positions=Learned(class_token=True), **options)
