"""Inference forms: the same function with fewer operators, for architectures that are trained in another form."""

import copy
from typing import Protocol, runtime_checkable

from torch import nn

from favor.zoo.timm_models import fuse_timm


@runtime_checkable
class Fuses(Protocol):
    """A part that has an inference form. `fuse` returns it; it may be another module."""

    def fuse(self) -> nn.Module: ...


def fuse(model: nn.Module) -> nn.Module:
    """A copy of the model in its inference form and in eval mode; a model without one is copied as it is."""
    fused = copy.deepcopy(model).eval()
    return _fused(fused)


def has_inference_form(model: nn.Module) -> bool:
    """Whether `fuse` changes the operators of the model."""
    kinds = [type(module) for module in model.modules()]
    fused = fuse(model)
    return kinds != [type(module) for module in fused.modules()]


def _fused(module: nn.Module) -> nn.Module:
    if isinstance(module, Fuses):
        return module.fuse()
    if type(module).__module__.startswith("timm."):
        form = fuse_timm(module)
        if form is not None:
            return form
    for name, child in module.named_children():
        setattr(module, name, _fused(child))
    return module
