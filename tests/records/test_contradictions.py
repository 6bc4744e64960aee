"""Results that contradict each other are flagged with the reason, and only as long as they do."""

import pytest
from msgspec.structs import replace

from favor.records.contradictions import flagged, measurements_that_count
from favor.records.counted import counted_records
from favor.records.schema import CardFields, Record, reading
from favor.records.store import read

CONDITIONS = {"img_size": 224, "num_classes": 1000, "device": "cpu", "precision": "fp32", "batch": "best"}
COUNTS = {record.name: record.metrics for record in counted_records()}


def measured(
    name="vit_s16", spread=0.02, method="exact: made up", task="inference", conditions=CONDITIONS, busy=False, **values
):
    found = {"throughput": 12.0, "latency_p50": 0.1, "best_batch_size": 4.0, "inference_memory": 93e6} | values
    metrics = {
        metric: reading(metric, value, value * (1 - spread), value * (1 + spread), method=method)
        for metric, value in found.items()
    }
    return Record(
        name=name,
        model=CardFields(family=name.partition("_")[0]),
        task=task,
        source="measured",
        conditions=conditions,
        metrics=metrics,
        environment={"flags": "latency:wide busy" if busy else "latency:wide", "host": "a"},
    )


def flags(*records):
    return [record.environment["flags"].removeprefix("latency:wide").split() for record in flagged(records)]


def test_plausible_results_keep_their_flags_and_get_no_more():
    plausible = measured()
    assert flagged([plausible]) == (plausible,)


def test_less_at_the_best_batch_than_single_images_reach_is_a_contradiction_with_a_reason():
    [found] = flagged([measured(latency_p50=0.104, throughput=1.79)])
    assert found.environment["flags"] == "latency:wide throughput:contradictory"
    reason = "1.79 img/s at the best batch size is less than single images reach (104 ms each)"
    assert found.environment["contradictions"] == reason


def test_an_image_that_takes_longer_than_a_whole_batch_is_a_contradiction():
    [found] = flagged([measured(latency_p50=0.597, throughput=15.6)])
    assert "latency:contradictory" in found.environment["flags"].split()
    assert "597 ms for one image is longer than a batch of 4 takes at 15.6 img/s" in found.environment["contradictions"]


def test_within_the_intervals_nothing_contradicts():
    assert flags(measured(latency_p50=0.1, throughput=7.5)) == [["throughput:contradictory"]]
    assert flags(measured(latency_p50=0.1, throughput=7.5, spread=0.1)) == [[]]


def test_throughput_of_a_given_batch_size_may_be_lower():
    given = CONDITIONS | {"batch": "given", "batch_size": 64}
    assert flags(measured(throughput=1.0, conditions=given)) == [[]]


def test_a_larger_model_of_the_family_that_is_faster_flags_both():
    records = measured("vit_s16", throughput=12.0), measured("vit_ti16", throughput=9.0, inference_memory=25e6)
    assert flags(*records) == [["throughput:contradictory"], ["throughput:contradictory"]]
    reason = "vit_s16 (3.7 times the multiply-adds) is faster than vit_ti16: 12 img/s against 9 img/s"
    assert {record.environment["contradictions"] for record in flagged(records)} == {reason}


def test_the_counts_of_another_image_size_say_nothing_of_a_model():
    counted = next(record for record in counted_records() if record.name == "vit_ti16")
    larger = replace(
        counted,
        conditions={**counted.conditions, "img_size": 512},
        metrics=counted.metrics | {"macs": reading("macs", 1e11, method="made up")},
    )
    records = measured("vit_s16", throughput=12.0), measured("vit_ti16", throughput=9.0, inference_memory=1e6)
    assert flagged([*records, larger])[:2] == flagged(records)
    assert flags(*records) == [
        ["throughput:contradictory"],
        ["inference_memory:contradictory", "throughput:contradictory"],
    ]


def test_no_order_is_expected_of_other_families_machines_conditions_or_overlapping_intervals():
    small = {"throughput": 9.0, "inference_memory": 25e6}
    assert flags(measured("swin_ti", inference_memory=130e6), measured("vit_ti16", **small)) == [[], []]
    other_size = measured("vit_ti16", conditions=CONDITIONS | {"img_size": 384}, **small)
    assert flags(measured("vit_s16"), other_size) == [[], []]
    near = small | {"throughput": 11.8}
    assert flags(measured("vit_s16"), measured("vit_ti16", **near)) == [[], []]


def test_a_measurement_that_resolves_the_contradiction_ends_both_flags():
    wrong = measured("vit_ti16", throughput=9.0, inference_memory=25e6)
    right = measured("vit_ti16", throughput=37.0, latency_p50=0.03, inference_memory=25e6)
    assert flags(measured("vit_s16"), wrong, right) == [[], [], []]


def test_of_repeated_measurements_the_one_in_the_table_is_judged_and_a_busy_one_is_not():
    contradictory = measured(latency_p50=0.104, throughput=1.79)
    assert flags(contradictory, measured(busy=True)) == [["throughput:contradictory"], ["busy"]]
    small = {"name": "vit_ti16", "inference_memory": 25e6, "latency_p50": 0.03}
    sane, slowed = (
        measured(throughput=37.0, **small),
        measured(throughput=5.0, latency_p50=0.2, busy=True, name="vit_ti16"),
    )
    assert flags(measured(), sane, slowed) == [[], [], ["busy"]]
    assert flags(measured(), slowed)[0] == ["throughput:contradictory"]


def test_a_repetition_that_found_another_batch_is_the_same_measurement():
    searched = [CONDITIONS | {"batch": "best", "micro_batch_size": size} for size in (8, 16)]
    before, after = (measured(task="training", conditions=conditions) for conditions in searched)
    busy = measured(task="training", conditions=searched[1], busy=True)
    assert measurements_that_count([before, after]) == (1,)
    assert measurements_that_count([before, busy]) == measurements_that_count([before]) == (0,)


@pytest.mark.parametrize(("memory", "is_flagged"), [(40e6, True), (93e6, False), (140e6, True)])
def test_exact_memory_below_the_weights_or_above_all_activations_is_a_contradiction(memory, is_flagged):
    weights, activations = (COUNTS["vit_s16"][name].value for name in ("weight_bytes", "activations"))
    assert 40e6 < weights < 93e6 < weights + 4 * activations < 140e6
    assert flags(measured(inference_memory=memory)) == [["inference_memory:contradictory"] if is_flagged else []]


def test_memory_that_is_not_exact_or_not_of_the_counted_network_is_not_judged():
    assert flags(measured(inference_memory=1e6, method="the driver's")) == [[]]
    assert flags(measured(inference_memory=1e6, conditions=CONDITIONS | {"precision": "bf16"})) == [[]]
    assert flags(measured(inference_memory=1e6, conditions=CONDITIONS | {"num_classes": 10})) == [[]]


def test_the_study_that_ships_with_favor_contradicts_itself_nowhere():
    records = read("example:cpu").records
    assert len(records) > 90
    own = tuple(Record(**{**_fields(record), "source": "measured", "provenance": {}}) for record in records)
    assert flagged(own) == own


def _fields(record):
    return {name: getattr(record, name) for name in record.__struct_fields__}
