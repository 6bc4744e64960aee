"""What all Vision X-formers share: their size, their tokens, and the attention that takes the place of X.

Paper: Jeevan and Sethi, "Resource-efficient Hybrid X-formers for Vision", 2021, arXiv:2107.02239
"""

import math
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from functools import partial

from torch import nn

from favor.errors import RequestError, unknown_name
from favor.zoo.attention import Attention
from favor.zoo.encoder import Size
from favor.zoo.mixing.kernel.performer import PerformerMixer
from favor.zoo.mixing.low_rank.linformer import LinformerMixer
from favor.zoo.mixing.low_rank.nystrom import NystromMixer
from favor.zoo.registry import Builder, ImageSizes, Variant, register
from favor.zoo.slots import MixerFactory
from favor.zoo.taxonomy import How

SIZE = Size(dim=128, depth=4, heads=4, mlp_ratio=2.0)
GRID = 32
"""Tokens along a side of the image at CIFAR-10's 32 px and at Tiny ImageNet's 64 px."""
IMAGE_SIZES = ImageSizes(default=GRID, multiple_of=GRID, at_least=GRID)
MINIATURE: Mapping[str, object] = {"img_size": 32, "size": Size(16, 4, 4, 2.0), "grid": 8}

SEQUENCE_NOTE = (
    "1024 patches (`grid` 32 per side): one per pixel at 32 px, 2 x 2 pixels or a stride of 2 at 64 px. At other sizes "
    "a patch has 1/32 of the shorter side in pixels, rounded down; of the three convolutions, as many halve the grid "
    "as bring it nearest to 32 x 32, so that no pixel is skipped."
)
INIT_NOTE = (
    "Initialized like our ViT, so that only the mixer makes a difference: linear layers and any positions with a "
    "standard deviation of 0.02, a class token with 1e-6. In the authors' code linear layers have PyTorch's "
    "initialization, positions and class token a standard deviation of 1."
)
NORM_NOTE = "LayerNorm has an epsilon of 1e-6, like our ViT's; 1e-5 in the authors' code."
ONE_HEAD_NOTE = "All heads of queries share one head of keys, as in the authors' code of ViL."
COUNT_NOTE = (
    "The paper counts only weights and biases of standard modules, which leaves out bare parameters; "
    "`favor.trace.paper_counts` counts in the same way."
)


@dataclass(frozen=True)
class XFormer:
    """An attention that can take the place of X: its letter in the models' names, and what its card says."""

    letter: str
    mixer: Callable[..., nn.Module]
    how: How
    complexity: str
    says: str
    notes: tuple[str, ...] = ()


SOFTMAX = XFormer(
    "t",
    partial(Attention, qkv_bias=False),
    How.BASELINE,
    "O(N^2)",
    "softmax attention without bias on queries, keys and values",
)
PERFORMER = XFormer(
    "p",
    partial(PerformerMixer, features="relu", count=110, local_heads=2, window=256),
    How.KERNEL,
    "O(N)",
    "Performer's attention with 110 ReLU features in two heads and a local window of 256 tokens in the other two",
    (
        "ReLU features and a local window of 256 tokens, as in the paper's text, which does not say how many heads "
        "have the window. Here half of them do, in equal stretches of at most 256 tokens (5 of 205 for 1025). The "
        "authors' code has softmax features and no local head, and the sizes that the paper prints fit that code. "
        "Neither choice changes a parameter.",
        "110 features, d log d for 32 channels per head, the authors' default. They are redrawn each time training has "
        "progressed by 1 %; the authors' code never redraws them.",
    ),
)
LINFORMER = XFormer(
    "l",
    partial(LinformerMixer, k=64, share_kv=True, kv_heads=1, qkv_bias=False),
    How.LOW_RANK,
    "O(N)",
    "Linformer's attention to 64 projected tokens with shared keys and values",
    (
        "Keys are also the values, through one projection to k = 64 tokens, as in the authors' code; the paper's text "
        "names the shared projection only.",
        ONE_HEAD_NOTE,
        "The paper's count leaves out the projections, 64 parameters per token in every block. By its figures the "
        "Linformer is the smallest model of its group; in truth it is the largest with attention, except for a CvT of "
        "twice the width.",
        "The projections start from a normal distribution with a standard deviation of 1/8; the authors' start from a "
        "uniform one between -1/8 and 1/8.",
    ),
)
NYSTROM = XFormer(
    "n",
    partial(NystromMixer, landmarks=64, qkv_bias=False),
    How.LOW_RANK,
    "O(N)",
    "Nystrom attention through 64 landmarks",
    (
        "33 taps in the convolution of the values and six iterations of the pseudo-inverse, the authors' defaults.",
        "With a class token, 1025 tokens make 63 segments of 16 and one of 17; nothing is padded. The authors' code "
        "puts 63 tokens of zeros in front, which are keys too, for 64 segments of 17: with weights of order one the "
        "outputs are 3 % of their norm apart. Without a class token (1024 tokens) neither pads. The authors' code "
        "starts the pseudo-inverse from the largest norm in the batch, so that an image's output depends on the "
        "others.",
    ),
)
X_FORMERS = {x.letter: x for x in (SOFTMAX, PERFORMER, LINFORMER, NYSTROM)}


