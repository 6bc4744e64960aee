"""AFNO: one small MLP for all spatial frequencies, block-diagonal in the channels.

Paper: Guibas et al., "Adaptive Fourier Neural Operators: Efficient Token Mixers for Transformers", 2021,
arXiv:2111.13587
"""

from functools import partial
from typing import Annotated, ClassVar, Unpack

import torch
from torch import Tensor, nn

from favor.errors import RequestError
from favor.zoo.card_notes import LAYER_SCALE
from favor.zoo.encoder import Encoder, Options, Size
from favor.zoo.mixing.fourier.matrices import grid_signal, grid_spectrum
from favor.zoo.pools import MeanPool
from favor.zoo.registry import register, vit_sizes
from favor.zoo.settings import AtLeast, Positive
from favor.zoo.slots import Tokens
from favor.zoo.taxonomy import How


class AfnoMixer(nn.Module):
    """x + F^-1(shrink(MLP(F x))) with a complex MLP shared by all frequencies: O(N log N).

    The MLP sees the channels in `blocks` groups; what it gives is shrunk towards zero by `shrink`.
    """

    fixed_tokens: ClassVar[bool] = True

    def __init__(self, dim: int, heads: int, tokens: Tokens, blocks: int = 8, shrink: float = 0.01) -> None:
        super().__init__()
        if tokens.class_token:
            raise RequestError("AFNO works on a grid of patches: leave the class token out with pool=MeanPool()")
        if dim % blocks:
            raise RequestError(f"{dim} channels cannot be split into {blocks} blocks of equal size")
        self.tokens = tokens
        self.blocks = blocks
        self.shrink = shrink
        width = dim // blocks
        self.w1 = nn.Parameter(0.02 * torch.randn(2, blocks, width, width))
        self.b1 = nn.Parameter(0.02 * torch.randn(2, blocks, width))
        self.w2 = nn.Parameter(0.02 * torch.randn(2, blocks, width, width))
        self.b2 = nn.Parameter(0.02 * torch.randn(2, blocks, width))

    def forward(self, x: Tensor) -> Tensor:
        # half precision has no Fourier transform
        signal = (x.float() if x.dtype.itemsize < 4 else x).unflatten(1, self.tokens.grid)
        spectrum = self._spectrum(signal)
        modes = spectrum.reshape(-1, self.blocks, 2 * x.shape[-1] // self.blocks).transpose(0, 1)
        modes = self._layer(modes, self.w1, self.b1).relu()
        modes = self._layer(modes, self.w2, self.b2)
        modes = modes.to(signal.dtype)
        shrunk = modes - modes.clamp(-self.shrink, self.shrink)
        mixed = self._signal(shrunk.transpose(0, 1).reshape(spectrum.shape))
        return x + mixed.flatten(1, 2).to(x.dtype)

    def _spectrum(self, signal: Tensor) -> Tensor:
        """Real and imaginary parts of all frequencies: [B, height, width // 2 + 1, C, 2]."""
        if torch.compiler.is_exporting():
            return torch.stack(grid_spectrum(signal), dim=-1) * self.tokens.patches**-0.5
        return torch.view_as_real(torch.fft.rfft2(signal, dim=(1, 2), norm="ortho"))

    def _signal(self, spectrum: Tensor) -> Tensor:
        if torch.compiler.is_exporting():
            real, imaginary = spectrum.unbind(-1)
            return grid_signal(real, imaginary, self.tokens.width) * self.tokens.patches**0.5
        return torch.fft.irfft2(torch.view_as_complex(spectrum), s=self.tokens.grid, dim=(1, 2), norm="ortho")

    def _layer(self, modes: Tensor, weight: Tensor, bias: Tensor) -> Tensor:
        return torch.baddbmm(_pairs(bias).to(modes.dtype)[:, None], modes, _on_pairs(weight).to(modes.dtype))


def _pairs(values: Tensor) -> Tensor:
    """Real and imaginary parts side by side: [2, ..., n] -> [..., 2 n]."""
    return values.movedim(0, -1).flatten(-2)


def _on_pairs(weight: Tensor) -> Tensor:
    """Complex matrices as real ones that act on pairs: [2, blocks, n, m] -> [blocks, 2 n, 2 m]."""
    real, imaginary = weight.unbind(0)
    return torch.stack([_pairs(weight), _pairs(torch.stack([-imaginary, real]))], dim=2).flatten(1, 2)


@register(
    vit_sizes("afno_{size}16", "ti s b l", aliases=["afno_{size}_p16", "AFNO-{letter}/16"]),
    title="AFNO",
    how=How.FOURIER,
    year=2021,
    paper="2111.13587",
    complexity="O(N log N)",
    changes="Attention is replaced by a two-layer complex MLP in Fourier space, block-diagonal in the channels and "
    "shared by all frequencies, with soft shrinkage; mean pooling instead of a class token.",
    notes=(
        "8 blocks, shrinkage by 0.01 and all frequencies are the defaults of the authors' layer `AFNO2D`. Their "
        "ImageNet script has its own mixer, with 1 block and no shrinkage by default and 4 blocks in the released "
        "command. ReLU and shrinkage act on real and imaginary parts separately.",
        "The mixer adds its own input, as in `AFNO2D`. In the script's mixer that is an option (`--fno-bias`, through "
        "a 1 x 1 convolution), and the benchmark's implementation does not do it.",
        "Mixer and MLP have a residual branch each, as in the benchmark; in the authors' script they share one unless "
        "`--double-skip` is set.",
        "0.77 G, 3.03 G and 12.01 G multiply-adds at Ti, S and B. The count of the benchmark's implementation, 0.72 G, "
        "2.84 G and 11.22 G, leaves out the products in Fourier space.",
        LAYER_SCALE,
    ),
)
def afno(
    size: Size, blocks: Positive = 8, shrink: Annotated[float, AtLeast(0)] = 0.01, **options: Unpack[Options]
) -> nn.Module:
    return Encoder(size, mixer=partial(AfnoMixer, blocks=blocks, shrink=shrink), pool=MeanPool(), **options)
