"""What the answer advises to run: it must be able to decide."""

from collections.abc import Callable
from dataclasses import replace

import pandas as pd

from favor.analyze.guide import GuideEntry
from favor.analyze.limits import Limit
from favor.analyze.ranking import Request
from favor.analyze.recommend import recommend
from favor.study.targeted import question

WideTable = Callable[..., pd.DataFrame]


def trained(**top1: float) -> list[dict[str, object]]:
    return [{"name": name, "top1": value} for name, value in top1.items()]


def measured(name: str, task: str = "inference", **metrics: float) -> dict[str, object]:
    return {"name": name, "source": "measured", "task": task, "device": "cpu", "precision": "fp32", **metrics}


def test_training_times_are_measured_in_training(wide_table: WideTable) -> None:
    table = wide_table(*trained(fast=80.0, slow=82.0))
    answer = recommend(table, Request(prefer="training-time"))
    assert answer.next_steps[0] == "favor measure slow fast --study my-study --phase training"
    limited = recommend(table, Request("training-time", (Limit.named("max_latency", 0.1),)))
    assert limited.next_steps[0] == "favor measure slow fast --study my-study --phase both"


def test_own_training_steps_settle_the_advice(wide_table: WideTable) -> None:
    own = [measured("fast", "training", train_step_time=1.0), measured("slow", "training", train_step_time=2.0)]
    assert recommend(wide_table(*trained(fast=80.0, slow=82.0), *own), Request(prefer="training-time")).next_steps == ()


def test_a_model_that_is_too_slow_for_its_p99_gets_the_budget_that_is_enough(wide_table: WideTable) -> None:
    own = [measured("fast", latency_p50=0.05), measured("slow", latency_p50=0.5)]
    answer = recommend(wide_table(*trained(fast=80.0, slow=82.0), *own), Request(None, (Limit.named("max_p99", 0.6),)))
    # 368 calls of 0.5 s are 184 s, for which a measurement takes up to four budgets.
    assert answer.next_steps[0] == "favor measure slow fast --study my-study --budget 46 --repeat all"


def test_a_measured_model_is_measured_again_for_what_it_lacks(wide_table: WideTable) -> None:
    table = wide_table(*trained(fast=80.0, slow=82.0), measured("slow", throughput=9.0))
    limits = (Limit.named("max_memory", 2.0**30),)
    assert recommend(table, Request(None, limits)).next_steps[0].endswith("--study my-study --repeat all")
    untouched = recommend(wide_table(*trained(fast=80.0, slow=82.0)), Request(None, limits))
    assert "--repeat" not in untouched.next_steps[0]


def test_the_answer_says_how_long_measuring_takes(wide_table: WideTable) -> None:
    answer = recommend(wide_table(*trained(fast=80.0, slow=82.0)), Request(prefer="throughput"))
    assert answer.next_minutes == 2 * (10 + 3.5 * 20) / 60


def test_only_models_within_the_limits_that_measuring_does_not_change_are_to_be_measured(
    wide_table: WideTable,
) -> None:
    own = [measured("fast", latency_p50=0.05), measured("slow", latency_p50=0.5)]
    table = wide_table(*trained(fast=80.0, slow=82.0), *own)
    limits = (Limit.named("min_accuracy", 81.0), Limit.named("max_latency", 0.01))
    assert recommend(table, Request("throughput", limits)).next_steps[0].startswith("favor measure slow --study")
    assert recommend(table, Request("throughput", (Limit.named("min_accuracy", 83.0),))).next_steps == ()


def test_energy_needs_a_meter(wide_table: WideTable) -> None:
    answer = recommend(wide_table(*trained(fast=80.0, slow=82.0)), Request(prefer="energy"))
    assert any("favor doctor" in note for note in answer.notes)


def test_the_papers_front_is_said_to_be_the_papers(wide_table: WideTable) -> None:
    front = [GuideEntry("speed", "training", "baseline", "fast", "fast", 224)]
    answer = recommend(wide_table(*trained(fast=80.0, slow=82.0)), Request(prefer="training-time"), front)
    assert answer.headline == "Favored: fast (by the paper's A100 front)"


def test_the_users_own_device_is_named_again_and_that_of_others_is_not(wide_table: WideTable) -> None:
    own = [measured(name, **{"environment.host": "lab 3"}, throughput=9.0) for name in ("fast", "slow")]
    theirs = {"name": "fast", "source": "simulated", "device": "t4", "precision": "amp", "throughput": 900.0}
    table = wide_table(*trained(fast=80.0, slow=82.0), *own, theirs)
    again = {device: recommend(table, Request("latency", device=device)).next_steps[-1] for device in ("cpu", "t4")}
    assert again["cpu"] == "favor recommend --study my-study --prefer latency --device cpu"
    assert again["t4"] == "favor recommend --study my-study --prefer latency"
    on_host = recommend(table, Request("latency", device="lab 3")).next_steps[-1]
    assert on_host.endswith("--prefer latency --device 'lab 3'")


def test_the_question_that_is_to_be_measured_leaves_the_load_to_favor_load(wide_table: WideTable) -> None:
    table = wide_table({"name": "timm:fast", "top1": 80.0}, {"name": "timm:slow", "top1": 82.0})
    limits = (replace(Limit.named("qps", 20.0), p99=0.05), Limit.named("min_accuracy", 70.0))
    first, second, *_ = recommend(table, Request("throughput", limits)).next_steps
    assert first == 'favor measure --for "prefer=throughput min-accuracy=70" --among timm --study my-study'
    assert second.startswith("favor load timm:slow timm:fast --p99 50ms")
    assert question("prefer=throughput min-accuracy=70", "timm").prefer == "throughput"
