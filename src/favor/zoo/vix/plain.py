"""ViX and hybrid ViX: a ViT whose tokens are pixels, with an X-former, FNet or MLP-Mixer in place of softmax attention.

Hybrids embed pixels by three convolutions instead of one linear layer; RoPE turns queries and keys in place of learned
positions.

Paper: Jeevan and Sethi, "Resource-efficient Hybrid X-formers for Vision", 2021, arXiv:2107.02239, Tables 1, 2 and 6
"""

from dataclasses import replace
from functools import partial
from typing import ClassVar, Unpack

from torch import Tensor, nn

from favor.zoo.encoder import Encoder, Options, Size
from favor.zoo.layers import ConvEmbed, PatchEmbed, resize_tokens
from favor.zoo.mixing.fourier.fnet import FNetMixer
from favor.zoo.pools import MeanPool
from favor.zoo.positions import Learned, NoPositions, RotaryPositions
from favor.zoo.settings import Positive
from favor.zoo.slots import EmbedFactory, Tokens
from favor.zoo.taxonomy import How
from favor.zoo.vix.setting import GRID, ONE_HEAD_NOTE, X_FORMERS, conv_strides, enter, patch_size, x_mixer


class TokenMlp(nn.Module):
    """An MLP over the tokens of each channel, with as many hidden units as there are tokens: O(N^2)."""

    fixed_tokens: ClassVar[bool] = True

    def __init__(self, dim: int, heads: int, tokens: Tokens) -> None:
        super().__init__()
        self.fc1 = TokenLinear(tokens)
        self.act = nn.GELU()
        self.fc2 = TokenLinear(tokens)

    def forward(self, x: Tensor) -> Tensor:
        return self.fc2(self.act(self.fc1(x.transpose(1, 2)))).transpose(1, 2)


class TokenLinear(nn.Linear):
    """A linear layer from the tokens of a grid to as many."""

    def __init__(self, tokens: Tokens) -> None:
        super().__init__(tokens.count, tokens.count)
        self.grid = tokens.grid

    def resample(self, name: str, weight: Tensor) -> Tensor:
        """Interpolate both token axes, scaled such that each sum over tokens keeps its size."""
        outputs = resize_tokens(weight.reshape(1, weight.shape[0], -1), self.grid)[0]
        if name == "bias":
            return outputs[:, 0]
        return resize_tokens(outputs.T[None], self.grid)[0].T * (weight.shape[1] / self.in_features)


def embedding(img_size: tuple[int, int], hybrid: bool, grid: int) -> EmbedFactory:
    """The linear embedding of patches, or the hybrids' three convolutions, both with about `grid` tokens a side."""
    if hybrid:
        return partial(ConvEmbed, strides=conv_strides(img_size, grid))
    return partial(PatchEmbed, patch_size=patch_size(img_size, grid))


def vix(
    size: Size,
    x: str = "t",
    hybrid: bool = False,
    rotary: bool = False,
    kv_heads: Positive | None = None,
    landmarks: Positive | None = None,
    grid: Positive = GRID,
    **options: Unpack[Options],
) -> nn.Module:
    return Encoder(
        size,
        embed=embedding(options["img_size"], hybrid, grid),
        positions=RotaryPositions() if rotary else Learned(class_token=True),
        mixer=x_mixer(x, kv_heads=kv_heads, landmarks=landmarks),
        layer_scale=None,
        **options,
    )


def vix_fnet(size: Size, hybrid: bool = False, grid: Positive = GRID, **options: Unpack[Options]) -> nn.Module:
    embed = embedding(options["img_size"], hybrid, grid)
    return Encoder(size, embed=embed, positions=Learned(class_token=True), mixer=FNetMixer, layer_scale=None, **options)


def vix_mixer(size: Size, hybrid: bool = False, grid: Positive = GRID, **options: Unpack[Options]) -> nn.Module:
    return Encoder(
        replace(size, mlp_ratio=1.0),
        embed=embedding(options["img_size"], hybrid, grid),
        positions=NoPositions(),
        mixer=TokenMlp,
        pool=MeanPool(),
        layer_scale=None,
        **options,
    )


HYBRID_VIL_NOTE = (
    "One head of keys gives the paper's count of 508,490. The authors' published code of this model has four, 557,642 "
    "by the same count.",
)


def _enter_all() -> None:
    for hybrid in (False, True):
        title = "Hybrid {}" if hybrid else "{}"
        name = "vix_hybrid_{}" if hybrid else "vix_{}"
        embedded = "three 3 x 3 convolutions embed the pixels" if hybrid else "a linear layer embeds the pixels"
        for x in X_FORMERS.values():
            vi = f"Vi{x.letter.upper()}"
            how = How.HYBRID if hybrid and x.how is How.BASELINE else x.how
            changes = f"Tokens are pixels: {embedded}. Four blocks of width 128 with {x.says}."
            enter(
                vix,
                name.format(vi.lower()),
                title.format(vi),
                how=how,
                complexity=x.complexity,
                changes=changes,
                notes=(*x.notes, *(HYBRID_VIL_NOTE if hybrid and x.letter == "l" else ())),
                alias=hybrid or x.letter != "t",
                x=x.letter,
                hybrid=hybrid,
            )
            enter(
                vix,
                name.format(vi.lower()) + "_rope",
                title.format(vi) + " RoPE",
                how=how,
                complexity=x.complexity,
                changes=f"{changes} Rotary positions in place of learned ones.",
                notes=(*(note for note in x.notes if note != ONE_HEAD_NOTE), *_rope_notes(x.letter)),
                x=x.letter,
                hybrid=hybrid,
                rotary=True,
                kv_heads=4 if x.letter == "l" else None,
            )
        enter(
            vix_fnet,
            name.format("fnet"),
            title.format("FNet"),
            how=How.FOURIER,
            complexity="O(N log N)",
            changes=f"Tokens are pixels: {embedded}. Four blocks of width 128 with FNet's Fourier transform.",
            alias=hybrid,
            hybrid=hybrid,
        )
        enter(
            vix_mixer,
            name.format("mixer"),
            title.format("MLP-Mixer"),
            how=How.SHUFFLING,
            complexity="O(N^2)",
            changes=f"Tokens are pixels: {embedded}. Four blocks of width 128 with MLPs over tokens and over channels.",
            notes=(
                "128 hidden units in the MLPs over channels and 1024, as many as tokens, in those over tokens give the "
                "paper's count. Its text says 256.",
                "The token MLPs are tied to the number of tokens, and their cost grows quadratically with it.",
            ),
            alias=hybrid,
            hybrid=hybrid,
        )


def _rope_notes(letter: str) -> tuple[str, ...]:
    turned = "The class token is at position 0 of the rotary positions; the pixels follow row by row."
    idle = "The authors' code still allocates 131,200 parameters for learned positions, which it does not use."
    heads = "Four heads of keys, one per head of queries, as in the authors' code with rotary positions."
    return {"t": (turned, idle), "l": (turned, idle, heads)}.get(letter, (turned,))


_enter_all()
