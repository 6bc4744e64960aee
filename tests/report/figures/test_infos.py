"""What each figure shows, as data: truth tables for the info objects behind the drawings."""

import math
from dataclasses import replace
from typing import Any

import pandas as pd
import pytest

from favor.analyze import memory_from_flops
from favor.analyze.disagreement import Flip, PairDisagreement
from favor.analyze.setting import Setting
from favor.analyze.trainings import Scope
from favor.errors import RequestError
from favor.records.published import pareto_optimal
from favor.report.figures.classes import classes_of
from favor.report.figures.correlations import (
    cost_correlation_figure,
    dataset_correlation_figure,
    own_costs,
    published_costs,
)
from favor.report.figures.evidence import evidence_of
from favor.report.figures.flips import common_costs, flip_sentence, flips_of
from favor.report.figures.front_members import FrontMembers, Member, both_fronts, front_members, sources_of
from favor.report.figures.fronts import FRONT_FIGURES, against_the_paper, front_figure
from favor.report.figures.guide import guide_figure
from favor.report.figures.hardware import two_devices
from favor.report.figures.misnomer import (
    CostFactor,
    cost_factors,
    depth_and_width,
    factor_sentence,
    lead_sentence,
)
from favor.report.figures.parameters import parameter_bars
from favor.report.figures.pareto_table import OWN, PAPER, Place, TableRow, pareto_table
from favor.report.figures.pretraining import CONDITION, pretraining_resolution
from favor.report.figures.relations import (
    memory_from_operations,
    memory_line,
    published_memory_line,
    relation,
    training_memory_relation,
)
from favor.report.figures.scaling import scaling_steps
from favor.report.figures.taxonomy import taxonomy_of
from favor.report.figures.variability import interval_boxes, own_boxes, published_boxes
from favor.report.figures.x_formers import x_formers_of
from favor.report.figures.years import years_of


def rows(**columns: Any) -> pd.DataFrame:
    usual: dict[str, Any] = {"how": "kernel", "img_size": 224, "family": "f", "title": "F", "year": 2020}
    return pd.DataFrame(usual | columns)


def test_the_taxonomy_lists_families_once_and_the_oldest_first() -> None:
    table = rows(
        name=["b_s", "b_ti", "a_s", "c1", "c2", "foreign"],
        family=["b", "b", "a", "c", "c", "z"],
        title=["B", "B", "A", "C one", "C two", "Z"],
        year=[2022, 2022, 2021, 2020, 2020, 2020],
        how=["kernel", "kernel", "kernel", "kernel", "kernel", None],
    )
    info = taxonomy_of(table)
    found = {strategy.how: strategy.architectures for place in info.places for strategy in place.strategies}
    assert found["kernel"] == ("A", "B")
    assert info.architectures == 2
    assert [place.title for place in info.places] == ["Baseline", "Token mixing", "Token sequence", "MLP block"]


def test_bars_are_ordered_by_accuracy_and_those_near_the_median_are_grouped() -> None:
    table = rows(name=list("abcde"), params=[1e6, 10e6, 10e6, 10e6, 100e6], top1=[70.0, 71.0, 72.0, 73.0, 90.0])
    info = parameter_bars(table, most=2)
    assert [(bar.name, bar.order) for bar in info.bars] == [("e", 0), ("a", 1)]
    assert info.grouped == 3
    assert info.bars[1].per_million == 70.0
    assert len(parameter_bars(table).bars) == 5


def test_classes_come_in_the_taxonomys_order_and_keep_their_best() -> None:
    table = rows(name=list("abcd"), how=["summary", "kernel", "kernel", None], top1=[70.0, 60.0, 80.0, 50.0])
    whole = classes_of(table)
    assert [point.name for point in sorted(whole.points, key=lambda p: p.order)] == ["c", "b", "a", "d"]
    few = classes_of(table, most=3)
    assert {point.name for point in few.points} == {"a", "c", "d"}
    assert few.left_out == 1


def test_a_model_at_two_sizes_is_one_row_of_its_class() -> None:
    table = rows(name=["a", "a", "b"], img_size=[224, 384, 224], top1=[70.0, 72.0, 71.0])
    points = classes_of(table).points
    assert {(point.name, point.order) for point in points} == {("a", 0), ("b", 1)}
    assert len(points) == 3


