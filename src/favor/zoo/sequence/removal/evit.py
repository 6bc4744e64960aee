"""EViT: keep the patches that the class token attends to most, drop the others.

Paper: Liang et al., "Not All Patches are What You Need: Expediting Vision Transformers via Token Reorganizations",
2022, arXiv:2202.07800
"""

import math
from typing import ClassVar, Unpack

from torch import Tensor, nn

from favor.errors import RequestError
from favor.zoo.card_notes import ON_DEIT
from favor.zoo.encoder import Encoder, Options, Size
from favor.zoo.layers import take_with_class_token
from favor.zoo.positions import Learned
from favor.zoo.registry import register, vit_sizes
from favor.zoo.slots import Flow, Place, Reducer, Seen, Tokens
from favor.zoo.taxonomy import How

SHRINK = (10 / 300, 110 / 300)
"""The part of training in which the share of kept patches falls: the authors' epochs 10 to 110 of 300."""


class KeepAttentive(Reducer):
    """Keeps the share of patches with the highest attention of the class token, as a mean over the heads."""

    place: ClassVar[Place] = Place.BETWEEN
    wants_class_row: ClassVar[bool] = True

    def __init__(self, keep: float, shrink: tuple[float, float] = SHRINK) -> None:
        super().__init__()
        if not 0.0 < keep <= 1.0:
            raise RequestError(f"keep is the share of patches that stay, more than 0 and at most 1, not {keep}")
        if not 0.0 <= shrink[0] < shrink[1] <= 1.0:
            raise RequestError(f"shrink is the start and the end of a part of training, such as (0, 0.5), not {shrink}")
        self.shrink = shrink
        self.keep = keep
        self.keep_in_training = keep

    def between(self, x: Tensor, seen: Seen, flow: Flow) -> Tensor:
        assert seen.class_row is not None  # noqa: S101 - `wants_class_row` asked for it
        patches = x.shape[1] - 1
        kept = kept_patches(patches, self.keep_in_training if self.training else self.keep)
        if kept == patches:
            return x
        attention = seen.class_row[:, :, 1:].mean(dim=1)
        return self.reorganise(x, attention, attention.topk(kept, dim=1).indices)

    def reorganise(self, x: Tensor, attention: Tensor, index: Tensor) -> Tensor:
        """The class token and the patches at `index`."""
        return take_with_class_token(x, index)

    def set_progress(self, fraction: float) -> None:
        """Drop no patch at first, then more and more by half a cosine, as the authors train it."""
        start, end = self.shrink
        done = min(max((fraction - start) / (end - start), 0.0), 1.0)
        self.keep_in_training = self.keep + (1.0 - self.keep) * (1.0 + math.cos(math.pi * done)) / 2


def kept_patches(patches: int, keep: float) -> int:
    """How many patches stay, rounded up.

    >>> kept_patches(196, 0.7)
    138
    """
    return math.ceil(patches * keep - 1e-9)


def quarter(index: int, depth: int) -> int | None:
    """Which quarter of the depth ends before a block: 0, 1 or 2 for the blocks 4, 7 and 10 of 12, else None.

    >>> [index for index in range(12) if quarter(index, 12) is not None]
    [3, 6, 9]
    """
    quarters = {(number + 1) * depth // 4: number for number in range(3)}
    return quarters.get(index)


@register(
    vit_sizes("evit_{size}16", "ti s b l", aliases=["evit_{word}_patch16", "EViT-{letter}/16"]),
    title="EViT",
    how=How.REMOVAL,
    year=2022,
    paper="2202.07800",
    complexity="O(N^2)",
    changes="Blocks 4, 7 and 10 of 12 keep the 70 % of patches that the class token attends to most.",
    notes=(
        ON_DEIT,
        "In training the share of kept patches falls from 1 to 0.7 along a half cosine, from 1/30 to 11/30 of the run: "
        "epochs 10 to 110 of 300 in the authors' released command. A training loop that reports no progress trains at "
        "0.7 throughout. Evaluation always keeps 0.7. Settings: `keep`, `shrink`.",
        "The benchmark's implementation keeps all tokens (4.60 GMACs at S instead of 3.00): `evit_s16(keep=1)`.",
    ),
)
def evit(size: Size, keep: float = 0.7, shrink: tuple[float, float] = SHRINK, **options: Unpack[Options]) -> nn.Module:
    def reducer(index: int, dim: int, tokens: Tokens) -> Reducer | None:
        return None if quarter(index, size.depth) is None else KeepAttentive(keep, shrink)

    return Encoder(size, reducer=reducer, layer_scale=None, positions=Learned(class_token=True), **options)
