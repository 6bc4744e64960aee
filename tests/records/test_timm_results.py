"""timm's result files: every row becomes a record or is reported, and the file's name is the environment."""

import time
from pathlib import Path

import pytest

from favor.errors import RequestError
from favor.records.schema import from_data, to_data
from favor.records.timm_results import import_timm, join_on_architecture, torch_version
from records.shared_folder import shared_file

ACCURACY = "model,img_size,top1,top1_err,top5,top5_err,param_count,crop_pct,interpolation\n"
SPEED = (
    "model,infer_img_size,infer_samples_per_sec,infer_step_time,infer_batch_size,param_count,infer_gmacs,infer_macts\n"
)
TRAINING = "model,train_samples_per_sec,train_step_time,train_batch_size,train_img_size,param_count\n"
SPEED_NAME = "benchmark-infer-amp-nchw-pt240-cu124-rtx4090-dynamo.csv"


def file_of(folder: Path, name: str, content: str) -> Path:
    file = folder / name
    file.write_text(content, encoding="utf-8")
    return file


def example_files() -> list[Path]:
    return sorted(shared_file("reference", "timm_results").glob("*.csv"))


def test_an_accuracy_row_becomes_a_record_of_the_architecture_with_its_weights_as_a_condition(tmp_path: Path) -> None:
    row = 'eva_giant_patch14_336.clip_ft_in1k,336,89.462,10.538,98.830,1.170,"1,013.01",1.000,bicubic\n'
    (record,) = import_timm(file_of(tmp_path, "results-imagenet.csv", ACCURACY + row)).records
    assert from_data(to_data(record)) == record
    assert (record.name, record.task, record.source) == ("timm:eva_giant_patch14_336", "accuracy", "imported")
    assert record.conditions["weights"] == "clip_ft_in1k"
    assert (record.conditions["dataset"], record.conditions["img_size"]) == ("imagenet-1k", 336)
    assert record.metrics["top1"].value == 89.462
    assert record.metrics["params"].value == 1_013_010_000
    assert record.provenance == {
        "file": "results-imagenet.csv",
        "row": "eva_giant_patch14_336.clip_ft_in1k",
    }
    assert (record.model.family, record.model.where, record.model.how) == (None, None, None)


def test_a_speed_row_takes_its_environment_from_the_files_name(tmp_path: Path) -> None:
    row = "resnet50,224,4702.21,217.751,1024,25.56,4.11,11.11\n"
    (record,) = import_timm(file_of(tmp_path, SPEED_NAME, SPEED + row)).records
    assert from_data(to_data(record)) == record
    assert (record.name, record.task, record.model.family) == ("resnet50", "inference", "resnet")
    assert dict(record.conditions) == {
        "img_size": 224,
        "batch_size": 1024,
        "device": "rtx4090",
        "precision": "amp-fp16",
        "layout": "nchw",
        "runtime": "compile",
    }
    assert dict(record.environment) == {
        "device_name": "rtx4090",
        "torch": "2.4.0",
        "cuda": "12.4",
        "compile_mode": "dynamo",
    }
    found = {name: reading.value for name, reading in record.metrics.items()}
    assert found == {"throughput": 4702.21, "params": 25_560_000, "macs": 4_110_000_000, "activations": 11_110_000}


def test_a_training_file_on_an_older_framework_is_read_too(tmp_path: Path) -> None:
    name = "benchmark-train-amp-nchw-pt112-cu113-rtx3090.csv"
    (record,) = import_timm(file_of(tmp_path, name, TRAINING + "cait_s24_384,30.5,1000,32,384,47.06\n")).records
    assert (record.name, record.task) == ("cait_s24", "training")
    assert record.metrics["train_throughput"].value == 30.5
    assert dict(record.environment) == {"device_name": "rtx3090", "torch": "1.12", "cuda": "11.3"}


def test_a_processor_has_no_cuda(tmp_path: Path) -> None:
    name = "benchmark-infer-fp32-nchw-pt240-cpu-i9_10940x-dynamo.csv"
    (record,) = import_timm(file_of(tmp_path, name, SPEED + "resnet18,224,5,200,1,11.69,,\n")).records
    assert record.conditions["device"] == "i9-10940x"
    assert "cuda" not in record.environment
    assert set(record.metrics) == {"throughput", "params"}


@pytest.mark.parametrize(
    ("architecture", "name", "family"),
    [
        ("resnet50", "resnet50", "resnet"),
        ("resnet50d", "timm:resnet50d", None),
        ("xcit_small_12_p16_384", "xcit_s12_p16", "xcit"),
        ("deit3_small_patch16_224", "deit3_s16", "deit3"),
        ("vit_small_patch16_224", "timm:vit_small_patch16_224", "vit"),
        ("vit_small_patch14_dinov2", "timm:vit_small_patch14_dinov2", None),
        ("efficientformerv2_s0", "timm:efficientformerv2_s0", "efficientformerv2"),
        ("efficientvit_m2", "timm:efficientvit_m2", None),
        ("coatnet_0_rw_224", "timm:coatnet_0_rw_224", None),
        ("mixer_b16_224", "mixer_b16", "mixer"),
    ],
)
def test_an_architecture_has_our_name_only_where_it_is_the_same_network(
    tmp_path: Path, architecture: str, name: str, family: str | None
) -> None:
    (record,) = import_timm(file_of(tmp_path, SPEED_NAME, f"{SPEED}{architecture},224,5,200,1,22.0,4.0,5.0\n")).records
    assert (record.name, record.model.family) == (name, family)