def test_a_year_that_changes_nothing_has_no_front_of_its_own() -> None:
    table = rows(
        name=["old", "dull", "new"], year=[2020, 2021, 2022], throughput=[10.0, 5.0, 20.0], top1=[80.0, 70.0, 79.0]
    )
    info = years_of(table)
    assert [(front.year, [corner.name for corner in front.corners]) for front in info.fronts] == [
        (2020, ["old"]),
        (2022, ["old", "new"]),
    ]
    assert info.fronts[1].added == ("new",)


def test_the_published_fronts_are_the_papers_table() -> None:
    fronts = front_members(evidence_of(rows(name=["a"], status="ok", source="published")))
    assert sum(len(front.members) for front in fronts) == len(pareto_optimal())
    assert all(front.metric is None for front in fronts)
    assert sources_of(fronts).startswith("Sources: published in the paper's Table 7: speed at inference")


def test_own_fronts_replace_the_papers_one_by_one(study: pd.DataFrame, published: pd.DataFrame) -> None:
    assert [front.metric for front in front_members(evidence_of(study))] == [
        *("throughput", "train_hours_per_epoch", "inference_memory", "train_memory"),
    ]
    part = study.drop(columns=["inference_memory", "train_memory", "train_hours_per_epoch"])
    assert [front.metric for front in front_members(evidence_of(part))] == ["throughput", None, None, None]


def test_the_pareto_table_has_every_member_once_with_its_fronts() -> None:
    fronts = (
        FrontMembers(
            "speed", "inference", None, 0, (Member("kernel", "Hydra", "hydra"), Member("baseline", "ViT", "vit"))
        ),
        FrontMembers("memory", "training", None, 0, (Member("baseline", "ViT", "vit"),)),
    )
    info = pareto_table(fronts, {})
    assert info.columns == ("Speed, inference", "Memory, training")
    speed, memory = Place("Speed, inference", PAPER), Place("Memory, training", PAPER)
    assert info.rows == (TableRow("ViT", "Baseline", (speed, memory)), TableRow("Hydra", "Kernel Attention", (speed,)))


def test_a_model_of_ones_own_without_a_class_is_on_its_front_like_others() -> None:
    table = rows(
        name=["vit_s16", "mine", "slow_a", "slow_b", "slow_c"],
        family=["vit", None, "slow", "slow", "slow"],
        how=["baseline", None, "kernel", "kernel", "kernel"],
        status="ok",
        source="measured",
        dataset="imagenet-1k",
        device="cpu",
        top1=[80.0, 82.0, 70.0, 71.0, 72.0],
        throughput=[100.0, 50.0, 1.0, 1.0, 1.0],
    )
    evidence = evidence_of(table)
    speed = front_members(evidence)[0]
    assert speed.members == (Member("baseline", "vit_s16", "vit"), Member("unknown", "mine", "mine"))
    last = pareto_table((speed,), {}).rows[-1]
    assert (last.name, last.class_title) == ("mine", "Class unknown")
    assert "in no class of the taxonomy: mine." in guide_figure(evidence).caption


def test_a_family_has_one_row_where_the_readers_fronts_stand_beside_the_papers() -> None:
    own = (
        Member("baseline", "vit_s16", "vit"),
        Member("baseline", "vit_ti16", "vit"),
        Member("hybrid", "cvt_13", "cvt"),
    )
    paper = (Member("baseline", "ViT", "vit"),)
    mixed = (
        FrontMembers("speed", "inference", "throughput", 9, own),
        FrontMembers("memory", "training", None, 0, paper),
    )
    both = (Place("Speed, inference", OWN), Place("Memory, training", PAPER))
    assert pareto_table(mixed, {"vit": "Vision Transformer", "cvt": "CvT"}).rows == (
        TableRow("ViT", "Baseline", both, ("vit_s16", "vit_ti16")),
        TableRow("CvT", "Hybrid Attention", both[:1], ("cvt_13",)),
    )
    assert "speed at inference (throughput of 9 models)" in sources_of(mixed)


def test_table_7_has_the_papers_fronts_and_all_that_the_records_give(study: pd.DataFrame) -> None:
    fronts = both_fronts(evidence_of(study))
    assert [front.metric for front in fronts[:4]] == [None] * 4
    assert [front.metric for front in fronts[4:]] == [
        *("throughput", "train_hours_per_epoch", "inference_memory", "train_memory"),
    ]


def test_a_front_is_held_against_the_papers_in_words() -> None:
    told = against_the_paper(("speed", "inference"), {"vit", "cvt"}, {"vit", "cvt", "tome"})
    assert "Also on yours: ViT;" in told
    assert "not on yours: ToMe;" in told
    assert "without numbers here: Synthesizer-FR" in told
    assert "CvT" not in told


