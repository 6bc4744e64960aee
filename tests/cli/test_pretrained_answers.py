"""`favor show` and `favor recommend` know which weights can be had, and what those very weights reach."""

import json

import pytest
from typer.testing import CliRunner

import favor
from favor.cli import app
from favor.errors import RequestError
from favor.evidence import best_weights
from favor.records.schema import CardFields
from favor.records.timm_results import accuracy_records, checkpoint_accuracies
from favor.zoo.checkpoints import ARCHITECTURES, BORROWED


def said(*words: str) -> str:
    result = CliRunner(env={"COLUMNS": "250"}).invoke(app, list(words))
    assert result.exit_code == 0, result.output + str(result.exception)
    return result.output


def test_show_lists_checkpoints_with_their_own_accuracy_and_preprocessing() -> None:
    found = json.loads(said("show", "vit_s16", "--json"))["checkpoints"]
    default = found[0]
    assert default["name"] == "vit_small_patch16_224.augreg_in21k_ft_in1k"
    assert (default["top1"], default["img_size"], default["crop_ratio"]) == (81.402, 224, 0.9)
    assert (default["training"], default["license"]) == ("AugReg, imagenet-21k, then imagenet-1k", "apache-2.0")
    larger = next(one for one in found if one["name"] == "vit_small_patch16_384.augreg_in21k_ft_in1k")
    assert larger["top1"] == 83.814
    features = next(one for one in found if one["tag"] == "dino")
    assert (features["top1"], features["training"]) == (None, "DINO, self-supervised, no classes: features only")


def test_show_lists_every_image_size_that_timm_has_an_accuracy_for() -> None:
    found = json.loads(said("show", "resnet50", "--json"))["checkpoints"]
    sizes = {(one["img_size"], one["crop_ratio"], one["top1"]) for one in found if one["tag"] == "a1_in1k"}
    assert sizes == {(224, 0.95, 80.382), (288, 1.0, 81.24)}


def test_show_says_where_none_are_published() -> None:
    assert "Pretrained weights: none published" in said("show", "linformer_s16")
    assert "Pretrained weights: none published" in said("show", "mixer_s16")


def test_show_gives_borrowed_weights_no_accuracy() -> None:
    assert "the accuracy of tome_r8_s16 with them is not published" in said("show", "tome_r8_s16")
    assert {one["top1"] for one in json.loads(said("show", "tome_r8_s16", "--json"))["checkpoints"]} == {None}


def test_show_knows_the_weights_of_any_network_of_timm() -> None:
    (found,) = json.loads(said("show", "timm:levit_256", "--json"))["checkpoints"]
    assert (found["source"], found["top1"]) == ("timm/levit_256.fb_dist_in1k", 81.506)


def test_show_claims_no_rule_for_the_image_sizes_of_timm_s_networks() -> None:
    assert "fixed when the model is built (default 224)" in said("show", "timm:levit_128s")
    assert "not fixed (default 224)" in said("show", "timm:resnet18")
    sizes = json.loads(said("show", "timm:levit_128s", "--json"))["image_sizes"]
    assert sizes == {"default": 224, "multiple_of": None, "at_least": None, "only": []}
    assert "multiples of 16 from 16 px (default 224)" in said("show", "vit_s16")


def test_an_accuracy_is_a_record_of_the_pipeline_of_its_weights() -> None:
    records = accuracy_records("vit_s16", CardFields(family="vit"), ARCHITECTURES["vit_s16"])
    pipelines = {record.conditions["pipeline"] for record in records}
    assert pipelines == {"timm:augreg_in21k_ft_in1k", "timm:augreg_in1k"}
    assert {record.name for record in records} == {"vit_s16"}
    assert {record.conditions["img_size"] for record in records} == {224, 384}


def test_with_weights_ranks_by_the_accuracy_of_the_weights_and_says_how_to_get_them() -> None:
    answer = favor.recommend(with_weights=True, top=100)
    assert answer.favored is not None
    choices = (answer.favored, *answer.runners_up)
    assert {choice.name for choice in choices} <= set(ARCHITECTURES)
    assert not {choice.name for choice in choices} & (set(BORROWED) | {"mixer_s16"})
    for choice in choices:
        reached = checkpoint_accuracies(ARCHITECTURES[choice.name])
        at_this_size = [one.top1 for one in reached if one.img_size == choice.img_size]
        assert choice.metrics["top1"].value == max(at_this_size), choice.name
    assert answer.favored.command == ('favor.create_model("vit_l16", img_size=384, pretrained="augreg_in21k_ft_in1k")')
    assert answer.flagged == ()


def test_with_weights_advises_no_measurement_where_none_would_decide() -> None:
    answer = favor.recommend(with_weights=True, max_params="30M")
    assert answer.favored is not None
    assert answer.next_steps == ()
    assert favor.recommend(with_weights=True, max_latency="50ms").next_steps


def test_the_normal_answer_is_the_benchmark_s_and_names_the_weights_beside_it() -> None:
    answer = json.loads(said("recommend", "--prefer", "params", "--min-accuracy", "82", "--json"))
    choices = [answer["favored"], *answer["runners_up"]]
    assert all("timm:" not in choice["metrics"]["top1"]["setting"] for choice in choices)
    assert answer["weights"].keys() == {choice["name"] for choice in choices}
    assert "none published" in said("recommend", "--prefer", "params", "--min-accuracy", "82")


def test_the_best_weights_are_the_most_accurate() -> None:
    best = best_weights("resnet18")
    assert best is not None
    assert best.top1 == max(one.top1 for one in checkpoint_accuracies(["resnet18"]))
    assert best_weights("wavevit_s") is None
    borrowed = best_weights("evit_s16")
    assert borrowed is not None
    assert (borrowed.borrowed_from, borrowed.top1) == ("DeiT", None)


@pytest.mark.parametrize("option", [("--dataset", "cars"), ("--pipeline", "original"), ("--any-pipeline",)])
def test_with_weights_refuses_what_contradicts_it(option: tuple[str, ...]) -> None:
    result = CliRunner().invoke(app, ["recommend", "--with-weights", *option])
    assert isinstance(result.exception, RequestError)
    assert "--with-weights ranks by the accuracy of each model's own weights" in str(result.exception)
