"""MLP-Mixer: an MLP over the tokens of each channel, in turn with an MLP over the channels of each token.

Paper: Tolstikhin et al., "MLP-Mixer: An all-MLP Architecture for Vision", 2021, arXiv:2105.01601
"""

from typing import Any, Unpack

from torch import Tensor, nn

from favor.zoo.encoder import Options
from favor.zoo.layers import resize_tokens
from favor.zoo.registry import Variant, register
from favor.zoo.taxonomy import How
from favor.zoo.timm_models import build_timm


class FromTokens(nn.Linear):
    """The first layer of a token MLP: its inputs are the tokens of a grid."""

    def __init__(self, layer: nn.Linear, grid: tuple[int, int]) -> None:
        nn.Module.__init__(self)
        self.in_features, self.out_features = layer.in_features, layer.out_features
        self.weight, self.bias = layer.weight, layer.bias
        self.grid = grid

    def resample(self, name: str, weight: Tensor) -> Tensor:
        """Interpolate along the tokens, scaled such that each hidden unit's sum keeps its size."""
        return resize_tokens(weight.T[None], self.grid)[0].T * (weight.shape[1] / self.in_features)


class ToTokens(FromTokens):
    """The second layer of a token MLP: its outputs are the tokens of a grid."""

    def resample(self, name: str, weight: Tensor) -> Tensor:
        """Interpolate along the tokens."""
        return resize_tokens(weight.reshape(1, weight.shape[0], -1), self.grid)[0].reshape(-1, *weight.shape[1:])


@register(
    [
        Variant("mixer_s16", {"architecture": "mixer_s16_224"}, ("Mixer-S/16",)),
        Variant("mixer_b16", {"architecture": "mixer_b16_224"}, ("Mixer-B/16",)),
    ],
    title="MLP-Mixer",
    how=How.SHUFFLING,
    year=2021,
    paper="2105.01601",
    origin="timm",
    complexity="O(N)",
    changes="No attention: an MLP with a fixed number of hidden units mixes the tokens of each channel. There are no "
    "positions and no class token.",
    notes=(
        "The token MLPs are tied to the number of tokens. At another image size their weights are interpolated on the "
        "token grid; the paper instead repeats them in blocks, which works for whole multiples of the image size only.",
        "The head starts as ViT's, with random weights; the paper's and timm's start with zeros.",
        "The benchmark's own implementation has 18,529,288 parameters at S and 59,882,008 at B, instead of 18,528,264 "
        "and 59,880,472: a wrong argument gives it a norm after the patch embedding, unlike the paper's.",
    ),
)
def mixer(architecture: str, **options: Unpack[Options]) -> nn.Module:
    model: Any = build_timm(architecture, **options)
    # logits that are zero for every image would make a fresh model look broken
    nn.init.trunc_normal_(model.head.weight, std=0.02)
    grid = model.stem.grid_size
    for block in model.blocks:
        block.mlp_tokens.fc1 = FromTokens(block.mlp_tokens.fc1, grid)
        block.mlp_tokens.fc2 = ToTokens(block.mlp_tokens.fc2, grid)
    return model
