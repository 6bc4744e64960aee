"""Linformer with an identity projection is softmax attention, with fewer rows attention to weighted sums."""

import pytest
import torch

import favor
from equality import images, largest_difference, mutated, with_order_one_weights
from favor.errors import RequestError
from favor.zoo.attention import Attention
from favor.zoo.encoder import Size
from favor.zoo.mixing.low_rank.linformer import LinformerMixer
from favor.zoo.slots import Tokens

TOKENS = Tokens(4, 4, class_token=True)


def test_with_an_identity_projection_it_is_softmax_attention() -> None:
    softmax = with_order_one_weights(Attention(24, 3, TOKENS)).double()
    linformer = LinformerMixer(24, 3, TOKENS, k=TOKENS.count).double()
    linformer.load_state_dict(softmax.state_dict(), strict=False)
    with torch.no_grad():
        linformer.project_keys.copy_(torch.eye(TOKENS.count))
        linformer.project_values.copy_(torch.eye(TOKENS.count))
    x = images(2, TOKENS.count, 24, dtype=torch.float64)
    assert largest_difference(linformer(x), softmax(x)) < 1e-12
    with mutated(linformer):
        assert largest_difference(linformer(x), softmax(x)) > 1e-3


@pytest.mark.parametrize("k", [1, 5])
def test_with_fewer_it_is_softmax_attention_to_weighted_sums_of_keys_and_of_values(k: int) -> None:
    mixer = with_order_one_weights(LinformerMixer(24, 3, TOKENS, k=k)).double()
    x = images(2, TOKENS.count, 24, dtype=torch.float64)
    with torch.no_grad():
        q, keys, v = (x @ mixer.qkv.weight.T + mixer.qkv.bias).split(24, dim=-1)
        heads = []
        for head in range(3):
            part = slice(8 * head, 8 * head + 8)
            few_keys = torch.stack([(row[:, None] * keys[..., part]).sum(dim=1) for row in mixer.project_keys], dim=1)
            few_values = torch.stack([(row[:, None] * v[..., part]).sum(dim=1) for row in mixer.project_values], dim=1)
            heads.append((q[..., part] @ few_keys.mT / 8**0.5).softmax(dim=-1) @ few_values)
        expected = torch.cat(heads, dim=-1) @ mixer.proj.weight.T + mixer.proj.bias
        assert largest_difference(mixer(x), expected) < 1e-12
        with mutated(mixer):
            assert largest_difference(mixer(x), expected) > 1e-3


@pytest.mark.parametrize(("side", "tokens", "k"), [(64, 17, 17), (112, 50, 50), (224, 197, 64), (384, 577, 64)])
def test_it_never_projects_to_more_tokens_than_there_are(side: int, tokens: int, k: int) -> None:
    with torch.device("meta"):
        mixer = favor.create_model("linformer_s16", img_size=side).blocks[0].mixer
    assert mixer.project_keys.shape == mixer.project_values.shape == (k, tokens)


def test_projections_of_a_small_image_are_refused_by_a_large_one_with_the_reason() -> None:
    small = favor.create_model("linformer_s16", size=Size(48, 1, 3), img_size=64)
    large = favor.create_model("linformer_s16", size=Size(48, 1, 3), img_size=224)
    with pytest.raises(RequestError, match="17 projected tokens, all of a small image, cannot be made 64"):
        favor.load_weights(large, small.state_dict())
