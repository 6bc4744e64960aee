"""Decisions under load: measured loads, estimates where there are none, and breakpoints of curves."""

from collections.abc import Callable
from dataclasses import dataclass

import pandas as pd
import pytest

from favor.analyze.limits import Limit, under_load
from favor.analyze.load_curves import LoadCurve, compare_loads, curve_at, gains_end
from favor.analyze.load_estimate import at_load, predicted_load
from favor.analyze.ranking import Request
from favor.analyze.recommend import recommend
from favor.errors import RequestError

WideTable = Callable[..., pd.DataFrame]
AT_20 = Limit("qps", "max_qps", "min", 20.0, p99=0.05)


def load(name: str, qps: float, limit: float = 0.05, **more: object) -> dict[str, object]:
    conditions = {"device": "cpu", "precision": "fp32", "runtime": "eager", "scenario": "server", "p99_limit": limit}
    return {"name": name, "source": "measured", "task": "load", "max_qps": qps, **conditions, **more}


def served(name: str, latency: float, throughput: float, batch: int) -> dict[str, object]:
    speed = {"latency_p50": latency, "throughput": throughput, "best_batch_size": batch}
    return {"name": name, "source": "measured", "task": "inference", "device": "cpu", "precision": "fp32", **speed}


@pytest.fixture
def zoo(wide_table: WideTable) -> pd.DataFrame:
    accuracies = {"best": 85.0, "good": 83.0, "fast": 80.0}
    rows = [{"name": name, "top1": top1} for name, top1 in accuracies.items()]
    rows += [
        load("best", 5.0, max_qps_low=4.9, max_qps_high=5.1),
        load("good", 30.0, max_qps_low=29.0, max_qps_high=31.0),
    ]
    return wide_table(*rows, load("fast", 90.0, max_qps_low=88.0, max_qps_high=92.0))


def test_the_most_accurate_model_that_serves_the_load_is_favored(zoo: pd.DataFrame) -> None:
    answer = recommend(zoo, Request(limits=(AT_20,)))
    assert answer.favored is not None
    assert answer.favored.name == "good"
    assert answer.favored.metrics["max_qps"].source == "measured"
    assert answer.why is not None
    assert [(binding.option, binding.instead) for binding in answer.why.binding] == [("qps", "best")]
    assert answer.to_dict()["limits"][0]["tested"] == "the largest load with 99 % of the answers within 50.0 ms"


def test_loads_at_another_limit_or_in_another_scenario_do_not_decide(zoo: pd.DataFrame) -> None:
    answer = recommend(zoo, Request(limits=(Limit("qps", "max_qps", "min", 20.0, p99=0.04),)))
    assert answer.favored is None
    assert "qps cannot be checked: no numbers for max_qps" in answer.undecided[0]
    assert answer.next_steps[0] == "favor load best good fast --p99 40ms --study my-study"
    offline = zoo.assign(scenario=zoo["scenario"].replace("server", "offline"))
    assert recommend(offline, Request(limits=(AT_20,))).favored is None


def test_under_load_each_model_is_considered_in_its_best_runtime(wide_table: WideTable) -> None:
    eager, faster = load("good", 10.0), load("good", 40.0, runtime="openvino")
    answer = recommend(wide_table({"name": "good", "top1": 83.0}, eager, faster), Request(limits=(AT_20,)))
    assert answer.favored is not None
    assert (answer.favored.name, answer.favored.runtime) == ("good", "openvino")
    assert answer.favored.metrics["max_qps"].value == 40.0


def test_a_quantized_model_of_unknown_accuracy_never_decides_under_load(wide_table: WideTable) -> None:
    rows = [{"name": name, "top1": top1} for name, top1 in (("good", 83.0), ("fast", 80.0))]
    loads = load("good", 40.0, runtime="openvino", precision="int8"), load("fast", 40.0)
    answer = recommend(wide_table(*rows, *loads), Request(limits=(AT_20,)))
    assert answer.favored is not None
    assert (answer.favored.name, answer.favored.runtime) == ("fast", "eager")


