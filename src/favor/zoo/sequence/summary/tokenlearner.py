"""TokenLearner: in the middle of the network, learned maps condense the patches into 8 tokens.

Paper: Ryoo et al., "TokenLearner: What Can 8 Learned Tokens Do for Images and Videos?", 2021, arXiv:2106.11297
"""

from typing import ClassVar, Unpack

import torch
from torch import Tensor, nn

from favor.errors import RequestError
from favor.zoo.card_notes import LAYER_SCALE
from favor.zoo.encoder import Encoder, Options, Size
from favor.zoo.layers import LayerNorm
from favor.zoo.registry import register, vit_sizes
from favor.zoo.settings import Positive
from favor.zoo.slots import Flow, Place, Reducer, Tokens
from favor.zoo.taxonomy import How


class LearnTokens(Reducer):
    """Each new token is a mean of the patches, weighed by a map that an MLP draws; the class token stays."""

    place: ClassVar[Place] = Place.BEFORE

    def __init__(self, dim: int, hidden: int, learned: int) -> None:
        super().__init__()
        self.draw = nn.Sequential(LayerNorm(dim), nn.Linear(dim, hidden), nn.GELU(), nn.Linear(hidden, learned))

    def before(self, x: Tensor, flow: Flow) -> Tensor:
        patches = x[:, 1:]
        return torch.cat([x[:, :1], self.maps(patches) @ patches], dim=1)

    def maps(self, patches: Tensor) -> Tensor:
        """The weights of the N patches in each new token: [B, N, dim] -> [B, learned, N], rows sum to one."""
        return self.draw(patches).transpose(1, 2).softmax(dim=-1).to(patches.dtype)


class ReusingEncoder(Encoder):
    """The benchmark's: the blocks before the new tokens run again after them, and there are no others."""

    def __init__(self, size: Size, first_short: int, learned: int, **options: Unpack[Options]) -> None:
        super().__init__(size, **options)
        self.blocks = self.blocks[:first_short]
        self.learn = LearnTokens(size.dim, size.hidden, learned)  # with PyTorch's initial values, as in the benchmark

    def features(self, images: Tensor) -> Tensor:
        x, flow = self.embed(images), Flow()
        for block in self.blocks:
            x = block(x, flow)
        x = self.learn.before(x, flow)
        for block in self.blocks:
            x = block(x, flow)
        return self.pooled(x, flow)


@register(
    [
        *vit_sizes(
            "tokenlearner_8_50_{size}16",
            "ti s b l",
            aliases=["token_learner_vit_8_50_{word}_patch16", "Token Learner-8-50-{letter}/16"],
            after=0.5,
            notes=(
                "The benchmark's implementation runs its second half on the weights of the first (12,012,528 "
                "parameters at S instead of 22,663,920): `tokenlearner_8_50_s16(reuse_blocks=True)`.",
            ),
        ),
        *vit_sizes(
            "tokenlearner_8_75_{size}16",
            "ti s b l",
            aliases=["token_learner_vit_8_75_{word}_patch16", "Token Learner-8-75-{letter}/16"],
            after=0.75,
            notes=(
                "The benchmark's implementation runs the first nine blocks twice, before and after the new tokens, and "
                "has no others (17,338,224 parameters and 3.73 GMACs at S instead of 22,663,920 and 3.63): "
                "`tokenlearner_8_75_s16(reuse_blocks=True)`.",
            ),
        ),
    ],
    title="TokenLearner",
    how=How.SUMMARY,
    year=2021,
    paper="2106.11297",
    complexity="O(N^2)",
    changes="After 50 or 75 % of the blocks the patches are condensed into 8 tokens by learned maps.",
    notes=(
        "Version 1.1 of the authors' module, which they say works better: the maps come from an MLP and a softmax, not "
        "from convolutions and a sigmoid. The MLP's hidden layer is as wide as those of the blocks (1536 at S), as in "
        "the benchmark; it has 64 units in the authors' code.",
        "A class token stays beside the 8 new tokens, as in the benchmark. The authors' ImageNet configuration has "
        "none: it learns 16 tokens after 9 of 12 blocks, and the head reads their mean.",
        LAYER_SCALE,
    ),
)
def tokenlearner(
    size: Size, after: float = 0.5, learned: Positive = 8, reuse_blocks: bool = False, **options: Unpack[Options]
) -> nn.Module:
    if not 0.0 <= after < 1.0:
        raise RequestError(f"after is the share of blocks that see all patches, 0 or more and less than 1, not {after}")
    first_short = int(after * size.depth)
    if reuse_blocks and not first_short:
        raise RequestError(f"reuse_blocks needs a block before the new tokens; with after={after} there is none")
    if reuse_blocks:
        return ReusingEncoder(size, first_short, learned, **options)

    def reducer(index: int, dim: int, tokens: Tokens) -> Reducer | None:
        return LearnTokens(dim, size.hidden, learned) if index == first_short else None

    return Encoder(size, reducer=reducer, **options)
