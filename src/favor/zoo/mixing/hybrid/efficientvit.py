"""EfficientViT: convolutions, and multi-scale linear attention with a ReLU kernel.

Paper: Cai et al., "EfficientViT: Multi-Scale Linear Attention for High-Resolution Dense Prediction", 2022,
arXiv:2205.14756
"""

from collections.abc import Mapping
from typing import Any, Unpack

from torch import Tensor, nn

from favor.zoo.encoder import Options
from favor.zoo.layers import DropPath
from favor.zoo.registry import ImageSizes, Variant, register
from favor.zoo.taxonomy import How
from favor.zoo.timm_models import build_timm


@register(
    [
        Variant("efficientvit_b1", {"architecture": "efficientvit_b1"}, ("efficient_vit_b1",)),
        Variant("efficientvit_b2", {"architecture": "efficientvit_b2"}, ("efficient_vit_b2", "Efficient ViT-B-2")),
    ],
    title="EfficientViT",
    how=How.HYBRID,
    year=2022,
    paper="2205.14756",
    origin="timm",
    complexity="O(N)",
    changes="Inverted residual convolutions first, then ReLU linear attention over tokens of several scales.",
    notes=(
        "timm's network has no drop path. Here it acts on every residual branch, as in the authors' code, and grows "
        "from 0 with the depth. In the authors' code it grows from 1/n of the rate at the first of n branches, and "
        "from 0 in the course of training.",
    ),
    image_sizes=ImageSizes(multiple_of=32, at_least=64),
    miniature={
        "network": {"widths": (8, 16, 16, 32, 32), "depths": (1, 1, 1, 1, 1), "head_dim": 16, "head_widths": (64, 64)}
    },
)
def efficientvit(
    architecture: str, network: Mapping[str, object] | None = None, **options: Unpack[Options]
) -> nn.Module:
    drop_path, options["drop_path"] = options["drop_path"], 0.0
    model = build_timm(architecture, network, **options)
    _add_drop_path(model, drop_path)
    return model


def _add_drop_path(model: nn.Module, last: float) -> None:
    """Drop whole branches in training, at rates that grow linearly from 0 at the first branch to `last`."""
    if last == 0.0:
        return
    from timm.models.efficientvit_mit import ResidualBlock

    blocks = [block for block in model.modules() if isinstance(block, ResidualBlock) and block.shortcut is not None]
    for index, block in enumerate(blocks):
        branch: Any = block.main
        branch.drop_path = DropPath(last * index / max(len(blocks) - 1, 1))
        branch.register_forward_hook(_drop_branch)  # a wrapper would change the names of timm's weights


def _drop_branch(branch: nn.Module, inputs: object, output: Tensor) -> Tensor:
    return branch.drop_path(output)  # type: ignore[operator]
