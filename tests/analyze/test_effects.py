"""What a change buys: pairs with all else equal, and no verdict without a test."""

import numpy as np
import pandas as pd
import pytest
from scipy import stats

from favor.analyze.budget import late_flips
from favor.analyze.effects import (
    PairedDifference,
    convolutional_embedding_pairs,
    effect_of_condition,
    effect_of_model,
    left_out_of_effects,
    linear_attention_pairs,
    paired_effect,
    rotary_position_pairs,
    x_former_effects,
)
from favor.analyze.trainings import Scope
from favor.errors import RequestError


def pairs_of(differences: list[float]) -> list[PairedDifference]:
    return [PairedDifference(f"a{i}", f"b{i}", "", 1.0, 1.0 + d, d) for i, d in enumerate(differences)]


def test_interval_and_tests_are_those_of_scipy() -> None:
    differences = [1.0, 2.5, -0.5, 3.0, 1.5]
    effect = paired_effect("x", "top1", pairs_of(differences))
    expected = stats.ttest_1samp(differences, 0.0)
    interval = expected.confidence_interval(0.95)
    assert effect.mean == pytest.approx(1.5)
    assert (effect.low, effect.high) == (pytest.approx(interval.low), pytest.approx(interval.high))
    assert effect.p == pytest.approx(expected.pvalue)
    assert effect.p_rank == pytest.approx(stats.wilcoxon(differences).pvalue)


def test_better_and_worse_are_said_only_where_the_test_allows_and_in_the_metrics_direction() -> None:
    clear, unclear = [1.0, 1.1, 0.9, 1.05], [5.0, -4.0, 3.0, -2.0]
    assert paired_effect("x", "top1", pairs_of(clear)).verdict == "better"
    assert paired_effect("x", "latency_p50", pairs_of(clear)).verdict == "worse"
    assert paired_effect("x", "top1", pairs_of([-d for d in clear])).verdict == "worse"
    assert paired_effect("x", "top1", pairs_of(unclear)).verdict == "undecided"
    single = paired_effect("x", "top1", pairs_of([9.0]))
    assert (single.verdict, single.p, single.low) == ("undecided", None, None)


def test_models_are_paired_only_under_equal_conditions() -> None:
    table = pd.DataFrame(
        [
            {"name": "vix_vit", "dataset": "cifar10", "top1": 56.0},
            {"name": "vix_vin", "dataset": "cifar10", "top1": 65.0},
            {"name": "vix_vit", "dataset": "tiny-imagenet", "top1": 26.0},
            {"name": "vix_vin", "dataset": "flowers102", "top1": 99.0},
        ]
    )
    effect = effect_of_model(table, "linear attention", [("vix_vit", "vix_vin")])
    assert [(pair.alike, pair.difference) for pair in effect.pairs] == [("cifar10", 9.0)]
    with pytest.raises(RequestError, match="no two rows"):
        effect_of_model(table, "linear attention", [("vix_vit", "vix_vip")])


def test_a_condition_is_compared_for_rows_that_agree_in_the_rest() -> None:
    table = pd.DataFrame(
        [
            {"name": name, "dataset": "imagenet-1k", "pipeline": pipeline, "top1": value}
            for name, pipeline, value in (
                ("a", "old", 80.0),
                ("a", "new", 81.0),
                ("b", "old", 82.0),
                ("c", "new", 99.0),
            )
        ]
    )
    effect = effect_of_condition(table, "pipeline", "old", "new")
    assert (effect.n, effect.mean) == (1, 1.0)
    with pytest.raises(RequestError, match="agree in name, dataset"):
        effect_of_condition(table, "pipeline", "old", "newest")


def curves(**runs: list[float]) -> pd.DataFrame:
    return pd.DataFrame(
        [
            {"name": name, "epochs": 30 * (i + 1), "top1": value}
            for name, values in runs.items()
            for i, value in enumerate(values)
            if not np.isnan(value)
        ]
    )


def test_a_short_schedule_that_leads_early_and_loses_late_is_named() -> None:
    result = late_flips(curves(short=[60.0, 70.0, 71.0], long=[50.0, 65.0, 75.0], worse=[40.0, 50.0, 60.0]))
    assert result.pairs == 3
    assert [(flip.leads_early, flip.leads_late, flip.until) for flip in result.flips] == [("short", "long", 60.0)]
    assert (result.flips[0].early_lead, result.flips[0].final_deficit) == (10.0, 4.0)
    assert result.warning is not None
    assert "short leads long until epochs 60" in result.warning


def test_no_flip_gives_no_warning_and_a_margin_ignores_noise() -> None:
    assert late_flips(curves(a=[60.0, 70.0], b=[50.0, 65.0])).warning is None
    noisy = curves(a=[60.2, 70.0], b=[60.0, 70.1])
    assert len(late_flips(noisy).flips) == 1
    assert late_flips(noisy, margin=0.5).flips == ()


