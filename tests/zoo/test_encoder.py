"""The shell: ViT in it equals timm's, its slots hold what they are given, and what does not fit is refused."""

from functools import partial

import pytest
import timm
import torch
from torch import nn

import favor
from equality import images, largest_difference, mutated, with_order_one_weights
from favor.errors import RequestError
from favor.zoo.attention import Attention
from favor.zoo.encoder import SIZES, Encoder, Size
from favor.zoo.layers import ConvEmbed, DropPath, LearnedPositions, Rotary
from favor.zoo.mixing.low_rank.linformer import LinformerMixer
from favor.zoo.pools import MeanPool
from favor.zoo.positions import NoPositions, RotaryPositions
from favor.zoo.sequence.merging.tome import MergeSimilar
from favor.zoo.slots import Flow, Tokens

SMALL = Size(48, 2, 3)


@pytest.mark.parametrize(("size", "architecture"), [("ti", "vit_tiny_patch16_224"), ("s", "vit_small_patch16_224")])
@pytest.mark.parametrize("layer_scale", [None, 1e-4])
def test_vit_with_timm_s_weights_gives_timm_s_outputs(size: str, architecture: str, layer_scale: float | None) -> None:
    theirs = with_order_one_weights(timm.create_model(architecture, init_values=layer_scale)).eval()
    assert theirs.pos_embed.std() > 0.5
    ours = favor.create_model(f"vit_{size}16", class_position=True, layer_scale=layer_scale).eval()
    favor.load_weights(ours, theirs.state_dict())
    x = images(2, 3, 224, 224)
    with torch.no_grad():
        expected = theirs(x)
        scale = float(expected.abs().max())
        assert largest_difference(ours(x), expected) < 1e-5
        with mutated(ours.blocks[5].mixer):
            assert largest_difference(ours(x), expected) > 1e-3 * scale


@pytest.mark.parametrize("name", ["vit_ti16", "vit_s16", "vit_b16", "resnet50"])
def test_baselines_have_the_parameters_of_the_benchmark(name: str) -> None:
    expected = {"vit_ti16": 5_721_832, "vit_s16": 22_059_496, "vit_b16": 86_585_320, "resnet50": 25_557_032}
    with torch.device("meta"):
        model = favor.create_model(name)
    assert sum(parameter.numel() for parameter in model.parameters()) == expected[name]


def test_the_padded_vit_sees_whole_patches_of_a_padded_image() -> None:
    model = favor.create_model("vit_b64", size=SMALL).eval()
    assert model.tokens == Tokens(4, 4, class_token=True)
    x = images(1, 3, 224, 224)
    padded = nn.functional.pad(x, (0, 32, 0, 32))
    other = favor.create_model("vit_b64", size=SMALL, img_size=256).eval()
    other.load_state_dict(model.state_dict())
    with torch.no_grad():
        assert torch.equal(model(x), other(padded))


def test_only_the_padded_vit_takes_a_size_that_is_no_multiple_of_its_patch() -> None:
    assert favor.create_model("vit_b64", size=SMALL, img_size=100).tokens.grid == (2, 2)
    with pytest.raises(RequestError, match="multiple of 32"):
        favor.create_model("vit_b32", img_size=100)


def test_a_reducer_is_refused_by_a_mixer_with_a_fixed_number_of_tokens() -> None:
    with pytest.raises(RequestError, match="LinformerMixer is tied to a fixed number of tokens"):
        Encoder(SMALL, num_classes=2, img_size=(32, 32), mixer=LinformerMixer, reducer=lambda *_: MergeSimilar(1))


def test_a_reducer_that_wants_keys_is_refused_by_a_mixer_that_has_none() -> None:
    class MeanMixer(nn.Module):
        def __init__(self, dim: int, heads: int, tokens: Tokens) -> None:
            super().__init__()

        def forward(self, x: torch.Tensor) -> torch.Tensor:
            return x.mean(dim=1, keepdim=True).expand_as(x)

    with pytest.raises(RequestError, match="wants the keys"):
        Encoder(SMALL, num_classes=2, img_size=(32, 32), mixer=MeanMixer, reducer=lambda *_: MergeSimilar(1))


def test_a_reducer_is_refused_by_rotary_positions_which_belong_to_a_number_of_tokens() -> None:
    with pytest.raises(RequestError, match="rotary"):
        Encoder(
            SMALL, num_classes=2, img_size=(32, 32), positions=RotaryPositions(), reducer=lambda *_: MergeSimilar(1)
        )


def test_an_image_of_another_size_than_the_model_s_is_refused() -> None:
    model = favor.create_model("vit_ti16", size=SMALL, img_size=64)
    with pytest.raises(RequestError, match="built for images of 64 x 64 px, not 70 x 66"):
        model(torch.zeros(1, 3, 70, 66))


def test_the_mean_leaves_padding_out_and_weighs_tokens_by_their_size() -> None:
    model = Encoder(SMALL, num_classes=2, img_size=(32, 32), pool=MeanPool()).double()
    x = images(1, 4, 48, dtype=torch.float64)
    alive = torch.tensor([[True, True, True, False]])
    assert torch.allclose(model.pooled(x, Flow(alive=alive)), model.pooled(x[:, :3], Flow()))
    sizes = torch.tensor([[1.0, 1.0, 2.0, 1.0]], dtype=torch.float64)
    doubled = torch.cat([x, x[:, 2:3]], dim=1)
    assert torch.allclose(model.pooled(x, Flow(sizes=sizes)), model.pooled(doubled, Flow()))


