"""One row per model and size, with the best number of every metric and its origin."""

from collections.abc import Callable

import pandas as pd
import pytest

from favor.analyze.assembling import assemble, comparable, with_failures
from favor.analyze.devices import device_kind
from favor.analyze.run_settings import RunSettings
from favor.analyze.setting import Setting
from favor.analyze.trainings import Scope, trainings
from favor.errors import RequestError

WideTable = Callable[..., pd.DataFrame]


def throughput(name: str, value: float, source: str, device: str, **more: object) -> dict[str, object]:
    return {"name": name, "throughput": value, "source": source, "device": device, **more}


def test_measured_beats_imported_beats_published_beats_simulated(wide_table: WideTable) -> None:
    sources = ["simulated", "published", "imported", "measured"]
    for best in range(1, 4):
        kept = sources[: best + 1]
        rows = [throughput("vit_s16", 10.0 + i, source, "cpu") for i, source in enumerate(kept)]
        assembled = assemble(wide_table(*rows))
        assert len(assembled) == 1
        assert assembled["throughput"].iloc[0] == 10.0 + best
        assert assembled["throughput_source"].iloc[0] == kept[-1]


def test_in_one_run_setting_the_better_source_counts_even_if_it_is_older(wide_table: WideTable) -> None:
    table = wide_table(
        throughput("vit_s16", 11.0, "imported", "a100"), throughput("vit_s16", 10.0, "simulated", "a100")
    )
    assert assemble(table, setting=RunSettings(table).best(["throughput"]))["throughput"].tolist() == [11.0]


def test_a_device_of_another_kind_never_stands_in(wide_table: WideTable) -> None:
    table = wide_table(
        throughput("vit_s16", 11000.0, "imported", "rtx3090"), throughput("swin_ti", 20.0, "imported", "cpu")
    )
    on_cpu = assemble(table, device="i9-12900h").set_index("name")["throughput"]
    assert on_cpu["swin_ti"] == 20.0
    assert pd.isna(on_cpu["vit_s16"])


def test_the_device_asked_for_beats_a_like_one(wide_table: WideTable) -> None:
    table = wide_table(
        throughput("vit_s16", 1.0, "imported", "rtx3090"), throughput("vit_s16", 2.0, "imported", "rtx4090")
    )
    assert assemble(table, device="rtx3090")["throughput"].tolist() == [1.0]
    assert assemble(table, device="rtx4090")["throughput"].tolist() == [2.0]


def test_without_a_device_the_measured_one_is_meant(wide_table: WideTable) -> None:
    table = wide_table(
        throughput("a", 1000.0, "imported", "rtx3090"),
        throughput("b", 900.0, "imported", "rtx3090"),
        throughput("a", 10.0, "measured", "cpu"),
    )
    assembled = assemble(table).set_index("name")["throughput"]
    assert assembled["a"] == 10.0
    assert pd.isna(assembled["b"])


def test_a_number_without_an_image_size_belongs_to_every_size(wide_table: WideTable) -> None:
    table = wide_table(
        {"name": "vit_s16", "top1": 82.5},
        {"name": "vit_s16", "top1": 83.5, "img_size": 384},
        {"name": "vit_s16", "params": 22e6, "img_size": None},
        {"name": "only", "params": 5e6, "img_size": None},
    )
    assembled = assemble(table)
    assert assembled[["name", "img_size"]].fillna(0).to_numpy().tolist() == [
        ["only", 0],
        ["vit_s16", 224],
        ["vit_s16", 384],
    ]
    assert assembled["params"].tolist() == [5e6, 22e6, 22e6]
    assert assembled["top1"].tolist()[1:] == [82.5, 83.5]


def test_an_accuracy_comes_from_the_basis_alone(wide_table: WideTable) -> None:
    table = wide_table(
        {"name": "swin_s", "top1": 84.87},
        {"name": "swin_s", "top1": 83.0, "pipeline": "original", "pretraining": None},
        {"name": "swin_s", "top1": 92.7, "dataset": "cars"},
        {"name": "deit", "top1": 79.8, "pipeline": "original", "pretraining": None},
    )
    basis = trainings(table, "imagenet-1k")[0].setting
    assert basis == Setting("imagenet-1k", "wtf-deit3", "imagenet-21k", distillation=False, img_size=224)
    assembled = assemble(table, basis=basis).set_index("name")
    assert assembled["top1"]["swin_s"] == 84.87
    assert pd.isna(assembled["top1"]["deit"])
    assert assembled["top1_pipeline"]["swin_s"] == "wtf-deit3"
    assert assemble(table, Scope("cars")).set_index("name")["top1"]["swin_s"] == 92.7


def test_on_another_data_set_the_pipeline_that_was_measured_is_the_basis(wide_table: WideTable) -> None:
    rows = [
        {"name": f"v{i}", "top1": 60.0, "dataset": "cifar10", "pipeline": "vix", "pretraining": None} for i in range(4)
    ]
    own = [{**row, "pipeline": "short", "source": "measured"} for row in rows[:2]]
    assert trainings(wide_table(*rows), "cifar10")[0].setting.pipeline == "vix"
    assert trainings(wide_table(*rows, *own), "cifar10")[0].setting.pipeline == "short"


def test_an_unknown_data_set_is_refused_with_those_that_are_known(wide_table: WideTable) -> None:
    with pytest.raises(RequestError, match="did you mean 'imagenet-1k'"):
        trainings(wide_table({"name": "a", "top1": 1.0}), "imagenet1k")