def test_a_loss_that_is_lower_leads() -> None:
    table = curves(short=[1.0, 0.9], long=[1.5, 0.5]).rename(columns={"top1": "loss"})
    assert [flip.leads_early for flip in late_flips(table, metric="loss").flips] == ["short"]


def test_runs_without_shared_budgets_are_refused() -> None:
    with pytest.raises(RequestError, match="two or more shared"):
        late_flips(curves(a=[60.0, np.nan], b=[50.0, 65.0]))


def test_models_on_two_machines_or_of_two_heads_are_not_alike() -> None:
    rows = [
        {"name": "vix_vit", "device": "cpu", "machine": "laptop", "num_classes": 10, "throughput": 10.0},
        {"name": "vix_vin", "device": "cpu", "machine": "server", "num_classes": 10, "throughput": 900.0},
        {"name": "vix_vin", "device": "cpu", "machine": "laptop", "num_classes": 10, "throughput": 12.0},
        {"name": "vix_vin", "device": "cpu", "machine": "laptop", "num_classes": 200, "throughput": 11.0},
    ]
    pairs = effect_of_model(pd.DataFrame(rows), "nystrom", [("vix_vit", "vix_vin")], "throughput").pairs
    assert [pair.difference for pair in pairs] == [2.0]
    with pytest.raises(RequestError, match="no two rows"):
        effect_of_model(pd.DataFrame(rows[:2]), "nystrom", [("vix_vit", "vix_vin")], "throughput")


def test_accuracies_from_two_machines_are_paired() -> None:
    trained = {"dataset": "cifar10", "source": "measured", "pipeline": "mine@1", "final": True}
    rows = [
        {"name": "vix_vit", "machine": "laptop", "precision": "fp32", "top1": 56.0, **trained},
        {"name": "vix_vin", "machine": "server", "precision": "fp32", "top1": 65.0, **trained},
    ]
    assert [pair.difference for pair in effect_of_model(pd.DataFrame(rows), "n", [("vix_vit", "vix_vin")]).pairs] == [
        9.0
    ]


def test_trainings_of_equal_minutes_are_paired_whatever_epochs_they_reached() -> None:
    trained = {"dataset": "cifar10", "source": "measured", "pipeline": "mine@1 minutes=5", "minutes": 5, "final": True}
    rows = [
        {"name": "vix_vit", "epochs": 2.5, "top1": 56.0, **trained},
        {"name": "vix_vin", "epochs": 4.1, "top1": 65.0, **trained},
    ]
    assert effect_of_model(pd.DataFrame(rows), "n", [("vix_vit", "vix_vin")]).mean == 9.0


def test_throughputs_at_each_models_best_batch_are_paired() -> None:
    rows = [
        {"name": "vix_vit", "source": "measured", "device": "cpu", "batch_size": 16, "throughput": 10.0},
        {"name": "vix_vin", "source": "measured", "device": "cpu", "batch_size": 64, "throughput": 13.0},
    ]
    assert effect_of_model(pd.DataFrame(rows), "n", [("vix_vit", "vix_vin")], "throughput").mean == 3.0


def test_a_disturbed_cost_makes_no_pair() -> None:
    speeds = {"vix_vit": 10.0, "vix_vin": 13.0, "vix_hybrid_vit": 11.0, "vix_hybrid_vin": 0.5}
    rows = [
        {"name": name, "source": "measured", "throughput": speed, "flags": "busy" if speed < 1 else None}
        for name, speed in speeds.items()
    ]
    pairs = [("vix_vit", "vix_vin"), ("vix_hybrid_vit", "vix_hybrid_vin")]
    effect = effect_of_model(pd.DataFrame(rows), "n", pairs, "throughput")
    assert [pair.changed for pair in effect.pairs] == ["vix_vin"]


def test_x_formers_that_are_left_out_for_other_load_are_named() -> None:
    rows = [
        {"name": name, "source": "measured", "precision": precision, "throughput": 10.0, "flags": flags}
        for name, precision, flags in (
            ("vix_vit", "fp32", None),
            ("vix_vin", "fp32", None),
            ("vix_vin", "bf16", "busy"),
            ("vix_vil", "fp32", "busy"),
            ("vit_s16", "fp32", "busy"),
        )
    ]
    table = pd.DataFrame([*rows, {"name": "vix_vip", "source": "measured", "flags": "busy"}])
    effects = x_former_effects(table, "throughput")
    assert [effect.change for effect in effects] == ["Nystrom attention"]
    assert left_out_of_effects(table, "throughput", effects) == ["vix_vil"]
    alone = table[table["name"].isin(["vix_vit", "vix_vil"])]
    assert x_former_effects(alone, "throughput") == []
    assert left_out_of_effects(alone, "throughput", []) == ["vix_vil"]


