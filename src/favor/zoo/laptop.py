"""Laptop size: one architecture of every strategy at 32 x 32 pixels on 8 x 8 tokens, small enough for a processor.

`vit_xs4` is ViT with patches of 4 pixels, four blocks of width 96 and three heads; the others change of it what their
architecture changes of ViT. For the experiments of "The Efficiency Misnomer" it also comes in other depths
(`vit_xs4_d2`) and widths (`vit_xs4_w64`), and so do Universal Transformer and Switch.
"""

from collections.abc import Mapping
from dataclasses import replace
from functools import partial

from favor.zoo.baseline.universal import universal
from favor.zoo.baseline.vit import vit
from favor.zoo.encoder import Size
from favor.zoo.layers import PatchEmbed
from favor.zoo.mixing.fixed.synthesizer_fr import synthesizer_fr
from favor.zoo.mixing.fourier.fnet import fnet
from favor.zoo.mixing.fourier.gfnet import gfnet
from favor.zoo.mixing.kernel.hydra import hydra
from favor.zoo.mixing.kernel.performer import performer
from favor.zoo.mixing.low_rank.linformer import linformer
from favor.zoo.mixing.low_rank.nystrom import nystrom
from favor.zoo.mixing.sparse.routing import routing
from favor.zoo.mlp.switch import switch
from favor.zoo.registry import Builder, ImageSizes, Variant, register_variant
from favor.zoo.sequence.merging.tome import tome
from favor.zoo.sequence.removal.evit import evit
from favor.zoo.sequence.summary.tokenlearner import tokenlearner
from favor.zoo.vix.ccx import vix_ccx
from favor.zoo.vix.plain import vix, vix_mixer

SIZE = Size(dim=96, depth=4, heads=3, mlp_ratio=2.0)
HEAD_WIDTH = 32
DEPTHS, WIDTHS = (2, 3, 6, 8), (64, 128, 160)
"""The other depths at the width of `SIZE`, and the other widths at its depth, with more or fewer heads."""
PATCH_SIZE, GRID = 4, 8
IMAGE_SIZES = ImageSizes(default=32, multiple_of=PATCH_SIZE, at_least=32)
VIX_NOTE = (
    "Laptop size: 8 x 8 tokens at 32 px instead of 32 x 32, from patches of 4 px or, in hybrids, convolutions with "
    "strides 2, 2 and 1; four blocks of width 96, three heads, 16 landmarks in Nystrom attention."
)
COMPACT_NOTE = (
    "Laptop size: 8 x 8 tokens at 32 px instead of 32 x 32, as the first two max poolings halve the grid like CCT's; "
    "four blocks of width 96, three heads, MLPs of width 192, 16 projected tokens."
)

NO_SCALE: Mapping[str, object] = {"layer_scale": None}

# What is a number of tokens is scaled with their number, from 196 to 64. Those without NO_SCALE have none at any size.
_IN_THE_SHELL: tuple[tuple[str, Builder, Mapping[str, object]], ...] = (
    ("linformer_xs4", linformer, {"k": 16, **NO_SCALE}),
    ("nystrom_xs4", nystrom, {"landmarks": 16, **NO_SCALE}),
    ("routing_xs4", routing, NO_SCALE),
    ("synthesizer_fr_xs4", synthesizer_fr, NO_SCALE),
    ("performer_xs4", performer, {"count": 32, **NO_SCALE}),
    ("hydra_xs4", hydra, NO_SCALE),
    ("fnet_xs4", fnet, NO_SCALE),
    ("gfnet_xs4", gfnet, {}),
    ("evit_xs4", evit, {}),
    ("tome_xs4", tome, {"r": 8, **NO_SCALE}),
    ("tokenlearner_xs4", tokenlearner, NO_SCALE),
    ("switch_xs4", switch, {"experts": 4, **NO_SCALE}),
)
_HYBRIDS: Mapping[str, Mapping[str, object]] = {"t": {}, "n": {"landmarks": 16}}
"""Hybrid X-formers, whose three convolutions stride by 2, 2 and 1 to the same 8 x 8 tokens."""


def size_note(size: Size) -> str:
    """What the card of a model of this size says about it."""
    return (
        f"Laptop size: 32 px, patches of 4 px, so 8 x 8 tokens; {size.depth} blocks of width {size.dim}, "
        f"{size.heads} heads, MLPs of width {size.hidden}. No LayerScale: its small initial values need longer "
        "training than a laptop allows."
    )


def wide(dim: int) -> Size:
    """The laptop size with another width, in heads of the same width.

    >>> wide(160).heads
    5
    """
    return replace(SIZE, dim=dim, heads=dim // HEAD_WIDTH)


def _enter_all() -> None:
    def variant(name: str, settings: Mapping[str, object], note: str = "", size: Size = SIZE) -> Variant:
        return Variant(name, {"size": size, **settings}, notes=(note or size_note(size),), image_sizes=IMAGE_SIZES)

    plain = {"patch_size": PATCH_SIZE, **NO_SCALE}
    register_variant(vit, variant("vit_xs4", plain))
    for depth in DEPTHS:
        register_variant(vit, variant(f"vit_xs4_d{depth}", plain, size=replace(SIZE, depth=depth)))
    for dim in WIDTHS:
        register_variant(vit, variant(f"vit_xs4_w{dim}", plain, size=wide(dim)))
    embed = partial(PatchEmbed, patch_size=PATCH_SIZE)
    for dim in (96, 160):
        register_variant(universal, variant(f"universal_xs4_w{dim}", {"embed": embed, **NO_SCALE}, size=wide(dim)))
    register_variant(switch, variant("switch_xs4_w64", {"embed": embed, "experts": 4, **NO_SCALE}, size=wide(64)))
    for name, build, settings in _IN_THE_SHELL:
        register_variant(build, variant(name, {"embed": embed, **settings}))
    register_variant(vix_mixer, variant("mixer_xs4", {"grid": GRID}, VIX_NOTE), of="vix_mixer")
    for x, settings in _HYBRIDS.items():
        hybrid = variant(f"hybrid_vi{x}_xs4", {"x": x, "hybrid": True, "grid": GRID, **settings}, VIX_NOTE)
        register_variant(vix, hybrid, of=f"vix_hybrid_vi{x}")
    compact = {"x": "l", "k": 16, "mlp_ratio": SIZE.mlp_ratio, "grid": GRID, "pooled": True}
    register_variant(vix_ccx, variant("ccl_xs4", compact, COMPACT_NOTE), of="vix_ccl")


_enter_all()
