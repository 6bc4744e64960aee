"""Reformer: tokens attend to those that fall into the same bucket of a locality-sensitive hash.

Paper: Kitaev et al., "Reformer: The Efficient Transformer", 2020, arXiv:2001.04451
"""

import math
from functools import partial
from typing import ClassVar, Unpack

import torch
import torch.nn.functional as F
from torch import Tensor, nn

from favor.errors import RequestError
from favor.zoo.attention import HeadMixer
from favor.zoo.encoder import Encoder, Options, Size
from favor.zoo.registry import register, vit_sizes
from favor.zoo.slots import Tokens
from favor.zoo.taxonomy import How

ROUNDS = 8
LARGEST_HASH = 16
"""Buckets of one hash; more of them are pairs of hashes, so that hashing costs N log N and not N^2."""
SELF = 1e-20
"""What a token counts for itself: nothing, unless it meets no other."""


class ReformerMixer(HeadMixer):
    """Attention inside hash buckets, over several rounds of hashing: O(N log N).

    Tokens are sorted by bucket and cut into chunks; a token attends to the tokens of its bucket in its own chunk and in
    the one before.
    """

    fixed_tokens: ClassVar[bool] = True
    rotations: Tensor

    def __init__(
        self,
        dim: int,
        heads: int,
        tokens: Tokens,
        chunk: int = 64,
        buckets: int | None = None,
        rounds: int = ROUNDS,
        rotary: bool = False,
    ) -> None:
        super().__init__(dim, heads, tokens, rotary=rotary)
        self.qkv = nn.Linear(dim, 2 * dim)  # queries are keys
        self.rounds = rounds
        self.chunks = math.ceil(tokens.count / chunk)
        self.length = math.ceil(tokens.count / self.chunks)
        self.padding = self.chunks * self.length - tokens.count
        buckets = buckets or 2 ** math.ceil(math.log2(2 * self.chunks))
        self.directions = _directions(buckets)
        self.register_buffer("rotations", torch.randn(self.head_dim, rounds, sum(self.directions)))
        # a place is a bucket and a chunk in one number; a gap between buckets keeps the last chunk of one from the next
        largest = buckets * (self.chunks + 1)
        self.place_type = torch.uint8 if largest < 253 else torch.int32
        self.nowhere = largest + 1

    def split(self, x: Tensor) -> tuple[Tensor, Tensor, Tensor]:
        """Queries, the same as keys of unit length, and values."""
        q, v = self.qkv(x).unflatten(2, (2, self.heads, self.head_dim)).permute(2, 0, 3, 1, 4).unbind(0)
        if self.rotary is not None:
            q = self.rotary(q)
        return q, F.normalize(q, dim=-1), v

    def mix(self, q: Tensor, k: Tensor, v: Tensor) -> Tensor:
        B, heads, N, d = q.shape
        if self.training:
            self.rotations.normal_()
        order, rank, counts = self._plan(q)
        first = torch.arange(B * heads, device=q.device).view(B, heads, 1, 1)
        slots = (first * N + order).view(-1, self.length)
        windows = self._with_previous(slots.view(-1, self.chunks, self.length)).flatten(0, 1)
        keys, values = F.embedding(windows, torch.cat([k, v], dim=-1).view(-1, 2 * d)).split(d, dim=-1)
        logits = F.embedding(slots, q.reshape(-1, d) * self.scale) @ keys.transpose(-2, -1)
        # keys have length one, so no logit is above the length of its query: shifted by that, no exponential overflows
        shift = F.embedding(slots, q.detach().to(counts.dtype).norm(dim=-1).view(-1, 1) * self.scale)
        weights = (logits.to(counts.dtype) - shift).exp() * counts
        total = weights.sum(dim=-1, keepdim=True)
        y = (weights / total).to(v.dtype) @ values
        # back to the order of the tokens, where a round counts by its part of the sum of exponentials
        rounds = torch.arange(self.rounds, device=q.device)[:, None]
        back = (first * self.rounds + rounds) * order.shape[-1] + rank
        parts = F.embedding(back, total.view(-1, 1))
        parts = (parts / parts.sum(dim=2, keepdim=True)).to(v.dtype)
        return (parts * F.embedding(back, y.reshape(-1, d))).sum(dim=2)

    @torch.no_grad()
    def _plan(self, q: Tensor) -> tuple[Tensor, Tensor, Tensor]:
        """Who attends to whom.

        The token of each slot [B, heads, rounds, slots], the slot of each token [B, heads, rounds, N], and how much a
        slot counts for another [B * heads * rounds * chunks, length, keys]: zero in another bucket, else one divided
        by the number of rounds in which the two meet.
        """
        N = q.shape[2]
        buckets = self._hash(q)
        order = buckets.argsort(dim=-1, stable=True)
        rank = torch.empty_like(order).scatter_(-1, order, torch.arange(N, device=q.device).expand_as(order))
        places = (buckets * (self.chunks + 1) + rank // self.length).to(self.place_type)
        own = F.pad(places.gather(-1, order), (0, self.padding), value=self.nowhere)
        order = F.pad(order, (0, self.padding))
        misses = self._misses(own)
        times = torch.full_like(misses, self.rounds)
        for round_places in places.unbind(dim=2):
            times -= self._misses(round_places[:, :, None].expand(-1, -1, self.rounds, -1).gather(-1, order))
        wide = torch.float64 if q.dtype is torch.float64 else torch.float32
        counts = (1 - misses).to(wide) / times.clamp_(min=1)
        counts.diagonal(offset=counts.shape[-1] - self.length, dim1=-2, dim2=-1).fill_(SELF)
        return order, rank, counts

    def _hash(self, q: Tensor) -> Tensor:
        """The bucket of every token in every round, by the nearest of random directions: [B, heads, rounds, N]."""
        turned = torch.einsum("bhnd,drv->bhrnv", q, self.rotations.to(q.dtype))
        buckets = torch.zeros(turned.shape[:-1], dtype=torch.long, device=q.device)
        for part in turned.split(self.directions, dim=-1):
            buckets = buckets * (2 * part.shape[-1]) + torch.cat([part, -part], dim=-1).argmax(dim=-1)
        return buckets

    def _misses(self, places: Tensor) -> Tensor:
        """One where a slot does not attend to another, zero where it does, for the slots and keys of each chunk.

        It does where both are in one bucket, in one chunk or the other in the one before: their places, which count
        chunks inside of buckets, differ by 0 or 1. Halved, that is 0; a negative difference of whole numbers without
        a sign is a large one. This arithmetic is several times as fast as comparisons, which CPUs do not vectorise.
        """
        slots = places.reshape(-1, self.chunks, self.length)
        difference = slots.flatten(0, 1)[:, :, None] - self._with_previous(slots).flatten(0, 1)[:, None, :]
        halves = difference.bitwise_right_shift_(1)
        return (halves if halves.dtype is torch.uint8 else halves.abs_()).clamp_(max=1).to(torch.uint8)

    def _with_previous(self, x: Tensor) -> Tensor:
        """The slots of the previous chunk before those of the chunk itself; the first has the last, and never looks."""
        return x if self.chunks == 1 else torch.cat([x.roll(1, dims=1), x], dim=2)

    def resample(self, name: str, weight: Tensor) -> Tensor:
        """Rotations are random numbers: for another number of buckets they are drawn anew."""
        return torch.randn_like(self.rotations)


def _directions(buckets: int) -> list[int]:
    """Random directions of each hash; a hash has a bucket for every direction and one for its opposite.

    >>> _directions(8), _directions(128)
    ([4], [8, 4])
    """
    if buckets & (buckets - 1):
        raise RequestError(f"the number of hash buckets must be a power of two, not {buckets}")
    directions = []
    while buckets > 1:
        directions.append(min(buckets, LARGEST_HASH) // 2)
        buckets //= 2 * directions[-1]
    return directions


@register(
    vit_sizes("reformer_{size}16", "ti s b l", aliases=["reformer_vit_{word}_patch16", "Reformer-{letter}/16"]),
    title="Reformer",
    how=How.SPARSE,
    year=2020,
    paper="2001.04451",
    complexity="O(N log N)",
    changes="Queries are keys; tokens are hashed, sorted by bucket, and attend inside their bucket in chunks.",
    notes=(
        "Eight rounds of hashing, chunks of at most 64 tokens that look one back, two buckets a chunk (the paper's "
        "m = 2 N / buckets, rounded up to a power of two).",
        "197 tokens make 4 chunks of 50 with 3 slots of padding behind the last bucket, which no token attends to.",
        "As in the paper, a token attends to its own bucket only, to itself only if there is no other, and a pair that "
        "meets in several rounds counts once.",
        "The rotations are drawn at construction, anew in every training step, and are fixed in eval and saved.",
        "Only the attention is taken: the reversible layers save memory in training and do not change the model.",
        "The benchmark's own implementation pads 197 tokens to 256 before the projections and does not mask them, "
        "attends across buckets and hashes differently on every evaluation: 6.67 GMACs at S instead of 5.40.",
    ),
    miniature={"chunk": 8},
)
def reformer(
    size: Size, chunk: int = 64, buckets: int | None = None, rounds: int = ROUNDS, **options: Unpack[Options]
) -> nn.Module:
    return Encoder(size, mixer=partial(ReformerMixer, chunk=chunk, buckets=buckets, rounds=rounds), **options)
