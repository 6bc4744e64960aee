"""Linear Transformer: attention weights are products of features elu(x) + 1, so keys and values are summed up first.

Paper: Katharopoulos et al., "Transformers are RNNs: Fast Autoregressive Transformers with Linear Attention", 2020,
arXiv:2006.16236
"""

from typing import Unpack

import torch.nn.functional as F
from torch import Tensor, nn

from favor.zoo.attention import HeadMixer
from favor.zoo.card_notes import LAYER_SCALE
from favor.zoo.encoder import Encoder, Options, Size
from favor.zoo.layers import full_precision, widened
from favor.zoo.registry import register, vit_sizes
from favor.zoo.taxonomy import How

EPSILON = 1e-6
"""Added to a row's sum of weights, as the authors do: features may all be close to zero."""


class LinearMixer(HeadMixer):
    """Attention with the kernel (elu(q) + 1) (elu(k) + 1)^T: O(N d^2)."""

    def mix(self, q: Tensor, k: Tensor, v: Tensor) -> Tensor:
        return kernel_attention(F.elu(q) + 1, F.elu(k) + 1, v)


def kernel_attention(q: Tensor, k: Tensor, v: Tensor) -> Tensor:
    """Attention of non-negative features of queries and keys, with the N x N matrix q k^T never made: O(N)."""
    with full_precision(q):
        q, k, values = widened(q), widened(k), widened(v)
        row_sums = q @ k.sum(dim=-2).unsqueeze(-1)
        return (q @ (k.mT @ values) / (row_sums + EPSILON)).to(v.dtype)


@register(
    vit_sizes("linear_{size}16", "ti s b l", aliases=["linear_vit_{word}_patch16", "Linear-{letter}/16"]),
    title="Linear Transformer",
    how=How.KERNEL,
    year=2020,
    paper="2006.16236",
    complexity="O(N)",
    changes="The softmax of q k^T is replaced by the product of the features elu(q) + 1 and elu(k) + 1, with each row "
    "divided by its sum.",
    notes=(
        "1e-6 is added to the sum of a row's weights, and queries and keys are not scaled, as in the authors' code.",
        LAYER_SCALE,
    ),
)
def linear(size: Size, **options: Unpack[Options]) -> nn.Module:
    return Encoder(size, mixer=LinearMixer, **options)
