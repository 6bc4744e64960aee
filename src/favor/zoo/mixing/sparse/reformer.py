"""Reformer: tokens attend to those that fall into the same bucket of a locality-sensitive hash.

Paper: Kitaev et al., "Reformer: The Efficient Transformer", 2020, arXiv:2001.04451
"""

import math
from functools import partial
from typing import ClassVar, NamedTuple, Unpack

import torch
import torch.nn.functional as F
from torch import Tensor, nn

from favor.errors import RequestError
from favor.zoo.attention import HeadMixer
from favor.zoo.card_notes import LAYER_SCALE
from favor.zoo.encoder import Encoder, Options, Size
from favor.zoo.layers import stable_argsort, widened
from favor.zoo.registry import register, vit_sizes
from favor.zoo.settings import Positive
from favor.zoo.slots import Tokens
from favor.zoo.taxonomy import How

ROUNDS = 8
LARGEST_HASH = 16
"""Buckets of one hash; more of them are pairs of hashes, so that hashing costs N log N and not N^2."""
SELF, BLOCKED = -1e30, -1e38
"""Logits of a token for itself, which counts only where it meets no other, and for those that it does not meet."""
SMALLEST_LOGARITHM = -80.0
"""Of a weight in a row that has one of 1: exp(-80) is lost beside it, and smaller ones take CPUs ten times as long."""


class Sums(NamedTuple):
    """Attention that is not yet divided: weights exp(logit - top), summed up with the values and without."""

    values: Tensor
    weights: Tensor
    top: Tensor


