"""`favor count` as a user calls it."""

import json

import pytest
import torch
import typer
from torch import Tensor, nn
from typer.testing import CliRunner

from favor.cli.count import add_commands, format_count
from favor.errors import RequestError
from favor.trace.counts import METRIC_NAMES
from favor.trace.peak_memory import peak_memory
from favor.zoo import registry


@pytest.fixture
def app() -> typer.Typer:
    made = typer.Typer()
    made.callback()(lambda: None)  # a second level, as in the door, so that `count` is named
    add_commands(made)
    return made


def run(app: typer.Typer, *arguments: str):
    return CliRunner().invoke(app, ["count", *arguments])


def test_json_is_a_list_of_objects_with_the_name_the_counts_and_the_conditions(app):
    result = run(app, "vit_ti16", "--img-size", "64", "--num-classes", "10", "--batch-size", "2", "--json")
    (found,) = json.loads(result.stdout)
    assert list(found) == ["name", *METRIC_NAMES, "conditions"]
    assert found["name"] == "vit_ti16"
    assert found["macs_matmul"] == 16 * 768 * 192 + 12 * (17 * 12 * 192**2 + 2 * 17**2 * 192) + 1920
    assert found["conditions"] == {"img_size": [64, 64], "num_classes": 10, "batch_size": 2, "training": False}


def test_a_table_names_its_conditions_and_scales_its_figures(app):
    result = run(app, "vit_ti16")
    assert result.exit_code == 0
    assert "inference, batch size 1, 1000 classes" in result.stdout
    assert "1.254 G" in result.stdout
    assert "5.722 M" in result.stdout


def test_the_operator_table_is_shown_on_request(app):
    assert "aten.addmm.default" in run(app, "vit_ti16", "--img-size", "32", "--by-op").stdout
    (found,) = json.loads(run(app, "vit_ti16", "--img-size", "32", "--by-op", "--phase", "training", "--json").stdout)
    assert sum(row["flops"] for row in found["by_operator"]) == found["flops"]
    assert {row["phase"] for row in found["by_operator"]} == {"forward", "backward"}


def test_an_empty_name_is_a_wrong_request(app):
    result = run(app, "")
    assert isinstance(result.exception, RequestError)
    assert "a model's name is empty" in str(result.exception)


@pytest.mark.parametrize(("name", "key"), [("avit_ti16", "imposed_mean_survival"), ("switch_8_ti16", "experts")])
def test_the_operating_point_is_among_the_conditions(app, name, key):
    (found,) = json.loads(run(app, name, "--img-size", "32", "--json").stdout)
    assert key in found["conditions"]


class Stubborn(nn.Module):
    def forward(self, x: Tensor) -> Tensor:
        return x * x.mean().item()


def test_a_model_that_fails_does_not_stop_the_others_and_is_told_at_the_end(app, monkeypatch):
    build = registry.create_model

    def create(name: str, **options):
        return Stubborn() if name == "vit_s16" else build(name, **options)

    monkeypatch.setattr("favor.trace.counts.create_model", create)
    result = run(app, "vit_s16", "vit_ti16", "--img-size", "32", "--json")
    assert result.exit_code == 1
    assert [row["name"] for row in json.loads(result.stdout)] == ["vit_ti16"]
    assert "error: vit_s16: vit_s16 reads the values of a tensor" in result.stderr


def test_a_wrong_name_is_a_wrong_request_before_anything_is_counted(app):
    result = run(app, "vit_ti16", "vit_xx16")
    assert isinstance(result.exception, RequestError)
    assert "unknown model 'vit_xx16'" in str(result.exception)
    assert result.stdout == ""


def test_a_size_that_no_model_can_take_is_a_wrong_request(app):
    result = run(app, "vit_ti16", "--img-size", "33")
    assert result.exit_code == 2
    assert "vit_ti16 cannot take an image side of 33 px" in result.stderr


def test_counting_allocates_no_weight(app, monkeypatch):
    made = []
    build = registry.create_model

    def create(name: str, **options):
        made.append(build(name, **options))
        return made[-1]

    monkeypatch.setattr("favor.trace.counts.create_model", create)
    assert run(app, "vit_l16", "--json").exit_code == 0
    assert {p.device for p in made[0].parameters()} == {torch.device("meta")}


@pytest.mark.parametrize(("value", "text"), [(0, "0"), (999, "999"), (1000, "1 k"), (4598882304, "4.599 G")])
def test_a_count_is_shown_with_four_digits_and_a_prefix(value, text):
    assert format_count(value) == text


def test_memory_of_a_training_step_is_shown_part_by_part_and_the_parts_add_up(app):
    asked = ("vit_xs4", "--phase", "training", "--memory", "--batch-size", "64")
    (found,) = json.loads(run(app, *asked, "--optimizer", "sgd", "--attention", "plain", "--json").stdout)
    assert sum(part["bytes"] for part in found["parts"]) == found["peak"]
    assert sum(part["share"] for part in found["parts"]) == pytest.approx(1.0)
    assert sum(part["bytes"] for part in found["parts"] if part["part"].startswith("kept: ")) == found["kept"]
    assert found["conditions"] == {
        "img_size": 32,
        "batch_size": 64,
        "precision": "amp",
        "optimizer": "sgd",
        "attention": "plain",
    }
    shown = run(app, *asked).stdout
    assert "32 px, batch size 64, amp, lamb, fused attention" in " ".join(shown.split())
    assert f"{peak_memory('vit_xs4', batch_size=64).peak:,}" in shown


def test_memory_is_that_of_the_benchmark_s_batch_unless_told(app):
    (found,) = json.loads(run(app, "vit_xs4", "--phase", "training", "--memory", "--json").stdout)
    assert found["conditions"]["batch_size"] == 2048
    assert found["conditions"]["optimizer"] == "lamb"


@pytest.mark.parametrize(
    ("arguments", "why"),
    [
        (("--memory",), "add --phase training"),
        (("--memory", "--phase", "training", "--by-op"), "leave out --by-op"),
        (("--optimizer", "sgd"), "add --memory"),
        (("--precision", "fp32", "--phase", "training"), "add --memory"),
        (("--memory", "--phase", "training", "--optimizer", "lion"), None),
    ],
)
def test_options_that_would_do_nothing_are_refused(app, arguments, why):
    result = run(app, "vit_xs4", *arguments)
    assert result.exit_code != 0
    assert why is None or why in str(result.exception)