def test_a_cost_that_was_measured_twice_is_one_pair() -> None:
    """A study records the memory of a training step when it measures the step, and again when it trains."""
    costs = {("vix_vit", "vix_vin"): (500.0, 300.0), ("vix_hybrid_vit", "vix_hybrid_vin"): (520.0, 310.0)}
    rows = []
    for pair, values in costs.items():
        for name, value in zip(pair, values, strict=True):
            run = {"name": name, "source": "measured", "img_size": 32, "device": "cuda", "batch_size": 64}
            rows.append(run | {"task": "training", "num_classes": 10, "train_memory": value})
            rows.append(run | {"task": "accuracy", "dataset": "cifar10", "final": True, "train_memory": value})
    effect = effect_of_model(pd.DataFrame(rows), "n", list(costs), "train_memory")
    assert [pair.difference for pair in effect.pairs] == [-200.0, -210.0]


def test_the_scope_chooses_seeds_pipeline_and_unfinished_trainings() -> None:
    def ran(name: str, pipeline: str, top1: float, epochs: int = 5, seed: int = 0) -> dict[str, object]:
        recipe = {"recipe.epochs": 5, "recipe.seed": seed}
        trained = {"dataset": "cifar10", "source": "measured", "epochs": epochs, "final": epochs == 5, **recipe}
        return {"name": name, "pipeline": pipeline, "top1": top1, **trained}

    table = pd.DataFrame(
        [
            *(ran("vix_vit", "p@1", 60.0), ran("vix_vit", "p@1", 64.0, seed=1)),
            *(ran("vix_vin", "p@1", 70.0), ran("vix_vin", "p@1", 90.0, seed=1)),
            *(ran("vix_vit", "q@1", 50.0), ran("vix_vin", "q@1", 51.0)),
            *(ran("vix_vit", "r@1", 10.0, 1), ran("vix_vit", "r@1", 20.0, 2), ran("vix_vin", "r@1", 30.0, 1)),
            *(ran("vix_vin", "r@1", 45.0, 2), ran("vix_vin", "p@1", 5.0, 1, seed=2)),
        ]
    )
    for scope, expected in (
        (Scope(pipeline="p@1"), [18.0]),
        (Scope(pipeline="p@1", seeds="best"), [26.0]),
        (Scope(pipeline="p@1", unfinished=True), [18.0]),
        (Scope(pipeline="r@1", unfinished=True), [25.0]),
        (Scope(seeds="best"), [26.0, 1.0]),
    ):
        effect = effect_of_model(table, "nystrom", [("vix_vit", "vix_vin")], scope=scope)
        assert [pair.difference for pair in effect.pairs] == expected


def test_an_effect_says_how_seeds_count_and_the_papers_is_of_the_best() -> None:
    cifar = {"dataset": "cifar10", "status": "ok"}
    rows = [
        {"name": name, "source": source, "top1": 60.0, "train_memory": 1e9, **cifar}
        for source in ("measured", "published")
        for name in ("vix_vit", "vix_vin")
    ]
    effects = x_former_effects(pd.DataFrame(rows))
    assert [(effect.source, effect.seeds) for effect in effects] == [("measured", "mean"), ("published", "best")]
    assert {effect.seeds for effect in x_former_effects(pd.DataFrame(rows), "train_memory")} == {None}


def test_of_several_own_trainings_one_counts_since_two_results_of_a_pair_are_not_two_pairs() -> None:
    def ran(name: str, pipeline: str, top1: float, epochs: int) -> dict[str, object]:
        trained = {"dataset": "cifar10", "source": "measured", "status": "ok", "img_size": 32, "final": True}
        return {"name": name, "pipeline": pipeline, "top1": top1, "epochs": epochs, "recipe.epochs": epochs, **trained}

    table = pd.DataFrame(
        [
            ran(name, pipeline, top1 + gain, epochs)
            for pipeline, epochs, top1 in (("p@1", 5, 40.0), ("p@1", 50, 60.0), ("q@1", 5, 20.0))
            for name, gain in (("vix_vit", 0.0), ("vix_vin", epochs / 10))
        ]
    )
    assert [pair.base_value for effect in x_former_effects(table) for pair in effect.pairs] == [60.0]
    [of_q] = x_former_effects(table, scope=Scope(pipeline="q@1"))
    assert [pair.base_value for pair in of_q.pairs] == [20.0]
    [of_any] = x_former_effects(table, scope=Scope(any_pipeline=True))
    assert of_any.n == 3


def test_x_formers_with_the_same_settings_are_paired() -> None:
    names = ["vix_vit(grid=16)", "vix_vin(grid=16)", "vix_hybrid_vit(grid=16)", "vix_vit_rope(grid=16)", "vix_vin"]
    assert linear_attention_pairs(names, "nystrom") == [("vix_vit(grid=16)", "vix_vin(grid=16)")]
    assert convolutional_embedding_pairs(names) == [("vix_vit(grid=16)", "vix_hybrid_vit(grid=16)")]
    assert rotary_position_pairs(names) == [("vix_vit(grid=16)", "vix_vit_rope(grid=16)")]
