"""`favor simulate`, `favor devices`, and `favor recommend` with simulated numbers, as a user calls them."""

import json
import subprocess
import sys

import pytest
from msgspec.structs import replace
from typer.testing import CliRunner

from favor.cli import app
from favor.records.schema import Record, reading
from favor.records.store import append, read
from favor.simulation.shipped import shipped_records


def run(*arguments: str):
    return CliRunner().invoke(app, [*arguments])


def test_json_has_a_record_per_model_and_device_and_a_study_keeps_them(tmp_path):
    study = tmp_path / "study"
    result = run("simulate", "vit_xs4", "--device", "a100,t4", "--json", "--study", str(study))
    assert result.exit_code == 0, result.output
    found = json.loads(result.stdout)
    assert [(each["name"], each["conditions"]["device"]) for each in found] == [
        ("vit_xs4", "a100"),
        ("vit_xs4", "t4"),
    ]
    assert all(each["source"] == "simulated" for each in found)
    assert [record.metrics for record in read(study).records] != []
    assert [to["request"] for to in found] == [record.request for record in read(study).records]


def test_the_table_tells_the_best_batch_of_training():
    arguments = ("simulate", "vit_xs4", "--device", "t4", "--phase", "training", "--batch-size", "best")
    (record,) = json.loads(run(*arguments, "--json").stdout)
    assert f"best: {record['environment']['train_batch_size']}" in run(*arguments).stdout


def test_the_table_says_that_it_is_simulated_and_how_surely():
    result = run("simulate", "vit_xs4", "--device", "rtx3090", "--batch-size", "8")
    assert "Simulated inference, eager, amp" in result.stdout
    assert "±" in result.stdout


@pytest.mark.parametrize(
    ("arguments", "told"),
    [
        (["vit_ti16", "--device", "a10"], "unknown device"),
        (["vit_ti16", "--device", ","], "name a device"),
        (["vit_ti16", "--device", "a100", "--batch-size", "many"], "--batch-size"),
        (["vit_ti16", "--device", "a100", "--phase", "sleep"], "unknown phase"),
        (["vit_ti16", "--device", "a100", "--runtime", "openvino"], "unknown runtime"),
        (["vit_ti16", "--device", "a100", "--runtime", "compile", "--phase", "training"], "is not simulated"),
        (["vit_ti16", "--device", "t4", "--precision", "bf16"], "does not support bf16"),
    ],
)
def test_a_wrong_request_is_one_line(arguments, told):
    result = run("simulate", *arguments)
    assert result.exit_code != 0
    assert told in str(result.exception)


def test_a_model_that_refuses_the_image_size_does_not_end_the_others():
    result = run(
        "simulate", "vit_ti16", "vit_xs4", "--device", "a100", "--img-size", "36", "--batch-size", "8", "--json"
    )
    assert result.exit_code == 1
    assert [each["name"] for each in json.loads(result.stdout)] == ["vit_xs4"]
    assert "error: vit_ti16" in result.stderr


def test_a_device_that_is_named_twice_is_simulated_once():
    result = run("simulate", "vit_xs4", "--device", "a100,A100-40gb", "--batch-size", "8", "--json")
    assert len(json.loads(result.stdout)) == 1


def test_devices_are_listed_with_their_sources():
    everything = json.loads(run("devices", "--json").stdout)
    assert {"a100", "h100", "t4"} <= {each["name"] for each in everything}
    assert all(each["sources"] for each in everything)
    assert "NVIDIA A100" in run("devices").stdout


WITHOUT_TORCH = """
import sys
from favor.cli import main
try:
    main()
except SystemExit:
    pass
sys.exit("torch" in sys.modules)
"""


@pytest.mark.parametrize(
    "arguments",
    [["devices", "--json"], ["recommend", "--device", "a100", "--prefer", "throughput", "--min-accuracy", "82"]],
    ids=["devices", "recommend"],
)
def test_what_is_simulated_already_needs_no_torch(arguments):
    command = [sys.executable, "-c", WITHOUT_TORCH, *arguments]
    done = subprocess.run(command, capture_output=True, text=True, check=False)
    assert done.returncode == 0, done.stderr
    assert done.stdout


