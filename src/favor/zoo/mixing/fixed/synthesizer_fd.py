"""Synthesizer, factorized dense: each token says by itself how it attends to the places of the image.

Paper: Tay et al., "Synthesizer: Rethinking Self-Attention in Transformer Models", 2020, arXiv:2005.00743
"""

from typing import ClassVar, Unpack

import torch
import torch.nn.functional as F
from torch import Tensor, nn

from favor.errors import RequestError
from favor.zoo.card_notes import LAYER_SCALE
from favor.zoo.encoder import Encoder, Options, Size
from favor.zoo.registry import register, vit_sizes
from favor.zoo.slots import Tokens
from favor.zoo.taxonomy import How


class GridScores(nn.Linear):
    """Per token and head, a score for every row of the grid, for every column, and for the class token."""

    def __init__(self, dim: int, heads: int, tokens: Tokens) -> None:
        self.heads = heads
        self.parts = (tokens.height, tokens.width, int(tokens.class_token))
        super().__init__(dim, heads * sum(self.parts))

    def resample(self, name: str, weight: Tensor) -> Tensor:
        """Interpolate linearly along the rows and along the columns; the class token's score is kept."""
        height, width, first = self.parts
        scores = weight.reshape(self.heads, -1, weight[0].numel()).transpose(1, 2).float()
        sides = scores.shape[-1] - first
        old_height, rest = divmod(sides * height, height + width)
        if rest:
            raise RequestError(f"{sides} scores of rows and columns are not of the aspect ratio of {height} x {width}")
        rows, columns, class_score = scores.split([old_height, sides - old_height, first], dim=-1)
        rows = F.interpolate(rows, size=height, mode="linear")
        columns = F.interpolate(columns, size=width, mode="linear")
        resized = torch.cat([rows, columns, class_score], dim=-1)
        return resized.transpose(1, 2).reshape(-1, *weight.shape[1:]).to(weight.dtype)


class FactorizedDenseMixer(nn.Module):
    """softmax(a x b) v, where a token's scores are the outer product of its row and column scores: O(N^2)."""

    fixed_tokens: ClassVar[bool] = True

    def __init__(self, dim: int, heads: int, tokens: Tokens) -> None:
        super().__init__()
        if dim % heads:
            raise RequestError(f"{dim} channels cannot be split into {heads} heads of equal size")
        self.heads = heads
        self.scores = GridScores(dim, heads, tokens)
        self.value = nn.Linear(dim, dim)
        self.proj = nn.Linear(dim, dim)

    def forward(self, x: Tensor) -> Tensor:
        v = self.value(x).unflatten(-1, (self.heads, -1)).transpose(1, 2)
        return self.proj((self.logits(x).softmax(dim=-1).to(v.dtype) @ v).transpose(1, 2).flatten(2))

    def logits(self, x: Tensor) -> Tensor:
        """How much each token asks for each place, before the softmax: [B, heads, N, N]."""
        scores = self.scores(x).unflatten(-1, (self.heads, -1)).transpose(1, 2).contiguous()
        rows, columns, class_column = scores.split(self.scores.parts, dim=-1)
        logits = (rows[..., :, None] * columns[..., None, :]).flatten(-2)
        if not self.scores.parts[-1]:
            return logits
        return torch.cat([rows[..., :1] * class_column, logits], dim=-1)


@register(
    vit_sizes(
        "synthesizer_fd_{size}16",
        "ti s b l",
        aliases=["synthesizer_fd_vit_{word}_patch16", "Synthesizer FD-{letter}/16"],
    ),
    title="Synthesizer-FD",
    how=How.FIXED,
    year=2020,
    paper="2005.00743",
    complexity="O(N^2)",
    changes="No queries and keys: each token alone determines its attention weights, as the outer product of two short "
    "score vectors.",
    notes=(
        "The paper asks for vectors of lengths a and b with a x b = N and leaves both open. Here a is the number of "
        "rows and b the number of columns plus one for the class token, 14 and 15 at 224 px, as in the benchmark; of "
        "the class token's 14 products only the first is used. (The paper's k = 8 is the rank of the factorized random "
        "form.)",
        "The vectors are linear in the token. Each pair of a row and a column occurs once; the benchmark's "
        "implementation repeats both vectors in blocks, so that neighboring tokens share a weight.",
        LAYER_SCALE,
    ),
)
def synthesizer_fd(size: Size, **options: Unpack[Options]) -> nn.Module:
    return Encoder(size, mixer=FactorizedDenseMixer, **options)