def x_former(letter: str) -> XFormer:
    """An attention by its letter: t, p, l or n."""
    if letter not in X_FORMERS:
        raise unknown_name("X of the X-formers", letter, X_FORMERS, "choose from " + ", ".join(X_FORMERS))
    return X_FORMERS[letter]


LETTER_OF = {"kv_heads": "l", "k": "l", "landmarks": "n"}
"""The attention that a further setting belongs to."""


def x_mixer(letter: str, **further: int | None) -> MixerFactory:
    """The attention of a letter, with what is given of its further settings."""
    mixer = x_former(letter).mixer
    given = {name: value for name, value in further.items() if value is not None}
    for name in given:
        if letter != LETTER_OF[name]:
            raise RequestError(f"{name} is a setting of x={LETTER_OF[name]!r}, not of x={letter!r}")
    return partial(mixer, **given)


def patch_size(img_size: tuple[int, int], grid: int = GRID) -> int:
    """The patches that make `grid` tokens along the shorter side.

    >>> patch_size((32, 32)), patch_size((64, 64)), patch_size((224, 224))
    (1, 2, 7)
    """
    if not 1 <= grid <= min(img_size):
        raise RequestError(f"{grid} tokens along the shorter side cannot be made of {min(img_size)} px")
    return min(img_size) // grid


def conv_strides(img_size: tuple[int, int], grid: int = GRID) -> tuple[int, int, int]:
    """The strides of three convolutions of 3 x 3 that make about `grid` tokens along the shorter side.

    >>> conv_strides((32, 32)), conv_strides((64, 64)), conv_strides((224, 224))
    ((1, 1, 1), (2, 1, 1), (2, 2, 2))
    """
    halvings = round(math.log2(patch_size(img_size, grid)))
    first, second, third = (2 if place < halvings else 1 for place in range(3))
    return first, second, third


def enter(
    build: Builder,
    name: str,
    title: str,
    *,
    how: How,
    complexity: str,
    changes: str,
    notes: Sequence[str] = (),
    init_note: str = INIT_NOTE,
    layer_norm: bool = True,
    alias: bool = True,
    **settings: object,
) -> None:
    """Register one X-former. `alias` makes its title another name, which only titles of the paper's own can be."""
    register(
        [Variant(name, {"size": SIZE, **settings}, aliases=(title,) if alias else ())],
        title=title,
        how=how,
        year=2021,
        paper="2107.02239",
        complexity=complexity,
        changes=changes,
        family="vix",
        image_sizes=IMAGE_SIZES,
        notes=(*notes, SEQUENCE_NOTE, init_note, *((NORM_NOTE,) if layer_norm else ()), COUNT_NOTE),
        miniature=MINIATURE,
    )(build)
