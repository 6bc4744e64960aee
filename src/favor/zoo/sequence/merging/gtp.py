"""GTP-ViT: tokens that are removed hand their features on to their neighbors in a graph of the patches.

Paper: Xu et al., "GTP-ViT: Efficient Vision Transformers via Graph-based Token Propagation", WACV 2024,
arXiv:2311.03035
"""

from typing import ClassVar, Unpack

import torch
import torch.nn.functional as F
from torch import Tensor, nn

from favor.zoo.attention import Attention
from favor.zoo.encoder import Block, Encoder, Options, Size
from favor.zoo.layers import take_tokens, take_with_class_token
from favor.zoo.registry import register, vit_sizes
from favor.zoo.settings import NotNegative
from favor.zoo.slots import Flow, Place, Reducer, Seen, Tokens
from favor.zoo.taxonomy import How

ALPHA = 0.1
"""How much of a removed token its neighbors take over."""
SIMILAR = 8
"""How many patches count as similar to a patch, besides those next to it."""


class RatingAttention(Attention):
    """Softmax attention that notes how much each patch matters, from the attention matrix."""

    def attend(self, x: Tensor, flow: Flow, class_row: bool) -> tuple[Tensor, Seen]:
        q, k, v = self.split(x)
        logits = (q * self.scale) @ k.transpose(-2, -1)
        if flow.sizes is not None:
            logits = logits + flow.sizes.log().to(logits.dtype)[:, None, None]
        weights = logits.softmax(dim=-1)
        flow.notes["importance"] = importance(weights.detach())
        return self.proj(self.join(weights.to(v.dtype) @ v)), Seen(keys=k, class_row=None)


def importance(weights: Tensor) -> Tensor:
    """How hard a patch is to restore times how far it spreads: [B, heads, N, N] -> [B, N - 1].

    The first is its attention to itself, the second all attention that it gets; each in its strongest head.
    """
    hard_to_restore = weights.diagonal(dim1=-2, dim2=-1).amax(dim=1)
    spreads = weights.sum(dim=-2).amax(dim=1)
    return (hard_to_restore * spreads)[:, 1:]


class Propagate(Reducer):
    """Removes the patches that matter least, after handing them on along the graph."""

    place: ClassVar[Place] = Place.BETWEEN

    def __init__(self, tokens: Tokens, propagated: int) -> None:
        super().__init__()
        self.grid = tokens.grid
        self.propagated = propagated

    def between(self, x: Tensor, seen: Seen, flow: Flow) -> Tensor:
        kept = max(x.shape[1] - 1 - self.propagated, 1)
        if kept >= x.shape[1] - 1:
            return x
        order = flow.notes["importance"].argsort(dim=1, descending=True)
        stay, go = order[:, :kept], order[:, kept:]
        edges = self._edges(flow, stay, go)
        sizes = x.new_ones(x.shape[:2]) if flow.sizes is None else flow.sizes
        flow.sizes = _handed_on(sizes[..., None], stay, go, edges)[..., 0]
        return _handed_on(x, stay, go, edges)

    def _edges(self, flow: Flow, stay: Tensor, go: Tensor) -> Tensor:
        """The graph's weights from the patches that go to those that stay: [B, stay, go]."""
        places = flow.notes["places"]  # of the present patches, in the graph of all
        flow.notes["places"] = places.gather(1, stay)
        rows = take_tokens(flow.notes["graph"], places.gather(1, go))
        return rows.transpose(1, 2).gather(1, flow.notes["places"][..., None].expand(-1, -1, go.shape[1]))

    def build_graph(self, x: Tensor, flow: Flow) -> None:
        """Join each patch with those next to it and those most similar to it, once, before the first block."""
        patches = F.normalize(x[:, 1:].detach(), dim=-1)
        count = patches.shape[1]
        flow.notes["places"] = torch.arange(count, device=x.device).expand(x.shape[0], -1)
        flow.notes["graph"] = token_graph(patches @ patches.transpose(1, 2), self.grid)


def token_graph(similarity: Tensor, grid: tuple[int, int]) -> Tensor:
    """What patch i (row) gives to patch j (column), normalized by the degrees: [B, N, N]."""
    count = similarity.shape[1]
    nearest = similarity.topk(min(SIMILAR + 1, count), dim=-1).indices
    joined = torch.zeros_like(similarity, dtype=torch.bool).scatter(2, nearest, True)
    joined = (joined | adjacent(grid, similarity.device)) & ~torch.eye(
        count, dtype=torch.bool, device=similarity.device
    )
    takes = joined.to(similarity.dtype)
    scale = takes.sum(dim=-1).clamp_min(1.0).rsqrt()
    return (takes * scale[:, :, None] * scale[:, None, :]).transpose(1, 2)


def adjacent(grid: tuple[int, int], device: torch.device) -> Tensor:
    """Which patches touch, by a side or a corner: [N, N]."""
    place = torch.arange(grid[0] * grid[1], device=device)
    row, column = place // grid[1], place % grid[1]
    return ((row[:, None] - row).abs() <= 1) & ((column[:, None] - column).abs() <= 1)


def _handed_on(x: Tensor, stay: Tensor, go: Tensor, edges: Tensor) -> Tensor:
    """The class token and the patches that stay, with what they take over."""
    taken = ALPHA * (edges.to(x.dtype) @ take_tokens(x, go + 1))
    return take_with_class_token(x, stay) + F.pad(taken, (0, 0, 1, 0))


class GraphBlock(Block):
    """ViT's block; the first one builds the graph that all of them share."""

    def forward(self, x: Tensor, flow: Flow) -> Tensor:
        if "graph" not in flow.notes and isinstance(self.reducer, Propagate):
            self.reducer.build_graph(x, flow)
        return super().forward(x, flow)


@register(
    vit_sizes("gtp_{size}16", "ti s b l", aliases=["GTP-ViT-{letter}/16"]),
    title="GTP-ViT",
    how=How.MERGING,
    year=2023,
    paper="2311.03035",
    complexity="O(N^2)",
    changes="Every block removes the 8 patches that matter least and adds a tenth of each to its neighbors in a graph.",
    notes=(
        "8 tokens per block, which saves the quarter of DeiT-S's cost that the paper reports; the authors' released "
        "command removes 4. As in that command, alpha is 0.1, patches are rated by `MixedAttnMax` and attention is not "
        "sparsified; 8 similar patches is its default. Two options are set here and not there: the graph joins similar "
        "patches too, not only adjacent ones (`--graph_type Mixed`), and attention weighs tokens by their size "
        "(`--token_scale`).",
        "The benchmark excludes GTP, because it did not reach satisfying results with it.",
        "At the benchmark's sizes LayerScale starts at 1e-4, the benchmark's setting. In the authors' code it is an "
        "option that their DeiT models do not use.",
        "The class token has no position and starts with a standard deviation of 1e-6, as in the benchmark. The "
        "authors load trained DeiT weights, whose class token has a position and started with 0.02.",
    ),
    miniature={"propagated": 2},
)
def gtp(size: Size, propagated: NotNegative = 8, **options: Unpack[Options]) -> nn.Module:
    def reducer(index: int, dim: int, tokens: Tokens) -> Reducer:
        return Propagate(tokens, propagated)

    return Encoder(size, mixer=RatingAttention, block=GraphBlock, reducer=reducer, **options)
