"""The X-formers' own parts equal known ones in their limits."""

import pytest
import torch
import torch.nn.functional as F
from torch import Tensor, nn

from equality import images, largest_difference, mutated, with_order_one_weights
from favor.errors import RequestError
from favor.zoo.attention import Attention
from favor.zoo.encoder import Size
from favor.zoo.layers import LayerNorm, Mlp, Rotary
from favor.zoo.mixing.kernel.performer import PerformerMixer, window_attention
from favor.zoo.mixing.low_rank.linformer import LinformerMixer
from favor.zoo.mixing.low_rank.nystrom import NystromMixer, segment_means
from favor.zoo.slots import Flow, Tokens
from favor.zoo.vix.ccx import CompactBlock, ConvPoolEmbed, vix_ccx
from favor.zoo.vix.cvx import ChannelNorm, SeparableAttention, SeparableProjection
from favor.zoo.vix.levix import LeViTAttention
from favor.zoo.vix.pix import PoolingLayer
from favor.zoo.vix.plain import TokenMlp

TOKENS = Tokens(4, 4, class_token=False)
DIM, HEADS = 24, 3


def tokens_in(*shape: int) -> Tensor:
    return images(*(shape or (2, TOKENS.count, DIM)), dtype=torch.float64)


def assert_equal_and_a_mutation_is_noticed(part: nn.Module, x: Tensor, expected: Tensor) -> None:
    assert largest_difference(part(x), expected) < 1e-12
    with mutated(part):
        assert largest_difference(part(x), expected) > 1e-3


@pytest.mark.parametrize(
    ("count", "window", "length"), [(17, 4, 4), (20, 5, 5), (17, 17, 17), (5, 256, 5), (1025, 256, 205)]
)
def test_window_attention_is_softmax_attention_with_everything_outside_the_stretch_masked(
    count: int, window: int, length: int
) -> None:
    q, k, v = (images(1, 2, count, 4, seed=seed, dtype=torch.float64) for seed in (1, 2, 3))
    stretch = torch.arange(count) // length
    expected = F.scaled_dot_product_attention(q, k, v, attn_mask=stretch[:, None] == stretch[None, :])
    assert largest_difference(window_attention(q, k, v, window), expected) < 1e-12
    if count > length:
        assert largest_difference(window_attention(q, k, v, window), F.scaled_dot_product_attention(q, k, v)) > 1e-3


def test_a_performer_s_local_heads_are_windows_and_the_others_are_a_performer_s() -> None:
    mixed = PerformerMixer(DIM, HEADS, TOKENS, features="relu", count=16, local_heads=1, window=8).double()
    q, k, v = (images(2, HEADS, 16, 8, seed=seed, dtype=torch.float64) for seed in (1, 2, 3))
    out = mixed.mix(q, k, v)
    assert largest_difference(out[:, :2], mixed.estimate(q, k, v)[:, :2]) < 1e-12
    assert largest_difference(out[:, 2:], window_attention(q[:, 2:], k[:, 2:], v[:, 2:], 8)) < 1e-12
    assert largest_difference(out[:, 2:], mixed.estimate(q, k, v)[:, 2:]) > 1e-3


@pytest.mark.parametrize("wrong", [{"local_heads": HEADS}, {"local_heads": -1}, {"local_heads": 1, "window": 0}])
def test_a_performer_without_a_head_for_all_tokens_is_refused(wrong: dict[str, int]) -> None:
    with pytest.raises(RequestError, match="local"):
        PerformerMixer(DIM, HEADS, TOKENS, **wrong)


def test_nystrom_s_1025_tokens_are_not_padded_which_the_authors_do_with_63_zeros_in_front() -> None:
    mixer = with_order_one_weights(NystromMixer(128, 4, Tokens(32, 32, class_token=True), qkv_bias=False)).double()
    x = images(2, 1025, 128, dtype=torch.float64)
    with torch.no_grad():
        ours, padded = mixer(x), mixer(F.pad(x, (0, 0, 63, 0)))[:, 63:]
    assert float((ours - padded).norm() / ours.norm()) == pytest.approx(0.03, abs=0.005)
    assert segment_means(torch.ones(1025, 1).cumsum(0), 64)[[0, -2, -1], 0].tolist() == [8.5, 1000.5, 1017.0]


