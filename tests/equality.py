"""What equality tests need: weights of order one, and a mutation that must be noticed.

At initialization an equality proves little: LayerScale at 1e-4 hides the attention, biases are zero, norms are one.
"""

from collections.abc import Iterator
from contextlib import contextmanager

import torch
from torch import Tensor, nn

TOKEN_VECTORS = ("class_token", "positions", "cls_token", "pos_embed")
"""Parameters that are added to tokens rather than multiplied with them, under our names and timm's."""
MUTATION = 1.03
"""A wrong factor on the mixing that every equality test must notice."""


def with_order_one_weights(model: nn.Module, seed: int = 0) -> nn.Module:
    """Draw all parameters such that every part matters: matrices keep the variance, the rest is of order one."""
    generator = torch.Generator().manual_seed(seed)
    with torch.no_grad():
        for name, parameter in model.named_parameters():
            drawn = torch.randn(parameter.shape, generator=generator, dtype=torch.float64)
            if parameter.ndim >= 2 and not any(vector in name for vector in TOKEN_VECTORS):
                drawn *= 1.4 * parameter[0].numel() ** -0.5
            elif parameter.ndim == 1 and not name.endswith("bias"):
                drawn = 1.0 + 0.3 * drawn  # scales of norms and LayerScale
            parameter.copy_(drawn.to(parameter.dtype))
    return model


def images(*shape: int, seed: int = 1, dtype: torch.dtype = torch.float32) -> Tensor:
    """A fixed random input."""
    return torch.randn(*shape, generator=torch.Generator().manual_seed(seed), dtype=torch.float64).to(dtype)


def largest_difference(a: Tensor, b: Tensor) -> float:
    """The largest absolute difference, which is infinite where either is not finite."""
    if not (a.isfinite().all() and b.isfinite().all()):
        return float("inf")
    return float((a - b).detach().abs().max())


@contextmanager
def mutated(part: nn.Module, factor: float = MUTATION) -> Iterator[None]:
    """Scale what a part puts out, for as long as the context lasts."""

    def scale(module: nn.Module, inputs: object, output: Tensor) -> Tensor:
        return output * factor

    handle = part.register_forward_hook(scale)
    try:
        yield
    finally:
        handle.remove()
