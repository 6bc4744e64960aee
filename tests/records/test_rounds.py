"""Models that were timed in turns are compared round by round."""

import pytest
from msgspec import structs

from favor.errors import RequestError
from favor.machine.stopping import quantile
from favor.records.rounds import against_the_fastest, pairs, rounds_text
from favor.records.schema import CardFields, Record


def in_turns(name, throughputs, stretch="one", busy="", **changes):
    environment = {"stretch": stretch, "round_throughput": rounds_text(throughputs), "busy_rounds": busy}
    return Record(name, CardFields(), "inference", "measured", environment=environment | changes)


def at_size(record, img_size):
    return structs.replace(record, conditions={"img_size": img_size})


LOAD = [1.0, 1.0, 0.4, 0.3, 0.5, 1.0, 0.9, 1.0]
A, B = [10.0 * load for load in LOAD], [12.0 * load for load in LOAD]


def test_ratios_are_known_better_than_either_model_on_a_machine_whose_load_changes():
    found = pairs(in_turns("a", A), in_turns("b", B))
    assert found.ratio == pytest.approx(1.2, rel=1e-4)
    assert found.interval == (pytest.approx(1.2, rel=1e-4), pytest.approx(1.2, rel=1e-4))
    alone = quantile([value for value, _ in found.values], 0.5)
    assert alone.high / alone.low > 2
    assert pairs(in_turns("b", B), in_turns("a", A)).ratio == pytest.approx(1 / 1.2, rel=1e-4)


def test_rounds_that_were_busy_for_either_model_do_not_count():
    a, b = in_turns("a", [10.0, 3.0, 10.0, 10.0], busy="2"), in_turns("b", [12.0, 12.0, 3.0, 12.0], busy="3")
    found = pairs(a, b)
    assert found.values == ((10.0, 12.0), (10.0, 12.0))
    assert found.interval is None


def test_a_model_that_dropped_out_is_compared_in_the_rounds_that_it_took_part_in():
    assert len(pairs(in_turns("a", A), in_turns("b", B[:3])).values) == 3


def test_models_of_two_stretches_or_without_rounds_have_no_pairs():
    alone = Record("b", CardFields(), "inference", "measured")
    assert pairs(in_turns("a", A), in_turns("b", B, stretch="two")) is None
    assert pairs(in_turns("a", A), alone) is None
    assert pairs(alone, alone) is None
    assert pairs(in_turns("a", A), in_turns("b", [])) is None


@pytest.mark.parametrize("text", ["12.1 twelve", "12.1 0", "nan", "inf 1"])
def test_a_list_of_rounds_that_is_none_is_refused_in_one_line(text):
    with pytest.raises(RequestError, match="environment.round_throughput of b is not a list of numbers above zero"):
        pairs(in_turns("a", A), in_turns("b", B, round_throughput=text))


def test_six_pairs_are_the_fewest_with_an_interval():
    a, b = [1.0] * 6, [1.0, 2.0, 3.0, 4.0, 5.0, 6.0]
    assert pairs(in_turns("a", a), in_turns("b", b)).interval == (1.0, 6.0)
    assert pairs(in_turns("a", a), in_turns("b", b[:5])).interval is None


def test_the_fastest_of_the_last_stretch_is_compared_with_each_other_one():
    older = [in_turns("a", A, "2026-01-01"), in_turns("z", [99.0] * 8, "2026-01-01")]
    last = [in_turns(name, values, "2026-01-02") for name, values in (("a", A), ("b", B), ("c", [9.0] * 8))]
    found = against_the_fastest([*older, *last])
    assert [(pair.b, pair.a) for pair in found] == [("b", "a"), ("b", "c")]
    assert found[0].ratio == pytest.approx(1.2, rel=1e-3)
    assert against_the_fastest([Record("b", CardFields(), "inference", "measured")]) == ()


def test_each_image_size_of_a_model_counts_and_a_size_that_took_no_turns_hides_none():
    alone = at_size(Record("a", CardFields(), "inference", "measured"), 384)
    rivals = [at_size(in_turns("a", A), 224), at_size(in_turns("b", B), 224)]
    assert [(pair.b, pair.a) for pair in against_the_fastest([*rivals, alone])] == [("b", "a")]
    twice = [*rivals, at_size(in_turns("a", [5.0 * load for load in LOAD]), 384)]
    compared = against_the_fastest(twice)
    assert [(pair.b, pair.a) for pair in compared] == [("b", "a@224"), ("b", "a@384")]
    assert [pair.ratio for pair in compared] == [pytest.approx(1.2, rel=1e-3), pytest.approx(2.4, rel=1e-3)]
