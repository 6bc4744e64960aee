"""DynamicViT: small predictors decide which patches stay, trained by Gumbel-softmax with masked attention.

Paper: Rao et al., "DynamicViT: Efficient Vision Transformers with Dynamic Token Sparsification", 2021, arXiv:2106.02034
"""

from typing import Annotated, ClassVar, Unpack

import torch
import torch.nn.functional as F
from torch import Tensor, nn

from favor.errors import RequestError
from favor.zoo.attention import Attention
from favor.zoo.card_notes import ON_DEIT
from favor.zoo.encoder import Block, Encoder, Options, Size
from favor.zoo.layers import take_with_class_token
from favor.zoo.positions import Learned
from favor.zoo.registry import register, vit_sizes
from favor.zoo.sequence.removal.evit import quarter
from favor.zoo.settings import AtLeast
from favor.zoo.slots import Flow, Place, Reducer, Tokens
from favor.zoo.taxonomy import How
from favor.zoo.training import ExtraLosses

STAGES = 3
RATIO_WEIGHT = 2.0
"""The paper's weight of the ratio loss beside the cross entropy."""


class Predictor(nn.Module):
    """Log-probabilities [B, N, 2] to keep and to drop each patch, from its own features and the mean over the kept."""

    def __init__(self, dim: int) -> None:
        super().__init__()
        self.embed = nn.Sequential(nn.LayerNorm(dim), nn.Linear(dim, dim), nn.GELU())
        self.decide = nn.Sequential(
            nn.Linear(dim, dim // 2), nn.GELU(), nn.Linear(dim // 2, dim // 4), nn.GELU(), nn.Linear(dim // 4, 2)
        )

    def forward(self, patches: Tensor, kept: Tensor | None) -> Tensor:
        own, shared = self.embed(patches).chunk(2, dim=-1)
        if kept is None:
            mean = shared.mean(dim=1, keepdim=True)
        else:
            weights = kept / kept.sum(dim=1, keepdim=True).clamp_min(1.0)
            mean = weights[:, None].to(shared.dtype) @ shared
        return self.decide(torch.cat([own, mean.expand_as(own)], dim=-1)).log_softmax(dim=-1)


class Sparsify(Reducer):
    """In eval takes the patches with the best scores; in training draws who stays and leaves the rest to attention."""

    place: ClassVar[Place] = Place.BEFORE

    def __init__(self, dim: int, tokens: Tokens, share: float, ratio_weight: float = RATIO_WEIGHT) -> None:
        super().__init__()
        if not 0.0 < share <= 1.0:
            raise RequestError(f"keep is the share of patches that stay, more than 0 and at most 1, not {share}")
        self.predictor = Predictor(dim)
        self.share, self.ratio_weight = share, ratio_weight
        self.count = max(int(tokens.patches * share + 1e-9), 1)
        self.extra_losses = ExtraLosses()

    def before(self, x: Tensor, flow: Flow) -> Tensor:
        if self.training:
            self._decide(x[:, 1:], flow)
            return x
        if self.count >= x.shape[1] - 1:
            return x
        scores = self.predictor(x[:, 1:], None)[..., 0]
        return take_with_class_token(x, scores.topk(self.count, dim=1).indices)

    def _decide(self, patches: Tensor, flow: Flow) -> None:
        """Write which patches stay, as 0 and 1 with gradients, and how far their share is from the one asked for."""
        before = flow.notes.get("kept")
        kept = F.gumbel_softmax(self.predictor(patches, before), hard=True)[..., 0]
        if before is not None:
            kept = kept * before
        flow.notes["kept"] = kept
        self.extra_losses["ratio"] = self.ratio_weight / STAGES * (kept.mean(dim=1) - self.share).square().mean()


class MaskedAttention(Attention):
    """Attention that can be told which patches take part."""

    def among(self, x: Tensor, kept: Tensor) -> Tensor:
        """Each token attends to the kept patches, the class token and itself: `kept` is [B, N - 1], 0 or 1.

        The mask is put on the values and divided out again, so that no second N x N matrix is needed.
        """
        q, k, v = self.split(x)
        weights = ((q * self.scale) @ k.transpose(-2, -1)).softmax(dim=-1)
        mask = F.pad(kept, (1, 0), value=1.0)[:, None, :, None]
        itself = weights.diagonal(dim1=-2, dim2=-1)[..., None] * (1.0 - mask)
        total = (weights @ mask.to(weights.dtype) + itself).clamp_min(1e-6)
        return self.proj(self.join((weights @ (v * mask).to(v.dtype) + itself * v) / total))


class SparseBlock(Block):
    """ViT's block, whose attention heeds the decisions on the patches in training."""

    def mix(self, x: Tensor, flow: Flow) -> Tensor:
        kept = flow.notes.get("kept")
        return self.mixer(x) if kept is None else self.mixer.among(x, kept)


@register(
    vit_sizes("dynamicvit_{size}16", "ti s b l", aliases=["dynamic_vit_70_{word}_patch16", "Dynamic ViT-{letter}/16"]),
    title="DynamicViT",
    how=How.REMOVAL,
    year=2021,
    paper="2106.02034",
    complexity="O(N^2)",
    changes="Predictors before blocks 4, 7 and 10 of 12 keep 70, 49 and 34.3 % of the patches.",
    notes=(
        ON_DEIT,
        "Training uses the paper's ratio loss (weight 2). Its two distillation losses (weight 0.5 each) need a teacher "
        "and are left out. The benchmark's implementation has none of the three: `dynamicvit_s16(ratio_weight=0)`. "
        "Settings: `keep`, `ratio_weight`.",
        "The authors fine-tune DeiT for 30 epochs (`favor train --init`): the backbone is frozen for 5 epochs and then "
        "has 1/100 of the predictors' initial learning rate. Here all weights have the recipe's learning rate.",
    ),
)
def dynamicvit(
    size: Size,
    keep: float = 0.7,
    ratio_weight: Annotated[float, AtLeast(0)] = RATIO_WEIGHT,
    **options: Unpack[Options],
) -> nn.Module:
    def reducer(index: int, dim: int, tokens: Tokens) -> Reducer | None:
        stage = quarter(index, size.depth)
        return None if stage is None else Sparsify(dim, tokens, keep ** (stage + 1), ratio_weight)

    return Encoder(
        size,
        mixer=MaskedAttention,
        block=SparseBlock,
        reducer=reducer,
        layer_scale=None,
        positions=Learned(class_token=True),
        **options,
    )
