"""Linformer with an identity projection is softmax attention."""

import torch

from equality import images, largest_difference, mutated, with_order_one_weights
from favor.zoo.attention import Attention
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
