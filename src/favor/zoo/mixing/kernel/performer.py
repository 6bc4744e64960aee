"""Performer: softmax attention estimated by positive random features (FAVOR+).

Paper: Choromanski et al., "Rethinking Attention with Performers", 2020, arXiv:2009.14794
"""

import math
from functools import partial
from typing import Literal, Unpack, get_args

import torch
import torch.nn.functional as F
from torch import Tensor, nn

from favor.errors import RequestError, unknown_name
from favor.zoo.attention import HeadMixer
from favor.zoo.card_notes import LAYER_SCALE
from favor.zoo.encoder import Encoder, Options, Size
from favor.zoo.layers import full_precision, widened
from favor.zoo.mixing.kernel.linear import kernel_attention
from favor.zoo.registry import register, vit_sizes
from favor.zoo.settings import Positive
from favor.zoo.slots import Tokens
from favor.zoo.taxonomy import How

Features = Literal["softmax", "relu"]
"""softmax: exp(w k - |k|^2 / 2), whose products estimate exp(q k). relu: relu(w k) + 0.001, a kernel of its own."""
REDRAWS = 100
"""How often the features are drawn in a training."""
RELU_OFFSET = 1e-3
"""Keeps the weights positive where all features of a query or of all keys are off, as in the authors' code."""


class PerformerMixer(HeadMixer):
    """Attention through m random features of queries and keys: O(N m d).

    The last `local_heads` heads see their neighbors instead: softmax attention in windows of `window` tokens at most.
    """

    projection: Tensor

    def __init__(
        self,
        dim: int,
        heads: int,
        tokens: Tokens,
        features: Features = "softmax",
        count: int = 128,
        local_heads: int = 0,
        window: int = 256,
        rotary: bool = False,
        head_dim: int | None = None,
    ) -> None:
        super().__init__(dim, heads, tokens, rotary=rotary, head_dim=head_dim)
        if not 0 <= local_heads < heads or window < 1:
            raise RequestError(
                f"of {heads} heads {local_heads} cannot be local in windows of {window} tokens: at least one head "
                "sees all tokens, and a window has a token"
            )
        self.local_heads = local_heads
        self.window = window
        if features not in get_args(Features):
            raise unknown_name("kind of random features", features, get_args(Features), "choose softmax or relu")
        self.features = features
        self.root = math.sqrt(self.scale)
        self.register_buffer("projection", orthogonal_directions(count, self.head_dim))
        self.period: int | None = None

    def mix(self, q: Tensor, k: Tensor, v: Tensor) -> Tensor:
        if not self.local_heads:
            return self.estimate(q, k, v)
        seeing_all = self.heads - self.local_heads
        far = self.estimate(q[:, :seeing_all], k[:, :seeing_all], v[:, :seeing_all])
        near = window_attention(q[:, seeing_all:], k[:, seeing_all:], v[:, seeing_all:], self.window)
        return torch.cat([far, near], dim=1)

    def estimate(self, q: Tensor, k: Tensor, v: Tensor) -> Tensor:
        """Attention over all tokens, through the features."""
        with full_precision(q):
            q, k = widened(q), widened(k)
            if self.features == "softmax":
                return favor_attention(*self.log_features(q, k), widened(v)).to(v.dtype)
            directions = self.projection.to(q.dtype).mT * self.root
            q, k = ((x @ directions).relu() + RELU_OFFSET for x in (q, k))
            return kernel_attention(q, k, v)

    def log_features(self, q: Tensor, k: Tensor) -> tuple[Tensor, Tensor]:
        """What `favor_attention` wants of queries and keys."""
        projection = self.projection.to(q.dtype)
        return q @ (projection.mT * self.root), log_features(k * self.root, projection)

    def set_progress(self, fraction: float) -> None:
        """Draw new features when training has gone on by another hundredth; not at its very end, or at a resumption."""
        period = min(int(fraction * REDRAWS), REDRAWS - 1)
        if self.training and self.period not in (None, period):
            self.redraw()
        self.period = period

    @torch.no_grad()
    def redraw(self) -> None:
        """Draw all random numbers of this mixer anew."""
        with self.projection.device:
            self.projection.copy_(orthogonal_directions(*self.projection.shape))


