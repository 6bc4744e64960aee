"""Why a loss is not finite: where it first happened, and what to try."""

from dataclasses import dataclass
from typing import Any

import torch
from torch import Tensor, nn

from favor.data.augment import Batch
from favor.machine.precision import Precision


@dataclass(frozen=True)
class Diagnosis:
    """Where numbers stopped being finite."""

    parameter: str | None
    """The first parameter that already has a non-finite value."""
    layer: str | None
    """The first module that outputs one although its inputs are finite."""
    gradient: str | None
    """The first parameter whose gradient has one."""
    images: bool
    """Whether the images themselves have a non-finite value."""

    def __str__(self) -> str:
        if self.images:
            return "the images themselves are not finite: check mean and std of the recipe"
        if self.parameter:
            return f"the weights are already not finite, first in {self.parameter}"
        if self.layer:
            return f"the first module whose output is not finite is {self.layer}"
        if self.gradient:
            return f"the first gradient that is not finite belongs to {self.gradient}"
        return "all outputs and gradients are finite: the sum of the losses overflowed"


def diagnose(model: nn.Module, batch: Batch, precision: Precision) -> Diagnosis:
    """Run a batch again and check the output of every module."""
    device = next(model.parameters()).device
    layer = None
    if _is_finite(batch.images):
        with torch.no_grad(), precision.context(device):
            layer = _first_bad_layer(model, batch.images)
    named = list(model.named_parameters())
    return Diagnosis(
        parameter=next((name for name, value in named if not _is_finite(value)), None),
        layer=layer,
        gradient=next((name for name, value in named if value.grad is not None and not _is_finite(value.grad)), None),
        images=not _is_finite(batch.images),
    )


def _first_bad_layer(model: nn.Module, images: Tensor) -> str | None:
    """The innermost module, in forward order, that first outputs a non-finite value."""
    layers: list[str] = []

    def look(name: str, part: nn.Module) -> Any:
        def hook(_module: nn.Module, _inputs: object, output: object) -> None:
            outputs = output if isinstance(output, tuple | list) else (output,)
            if not layers and any(isinstance(value, Tensor) and not _is_finite(value) for value in outputs):
                layers.append(f"{name} ({type(part).__name__})")

        return part.register_forward_hook(hook)

    hooks = [look(name or "the model", part) for name, part in model.named_modules()]
    try:
        model(images)
    finally:
        for hook in hooks:
            hook.remove()
    return layers[0] if layers else None


def _is_finite(values: Tensor) -> bool:
    return bool(torch.isfinite(values).all())
