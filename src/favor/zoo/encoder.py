"""The ViT shell that the architectures plug into: embed -> [mixer, mlp, reducer] x depth -> pool -> head.

Paper: Dosovitskiy et al., "An Image is Worth 16x16 Words", 2020, arXiv:2010.11929, in the form of the benchmark
"Which Transformer to Favor": class token without position, bias on queries, keys and values, LayerScale 1e-4.
"""

from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any, Protocol, TypedDict

import torch
from torch import Tensor, nn

from favor.errors import RequestError
from favor.zoo.attention import Attention
from favor.zoo.layers import DropPath, LayerNorm, LayerScale, Mlp, PatchEmbed, check_image_size, is_grid
from favor.zoo.pools import ClassTokenPool
from favor.zoo.positions import Learned
from favor.zoo.settings import Positive, check_setting
from favor.zoo.slots import (
    Attends,
    EmbedFactory,
    Flow,
    InitializesItself,
    MixerFactory,
    MlpFactory,
    NormFactory,
    Place,
    Pool,
    Positions,
    Reducer,
    ReducerFactory,
    Tokens,
)
from favor.zoo.training import tokens_and_places


@dataclass(frozen=True)
class Size:
    """Width, depth and heads of an encoder."""

    dim: int
    depth: int
    heads: int
    mlp_ratio: float = 4.0

    def __post_init__(self) -> None:
        for name in ("dim", "depth", "heads"):
            check_setting(f"{name} of a size", getattr(self, name), Positive)
        check_setting("mlp_ratio of a size", self.mlp_ratio, float)
        if self.hidden < 1:
            raise RequestError(f"an MLP of {self.mlp_ratio} times {self.dim} channels has no hidden unit")

    @property
    def hidden(self) -> int:
        return int(self.dim * self.mlp_ratio)


SIZES = {
    "ti": Size(192, 12, 3),
    "s": Size(384, 12, 6),
    "b": Size(768, 12, 12),
    "l": Size(1024, 24, 16),
}
"""The sizes of the papers. `favor` writes them as a part of a model's name: `vit_s16`."""


class Options(TypedDict):
    """What every builder of the registry is called with."""

    num_classes: int
    img_size: tuple[int, int]
    in_chans: int
    drop_path: float


class Block(nn.Module):
    """A mixer and an MLP, each on a residual branch; a reducer before them or between them."""

    mixer: Any  # with a method `attend` where a reducer needs it, which is checked at construction

    def __init__(
        self,
        size: Size,
        tokens: Tokens,
        *,
        mixer: MixerFactory,
        mlp: MlpFactory,
        norm: NormFactory,
        layer_scale: float | None,
        drop_path: float,
        reducer: Reducer | None = None,
    ) -> None:
        super().__init__()

        def scale() -> nn.Module:
            return nn.Identity() if layer_scale is None else LayerScale(size.dim, layer_scale)

        self.reducer = reducer
        self.norm1 = norm(size.dim)
        self.mixer = mixer(size.dim, size.heads, tokens)
        self.ls1 = scale()
        self.norm2 = norm(size.dim)
        self.mlp = mlp(size.dim, size.hidden)
        self.ls2 = scale()
        self.drop_path = DropPath(drop_path)
        if reducer is not None:
            _check_reducible(self.mixer, reducer)

    def forward(self, x: Tensor, flow: Flow) -> Tensor:
        if self.reducer is not None:
            return self._forward_reduced(x, flow, self.reducer)
        x = x + self.drop_path(self.ls1(self.mix(self.norm1(x), flow)))
        return x + self.drop_path(self.ls2(self.mlp(self.norm2(x))))

    def _forward_reduced(self, x: Tensor, flow: Flow, reducer: Reducer) -> Tensor:
        if reducer.place is Place.BEFORE:
            x = reducer.before(x, flow)
            x = x + self.drop_path(self.ls1(self.mix(self.norm1(x), flow)))
        else:
            y, seen = self.mixer.attend(self.norm1(x), flow, reducer.wants_class_row)
            x = reducer.between(x + self.drop_path(self.ls1(y)), seen, flow)
        return x + self.drop_path(self.ls2(self.mlp(self.norm2(x))))

    def mix(self, x: Tensor, flow: Flow) -> Tensor:
        """The mixer on normalized tokens; attention heeds what travels beside them."""
        if flow.sizes is None and flow.alive is None:
            return self.mixer(x)
        if not isinstance(self.mixer, Attends):
            raise RequestError(f"{type(self.mixer).__name__} cannot heed token sizes or padding: it has no `attend`")
        return self.mixer.attend(x, flow, class_row=False)[0]


def _check_reducible(mixer: nn.Module, reducer: Reducer) -> None:
    """A mixer that cannot take a shorter sequence, or cannot say what it saw, gets no reducer."""
    if getattr(mixer, "fixed_tokens", False) or getattr(mixer, "rotary", None) is not None:
        what = (
            f"{type(mixer).__name__} with rotary positions" if getattr(mixer, "rotary", None) else type(mixer).__name__
        )
        raise RequestError(
            f"{what} is tied to a fixed number of tokens and cannot be combined with "
            f"{type(reducer).__name__}, which changes it; use a mixer without `fixed_tokens`"
        )
    if reducer.place is Place.BETWEEN and not isinstance(mixer, Attends):
        raise RequestError(
            f"{type(reducer).__name__} wants the keys of the attention, which {type(mixer).__name__} does not tell; "
            "use a mixer with an `attend` method, such as Attention"
        )


