"""How numbers are multiplied while training: in float32, or mixed with a shorter type."""

from contextlib import AbstractContextManager, nullcontext
from dataclasses import dataclass
from typing import Literal

import torch


@dataclass(frozen=True)
class Arithmetic:
    """Weights are float32; products are in `autocast` where it is set, with a scaled loss where `scaled` is."""

    autocast: torch.dtype | None
    scaled: bool

    def context(self, place: torch.device) -> AbstractContextManager[object]:
        """What a forward pass runs in."""
        return nullcontext() if self.autocast is None else torch.autocast(place.type, self.autocast)

    def scaler(self, place: torch.device) -> torch.amp.GradScaler:
        """What keeps small gradients from vanishing in float16; without `scaled` it changes nothing."""
        return torch.amp.GradScaler(place.type, enabled=self.scaled)


def arithmetic_of(precision: Literal["float32", "amp"], place: torch.device) -> Arithmetic:
    """A recipe's precision on a device: `amp` is bfloat16 where the device has it, else float16 with a scaler."""
    if precision == "float32":
        return Arithmetic(None, scaled=False)
    if place.type == "cpu" or (place.type == "cuda" and torch.cuda.is_bf16_supported()):
        return Arithmetic(torch.bfloat16, scaled=False)
    return Arithmetic(torch.float16, scaled=True)
