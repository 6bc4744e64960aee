"""Nystromformer: attention through a few landmark queries and keys, joined by a pseudo-inverse.

Paper: Xiong et al., "Nyströmformer: A Nyström-Based Algorithm for Approximating Self-Attention", 2021, arXiv:2102.03902
"""

from functools import partial
from typing import Unpack

import torch
import torch.nn.functional as F
from torch import Tensor, nn

from favor.errors import RequestError
from favor.zoo.attention import HeadMixer
from favor.zoo.card_notes import LAYER_SCALE
from favor.zoo.encoder import Encoder, Options, Size
from favor.zoo.layers import full_precision, widened
from favor.zoo.registry import register, vit_sizes
from favor.zoo.settings import Positive
from favor.zoo.slots import Tokens
from favor.zoo.taxonomy import How


class NystromMixer(HeadMixer):
    """softmax(q k~) · pinv(softmax(q~ k~)) · softmax(q~ k) · v with landmarks q~, k~, and a convolution of v: O(N m).

    `residual_kernel` is the number of taps of that convolution along the tokens, one filter a head; None leaves it out.
    """

    def __init__(
        self,
        dim: int,
        heads: int,
        tokens: Tokens,
        landmarks: int = 64,
        residual_kernel: int | None = 33,
        inverse_steps: int = 6,
        qkv_bias: bool = True,
        rotary: bool = False,
        head_dim: int | None = None,
    ) -> None:
        super().__init__(dim, heads, tokens, qkv_bias, rotary, head_dim)
        self.landmarks = landmarks
        self.inverse_steps = inverse_steps
        self.residual: TokenConvolution | None = None
        if residual_kernel is not None:
            if residual_kernel % 2 == 0:
                raise RequestError(f"residual_kernel must be odd to have a middle, which {residual_kernel} is not")
            self.residual = TokenConvolution(heads, residual_kernel)

    def mix(self, q: Tensor, k: Tensor, v: Tensor) -> Tensor:
        landmarks = min(self.landmarks, q.shape[2])
        landmark_q, landmark_k = segment_means(q, landmarks), segment_means(k, landmarks)
        between = (landmark_q * self.scale @ landmark_k.transpose(-2, -1)).softmax(dim=-1)
        gathered = F.scaled_dot_product_attention(landmark_q, k, v)
        with full_precision(q):
            inverse = pseudo_inverse(widened(between), self.inverse_steps)
            gathered = (inverse @ gathered.to(inverse.dtype)).to(v.dtype)
        y = F.scaled_dot_product_attention(q, landmark_k, gathered)
        return y if self.residual is None else y + self.residual(v)


class TokenConvolution(nn.Conv2d):
    """A convolution along the tokens, one filter a head, [B, heads, N, d] -> [B, heads, N, d]."""

    def __init__(self, heads: int, taps: int) -> None:
        super().__init__(heads, heads, (taps, 1), padding=(taps // 2, 0), groups=heads, bias=False)

    def forward(self, x: Tensor) -> Tensor:
        if torch.compiler.is_exporting():
            return super().forward(x)  # as many channels as images would fix the batch size in the graph
        # CPUs make 16 channels at once, and heads are few: images become channels too, each with its head's filter
        batch, heads, *rest = x.shape
        if not batch:
            return x  # no images are no channels, which no convolution takes
        weight = self.weight.repeat_interleave(batch, dim=0)
        images = x.transpose(0, 1).reshape(1, heads * batch, *rest)
        y = F.conv2d(images, weight, padding=self.padding, groups=heads * batch)
        return y.view(heads, batch, *rest).transpose(0, 1)


def segment_means(x: Tensor, segments: int) -> Tensor:
    """Means of consecutive tokens, [..., N, d] -> [..., segments, d]; the last segments have one token more if need be.

    >>> segment_means(torch.tensor([[1.0], [3.0], [1.0], [2.0], [3.0]]), 2).flatten().tolist()
    [2.0, 2.0]
    """
    length, longer = divmod(x.shape[-2], segments)
    if not longer:
        return x.unflatten(-2, (segments, length)).mean(dim=-2)
    shorts, longs = x.split([(segments - longer) * length, longer * (length + 1)], dim=-2)
    means = [part.unflatten(-2, (-1, size)).mean(dim=-2) for part, size in ((shorts, length), (longs, length + 1))]
    return torch.cat(means, dim=-2)


def pseudo_inverse(a: Tensor, steps: int) -> Tensor:
    """The Moore-Penrose inverse of matrices whose rows sum to one, by a third-order Newton iteration."""
    shape, a = a.shape, a.flatten(0, -3)
    # it converges from a^T / (|a|_1 |a|_inf), and the second norm, the largest sum of a row, is one
    z = a.transpose(-2, -1) / a.sum(dim=-2).amax(dim=-1)[:, None, None]
    for _ in range(steps):
        az = torch.bmm(a, z)
        # z (13 - az (15 - az (7 - az))) / 4, with each identity matrix multiplied out
        polynomial = torch.baddbmm(az, az, torch.baddbmm(az, az, az, beta=7, alpha=-1), beta=15, alpha=-1)
        z = torch.baddbmm(z, z, polynomial, beta=3.25, alpha=-0.25)
    return z.view(shape)


@register(
    [
        variant
        for landmarks in (32, 64)
        for variant in vit_sizes(
            f"nystrom{landmarks}_{{size}}16",
            "ti s b l",
            aliases=[f"nystrom{landmarks}_vit_{{word}}_patch16", f"Nystrom ViT-{landmarks}-{{letter}}/16"],
            landmarks=landmarks,
        )
    ],
    title="Nystromformer",
    how=How.LOW_RANK,
    year=2021,
    paper="2102.03902",
    complexity="O(N)",
    changes="The attention matrix is the product of three small ones: tokens to landmarks, landmarks to landmarks "
    "(pseudo-inverted), landmarks to tokens; a convolution of the values along the tokens is added.",
    notes=(
        "Landmarks are means of consecutive tokens, including the class token. 197 tokens make 59 segments of 3 and 5 "
        "of 4 for 64 landmarks, 27 of 6 and 5 of 7 for 32; nothing is padded. If there are fewer tokens than "
        "landmarks, each token is one.",
        "33 taps in the convolution of the values, as in the authors' text model for 512 tokens; their others have 65 "
        "(4,096 tokens) and 35 (Long Range Arena). Six iterations of the pseudo-inverse, as in all their code. The "
        "iteration starts from the norm of each matrix; in the authors' first code it was the largest norm in the "
        "batch.",
        "The benchmark's implementation has no convolution and adds the values themselves to the output, as in the "
        "authors' ImageNet code. Without the taps it has as many parameters as ViT: 5,721,832 at Ti, 22,059,496 at S, "
        "86,585,320 at B, instead of 5,723,020, 22,061,872 and 86,590,072. It multiplies the three matrices from the "
        "left, ours from the right: with 32 and 64 landmarks it has 1.17 G and 1.46 G multiply-adds at Ti, ours 1.18 "
        "and 1.45.",
        LAYER_SCALE,
    ),
    miniature={"landmarks": 8, "residual_kernel": 5},
)
def nystrom(
    size: Size, landmarks: Positive = 64, residual_kernel: Positive | None = 33, **options: Unpack[Options]
) -> nn.Module:
    mixer = partial(NystromMixer, landmarks=landmarks, residual_kernel=residual_kernel)
    return Encoder(size, mixer=mixer, **options)