class ReformerMixer(HeadMixer):
    """Attention inside hash buckets, over several rounds of hashing: O(N log N).

    Tokens are sorted by bucket and cut into chunks; a token attends to the tokens of its bucket in its own chunk and in
    the one before. Rounds come one after the other, so that only one is in memory at a time.
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
        if buckets is None:
            buckets = 2 ** math.ceil(math.log2(2 * self.chunks))
        self.directions = hash_directions(buckets)
        self.register_buffer("rotations", torch.randn(self.head_dim, rounds, sum(self.directions)))
        # a place is a bucket and a chunk in one number; a gap between buckets keeps the last chunk of one from the next
        largest = buckets * (self.chunks + 1)
        self.place_type = torch.uint8 if largest < 253 else torch.int16 if largest < 2**15 - 1 else torch.int32
        self.nowhere = largest + 1

    def split(self, x: Tensor) -> tuple[Tensor, Tensor, Tensor]:
        """Queries, the same as keys of unit length, and values."""
        q, v = self.qkv(x).unflatten(2, (2, self.heads, self.head_dim)).permute(2, 0, 3, 1, 4).unbind(0)
        if self.rotary is not None:
            q = self.rotary(q)
        return q, F.normalize(q, dim=-1), v

    def mix(self, q: Tensor, k: Tensor, v: Tensor) -> Tensor:
        if self.training:
            self.rotations.normal_()
        orders, ranks, places = self._plan(q)
        queries = (q * self.scale).reshape(-1, self.head_dim)
        keys_and_values = torch.cat([k, v], dim=-1).flatten(0, 2)
        sums: Sums | None = None
        for number in range(self.rounds):
            slots = F.pad(orders[number], (0, self.padding))
            blocked = self._blocked(slots, places[: number + 1])
            found = self._attend(queries, keys_and_values, slots, ranks[number], blocked)
            sums = found if sums is None else _together(sums, found)
        assert sums is not None  # noqa: S101 - there is a round
        return (sums.values / sums.weights).to(v.dtype).view(v.shape)

    def _attend(self, queries: Tensor, keys_and_values: Tensor, slots: Tensor, rank: Tensor, blocked: Tensor) -> Sums:
        """One round of attention, given back in the order of the tokens."""
        d, sequences = self.head_dim, torch.arange(slots.shape[0], device=slots.device)[:, None]
        rows = (sequences * self.tokens.count + slots).view(-1, self.length)
        windows = self._with_previous(rows.view(-1, self.chunks, self.length)).flatten(0, 1)
        keys, values = F.embedding(windows, keys_and_values).split(d, dim=-1)
        logits = widened(F.embedding(rows, queries) @ keys.mT)
        with torch.no_grad():  # what is added to a logit here does not depend on the tokens, or cancels
            logits.add_(blocked, alpha=BLOCKED)
            logits = self._with_self_last(logits)
            top = logits.amax(dim=-1, keepdim=True)
            logits.sub_(top).clamp_(min=SMALLEST_LOGARITHM)
        weights = logits.exp_()
        back = (sequences * slots.shape[1] + rank).flatten()
        mixed = weights.to(values.dtype) @ values
        in_slots = (mixed, weights.sum(dim=-1, keepdim=True), top)
        return Sums(*(F.embedding(back, part.view(-1, part.shape[-1])) for part in in_slots))

    def _with_self_last(self, logits: Tensor) -> Tensor:
        """The logits with those of a token for itself below all others, in place but for an export."""
        offset = logits.shape[-1] - self.length
        if torch.compiler.is_exporting():
            rows, columns = (torch.arange(n, device=logits.device) for n in logits.shape[-2:])
            return logits.masked_fill(columns == rows[:, None] + offset, SELF)
        logits.diagonal(offset=offset, dim1=-2, dim2=-1).fill_(SELF)
        return logits

    @torch.no_grad()
    def _plan(self, q: Tensor) -> tuple[Tensor, Tensor, Tensor]:
        """The token of each slot, the slot of each token and its place, in every round: [rounds, B * heads, N] each."""
        buckets = self._hash(q)
        orders = stable_argsort(buckets)
        slots = torch.arange(q.shape[2], device=q.device)
        ranks = torch.empty_like(orders).scatter_(-1, orders, slots.expand_as(orders))
        places = buckets * (self.chunks + 1) + ranks // self.length
        return orders, ranks, places if torch.compiler.is_exporting() else places.to(self.place_type)

    def _hash(self, q: Tensor) -> Tensor:
        """The bucket of every token in every round, by the nearest of random directions: [rounds, B * heads, N]."""
        turned = torch.einsum("snd,drv->rsnv", q.flatten(0, 1), self.rotations.to(q.dtype))
        buckets = torch.zeros(turned.shape[:-1], dtype=torch.long, device=q.device)
        for part in turned.split(self.directions, dim=-1):
            buckets = buckets * (2 * part.shape[-1]) + torch.cat([part, -part], dim=-1).argmax(dim=-1)
        return buckets

    @torch.no_grad()
    def _blocked(self, slots: Tensor, places: Tensor) -> Tensor:
        """One where a slot does not attend to another in the last of the rounds of `places`, zero where it does.

        It attends where the two meet for the first time, so that a pair that meets in several rounds counts once. For
        the slots and keys of each chunk: [B * heads * chunks, length, keys].
        """
        if torch.compiler.is_exporting():  # OpenVINO 2026.4 forgets which rounds are taken if they are gathered at once
            here = torch.stack([place.gather(-1, slots) for place in places])
        else:
            here = places.gather(-1, slots.expand(len(places), -1, -1))
        if self.padding:
            here[-1, :, -self.padding :] = self.nowhere
        apart = self._apart(here)
        blocked = apart[-1].clamp_(max=1)
        return torch.maximum(blocked, 1 - apart[:-1].amin(dim=0).clamp_(max=1)) if len(places) > 1 else blocked

    def _apart(self, places: Tensor) -> Tensor:
        """Zero where a slot attends to another, more where it does not, for the slots and keys of each chunk.

        It does where both are in one bucket, in one chunk or the other in the one before: their places, which count
        chunks inside of buckets, differ by 0 or 1. Halved, that is 0; a negative difference of whole numbers without
        a sign is a large one. This arithmetic is several times as fast as comparisons, which CPUs do not vectorise.
        """
        slots = places.view(-1, self.chunks, self.length)
        difference = slots.unsqueeze(-1) - self._with_previous(slots).unsqueeze(-2)
        if torch.compiler.is_exporting():  # runtimes do not subtract or shift all types of whole numbers
            return (difference != difference.clamp(0, 1)).long().unflatten(0, (len(places), -1)).flatten(1, 2)
        halves = difference.unflatten(0, (len(places), -1)).flatten(1, 2).bitwise_right_shift_(1)
        return halves if halves.dtype is torch.uint8 else halves.abs_()

    def _with_previous(self, x: Tensor) -> Tensor:
        """The slots of the previous chunk before those of the chunk itself; the first has the last, and never looks."""
        return x if self.chunks == 1 else torch.cat([x.roll(1, dims=1), x], dim=2)

    def draw_more(self, name: str, numbers: Tensor) -> Tensor:
        """The directions of more or fewer buckets."""
        shape = (*numbers.shape[:-1], self.rotations.shape[-1])
        drawn = torch.randn(shape, generator=torch.Generator().manual_seed(0), device="cpu").to(numbers)
        return torch.cat([numbers[..., : shape[-1]], drawn[..., numbers.shape[-1] :]], dim=-1)


def _together(a: Sums, b: Sums) -> Sums:
    """The sums over the tokens of both."""
    top = torch.maximum(a.top, b.top)
    of_a, of_b = (a.top - top).exp(), (b.top - top).exp()
    return Sums(a.values * of_a + b.values * of_b, a.weights * of_a + b.weights * of_b, top)


def hash_directions(buckets: int) -> list[int]:
    """Random directions of each hash; a hash has a bucket for every direction and one for its opposite.

    >>> hash_directions(8), hash_directions(128)
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
        "Eight rounds of hashing, chunks of at most 64 tokens that also see the previous chunk, two buckets per chunk "
        "(the paper's m = 2 N / buckets, rounded up to a power of two).",
        "197 tokens make 4 chunks of 50 with 3 slots of padding after the last bucket, to which no token attends.",
        "As in the paper, a token attends only to its own bucket, to itself only if it is alone there, and a pair that "
        "meets in several rounds counts once.",
        "The rounds run one after the other: inference holds one in memory at a time; training keeps what the backward "
        "pass of all of them needs.",
        "The rotations are drawn at construction and in every training step; they are fixed in eval mode and saved.",
        "Only the attention is used: the reversible layers save memory in training and do not change the model.",
        "The benchmark's implementation pads 197 tokens to 256 before the projections and does not mask them, attends "
        "across buckets and hashes differently in every evaluation: 6.67 GMACs at S instead of 5.40.",
        LAYER_SCALE,
    ),
    miniature={"chunk": 8},
)
def reformer(
    size: Size,
    chunk: Positive = 64,
    buckets: Positive | None = None,
    rounds: Positive = ROUNDS,
    **options: Unpack[Options],
) -> nn.Module:
    return Encoder(size, mixer=partial(ReformerMixer, chunk=chunk, buckets=buckets, rounds=rounds), **options)
