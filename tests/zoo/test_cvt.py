"""CvT's convolutional projections with identity kernels give plain attention, over all keys or every second one."""

import pytest
import torch

import favor
from drop_path import rates
from equality import images, largest_difference, mutated, with_order_one_weights
from favor.zoo.attention import Attention
from favor.zoo.mixing.hybrid.cvt import ConvAttention, ConvProjection
from favor.zoo.registry import create_miniature
from favor.zoo.slots import Tokens

DIM, HEADS, GRID = 24, 3, (4, 6)


def make_identity(projection: ConvProjection) -> None:
    """A kernel that passes its centre, and a norm that, in eval, passes everything."""
    with torch.no_grad():
        projection.conv.weight.zero_()
        projection.conv.weight[:, 0, 1, 1] = 1.0
        projection.norm.weight.fill_(1.0)
        projection.norm.bias.zero_()
        projection.norm.running_var.fill_(1.0 - projection.norm.eps)


def identity_attention(key_stride: int) -> ConvAttention:
    attention = with_order_one_weights(ConvAttention(DIM, HEADS, key_stride)).double().eval()
    for projection in (attention.query, attention.key, attention.value):
        make_identity(projection)
    return attention


def plain_attention(like: ConvAttention) -> Attention:
    """Softmax attention with the same linear layers. It divides by the root of a head's width, CvT by the whole's."""
    plain = Attention(DIM, HEADS, Tokens(*GRID, class_token=True)).double()
    query_scale = HEADS**-0.5
    with torch.no_grad():
        weights = [like.query.proj.weight * query_scale, like.key.proj.weight, like.value.proj.weight]
        biases = [like.query.proj.bias * query_scale, like.key.proj.bias, like.value.proj.bias]
        plain.qkv.weight.copy_(torch.cat(weights))
        plain.qkv.bias.copy_(torch.cat(biases))
    plain.proj.load_state_dict(like.proj.state_dict())
    return plain


@pytest.mark.parametrize("class_tokens", [0, 1])
def test_with_identity_kernels_it_is_softmax_attention(class_tokens: int) -> None:
    conv = identity_attention(key_stride=1)
    plain = plain_attention(conv)
    x = images(2, class_tokens + 24, DIM, dtype=torch.float64)
    assert largest_difference(conv(x, GRID), plain(x)) < 1e-12
    with mutated(conv.key):
        assert largest_difference(conv(x, GRID), plain(x)) > 1e-3
    with torch.no_grad():
        conv.value.conv.weight[:, 0, 0, 1] = 0.1
    assert largest_difference(conv(x, GRID), plain(x)) > 1e-3


def test_with_identity_kernels_and_a_stride_the_keys_are_every_second_token_a_side() -> None:
    conv = identity_attention(key_stride=2)
    plain = plain_attention(conv)
    x = images(2, 25, DIM, dtype=torch.float64)
    kept = torch.cat([x[:, :1], x[:, 1:].unflatten(1, GRID)[:, ::2, ::2].flatten(1, 2)], dim=1)
    q, (_, k, v) = plain.split(x)[0], plain.split(kept)
    weights = (q @ k.transpose(-2, -1) * plain.scale).softmax(dim=-1)
    expected = plain.proj(plain.join(weights @ v))
    assert largest_difference(conv(x, GRID), expected) < 1e-12
    with mutated(conv.value):
        assert largest_difference(conv(x, GRID), expected) > 1e-3


def test_every_stage_has_its_number_of_tokens_and_only_the_last_a_class_token() -> None:
    model = create_miniature("cvt_13", img_size=224).eval()
    seen = []
    for stage in model.stages:
        stage.register_forward_hook(lambda module, inputs, output: seen.append(output[0].shape[1]))
    model(images(1, 3, 224, 224))
    assert seen == [56 * 56, 28 * 28, 14 * 14 + 1]


def test_the_class_token_is_read_and_the_image_reaches_it() -> None:
    model = with_order_one_weights(create_miniature("cvt_13")).eval()
    x = images(2, 3, 64, 64)
    logits = model(x)
    assert largest_difference(model(x.flip(-1)), logits) > 1e-3
    with torch.no_grad():
        model.stages[2].class_token[..., 0] += 1.0
    assert largest_difference(model(x), logits) > 1e-3


# parameters at 1000 classes and 224 px: reference/models.csv, and 20 M and 32 M in the paper's Table 2
@pytest.mark.parametrize(("name", "parameters"), [("cvt_13", 19_997_480), ("cvt_21", 31_622_696)])
def test_has_the_parameters_of_the_benchmark(name: str, parameters: int) -> None:
    with torch.device("meta"):
        model = favor.create_model(name)
    assert sum(parameter.numel() for parameter in model.parameters()) == parameters


def test_drop_path_grows_from_0_to_its_rate_within_every_stage_and_the_card_says_that_the_authors_differ() -> None:
    model = create_miniature("cvt_13", depths=(1, 2, 3), drop_path=0.2)
    assert rates(model) == pytest.approx([0.0, 0.0, 0.2, 0.0, 0.1, 0.2])
    assert "the last stage only (0, 0, 0.1)" in " ".join(favor.card("cvt_13").notes)
