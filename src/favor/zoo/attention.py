"""Softmax attention, and the frame of all mixers that work on queries, keys and values in heads.

Paper: Vaswani et al., "Attention Is All You Need", 2017, arXiv:1706.03762
"""

from typing import ClassVar

import torch
import torch.nn.functional as F
from torch import Tensor, nn

from favor.errors import RequestError
from favor.zoo.layers import Rotary
from favor.zoo.slots import Flow, Seen, Tokens


class HeadMixer(nn.Module):
    """Projects tokens to queries, keys and values in heads, mixes them, and projects back.

    A subclass says how to mix in `mix(q, k, v)`, all of shape [B, heads, N, head_dim]. The heads share the channels
    evenly unless `head_dim` gives them another width.
    """

    fixed_tokens: ClassVar[bool] = False

    def __init__(
        self,
        dim: int,
        heads: int,
        tokens: Tokens,
        qkv_bias: bool = True,
        rotary: bool = False,
        head_dim: int | None = None,
    ) -> None:
        super().__init__()
        if head_dim is None and dim % heads:
            raise RequestError(f"{dim} channels cannot be split into {heads} heads of equal size")
        self.heads = heads
        self.head_dim = dim // heads if head_dim is None else head_dim
        self.scale = self.head_dim**-0.5
        self.tokens = tokens
        inner = heads * self.head_dim
        self.qkv = nn.Linear(dim, 3 * inner, bias=qkv_bias)
        self.proj = nn.Linear(inner, dim)
        self.rotary = Rotary(self.head_dim, tokens.count) if rotary else None

    def forward(self, x: Tensor) -> Tensor:
        return self.proj(self.join(self.mix(*self.split(x))))

    def mix(self, q: Tensor, k: Tensor, v: Tensor) -> Tensor:
        """What the architecture is about."""
        raise NotImplementedError

    def split(self, x: Tensor) -> tuple[Tensor, Tensor, Tensor]:
        """[B, N, dim] -> queries, keys, values of [B, heads, N, head_dim]."""
        B, N, _ = x.shape
        q, k, v = self.qkv(x).reshape(B, N, 3, self.heads, self.head_dim).permute(2, 0, 3, 1, 4).unbind(0)
        if self.rotary is not None:
            q, k = self.rotary(q), self.rotary(k)
        return q, k, v

    def join(self, x: Tensor) -> Tensor:
        """[B, heads, N, head_dim] -> [B, N, heads * head_dim]."""
        return x.transpose(1, 2).flatten(2)


class Attention(HeadMixer):
    """Softmax attention, O(N^2)."""

    def mix(self, q: Tensor, k: Tensor, v: Tensor) -> Tensor:
        return F.scaled_dot_product_attention(q, k, v)

    def attend(self, x: Tensor, flow: Flow, class_row: bool) -> tuple[Tensor, Seen]:
        """Attention that heeds token sizes and padding, and says what it saw."""
        q, k, v = self.split(x)
        bias = _bias(flow, q.dtype)
        y = F.scaled_dot_product_attention(q, k, v, attn_mask=bias)
        row = None
        if class_row:
            logits = (q[:, :, :1] * self.scale) @ k.transpose(-2, -1)
            row = (logits if bias is None else logits + bias).softmax(dim=-1).squeeze(2)
        return self.proj(self.join(y)), Seen(keys=k, class_row=row)


def _bias(flow: Flow, dtype: torch.dtype) -> Tensor | None:
    """What is added to the attention logits, broadcast over heads and queries: [B, 1, 1, N]."""
    bias = None
    if flow.sizes is not None:
        bias = flow.sizes.log().to(dtype)[:, None, None, :]
    if flow.alive is not None:
        padding = torch.zeros(flow.alive.shape, dtype=dtype, device=flow.alive.device)
        padding = padding.masked_fill(~flow.alive, float("-inf"))[:, None, None, :]
        bias = padding if bias is None else bias + padding
    return bias
