"""`favor recommend --among timm`: timm's networks with their published weights, as one question."""

import json
import re
import subprocess
import sys
from pathlib import Path

import pytest
from msgspec.structs import replace
from typer.testing import CliRunner

import favor
from favor.cli import app
from favor.errors import RequestError
from favor.records import Record, append, reading
from favor.records.schema import CardFields
from favor.records.timm_results import checkpoint_accuracies, import_timm

HEADER = (
    "model,infer_img_size,infer_samples_per_sec,infer_step_time,infer_batch_size,param_count,infer_gmacs,infer_macts"
)


def said(*words: str, code: int = 0) -> str:
    result = CliRunner(env={"COLUMNS": "250"}).invoke(app, ["recommend", *words])
    assert result.exit_code == code, result.output + str(result.exception)
    return result.output


def measured(name: str, latency: float, device: str = "cpu", img_size: int = 224, **more: float) -> Record:
    """A record as `favor measure timm:NAME --study DIR` writes it."""
    metrics = {"latency_p50": latency, "throughput": 1 / latency, **more}
    return Record(
        name=name,
        model=CardFields(family="timm", title=name.removeprefix("timm:"), origin="timm"),
        task="inference",
        source="measured",
        conditions={"img_size": img_size, "num_classes": 1000, "device": device, "precision": "fp32", "batch": "best"},
        metrics={key: reading(key, value, value * 0.99, value * 1.01, method="test") for key, value in metrics.items()},
        environment={"device_name": "a processor" if device == "cpu" else device, "host": "here"},
    )


def imported(folder: Path) -> Path:
    """A study with a speed table of timm, as `favor import timm` makes it."""
    file = folder / "benchmark-infer-amp-nchw-pt240-cu124-rtx3090.csv"
    rows = [
        "levit_256,224,9000.0,0.1,256,18.89,1.13,4.23",
        "swin_tiny_patch4_window7_224,224,2500.0,0.4,256,28.3,4.5,17",
    ]
    file.write_text("\n".join([HEADER, *rows]))
    append(folder / "study", import_timm(file).records)
    return folder / "study"


def test_the_accuracy_is_the_checkpoint_s_own_and_the_line_loads_it() -> None:
    answer = favor.recommend(among="timm", prefer="throughput", min_accuracy=81, device="t4")
    assert answer.choices
    for choice in answer.choices:
        assert choice.weights is not None
        architecture = choice.name.removeprefix("timm:")
        (own,) = [
            one
            for one in checkpoint_accuracies([architecture])
            if one.checkpoint == f"{architecture}.{choice.weights.tag}" and one.img_size == choice.img_size
        ]
        assert choice.metrics["top1"].value == own.top1 >= 81
        assert choice.weights.distilled == own.distilled
        assert choice.weights.pretraining == own.pretraining
        assert choice.metrics["throughput"].source == "simulated"
        assert choice.command is not None
        assert choice.command.startswith(f'favor.create_model("{choice.name}.{choice.weights.tag}"')
        assert choice.command.endswith(f"img_size={choice.img_size}, pretrained=True)")


def test_the_text_says_what_is_published_and_what_is_simulated_and_whether_weights_are_distilled() -> None:
    text = said("--among", "timm:levit_[23]*", "--prefer", "throughput", "--device", "t4")
    assert "Top-1 accuracy, published" in text
    assert "Throughput, simulated" in text
    assert "fb_dist_in1k, distilled" in text
    assert 'favor.create_model("timm:levit_256.fb_dist_in1k", img_size=224, pretrained=True)' in text
    assert "accuracy: published by timm for each checkpoint" in text


def test_json_has_tag_image_size_and_sources() -> None:
    words = ["recommend", "--among", "timm:levit*", "--prefer", "throughput", "--device", "t4", "--json"]
    answer = json.loads(CliRunner().invoke(app, words).stdout)
    favored = answer["favored"] or answer["undecided_between"][0]
    assert favored["weights"] == {"tag": favored["weights"]["tag"], "pretraining": "imagenet-1k", "distilled": True}
    assert favored["img_size"] == 224
    assert favored["metrics"]["throughput"]["source"] == "simulated"


def test_own_measurements_of_some_networks_rank_these_and_name_what_to_measure(tmp_path: Path) -> None:
    append(tmp_path, [measured("timm:levit_256", 0.02), measured("timm:resnet50", 0.05), measured("vit_s16", 0.001)])
    text = said("--among", "timm", "--study", str(tmp_path), "--prefer", "latency")
    assert "Favored: timm:levit_256" in text
    assert "vit_s16" not in text
    assert "Latency (median), measured" in text
    assert "not ranked: " in text


def test_a_model_of_the_zoo_that_is_timm_s_network_counts_under_timm_s_name(tmp_path: Path) -> None:
    append(tmp_path, [measured("swin_ti", 0.02), measured("timm:resnet50", 0.05)])
    answer = favor.recommend(among="timm", study=tmp_path, prefer="latency")
    assert answer.favored is not None
    assert answer.favored.name == "timm:swin_tiny_patch4_window7_224"


def test_own_trainings_are_not_mixed_with_published_weights(tmp_path: Path) -> None:
    trained = Record(
        name="timm:levit_256",
        model=CardFields(family="timm", origin="timm"),
        task="accuracy",
        source="measured",
        conditions={"img_size": 224, "dataset": "imagenet-1k", "pipeline": "mine"},
        metrics={"top1": reading("top1", 99.0, method="test")},
    )
    append(tmp_path, [trained, measured("timm:levit_256", 0.02), measured("timm:resnet50", 0.05)])
    answer = favor.recommend(among="timm", study=tmp_path, prefer="latency")
    assert answer.favored is not None
    assert answer.favored.metrics["top1"].value == 81.506


