"""The benchmark's accuracies belong to the configurations that it trained; those have names with settings."""

from collections.abc import Callable

import pandas as pd
import pytest

from favor.analyze.comparison import Comparison, Scope
from favor.analyze.deviations import benchmark_configurations, deviations, known_deviations
from favor.analyze.ranking import Request
from favor.analyze.recommend import recommend
from favor.analyze.selection import fitting
from favor.analyze.trained_as import trained_as, with_benchmark_rows
from favor.errors import RequestError
from favor.trace.counts import count
from favor.zoo.registry import card

WideTable = Callable[..., pd.DataFrame]
SCOPE = Scope("imagenet-1k")


@pytest.mark.parametrize("name", sorted(set(trained_as()) & set(benchmark_configurations())))
def test_a_configuration_has_the_parameters_and_the_work_of_the_benchmark_s(name: str) -> None:
    theirs, ours = benchmark_configurations()[name], count(trained_as()[name])
    assert ours.params == theirs.params
    assert ours.macs_matmul == pytest.approx(theirs.macs, rel=0.002)


def test_each_of_the_seven_deviating_configurations_has_a_name_with_settings() -> None:
    assert {name.removesuffix("_s16") for name in trained_as() if name.endswith("_s16")} == {
        *("dynamicvit", "evit", "evit_fuse", "informer", "linformer", "tokenlearner_8_50", "tokenlearner_8_75")
    }


def test_every_configuration_is_spelled_as_records_spell_it_and_differs_from_the_zoo_s() -> None:
    assert {known for known in trained_as().values() if card(known).name != known} == set()
    assert set(trained_as()) < set(known_deviations())
    assert not set(trained_as()) & set(trained_as().values())


def test_a_record_of_the_trained_configuration_has_the_published_accuracy_and_is_not_flagged(
    wide_table: WideTable,
) -> None:
    table = wide_table(
        {"name": "evit_s16", "top1": 82.29},
        {"name": "vit_s16", "top1": 81.0},
        {"name": "evit_s16(keep=1)", "source": "measured", "params": 22_050_664.0, "num_classes": 1000},
        {"name": "evit_s16(keep=0.5)", "source": "measured", "params": 22_050_664.0, "num_classes": 1000},
    )
    rows = Comparison(table, SCOPE).compare().rows.set_index("name")
    assert rows.loc["evit_s16(keep=1)", "top1"] == 82.29
    assert rows.loc["evit_s16(keep=1)", "params"] == 22_050_664
    assert pd.isna(rows.loc["evit_s16(keep=0.5)", "top1"])
    assert list(deviations(table, rows.reset_index())) == ["evit_s16"]
    answer = recommend(table, Request())
    assert answer.favored is not None
    assert answer.favored.name == "evit_s16(keep=1)"


def test_a_configuration_whose_counts_are_others_than_the_benchmark_s_is_flagged(wide_table: WideTable) -> None:
    table = wide_table(
        {"name": "evit_s16", "top1": 82.29},
        {"name": "evit_s16(keep=1)", "source": "measured", "params": 25e6, "num_classes": 1000},
    )
    rows = Comparison(table, SCOPE).compare().rows
    assert "evit_s16(keep=1)" in deviations(table, rows)


def test_published_rows_are_attached_once_and_only_to_what_has_records(wide_table: WideTable) -> None:
    published = wide_table({"name": "evit_s16", "top1": 82.29})
    assert with_benchmark_rows(published) is published
    own = wide_table(
        {"name": "evit_s16", "top1": 82.29}, {"name": "evit_s16(keep=1)", "source": "measured", "params": 22e6}
    )
    once = with_benchmark_rows(own)
    assert (len(once), len(with_benchmark_rows(once))) == (3, 3)


def test_a_pattern_among_records_may_spell_settings_in_any_way(wide_table: WideTable) -> None:
    table = wide_table({"name": "evit_s16(keep=0.5)", "top1": 80.0}, {"name": "evit_s16", "top1": 82.0})
    assert fitting(table, "evit_*( keep = .5 )")["name"].tolist() == ["evit_s16(keep=0.5)"]
    assert fitting(table, "evit_*")["name"].tolist() == ["evit_s16(keep=0.5)", "evit_s16"]
    with pytest.raises(RequestError, match="did you mean 'evit_s16\\(keep=0.5\\)'"):
        fitting(table, "evit_s16(keep=0.4)")