def test_own_correlations_stand_beside_the_papers_in_the_same_order(study: pd.DataFrame) -> None:
    paper, own = published_costs(), own_costs(evidence_of(study))
    assert {(cell.row, cell.column) for cell in own} == {(cell.row, cell.column) for cell in paper}
    titles = [plot["title"] for plot in cost_correlation_figure(evidence_of(study)).chart.to_dict()["concat"]]  # type: ignore[union-attr]
    assert titles == ["The paper, on an A100", "Your records"]
    assert next(c.value for c in paper if (c.row, c.column) == ("Training memory", "Fine-tuning time")) == 0.89


def test_runs_that_differ_in_the_seed_alone_are_a_box() -> None:
    table = rows(
        name=["vit_s16"] * 5 + ["cvt_13"],
        source="measured",
        status="ok",
        dataset="cifar10",
        top1=[78.0, 79.0, 80.0, 81.0, 84.0, 50.0],
        **{"recipe.seed": [0, 1, 2, 3, 4, 0]},
    )
    (box,) = own_boxes(table)
    assert (box.metric, box.low, box.quartiles, box.high, box.runs) == ("top1", -2.5, (-1.25, 1.25), 5.0, 5)
    assert own_boxes(table[:2]) == ()
    assert own_boxes(table.assign(dataset=list("aabbcc"))) == (), "runs on different data are no repetitions"


def test_the_width_of_intervals_is_told_for_measured_rows_only() -> None:
    table = pd.DataFrame(
        {
            "source": ["measured"] * 3 + ["published"] * 3,
            "status": "ok",
            "throughput": 100.0,
            "throughput_low": [90.0, 95.0, 99.0, 0.0, 0.0, 0.0],
            "throughput_high": [110.0, 105.0, 101.0, 900.0, 900.0, 900.0],
        }
    )
    (box,) = interval_boxes(table)
    assert (box.metric, box.low, box.quartiles, box.high) == ("throughput", -5.0, None, 5.0)
    assert interval_boxes(table[:2]) == ()


def test_the_papers_box_has_the_printed_range_and_standard_deviation() -> None:
    speed, epoch = published_boxes()
    assert (speed.metric, epoch.metric) == ("throughput", "train_hours_per_epoch")
    assert epoch.high - epoch.low == pytest.approx(6.4, abs=0.1)
    assert epoch.quartiles == (-2.84, 2.84)


def test_the_line_between_two_devices_is_a_power() -> None:
    table = rows(name=list("abc"), throughput=[1.0, 10.0, 100.0], other=[3.0, 30.0, 300.0])
    info = two_devices(table, "cpu", "gpu", 224)
    assert info.exponent == pytest.approx(1.0)
    assert info.line == ((1.0, 3.0), (100.0, 300.0))
    squared = two_devices(table.assign(other=table["throughput"] ** 2), "cpu", "gpu", 224)
    assert squared.exponent == pytest.approx(2.0)


def test_a_setting_is_short_without_its_machine() -> None:
    assert Setting(device="a100", precision="amp", machine="a card, host lab").short == "a100, amp"
    assert Setting().short == "device unknown"


def test_scaling_compares_the_larger_model_with_the_larger_image() -> None:
    def record(name: str, size: int, speed: float, top1: float) -> dict[str, Any]:
        return {
            "name": name,
            "img_size": size,
            "throughput": speed,
            "top1": top1,
            "dataset": "imagenet-1k",
            "status": "ok",
            "source": "measured",
            "family": "f",
            "how": "baseline",
            "pipeline": "p",
        }

    table = pd.DataFrame(
        [record("small", 224, 100.0, 70.0), record("small", 384, 25.0, 71.0), record("large", 224, 50.0, 75.0)]
        + [record(f"other{i}", 224, 10.0, 60.0) for i in range(3)]
    )
    info = scaling_steps(evidence_of(table), ["throughput"], [("small", "large"), ("large", "small")])
    assert [(step.way, step.to, step.factor, step.gain) for step in info.steps] == [
        ("larger model", "large@224", 2.0, 5.0),
        ("larger image", "small@384", 4.0, 1.0),
    ]
    assert (info.comparisons, info.model_wins) == (1, 1)