def test_recommend_answers_for_a_device_that_is_not_here_with_an_interval_and_says_so():
    result = run("recommend", "--device", "a100", "--prefer", "throughput", "--min-accuracy", "82", "--json")
    assert result.exit_code == 0, result.output
    answer = json.loads(result.stdout)
    speed = answer["favored"]["metrics"]["throughput"]
    assert speed["source"] == "simulated"
    assert speed["low"] < speed["value"] < speed["high"]
    assert answer["ranked_by"] == "numbers"
    assert any("throughput: simulated" in note for note in answer["notes"])
    assert "(simulated)" in run("recommend", "--device", "a100", "--prefer", "throughput").stdout
    assert "simulated, not measured" in run("pareto", "--device", "a100").output


def test_without_a_device_nothing_simulated_is_used():
    answer = json.loads(run("recommend", "--prefer", "throughput", "--json").stdout)
    assert "simulated" not in json.dumps(answer)


def test_compare_and_pareto_mark_what_is_simulated():
    told = run("compare", "vit_s16", "swin_ti", "--device", "a100").stdout
    assert "(simulated)" in " ".join(told.split())
    assert "(simulated)" not in run("compare", "vit_s16", "swin_ti").stdout
    assert "(simulated)" in " ".join(run("pareto", "--device", "a100").stdout.split())
    points = json.loads(run("pareto", "--device", "a100", "--json").stdout)["points"]
    assert {point["sources"]["throughput"] for point in points} == {"simulated"}
    assert "simulated" not in {point["sources"]["top1"] for point in points}


@pytest.mark.parametrize("command", [["correlate", "throughput", "params"], ["disagree", "throughput", "params"]])
def test_indicators_of_a_device_that_is_not_here_are_simulated_and_the_user_is_told(command):
    told = run(*command, "--device", "a100")
    assert "throughput: simulated, not measured" in told.stderr
    assert "params" in told.stdout
    assert "simulated" not in run(*command).output


def test_the_page_of_a_study_knows_which_numbers_are_simulated(tmp_path):
    from favor.records import gather
    from favor.report.data import as_json, page_data

    study = tmp_path / "study"
    assert run("simulate", "vit_xs4", "--device", "a100", "--study", str(study)).exit_code == 0
    data = as_json(page_data(gather([study])))
    assert "a100, amp-fp16" in data
    assert '"simulated"' in data


def test_measurements_in_the_study_correct_the_simulation_and_the_user_is_told(tmp_path):
    study, mine = tmp_path / "study", tmp_path / "mine"
    names = ("vix_vit", "vix_vil", "vix_vin", "vix_fnet", "vix_mixer")
    assert run("simulate", *names, "--device", "t4", "--batch-size", "8", "--study", str(study)).exit_code == 0
    append(mine, [slowed(record, 1.25) for record in read(study).records])
    result = run("simulate", "vix_vit", "--device", "t4", "--batch-size", "8", "--study", str(mine), "--json")
    assert "t4: times corrected by 1.250 from 5 measurements" in result.stderr
    (found,) = json.loads(result.stdout)
    plain = next(record for record in read(study).records if record.name == "vix_vit")
    assert found["metrics"]["throughput"]["value"] == pytest.approx(plain.metrics["throughput"].value / 1.25, rel=1e-6)


def test_a_measurement_on_the_card_itself_goes_before_the_simulation(tmp_path):
    names = ("vit_s16", "swin_ti")
    simulated = [r for r in shipped_records("a100") if r.name in names and "throughput" in r.metrics]
    there = {"device_name": "NVIDIA A100-SXM4-40GB", "host": "lab"}
    append(
        tmp_path / "study",
        [
            replace(slowed(record, 2), conditions={**record.conditions, "device": "cuda"}, environment=there)
            for record in simulated
        ],
    )
    asked = ["compare", "vit_s16", "swin_ti", "--device", "a100"]
    assert "(simulated)" not in run(*asked, "--study", str(tmp_path / "study")).stdout
    assert "(simulated)" in " ".join(run(*asked).stdout.split())


def slowed(record: Record, factor: float) -> Record:
    """A simulated record as a measurement of a device that is so much slower."""
    rate = reading("throughput", record.metrics["throughput"].value / factor, method="a clock")
    return replace(record, source="measured", metrics={"throughput": rate})
