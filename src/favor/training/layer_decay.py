"""Lower learning rates for lower layers, which have learned more general features."""

from typing import Any

from torch import nn

from favor.zoo.weights import head_names

LAYERS = 12
"""A network counts as so many layers, in the order in which it defines its parameters."""


def with_layer_decay(model: nn.Module, groups: list[dict[str, Any]], decay: float) -> list[dict[str, Any]]:
    """The optimizer's groups divided by layer; `lr_scale` is the share of the learning rate that a group gets.

    The head gets all of it; every twelfth of the network below gets `decay` times that of the one above.
    """
    heads = tuple(f"{name}." for name in head_names(model))
    below = [name for name, _ in model.named_parameters() if not name.startswith(heads)]
    scales = {name: decay ** (LAYERS - LAYERS * place // len(below)) for place, name in enumerate(below)}
    scale_of = {id(parameter): scales.get(name, 1.0) for name, parameter in model.named_parameters()}
    divided: list[dict[str, Any]] = []
    for group in groups:
        for scale in sorted({scale_of[id(parameter)] for parameter in group["params"]}):
            own = [parameter for parameter in group["params"] if scale_of[id(parameter)] == scale]
            divided.append({**group, "params": own, "lr_scale": scale})
    return divided
