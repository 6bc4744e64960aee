"""Performer tends to softmax attention as its features grow in number, at the rate of a Monte Carlo estimate."""

import math

import numpy as np
import pytest
import torch
import torch.nn.functional as F
from torch import Tensor, nn

import favor
from equality import images, largest_difference, mutated, with_order_one_weights
from favor.errors import RequestError
from favor.zoo.mixing.kernel.performer import PerformerMixer, favor_attention, log_features, orthogonal_directions
from favor.zoo.slots import Tokens
from favor.zoo.training import tell_progress

TOKENS = Tokens(4, 4, class_token=True)
COUNTS = (64, 256, 1024, 4096)


def rate_of_the_error(mutation: float = 1.0) -> float:
    """The power of the number of features with which the root mean square error grows, over fixed seeds.

    The variance of a feature grows as exp(|q + k|^2): short queries and keys show the rate with few features.
    """
    q, k, v = (
        scale * images(2, 3, 17, 8, seed=seed, dtype=torch.float64) for seed, scale in enumerate((0.4, 0.4, 1.0))
    )
    softmax = F.scaled_dot_product_attention(q, k, v)
    errors = []
    for count in COUNTS:
        squares = []
        for seed in range(12):
            torch.manual_seed(seed)
            performer = PerformerMixer(24, 3, TOKENS, count=count)
            squares.append((mutation * performer.mix(q, k, v) - softmax).square().mean())
        errors.append(float(torch.stack(squares).mean().sqrt()))
    return float(np.polyfit(np.log(COUNTS), np.log(errors), 1)[0])


def test_the_error_against_softmax_attention_falls_with_the_root_of_the_number_of_features() -> None:
    assert rate_of_the_error() == pytest.approx(-0.5, abs=0.1)
    assert rate_of_the_error(mutation=1.1) > -0.4


def test_attention_from_logarithms_is_the_explicit_matrix_of_positive_features() -> None:
    q, k, v = (images(2, 3, 17, 8, seed=seed, dtype=torch.float64) for seed in range(3))
    directions = images(20, 8, seed=3, dtype=torch.float64)
    phi_q, phi_k = ((x @ directions.T - x.square().sum(dim=-1, keepdim=True) / 2).exp() for x in (q, k))
    matrix = phi_q @ phi_k.mT
    expected = matrix @ v / matrix.sum(dim=-1, keepdim=True)
    assert largest_difference(favor_attention(q @ directions.T, log_features(k, directions), v), expected) < 1e-12
    wrong = favor_attention(q @ directions.T, log_features(1.03 * k, directions), v)
    assert largest_difference(wrong, expected) > 1e-3


def test_the_relu_features_give_the_explicit_matrix() -> None:
    mixer = with_order_one_weights(PerformerMixer(24, 3, TOKENS, features="relu", count=20)).double()
    x = images(2, TOKENS.count, 24, dtype=torch.float64)
    q, k, v = mixer.split(x)
    phi_q, phi_k = ((x * 8**-0.25 @ mixer.projection.T).clamp_min(0) + 1e-3 for x in (q, k))
    matrix = phi_q @ phi_k.mT
    expected = mixer.proj(mixer.join(matrix @ v / (matrix.sum(dim=-1, keepdim=True) + 1e-6)))
    assert largest_difference(mixer(x), expected) < 1e-12
    with mutated(mixer):
        assert largest_difference(mixer(x), expected) > 1e-3


def test_directions_are_orthogonal_in_blocks_and_gaussian_each() -> None:
    torch.manual_seed(0)
    directions = orthogonal_directions(40, 16).double()
    products = directions[:16] @ directions[:16].T
    assert largest_difference(products, products.diagonal().diag()) < 1e-4
    many = orthogonal_directions(16 * 500, 16)
    # where the signs are left to LAPACK, a direction has its own component always of one sign: a mean of -0.6
    assert many.unflatten(0, (500, 16)).diagonal(dim1=1, dim2=2).mean().abs() < 0.05
    assert many.square().mean() == pytest.approx(1.0, abs=0.03)
    assert many.square().sum(dim=1).var() == pytest.approx(2 * 16, rel=0.1)


@pytest.mark.parametrize("scale", [1e-3, 1.0, 100.0])
def test_queries_and_keys_of_any_length_give_means_of_the_values_and_finite_gradients(scale: float) -> None:
    torch.manual_seed(0)
    mixer = PerformerMixer(24, 3, TOKENS)
    q, k = (scale * images(2, 3, 17, 8, seed=seed) for seed in (0, 1))
    q.requires_grad_()
    mixed = mixer.mix(q, k, torch.ones(2, 3, 17, 8))
    assert largest_difference(mixed, torch.ones(2, 3, 17, 8)) < 1e-4
    mixer.mix(q, k, images(2, 3, 17, 8, seed=2)).square().sum().backward()
    assert q.grad is not None
    assert q.grad.isfinite().all()


class TestRedrawing:
    """The features are drawn anew in training, each time it has gone on by another hundredth."""

    @staticmethod
    def features_after(model: nn.Module, fraction: float) -> Tensor:
        tell_progress(model, fraction)
        return model.projection.clone()

    def test_a_hundredth_of_training_draws_new_features(self) -> None:
        mixer = PerformerMixer(24, 3, TOKENS).train()
        first = self.features_after(mixer, 0.0)
        assert torch.equal(self.features_after(mixer, 0.009), first)
        second = self.features_after(mixer, 0.011)
        assert not torch.equal(second, first)
        assert torch.equal(self.features_after(mixer, 0.012), second)

    def test_a_resumed_training_keeps_the_features_of_its_checkpoint(self) -> None:
        mixer = PerformerMixer(24, 3, TOKENS).train()
        saved = mixer.state_dict()["projection"].clone()
        assert torch.equal(self.features_after(mixer, 0.537), saved)
        assert not torch.equal(self.features_after(mixer, 0.541), saved)

    def test_the_end_of_training_keeps_the_features_that_the_last_steps_learned_with(self) -> None:
        mixer = PerformerMixer(24, 3, TOKENS).train()
        last = self.features_after(mixer, 0.999)
        assert torch.equal(self.features_after(mixer, 1.0), last)

    def test_evaluation_draws_nothing(self) -> None:
        mixer = PerformerMixer(24, 3, TOKENS).eval()
        first = self.features_after(mixer, 0.0)
        assert torch.equal(self.features_after(mixer, 0.5), first)


def test_an_unknown_kind_of_features_is_refused_with_a_suggestion() -> None:
    with pytest.raises(RequestError, match="did you mean 'relu'"):
        PerformerMixer(24, 3, TOKENS, features="relus")  # type: ignore[arg-type]


@pytest.mark.parametrize(
    ("name", "parameters"),
    [("performer_ti16", 5_721_832), ("performer_s16", 22_059_496), ("performer_b16", 86_585_320)],
)
def test_it_has_the_parameters_of_the_benchmark(name: str, parameters: int) -> None:
    with torch.device("meta"):
        model = favor.create_model(name)
    assert sum(parameter.numel() for parameter in model.parameters()) == parameters


def test_the_features_are_saved_with_the_weights() -> None:
    assert "blocks.0.mixer.projection" in favor.create_model("performer_ti16").state_dict()
    assert math.isclose(PerformerMixer(24, 3, TOKENS).root, 8**-0.25)