class BlockFactory(Protocol):
    """Builds a block as the class Block does; another class stands there where a paper changes more than its parts."""

    def __call__(
        self,
        size: Size,
        tokens: Tokens,
        /,
        *,
        mixer: MixerFactory,
        mlp: MlpFactory,
        norm: NormFactory,
        layer_scale: float | None,
        drop_path: float,
        reducer: Reducer | None,
    ) -> nn.Module: ...


def no_reducer(index: int, dim: int, tokens: Tokens) -> None:
    """The sequence stays as long as it is."""


class Encoder(nn.Module):
    """A vision transformer whose parts are chosen by the architecture."""

    def __init__(
        self,
        size: Size,
        *,
        num_classes: int,
        img_size: tuple[int, int],
        in_chans: int = 3,
        drop_path: float = 0.0,
        embed: EmbedFactory = PatchEmbed,
        positions: Positions = Learned(),  # noqa: B008 - frozen
        mixer: MixerFactory = Attention,
        mlp: MlpFactory = Mlp,
        norm: NormFactory = LayerNorm,
        block: BlockFactory = Block,
        reducer: ReducerFactory = no_reducer,
        pool: Pool = ClassTokenPool(),  # noqa: B008 - frozen
        layer_scale: float | None = 1e-4,
    ) -> None:
        super().__init__()
        self.img_size = img_size
        self.patch_embed = embed(in_chans, size.dim, img_size)
        self.tokens = Tokens(*self.patch_embed.grid, class_token=pool.wants_class_token)
        self.class_token = nn.Parameter(torch.zeros(1, 1, size.dim)) if pool.wants_class_token else None
        self.positions = positions.at_entrance(size.dim, self.tokens)
        self.blocks = nn.ModuleList(
            block(
                size,
                self.tokens,
                mixer=positions.in_mixer(mixer),
                mlp=mlp,
                norm=norm,
                layer_scale=layer_scale,
                drop_path=drop_path * index / max(size.depth - 1, 1),
                reducer=reducer(index, size.dim, self.tokens),
            )
            for index in range(size.depth)
        )
        self.norm = norm(size.dim)
        self.pool = pool
        self.head = nn.Linear(size.dim, num_classes)
        self._init_weights()

    def forward(self, images: Tensor) -> Tensor:
        return self.head(self.features(images))

    def features(self, images: Tensor) -> Tensor:
        """What the head sees: [B, dim]."""
        x, flow = self.embed(images), Flow()
        for block in self.blocks:
            x = block(x, flow)
        return self.pooled(x, flow)

    def embed(self, images: Tensor) -> Tensor:
        """The tokens that enter the first block: [B, N, dim]."""
        check_image_size(images, self.img_size)
        x = self.patch_embed(images)
        if self.class_token is not None:
            x = torch.cat([self.class_token.expand(x.shape[0], -1, -1), x], dim=1)
        return self.positions(x)

    def pooled(self, x: Tensor, flow: Flow) -> Tensor:
        """The tokens as one vector."""
        return self.pool(x, self.norm, flow)

    def no_weight_decay(self) -> set[str]:
        """The parameters that an optimizer is not to pull towards zero: where tokens are, and the class token."""
        return tokens_and_places(self) | {name for name, _ in self.named_parameters() if name.startswith("positions.")}

    def own_names(self, state: Mapping[str, Tensor]) -> Mapping[str, Tensor]:
        """The weights of timm's VisionTransformer in this model's form, for the same outputs.

        A position of the class token is added to the token where it has none here, and a missing LayerScale is one.
        """
        shares_blocks = len(set(self.blocks)) < len(self.blocks)
        if not {"cls_token", "pos_embed"} <= state.keys() or self.class_token is None or shares_blocks:
            return state
        own = {name.replace(".attn.", ".mixer."): weight for name, weight in state.items()}
        token, positions = own.pop("cls_token"), own.pop("pos_embed")
        if not token.ndim == positions.ndim == 3 or token.shape[::2] != positions.shape[::2]:
            raise RequestError("the weights have a class token and positions of different shapes; the file is broken")
        if not is_grid(positions.shape[1], like=self.tokens.grid):
            first, positions = positions.split([1, positions.shape[1] - 1], dim=1)
        else:
            first = torch.zeros_like(token)
        if getattr(self.positions, "class_position", False):
            positions = torch.cat([first, positions], dim=1)
        else:
            token = token + first
        own |= {"class_token": token, "positions.weight": positions}
        if not any(name.endswith(".gamma") for name in own):
            scales = {name: part for name, part in self.named_modules() if isinstance(part, LayerScale)}
            own |= {f"{name}.gamma": torch.ones_like(part.gamma) for name, part in scales.items()}
        return own

    def _init_weights(self) -> None:
        """ViT's initial values; a part that wants others has an `init_weights` method, which is called after that."""
        for module in self.modules():
            if isinstance(module, nn.Linear):
                nn.init.trunc_normal_(module.weight, std=0.02)
                if module.bias is not None:
                    nn.init.zeros_(module.bias)
        if self.class_token is not None:
            nn.init.normal_(self.class_token, std=1e-6)
        for module in self.modules():
            if isinstance(module, InitializesItself):
                module.init_weights()
