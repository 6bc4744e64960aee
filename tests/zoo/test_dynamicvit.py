"""DynamicViT takes the best patches in eval, draws them in training, and equals ViT when it keeps all."""

import pytest
import torch

import favor
from equality import images, largest_difference, mutated, with_order_one_weights
from favor.trace.counts import count
from favor.zoo.attention import Attention
from favor.zoo.encoder import Size
from favor.zoo.registry import create_miniature
from favor.zoo.sequence.removal.dynamicvit import MaskedAttention
from favor.zoo.slots import Flow, Tokens
from favor.zoo.training import take_extra_losses
from tokens import token_counts

SMALL = Size(48, 4, 3)
X = images(2, 3, 64, 64, dtype=torch.float64)


def pair(**settings: object) -> tuple[torch.nn.Module, torch.nn.Module]:
    """A ViT and a DynamicViT with its weights."""
    vit = favor.create_model("vit_s16", size=SMALL, img_size=64, layer_scale=None, class_position=True)
    vit = with_order_one_weights(vit.double()).eval()
    model = with_order_one_weights(favor.create_model("dynamicvit_s16", size=SMALL, img_size=64, **settings).double())
    missing, unknown = model.load_state_dict(vit.state_dict(), strict=False)
    assert not unknown
    assert all("predictor" in name for name in missing)
    return vit, model


def test_keeping_all_patches_is_plain_vit() -> None:
    vit, model = pair(keep=1.0)
    model.eval()
    assert largest_difference(model(X), vit(X)) < 1e-10
    with mutated(model.blocks[1].mixer):
        assert largest_difference(model(X), vit(X)) > 1e-3


def test_in_training_certain_decisions_to_keep_are_plain_vit() -> None:
    vit, model = pair()
    for block in model.blocks[1:]:
        block.reducer.predictor.decide[-1].bias.data.copy_(torch.tensor([1e3, -1e3]))
    model.train()
    assert largest_difference(model(X), vit(X)) < 1e-10
    with mutated(model.blocks[1].mixer.proj):
        assert largest_difference(model(X), vit(X)) > 1e-3


def test_masked_attention_is_attention_over_the_kept_tokens_and_oneself() -> None:
    tokens = Tokens(2, 3, class_token=True)
    attention = with_order_one_weights(MaskedAttention(24, 3, tokens)).double()
    x = images(1, 7, 24, dtype=torch.float64)
    kept = torch.tensor([[1.0, 0.0, 0.0, 1.0, 1.0, 0.0]], dtype=torch.float64)
    y = attention.among(x, kept)
    for token in range(7):
        keys = sorted({0, 1, 4, 5, token})
        alone = Attention.forward(attention, x[:, keys])[:, keys.index(token)]
        assert largest_difference(y[:, token], alone) < 1e-10
    assert largest_difference(y, attention(x)) > 1e-3


def test_masked_attention_tells_a_dropped_patch_what_it_would_be_worth() -> None:
    attention = with_order_one_weights(MaskedAttention(24, 3, Tokens(2, 3, class_token=True)))
    kept = torch.tensor([[1.0, 0.0, 0.0, 1.0, 1.0, 0.0]], requires_grad=True)
    attention.among(images(1, 7, 24), kept)[:, 0].sum().backward()
    assert kept.grad is not None
    assert (kept.grad.abs() > 1e-6).all()


def test_the_sequence_shrinks_in_eval_and_not_in_training() -> None:
    x = images(1, 3, 224, 224)
    model = favor.create_model("dynamicvit_s16", size=Size(48, 12, 3))
    assert token_counts(model.eval(), x) == [197] * 3 + [138] * 3 + [97] * 3 + [68] * 3
    model = favor.create_model("dynamicvit_s16", size=Size(48, 12, 3))
    assert token_counts(model.train(), x) == [197] * 12


def test_the_patches_with_the_best_scores_stay() -> None:
    _, model = pair()
    reducer = model.eval().blocks[1].reducer
    x = images(1, 17, 48, dtype=torch.float64)
    scores = reducer.predictor(x[:, 1:], None)[0, :, 0]
    taken = reducer.before(x, Flow())[0, 1:]
    places = [int((x[0, 1:] == token).all(dim=-1).nonzero()) for token in taken]
    assert len(places) == 11
    assert scores[places].min() > scores[[place for place in range(16) if place not in places]].max()


def test_a_dropped_patch_stays_dropped() -> None:
    _, model = pair()
    torch.manual_seed(0)
    flow = Flow()
    x = images(4, 17, 48, dtype=torch.float64)
    before = torch.ones(4, 16, dtype=torch.float64)
    for block in model.train().blocks[1:]:
        block.reducer.before(x, flow)
        assert (flow.notes["kept"] <= before + 1e-6).all()
        before = flow.notes["kept"]
    assert before.mean() < 0.5


@pytest.mark.parametrize("weight", [2.0, 0.5])
def test_the_ratio_loss_is_the_squared_distance_to_the_wanted_shares(weight: float) -> None:
    _, model = pair() if weight == 2.0 else pair(ratio_weight=weight)
    for block in model.blocks[1:]:
        block.reducer.predictor.decide[-1].bias.data.copy_(torch.tensor([1e3, -1e3]))
    model.train()(X)
    expected = weight / 3 * sum((1 - share) ** 2 for share in (0.7, 0.49, 0.343))
    assert take_extra_losses(model)["ratio"].item() == pytest.approx(expected)
    assert take_extra_losses(model) == {}


def test_the_ratio_loss_falls_in_training() -> None:
    torch.manual_seed(0)
    model = create_miniature("dynamicvit_s16").train()
    optimizer = torch.optim.Adam(model.parameters(), lr=3e-3)
    losses = []
    for step in range(25):
        logits = model(images(8, 3, 64, 64, seed=step))
        ratio = take_extra_losses(model)["ratio"]
        loss = torch.nn.functional.cross_entropy(logits, torch.arange(8)) + ratio
        optimizer.zero_grad()
        loss.backward()
        optimizer.step()
        losses.append(float(ratio.detach()))
    assert sum(losses[-5:]) < 0.5 * sum(losses[:5])


def test_counts_are_those_of_the_benchmark() -> None:
    for size, expected in (("ti", 5_899_582), ("s", 22_774_414), ("b", 89_452_846)):
        with torch.device("meta"):
            model = favor.create_model(f"dynamicvit_{size}16")
        assert sum(parameter.numel() for parameter in model.parameters()) == expected
    assert count("dynamicvit_s16").macs_matmul == pytest.approx(2.9836e9, rel=0.005)
