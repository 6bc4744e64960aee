"""A-ViT's tokens halt at different depths and leave the sequence; without halting it is ViT."""

import math

import pytest
import torch
from hypothesis import given, settings
from hypothesis import strategies as st

import favor
from equality import images, largest_difference, mutated, with_order_one_weights
from favor.errors import RequestError
from favor.trace.counts import count
from favor.zoo.encoder import Size
from favor.zoo.operating_point import impose_operating_point, operating_point
from favor.zoo.registry import create_miniature
from favor.zoo.sequence.removal.avit import PONDER_WEIGHT, SURVIVAL, Halting, prior, prior_survival
from favor.zoo.training import take_extra_losses
from tokens import token_counts

SMALL = Size(48, 4, 3)
X = images(3, 3, 64, 64, dtype=torch.float64)
EARLY = {"gate_scale": 2.0, "gate_center": 1.0}
"""Scores around one half, so that tokens halt after one to four blocks."""
NEVER = {"gate_center": 1e9}


def small_avit(**options: object) -> torch.nn.Module:
    model = favor.create_model("avit_s16", size=SMALL, img_size=64, **options).double()
    return with_order_one_weights(model).eval()


@pytest.mark.parametrize("training", [False, True])
def test_without_halting_it_is_plain_vit(training: bool) -> None:
    vit = favor.create_model("vit_s16", size=SMALL, img_size=64, layer_scale=None, class_position=True).double()
    model = small_avit(**NEVER).train(training)
    vit.load_state_dict(model.state_dict())
    assert largest_difference(model(X), vit(X)) < 1e-10
    with mutated(model.blocks[1].mixer.proj):
        assert largest_difference(model(X), vit(X)) > 1e-3


def test_taking_halted_tokens_out_gives_what_masking_them_gives() -> None:
    model = small_avit(**EARLY)
    packed = model(X)
    assert largest_difference(model.train()(X), packed) < 1e-10
    with mutated(model.blocks[2].mlp):
        assert largest_difference(model(X), packed) > 1e-3


def test_the_sequence_is_as_long_as_the_image_with_most_tokens_needs() -> None:
    model = small_avit(**EARLY)
    together = token_counts(model, X)
    alone = [token_counts(model, image[None]) for image in X]
    assert together == [max(counts) for counts in zip(*alone, strict=True)]
    assert together[0] == 17
    assert together[-1] < 17
    assert len({tuple(counts) for counts in alone}) > 1, "the images keep different numbers of tokens"


def test_an_image_does_not_feel_the_padding_for_others() -> None:
    model = small_avit(**EARLY)
    assert largest_difference(model(X), torch.cat([model(image[None]) for image in X])) < 1e-10


@given(channel=st.lists(st.floats(-5, 15), min_size=1, max_size=6))
@settings(deadline=None, max_examples=60)
def test_the_weights_of_the_class_token_over_the_blocks_sum_to_one(channel: list[float]) -> None:
    x = torch.ones(1, 2, 2, dtype=torch.float64)
    halting = Halting(x)
    for index, value in enumerate(channel):
        x[..., 0] = value
        halting.step(x, last=index == len(channel) - 1)
    assert float(halting.class_token[0, 1]) == pytest.approx(1.0, abs=1e-12)
    assert not halting.running.any()


def test_a_token_ponders_on_the_blocks_it_passes_and_its_remainder() -> None:
    channel = torch.tensor([3.0, 3.0 + torch.tensor(3.0).log().item() / 10, -100.0])  # scores 1/2, 3/4, 0
    x = torch.stack([channel, torch.ones(3)], dim=-1)[None].double()
    halting = Halting(x)
    for last in (False, False, False, True):
        halting.step(x, last=last)
    assert halting.ponder[0].tolist() == pytest.approx([2 + 0.5, 2 + 0.25, 4 + 1.0])


def test_the_distribution_loss_has_the_weight_of_the_authors_whose_prior_sums_to_3_26_over_12_blocks() -> None:
    """1e-3 times the divergence from a Gaussian whose first 8 of 12 values sum to 0.98, divided by 12."""
    torch.manual_seed(0)
    model = create_miniature("avit_s16", size=Size(48, 12, 3), **EARLY).train()
    seen: list[torch.Tensor] = []
    for block in model.blocks:
        block.register_forward_hook(lambda module, inputs, output: seen.append(output[..., 0]))
    model(images(2, 3, 64, 64))
    gathered, means = torch.zeros_like(seen[0]), []
    for channel in seen:
        scores = (2 * channel - 1).sigmoid() * (gathered <= 0.99)
        means.append(float(scores.mean().detach()))
        gathered = gathered + scores
    shares = [min(max(mean / sum(means), 0.01), 0.99) for mean in means]
    gaussian = [math.exp(-((block - 8) ** 2) / 2) for block in range(12)]
    divergence = sum(
        value / sum(gaussian) * math.log(value / sum(gaussian) / share)
        for value, share in zip(gaussian, shares, strict=True)
    )
    authors_sum = 0.98 * sum(gaussian) / sum(gaussian[:8])
    assert authors_sum == pytest.approx(3.26, abs=0.01)
    loss = take_extra_losses(model)["distribution"].item()
    assert loss == pytest.approx(1e-3 * authors_sum / 12 * divergence, rel=1e-4)
    assert loss == pytest.approx(1e-3 * divergence / 3.68, rel=1e-3)


