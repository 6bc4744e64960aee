"""FourierLearner-Transformer: Performer with a learned bias by relative position, given by its Fourier transform.

Paper: Choromanski et al., "Learning a Fourier Transform for Linear Relative Positional Encodings in Transformers",
2023, arXiv:2302.01925
"""

import math
from functools import partial
from typing import ClassVar, Unpack

import torch
import torch.nn.functional as F
from torch import Tensor, nn

from favor.zoo.card_notes import LAYER_SCALE_SET
from favor.zoo.encoder import Encoder, Options, Size
from favor.zoo.layers import widened
from favor.zoo.mixing.kernel.performer import PerformerMixer, log_features, orthogonal_directions
from favor.zoo.registry import register, vit_sizes
from favor.zoo.settings import Positive
from favor.zoo.slots import Tokens
from favor.zoo.taxonomy import How


class FltMixer(PerformerMixer):
    """FAVOR+ for exp(q k + f(r - s)), where r and s are the places of query and key in the image: O(N m (d + r)).

    f(z) = sum_t w_t exp(-2 (pi sigma_t |z|)^2) cos(2 pi mu_t z) is the Fourier transform of a mixture of Gaussians.
    Waves of frequencies drawn from the mixture estimate it as a product of features of r and of s, and those are
    appended to query and key. The logarithm of a random feature of two vectors side by side is the sum of theirs.
    """

    fixed_tokens: ClassVar[bool] = True
    offsets: Tensor
    places: Tensor
    place_projection: Tensor

    def __init__(
        self,
        dim: int,
        heads: int,
        tokens: Tokens,
        count: int = 128,
        modes: int = 8,
        waves: int = 4,
        rotary: bool = False,
    ) -> None:
        super().__init__(dim, heads, tokens, count=count, rotary=rotary)
        self.amplitudes = nn.Parameter(torch.empty(heads, modes))
        self.means = nn.Parameter(torch.empty(heads, modes, 2))
        self.deviations = nn.Parameter(torch.ones(heads, modes))
        nn.init.normal_(self.amplitudes, std=0.1)
        nn.init.normal_(self.means)
        self.register_buffer("offsets", torch.randn(modes, waves, 2))
        self.register_buffer("place_projection", orthogonal_directions(count, 2 * modes * waves))
        self.register_buffer("places", places_in_image(tokens), persistent=False)

    def log_features(self, q: Tensor, k: Tensor) -> tuple[Tensor, Tensor]:
        """Those of queries and keys with the features of their places appended."""
        log_q, log_k = super().log_features(q, k)
        place_q, place_k = self.place_features()
        projection = self.place_projection.to(q.dtype)
        return log_q + place_q @ projection.mT, log_k + log_features(place_k, projection)

    def place_features(self) -> tuple[Tensor, Tensor]:
        """[heads, N, 2 r] features of the tokens' places as queries and as keys, whose products estimate f.

        An amplitude a stands for the weight w = a |a|, so that neither side needs a root; the class token, which is at
        no place, has zeros.
        """
        frequencies = self.means.unsqueeze(2) + self.deviations[..., None, None] * self.offsets
        angles = 2 * math.pi * (widened(self.places) @ widened(frequencies).flatten(1, 2).mT)
        waves = torch.cat([angles.cos(), angles.sin()], dim=-1)
        amplitudes = self.amplitudes.repeat_interleave(self.offsets.shape[1], dim=1).repeat(1, 2).unsqueeze(1)
        amplitudes = amplitudes * self.offsets.shape[1] ** -0.5
        if self.tokens.class_token:
            waves = F.pad(waves, (0, 0, 1, 0))
        return waves * amplitudes, waves * amplitudes.abs()

    @torch.no_grad()
    def redraw(self) -> None:
        """Draw the directions of the features and the frequencies of the waves anew."""
        super().redraw()
        with self.offsets.device:
            self.place_projection.copy_(orthogonal_directions(*self.place_projection.shape))
            self.offsets.normal_()


def places_in_image(tokens: Tokens) -> Tensor:
    """[patches, 2] places of the patches; the image is 1 high and 1 wide, so that f fits images of any size."""
    rows = torch.arange(tokens.height) / tokens.height
    columns = torch.arange(tokens.width) / tokens.width
    return torch.cartesian_prod(rows, columns)


@register(
    vit_sizes("flt_{size}16", aliases=["FLT-{letter}/16"]),
    title="FourierLearner",
    how=How.KERNEL,
    year=2023,
    paper="2302.01925",
    complexity="O(N)",
    changes="Adds a bias by relative position to Performer's estimate of exp(q k). The bias is learned as a Fourier "
    "transform and uses the same random features.",
    notes=(
        "The variant with a mixture of Gaussians: 8 per head, each sampled by 4 waves. Frequencies are drawn from the "
        "mixture itself, the density for which the weights of the estimate are constant.",
        "Positions are in units of the image, in two dimensions; the class token has no bias. Learned positions are "
        "kept.",
        "128 features. Directions and frequencies are redrawn each time training has progressed by 1 %.",
        "The numbers of modes, waves and features are our choice: the benchmark has no figures for this architecture.",
        LAYER_SCALE_SET,
    ),
)
def flt(
    size: Size, count: Positive = 128, modes: Positive = 8, waves: Positive = 4, **options: Unpack[Options]
) -> nn.Module:
    return Encoder(size, mixer=partial(FltMixer, count=count, modes=modes, waves=waves), **options)
