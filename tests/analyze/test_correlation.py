"""Correlations: against scipy, with intervals that cover, with outliers left out, between datasets."""

import numpy as np
import pandas as pd
import pytest
from scipy import stats

from favor.analyze.correlation import correlate, correlate_datasets, correlate_devices
from favor.analyze.trainings import Scope
from favor.errors import RequestError


def cloud(rng: np.random.Generator, n: int, r: float) -> pd.DataFrame:
    x = rng.standard_normal(n)
    y = r * x + np.sqrt(1 - r * r) * rng.standard_normal(n)
    return pd.DataFrame({"name": [f"m{i}" for i in range(n)], "macs": x, "params": y})


def test_coefficients_are_those_of_scipy_over_the_rows_that_have_both() -> None:
    table = cloud(np.random.default_rng(1), 40, 0.6)
    table.loc[3, "macs"] = np.nan
    table.loc[4, "params"] = np.nan
    pair = correlate(table, ["macs", "params"]).pair("params", "macs")
    both = table.dropna()
    assert pair.n == 38
    assert pair.pearson == pytest.approx(np.corrcoef(both["macs"], both["params"])[0, 1])
    assert pair.spearman == pytest.approx(stats.spearmanr(both["macs"], both["params"]).statistic)


def test_the_intervals_cover_the_truth_about_as_often_as_they_say() -> None:
    rng, truth, n = np.random.default_rng(2), 0.6, 60
    true_spearman = 6 / np.pi * np.arcsin(truth / 2)  # for a bivariate normal
    pearson_hits = spearman_hits = 0
    for seed in range(100):
        pair = correlate(cloud(rng, n, truth), ["macs", "params"], draws=300, seed=seed).pairs[0]
        assert pair.pearson_low is not None
        assert pair.pearson_high is not None
        assert pair.spearman_low is not None
        assert pair.spearman_high is not None
        pearson_hits += pair.pearson_low <= truth <= pair.pearson_high
        spearman_hits += pair.spearman_low <= true_spearman <= pair.spearman_high
    assert 88 <= pearson_hits <= 100
    assert 86 <= spearman_hits <= 100


def test_an_outlier_named_is_left_out_and_a_wrong_name_refused() -> None:
    table = cloud(np.random.default_rng(3), 30, 0.9)
    table.loc[0, ["macs", "params"]] = [50.0, -50.0]
    assert (correlate(table, ["macs", "params"]).pairs[0].pearson or 0) < 0
    kept = correlate(table, ["macs", "params"], without=["m0"])
    assert (kept.pairs[0].pearson or 0) > 0.7
    assert (kept.pairs[0].n, kept.without) == (29, ("m0",))
    with pytest.raises(RequestError, match="unknown model"):
        correlate(table, ["macs", "params"], without=["nobody"])


def test_what_is_not_defined_is_none() -> None:
    table = pd.DataFrame(
        {"name": list("abc"), "macs": [1.0, 1.0, 1.0], "params": [1.0, 2.0, 3.0], "top1": [1.0, 2.0, None]}
    )
    result = correlate(table, ["macs", "params", "top1"])
    assert result.pair("macs", "params").pearson is None
    assert result.pair("params", "top1").n == 2
    assert result.pair("params", "top1").spearman is None


def test_failed_rows_do_not_count() -> None:
    table = cloud(np.random.default_rng(4), 20, 0.5).assign(status=["ok"] * 19 + ["failed"])
    result = correlate(table, ["macs", "params"])
    assert (result.pairs[0].n, result.excluded.failed) == (19, 1)


def test_between_data_sets_models_are_paired_within_one_pipeline() -> None:
    rows = [
        {"name": f"m{i}", "dataset": data, "top1": value, "pipeline": "p"}
        for i in range(5)
        for data, value in (("imagenet-1k", 70.0 + i), ("cars", 80.0 + i * i))
    ]
    rows += [{"name": f"m{i}", "dataset": "cars", "top1": 90.0 - i, "pipeline": "other"} for i in range(5)]
    pair = correlate_datasets(pd.DataFrame(rows)).pair("imagenet-1k", "cars")
    assert pair.n == 5
    assert pair.spearman == pytest.approx(1.0)
    with pytest.raises(RequestError, match="needs at least two"):
        correlate_datasets(pd.DataFrame(rows)[lambda table: table["dataset"] == "cars"])


