"""Synthesizer, factorized random, is softmax(R1 R2^T) V with the same weights for every image."""

import torch

import favor
from equality import images, largest_difference, mutated, with_order_one_weights
from favor.zoo.encoder import Size
from favor.zoo.mixing.fixed.synthesizer_fr import FactorizedRandomMixer
from favor.zoo.slots import Tokens

TOKENS = Tokens(4, 4, class_token=True)


def test_it_is_the_softmax_of_its_two_factors_times_the_values() -> None:
    mixer = with_order_one_weights(FactorizedRandomMixer(24, 3, TOKENS, k=5)).double()
    x = images(2, TOKENS.count, 24, dtype=torch.float64)
    with torch.no_grad():
        v = x @ mixer.value.weight.T + mixer.value.bias
        heads = [
            torch.softmax(mixer.r1[head] @ mixer.r2[head].T, dim=-1) @ v[..., 8 * head : 8 * head + 8]
            for head in range(3)
        ]
        expected = torch.cat(heads, dim=-1) @ mixer.proj.weight.T + mixer.proj.bias
        assert largest_difference(mixer(x), expected) < 1e-12
        with mutated(mixer):
            assert largest_difference(mixer(x), expected) > 1e-3


def test_it_is_linear_in_the_tokens_because_its_weights_do_not_look_at_them() -> None:
    mixer = with_order_one_weights(FactorizedRandomMixer(24, 3, TOKENS)).double()
    x, y = images(1, TOKENS.count, 24, dtype=torch.float64), images(1, TOKENS.count, 24, seed=2, dtype=torch.float64)
    with torch.no_grad():
        constant = mixer(torch.zeros_like(x))
        assert largest_difference(mixer(x + y) + constant, mixer(x) + mixer(y)) < 1e-12
        assert float(mixer(x).std()) > 0.1


def test_its_factors_are_resampled_to_another_image_size_and_the_class_token_keeps_its_own() -> None:
    size = Size(48, 2, 3)
    source = with_order_one_weights(favor.create_model("synthesizer_fr_s16", size=size, img_size=64))
    target = favor.create_model("synthesizer_fr_s16", size=size, img_size=128)
    loaded = favor.load_weights(target, source.state_dict())
    assert {"blocks.0.mixer.r1", "blocks.1.mixer.r2", "positions.weight"} <= set(loaded.resampled)
    old, new = source.blocks[0].mixer.r1, target.blocks[0].mixer.r1
    assert new.shape == (3, 65, 8)
    assert torch.equal(new[:, 0], old[:, 0])
    assert torch.allclose(new[:, 1:].mean(dim=1), old[:, 1:].mean(dim=1), atol=0.05)


def test_parameters_are_vit_s_with_two_factors_in_place_of_queries_and_keys() -> None:
    # of the benchmark: 4,947,688, 18,741,736 and 72,871,912, with 200 rows in each factor instead of 197
    unused = {size: 12 * heads * 2 * 3 * 8 for size, heads in {"ti": 3, "s": 6, "b": 12}.items()}
    expected = {"ti": 4_947_688, "s": 18_741_736, "b": 72_871_912}
    for size, count in expected.items():
        with torch.device("meta"):
            model = favor.create_model(f"synthesizer_fr_{size}16")
        assert sum(p.numel() for p in model.parameters()) == count - unused[size]
    assert favor.card("Synthesizer FR-S/16").name == "synthesizer_fr_s16"
