"""What a step costs decides how it is cut and how many of them fit; the clocks survive a resume."""

import pytest
from hypothesis import given
from hypothesis import strategies as st

from favor.data.loader import BatchPlan, Share
from favor.errors import RequestError, WorkError
from favor.training.clocks import Clocks
from favor.training.recipe import load_recipe
from favor.training.request import TrainingRequest
from favor.training.schedule import schedule_of
from favor.training.state import Readings, Survey
from favor.training.survey import fitting_steps, needed_accumulation


def costs(step: float, evaluation: float) -> Survey:
    unknown = {f"{name}_{end}": None for name in ("step_time", "end_to_end") for end in ("low", "high")}
    known = {"step_time": step, "end_to_end": step, "evaluation_time": evaluation, "accumulation": 1}
    return Survey(**known, **unknown, idle=0.0, memory=0, memory_method="")  # type: ignore[arg-type]


@given(st.floats(0.01, 10.0), st.floats(0.0, 50.0), st.integers(1, 40), st.floats(1.0, 1000.0))
def test_the_steps_that_fit_do_fit_and_one_more_would_not(
    step: float, evaluation: float, per_epoch: int, budget: float
) -> None:
    def seconds(steps: int) -> float:
        return steps * step + -(-steps // per_epoch) * evaluation

    steps = fitting_steps(budget, costs(step, evaluation), per_epoch)
    assert steps == 0 or seconds(steps) <= budget * (1 + 1e-9)
    assert seconds(steps + 1) > budget * (1 - 1e-9)


@given(st.sampled_from([1, 2]), st.integers(1, 64), st.floats(0, 100), st.floats(0.1, 10), st.floats(1, 1000))
def test_the_fewest_micro_batches_that_fit_are_taken(
    processes: int, share: int, fixed: float, per_image: float, room: float
) -> None:
    plan = BatchPlan(10_000, share * processes, share=Share(0, processes))
    fitting = [
        parts for parts in range(1, share + 1) if share % parts == 0 and fixed + per_image * (share // parts) <= room
    ]
    if fitting:
        assert needed_accumulation(plan, (fixed, per_image, room)) == min(fitting)
    else:
        with pytest.raises(WorkError, match="not even one image fits"):
            needed_accumulation(plan, (fixed, per_image, room))


def test_a_schedule_fitted_to_other_steps_keeps_its_peak_its_minimum_and_the_share_of_its_warm_up() -> None:
    recipe = load_recipe("laptop-digits", ["epochs=40"])
    whole, short = schedule_of(recipe, 20), schedule_of(recipe, 20, steps=80)
    assert (whole.steps, whole.warmup_steps) == (800, 40)
    assert (short.steps, short.warmup_steps) == (80, 4)
    assert (short.at(4), short.at(79)) == (recipe.lr, recipe.min_lr)


class Hand:
    """A clock that the test turns."""

    def __init__(self) -> None:
        self.time = 0.0

    def now(self) -> float:
        return self.time


def test_the_three_clocks_count_their_own_and_go_on_from_what_they_showed() -> None:
    hand = Hand()
    clocks = Clocks(Readings(training=100.0, evaluation=10.0, program=200.0), hand)
    with clocks.training():
        hand.time += 5.0
    hand.time += 1.0
    with clocks.evaluation():
        hand.time += 2.0
    assert clocks.read() == Readings(training=105.0, evaluation=12.0, program=208.0, training_total=105.0)


@pytest.mark.parametrize(("total", "after"), [(100.0, 110.0), (400.0, 410.0), (None, 210.0)])
def test_the_training_clock_is_summed_over_the_processes_that_each_part_of_a_run_had(
    total: float | None, after: float
) -> None:
    hand = Hand()
    clocks = Clocks(Readings(training=100.0, training_total=total), hand, processes=2)
    with clocks.training():
        hand.time += 5.0
    assert (clocks.read().training, clocks.read().training_total) == (105.0, after)


@pytest.mark.parametrize(
    ("option", "value"),
    [("threads", 0), ("workers", -1), ("accumulation", 0), ("minutes", 0.0), ("minutes", float("inf"))],
)
def test_a_number_out_of_range_is_refused(option: str, value: float) -> None:
    with pytest.raises(RequestError, match=f"--{option}"):
        TrainingRequest("vit_s16", load_recipe("laptop-digits"), "digits", **{option: value})  # type: ignore[arg-type]
