"""What plugs into the encoder shell: the small protocols between the shell and its parts."""

from collections.abc import Callable
from dataclasses import dataclass, field
from enum import Enum
from typing import ClassVar, NamedTuple, Protocol, runtime_checkable

from torch import Tensor, nn


@dataclass(frozen=True)
class Tokens:
    """The tokens that a mixer works on: a grid of patches in raster order, a class token in front of it or not.

    >>> Tokens(14, 14, class_token=True).count
    197
    """

    height: int
    width: int
    class_token: bool

    @property
    def patches(self) -> int:
        return self.height * self.width

    @property
    def count(self) -> int:
        return self.patches + self.class_token

    @property
    def grid(self) -> tuple[int, int]:
        return self.height, self.width


@dataclass
class Flow:
    """What travels beside the tokens through one forward pass: reducers write it, attention reads it."""

    sizes: Tensor | None = None
    """[B, N] how many patches each token stands for; attention weighs a token by it."""
    alive: Tensor | None = None
    """[B, N] True for a token, False for padding in a batch whose images kept different numbers of tokens."""
    notes: dict[str, Tensor] = field(default_factory=dict)
    """What the reducers of one architecture tell each other from block to block."""

    def weights(self) -> Tensor | None:
        """[B, N] the share of each token in a mean over the image; None where all count the same."""
        if self.sizes is None and self.alive is None:
            return None
        if self.sizes is None:
            assert self.alive is not None  # noqa: S101 - one of the two is there
            counts = self.alive.float()
        else:
            counts = self.sizes if self.alive is None else self.sizes * self.alive
        return counts / counts.sum(dim=1, keepdim=True)


class Seen(NamedTuple):
    """What an attention saw of its tokens, for the reducer that comes after it."""

    keys: Tensor
    """[B, heads, N, head_dim]"""
    class_row: Tensor | None
    """[B, heads, N] the class token's attention weights, where the reducer asked for them."""


class Embedding(Protocol):
    """Turns images into tokens: [B, C, H, W] -> [B, N, dim], in raster order of its `grid` (height, width)."""

    grid: tuple[int, int]

    def __call__(self, images: Tensor, /) -> Tensor: ...


class Mixer(Protocol):
    """Mixes tokens: [B, N, dim] -> [B, N, dim].

    A mixer whose weights or pattern depend on the number of tokens sets `fixed_tokens = True` and gets no reducer.
    """

    def __call__(self, x: Tensor, /) -> Tensor: ...


@runtime_checkable
class Attends(Protocol):
    """A mixer that can also say what it saw, and heed what travels beside the tokens."""

    def attend(self, x: Tensor, flow: Flow, class_row: bool) -> tuple[Tensor, Seen]: ...


class PerToken(Protocol):
    """Works on each token alone, as norms and MLPs do: [B, N, dim] -> [B, N, dim]."""

    def __call__(self, x: Tensor, /) -> Tensor: ...


@runtime_checkable
class InitializesItself(Protocol):
    """A part whose initial weights are not ViT's."""

    def init_weights(self) -> None: ...


class Place(Enum):
    """Where in its block a reducer acts."""

    BEFORE = "before the block"
    BETWEEN = "between mixer and MLP"


class Reducer(nn.Module):
    """Shortens the sequence. Overrides `before` or `between`, as its `place` says."""

    place: ClassVar[Place]
    wants_class_row: ClassVar[bool] = False

    def before(self, x: Tensor, flow: Flow) -> Tensor:
        """The tokens that enter the block."""
        raise NotImplementedError

    def between(self, x: Tensor, seen: Seen, flow: Flow) -> Tensor:
        """The tokens that enter the MLP."""
        raise NotImplementedError


MixerFactory = Callable[[int, int, Tokens], Mixer]
"""(dim, heads, tokens) -> mixer"""
MlpFactory = Callable[[int, int], PerToken]
"""(dim, hidden) -> MLP"""
NormFactory = Callable[[int], PerToken]
"""(dim) -> norm"""
ReducerFactory = Callable[[int, int, Tokens], Reducer | None]
"""(block index, dim, tokens at the entrance of the encoder) -> reducer of that block, or None"""
EmbedFactory = Callable[[int, int, tuple[int, int]], Embedding]
"""(in_chans, dim, image size) -> embedding"""


class Positions(Protocol):
    """How tokens learn where they are: where they enter the encoder, inside the mixers, or not at all."""

    def at_entrance(self, dim: int, tokens: Tokens) -> PerToken:
        """What the tokens pass through before the first block."""
        ...

    def in_mixer(self, mixer: MixerFactory) -> MixerFactory:
        """The mixer as it heeds positions."""
        ...


class Pool(Protocol):
    """Makes one vector of the last block's tokens: [B, N, dim] -> [B, dim]."""

    @property
    def wants_class_token(self) -> bool:
        """Whether the encoder puts a class token in front of the patches."""
        ...

    def __call__(self, x: Tensor, norm: PerToken, flow: Flow) -> Tensor: ...
