"""FNet: the Fourier transform of the tokens in place of attention.

Paper: Lee-Thorp et al., "FNet: Mixing Tokens with Fourier Transforms", 2021, arXiv:2105.03824
"""

from typing import ClassVar, Unpack

import torch
from torch import Tensor, nn

from favor.zoo.card_notes import LAYER_SCALE
from favor.zoo.encoder import Encoder, Options, Size
from favor.zoo.mixing.fourier.matrices import waves
from favor.zoo.registry import register, vit_sizes
from favor.zoo.slots import Tokens
from favor.zoo.taxonomy import How


class FNetMixer(nn.Module):
    """The real part of the Fourier transform over tokens and channels, without a weight: O(N log N)."""

    fixed_tokens: ClassVar[bool] = False

    def __init__(self, dim: int, heads: int, tokens: Tokens) -> None:
        super().__init__()

    def forward(self, x: Tensor) -> Tensor:
        channels = x.shape[-1]
        # half precision has no Fourier transform
        signal = x.float() if x.dtype.itemsize < 4 else x
        if torch.compiler.is_exporting():
            (rows, rows_sin), (columns, columns_sin) = (waves(n, n, signal) for n in x.shape[1:])
            return (rows @ signal @ columns - rows_sin @ signal @ columns_sin).to(x.dtype)
        half = torch.fft.fft(torch.fft.rfft(signal, dim=-1), dim=-2).real
        # tokens are real, so the other half of the spectrum is this one mirrored in both axes, at half the cost
        other = half[..., 1 : (channels + 1) // 2].flip(-2, -1).roll(1, dims=-2)
        return torch.cat([half, other], dim=-1).to(x.dtype)


@register(
    vit_sizes("fnet_{size}16", "ti s b l", aliases=["fnet_vit_{word}_patch16", "FNet-{letter}/16"]),
    title="FNet",
    how=How.FOURIER,
    year=2021,
    paper="2105.03824",
    complexity="O(N log N)",
    changes="Attention is replaced by the real part of a Fourier transform over tokens and channels, without weights.",
    notes=(
        "The Fourier transform is not scaled, as in the paper and the authors' code. The benchmark's implementation "
        "divides it by tokens times channels, 75,648 at S and 224 px, so that the mixing starts out that much smaller.",
        "The head reads the class token, as in the paper; after a transform it is the lowest frequency of the tokens. "
        "The benchmark's implementation takes the mean of the patches.",
        "Blocks are ViT's, with a norm of epsilon 1e-6 before each branch. The authors' text encoder has a norm of "
        "epsilon 1e-12 after each residual, and a tanh layer before the head.",
        LAYER_SCALE,
    ),
)
def fnet(size: Size, **options: Unpack[Options]) -> nn.Module:
    return Encoder(size, mixer=FNetMixer, **options)