def window_attention(q: Tensor, k: Tensor, v: Tensor, window: int) -> Tensor:
    """Softmax attention within equal stretches of `window` consecutive tokens at most: [B, heads, N, d], O(N window).

    1025 tokens and a window of 256 make 5 stretches of 205. Where it does not come out even, the last is padded.
    """
    tokens = q.shape[-2]
    stretches = math.ceil(tokens / window)
    length = math.ceil(tokens / stretches)
    padding = stretches * length - tokens
    seen: Tensor | None = None
    if padding:
        q, k, v = (F.pad(x, (0, 0, 0, padding)) for x in (q, k, v))
        seen = (torch.arange(stretches * length, device=q.device) < tokens).view(stretches, 1, length)
    q, k, v = (x.unflatten(-2, (stretches, length)) for x in (q, k, v))
    return F.scaled_dot_product_attention(q, k, v, attn_mask=seen).flatten(2, 3)[:, :, :tokens]


def orthogonal_directions(count: int, dim: int) -> Tensor:
    """[count, dim] vectors that are Gaussian each, and orthogonal to each other in blocks of `dim`."""
    q, r = torch.linalg.qr(torch.randn(math.ceil(count / dim), dim, min(count, dim)))
    # LAPACK chooses the sign of each direction by one of its components, which would leave out half of the sphere
    q = q * r.diagonal(dim1=-2, dim2=-1).sign().unsqueeze(-2)
    return q.mT.flatten(0, 1)[:count] * torch.randn(count, dim).norm(dim=1, keepdim=True)


def log_features(x: Tensor, projection: Tensor) -> Tensor:
    """Logarithms w x - |x|^2 / 2 of the positive features: [..., N, d] -> [..., N, m]."""
    return x @ projection.mT - x.square().sum(dim=-1, keepdim=True) / 2


def favor_attention(log_q: Tensor, log_k: Tensor, v: Tensor) -> Tensor:
    """phi(q) (phi(k)^T v) / phi(q) (phi(k)^T 1), from the logarithms [..., N, m] of the features phi.

    Every feature takes a mean of the values of all tokens, and every token a mean of those, with weights that are a
    softmax each: nothing overflows, no quotient is 0 / 0, and no small number has to be added, which would bias the
    estimate. A factor that all features of one query share, such as exp(-|q|^2 / 2), cancels.
    """
    top = log_k.detach().amax(dim=-2, keepdim=True)
    phi_k = (log_k - top).exp()
    sums = phi_k.sum(dim=-2, keepdim=True)
    means = phi_k.mT @ v / sums.mT
    return (log_q + (top + sums.log())).softmax(dim=-1) @ means


@register(
    vit_sizes("performer_{size}16", "ti s b l", aliases=["performer_vit_{word}_patch16", "Performer-{letter}/16"]),
    title="Performer",
    how=How.KERNEL,
    year=2020,
    paper="2009.14794",
    complexity="O(N)",
    changes="exp(q k) is estimated by the product of positive orthogonal random features of q and of k (FAVOR+).",
    notes=(
        "128 features, shared by the heads of a block, as in the benchmark. The paper advises d log d, which is 266 "
        "for 64 channels per head; the authors' code has 256 by default.",
        "The features are redrawn each time training has progressed by 1 %. The authors' code redraws them in every "
        "pass, the benchmark never does.",
        "Computed as two softmaxes, so nothing is added to the features for stability; the authors' code adds 1e-6, "
        "the benchmark's 1e-4.",
        "`features='relu'` selects the kernel relu(w x) + 0.001, here with random directions w. The authors' ReLU "
        "attention adds 0.001 too, but has no directions by default.",
        "At S and 224 px it has 4.706 G multiply-adds; the benchmark's figure, 4.250 G, leaves out the products with "
        "features.",
        LAYER_SCALE,
    ),
)
def performer(
    size: Size, features: Features = "softmax", count: Positive = 128, **options: Unpack[Options]
) -> nn.Module:
    return Encoder(size, mixer=partial(PerformerMixer, features=features, count=count), **options)