def test_what_to_run_next_is_in_the_runtime_that_was_asked_for(zoo: pd.DataFrame) -> None:
    answer = recommend(zoo, Request(limits=(AT_20,), runtime="openvino"))
    assert answer.next_steps[0] == "favor load best good fast --p99 50ms --study my-study --runtime openvino"


def test_a_model_that_serves_no_rate_at_all_is_left_out_without_trouble(wide_table: WideTable) -> None:
    rows = [{"name": name, "top1": top1} for name, top1 in (("slow", 85.0), ("good", 83.0))]
    loads = [
        load("slow", 0.0, max_qps_low=0.0, max_qps_high=0.0),
        load("good", 30.0, max_qps_low=29.0, max_qps_high=31.0),
    ]
    answer = recommend(wide_table(*rows, *loads), Request(limits=(AT_20,)))
    assert answer.favored is not None
    assert answer.favored.name == "good"


def test_where_only_service_times_are_known_the_estimate_decides_and_is_marked(wide_table: WideTable) -> None:
    rows = [{"name": name, "top1": top1} for name, top1 in (("slow", 85.0), ("good", 83.0))]
    times = [served("slow", 0.045, 25.0, 2), served("good", 0.010, 150.0, 4)]
    answer = recommend(wide_table(*rows, *times), Request(limits=(AT_20,)))
    assert answer.favored is not None
    assert answer.favored.name == "good"
    assert answer.favored.metrics["max_qps"].source == "predicted"
    assert any("estimated by queueing theory" in note and "good" in note for note in answer.notes)
    assert answer.next_steps[0] == "favor load good --p99 50ms --study my-study"


def test_a_measured_load_goes_before_the_estimate(wide_table: WideTable) -> None:
    rows = [{"name": name, "top1": top1} for name, top1 in (("one", 85.0), ("two", 83.0))]
    times = [served("one", 0.010, 150.0, 4), served("two", 0.010, 150.0, 4)]
    answer = recommend(wide_table(*rows, *times, load("one", 12.0)), Request(limits=(AT_20,)))
    assert answer.favored is not None
    assert answer.favored.name == "two"


def test_an_estimate_keeps_the_machine_of_its_service_times(wide_table: WideTable) -> None:
    times = [served("a", 0.010, 150.0, 4) | {"machine": "here"}, served("untrained", 0.010, 150.0, 4)]
    table = at_load(wide_table({"name": "a", "top1": 80.0}, *times), [AT_20])
    (row,) = table[table["source"] == "predicted"].to_dict("records")
    assert (row["machine"], row["p99_limit"], row["scenario"]) == ("here", 0.05, "server")
    assert row["max_qps"] == 80.0 < predicted_load(0.010, 150.0, 4, 0.05)  # four times what is asked for


def test_loads_are_estimated_up_to_what_is_enough() -> None:
    load = predicted_load(0.010, 150.0, 4, 0.05)
    assert predicted_load(0.010, 150.0, 4, 0.05, enough=2 * load) == pytest.approx(load, rel=0.01)
    assert predicted_load(0.010, 150.0, 4, 0.05, enough=0.5 * load) == 0.5 * load


def test_an_estimate_from_simulated_times_is_in_their_setting(wide_table: WideTable) -> None:
    rows = [{"name": name, "top1": top1} for name, top1 in (("one", 85.0), ("two", 83.0))]
    simulated = {"source": "simulated", "device": "t4", "machine": "NVIDIA T4", "environment.device_name": "NVIDIA T4"}
    times = [served("one", 0.045, 25.0, 2) | simulated, served("two", 0.010, 150.0, 4) | simulated]
    answer = recommend(wide_table(*rows, *times), Request("throughput", (AT_20,), device="t4"))
    assert not answer.undecided
    assert answer.favored is not None
    assert answer.favored.name == "two"
    assert answer.favored.metrics["max_qps"].source == "predicted"


