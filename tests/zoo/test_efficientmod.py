"""EfficientMod's modulation is its formula: the projected product of the tokens' values and their context."""

import pytest
import torch
import torch.nn.functional as F
from torch import Tensor

import favor
from equality import images, largest_difference, mutated, with_order_one_weights
from favor.zoo.mixing.shuffling.efficientmod import AttentionBlock, Modulation, ModulationBlock
from favor.zoo.registry import create_miniature


def formula(modulation: Modulation, x: Tensor) -> Tensor:
    """p(v(x) * (ctx(x), ctx(x), ...)) with the convolution as a sum over its 49 offsets."""
    f, conv, _, g = modulation.context
    _, H, W, _ = x.shape
    padded = F.pad(f(x), (0, 0, 3, 3, 3, 3))
    gathered = conv.bias + sum(
        padded[:, row : row + H, column : column + W] * conv.weight[:, 0, row, column]
        for row in range(7)
        for column in range(7)
    )
    context = g(F.gelu(gathered))
    value = modulation.value(x)
    if modulation.expansion > 1:
        value = F.gelu(value)
    return modulation.proj(value * torch.cat([context] * modulation.expansion, dim=-1))


@pytest.mark.parametrize("expansion", [1, 4])
def test_modulation_is_its_formula(expansion: int) -> None:
    modulation = with_order_one_weights(Modulation(12, expansion)).double()
    x = images(2, 5, 9, 12, dtype=torch.float64)
    expected = formula(modulation, x)
    assert largest_difference(modulation(x), expected) < 1e-12
    with mutated(modulation.context):
        assert largest_difference(modulation(x), expected) > 1e-3


def test_a_token_hears_of_its_surroundings_and_no_further() -> None:
    modulation = with_order_one_weights(Modulation(8, 4)).double()
    x = images(1, 1, 12, 8, dtype=torch.float64)
    changed = x.clone()
    changed[:, :, 0] += 1.0
    difference = (modulation(changed) - modulation(x)).abs().amax(dim=(0, 1, 3))
    assert (difference[:4] > 1e-6).all()
    assert (difference[4:] == 0).all()


def test_blocks_alternate_between_no_expansion_and_the_variant_s_and_attention_comes_last() -> None:
    with torch.device("meta"):
        model = favor.create_model("efficientmod_s")
    blocks = [part for part in model.stages if isinstance(part, ModulationBlock | AttentionBlock)]
    expansions = [part.modulation.expansion if isinstance(part, ModulationBlock) else None for part in blocks]
    assert expansions == [1, 6] * 2 + [1, 6] * 2 + [1, 6] * 4 + [None] * 4 + [1, 6] * 2 + [None] * 4


def test_the_four_stages_have_their_grids() -> None:
    model = create_miniature("efficientmod_s", img_size=224).eval()
    seen = []
    for part in model.stages:
        if not isinstance(part, ModulationBlock | AttentionBlock):
            part.register_forward_hook(lambda module, inputs, output: seen.append(tuple(output.shape[1:3])))
    model(images(1, 3, 224, 224))
    assert seen == [(56, 56), (28, 28), (14, 14), (7, 7)]


@pytest.mark.parametrize(
    ("name", "parameters"),
    [
        # at 1000 classes and 224 px: reference/models.csv
        ("efficientmod_xs", 5_156_392),
        ("efficientmod_s", 8_991_528),
        # the authors' README says 6.6 M and 12.9 M
        ("efficientmod_xs_paper", 6_627_544),
        ("efficientmod_s_paper", 12_897_184),
    ],
)
def test_has_the_parameters_of_the_benchmark_or_of_the_paper(name: str, parameters: int) -> None:
    with torch.device("meta"):
        model = favor.create_model(name)
    assert sum(parameter.numel() for parameter in model.parameters()) == parameters
