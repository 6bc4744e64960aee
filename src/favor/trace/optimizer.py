"""One factory for optimizers; norms, biases and what a model exempts are not decayed."""

from collections.abc import Iterable
from typing import Any

import torch
from torch import nn
from torch.optim import Optimizer

from favor.errors import RequestError, unknown_name
from favor.trace.conditions import OPTIMIZERS


def create_optimizer(
    parameters: Iterable[nn.Parameter] | list[dict[str, Any]],
    name: str,
    *,
    lr: float,
    weight_decay: float = 0.0,
    betas: tuple[float, float] = (0.9, 0.999),
    eps: float = 1e-8,
    momentum: float = 0.9,
    max_grad_norm: float | None = None,
) -> Optimizer:
    """An optimizer over parameters, or over groups of them such as `parameter_groups` makes.

    `adam` and `sgd` add the decay to the gradient (L2), `adamw` takes it off the weights, `lamb` is timm's.
    `max_grad_norm` is for LAMB alone.
    """
    if name not in OPTIMIZERS:
        raise unknown_name("optimizer", name, OPTIMIZERS, f"known: {', '.join(OPTIMIZERS)}")
    match name:
        case "adam":
            return torch.optim.Adam(parameters, lr=lr, betas=betas, eps=eps, weight_decay=weight_decay)
        case "adamw":
            return torch.optim.AdamW(parameters, lr=lr, betas=betas, eps=eps, weight_decay=weight_decay)
        case "sgd":
            return torch.optim.SGD(parameters, lr=lr, momentum=momentum, weight_decay=weight_decay)
    from timm.optim import Lamb

    # timm's LAMB clips gradients by itself unless told otherwise; in a training the loop clips, as the recipe says.
    return Lamb(parameters, lr=lr, betas=betas, eps=eps, weight_decay=weight_decay, max_grad_norm=max_grad_norm)


def parameter_groups(model: nn.Module, weight_decay: float) -> list[dict[str, Any]]:
    """Two groups: matrices and kernels are decayed; vectors, biases and `no_weight_decay()` of the model are not."""
    exempt = set(_exempt_names(model))
    decayed: list[nn.Parameter] = []
    kept: list[nn.Parameter] = []
    for name, parameter in model.named_parameters():
        if parameter.requires_grad:
            vector = parameter.ndim <= 1 or name.endswith(".bias")
            (kept if vector or name in exempt else decayed).append(parameter)
    if not decayed and not kept:
        raise RequestError("no parameter of the model wants a gradient, so there is nothing to train")
    return [
        {"params": decayed, "weight_decay": weight_decay},
        {"params": kept, "weight_decay": 0.0},
    ]


def _exempt_names(model: nn.Module) -> Iterable[str]:
    """timm's networks say which parameters are not to be decayed, such as positions and tokens."""
    told = getattr(model, "no_weight_decay", None)
    return told() if callable(told) else ()
