"""FourierLearner without its positional term is Performer, and with it tends to softmax attention with a bias."""

import math

import numpy as np
import pytest
import torch
import torch.nn.functional as F
from torch import Tensor, nn

import favor
from equality import images, largest_difference, mutated, with_order_one_weights
from favor.zoo.encoder import Size
from favor.zoo.mixing.kernel.flt import FltMixer, places_in_image
from favor.zoo.mixing.kernel.performer import PerformerMixer
from favor.zoo.slots import Tokens
from favor.zoo.training import tell_progress
from favor.zoo.weights import load_weights

TOKENS = Tokens(4, 4, class_token=True)


def test_without_its_positional_term_it_is_performer() -> None:
    flt = with_order_one_weights(FltMixer(24, 3, TOKENS)).double()
    performer = PerformerMixer(24, 3, TOKENS).double()
    performer.load_state_dict({name: flt.state_dict()[name] for name in performer.state_dict()})
    x = images(2, TOKENS.count, 24, dtype=torch.float64)
    assert largest_difference(flt(x), performer(x)) > 1e-2
    nn.init.zeros_(flt.amplitudes)
    assert largest_difference(flt(x), performer(x)) < 1e-12
    with mutated(flt):
        assert largest_difference(flt(x), performer(x)) > 1e-3


def bias_of(mixer: FltMixer) -> Tensor:
    """[heads, N, N] the bias that the features of the places stand for."""
    place_q, place_k = mixer.place_features()
    return place_q @ place_k.mT


def test_the_error_against_softmax_attention_with_the_bias_falls_with_the_root_of_the_number_of_features() -> None:
    counts = (64, 256, 1024, 4096)
    q, k, v = (
        scale * images(2, 3, 17, 8, seed=seed, dtype=torch.float64) for seed, scale in enumerate((0.4, 0.4, 1.0))
    )
    errors: dict[bool, list[float]] = {True: [], False: []}
    for count in counts:
        squares: dict[bool, list[Tensor]] = {True: [], False: []}
        for seed in range(12):
            torch.manual_seed(seed)
            mixer = with_order_one_weights(FltMixer(24, 3, TOKENS, count=count, modes=2)).double()
            with torch.no_grad():
                mixer.amplitudes.mul_(0.3)  # the variance of a feature grows exponentially with the bias
            for with_bias in (True, False):
                exact = F.scaled_dot_product_attention(q, k, v, attn_mask=bias_of(mixer) if with_bias else None)
                squares[with_bias].append((mixer.mix(q, k, v) - exact).detach().square().mean())
        for with_bias in (True, False):
            errors[with_bias].append(float(torch.stack(squares[with_bias]).mean().sqrt()))
    rates = {key: np.polyfit(np.log(counts), np.log(values), 1)[0] for key, values in errors.items()}
    assert rates[True] == pytest.approx(-0.5, abs=0.1)
    assert rates[False] > -0.3, "leaving the bias out must be noticed"


def test_the_waves_estimate_the_fourier_transform_of_the_mixture_of_gaussians() -> None:
    waves = (16, 128, 1024)
    errors = []
    for count in waves:
        torch.manual_seed(0)
        mixer = with_order_one_weights(FltMixer(24, 3, TOKENS, modes=2, waves=count)).double()
        places = places_in_image(TOKENS).double()
        between = (places[:, None] - places[None])[None, :, :, None]
        weights = (mixer.amplitudes * mixer.amplitudes.abs())[:, None, None]
        decay = (-2 * (math.pi * mixer.deviations[:, None, None] * between.norm(dim=-1)).square()).exp()
        wave = (2 * math.pi * (between * mixer.means[:, None, None]).sum(dim=-1)).cos()
        expected = (weights * decay * wave).sum(dim=-1)
        errors.append(float((bias_of(mixer)[:, 1:, 1:] - expected).detach().square().mean().sqrt()))
    assert np.polyfit(np.log(waves), np.log(errors), 1)[0] == pytest.approx(-0.5, abs=0.15)
    assert errors[-1] < 0.1


def test_the_class_token_has_no_bias() -> None:
    bias = bias_of(with_order_one_weights(FltMixer(24, 3, TOKENS)))
    assert bias[:, 0].abs().max() == 0
    assert bias[:, :, 0].abs().max() == 0
    assert bias[:, 1:, 1:].abs().max() > 0.1


def test_the_bias_of_an_image_of_448_px_is_that_of_224_px_at_the_same_places() -> None:
    small = favor.create_model("flt_s16", size=Size(48, 1, 3))
    large = favor.create_model("flt_s16", size=Size(48, 1, 3), img_size=448)
    assert load_weights(large, small.state_dict()).resampled == ("positions.weight",)
    bias_small = bias_of(small.blocks[0].mixer)[:, 1:, 1:].unflatten(1, (14, 14)).unflatten(3, (14, 14))
    bias_large = bias_of(large.blocks[0].mixer)[:, 1:, 1:].unflatten(1, (28, 28)).unflatten(3, (28, 28))
    assert largest_difference(bias_large[:, ::2, ::2, ::2, ::2], bias_small) < 1e-5


def test_directions_and_frequencies_are_drawn_anew_in_training_only() -> None:
    mixer = FltMixer(24, 3, TOKENS)
    names = ("projection", "place_projection", "offsets")
    before = {name: mixer.get_buffer(name).clone() for name in names}
    for training in (False, True):
        mixer.train(training)
        tell_progress(mixer, 0.1)
        tell_progress(mixer, 0.2)
        assert all(torch.equal(mixer.get_buffer(name), before[name]) is not training for name in names)
    assert set(names) <= set(mixer.state_dict())


def test_it_has_performer_s_parameters_and_four_numbers_for_each_mode() -> None:
    with torch.device("meta"):
        model = favor.create_model("flt_s16")
    parameters = sum(parameter.numel() for parameter in model.parameters())
    assert parameters == 22_059_496 + 12 * 6 * 8 * 4