def test_a_halted_token_is_no_key_in_training_the_class_token_neither() -> None:
    """Patches go on after the class token has halted: what they gather then does not depend on it."""
    model = small_avit(**EARLY).train()
    masks: list[torch.Tensor] = []
    model.blocks[1].register_forward_hook(lambda module, inputs, output: masks.append(inputs[1].alive))
    for patches in (-1e3, 1e3):
        with torch.no_grad():
            model.class_token[..., 0] = 1e3  # its score is 1 after the first block, whatever the image
            model.patch_embed.proj.bias[0] = patches
        model(X)
    assert not masks[0][:, 0].any()
    assert masks[0][:, 1:].all()
    assert masks[1][:, 0].all(), "a softmax needs a key, where all tokens have halted"
    assert not masks[1][:, 1:].any()


@pytest.mark.parametrize("term", ["ponder", "distribution"])
def test_the_weights_of_its_losses_are_settings(term: str) -> None:
    losses = []
    for weight in (1.0, 0.5):
        torch.manual_seed(0)
        model = create_miniature("avit_s16", **EARLY, **{term: weight}).train()
        model(X.float())
        losses.append(take_extra_losses(model)[term].item())
    assert losses[0] == pytest.approx(2 * losses[1])


def test_an_imposed_survival_sets_the_number_of_tokens() -> None:
    model = favor.create_model("avit_s16", size=Size(48, 12, 3), survival=SURVIVAL).eval()
    expected = [197] * 6 + [197, 186, 139, 60, 13, 2]
    assert token_counts(model, images(2, 3, 224, 224)) == expected
    assert model.operating_point["survival"] == "imposed"
    assert model.operating_point["imposed_mean_survival"] == pytest.approx(9 / 12, abs=1e-3)


def test_its_operating_point_can_be_imposed_on_a_model_that_is_there() -> None:
    model = favor.create_model("avit_s16", size=Size(48, 12, 3)).eval()
    impose_operating_point(model)
    other = favor.create_model("avit_s16", size=Size(48, 12, 3), survival=SURVIVAL).eval()
    x = images(1, 3, 224, 224)
    assert token_counts(model, x) == token_counts(other, x) == [197] * 7 + [186, 139, 60, 13, 2]
    assert operating_point(model) == operating_point(other)


def test_imposed_survivors_are_those_that_have_gathered_least() -> None:
    model = small_avit(survival=(1.0, 0.5, 0.5, 0.5), **EARLY)
    seen: list[torch.Tensor] = []
    model.blocks[0].register_forward_hook(lambda module, inputs, output: seen.append(output))
    model.blocks[1].register_forward_hook(lambda module, inputs, output: seen.append(inputs[0]))
    model(X)
    entered = seen[1][:, 1:, 0].sort(dim=1).values
    assert torch.equal(entered, seen[0][:, 1:, 0].sort(dim=1).values[:, :8])


def test_untrained_it_halts_nothing() -> None:
    torch.manual_seed(0)
    model = favor.create_model("avit_s16", size=SMALL, img_size=64).eval()
    assert token_counts(model, X.float()) == [17] * 4


def test_tensors_without_values_survive_as_the_prior_says() -> None:
    with torch.device("meta"):
        model = favor.create_model("avit_s16", size=Size(48, 12, 3)).eval()
        x = torch.empty(2, 3, 224, 224)
    assert token_counts(model, x) == [197] * 6 + [197, 186, 139, 60, 13, 2]
    assert "imposed where tensors have no values" in str(model.operating_point["survival"])


def test_the_prior_is_a_distribution_around_two_thirds_of_the_depth() -> None:
    for depth in (4, 12, 24):
        assert sum(prior(depth)) == pytest.approx(1.0)
        assert prior_survival(depth)[0] == 1.0
    assert max(range(12), key=prior(12).__getitem__) == 8
    assert sum(SURVIVAL) == pytest.approx(9.0, abs=0.01)


def test_a_survival_that_rises_starts_below_one_or_has_another_length_is_refused() -> None:
    for survival, reason in (
        ((1.0,) * 3, "4 of them, not 3"),
        ((1.0, 0.5, 0.6, 0.5), "never rise"),
        ((0.5,) * 4, "starts with 1, not 0.5"),
    ):
        with pytest.raises(RequestError, match=reason):
            favor.create_model("avit_s16", size=SMALL, survival=survival)


def test_the_distribution_loss_falls_in_training_and_the_ponder_loss_stays_in_its_range() -> None:
    torch.manual_seed(0)
    model = create_miniature("avit_s16").train()
    optimizer = torch.optim.Adam(model.parameters(), lr=1e-3)
    terms = []
    for step in range(25):
        logits = model(images(4, 3, 64, 64, seed=step))
        extra = take_extra_losses(model)
        loss = torch.nn.functional.cross_entropy(logits, torch.arange(4)) + 1000 * sum(extra.values())
        optimizer.zero_grad()
        loss.backward()
        optimizer.step()
        terms.append({name: float(value.detach()) for name, value in extra.items()})
        assert PONDER_WEIGHT * 1 <= terms[-1]["ponder"] <= PONDER_WEIGHT * (4 + 1) * 1.001
        assert terms[-1]["distribution"] >= 0
    assert terms[-1]["distribution"] < 0.8 * terms[0]["distribution"]


def test_counts_are_those_of_the_benchmark_and_near_the_published_ones() -> None:
    """Parameters as in the benchmark; the authors publish 3.6 G for A-ViT-S, learned, and ours is imposed."""
    for size, expected in (("ti", 5_717_416), ("s", 22_050_664), ("b", 86_567_656)):
        with torch.device("meta"):
            model = favor.create_model(f"avit_{size}16")
        assert sum(parameter.numel() for parameter in model.parameters()) == expected
    assert count("avit_s16").macs_matmul == pytest.approx(3.6e9, rel=0.05)
