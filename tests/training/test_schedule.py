"""The schedule reaches exactly what it names; the optimizer is the one asked for and decays what it should."""

from itertools import pairwise

import pytest
import torch
from hypothesis import given
from hypothesis import strategies as st
from torch import nn

from favor.errors import RequestError
from favor.trace.optimizer import OPTIMIZERS, create_optimizer, parameter_groups
from favor.training.recipe import load_recipe
from favor.training.schedule import Schedule, schedule_of
from favor.zoo.registry import create_miniature

rates = st.floats(1e-9, 1.0)


@st.composite
def schedules(draw: st.DrawFn) -> Schedule:
    warmup, after = draw(st.integers(0, 300)), draw(st.integers(2, 3000))
    low, middle, high = sorted(draw(st.lists(rates, min_size=3, max_size=3)))
    return Schedule(peak=high, minimum=low, warmup_from=middle, warmup_steps=warmup, steps=warmup + after)


@given(schedules())
def test_the_peak_and_the_minimum_are_reached_exactly(schedule: Schedule) -> None:
    assert schedule.at(schedule.warmup_steps) == schedule.peak
    assert schedule.at(schedule.steps - 1) == schedule.minimum
    if schedule.warmup_steps:
        assert schedule.at(0) == schedule.warmup_from


@given(schedules())
def test_the_rate_rises_in_the_warm_up_falls_after_it_and_stays_within_what_is_named(schedule: Schedule) -> None:
    taken = [schedule.at(step) for step in range(schedule.steps)]
    rising, falling = taken[: schedule.warmup_steps + 1], taken[schedule.warmup_steps :]
    slack = 1e-12 * schedule.peak
    assert all(b >= a - slack for a, b in pairwise(rising))
    assert all(b <= a + slack for a, b in pairwise(falling))
    assert min(taken) >= min(schedule.minimum, schedule.warmup_from) - slack
    assert max(taken) <= schedule.peak + slack


def test_the_cosine_is_half_way_in_the_middle_and_the_warm_up_is_linear() -> None:
    schedule = Schedule(peak=1.0, minimum=0.2, warmup_from=0.1, warmup_steps=10, steps=111)
    assert schedule.at(60) == pytest.approx(0.6)
    assert schedule.at(35) == pytest.approx(0.2 + 0.8 * 0.5 * (1 + 0.5**0.5))
    assert [schedule.at(step) for step in (0, 5)] == pytest.approx([0.1, 0.55])


def test_a_constant_schedule_stays_at_the_peak_after_the_warm_up() -> None:
    schedule = Schedule(1e-3, 0.0, 0.0, warmup_steps=2, steps=6, shape="constant")
    assert [schedule.at(step) for step in range(6)] == [0.0, 5e-4, 1e-3, 1e-3, 1e-3, 1e-3]


@pytest.mark.parametrize(("warmup", "steps"), [(5, 5), (-1, 5), (0, 0), (4, 5)])
def test_a_schedule_without_room_for_its_peak_and_minimum_is_refused(warmup: int, steps: int) -> None:
    with pytest.raises(RequestError, match="schedule of"):
        Schedule(1.0, 0.1, 0.0, warmup_steps=warmup, steps=steps)


def test_the_schedule_of_a_recipe_has_its_peak_after_its_warm_up_and_its_minimum_at_the_end() -> None:
    schedule = schedule_of(load_recipe("deit3-pretrain"), steps_per_epoch=7)
    assert (schedule.at(0), schedule.at(35), schedule.at(90 * 7 - 1)) == (1e-6, 3e-3, 1e-5)
    assert schedule.steps == 630


@pytest.mark.parametrize("step", [-1, 6])
def test_a_step_outside_of_the_schedule_is_refused(step: int) -> None:
    with pytest.raises(RequestError, match="count from 0"):
        Schedule(1.0, 0.1, 0.0, warmup_steps=2, steps=6).at(step)


class Small(nn.Module):
    def __init__(self) -> None:
        super().__init__()
        self.linear, self.norm = nn.Linear(4, 4), nn.LayerNorm(4)
        self.positions = nn.Parameter(torch.ones(1, 3, 4))
        self.frozen = nn.Parameter(torch.ones(2, 2), requires_grad=False)

    def no_weight_decay(self) -> set[str]:
        return {"positions"}


def test_norms_biases_and_exempt_parameters_are_not_decayed_and_frozen_ones_not_touched() -> None:
    model = Small()
    decayed, kept = parameter_groups(model, 0.1)
    assert decayed["weight_decay"] == 0.1
    assert kept["weight_decay"] == 0.0
    assert {id(p) for p in decayed["params"]} == {id(model.linear.weight)}
    others = (model.linear.bias, model.norm.weight, model.norm.bias, model.positions)
    assert {id(p) for p in kept["params"]} == {id(p) for p in others}


@pytest.mark.parametrize("name", OPTIMIZERS)
def test_the_optimizer_asked_for_is_the_one_used(name: str) -> None:
    optimizer = create_optimizer(
        parameter_groups(Small(), 0.1), name, lr=0.25, eps=1e-7, betas=(0.8, 0.9), momentum=0.7
    )
    assert type(optimizer).__name__.lower() == name
    group = optimizer.param_groups[0]
    assert group["lr"] == 0.25
    if name == "sgd":
        assert group["momentum"] == 0.7
    else:
        assert (group["eps"], tuple(group["betas"])) == (1e-7, (0.8, 0.9))


def test_lamb_does_not_clip_gradients_behind_the_recipes_back() -> None:
    assert create_optimizer(parameter_groups(Small(), 0.1), "lamb", lr=1.0).param_groups[0]["max_grad_norm"] is None


def test_an_unknown_optimizer_is_answered_with_the_closest() -> None:
    with pytest.raises(RequestError, match="did you mean 'lamb'"):
        create_optimizer(parameter_groups(Small(), 0.0), "lambs", lr=1.0)


def test_a_model_with_nothing_to_train_is_refused() -> None:
    with pytest.raises(RequestError, match="nothing to train"):
        parameter_groups(nn.Identity(), weight_decay=0.0)


def test_positions_and_the_class_token_of_the_shell_are_not_decayed() -> None:
    model = create_miniature("vit_s16")
    names = {id(parameter): name for name, parameter in model.named_parameters()}
    decayed, kept = ({names[id(p)] for p in group["params"]} for group in parameter_groups(model, 0.1))
    assert {"class_token", "positions.weight", "norm.weight", "head.bias"} <= kept
    assert {"head.weight", "patch_embed.proj.weight", "blocks.0.mlp.fc1.weight"} <= decayed