def test_failed_rows_and_the_input_stay_out_of_it(wide_table: WideTable) -> None:
    table = wide_table({"name": "a", "top1": 80.0}, {"name": "b", "top1": 99.0, "status": "failed"})
    before = table.copy(deep=True)
    assert assemble(table)["name"].tolist() == ["a"]
    pd.testing.assert_frame_equal(table, before)


def test_one_ranking_holds_numbers_of_one_setting(wide_table: WideTable) -> None:
    table = wide_table(
        throughput("a", 10.0, "imported", "rtx3090", precision="amp"),
        throughput("b", 11.0, "imported", "rtx3090", precision="amp"),
        throughput("c", 99.0, "imported", "rtx3090", precision="fp32"),
    )
    kept, setting, dropped = comparable(assemble(table), "throughput")
    assert (setting, dropped) == (Setting(device="rtx3090", precision="amp"), 1)
    assert kept.set_index("name")["throughput"].dropna().to_dict() == {"a": 10.0, "b": 11.0}


def test_training_memory_at_two_batch_sizes_is_two_settings(wide_table: WideTable) -> None:
    rows = [
        {"name": n, "train_memory": 1e9, "device": "a100", "batch_size": b}
        for n, b in (("a", 64), ("b", 64), ("c", 2048))
    ]
    kept, setting, dropped = comparable(assemble(wide_table(*rows)), "train_memory")
    assert (setting, dropped) == (Setting(device="a100", batch_size=64), 1)
    assert kept["train_memory"].notna().sum() == 2


@pytest.mark.parametrize(
    ("name", "kind"),
    [
        ("mi300x", "gpu"),
        ("i9_10940x", "cpu"),
        ("NVIDIA A100-SXM4-80GB", "gpu"),
        ("cuda:0", "gpu"),
        ("AMD EPYC 7763 64-Core Processor", "cpu"),
        ("p100 or t4", "gpu"),
        ("tpu-v3", "tpu"),
        ("abacus", "unknown"),
        (None, "unknown"),
    ],
)
def test_a_device_is_known_by_whole_words(name: object, kind: str) -> None:
    assert device_kind(name) == kind


def test_devices_of_no_known_kind_are_not_alike(wide_table: WideTable) -> None:
    table = wide_table(throughput("a", 1.0, "imported", "abacus"), throughput("b", 2.0, "imported", "slide-rule"))
    assert assemble(table, device="abacus").set_index("name")["throughput"].dropna().to_dict() == {"a": 1.0}


def test_the_setting_is_of_the_machine_with_the_most_models_unless_another_is_asked_for(wide_table: WideTable) -> None:
    table = wide_table(
        *(throughput(name, 1.0, "measured", "cpu", machine="home") for name in "abc"),
        *(
            throughput(name, 9.0, "measured", "cpu", machine="a chip, host work", **{"environment.host": "work"})
            for name in "ab"
        ),
        *(throughput(name, 9.0, "imported", "cpu", machine="theirs") for name in "abcdefg"),
    )
    by_default, asked = RunSettings(table).best(["throughput"]), RunSettings(table).best(["throughput"], "work")
    assert by_default is not None
    assert asked is not None
    assert (by_default.machine, asked.machine) == ("home", "a chip, host work")
    rows = assemble(table, setting=asked).set_index("name")
    assert rows["throughput"]["a"] == 9.0
    assert comparable(rows, "throughput", asked)[0]["throughput"].notna().sum() == 2


def test_models_that_failed_stay_countable(wide_table: WideTable) -> None:
    table = wide_table(
        {"name": "a", "top1": 80.0, "params": 5e6},
        {"name": "a", "status": "failed"},
        {"name": "b", "top1": 81.0},
        {"name": "b", "status": "out_of_memory"},
        {"name": "c", "status": "failed"},
        {"name": "d", "top1": 82.0},
    )
    rows = with_failures(assemble(table), table, ["top1", "params"]).set_index("name")
    assert rows["status"].to_dict() == {"a": "ok", "b": "failed", "c": "failed", "d": "ok"}


def test_without_a_basis_the_best_training_of_a_model_counts_with_its_latest_value(wide_table: WideTable) -> None:
    def trained(pipeline: str, top1: float, top5: float, **more: object) -> dict[str, object]:
        row = {"name": "resnet50", "source": "imported", "pipeline": pipeline, "top1": top1, "top5": top5}
        return {**row, "time": None, **more}

    table = wide_table(
        trained("timm:good", 81.0, 95.0, time="2026-11-15T21:40:00Z"),
        trained("timm:good", 80.5, 95.2, time="2026-11-15T21:50:00Z"),
        trained("timm:poor", 76.0, 97.0, time="2026-11-15T22:00:00Z"),
        # Another source is never better for its higher value.
        trained("original", 90.0, 99.0, source="published"),
    )
    # The order of the records says which is the latest, not a clock that may have been set back.
    for order, top1, top5 in ((table, 80.5, 95.2), (table.iloc[::-1], 81.0, 95.0)):
        (row,) = assemble(order, Scope("imagenet-1k")).to_dict("records")
        assert (row["top1"], row["top1_pipeline"]) == (top1, "timm:good")
        # Not the 97.0 of the other training: all qualities are those of one.
        assert (row["top5"], row["top5_pipeline"]) == (top5, "timm:good")


def test_what_is_counted_needs_no_device(wide_table: WideTable) -> None:
    table = wide_table(
        {"name": "vix_vit", "model_size_paper": 1e8, "device": "p100 or t4"},
        {"name": "vix_vit", "throughput": 9.0, "source": "measured", "device": "cpu"},
    )
    (row,) = assemble(table, device="cpu").to_dict("records")
    assert (row["model_size_paper"], row["model_size_paper_setting"]) == (1e8, Setting())
    assert RunSettings(table).best(["model_size_paper"]) is None
