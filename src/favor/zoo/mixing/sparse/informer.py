"""Informer: attention for the few queries whose attention would differ most from a mean over all values.

Paper: Zhou et al., "Informer: Beyond Efficient Transformer for Long Sequence Time-Series Forecasting", 2020,
arXiv:2012.07436
"""

import math
from functools import partial
from typing import ClassVar, Unpack

import torch
import torch.nn.functional as F
from torch import Tensor, nn

from favor.zoo.attention import HeadMixer
from favor.zoo.encoder import Block, Encoder, Options, Size
from favor.zoo.registry import register, vit_sizes
from favor.zoo.settings import Positive
from favor.zoo.slots import Flow, Tokens
from favor.zoo.taxonomy import How


class InformerMixer(HeadMixer):
    """ProbSparse attention: c ln(N) queries attend to all keys, the others get the mean value: O(N log N)."""

    fixed_tokens: ClassVar[bool] = True
    sampled: Tensor

    def __init__(self, dim: int, heads: int, tokens: Tokens, factor: int = 5, rotary: bool = False) -> None:
        super().__init__(dim, heads, tokens, rotary=rotary)
        self.active = min(factor * math.ceil(math.log(tokens.count)), tokens.count)
        # places as fractions of the sequence, which fit any number of tokens; more tokens have more of them
        self.register_buffer("sampled", torch.rand(self.active))

    def mix(self, q: Tensor, k: Tensor, v: Tensor) -> Tensor:
        B, heads, N, d = q.shape
        q = q.contiguous()
        active = self._sparsity(q, k).topk(self.active, sorted=False).indices
        images, head = torch.arange(B, device=q.device)[:, None, None], torch.arange(heads, device=q.device)[:, None]
        chosen = F.embedding((images * heads + head) * N + active, q.view(-1, d))
        attended = F.scaled_dot_product_attention(chosen, k, v)
        lazy = v.mean(dim=2)[:, None].expand(B, N, heads, d)
        rows = (images * N + active) * heads + head
        y = lazy.reshape(-1, d).index_copy(0, rows.flatten(), attended.reshape(-1, d).to(lazy.dtype))
        return y.view(B, N, heads, d).transpose(1, 2)

    @torch.no_grad()
    def _sparsity(self, q: Tensor, k: Tensor) -> Tensor:
        """How far each query is from uniform attention: its largest logit over its mean one, of sampled keys."""
        if self.training:
            self.sampled.uniform_()
        N = k.shape[2]
        places = (self.sampled.float() * N).long().clamp_max(N - 1)
        logits = q @ k.index_select(2, places).transpose(-2, -1)
        return logits.amax(dim=-1) - logits.mean(dim=-1)

    def draw_more(self, name: str, numbers: Tensor) -> Tensor:
        """The places of more or fewer sampled keys."""
        drawn = torch.rand(self.active, generator=torch.Generator().manual_seed(0), device="cpu").to(numbers)
        return torch.cat([numbers[: self.active], drawn[len(numbers) :]])


class AuthorsMixer(InformerMixer):
    """The authors' code: every query draws its own keys in every pass, and the sum of their logits is divided by N."""

    def __init__(self, dim: int, heads: int, tokens: Tokens, factor: int = 5, rotary: bool = False) -> None:
        super().__init__(dim, heads, tokens, factor, rotary)
        del self.sampled

    @torch.no_grad()
    def _sparsity(self, q: Tensor, k: Tensor) -> Tensor:
        N = k.shape[2]
        places = torch.randint(N, (N, self.active), device=k.device)
        logits = (k[:, :, places] @ q.unsqueeze(-1)).squeeze(-1)
        return logits.amax(dim=-1) - logits.sum(dim=-1) / N


class AuthorsBlock(Block):
    """The authors' code: norms after the residuals, neither LayerScale nor drop path."""

    def forward(self, x: Tensor, flow: Flow) -> Tensor:
        x = self.norm1(x + self.mix(x, flow))
        return self.norm2(x + self.mlp(x))


@register(
    vit_sizes("informer_{size}16", "ti s b l", aliases=["informer_vit_{word}_patch16", "Informer-{letter}/16"]),
    title="Informer",
    how=How.SPARSE,
    year=2020,
    paper="2012.07436",
    complexity="O(N log N)",
    changes="Only the c ln(N) queries that differ most from uniform attention attend; the others get the mean value.",
    notes=(
        "c = 5, the authors' default: 30 of 197 queries attend. They are ranked by their logits with 30 sampled keys, "
        "the largest minus the mean, as in the paper; the authors' code divides the sum by N instead of by 30.",
        "The queries of a block share the sampled keys, as in the paper's Algorithm 1; in the authors' code every "
        "query has its own. The sample is drawn at construction and in every training step; it is fixed in eval mode "
        "and saved with the weights. The authors' code and the benchmark's draw a new one in every evaluation too.",
        "Only the attention is used: there is no distilling between the blocks.",
        "The benchmark's blocks are those of the authors' code: norms after the residuals, neither LayerScale nor drop "
        "path, and every query draws its own keys in every pass (22,050,280 parameters at S instead of 22,059,496): "
        "`informer_s16(authors_code=True)`. Evaluations of it differ from pass to pass.",
        "At the benchmark's sizes LayerScale starts at 1e-4, the benchmark's setting for its other models; the "
        "authors' code has none.",
    ),
    miniature={"factor": 2},
)
def informer(size: Size, factor: Positive = 5, authors_code: bool = False, **options: Unpack[Options]) -> nn.Module:
    if authors_code:
        mixer = partial(AuthorsMixer, factor=factor)
        return Encoder(size, mixer=mixer, block=AuthorsBlock, layer_scale=None, **options)
    return Encoder(size, mixer=partial(InformerMixer, factor=factor), **options)