def test_single_images_that_vary_leave_less_room() -> None:
    steady, varying = (predicted_load(0.010, 150.0, 4, 0.05, p99) for p99 in (0.010, 0.030))
    assert 0 < varying < steady
    assert predicted_load(0.010, 150.0, 4, 0.05, latency_p99=0.06) == 0.0


def test_a_load_needs_the_latency_it_has_to_keep() -> None:
    with pytest.raises(RequestError, match="--qps needs a latency limit .* add --max-p99"):
        under_load([Limit.named("qps", 20.0)])
    (limit,) = under_load([Limit.named("max_p99", 0.05), Limit.named("qps", 20.0)])
    assert limit == AT_20
    assert Request(limits=(limit,)).options() == ["--qps 20", "--max-p99 50ms"]


@dataclass(frozen=True)
class Batch:
    batch_size: int
    throughput: float

    @property
    def latency(self) -> float:
        return self.batch_size / self.throughput


@dataclass(frozen=True)
class Rate:
    rate: float
    p99: float
    largest_batch: int = 4
    longest_wait: float = 0.0
    answers: int = 100
    p50: float = 0.001
    p90: float = 0.002


def curve(name: str, throughputs: dict[int, float], p99: dict[float, float]) -> LoadCurve:
    batches = tuple(Batch(*each) for each in throughputs.items())
    return LoadCurve(name, max(p99), None, None, 4, 0.0, tuple(Rate(*each) for each in p99.items()), batches)


@pytest.mark.parametrize(
    ("throughputs", "ends"),
    [((10, 18, 30, 31), 4), ((10, 18, 30, 40), None), ((10, 9, 8), 1), ((10,), None), ((10, 10.3, 10.6, 10.9), 4)],
)
def test_gains_end_at_the_batch_that_no_larger_one_beats_by_more_than_5_percent(throughputs, ends) -> None:
    assert gains_end([Batch(2**at, value) for at, value in enumerate(throughputs)]) == ends


def test_models_change_places_where_the_other_one_leads_clearly() -> None:
    single = curve("single", {1: 20, 2: 24, 4: 25}, {10: 0.01, 20: 0.02, 24: 0.2})
    batched = curve("batched", {1: 10, 2: 24.5, 4: 50}, {10: 0.03, 20: 0.03, 40: 0.05})
    compared = compare_loads("cpu", "server", 0.05, [single, batched])
    assert [one.name for one in compared.curves] == ["batched", "single"]
    found = {(change.by, change.before, change.after, change.at) for change in compared.changes}
    assert found == {("throughput", "single", "batched", 4.0), ("p99", "single", "batched", 24.0)}


def test_a_lead_that_one_probe_reverses_for_a_moment_is_no_change_of_places() -> None:
    steady = curve("steady", {1: 20, 2: 24, 4: 30}, {10: 0.01, 20: 0.01, 30: 0.01, 40: 0.01})
    noisy = curve("noisy", {1: 10, 2: 26, 4: 20}, {10: 0.02, 20: 0.005, 30: 0.02, 40: 0.005})
    (change,) = compare_loads("cpu", "server", 0.05, [steady, noisy]).changes
    assert (change.by, change.before, change.after, change.at) == ("p99", "steady", "noisy", 40.0)


def test_models_that_are_equal_within_5_percent_do_not_change_places() -> None:
    one = curve("one", {1: 10, 2: 20.5, 4: 40}, {10: 0.0102, 20: 0.02})
    other = curve("other", {1: 10.2, 2: 20, 4: 40.3}, {10: 0.01, 20: 0.0204})
    assert compare_loads("cpu", "server", 0.05, [one, other]).changes == ()


def test_the_curve_of_a_batching_has_each_rate_once_with_the_most_answers() -> None:
    points = [Rate(20, 0.02), Rate(10, 0.01, answers=5), Rate(10, 0.011), Rate(15, 0.01, largest_batch=8)]
    assert [(point.rate, point.p99) for point in curve_at(points, 4, 0.0)] == [(10, 0.011), (20, 0.02)]
