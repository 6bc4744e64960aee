"""ResT's attention: plain attention with one head and no reduction, its formula with more."""

import pytest
import torch
from torch import Tensor, nn

import favor
from equality import images, largest_difference, mutated, with_order_one_weights
from favor.zoo.attention import Attention
from favor.zoo.layers import DropPath
from favor.zoo.mixing.hybrid.rest import EfficientAttention, MixHeads, PixelAttention
from favor.zoo.registry import create_miniature
from favor.zoo.slots import Tokens

DIM, GRID = 24, (4, 6)


def emsa(heads: int, reduction: int) -> EfficientAttention:
    return with_order_one_weights(EfficientAttention(DIM, heads, reduction)).double().eval()


def plain_attention(like: EfficientAttention) -> Attention:
    plain = Attention(DIM, like.heads, Tokens(*GRID, class_token=False)).double()
    with torch.no_grad():
        plain.qkv.weight.copy_(torch.cat([like.q.weight, like.kv.weight]))
        plain.qkv.bias.copy_(torch.cat([like.q.bias, like.kv.bias]))
    plain.proj.load_state_dict(like.proj.state_dict())
    return plain


def grid_tokens() -> Tensor:
    return images(2, *GRID, DIM, dtype=torch.float64)


def test_with_one_head_and_no_reduction_it_is_softmax_attention() -> None:
    ours = emsa(heads=1, reduction=1)
    plain, x = plain_attention(ours), grid_tokens()
    expected = plain(x.flatten(1, 2)).view_as(x)
    assert largest_difference(ours(x), expected) < 1e-12
    with mutated(ours.kv):
        assert largest_difference(ours(x), expected) > 1e-3


def test_with_identity_mixing_the_attention_of_each_head_is_normalized() -> None:
    ours = emsa(heads=3, reduction=1)
    with torch.no_grad():
        ours.mix_heads.weight.copy_(torch.eye(3))
    plain, x = plain_attention(ours), grid_tokens()
    q, k, v = plain.split(x.flatten(1, 2))
    weights = (q @ k.transpose(-2, -1) * plain.scale).softmax(dim=-1)
    mean, variance = weights.mean(dim=(2, 3), keepdim=True), weights.var(dim=(2, 3), keepdim=True, correction=0)
    expected = plain.proj(plain.join((weights - mean) / (variance + 1e-5).sqrt() @ v)).view_as(x)
    assert largest_difference(ours(x), expected) < 1e-12
    with mutated(ours.mix_heads):
        assert largest_difference(ours(x), expected) > 1e-3


def test_heads_are_mixed_as_by_a_convolution_of_one_by_one() -> None:
    ours = with_order_one_weights(MixHeads(3, 3)).double()
    conv = nn.Conv2d(3, 3, 1).double()
    with torch.no_grad():
        conv.weight.copy_(ours.weight[:, :, None, None])
        conv.bias.copy_(ours.bias)
    logits = images(2, 3, 5, 7, dtype=torch.float64)
    assert largest_difference(ours(logits), conv(logits)) < 1e-12
    with mutated(ours):
        assert largest_difference(ours(logits), conv(logits)) > 1e-3


def test_a_constant_on_the_logits_of_a_head_changes_nothing() -> None:
    ours, x = emsa(heads=3, reduction=2), grid_tokens()
    before = ours(x)
    with torch.no_grad():
        ours.mix_heads.bias += 1.0
    assert largest_difference(ours(x), before) < 1e-12
    with torch.no_grad():
        ours.mix_heads.weight[0, 1] += 1.0
    assert largest_difference(ours(x), before) > 1e-3


@pytest.mark.parametrize(("reduction", "keys"), [(1, 24), (2, 6), (4, 2)])
def test_the_reduction_leaves_fewer_keys(reduction: int, keys: int) -> None:
    ours = emsa(heads=3, reduction=reduction)
    seen = []
    ours.mix_heads.register_forward_hook(lambda module, inputs, output: seen.append(output.shape[-1]))
    ours(grid_tokens())
    assert seen == [keys]


def test_pixel_attention_weighs_a_token_between_nothing_and_itself() -> None:
    positions = with_order_one_weights(PixelAttention(DIM)).double()
    x = grid_tokens()
    share = positions(x) / x
    assert ((share > 0) & (share < 1)).all()
    assert share.std() > 0.05


def test_the_four_stages_have_their_grids_at_224_and_at_an_odd_size() -> None:
    for side, expected in ((224, [56, 28, 14, 7]), (75, [19, 10, 5, 3])):
        model = create_miniature("rest_s", img_size=side).eval()
        seen: list[int] = []
        for part in model.stages:
            if isinstance(part, nn.Sequential):
                part.register_forward_hook(lambda module, inputs, output, seen=seen: seen.append(output.shape[1]))
        model(images(1, 3, side, side))
        assert seen == expected


def test_drop_path_grows_linearly_through_all_stages() -> None:
    model = create_miniature("rest_s", depths=(1, 2, 1, 1), drop_path=0.2)
    rates = [module.rate for module in model.modules() if isinstance(module, DropPath)]
    assert rates == pytest.approx([0.0, 0.05, 0.1, 0.15, 0.2])


# parameters at 1000 classes and 224 px: reference/models.csv, and 10.49 M and 13.66 M in the paper's Table 2
@pytest.mark.parametrize(("name", "parameters"), [("rest_s", 13_679_708), ("rest_lite", 10_508_300)])
def test_has_the_parameters_of_the_benchmark(name: str, parameters: int) -> None:
    with torch.device("meta"):
        model = favor.create_model(name)
    assert sum(parameter.numel() for parameter in model.parameters()) == parameters