@pytest.mark.parametrize("rotary", [False, True])
@pytest.mark.parametrize("kv_heads", [1, HEADS])
def test_a_linformer_of_shared_keys_and_an_identity_projection_attends_to_its_keys(kv_heads: int, rotary: bool) -> None:
    options = {"share_kv": True, "kv_heads": kv_heads, "qkv_bias": False, "rotary": rotary}
    mixer = with_order_one_weights(LinformerMixer(DIM, HEADS, TOKENS, k=TOKENS.count, **options)).double()
    with torch.no_grad():
        mixer.project_keys.copy_(torch.eye(TOKENS.count))
    assert mixer.qkv.weight.shape == ((HEADS + kv_heads) * 8, DIM)
    assert [name for name, _ in mixer.named_parameters()] == ["project_keys", "qkv.weight", "proj.weight", "proj.bias"]
    x = tokens_in()
    queries, keys = F.linear(x, mixer.qkv.weight).split([DIM, kv_heads * 8], dim=-1)
    q = queries.unflatten(-1, (HEADS, 8)).transpose(1, 2)
    v = keys.unflatten(-1, (kv_heads, 8)).transpose(1, 2).expand(-1, HEADS, -1, -1)
    turn = Rotary(8, TOKENS.count).double() if rotary else nn.Identity()
    expected = F.scaled_dot_product_attention(turn(q), turn(v), v).transpose(1, 2).flatten(2)
    assert_equal_and_a_mutation_is_noticed(mixer, x, mixer.proj(expected))


def test_heads_of_keys_that_do_not_divide_the_heads_of_queries_are_refused() -> None:
    for kv_heads in (0, 2):
        with pytest.raises(RequestError, match="heads"):
            LinformerMixer(DIM, HEADS, TOKENS, kv_heads=kv_heads)


@pytest.mark.parametrize("kind", [Attention, NystromMixer, LinformerMixer, PerformerMixer])
def test_heads_may_be_wider_or_narrower_than_their_share_of_the_channels(kind: type[nn.Module]) -> None:
    mixer = kind(DIM, HEADS, TOKENS, head_dim=5)
    assert mixer.qkv.weight.shape == (3 * HEADS * 5, DIM)
    assert mixer.proj.weight.shape == (DIM, HEADS * 5)
    assert mixer(images(2, TOKENS.count, DIM)).shape == (2, TOKENS.count, DIM)


def test_levit_s_attention_without_norms_and_activation_is_softmax_attention() -> None:
    softmax = with_order_one_weights(Attention(DIM, HEADS, TOKENS, qkv_bias=False)).double()
    levit = LeViTAttention(DIM, HEADS, TOKENS).double().eval()
    levit.qkv.linear.load_state_dict(softmax.qkv.state_dict())
    levit.proj.linear.load_state_dict(softmax.proj.state_dict())
    levit.qkv.norm.eps = levit.proj.norm.eps = 0.0
    levit.act = nn.Identity()
    assert_equal_and_a_mutation_is_noticed(levit, tokens_in(), softmax(tokens_in()))


def test_separable_attention_of_single_taps_is_softmax_attention() -> None:
    softmax = with_order_one_weights(Attention(DIM, HEADS, TOKENS, qkv_bias=False)).double()
    separable = SeparableAttention(DIM, HEADS, TOKENS, head_dim=8, key_stride=1).double().eval()
    queries, keys_and_values = softmax.qkv.weight.split([DIM, 2 * DIM])
    for projection, weight in ((separable.query, queries), (separable.key_value, keys_and_values)):
        with torch.no_grad():
            projection.linear.weight.copy_(weight)
        with_middle_tap(projection.conv)
        projection.norm.eps = 0.0
    separable.proj.load_state_dict(softmax.proj.state_dict())
    assert_equal_and_a_mutation_is_noticed(separable, tokens_in(), softmax(tokens_in()))


def test_a_key_stride_of_two_keeps_a_quarter_of_the_keys() -> None:
    projection = SeparableProjection(DIM, 10, stride=2)
    assert projection(images(2, 4, 4, DIM)).shape == (2, 4, 10)


def test_a_channel_norm_is_a_layer_norm() -> None:
    norm = with_order_one_weights(ChannelNorm(DIM)).double()
    expected = F.layer_norm(tokens_in(), (DIM,), norm.gain, norm.shift, eps=1e-5)
    assert_equal_and_a_mutation_is_noticed(norm, tokens_in(), expected)


