"""Inference forms: the same function with fewer operators, for architectures that are trained in another form."""

import copy
from typing import Protocol, runtime_checkable

from torch import nn


@runtime_checkable
class Fuses(Protocol):
    """A part that has an inference form. `fuse` returns it, in eval mode; it may be another module."""

    def fuse(self) -> nn.Module: ...


def fuse(model: nn.Module) -> nn.Module:
    """A copy of the model in its inference form; a model without one is copied as it is."""
    fused = copy.deepcopy(model).eval()
    if isinstance(fused, Fuses):
        return fused.fuse()
    _fuse_children(fused)
    return fused


def has_inference_form(model: nn.Module) -> bool:
    """Whether `fuse` would change the model."""
    return any(isinstance(module, Fuses) for module in model.modules())


def _fuse_children(parent: nn.Module) -> None:
    for name, child in parent.named_children():
        if isinstance(child, Fuses):
            setattr(parent, name, child.fuse())
        else:
            _fuse_children(child)
