"""A plugin with models so small that a test trains them in a second."""

from functools import partial
from typing import Unpack

import torch
from torch import Tensor, nn

import favor
from favor.zoo.encoder import Encoder, Options, Size
from favor.zoo.layers import PatchEmbed
from favor.zoo.mixing.kernel.performer import PerformerMixer
from favor.zoo.registry import ImageSizes, Variant
from favor.zoo.taxonomy import How

SIZE = Size(16, 2, 2, 2.0)
EMBED = partial(PatchEmbed, patch_size=8)
CARD = {"year": 2020, "paper": None, "changes": "Small.", "image_sizes": ImageSizes(32, 8, 8)}


@favor.register([Variant("tiny_vit")], title="Tiny ViT", how=How.BASELINE, **CARD)
def tiny_vit(**options: Unpack[Options]) -> nn.Module:
    return Encoder(SIZE, embed=EMBED, layer_scale=None, **options)


@favor.register([Variant("tiny_performer")], title="Tiny Performer", how=How.KERNEL, **CARD)
def tiny_performer(**options: Unpack[Options]) -> nn.Module:
    """Draws its features anew in the course of training, and drops features at random."""
    model = Encoder(SIZE, embed=EMBED, mixer=partial(PerformerMixer, count=8), layer_scale=None, **options)
    model.norm = nn.Sequential(nn.LayerNorm(SIZE.dim), nn.Dropout(0.1))
    return model


class Exploding(nn.Module):
    """Its second layer puts out infinity once its weights have been changed."""

    def __init__(self, num_classes: int) -> None:
        super().__init__()
        self.first = nn.Linear(3, 4)
        self.second = nn.Linear(4, num_classes)
        self.register_buffer("start", torch.zeros(4))
        nn.init.zeros_(self.first.bias)

    def forward(self, images: Tensor) -> Tensor:
        x = self.first(images.mean((2, 3)))
        return self.second(x) / (self.first.bias == 0).all().float()


@favor.register([Variant("exploding")], title="Exploding", how=None, **CARD)
def exploding(num_classes: int, img_size: tuple[int, int], in_chans: int, drop_path: float) -> nn.Module:
    return Exploding(num_classes)


@favor.register([Variant("tiny_cnn")], title="Tiny CNN", how=None, **CARD)
def tiny_cnn(num_classes: int, img_size: tuple[int, int], in_chans: int, drop_path: float) -> nn.Module:
    """Has running statistics, which a forward pass changes."""
    layers = nn.Conv2d(in_chans, 8, 8, 8), nn.BatchNorm2d(8), nn.AdaptiveAvgPool2d(1), nn.Flatten()
    return nn.Sequential(*layers, nn.Linear(8, num_classes))