def test_pretraining_compares_resolutions_model_by_model() -> None:
    def tuned(name: str, size: int, top1: float) -> dict[str, Any]:
        return {"name": name, "how": "kernel", "status": "ok", "dataset": "imagenet-1k", "top1": top1, CONDITION: size}

    def pretrained(name: str, size: int, hours: float) -> dict[str, Any]:
        conditions = {"dataset": "imagenet-21k", "img_size": size, "train_hours_per_epoch": hours}
        return {"name": name, "how": "kernel", "status": "ok", **conditions}

    table = pd.DataFrame(
        [
            *(tuned("a", 224, 80.0), tuned("a", 192, 79.5), tuned("b", 224, 81.0), tuned("b", 192, 81.1)),
            *(
                pretrained("a", 224, 3.0),
                pretrained("a", 192, 2.0),
                pretrained("b", 224, 3.0),
                pretrained("b", 192, 2.5),
            ),
        ]
    )
    info = pretraining_resolution(table)
    assert [(model.name, model.speedup, model.difference) for model in info.models] == [
        ("a", 1.5, -0.5),
        ("b", 1.2, 0.1),
    ]
    assert info.mean == pytest.approx(-0.2)
    with pytest.raises(RequestError):
        pretraining_resolution(table[table["img_size"] != 192])
    again = pd.concat([table, pd.DataFrame([tuned("a", 192, 81.5)])])
    assert pretraining_resolution(again, Scope(seeds="best")).models[0].difference == 1.5


def test_a_relation_tells_the_correlation_of_analysis() -> None:
    table = rows(name=list("abcde"), throughput=[1.0, 2.0, 3.0, 4.0, 5.0], train_memory=[1e9, 2e9, 3e9, 4e9, 9e9])
    info = relation(table, "throughput", "train_memory", 224)
    assert info.n == 5
    assert info.pearson == pytest.approx(18 / math.sqrt(388))
    assert info.sentence().startswith("Pearson's correlation is 0.91 (95 % interval 0.")


def test_the_memory_line_goes_through_a_perfect_fit() -> None:
    table = rows(name=list("abcd"), ops_mixed=[1e9, 2e9, 3e9, 4e9], train_memory=[3e9, 5e9, 7e9, 9.001e9])
    info = memory_line(table, memory_from_flops(table), 224)
    gigabyte = 1e9 / 2**30
    assert info.line[0].x == 1.0
    assert info.line[0].y == pytest.approx(3.0 * gigabyte, rel=1e-3)
    assert info.line[-1].y == pytest.approx(9.0 * gigabyte, rel=1e-3)
    assert all(at.low <= at.y <= at.high for at in info.line if at.low is not None and at.high is not None)
    assert not info.x.log


def test_the_papers_memory_line_is_drawn_as_printed() -> None:
    first, last = published_memory_line().line
    assert first.y == pytest.approx(25.50e9 / 2**30, rel=1e-3)
    assert last.y == pytest.approx((25.43 * 60 + 25.50) * 1e9 / 2**30, rel=1e-3)


def test_factors_of_cost_count_time_and_not_speed() -> None:
    table = rows(name=["vit", "slow"], params=[10.0, 5.0], throughput=[100.0, 25.0], throughput_setting="cpu")
    found = cost_factors(table, "vit", [("slow", "S"), ("vit", "V"), ("absent", "A")])
    assert found == [CostFactor("slow", "S", "Parameters", 0.5), CostFactor("slow", "S", "Time per image", 4.0)]
    assert factor_sentence(found) == "S: parameters 0.5 times, time per image 4 times."


def test_throughputs_of_two_settings_are_not_compared() -> None:
    table = rows(name=["vit", "slow"], params=[10.0, 5.0], throughput=[100.0, 25.0], throughput_setting=["cpu", "gpu"])
    assert [factor.indicator for factor in cost_factors(table, "vit", [("slow", "S")])] == ["Parameters"]


def test_depth_and_width_are_the_papers_ladders(published: pd.DataFrame) -> None:
    table = published[published["provenance"].fillna("").str.contains("misnomer, Table 2")]
    info = depth_and_width(table, ["macs", "throughput"])
    assert [plot.x.column for plot in info.plots] == ["macs", "throughput"]
    assert [sum(point.way == way for point in info.plots[0].points) for way in ("depth", "width")] == [6, 5]
    leads = [f"{plot.lead_of_depth:+.1f}" for plot in info.plots]
    assert lead_sentence(info).endswith(f": {leads[0]} at equal multiply-adds, {leads[1]} at equal throughput.")
    widest = next(point for point in info.plots[0].points if point.name == "misnomer_w4096")
    assert (widest.cost, widest.top1) == (7.8, 63.3)