@pytest.mark.parametrize(
    ("architecture", "how"),
    [("vit_small_patch14_dinov2", "baseline"), ("resnet101d", "baseline"), ("swin_base_patch4_window7_224", "sparse")],
)
def test_an_architecture_of_no_family_of_ours_has_a_class_where_its_place_is_clear(
    tmp_path: Path, architecture: str, how: str
) -> None:
    (record,) = import_timm(file_of(tmp_path, SPEED_NAME, f"{SPEED}{architecture},224,5,200,1,22.0,4.0,5.0\n")).records
    assert record.model.how == how


@pytest.mark.parametrize(
    ("model", "pretraining", "distillation"),
    [
        ("vit_small_patch16_224.augreg_in21k_ft_in1k", "imagenet-21k", None),
        ("swin_tiny_patch4_window7_224.ms_in1k", "imagenet-1k", None),
        ("cait_s24_224.fb_dist_in1k", "imagenet-1k", True),
        ("deit_small_distilled_patch16_224.fb_in1k", "imagenet-1k", True),
        ("hiera_tiny_224.mae_in1k_ft_in1k", "imagenet-1k", None),
        ("convnext_base.clip_laion2b_augreg_ft_in12k_in1k", "laion2b+imagenet-12k", None),
        ("convnext_nano.in12k_ft_in1k", "imagenet-12k", None),
        ("tf_efficientnet_l2.ns_jft_in1k", "jft", None),
        ("eva02_base_patch14_448.mim_in22k_ft_in22k_in1k", "imagenet-21k", None),
        ("eva_giant_patch14_336.clip_ft_in1k", "clip", None),
        ("vit_large_patch14.lvd142m_ft_in1k", "lvd142m", None),
        ("resnet50.fb_swsl_ig1b_ft_in1k", "instagram-1b", None),
        ("efficientformer_l1.snap_distilled_in1k", "imagenet-1k", True),
        ("resnet50", None, None),
    ],
)
def test_pretraining_and_distillation_are_what_the_tag_of_the_weights_tells(
    tmp_path: Path, model: str, pretraining: str | None, distillation: bool | None
) -> None:
    row = f"{model},224,80.0,20.0,95.0,5.0,22.0,0.9,bicubic\n"
    (record,) = import_timm(file_of(tmp_path, "results-imagenet.csv", ACCURACY + row)).records
    assert record.conditions.get("pretraining") == pretraining
    assert record.conditions.get("distillation") is distillation


def test_each_recipe_is_a_pipeline_of_its_own(tmp_path: Path) -> None:
    end = "224,80.0,20.0,95.0,5.0,22.0,0.9,bicubic\n"
    rows = "".join(f"{model},{end}" for model in ("resnet50.a1_in1k", "resnet50.a2_in1k", "resnet50"))
    found = import_timm(file_of(tmp_path, "results-imagenet.csv", ACCURACY + rows))
    assert [record.conditions["pipeline"] for record in found.records] == ["timm:a1_in1k", "timm:a2_in1k", "timm"]


@pytest.mark.parametrize(
    ("digits", "version"),
    [("240", "2.4.0"), ("2100", "2.10.0"), ("2101", "2.10.1"), ("210", "2.1.0"), ("112", "1.12"), ("1121", "1.12.1")],
)
def test_the_frameworks_version_is_read_from_three_or_four_digits(digits: str, version: str) -> None:
    assert torch_version(digits) == version


def test_every_malformed_row_is_reported_with_its_line_and_all_others_are_kept(tmp_path: Path) -> None:
    rows = [
        "resnet18.a1_in1k,224,70.0,30.0,90.0,10.0,11.69,0.9,bicubic",
        "resnet34.a1_in1k,224,70.0,30.0,90.0,10.0,11.69",
        "resnet50.a1_in1k,224,seventy,30.0,90.0,10.0,11.69,0.9,bicubic",
        '"resnet50.a2_in1k,224,70.0,30.0,90.0,10.0,11.69,0.9,bicubic',
        "resnet50.a3_in1k,224.5,70.0,30.0,90.0,10.0,11.69,0.9,bicubic",
        "resnet50.b1_in1k,224,nan,30.0,90.0,10.0,11.69,0.9,bicubic",
        "resnet50.b2_in1k,224,90.0,30.0,70.0,10.0,11.69,0.9,bicubic",
        "rm -rf.x,224,70.0,30.0,90.0,10.0,11.69,0.9,bicubic",
        "",
        "resnet101.a1_in1k,224,72.0,28.0,91.0,9.0,44.55,0.9,bicubic",
    ]
    found = import_timm(file_of(tmp_path, "results-imagenet-real.csv", ACCURACY + "\n".join(rows) + "\n"))
    assert [record.name for record in found.records] == ["resnet18", "resnet101"]
    assert [row.line for row in found.skipped] == [3, 4, 5, 6, 7, 8, 9]
    assert found.rows == len(found.records) + len(found.skipped) == 9
    assert "results-imagenet-real.csv:4: row skipped: top1 'seventy' is not a number" in str(found.skipped[1])