def test_limits_on_a_second_device_hold_there_too(tmp_path: Path) -> None:
    append(tmp_path, [measured("timm:levit_256", 0.2), measured("timm:resnet50", 0.05)])
    answer = favor.recommend(
        among="timm", study=tmp_path, prefer="throughput", device=["t4", "cpu"], max_latency="100ms"
    )
    assert answer.favored is None or answer.favored.name == "timm:resnet50"


def test_without_a_speed_it_says_what_to_run() -> None:
    text = said("--among", "timm", "--prefer", "latency", "--min-accuracy", "84", code=1)
    assert 'favor measure --for "prefer=latency min-accuracy=84" --among timm --study my-study' in text
    assert "--device t4" in text


def test_an_accuracy_that_no_network_has_is_to_be_relaxed_and_nothing_is_to_be_measured_for_it() -> None:
    asked = ("--among", "timm", "--prefer", "throughput", "--min-accuracy", "99")
    text = said(*asked, "--device", "t4", code=1)
    assert re.search(r"Relax one limit: min_accuracy from 99.00 % to [\d.]+ % \(by [\d.]+ points\) gives timm:", text)
    assert "favor measure" not in text
    text = said(*asked, code=1)  # not even a speed is known
    told = r"no model meets min_accuracy, whatever is measured; relax min_accuracy to [\d.]+ % \(timm:\w+\)"
    assert re.search(told, text)
    assert "favor measure" not in text


def test_the_most_accurate_network_needs_no_speed() -> None:
    answer = favor.recommend(among="timm", max_params="30M")
    assert answer.favored is not None
    assert answer.favored.metrics["params"].value <= 30e6
    assert answer.favored.weights is not None


def test_a_misspelled_pattern_names_what_exists() -> None:
    with pytest.raises(RequestError, match="did you mean 'timm:levit_"):
        favor.recommend(among="timm:levt_256", prefer="throughput", device="t4")


def test_after_an_import_the_usual_answer_mentions_timm_s_networks(tmp_path: Path) -> None:
    study = imported(tmp_path)
    assert "--among timm" in said("--study", str(study))
    assert "--among timm" not in said("--prefer", "params")


def test_imported_speeds_rank_timm_s_networks_on_their_device(tmp_path: Path) -> None:
    answer = favor.recommend(among="timm", study=imported(tmp_path), prefer="throughput", device="rtx3090")
    assert answer.favored is not None
    assert answer.favored.name == "timm:levit_256"
    assert {choice.metrics["throughput"].source for choice in answer.choices} == {"imported"}


def test_any_pipeline_shows_the_tag_of_the_weights(tmp_path: Path) -> None:
    file = tmp_path / "results-imagenet.csv"
    header = "model,img_size,top1,top1_err,top5,top5_err,param_count,crop_pct,interpolation"
    file.write_text(f"{header}\nlevit_256.fb_dist_in1k,224,81.5,18.5,95.5,4.5,18.89,0.9,bicubic\n")
    append(tmp_path / "study", import_timm(file).records)
    answer = favor.recommend(among="timm:levit_256", study=tmp_path / "study", any_pipeline=True)
    assert answer.favored is not None
    assert str(answer.favored.weights) == "fb_dist_in1k, distilled"


def test_a_limit_without_numbers_does_not_advise_to_measure_giants(tmp_path: Path) -> None:
    text = said("--among", "timm", "--max-latency", "150ms", code=1)
    assert "eva" not in text
    assert 'favor measure --for "max-latency=150ms" --among timm' in text


def test_it_starts_without_torch_and_timm() -> None:
    code = (
        "import sys; from favor.cli import app; from typer.testing import CliRunner; "
        "r = CliRunner().invoke(app, ['recommend', '--among', 'timm', '--device', 't4', '--prefer', 'throughput']); "
        "assert r.exit_code == 0, r.output; assert not {'torch', 'timm'} & set(sys.modules)"
    )
    subprocess.run([sys.executable, "-c", code], check=True)


def test_what_needs_no_measurement_advises_none() -> None:
    assert favor.recommend(among="timm", max_params="30M").next_steps == ()
    assert favor.recommend(among="timm", prefer="params", min_accuracy=80).next_steps == ()


def test_a_limit_on_the_latency_without_a_device_says_where_numbers_are() -> None:
    text = said("--among", "timm", "--max-latency", "30ms", code=1)
    assert "max_latency cannot be checked: no numbers for latency_p50; a GPU such as --device t4 has simulated" in text


def test_what_would_decide_is_measured_at_the_image_size_of_the_weights(tmp_path: Path) -> None:
    known = [measured("timm:levit_256", 0.01), measured("timm:hgnetv2_b4", 0.01, img_size=288)]
    append(tmp_path, [replace(record, source="imported") for record in known])
    answer = favor.recommend(among="timm", study=tmp_path, prefer="latency", min_accuracy=81)
    assert answer.to_decide is not None
    assert answer.to_decide.command is not None
    assert sorted(answer.to_decide.command.split("; ")) == [
        f"favor measure timm:hgnetv2_b4 --study {tmp_path} --img-size 288",
        f"favor measure timm:levit_256 --study {tmp_path} --img-size 224",
    ]


def test_a_mistyped_timm_is_recognized() -> None:
    with pytest.raises(RequestError, match="did you mean 'timm'"):
        favor.recommend(among="timmm", device="t4")
