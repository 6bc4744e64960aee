"""Inference forms: the same function with fewer operators, for architectures that are trained in another form."""

import copy
from typing import Protocol, runtime_checkable

from torch import nn

from favor.zoo.timm_models import fuse_timm


@runtime_checkable
class Fuses(Protocol):
    """A part that has an inference form. `fuse` returns it, which may be another module, or works in place."""

    def fuse(self) -> nn.Module | None: ...


def fuse(model: nn.Module) -> nn.Module:
    """A copy of the model in its inference form and in eval mode; a model without one is copied as it is."""
    return fuse_in_place(copy.deepcopy(model))


def fuse_in_place(model: nn.Module) -> nn.Module:
    """The inference form of a model that nobody needs any more, in eval mode."""
    return _fused(model.eval())


def inference_form(model: nn.Module) -> tuple[nn.Module, bool]:
    """The fused copy of a model, and whether it differs from the form that is trained."""
    kinds = [type(module) for module in model.modules()]
    fused = fuse(model)
    return fused, kinds != [type(module) for module in fused.modules()]


def _fused(module: nn.Module) -> nn.Module:
    if isinstance(module, Fuses):
        form = module.fuse()
        return module if form is None else form
    if type(module).__module__.startswith("timm."):
        form = fuse_timm(module)
        if form is not None:
            return form
    for name, child in module.named_children():
        setattr(module, name, _fused(child))
    return module
