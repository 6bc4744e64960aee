"""Switch sends each token to one expert; one expert is the MLP."""

import pytest
import torch

import favor
from equality import images, largest_difference, mutated, with_order_one_weights
from favor.errors import RequestError
from favor.trace.counts import count
from favor.zoo.encoder import Size
from favor.zoo.mlp.switch import SwitchMlp
from favor.zoo.registry import create_miniature
from favor.zoo.training import take_extra_losses

SMALL = Size(48, 4, 3)


def switch_mlp(experts: int = 4) -> SwitchMlp:
    return with_order_one_weights(SwitchMlp(24, 32, experts)).double().eval()


@pytest.mark.parametrize("training", [False, True])
def test_one_expert_is_plain_vit(training: bool) -> None:
    vit = with_order_one_weights(favor.create_model("vit_s16", size=SMALL, img_size=64).double())
    model = favor.create_model("switch_8_s16", size=SMALL, img_size=64, experts=1).double().train(training)
    state = {name.replace(".mlp.", ".mlp.experts.0."): weight for name, weight in vit.state_dict().items()}
    missing, unknown = model.load_state_dict(state, strict=False)
    assert not unknown
    assert all("router" in name for name in missing)
    x = images(2, 3, 64, 64, dtype=torch.float64)
    assert largest_difference(model(x), vit(x)) < 1e-10
    with mutated(model.blocks[1].mlp.experts[0]):
        assert largest_difference(model(x), vit(x)) > 1e-3


def test_each_token_gets_its_most_probable_expert_times_the_probability() -> None:
    mlp = switch_mlp()
    x = images(3, 17, 24, dtype=torch.float64)
    y = mlp(x)
    used = set()
    for image in range(3):
        for token in range(17):
            vector = x[image, token]
            gate, expert = mlp.router(vector).softmax(dim=-1).max(dim=-1)
            used.add(int(expert))
            assert largest_difference(y[image, token], gate * mlp.experts[int(expert)](vector)) < 1e-10
    assert used == {0, 1, 2, 3}
    with mutated(mlp.experts[2]):
        assert largest_difference(mlp(x), y) > 1e-3


def test_an_expert_takes_no_more_than_its_capacity_in_training_and_all_in_eval() -> None:
    mlp = switch_mlp()
    with torch.no_grad():
        mlp.router.weight.zero_()
        mlp.router.bias.copy_(torch.tensor([0.0, 9.0, 0.0, 0.0]))
    x = images(2, 16, 24, dtype=torch.float64)
    served = (mlp.train()(x) != 0).any(dim=-1).flatten()
    assert served.tolist() == [True] * 10 + [False] * 22  # 1.25 * 32 / 4, the first come
    assert (mlp.eval()(x) != 0).any(dim=-1).all()


def test_the_balance_loss_is_its_weight_when_balanced_and_as_many_times_more_as_there_are_experts_at_worst() -> None:
    mlp = switch_mlp().train()
    with torch.no_grad():
        mlp.router.weight.zero_()
        mlp.router.bias.zero_()
    mlp(images(2, 16, 24, dtype=torch.float64))
    assert take_extra_losses(mlp)["balance"].item() == pytest.approx(0.01)
    with torch.no_grad():
        mlp.router.bias[1] = 100.0
    mlp(images(2, 16, 24, dtype=torch.float64))
    assert take_extra_losses(mlp)["balance"].item() == pytest.approx(0.04)


def test_capacity_and_the_weight_of_the_balance_loss_are_settings() -> None:
    model = create_miniature("switch_8_s16", capacity=2.0, balance=1.0).train()
    mlp = model.blocks[0].mlp
    with torch.no_grad():
        mlp.router.weight.zero_()
        mlp.router.bias.copy_(torch.tensor([0.0, 99.0, 0.0, 0.0]))
    served = (mlp(images(2, 16, 48)) != 0).any(dim=-1).sum()
    assert served == 16  # 2 * 32 / 4
    assert take_extra_losses(mlp)["balance"].item() == pytest.approx(4.0)


def test_the_balance_loss_falls_in_training() -> None:
    torch.manual_seed(0)
    model = create_miniature("switch_8_s16").train()
    for block in model.blocks:
        block.mlp.router.bias.data[0] = 0.5
    optimizer = torch.optim.Adam(model.parameters(), lr=3e-3)
    losses = []
    for step in range(20):
        logits = model(images(4, 3, 64, 64, seed=step))
        balance = take_extra_losses(model)["balance"]
        loss = torch.nn.functional.cross_entropy(logits, torch.arange(4)) + balance
        optimizer.zero_grad()
        loss.backward()
        optimizer.step()
        losses.append(float(balance.detach()))
    least = 0.04  # four balanced blocks
    assert min(losses) >= 0.97 * least
    assert sum(losses[-3:]) - 3 * least < 0.5 * (sum(losses[:3]) - 3 * least)


def test_experts_start_small() -> None:
    torch.manual_seed(0)
    model = favor.create_model("switch_8_s16", size=Size(192, 1, 3), img_size=64)
    expert = model.blocks[0].mlp.experts[3]
    assert expert.fc1.weight.std().item() == pytest.approx((0.1 / 192) ** 0.5, rel=0.05)
    assert expert.fc2.weight.std().item() == pytest.approx((0.1 / 768) ** 0.5, rel=0.05)


def test_routing_noise_is_only_in_training() -> None:
    mlp = switch_mlp()
    x = images(2, 16, 24, dtype=torch.float64)
    assert torch.equal(mlp(x), mlp(x))
    assert not torch.equal(mlp.train()(x), mlp(x))


def test_tensors_without_values_are_routed_evenly() -> None:
    with torch.device("meta"):
        mlp, x = SwitchMlp(24, 32, 8), torch.empty(1, 197, 24)
    sizes: list[int] = []
    for expert in mlp.experts:
        expert.register_forward_hook(lambda module, inputs, output: sizes.append(len(output)))
    assert mlp(x).shape == x.shape
    assert sizes == [25] * 5 + [24] * 3


def test_no_expert_is_refused() -> None:
    with pytest.raises(RequestError, match="experts of switch_8_s16 is a whole number of 1 or more, not 0"):
        favor.create_model("switch_8_s16", size=SMALL, experts=0)


def test_counts_are_those_of_the_benchmark() -> None:
    for size, expected in (("ti", 30_593_608), ("s", 121_348_168), ("b", 483_343_432)):
        with torch.device("meta"):
            model = favor.create_model(f"switch_8_{size}16")
        assert sum(parameter.numel() for parameter in model.parameters()) == expected
    assert count("switch_8_s16").macs_matmul == pytest.approx(4.6108e9, rel=0.005)
    assert "routing" in favor.create_model("switch_8_s16", size=SMALL, img_size=64).operating_point
