"""The optimiser asked for is the one used; norms, biases and what a model exempts are not decayed."""

from collections.abc import Iterable
from typing import Any, Literal, get_args

import torch
from torch import nn
from torch.optim import Optimizer

from favor.errors import RequestError, unknown_name

OptimizerName = Literal["adam", "adamw", "lamb", "sgd"]
OPTIMIZERS: tuple[str, ...] = get_args(OptimizerName)


def create_optimizer(
    model: nn.Module,
    name: str,
    *,
    lr: float,
    weight_decay: float,
    betas: tuple[float, float] = (0.9, 0.999),
    eps: float = 1e-8,
    momentum: float = 0.9,
) -> Optimizer:
    """The optimiser over the parameters that want a gradient, in a decayed group and one that is not.

    `adam` and `sgd` add the decay to the gradient (L2), `adamw` takes it off the weights, `lamb` is timm's.
    """
    if name not in OPTIMIZERS:
        raise unknown_name("optimizer", name, OPTIMIZERS, f"known: {', '.join(OPTIMIZERS)}")
    groups = parameter_groups(model, weight_decay)
    match name:
        case "adam":
            return torch.optim.Adam(groups, lr=lr, betas=betas, eps=eps)
        case "adamw":
            return torch.optim.AdamW(groups, lr=lr, betas=betas, eps=eps)
        case "sgd":
            return torch.optim.SGD(groups, lr=lr, momentum=momentum)
    from timm.optim import Lamb

    # timm's LAMB clips gradients on its own unless told otherwise; here that is the loop's task, as the recipe says.
    return Lamb(groups, lr=lr, betas=betas, eps=eps, max_grad_norm=None)


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
