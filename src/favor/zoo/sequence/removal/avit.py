"""A-ViT: each token halts when the halting scores that it has gathered from block to block reach one.

Paper: Yin et al., "A-ViT: Adaptive Tokens for Efficient Vision Transformer", 2021, arXiv:2112.07658
"""

import math
from collections.abc import Sequence
from typing import Annotated, Unpack

import torch
import torch.nn.functional as F
from torch import Tensor, nn
from torch._subclasses.fake_tensor import FakeTensor

from favor.errors import RequestError
from favor.zoo.card_notes import ON_DEIT
from favor.zoo.encoder import Encoder, Options, Size
from favor.zoo.layers import take_with_class_token
from favor.zoo.positions import Learned
from favor.zoo.registry import register, vit_sizes
from favor.zoo.settings import AtLeast
from favor.zoo.slots import Flow
from favor.zoo.taxonomy import How
from favor.zoo.training import ExtraLosses

GATE_SCALE, GATE_CENTER = 10.0, 30.0
"""A token's halting score is sigmoid(GATE_SCALE * first channel - GATE_CENTER)."""
THRESHOLD = 0.99
PONDER_WEIGHT = 5e-4


def prior(depth: int) -> list[float]:
    """The share of tokens that halt after each block, as the paper's prior wants it: a Gaussian, 1 block wide.

    >>> max(range(12), key=prior(12).__getitem__)
    8
    """
    density = [math.exp(-0.5 * (block - 2 * depth / 3) ** 2) for block in range(depth)]
    return [value / sum(density) for value in density]


def prior_survival(depth: int) -> tuple[float, ...]:
    """The share of patches that enter each block if tokens halt as the prior says.

    >>> [round(share, 2) for share in prior_survival(12)[6:]]
    [1.0, 0.94, 0.7, 0.3, 0.06, 0.0]
    """
    halts = prior(depth)
    return tuple(1.0 - sum(halts[:block]) for block in range(depth))


SURVIVAL = prior_survival(12)
"""The operating point at which the sizes of 12 blocks are counted and timed."""
DISTRIBUTION_WEIGHT = 1e-3 * 0.98 / sum(prior(12)[:8]) / 12
"""2.72e-4. The authors' weight is 1e-3, but their prior sums to 0.98 before its peak, so to 3.26 in all, and they
divide the divergence by the 12 blocks."""


class Halting:
    """What the tokens of one forward pass have gathered so far; all tensors are [B, N] for the tokens still in x."""

    def __init__(self, x: Tensor, gate_scale: float = GATE_SCALE, gate_center: float = GATE_CENTER) -> None:
        self.gate_scale, self.gate_center = gate_scale, gate_center
        self.running = torch.ones(x.shape[:2], dtype=torch.bool, device=x.device)
        self.gathered = torch.zeros(x.shape[:2], dtype=_score_type(x), device=x.device)
        self.ponder = torch.zeros_like(self.gathered)
        self.class_token = torch.zeros_like(x[:, 0])
        self.mean_scores: list[Tensor] = []

    def step(self, x: Tensor, last: bool = False) -> None:
        """Take in what a block put out; after the last one all tokens halt."""
        channel = x[..., 0].to(self.gathered.dtype)
        scores = torch.sigmoid(self.gate_scale * channel - self.gate_center) * self.running
        self.mean_scores.append(scores.mean())
        remainder = 1.0 - self.gathered
        halts = self.running if last else self.running & (self.gathered + scores > THRESHOLD)
        weight = torch.where(halts, remainder, scores)
        self.class_token = self.class_token + weight[:, :1].to(x.dtype) * x[:, 0]
        self.ponder = self.ponder + self.running + remainder * halts
        self.gathered = self.gathered + scores
        self.running = self.running & ~halts

    def keep(self, index: Tensor) -> None:
        """Forget all patches but those at `index`."""
        tokens = F.pad(index + 1, (1, 0))
        self.running, self.gathered = self.running.gather(1, tokens), self.gathered.gather(1, tokens)
        self.ponder = self.ponder.gather(1, tokens)


