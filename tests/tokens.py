"""How long the sequence is, block by block."""

import torch
from torch import Tensor, nn


def token_counts(model: nn.Module, x: Tensor) -> list[int]:
    """The number of tokens that the MLP of each block sees, in the mode that the model is in."""
    counts: list[int] = []
    handles = [
        block.mlp.register_forward_hook(lambda module, inputs, output: counts.append(output.shape[1]))
        for block in model.blocks
    ]
    with torch.no_grad():
        model(x)
    for handle in handles:
        handle.remove()
    return counts