@pytest.mark.parametrize(
    ("name", "content", "why"),
    [
        ("models.csv", ACCURACY, "not named like a timm result file"),
        ("results-imagenet.csv", SPEED, "have a column img_size"),
        ("results-imagenet.csv", "", "have a column model"),
        (SPEED_NAME, TRAINING, "have a column infer_img_size"),
    ],
)
def test_a_file_of_another_kind_is_refused_with_the_reason(tmp_path: Path, name: str, content: str, why: str) -> None:
    with pytest.raises(RequestError, match=why):
        import_timm(file_of(tmp_path, name, content))


def test_a_file_that_is_missing_or_not_text_is_refused(tmp_path: Path) -> None:
    with pytest.raises(RequestError, match="there is no such file"):
        import_timm(tmp_path / "results-imagenet.csv")
    (tmp_path / "results-imagenet.csv").write_bytes(b"\xff\xfe\x00")
    with pytest.raises(RequestError, match="not a text file in UTF-8"):
        import_timm(tmp_path / "results-imagenet.csv")


@pytest.mark.parametrize(
    ("header", "message"),
    [
        ("model,\r,x", "results-imagenet.csv:1: not a header line: new-line character seen"),
        ("m" * 200_000, "results-imagenet.csv:1: not a header line: field larger than field limit"),
        (f"{ACCURACY.strip()},top1", "results-imagenet.csv:1: the header names a column twice"),
    ],
)
def test_a_header_that_is_none_is_refused(tmp_path: Path, header: str, message: str) -> None:
    with pytest.raises(RequestError, match=message):
        import_timm(file_of(tmp_path, "results-imagenet.csv", f"{header}\n"))


@pytest.mark.parametrize(
    ("old", "new", "why"),
    [
        ("25.56", "9" * 400, "is not a number above zero"),
        ("224", "1e99", "is not an integer below"),
        ("a1_in1k", "a1\x1b[2J", "is not a timm name"),
        ("bicubic", "\x1b[2J", "is not a name"),
    ],
)
def test_a_row_with_an_absurd_cell_is_skipped_in_one_line(tmp_path: Path, old: str, new: str, why: str) -> None:
    row = "resnet50.a1_in1k,224,80.2,19.8,95.0,5.0,25.56,0.9,bicubic\n".replace(old, new)
    found = import_timm(file_of(tmp_path, "results-imagenet.csv", ACCURACY + row))
    assert not found.records
    (skipped,) = found.skipped
    assert why in skipped.why
    assert skipped.why.isprintable()
    assert len(skipped.why) < 300


def test_accuracy_and_speed_are_joined_on_the_architecture(tmp_path: Path) -> None:
    end = "20.0,95.0,5.0,25.56,0.9,bicubic\n"
    accuracies = f"{ACCURACY}resnet50.a1_in1k,224,80.2,{end}resnet50.a2_in1k,224,79.8,{end}"
    accuracy = import_timm(file_of(tmp_path, "results-imagenet.csv", accuracies))
    speed = import_timm(file_of(tmp_path, SPEED_NAME, SPEED + "resnet50,224,4702.21,217.7,1024,25.56,4.11,11.11\n"))
    (joined,) = join_on_architecture([*accuracy.records, *speed.records])
    assert (joined.name, joined.img_size, joined.top1, joined.weights) == ("resnet50", 224, 80.2, "a1_in1k")
    assert joined.macs == 4_110_000_000
    assert joined.speeds == {"inference rtx4090 amp-fp16 compiled": 4702.21}


def test_the_six_example_files_lose_no_row_unsaid_and_take_less_than_5_s() -> None:
    files = example_files()
    start = time.process_time()
    found = [import_timm(file) for file in files]
    assert time.process_time() - start < 5
    for file, one in zip(files, found, strict=True):
        lines = [line for line in file.read_text(encoding="utf-8").splitlines()[1:] if line.strip()]
        assert one.rows == len(lines) == len(one.records) + len(one.skipped)
        assert not one.skipped
    records = [record for one in found for record in one.records]
    for record in records[::50]:
        assert from_data(to_data(record)) == record
    joined = join_on_architecture(records)
    with_both = [one for one in joined if one.top1 is not None and one.speeds]
    assert len(with_both) > 1000
    counts = {one.name: one.params for one in joined}
    assert counts["swin_ti"] == pytest.approx(28_288_354, rel=1e-3)
    assert counts["nextvit_s"] == pytest.approx(31_763_368, rel=1e-3)
