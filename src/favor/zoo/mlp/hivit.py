"""HiViT: a hierarchy whose early stages have MLPs only, before a plain ViT of patches of 16 px.

Paper: Zhang et al., "HiViT: A Simpler and More Efficient Design of Hierarchical Vision Transformer", 2022,
arXiv:2205.14949
"""

from functools import partial
from typing import ClassVar, Unpack

import torch.nn.functional as F
from torch import Tensor, nn

from favor.zoo.attention import HeadMixer
from favor.zoo.encoder import Encoder, Options, Size
from favor.zoo.layers import DropPath, LayerNorm, Mlp
from favor.zoo.pools import MeanPool
from favor.zoo.registry import ImageSizes, Variant, register
from favor.zoo.relative_bias import RelativeBias
from favor.zoo.settings import NotNegative
from favor.zoo.slots import Flow, Tokens
from favor.zoo.stages import ConvEmbedding, PatchMerging, as_grid
from favor.zoo.taxonomy import How


class MlpBlock(nn.Module):
    """An MLP on a residual branch: what is left of a block without attention."""

    def __init__(self, dim: int, hidden: int) -> None:
        super().__init__()
        self.norm = LayerNorm(dim)
        self.mlp = Mlp(dim, hidden)
        self.drop_path = DropPath(0.0)

    def forward(self, x: Tensor) -> Tensor:
        return x + self.drop_path(self.mlp(self.norm(x)))


class MlpStages(nn.Module):
    """Embeds 16 x 16 px in three steps: patches of 4 px, then twice MLP blocks and a merge of four tokens to one."""

    def __init__(self, in_chans: int, dim: int, img_size: tuple[int, int], blocks: int = 2) -> None:
        super().__init__()
        self.grid = (img_size[0] // 16, img_size[1] // 16)
        layers: list[nn.Module] = [ConvEmbedding(in_chans, dim // 4, 4, 4)]
        for width in (dim // 4, dim // 2):
            layers += [MlpBlock(width, 3 * width) for _ in range(blocks)]
            layers.append(PatchMerging(width))
        self.layers = nn.Sequential(*layers)

    def forward(self, images: Tensor) -> Tensor:
        return self.layers(as_grid(images)).flatten(1, 2)


class BiasedAttention(HeadMixer):
    """Softmax attention with a learned bias per relative position."""

    fixed_tokens: ClassVar[bool] = True

    def __init__(self, dim: int, heads: int, tokens: Tokens) -> None:
        super().__init__(dim, heads, tokens)
        self.bias = RelativeBias(tokens.grid, heads)

    def mix(self, q: Tensor, k: Tensor, v: Tensor) -> Tensor:
        return F.scaled_dot_product_attention(q, k, v, attn_mask=self.bias().to(q.dtype))


class HiViT(Encoder):
    """The shell, with the mean taken before the norm and drop path growing through the MLP stages too."""

    def __init__(self, size: Size, *, early_blocks: int, **options: Unpack[Options]) -> None:
        embed = partial(MlpStages, blocks=early_blocks)
        super().__init__(size, embed=embed, mixer=BiasedAttention, pool=MeanPool(), layer_scale=None, **options)
        paths = [module for module in self.modules() if isinstance(module, DropPath)]
        for index, path in enumerate(paths):
            path.rate = options["drop_path"] * index / (len(paths) - 1)

    def pooled(self, x: Tensor, flow: Flow) -> Tensor:
        return self.norm(x.mean(dim=1))


@register(
    [
        Variant(
            "hivit_ti16",
            {"size": Size(192, 10, 3), "early_blocks": 2},
            aliases=("hi_vit_tiny_patch16", "Hi ViT-Ti/16"),
            notes=("The benchmark's size, 192 wide (4.9 M parameters); the paper's smallest is hivit_t (19.2 M).",),
        ),
        Variant("hivit_t", {"size": Size(384, 10, 6), "early_blocks": 2}, aliases=("HiViT-T",)),
        Variant(
            "hivit_s16",
            {"size": Size(384, 20, 6), "early_blocks": 4},
            aliases=("hi_vit_small_patch16", "Hi ViT-S/16", "HiViT-S"),
        ),
        Variant(
            "hivit_b16",
            {"size": Size(768, 20, 12), "early_blocks": 4},
            aliases=("hi_vit_base_patch16",),
            notes=("The benchmark's size, 768 wide; the paper's HiViT-B is 512 wide.",),
        ),
    ],
    title="HiViT",
    how=How.MORE_MLPS,
    year=2022,
    paper="2205.14949",
    complexity="O(N^2)",
    changes="Two stages of MLP blocks without attention, on patches of 4 and 8 px, come before ViT's blocks on patches "
    "of 16 px; positions are absolute and relative.",
    image_sizes=ImageSizes(multiple_of=16, at_least=16),
    notes=(
        "The mean of the tokens is normalized and classified, as in the authors' code; there is no class token.",
        "Relative position biases start with a standard deviation of 0.02, as in the authors' code; the benchmark's "
        "implementation starts them at 0.",
    ),
    miniature={"early_blocks": 1},
)
def hivit(size: Size, early_blocks: NotNegative, **options: Unpack[Options]) -> nn.Module:
    return HiViT(size, early_blocks=early_blocks, **options)