def test_attend_equals_forward_and_its_class_row_is_the_row_of_the_attention_matrix() -> None:
    attention = with_order_one_weights(Attention(24, 3, Tokens(3, 3, class_token=True))).double()
    x = images(2, 10, 24, dtype=torch.float64)
    y, seen = attention.attend(x, Flow(), class_row=True)
    q, k, _ = attention.split(x)
    matrix = (q @ k.transpose(-2, -1) * attention.scale).softmax(dim=-1)
    assert torch.allclose(y, attention(x), atol=1e-12)
    assert torch.allclose(seen.class_row, matrix[:, :, 0], atol=1e-12)


def test_a_token_of_size_two_weighs_as_two_equal_tokens() -> None:
    attention = with_order_one_weights(Attention(24, 3, Tokens(2, 2, class_token=True))).double()
    x = images(1, 5, 24, dtype=torch.float64)
    doubled = torch.cat([x, x[:, 4:]], dim=1)
    sizes = torch.tensor([[1.0, 1.0, 1.0, 1.0, 2.0]], dtype=torch.float64)
    weighted, _ = attention.attend(x, Flow(sizes=sizes), class_row=False)
    assert torch.allclose(weighted, attention(doubled)[:, :5], atol=1e-12)
    assert not torch.allclose(attention(x), attention(doubled)[:, :5], atol=1e-3)


def test_padding_in_the_sequence_changes_nothing() -> None:
    attention = with_order_one_weights(Attention(24, 3, Tokens(2, 2, class_token=True))).double()
    x = images(1, 5, 24, dtype=torch.float64)
    padded = torch.cat([x, 100 * torch.ones(1, 2, 24, dtype=torch.float64)], dim=1)
    alive = torch.tensor([[True] * 5 + [False] * 2])
    y, _ = attention.attend(padded, Flow(alive=alive), class_row=False)
    assert torch.allclose(y[:, :5], attention(x), atol=1e-12)


def test_rotary_logits_depend_on_the_distance_of_two_tokens_only() -> None:
    rotary = Rotary(8, 12)
    q, k = images(8), images(8, seed=2)
    turned_q, turned_k = rotary(q.expand(12, 8)), rotary(k.expand(12, 8))
    logits = turned_q @ turned_k.T
    for distance in range(-4, 5):
        diagonal = logits.diagonal(distance)
        assert torch.allclose(diagonal, diagonal[0].expand_as(diagonal), atol=1e-5)
    assert logits[0].std() > 0.1, "the distance makes a difference"


def test_rotary_positions_replace_learned_ones() -> None:
    model = Encoder(SMALL, num_classes=2, img_size=(32, 32), positions=RotaryPositions(), pool=MeanPool())
    with_order_one_weights(model)
    assert not any("positions" in name for name in model.state_dict())
    assert model.blocks[0].mixer.rotary is not None
    x = images(1, 3, 32, 32)
    with torch.no_grad():
        assert largest_difference(model(x), model(x.flip(-1))) > 1e-3


def test_without_positions_and_with_mean_pooling_the_order_of_patches_does_not_matter() -> None:
    model = Encoder(SMALL, num_classes=2, img_size=(32, 32), positions=NoPositions(), pool=MeanPool())
    with_order_one_weights(model)
    x = images(1, 3, 32, 32)
    rolled = x.roll(16, dims=-1)
    with torch.no_grad():
        assert largest_difference(model(x), model(rolled)) < 1e-5


def test_convolutional_embedding_has_one_token_a_pixel_or_as_its_strides_say() -> None:
    assert ConvEmbed(3, 128, (32, 32)).grid == (32, 32)
    strided = ConvEmbed(3, 128, (64, 64), strides=(2, 1, 1))
    assert strided(torch.zeros(1, 3, 64, 64)).shape == (1, 32 * 32, 128)
    assert [conv.out_channels for conv in strided.convs] == [32, 64, 128]


def test_class_token_gets_no_position_unless_asked() -> None:
    tokens = Tokens(2, 2, class_token=True)
    without, with_position = LearnedPositions(4, tokens), LearnedPositions(4, tokens, class_position=True)
    nn.init.ones_(without.weight)
    nn.init.ones_(with_position.weight)
    x = torch.zeros(1, 5, 4)
    assert without(x)[0, :, 0].tolist() == [0, 1, 1, 1, 1]
    assert with_position(x)[0, :, 0].tolist() == [1, 1, 1, 1, 1]


def test_drop_path_drops_the_share_it_names_and_keeps_the_mean() -> None:
    torch.manual_seed(0)
    drop = DropPath(0.25)
    dropped = drop(torch.ones(20_000, 1))
    assert abs(float((dropped == 0).float().mean()) - 0.25) < 0.01
    assert abs(float(dropped.mean()) - 1.0) < 0.02
    assert torch.equal(drop.eval()(torch.ones(5, 1)), torch.ones(5, 1))


def test_drop_path_grows_linearly_to_the_rate_asked_for() -> None:
    model = favor.create_model("vit_ti16", size=Size(48, 5, 3), drop_path=0.2)
    assert [block.drop_path.rate for block in model.blocks] == pytest.approx([0.0, 0.05, 0.1, 0.15, 0.2])


def test_sizes_are_those_of_the_papers() -> None:
    assert [(s.dim, s.depth, s.heads, s.hidden) for s in SIZES.values()] == [
        (192, 12, 3, 768),
        (384, 12, 6, 1536),
        (768, 12, 12, 3072),
        (1024, 24, 16, 4096),
    ]


def test_heads_that_do_not_divide_the_width_are_refused() -> None:
    with pytest.raises(RequestError, match="50 channels cannot be split into 3 heads"):
        Encoder(Size(50, 1, 3), num_classes=2, img_size=(32, 32))


def test_rotary_positions_want_queries_and_keys() -> None:
    with pytest.raises(RequestError, match="rotary"):
        Encoder(SMALL, num_classes=2, img_size=(32, 32), mixer=partial(nn.Identity), positions=RotaryPositions())
