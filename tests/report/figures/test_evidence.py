"""Which numbers are drawn: the reader's own before the published, on one basis and in one setting."""

from typing import Any

import pandas as pd

from favor.report.figures.evidence import datasets_of, evidence_of, sources_sentence


def record(name: str, source: str = "published", **more: Any) -> dict[str, Any]:
    accuracy = {"dataset": "imagenet-1k", "pipeline": "wtf-deit3", "pretraining": "imagenet-21k", "distillation": False}
    usual = {"status": "ok", "source": source, "img_size": 224, "provenance": None, "how": "baseline", "title": name}
    return {"name": name, "family": name} | usual | (accuracy if "top1" in more else {}) | more


def speed(name: str, value: float, **more: Any) -> dict[str, Any]:
    return record(name, "measured", throughput=value, device="cpu", precision="fp32", **more)


PUBLISHED = [record(name, top1=80.0 + i) for i, name in enumerate("abcdef")]


def own(names: str, pipeline: str = "mine@1", **more: Any) -> list[dict[str, Any]]:
    return [record(name, "measured", top1=60.0, pipeline=pipeline, **more) for name in names]


def test_published_accuracies_count_until_there_are_two_trained_models_to_compare() -> None:
    few = evidence_of(pd.DataFrame([*PUBLISHED, *own("a")]))
    enough = evidence_of(pd.DataFrame([*PUBLISHED, *own("ab")]))
    assert few.comparison.basis is not None
    assert few.comparison.basis.pipeline == "wtf-deit3"
    assert set(few.rows(["top1"])["name"]) == set("abcdef")
    assert enough.comparison.basis is not None
    assert enough.comparison.basis.pipeline == "mine@1"
    assert set(enough.rows(["top1"])["name"]) == set("ab")


def test_a_reader_who_trained_on_another_data_set_sees_that_one() -> None:
    table = pd.DataFrame([*PUBLISHED, *own("abcde", dataset="cifar10", img_size=32)])
    evidence = evidence_of(table)
    assert evidence.comparison.basis is not None
    assert (evidence.comparison.basis.dataset, evidence.base_size) == ("cifar10", 32)


def test_accuracies_at_another_size_of_the_same_pipeline_are_rows_of_their_own() -> None:
    table = pd.DataFrame(
        [*PUBLISHED, record("a", top1=81.5, img_size=384), speed("a", 5.0, img_size=384), speed("a", 20.0)]
    )
    rows = evidence_of(table).rows(["throughput", "top1"]).sort_values("img_size")
    assert rows[["name", "img_size", "throughput", "top1"]].to_numpy().tolist() == [
        ["a", 224.0, 20.0, 80.0],
        ["a", 384.0, 5.0, 81.5],
    ]


def test_an_accuracy_of_another_pipeline_is_not_mixed_in() -> None:
    table = pd.DataFrame([*PUBLISHED, record("a", top1=99.0, img_size=384, pipeline="original")])
    assert evidence_of(table).rows(["top1"])["top1"].max() == 85.0


def test_measured_throughput_beats_published() -> None:
    published = [record(name, throughput=900.0, device="cpu", precision="fp32") for name in "ab"]
    rows = evidence_of(pd.DataFrame([*PUBLISHED, *published, speed("a", 20.0), speed("b", 30.0)])).rows(["throughput"])
    assert sorted(rows["throughput"]) == [20.0, 30.0]


def test_the_time_per_image_is_one_over_the_throughput_with_its_interval_turned_round() -> None:
    table = pd.DataFrame([*PUBLISHED, speed("a", 20.0, throughput_low=10.0, throughput_high=25.0), speed("b", 4.0)])
    row = evidence_of(table).rows(["1/throughput"]).set_index("name").loc["a"]
    assert (row["1/throughput"], row["1/throughput_low"], row["1/throughput_high"]) == (0.05, 0.04, 0.1)
    assert row["1/throughput_source"] == "measured"