def test_flips_are_over_costs_that_five_models_have_in_common(study: pd.DataFrame) -> None:
    result = flips_of(common_costs(evidence_of(study)))
    assert result is not None
    assert {"params", "macs", "throughput"} <= set(result.disagreement.indicators)
    assert flips_of(rows(name=list("abcd"), params=1e6, macs=1e9)) is None


def test_the_strongest_flip_is_told_in_words() -> None:
    pair = PairDisagreement("params", "inference_memory", 5, 10, 4, 0.4, (Flip("a", "b", 2.0, 3.0, 2.0),))
    assert flip_sentence(pair) == (
        "Parameters and inference memory rank 4 of 10 pairs differently (40%): by parameters, b costs 2.0 times as "
        "much as a; by inference memory, a costs 3.0 times as much as b."
    )
    assert flip_sentence(replace(pair, strongest=())) == "The indicators rank all models alike."


def test_x_formers_are_told_apart_by_attention_and_embedding() -> None:
    table = rows(
        name=["vix_vit", "vix_hybrid_vin", "vix_vip_rope"],
        how=["baseline", "low_rank", "kernel"],
        train_memory=[14e9, 5e9, 5e9],
        top1=[56.8, 75.3, 60.7],
        train_memory_source="published",
        top1_source=["published", "simulated", "published"],
    )
    found = [(model.attention, model.embedding, model.simulated) for model in x_formers_of(table).models]
    assert found == [
        ("quadratic attention", "linear embedding", False),
        ("linear attention, or none", "with convolutions", True),
        ("linear attention, or none", "linear embedding", False),
    ]
    assert not math.isnan(x_formers_of(table).models[0].memory)


@pytest.mark.parametrize(("models", "is_drawn"), [(4, False), (5, True)])
def test_data_sets_are_correlated_over_five_models_or_more(models: int, is_drawn: bool) -> None:
    trained = [
        {
            "name": f"model_{i}",
            "source": "measured",
            "status": "ok",
            "dataset": dataset,
            "pipeline": "mine",
            "top1": top1,
        }
        for i in range(models)
        for dataset, top1 in (("cars", 80.0 + i), ("flowers102", 80.0 + i * i))
    ]
    assert (dataset_correlation_figure(pd.DataFrame(trained)).chart is not None) == is_drawn


def test_data_sets_are_correlated_in_the_pipeline_of_the_scope() -> None:
    trained = [
        {"name": f"model_{i}", "source": "measured", "status": "ok", "dataset": data, "pipeline": name, "top1": top1}
        for i in range(5)
        for data, name, top1 in (("cars", "p", 80.0 + i), ("flowers102", "p", 90.0 + i), ("cars", "q", 80.0 - i))
    ]
    for pipeline, expected in ((None, -1.0), ("p", 1.0), ("q", -1.0), ("never run", -1.0)):
        chart = dataset_correlation_figure(pd.DataFrame(trained), Scope(pipeline=pipeline)).chart
        assert chart is not None
        assert chart.to_dict()["data"]["values"][0]["value"] == pytest.approx(expected)


def test_training_memory_is_that_of_the_papers_batch_where_it_is_known(study: pd.DataFrame) -> None:
    at_2048 = study.assign(train_memory_reference_batch=256 * study["train_memory"], reference_batch=2048)
    for table, title in (
        (study, "training memory measured"),
        (at_2048, "reference batch extrapolated from smaller batches"),
    ):
        evidence = evidence_of(table)
        figures = [front_figure(evidence, figure) for figure in FRONT_FIGURES if figure.id == "training-memory"]
        figures += [training_memory_relation(evidence), memory_from_operations(evidence)]
        for figure in figures:
            assert title in figure.caption
    members = {front.metric for front in both_fronts(evidence_of(at_2048))}
    assert "train_memory_reference_batch" in members
    assert "train_memory" not in members
    whole, small = (
        memory_from_flops(rows_with(table, metric), memory=metric)
        for table, metric in ((at_2048, "train_memory_reference_batch"), (study, "train_memory"))
    )
    assert whole.slope == pytest.approx(256 * small.slope)


def test_a_memory_that_was_measured_at_the_papers_batch_is_not_called_extrapolated(study: pd.DataFrame) -> None:
    peak = 256 * study["train_memory"]
    ends = {f"train_memory_reference_batch{end}": peak for end in ("", "_low", "_high")}
    evidence = evidence_of(study.assign(**ends, reference_batch=2048))
    assert "training memory, reference batch measured" in training_memory_relation(evidence).caption


def rows_with(table: pd.DataFrame, memory: str) -> pd.DataFrame:
    return evidence_of(table).rows(["ops_mixed", memory])
