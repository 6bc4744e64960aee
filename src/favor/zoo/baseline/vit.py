"""ViT: an image as a sequence of patches for a transformer encoder.

Paper: Dosovitskiy et al., "An Image is Worth 16x16 Words: Transformers for Image Recognition at Scale", 2020,
arXiv:2010.11929
"""

from functools import partial
from typing import Unpack

from torch import nn

from favor.zoo.encoder import SIZES, Encoder, Options, Size
from favor.zoo.layers import PatchEmbed
from favor.zoo.positions import Learned
from favor.zoo.registry import ImageSizes, Variant, register, vit_sizes
from favor.zoo.settings import Positive
from favor.zoo.taxonomy import How

PATCH_NOTES = {
    8: (
        "The Efficiency Misnomer (arXiv:2110.12894, Table 1) prints 86.5 M parameters, fewer than its 86.6 M for "
        "patches of 16 px. In truth there are 9,216 more: the embedding is smaller, but there are more positions.",
    ),
    64: (
        "Pads the image with zeros to whole patches: 224 px become 256, 16 patches.",
        "The Efficiency Misnomer's row ViT-B/64 (arXiv:2110.12894, Table 1) contradicts itself: its 17 tokens give "
        "1.60 G multiply-adds, as here; the 0.93 G that it prints are those of 10 tokens.",
    ),
}


def _patches(patch_size: int) -> Variant:
    pads = patch_size == 64
    return Variant(
        f"vit_b{patch_size}",
        {"size": SIZES["b"], "patch_size": patch_size, "pad": pads},
        aliases=(f"ViT-B/{patch_size}",),
        image_sizes=ImageSizes(multiple_of=1) if pads else ImageSizes(multiple_of=patch_size, at_least=patch_size),
        notes=PATCH_NOTES.get(patch_size, ()),
    )


@register(
    [
        *vit_sizes("vit_{size}16", "ti s b l", aliases=["ViT-{letter}/16"]),
        *(_patches(patch_size) for patch_size in (8, 32, 64)),
    ],
    title="ViT",
    how=How.BASELINE,
    year=2020,
    paper="2010.11929",
    complexity="O(N^2)",
    changes="The baseline that the others change: softmax attention over all pairs of tokens.",
    notes=(
        "As in the benchmark: a class token without a position, biases on queries, keys and values, and at its sizes "
        "LayerScale 1e-4.",
    ),
)
def vit(
    size: Size,
    patch_size: Positive = 16,
    pad: bool = False,
    layer_scale: float | None = 1e-4,
    class_position: bool = False,
    **options: Unpack[Options],
) -> nn.Module:
    embed = partial(PatchEmbed, patch_size=patch_size, pad=pad)
    return Encoder(size, embed=embed, layer_scale=layer_scale, positions=Learned(class_position), **options)