def test_the_time_per_image_is_flagged_as_the_throughput_is() -> None:
    table = pd.DataFrame([*PUBLISHED, speed("a", 20.0, flags="busy"), speed("b", 4.0)])
    rows = evidence_of(table).rows(["1/throughput"]).set_index("name")
    assert rows["1/throughput_flags"].dropna().to_dict() == {"a": "busy"}
    said = sources_sentence(rows.reset_index(), ["1/throughput"])
    assert said.endswith("time per image measured (cpu, fp32) for 2 models, 1 of them busy or contradictory.")


def test_trainings_of_unequal_length_are_told_of_beside_the_sources() -> None:
    runs = [
        record(name, "measured", top1=60.0, minutes=5.0, epochs=epochs) for name, epochs in (("a", 1.0), ("b", 3.0))
    ]
    rows = evidence_of(pd.DataFrame(runs)).rows(["top1"])
    said = "The accuracies cannot be compared: training runs of unequal length: 1 to 3 epochs."
    assert sources_sentence(rows, ["top1"]).endswith(said)
    counted = rows.assign(params=1.0, params_source="measured", params_setting=None)
    assert sources_sentence(counted, ["params"]) == "Sources: parameters counted by favor for 2 models."


def test_a_metric_that_nobody_has_leaves_no_rows_but_its_columns() -> None:
    rows = evidence_of(pd.DataFrame(PUBLISHED)).rows(["throughput", "top1"])
    assert len(rows) == 0
    assert {"throughput", "top1"} <= set(rows.columns)


def test_failed_work_is_not_drawn() -> None:
    table = pd.DataFrame([*PUBLISHED, speed("a", 20.0), speed("b", 30.0), speed("c", 1.0, status="failed")])
    assert set(evidence_of(table).rows(["throughput", "top1"])["name"]) == {"a", "b"}


def test_settings_are_the_readers_own_first_then_by_models() -> None:
    simulated = [record(name, "simulated", throughput=9.0, device="a100") for name in "abc"]
    imported = [record(name, "imported", throughput=9.0, device="rtx3090") for name in "ab"]
    table = pd.DataFrame([*PUBLISHED, *simulated, *imported, speed("a", 1.0)])
    assert [setting.device for setting in evidence_of(table).settings("throughput")] == ["cpu", "rtx3090", "a100"]


def test_rows_in_a_setting_are_of_that_setting_only() -> None:
    table = pd.DataFrame([*PUBLISHED, record("b", "imported", throughput=9.0, device="rtx3090"), speed("a", 1.0)])
    evidence = evidence_of(table)
    found = {s.device: evidence.rows_in(s, ["throughput"])["name"].tolist() for s in evidence.settings("throughput")}
    assert found == {"cpu": ["a"], "rtx3090": ["b"]}


def test_data_sets_are_ordered_by_their_models() -> None:
    assert datasets_of(pd.DataFrame([*PUBLISHED, record("a", top1=90.0, dataset="cars")])) == ["imagenet-1k", "cars"]
    assert datasets_of(pd.DataFrame([speed("a", 1.0)])) == []


def test_the_sources_are_told_from_the_rows() -> None:
    table = pd.DataFrame([*PUBLISHED, speed("a", 20.0), speed("b", 30.0)])
    said = sources_sentence(evidence_of(table).rows(["throughput", "top1"]), ["throughput", "top1"])
    assert said == (
        "Sources: throughput measured (cpu, fp32) for 2 models; "
        "top-1 accuracy published (imagenet-1k, pipeline wtf-deit3, pretrained on imagenet-21k, no distillation)"
        " for 2 models."
    )


def test_our_own_counts_are_said_to_be_counted() -> None:
    rows = evidence_of(pd.DataFrame([record("a", "measured", params=5e6)])).rows(["params"])
    assert sources_sentence(rows, ["params"]) == "Sources: parameters counted by favor for 1 model."
