"""HiViT: its early stages are MLPs that see one patch each; without relative positions its blocks are ViT's."""

import pytest
import torch
from torch import nn

import favor
from equality import images, largest_difference, mutated, with_order_one_weights
from favor.zoo.attention import Attention
from favor.zoo.encoder import Size
from favor.zoo.layers import DropPath
from favor.zoo.mlp.hivit import BiasedAttention, MlpStages
from favor.zoo.slots import Tokens

SMALL = Size(48, 3, 3)
TOKENS = Tokens(3, 4, class_token=False)


def test_a_patch_s_token_depends_on_its_pixels_only_before_the_blocks() -> None:
    stages = with_order_one_weights(MlpStages(3, 48, (48, 64))).double()
    x = images(1, 3, 48, 64, dtype=torch.float64)
    changed = x.clone()
    changed[:, :, 16:32, 32:48] += 1.0  # the patch in row 1, column 2
    difference = (stages(changed) - stages(x)).abs().amax(dim=(0, 2))
    assert difference[1 * 4 + 2] > 1e-3
    assert torch.equal(difference.nonzero().flatten(), torch.tensor([6]))


def test_the_early_stages_are_mlps_on_patches_of_four_and_eight_pixels() -> None:
    stages = with_order_one_weights(MlpStages(3, 48, (32, 32), blocks=2)).double()
    assert [type(layer).__name__ for layer in stages.layers] == [
        "ConvEmbedding",
        *["MlpBlock", "MlpBlock", "PatchMerging"] * 2,
    ]
    x = images(1, 3, 32, 32, dtype=torch.float64)
    patches = x.unfold(2, 4, 4).unfold(3, 4, 4).permute(0, 2, 3, 1, 4, 5).flatten(3)
    embed = stages.layers[0]
    y = embed.norm(patches @ embed.proj.weight.flatten(1).T + embed.proj.bias)
    for layer in stages.layers[1:]:
        if hasattr(layer, "mlp"):
            y = y + layer.mlp.fc2(nn.functional.gelu(layer.mlp.fc1(layer.norm(y))))
        else:
            corners = [y[:, 0::2, 0::2], y[:, 1::2, 0::2], y[:, 0::2, 1::2], y[:, 1::2, 1::2]]
            y = layer.reduction(layer.norm(torch.cat(corners, dim=-1)))
    expected = y.flatten(1, 2)
    assert largest_difference(stages(x), expected) < 1e-12
    with mutated(stages.layers[1].mlp):
        assert largest_difference(stages(x), expected) > 1e-3


def test_without_relative_positions_it_is_softmax_attention() -> None:
    softmax = with_order_one_weights(Attention(24, 3, TOKENS)).double()
    biased = BiasedAttention(24, 3, TOKENS).double()
    biased.load_state_dict(softmax.state_dict(), strict=False)
    nn.init.zeros_(biased.bias.table)
    x = images(2, TOKENS.count, 24, dtype=torch.float64)
    assert largest_difference(biased(x), softmax(x)) < 1e-12
    with torch.no_grad():
        biased.bias.table[0] = 1.0
    assert largest_difference(biased(x), softmax(x)) > 1e-3


def test_the_bias_of_two_tokens_is_that_of_their_offset() -> None:
    bias = with_order_one_weights(BiasedAttention(24, 3, TOKENS)).double().bias
    matrix = bias()[0].unflatten(2, TOKENS.grid).unflatten(1, TOKENS.grid)  # [heads, row, column, row, column]
    assert torch.equal(matrix[:, 0, 0, 1, 2], matrix[:, 1, 1, 2, 3])
    assert torch.equal(matrix[:, 2, 3, 0, 1], matrix[:, 2, 2, 0, 0])
    assert not torch.equal(matrix[:, 0, 0, 1, 2], matrix[:, 1, 2, 0, 0])
    assert matrix[0].unique().numel() == 5 * 7


def test_positions_and_biases_are_resampled_to_a_larger_image() -> None:
    source = with_order_one_weights(favor.create_model("hivit_ti16", size=SMALL, img_size=64))
    target = favor.create_model("hivit_ti16", size=SMALL, img_size=(96, 96))
    resampled = favor.load_weights(target, source.state_dict()).resampled
    assert resampled == ("positions.weight", *(f"blocks.{i}.mixer.bias.table" for i in range(3)))
    old, new = source.blocks[0].mixer.bias, target.blocks[0].mixer.bias
    # the offset zero and the largest offsets keep their places
    assert largest_difference(old.table[24], new.table[60]) < 1e-5
    assert largest_difference(old.table[0], new.table[0]) < 1e-5


def test_drop_path_grows_through_the_early_stages_too() -> None:
    model = favor.create_model("hivit_ti16", size=SMALL, img_size=32, drop_path=0.6)
    rates = [module.rate for module in model.modules() if isinstance(module, DropPath)]
    assert rates == pytest.approx([0.0, 0.1, 0.2, 0.3, 0.4, 0.5, 0.6])


@pytest.mark.parametrize(
    ("name", "parameters"),
    [
        # at 1000 classes and 224 px: reference/models.csv
        ("hivit_ti16", 4_937_254),
        ("hivit_s16", 37_526_464),  # the paper's HiViT-S of 37.5 M
        ("hivit_t", 19_181_668),  # 19.2 M in the paper
    ],
)
def test_has_the_parameters_of_the_benchmark_or_of_the_paper(name: str, parameters: int) -> None:
    with torch.device("meta"):
        model = favor.create_model(name)
    assert sum(parameter.numel() for parameter in model.parameters()) == parameters