def test_a_pooling_layer_of_single_taps_takes_every_second_patch_of_every_second_row() -> None:
    pool = with_order_one_weights(PoolingLayer(DIM, TOKENS)).double()
    with_middle_tap(pool.depthwise)
    x = tokens_in(2, 17, DIM)
    kept = x[:, 1:].unflatten(1, (4, 4))[:, ::2, ::2].flatten(1, 2).repeat_interleave(2, dim=-1)
    expected = torch.cat([pool.class_token(x[:, :1]), pool.pointwise(kept)], dim=1)
    assert expected.shape == (2, 5, 2 * DIM)
    assert_equal_and_a_mutation_is_noticed(pool, x, expected)


def test_a_compact_block_s_second_residual_starts_from_the_normalized_tokens() -> None:
    parts = {"mixer": Attention, "mlp": Mlp, "norm": LayerNorm}
    block = with_order_one_weights(
        CompactBlock(Size(DIM, 1, HEADS), TOKENS, layer_scale=None, drop_path=0.0, **parts)
    ).double()
    x = tokens_in()
    normalized = block.norm2(x + block.mixer(block.norm1(x)))
    assert largest_difference(block(x, Flow()), normalized + block.mlp(normalized)) < 1e-12
    with mutated(block.mixer):
        assert largest_difference(block(x, Flow()), normalized + block.mlp(normalized)) > 1e-3


@pytest.mark.parametrize("pooled", [False, True])
def test_a_compact_stem_halves_the_grid_by_its_convolutions_or_by_pooling_what_the_relu_gave(pooled: bool) -> None:
    stem = with_order_one_weights(ConvPoolEmbed(3, 16, (32, 32), strides=(2, 2, 1), pooled=pooled)).double()
    first, second, third = (layer for layer in stem.layers if isinstance(layer, nn.Conv2d))
    pixels = images(2, 3, 32, 32, dtype=torch.float64)

    def stage(x: Tensor, conv: nn.Conv2d, stride: int) -> Tensor:
        of_conv, of_pool = (1, stride) if pooled else (stride, 1)
        return F.max_pool2d(F.conv2d(x, conv.weight, stride=of_conv, padding=1).relu(), 3, of_pool, padding=1)

    grid = stage(stage(stage(pixels, first, 2), second, 2), third, 1)
    assert grid.shape == (2, 16, *stem.grid)
    assert stem.grid == (8, 8)
    assert largest_difference(stem(pixels), grid.flatten(2).mT) < 1e-12
    with mutated(second):
        assert largest_difference(stem(pixels), grid.flatten(2).mT) > 1e-3


def test_sequence_pooling_with_even_weights_is_the_mean_and_else_it_is_not() -> None:
    options = {"num_classes": 3, "img_size": (32, 32), "in_chans": 3, "drop_path": 0.0}
    model = vix_ccx(Size(16, 1, 4), grid=8, **options).double().eval()
    x = tokens_in(2, 64, 16)
    even = {"weight": torch.zeros(1, 16), "bias": torch.zeros(1)}
    model.attention_pool.load_state_dict(even)
    assert largest_difference(model.pooled(x, Flow()), model.norm(x).mean(dim=1)) < 1e-12
    model.attention_pool.load_state_dict({**even, "weight": torch.ones(1, 16) + torch.arange(16) / 16})
    assert largest_difference(model.pooled(x, Flow()), model.norm(x).mean(dim=1)) > 1e-3


def test_a_token_mlp_treats_every_channel_alike() -> None:
    mixer = with_order_one_weights(TokenMlp(DIM, HEADS, TOKENS)).double()
    x = tokens_in()
    column = mixer.fc2(F.gelu(mixer.fc1(x[..., 5])))
    assert largest_difference(mixer(x)[..., 5], column) < 1e-12
    assert largest_difference(mixer(x)[..., 6], column) > 1e-3


def with_middle_tap(conv: nn.Conv2d) -> None:
    """Turn a depthwise convolution into a copy of its input."""
    with torch.no_grad():
        conv.weight.zero_()
        conv.weight[:, 0, 1, 1] = 1.0
        if conv.bias is not None:
            conv.bias.zero_()
