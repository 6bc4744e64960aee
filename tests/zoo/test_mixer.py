"""MLP-Mixer is timm's, and its token MLPs can be brought to another image size."""

import math

import pytest
import timm
import torch
from torch import nn

import favor
from equality import images, largest_difference, mutated, with_order_one_weights
from favor.errors import RequestError
from favor.zoo.mixing.shuffling.mixer import FromTokens, ToTokens


def test_with_timm_s_weights_it_gives_timm_s_outputs() -> None:
    theirs = with_order_one_weights(timm.create_model("mixer_s16_224", num_classes=10)).eval()
    ours = favor.create_model("mixer_s16", num_classes=10).eval()
    ours.load_state_dict(theirs.state_dict())
    x = images(1, 3, 224, 224)
    with torch.no_grad():
        assert torch.equal(ours(x), theirs(x))
        with mutated(ours.blocks[3].mlp_tokens):
            assert largest_difference(ours(x), theirs(x)) > 1e-3


def waves(side: int, units: int) -> torch.Tensor:
    """Smooth weights [side * side, units] on a grid over the unit square, whatever its number of places."""
    place = (torch.arange(side) + 0.5) / side
    rows, columns = torch.meshgrid(place, place, indexing="ij")
    phases = torch.arange(units) * 0.7
    return torch.cos(math.pi * rows.flatten()[:, None] + phases) * torch.cos(math.pi * columns.flatten()[:, None]) + 1


def test_a_smooth_token_mlp_gives_the_same_smooth_outputs_on_a_finer_grid() -> None:
    signal, outputs = {}, {}
    coarse_first, coarse_second = nn.Linear(64, 6), nn.Linear(6, 64)
    with torch.no_grad():
        coarse_first.weight.copy_(waves(8, 6).T / 64)
        coarse_second.weight.copy_(waves(8, 6))
        coarse_second.bias.copy_(waves(8, 1)[:, 0])
    first, second = FromTokens(nn.Linear(256, 6), (16, 16)), ToTokens(nn.Linear(6, 256), (16, 16))
    with torch.no_grad():
        first.weight.copy_(first.resample("weight", coarse_first.weight))
        first.bias.copy_(coarse_first.bias)
        second.weight.copy_(second.resample("weight", coarse_second.weight))
        second.bias.copy_(second.resample("bias", coarse_second.bias))
        for side, layers in {8: (coarse_first, coarse_second), 16: (first, second)}.items():
            signal[side] = waves(side, 3).T
            outputs[side] = layers[1](layers[0](signal[side])).unflatten(1, (side, side))
    pooled = nn.functional.avg_pool2d(outputs[16][:, None], 2)[:, 0]
    assert largest_difference(pooled, outputs[8]) < 0.02 * float(outputs[8].abs().max())
    assert largest_difference(pooled * 1.03, outputs[8]) > 0.02 * float(outputs[8].abs().max())


def test_weights_of_another_image_size_load_and_it_is_said_which_were_resampled() -> None:
    source = favor.create_model("mixer_s16", img_size=64, num_classes=10)
    target = favor.create_model("mixer_s16", img_size=96, num_classes=10)
    loaded = favor.load_weights(target, source.state_dict())
    assert len(loaded.resampled) == 8 * 3
    assert {f"blocks.0.mlp_tokens.{name}" for name in ("fc1.weight", "fc2.weight", "fc2.bias")} <= set(loaded.resampled)
    other_shape = favor.create_model("mixer_s16", img_size=(64, 96), num_classes=10)
    with pytest.raises(RequestError, match="aspect ratio"):
        favor.load_weights(other_shape, source.state_dict(), img_size=(64, 64))


def test_parameters_are_those_of_timm_and_the_paper() -> None:
    # the paper's Table 1 says 18 M and 59 M; the benchmark has a norm more, 2 x 512 and 2 x 768
    expected = {"mixer_s16": 18_529_288 - 2 * 512, "mixer_b16": 59_882_008 - 2 * 768}
    for name, count in expected.items():
        with torch.device("meta"):
            model = favor.create_model(name)
        assert sum(p.numel() for p in model.parameters()) == count
    assert favor.card("Mixer-S/16").name == "mixer_s16"