def test_between_data_sets_the_line_of_a_file_tells_no_models_apart() -> None:
    rows = [
        {"name": name, "dataset": dataset, "top1": top1, "pipeline": "timm", "provenance": f"{dataset}.csv:{line}"}
        for dataset, values in (("imagenet-1k", (80.0, 81.0, 82.0, 83.0)), ("real", (86.0, 85.0, 88.0, 89.0)))
        for line, (name, top1) in enumerate(zip("abcd", values, strict=True))
    ]
    pair = correlate_datasets(pd.DataFrame(rows)).pair("imagenet-1k", "real")
    assert pair.n == 4
    assert pair.spearman == pytest.approx(0.8)


def test_between_devices_models_are_paired_at_one_size_and_an_outlier_can_be_left_out() -> None:
    speeds = {"cpu": [1.0, 2.0, 3.0, 4.0, 100.0], "a100": [10.0, 30.0, 20.0, 40.0, 1.0]}
    table = pd.concat(
        pd.DataFrame({"name": list("abcde"), "img_size": 224, "device": device, "throughput": values})
        for device, values in speeds.items()
    )
    larger = table[table["device"] == "cpu"].assign(img_size=384, throughput=7.0)
    pair = correlate_devices(pd.concat([table, larger])).pair("cpu", "a100")
    assert (pair.n, pair.pearson) == (5, pytest.approx(stats.pearsonr(*speeds.values()).statistic))
    without = correlate_devices(table, without=["e"]).pair("cpu", "a100")
    assert (without.n, without.spearman) == (4, pytest.approx(0.8))


def test_between_devices_a_published_number_of_a_model_goes_before_a_simulated_one() -> None:
    def on(device: str, source: str, names: str, *speeds: float) -> pd.DataFrame:
        return pd.DataFrame({"name": list(names), "device": device, "source": source, "throughput": speeds})

    here, printed = on("cpu", "measured", "abcd", 1.0, 2.0, 3.0, 4.0), on("a100", "imported", "abc", 10.0, 30.0, 20.0)
    simulated = on("a100", "simulated", "abcd", 1000.0, 1.0, 500.0, 40.0)
    pair = correlate_devices(pd.concat([here, simulated, printed])).pair("cpu", "a100 (partly simulated)")
    assert (pair.n, pair.spearman) == (4, pytest.approx(0.8))
    assert correlate_devices(pd.concat([here, printed])).columns == ("cpu", "a100")
    assert correlate_devices(pd.concat([here, simulated])).columns == ("cpu", "a100 (simulated)")


def test_two_machines_with_one_kind_of_device_are_two_devices() -> None:
    rows = [
        {"name": name, "device": "cpu", "machine": machine, "throughput": speed}
        for machine, speeds in (("home", (1.0, 2.0, 3.0)), ("work", (9.0, 8.0, 7.0)))
        for name, speed in zip("abc", speeds, strict=True)
    ]
    result = correlate_devices(pd.DataFrame(rows))
    assert result.pair("cpu, machine home", "cpu, machine work").spearman == pytest.approx(-1.0)
    with pytest.raises(RequestError, match="needs throughput on at least two"):
        correlate_devices(pd.DataFrame(rows[:3]))


