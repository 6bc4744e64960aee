"""How tokens learn where they are: what fits the encoder's slot for positions."""

from collections.abc import Callable
from dataclasses import dataclass
from functools import partial

from torch import nn

from favor.errors import RequestError
from favor.zoo.attention import HeadMixer
from favor.zoo.layers import LearnedPositions
from favor.zoo.slots import Mixer, MixerFactory, PerToken, Tokens


@dataclass(frozen=True)
class Learned:
    """A learned vector is added to every patch, and to the class token where `class_token` is set."""

    class_token: bool = False

    def at_entrance(self, dim: int, tokens: Tokens) -> PerToken:
        return LearnedPositions(dim, tokens, self.class_token)

    def in_mixer(self, mixer: MixerFactory) -> MixerFactory:
        return mixer


@dataclass(frozen=True)
class NoPositions:
    """Tokens are told nothing."""

    def at_entrance(self, dim: int, tokens: Tokens) -> PerToken:
        return nn.Identity()

    def in_mixer(self, mixer: MixerFactory) -> MixerFactory:
        return mixer


@dataclass(frozen=True)
class RotaryPositions(NoPositions):
    """Mixers turn their queries and keys by angles proportional to the place in the sequence."""

    def in_mixer(self, mixer: MixerFactory) -> MixerFactory:
        kind = mixer.func if isinstance(mixer, partial) else mixer
        if not (isinstance(kind, type) and issubclass(kind, HeadMixer)):
            name = getattr(kind, "__name__", repr(kind))
            raise RequestError(f"{name} has no queries and keys to turn: rotary positions want a HeadMixer")
        turning: Callable[..., Mixer] = mixer  # HeadMixers know the word, others were refused above
        return partial(turning, rotary=True)
