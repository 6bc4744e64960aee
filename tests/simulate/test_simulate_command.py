"""`favor simulate`, `favor devices`, and `favor recommend` with simulated numbers, as a user calls them."""

import json
import subprocess
import sys

import pytest
from typer.testing import CliRunner

from favor.cli import app
from favor.records.store import read


def run(*arguments: str):
    return CliRunner().invoke(app, [*arguments])


def test_json_has_a_record_per_model_and_device_and_into_keeps_them(tmp_path):
    study = tmp_path / "study"
    result = run("simulate", "vit_ti16", "--on", "a100,t4", "--img-size", "64", "--json", "--into", str(study))
    assert result.exit_code == 0, result.output
    found = json.loads(result.stdout)
    assert [(each["name"], each["conditions"]["device"]) for each in found] == [
        ("vit_ti16", "a100"),
        ("vit_ti16", "t4"),
    ]
    assert all(each["source"] == "simulated" for each in found)
    assert [record.metrics for record in read(study).records] != []
    assert [to["request"] for to in found] == [record.request for record in read(study).records]


def test_the_table_says_that_it_is_simulated_and_how_surely():
    result = run("simulate", "vit_ti16", "--on", "rtx3090", "--img-size", "64", "--batch-size", "8")
    assert "Simulated inference, amp" in result.stdout
    assert "±" in result.stdout


@pytest.mark.parametrize(
    ("arguments", "told"),
    [
        (["vit_ti16", "--on", "a10"], "unknown device"),
        (["vit_ti16", "--on", ","], "name a device"),
        (["vit_ti16", "--on", "a100", "--batch-size", "many"], "--batch-size"),
        (["vit_ti16", "--on", "a100", "--phase", "sleep"], "--phase"),
        (["vit_ti16", "--on", "t4", "--precision", "bf16"], "no units for bf16"),
    ],
)
def test_a_wrong_request_is_one_line(arguments, told):
    result = run("simulate", *arguments)
    assert result.exit_code != 0
    assert told in str(result.exception)


def test_devices_are_listed_with_their_sources():
    everything = json.loads(run("devices", "--json").stdout)
    assert {"a100", "h100", "t4"} <= {each["name"] for each in everything}
    assert all(each["sources"] for each in everything)
    assert "NVIDIA A100" in run("devices").stdout


WITHOUT_TORCH = """
import sys
sys.argv = ["favor", "devices", "--json"]
from favor.cli import main
try:
    main()
except SystemExit:
    pass
sys.exit("torch" in sys.modules)
"""


def test_devices_need_no_torch():
    assert subprocess.run([sys.executable, "-c", WITHOUT_TORCH], capture_output=True, check=False).returncode == 0


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
