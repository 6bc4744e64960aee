"""GFNet: a learned filter for every spatial frequency of every channel.

Paper: Rao et al., "Global Filter Networks for Image Classification", 2021, arXiv:2107.00645
"""

import math
from typing import ClassVar, Unpack

import torch
from torch import Tensor, nn

from favor.errors import RequestError
from favor.zoo.encoder import Block, Encoder, Options, Size
from favor.zoo.layers import source_grid
from favor.zoo.mixing.fourier.matrices import grid_signal, grid_spectrum
from favor.zoo.pools import MeanPool
from favor.zoo.registry import Variant, register
from favor.zoo.slots import Flow, Tokens
from favor.zoo.taxonomy import How

SIZES = {"ti": Size(256, 12, 4), "s": Size(384, 19, 6), "b": Size(512, 19, 8)}
"""The paper's sizes; a filter has no heads."""


class GlobalFilter(nn.Module):
    """Multiplies the spectrum of the token grid by learned weights, which is a circular convolution: O(N log N)."""

    fixed_tokens: ClassVar[bool] = True

    def __init__(self, dim: int, heads: int, tokens: Tokens) -> None:
        super().__init__()
        if tokens.class_token:
            raise RequestError(
                "a global filter works on a grid of patches: leave the class token out with pool=MeanPool()"
            )
        self.tokens = tokens
        self.weight = nn.Parameter(0.02 * torch.randn(tokens.height, tokens.width // 2 + 1, dim, 2))

    def forward(self, x: Tensor) -> Tensor:
        # half precision has no Fourier transform
        signal = (x.float() if x.dtype.itemsize < 4 else x).unflatten(1, self.tokens.grid)
        if torch.compiler.is_exporting():
            return self._by_matrices(signal).flatten(1, 2).to(x.dtype)
        spectrum = torch.fft.fft(torch.fft.rfft(signal, dim=2), dim=1)
        filtered = torch.fft.ifft(spectrum * torch.view_as_complex(self.weight.to(signal.dtype)), dim=1)
        return torch.fft.irfft(filtered, n=self.tokens.width, dim=2).flatten(1, 2).to(x.dtype)

    def _by_matrices(self, signal: Tensor) -> Tensor:
        real, imaginary = grid_spectrum(signal)
        a, b = self.weight.to(signal.dtype).unbind(-1)
        return grid_signal(real * a - imaginary * b, real * b + imaginary * a, self.tokens.width)

    def resample(self, name: str, weight: Tensor) -> Tensor:
        """The spectrum of the same convolution kernel, around its centre, at the frequencies of another grid."""
        height, width = weight.shape[0], round(weight.shape[0] * self.tokens.width / self.tokens.height)
        source_grid(height * width, self.tokens.grid)
        values = torch.view_as_complex(weight.cpu().double().contiguous())
        kernel = torch.fft.irfft2(values, s=(height, width), dim=(0, 1))
        rows = _waves(self.tokens.height, height)
        columns = _waves(self.tokens.width, width)[: self.tokens.width // 2 + 1]
        spectrum = torch.einsum("kn,nmc,lm->klc", rows, kernel.to(rows.dtype), columns)
        return torch.view_as_real(spectrum).to(weight)


def _waves(frequencies: int, places: int) -> Tensor:
    """exp(-2 pi i k n / frequencies) for all frequencies k and for places n counted from the centre of a kernel."""
    offsets = torch.fft.fftfreq(places, d=1 / places, dtype=torch.float64)
    angles = torch.outer(torch.arange(frequencies, dtype=torch.float64), offsets) * (-2 * math.pi / frequencies)
    return torch.polar(torch.ones_like(angles), angles)


class FilterBlock(Block):
    """Filter and MLP on one residual branch."""

    def forward(self, x: Tensor, flow: Flow) -> Tensor:
        return x + self.drop_path(self.ls2(self.mlp(self.norm2(self.mixer(self.norm1(x))))))


@register(
    [
        Variant(f"gfnet_{key}16", {"size": size}, aliases=(f"gfnet_{word}_patch16", f"GFNet-{key.title()}/16"))
        for (key, size), word in zip(SIZES.items(), ("tiny", "small", "base"), strict=True)
    ],
    title="GFNet",
    how=How.FOURIER,
    year=2021,
    paper="2107.00645",
    complexity="O(N log N)",
    changes="Attention is replaced by a product with learned weights in Fourier space, in one residual branch with the "
    "MLP; mean pooling instead of a class token, and the paper's widths and depths.",
    notes=(
        "No LayerScale, as in the authors' code, which has it in the hierarchical models only. Filters start with a "
        "standard deviation of 0.02, as there.",
        "At another image size a filter is the same convolution kernel on a larger or smaller grid. The authors' code "
        "interpolates the spectrum (bicubic), which is an approximation of that.",
    ),
)
def gfnet(size: Size, **options: Unpack[Options]) -> nn.Module:
    return Encoder(size, mixer=GlobalFilter, block=FilterBlock, pool=MeanPool(), layer_scale=None, **options)
