"""EfficientMod: tokens are multiplied by a context that a large depthwise convolution gathers around them.

Paper: Ma et al., "Efficient Modulation for Vision Networks", 2024, arXiv:2403.19963
"""

from collections.abc import Sequence
from typing import Unpack

from torch import Tensor, nn

from favor.zoo.encoder import Options
from favor.zoo.layers import DropPath, LayerScale, Mlp
from favor.zoo.registry import ImageSizes, Variant, register
from favor.zoo.settings import FourPositive, NotNegative, Positive
from favor.zoo.stages import ConvEmbedding, GridAttention, GridConv, as_grid, drop_path_rates, init_linear_layers
from favor.zoo.taxonomy import How


class Modulation(nn.Module):
    """p(v(x) * ctx(x)) with ctx(x) = g(GELU(conv(f(x)))), where the context is repeated over `expansion` parts of v(x).

    Mixes the tokens and is the MLP at once.
    """

    def __init__(self, dim: int, expansion: int, kernel: int = 7) -> None:
        super().__init__()
        self.expansion = expansion
        self.value = nn.Linear(dim, expansion * dim)
        self.value_act = nn.GELU() if expansion > 1 else nn.Identity()
        self.context = nn.Sequential(
            nn.Linear(dim, dim),
            GridConv(dim, dim, kernel, padding=kernel // 2, groups=dim),
            nn.GELU(),
            nn.Linear(dim, dim),
        )
        self.proj = nn.Linear(expansion * dim, dim)

    def forward(self, x: Tensor) -> Tensor:
        """[B, H, W, dim] -> [B, H, W, dim]."""
        value = self.value_act(self.value(x)).unflatten(-1, (self.expansion, -1))
        return self.proj((value * self.context(x).unsqueeze(-2)).flatten(-2))


class ModulationBlock(nn.Module):
    """One residual branch: norm, modulation, LayerScale."""

    def __init__(self, dim: int, expansion: int, drop_path: float) -> None:
        super().__init__()
        self.norm = nn.LayerNorm(dim)
        self.modulation = Modulation(dim, expansion)
        self.scale = LayerScale(dim, 1e-4)
        self.drop_path = DropPath(drop_path)

    def forward(self, x: Tensor) -> Tensor:
        return x + self.drop_path(self.scale(self.modulation(self.norm(x))))


class AttentionBlock(nn.Module):
    """ViT's block on a grid, which the hybrid form puts at the end of the last two stages."""

    def __init__(self, dim: int, attention: nn.Module, hidden: int, drop_path: float) -> None:
        super().__init__()
        self.norm1 = nn.LayerNorm(dim)
        self.attn = attention
        self.norm2 = nn.LayerNorm(dim)
        self.mlp = Mlp(dim, hidden)
        self.drop_path = DropPath(drop_path)

    def forward(self, x: Tensor) -> Tensor:
        x = x + self.drop_path(self.attn(self.norm1(x)))
        return x + self.drop_path(self.mlp(self.norm2(x)))


class EfficientMod(nn.Module):
    """Four stages of modulation blocks; attention blocks end the last two."""

    def __init__(
        self,
        dims: Sequence[int],
        depths: Sequence[int],
        attention_depths: Sequence[int],
        expansion: int,
        attention_mlp_ratios: Sequence[int],
        heads: int,
        least_head_dim: int,
        **options: Unpack[Options],
    ) -> None:
        super().__init__()
        blocks = [sum(kinds) for kinds in zip(depths, attention_depths, strict=True)]
        stages: list[nn.Module] = []
        for i, rates in enumerate(drop_path_rates(options["drop_path"], blocks)):
            dim = dims[i]
            if i == 0:
                stages.append(ConvEmbedding(options["in_chans"], dim, 7, 4, padding=3, norm=nn.LayerNorm))
            else:
                stages.append(ConvEmbedding(dims[i - 1], dim, 3, 2, padding=1, norm=nn.LayerNorm))
            stages.extend(
                ModulationBlock(dim, expansion if j % 2 else 1, rate) for j, rate in enumerate(rates[: depths[i]])
            )
            for rate in rates[depths[i] :]:
                attention = GridAttention(dim, heads, max(dim // heads, least_head_dim), qkv_bias=False)
                stages.append(AttentionBlock(dim, attention, attention_mlp_ratios[i] * dim, rate))
        self.stages = nn.Sequential(*stages)
        self.norm = nn.LayerNorm(dims[-1])
        self.head = nn.Linear(dims[-1], options["num_classes"])
        init_linear_layers(self)

    def forward(self, images: Tensor) -> Tensor:
        return self.head(self.norm(self.stages(as_grid(images))).mean(dim=(1, 2)))


_XS = {"depths": (3, 3, 4, 2), "attention_depths": (0, 0, 3, 3), "expansion": 4}
_S = {
    "depths": (4, 4, 8, 4),
    "attention_depths": (0, 0, 4, 4),
    "expansion": 6,
    "attention_mlp_ratios": (4, 4, 4, 5),
}


@register(
    [
        Variant("efficientmod_xs", _XS, aliases=("efficient_mod_xs", "Efficient Mod-XS")),
        Variant("efficientmod_s", _S, aliases=("efficient_mod_s", "Efficient Mod-S")),
        Variant("efficientmod_xs_paper", {**_XS, "dims": (32, 64, 144, 288), "least_head_dim": 32}),
        Variant("efficientmod_s_paper", {**_S, "dims": (32, 64, 144, 312), "least_head_dim": 32}),
    ],
    title="EfficientMod",
    how=How.SHUFFLING,
    year=2024,
    paper="2403.19963",
    complexity="O(N^2)",
    changes="Attention and MLP become one block: a 7 x 7 depthwise convolution between two linear layers gives a "
    "context that is multiplied onto the widened tokens. Attention blocks end the last two stages.",
    image_sizes=ImageSizes(multiple_of=1, at_least=32),
    notes=(
        "As in the authors' code, blocks alternate between expansion 1 without activation and expansion 4 (xs) or 6 "
        "(s), modulation has LayerScale 1e-4 and attention none, and the epsilon of the norms is 1e-5.",
        "efficientmod_xs and efficientmod_s are the benchmark's: 32/64/128/256 wide (5.2 and 9.0 M parameters). The "
        "authors' are efficientmod_xs_paper and efficientmod_s_paper: 32/64/144/288 and 32/64/144/312 wide, with at "
        "least 32 channels per head (6.6 and 12.9 M).",
        "Modulation is O(N); the attention blocks, on grids of 1/16 and 1/32 of the image's side, are O(N^2).",
    ),
    miniature={
        "dims": (16, 16, 24, 32),
        "depths": (1, 2, 2, 1),
        "attention_depths": (0, 0, 1, 1),
        "expansion": 4,
        "attention_mlp_ratios": (4, 4, 4, 4),
    },
)
def efficientmod(
    depths: FourPositive,
    attention_depths: tuple[NotNegative, NotNegative, NotNegative, NotNegative],
    expansion: Positive,
    dims: FourPositive = (32, 64, 128, 256),
    attention_mlp_ratios: FourPositive = (4, 4, 4, 4),
    heads: Positive = 8,
    least_head_dim: Positive = 1,
    **options: Unpack[Options],
) -> nn.Module:
    return EfficientMod(
        dims, depths, attention_depths, expansion, attention_mlp_ratios, heads, least_head_dim, **options
    )
