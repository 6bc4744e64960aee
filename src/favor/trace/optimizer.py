"""Optimizers: one factory, the groups that are decayed or not, and the trace of an update."""

from collections.abc import Callable, Iterable
from typing import Any

import torch
from torch import nn
from torch.optim import Optimizer

from favor.errors import RequestError, unknown_name
from favor.trace.conditions import OPTIMIZERS
from favor.trace.fake_device import on_meta
from favor.trace.operator_trace import Role, Step, Trace, trace_call

MakeOptimizer = Callable[[list[nn.Parameter]], Optimizer]


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
        raise RequestError("no parameter of the model requires a gradient, so there is nothing to train")
    return [
        {"params": decayed, "weight_decay": weight_decay},
        {"params": kept, "weight_decay": 0.0},
    ]


def _exempt_names(model: nn.Module) -> Iterable[str]:
    """The parameters that a model exempts from weight decay, such as positions and class tokens."""
    names = getattr(model, "no_weight_decay", None)
    return names() if callable(names) else ()


def trace_update(model: nn.Module, make: MakeOptimizer, subject: str, *, many_at_once: bool = True) -> Trace:
    """The trace of an optimizer step: one operator for all tensors, as PyTorch does on a GPU, or one for each."""
    # On meta tensors: optimizers read their step counters on the CPU, which fake tensors cannot.
    weights = [weight for weight in on_meta(model).parameters() if weight.requires_grad]
    stepper = make(weights)
    for group in stepper.param_groups:
        if "foreach" in group:  # timm's LAMB has no such option
            group["foreach"] = many_at_once
    for weight in weights:
        weight.grad = torch.empty_like(weight)
    stepper.step()
    kept = [value for state in stepper.state.values() for value in state.values() if torch.is_tensor(value)]
    gradients = [weight.grad for weight in weights if weight.grad is not None]
    held: dict[Role, list[torch.Tensor]] = {
        "parameter": [*weights],
        "gradient": gradients,
        "buffer": [value for value in kept if value.is_meta],
    }
    return trace_call(stepper.step, held, subject)


def steps_on_device(update: Trace) -> list[Step]:
    """The steps of an update that run on the device; optimizers increment their step counters on the CPU.

    The counters are constants to the trace; weights, gradients and states have roles.
    """
    return [(op, used) for op, used in update.steps if any(update.storages[index].role != "constant" for index in used)]