class HaltingEncoder(Encoder):
    """A ViT whose halted tokens leave the sequence; the head sees the class token as a mean over the blocks.

    In training and in an exported graph halted tokens are masked, in eval they are taken out. Images of a batch that
    keep fewer tokens than others are padded. With `survival` the share of patches that enters each block is imposed in
    eval, the ones that have gathered least; tensors without values, whose tokens cannot halt, are treated so as well.
    """

    def __init__(
        self,
        size: Size,
        *,
        survival: Sequence[float] | None,
        gate_scale: float,
        gate_center: float,
        ponder: float,
        distribution: float,
        **options: Unpack[Options],
    ) -> None:
        super().__init__(size, layer_scale=None, positions=Learned(class_token=True), **options)
        self.gate_scale, self.gate_center = gate_scale, gate_center
        self.ponder_weight, self.distribution_weight = ponder, distribution
        imposed = prior_survival(size.depth) if survival is None else tuple(survival)
        _check_survival(imposed, size.depth)
        self.halts_by_score = True
        self.imposed_counts = [math.ceil(share * self.tokens.patches - 1e-9) for share in imposed]
        self.prior = prior(size.depth)
        self.extra_losses = ExtraLosses()
        self.operating_point: dict[str, str | float] = {
            "survival": "by halting scores; imposed where tensors have no values",
            "imposed_survival": " ".join(f"{share:.3g}" for share in imposed),
            "imposed_mean_survival": round(sum(imposed) / len(imposed), 4),
        }
        if survival is not None:
            self.impose_operating_point()

    def impose_operating_point(self) -> None:
        """Take out as many patches as the survival says, whatever their scores: fresh weights halt none."""
        self.halts_by_score = False
        self.operating_point["survival"] = "imposed"

    def features(self, images: Tensor) -> Tensor:
        x = self.embed(images)
        flow, halting = Flow(), Halting(x, self.gate_scale, self.gate_center)
        for index, block in enumerate(self.blocks):
            if index > 0:
                halting.step(x)
                x = self._shorten(x, index, flow, halting)
            x = block(x, flow)
        halting.step(x, last=True)
        if self.training:
            self._regularise(halting)
        return self.norm(halting.class_token)

    def _shorten(self, x: Tensor, index: int, flow: Flow, halting: Halting) -> Tensor:
        """Take the halted patches out of the sequence, or mask them in training."""
        if self.training or (self.halts_by_score and torch.compiler.is_exporting()):
            flow.alive = _keys(halting.running)
            return x
        if not self.halts_by_score or x.is_meta or isinstance(x, FakeTensor):
            return self._impose(x, index, halting)
        running = halting.running[:, 1:]
        if not len(running):
            return x  # no image says how many tokens survive
        fewest, most, class_runs = torch.stack([*running.sum(dim=1).aminmax(), halting.running[:, 0].all()]).tolist()
        if most < running.shape[1]:
            survivors = running.to(torch.int8).topk(most, dim=1).indices
            halting.keep(survivors)
            x = take_with_class_token(x, survivors)
        flow.alive = None if fewest == most and class_runs else _keys(halting.running)
        return x

    def _impose(self, x: Tensor, index: int, halting: Halting) -> Tensor:
        count = self.imposed_counts[index]
        if count >= x.shape[1] - 1:
            return x
        survivors = halting.gathered[:, 1:].topk(count, dim=1, largest=False).indices
        halting.keep(survivors)
        return take_with_class_token(x, survivors)

    def _regularise(self, halting: Halting) -> None:
        """The ponder loss wants tokens to halt early; the distribution loss, around the prior's block."""
        scores = torch.stack(halting.mean_scores)
        scores = (scores / scores.sum().clamp_min(torch.finfo(scores.dtype).tiny)).clamp(0.01, 0.99)
        target = torch.tensor(self.prior, dtype=scores.dtype, device=scores.device)
        negative_entropy = sum(share * math.log(share) for share in self.prior)
        self.extra_losses["ponder"] = self.ponder_weight * halting.ponder.mean()
        self.extra_losses["distribution"] = self.distribution_weight * (negative_entropy - target @ scores.log())