def test_one_over_a_metric_is_correlated_as_the_papers_inference_time_is() -> None:
    macs, seconds = [1e9, 2e9, 4e9, 7e9], [0.1, 0.25, 0.35, 0.8]
    table = pd.DataFrame({"name": list("abcd"), "macs": macs, "throughput": [1 / each for each in seconds]})
    pair = correlate(table, ["macs", "1/throughput"]).pair("macs", "1/throughput")
    assert pair.pearson == pytest.approx(float(np.corrcoef(macs, seconds)[0, 1]))
    assert pair.spearman == pytest.approx(1.0)
    assert correlate(table, ["macs", "throughput"]).pair("macs", "throughput").pearson != pytest.approx(-pair.pearson)
    still = correlate(table.assign(throughput=[0.0, 4.0, 3.0, 1.0]), ["macs", "1/throughput"]).pairs[0]
    assert still.n == 3
    with pytest.raises(RequestError, match="unknown metric of this table 'thruput'"):
        correlate(table, ["macs", "1/thruput"])


def test_own_trainings_on_two_data_sets_are_correlated_though_each_has_its_own_recipe() -> None:
    imagenet = {"dataset": "imagenet-1k", "pipeline": "deit3-finetune@1", "pretraining": "imagenet-21k"}
    cars = {"dataset": "cars", "pipeline": "cars@1", "pretraining": "imagenet-21k+imagenet-1k"}
    accuracies = {"a": (70.0, 80.0), "b": (75.0, 84.0), "c": (80.0, 92.0)}
    rows = [
        {"name": name, "source": "measured", "img_size": 224, "final": True, "top1": top1, **trained}
        for name, values in accuracies.items()
        for trained, top1 in zip((imagenet, cars), values, strict=True)
    ]
    larger = [{"name": name, "source": "measured", "img_size": 384, "top1": 10.0, **imagenet} for name in accuracies]
    printed = [
        {
            "name": name,
            "source": "published",
            "img_size": 224,
            "pipeline": "p",
            "dataset": dataset,
            "top1": 50.0 + i * j,
        }
        for i, name in enumerate("defgh")
        for j, dataset in enumerate(("imagenet-1k", "cars"))
    ]
    result = correlate_datasets(pd.DataFrame([*rows, *larger, *printed]))
    pair = result.pair("imagenet-1k", "cars")
    assert (result.source, pair.n) == ("measured", 3)
    assert pair.pearson == pytest.approx(np.corrcoef(*zip(*accuracies.values(), strict=True))[0, 1])
    assert correlate_datasets(pd.DataFrame(printed)).source == "published"


def test_between_data_sets_the_scope_chooses_pipeline_seeds_and_unfinished_trainings() -> None:
    cars = (70.0, 72.0, 75.0, 79.0)
    one, other = (60.0, 65.0, 61.0, 69.0), (64.0, 61.0, 71.0, 63.0)
    decayed, unfinished = (50.0, 40.0, 45.0, 30.0), (10.0, 30.0, 20.0, 25.0)

    def trained(
        dataset: str, values: tuple[float, ...], pipeline: str = "p@1", **more: object
    ) -> list[dict[str, object]]:
        usual = {"source": "measured", "img_size": 224, "dataset": dataset, "pipeline": pipeline, "final": True}
        return [{"name": name, "top1": top1, **usual, **more} for name, top1 in zip("abcd", values, strict=True)]

    table = pd.DataFrame(
        [
            *trained("imagenet-1k", decayed, "p@1 weight_decay=0.5"),
            *trained("imagenet-1k", unfinished, "p@1 epochs=9", final=False, **{"recipe.epochs": 9.0}),
            *trained("imagenet-1k", one, **{"recipe.seed": 0}),
            *trained("imagenet-1k", other, **{"recipe.seed": 1}),
            *trained("cars", cars, "cars@1"),
        ]
    )
    for scope, values in (
        (Scope(), np.mean([one, other], axis=0)),
        (Scope(seeds="best"), np.max([one, other], axis=0)),
        (Scope(pipeline="p@1 weight_decay=0.5"), decayed),
        (Scope(unfinished=True), unfinished),
    ):
        pair = correlate_datasets(table, scope).pair("imagenet-1k", "cars")
        assert pair.pearson == pytest.approx(np.corrcoef(values, cars)[0, 1])
    with pytest.raises(RequestError, match="unknown pipeline with accuracies .p@2.; did you mean .p@1."):
        correlate_datasets(table, Scope(pipeline="p@2"))