def _keys(running: Tensor) -> Tensor:
    """Who is attended to: the running tokens; where there is none, the class token, as a softmax needs a key."""
    running_or_only = running[:, :1] | ~running.any(dim=1, keepdim=True)
    return torch.cat([running_or_only, running[:, 1:]], dim=1)


def _score_type(x: Tensor) -> torch.dtype:
    """Scores as small as sigmoid(-30) and their sums want more than half precision."""
    return torch.float32 if x.dtype in (torch.float16, torch.bfloat16) else x.dtype


def _check_survival(survival: tuple[float, ...], depth: int) -> None:
    if len(survival) != depth:
        raise RequestError(f"survival names a share of patches for each block: {depth} of them, not {len(survival)}")
    if not all(0.0 <= share <= 1.0 for share in survival) or list(survival) != sorted(survival, reverse=True):
        raise RequestError(f"survival are shares of patches from 1 down to 0 that never rise, not {survival}")
    if survival[0] != 1.0:
        raise RequestError(f"survival starts with 1, not {survival[0]}: no token has halted before the first block")


@register(
    vit_sizes("avit_{size}16", "ti s b l", aliases=["avit_{word}_patch16", "A-ViT-{letter}/16"]),
    title="A-ViT",
    how=How.REMOVAL,
    year=2021,
    paper="2112.07658",
    complexity="O(N^2)",
    changes="Tokens halt at different depths, according to scores read from their first channel, and leave the "
    "sequence.",
    notes=(
        ON_DEIT,
        "Scores are sigmoid(10 x - 30) and the ponder loss has weight 5e-4, as in the authors' released command for "
        "Ti; their S uses sigmoid(10 x - 75). Both are fine-tuned from DeiT for 100 epochs (`favor train --init`). "
        "Settings: `gate_scale`, `gate_center`, `ponder`, `distribution`.",
        "The distribution loss is the divergence of the mean scores from the prior, a Gaussian of width 1 around block "
        "9 of 12, times 2.72e-4. Its gradient equals that of the authors' weight of 1e-3: their prior sums to 3.26 "
        "instead of 1, and they divide by the 12 blocks.",
        "A halted token scores 0. The authors' training code sets it to zero, lets later blocks write into it and "
        "averages its score sigmoid(10 x - 30) with the others, 1e-13 at x = 0; it also leaves the first image of each "
        "batch out of that mean.",
        "An untrained model halts no token. For counts and inference times a survival is imposed, as if tokens halted "
        "according to the prior (`survival=SURVIVAL`): tokens pass 9 of 12 blocks on average, 3.46 GMACs at S. The "
        "authors report 3.6 for A-ViT-S and 0.8 for A-ViT-T.",
        "The benchmark's implementation multiplies halted tokens by zero and removes none; its scores are sigmoid(100 "
        "x - 3), its ponder loss has weight 1e-3 and its distribution loss 1e-2.",
    ),
    graph_breaks="Tensor.tolist: the number of surviving tokens depends on the data (with `survival` it does not)",
)
def avit(
    size: Size,
    survival: Sequence[float] | None = None,
    gate_scale: float = GATE_SCALE,
    gate_center: float = GATE_CENTER,
    ponder: Annotated[float, AtLeast(0)] = PONDER_WEIGHT,
    distribution: Annotated[float, AtLeast(0)] = DISTRIBUTION_WEIGHT,
    **options: Unpack[Options],
) -> nn.Module:
    return HaltingEncoder(
        size,
        survival=survival,
        gate_scale=gate_scale,
        gate_center=gate_center,
        ponder=ponder,
        distribution=distribution,
        **options,
    )
