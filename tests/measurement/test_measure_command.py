"""`favor measure`, `favor variability` and `favor doctor` as a user calls them."""

import json

import pytest
import torch
import typer
from typer.testing import CliRunner

from favor.cli.measure import add_commands
from favor.errors import RequestError
from favor.machine.device import Cpu
from favor.machine.messages import Channel, Findings
from favor.machine.process import InterruptedJob
from favor.measurement import doctor
from favor.measurement import measure as measuring
from favor.records.store import read


@pytest.fixture
def app() -> typer.Typer:
    made = typer.Typer()
    made.callback()(lambda: None)
    add_commands(made)
    return made


@pytest.fixture
def pretended(monkeypatch):
    """Children that find a throughput which grows from call to call; a name in `failing` fails."""
    state = {"calls": [], "failing": set(), "interrupted_at": None, "flags": [], "environment": {}}

    def supervise(command, request, *, time_limit, on_step, environment):
        asked = json.loads(request)
        state["calls"].append(asked)
        findings = Findings()
        channel = Channel(findings.take)
        channel.begin("latency")
        on_step("latency")
        channel.environment({"device_name": Cpu().name, "torch": torch.__version__, "threads": asked["threads"]})
        metric = "throughput" if asked["phase"] == "inference" else "train_step_time"
        channel.found(metric, 10.0 + len(state["calls"]), "t")
        channel.flag(*state["flags"])
        channel.environment(state["environment"])
        if len(state["calls"]) == state["interrupted_at"]:
            channel.failed("failed", "interrupted")
            raise InterruptedJob(findings)
        if asked["name"] in state["failing"]:
            channel.failed("out_of_memory", "too large")
        else:
            channel.done()
        return findings

    monkeypatch.setattr(measuring, "supervise", supervise)
    return state


def run(app: typer.Typer, *arguments: str):
    return CliRunner().invoke(app, list(arguments))


def test_json_is_a_list_of_records_and_nothing_else(app, pretended):
    result = run(app, "measure", "vit_ti16", "vit_s16", "--phase", "both", "--json")
    assert result.exit_code == 0, result.output
    found = json.loads(result.stdout)
    assert [(record["name"], record["task"]) for record in found] == [
        ("vit_ti16", "inference"),
        ("vit_ti16", "training"),
        ("vit_s16", "inference"),
        ("vit_s16", "training"),
    ]
    for record in found:
        assert {"name", "status", "reason", "conditions", "environment", "metrics"} <= record.keys()
    assert found[0]["metrics"]["throughput"] == {
        "value": 11.0,
        "unit": "img/s",
        "low": None,
        "high": None,
        "method": "t",
    }
    assert "[4/4] vit_s16@224 training fp32: 14.0 s" in result.stderr


def test_a_missing_p99_is_told_with_the_reason(app, pretended):
    pretended["environment"] = {"latency_p99_missing": "40 of the 368 calls that its interval needs"}
    told = run(app, "measure", "vit_ti16").stderr
    assert "no p99 of vit_ti16: 40 of the 368 calls that its interval needs" in told
    several = run(app, "measure", "vit_ti16", "--precision", "fp32", "--precision", "bf16").stderr
    assert all(f"no p99 of vit_ti16 {precision}: 40" in several for precision in ("fp32", "bf16"))
    pretended["environment"] = {}
    assert "p99" not in run(app, "measure", "vit_ti16").stderr


def test_a_failure_is_shown_with_its_reason_and_the_others_go_on(app, pretended):
    pretended["failing"] = {"vit_ti16"}
    result = run(app, "measure", "vit_ti16", "vit_s16")
    assert result.exit_code == 1
    assert "[1/2] vit_ti16@224 inference fp32: 11 img/s, out_of_memory: latency: too large" in result.stderr
    rows = [line for line in result.stdout.splitlines() if "vit_" in line]
    assert "out_of_memory" in rows[0]
    assert "ok" in rows[1]
    assert "12 img/s" in rows[1]


@pytest.mark.parametrize(
    ("message", "why"),
    [
        (
            {"metric": "latency_p50", "value": -0.5, "low": None, "high": None, "method": "t"},
            "metrics.latency_p50: value -0.5, low None: no metric is below zero",
        ),
        ({"metric": "latency_p50", "value": 1.0, "low": 2.0, "high": 3.0, "method": "t"}, "not within low 2.0"),
        ({"environment": {"calls": 10**20}}, "environment.calls"),
        ({"environment": {"node": "\ud800"}}, "not valid Unicode"),
    ],
)
def test_a_result_that_no_record_can_hold_fails_its_model_only(app, pretended, monkeypatch, tmp_path, message, why):
    pretend = measuring.supervise

    def supervise(command, request, **options):
        findings = pretend(command, request, **options)
        if json.loads(request)["name"] == "vit_ti16":
            findings.take(json.dumps(message))
        return findings

    monkeypatch.setattr(measuring, "supervise", supervise)
    result = run(app, "measure", "vit_ti16", "vit_s16", "--study", str(tmp_path / "s"))
    assert result.exit_code == 1
    failed, other = read(tmp_path / "s").records
    assert (failed.name, failed.status, failed.metrics) == ("vit_ti16", "failed", {})
    assert failed.reason is not None
    assert failed.reason.startswith("recording: ")
    assert why in failed.reason
    assert (other.name, other.status) == ("vit_s16", "ok")
    assert f"failed: {failed.reason}" in result.stderr


def test_the_options_reach_the_child(app, pretended):
    options = (
        *(
            "--precision",
            "amp",
            "--runtime",
            "compile",
            "--img-size",
            "64",
            "--batch-size",
            "4",
            "--budget",
            "3",
            "--threads",
            "1",
        ),
        *("--fit-memory", "8GiB", "--memory-limit", "2GB", "--time-limit", "99", "--num-classes", "10"),
        *("--grid-intensity", "400", "--price-per-hour", "2.5", "--phase", "training", "--optimizer", "sgd"),
    )
    assert run(app, "measure", "vit_ti16", *options).exit_code == 0
    (asked,) = pretended["calls"]
    assert asked["precision"] == "amp"
    assert asked["runtime"] == "compile"
    assert (asked["img_size"], asked["batch_size"], asked["num_classes"], asked["threads"]) == (64, 4, 10, 1)
    assert (asked["fit_memory"], asked["memory_limit"], asked["time_limit"]) == (8 * 2**30, 2 * 10**9, 99)
    assert (asked["grid_intensity"], asked["price_per_hour"], asked["optimizer"]) == (400, 2.5, "sgd")


def test_what_a_study_has_is_not_measured_again_and_it_is_said(app, pretended, tmp_path):
    study = str(tmp_path / "study")
    assert run(app, "measure", "vit_ti16", "--study", study, "--json").exit_code == 0
    again = run(app, "measure", "vit_ti16", "vit_s16", "--study", study, "--json")
    assert [asked["name"] for asked in pretended["calls"]] == ["vit_ti16", "vit_s16"]
    assert "1 of 2 jobs are already done" in again.stderr
    assert [record["name"] for record in json.loads(again.stdout)] == ["vit_ti16", "vit_s16"]
    assert len(read(study).records) == 2


def test_what_was_flagged_is_told_and_measured_again_on_request(app, pretended, tmp_path):
    study = str(tmp_path / "study")
    pretended["flags"] = ["busy"]
    assert run(app, "measure", "vit_ti16", "--study", study).exit_code == 0
    pretended["flags"] = []
    told = run(app, "measure", "vit_ti16", "--study", study).stderr
    assert "1 of 1 jobs are already done, 1 of them with flags (--repeat flagged repeats these)" in told
    assert len(pretended["calls"]) == 1
    assert run(app, "measure", "vit_ti16", "--study", study, "--repeat", "flagged").exit_code == 0
    assert len(pretended["calls"]) == 2
    # the new record has no flag, so that the same command has nothing more to do
    assert run(app, "measure", "vit_ti16", "--study", study, "--repeat", "flagged").exit_code == 0
    assert len(pretended["calls"]) == 2


def test_a_failure_is_tried_again_on_request_only(app, pretended, tmp_path):
    pretended["failing"] = {"vit_ti16"}
    assert run(app, "measure", "vit_ti16", "--study", str(tmp_path)).exit_code == 1
    again = run(app, "measure", "vit_ti16", "--study", str(tmp_path))
    assert (again.exit_code, len(pretended["calls"])) == (1, 1)
    assert "1 failed (--repeat failed retries these)" in again.stderr
    pretended["failing"] = set()
    assert run(app, "measure", "vit_ti16", "--study", str(tmp_path), "--repeat", "failed").exit_code == 0
    assert len(pretended["calls"]) == 2


def test_all_can_be_measured_again_and_another_budget_is_no_other_request(app, pretended, tmp_path):
    assert run(app, "measure", "vit_ti16", "--study", str(tmp_path)).exit_code == 0
    assert run(app, "measure", "vit_ti16", "--study", str(tmp_path), "--budget", "3").exit_code == 0
    assert len(pretended["calls"]) == 1
    again = run(app, "measure", "vit_ti16", "--study", str(tmp_path), "--repeat", "all", "--json")
    assert [record["metrics"]["throughput"]["value"] for record in json.loads(again.stdout)] == [12.0]


def test_without_a_study_nothing_is_kept(app, pretended, tmp_path, monkeypatch):
    monkeypatch.chdir(tmp_path)
    assert run(app, "measure", "vit_ti16").exit_code == 0
    assert list(tmp_path.iterdir()) == []


def test_a_full_disk_loses_no_figure_and_the_command_says_what_to_do(app, pretended, tmp_path, monkeypatch):
    from favor.errors import WorkError
    from favor.study import runner

    tries = []

    def full(folder, records, writer):
        tries.append([record.name for record in records])
        raise WorkError("cannot write records to x: No space left on device")

    monkeypatch.setattr(runner, "append", full)
    result = run(app, "measure", "vit_ti16", "vit_s16", "--study", str(tmp_path))
    assert "11 img/s" in result.stdout
    assert tries == [["vit_ti16"], ["vit_ti16"]]  # as soon as it was measured, and on exit
    assert len(pretended["calls"]) == 1
    assert isinstance(result.exception, WorkError)
    assert "No space left on device; the last results (vit_ti16) are printed above" in str(result.exception)
    assert "free some space" in str(result.exception)


def test_what_could_not_be_written_is_written_on_exit_where_that_is_possible(app, pretended, tmp_path, monkeypatch):
    from favor.errors import WorkError
    from favor.records.store import append
    from favor.study import runner

    tries = []

    def full_at_first(folder, records, writer):
        tries.append(len(records))
        if len(tries) == 1:
            raise WorkError("cannot write records to x: No space left on device")
        return append(folder, records)

    monkeypatch.setattr(runner, "append", full_at_first)
    result = run(app, "measure", "vit_ti16", "vit_s16", "--study", str(tmp_path))
    assert "the records of vit_ti16 were saved on a second try" in str(result.exception)
    assert [record.name for record in read(tmp_path).records] == ["vit_ti16"]


def test_a_study_that_is_no_folder_is_refused_before_anything_is_measured(app, pretended, tmp_path):
    (tmp_path / "file").write_text("mine")
    result = run(app, "measure", "vit_ti16", "--study", str(tmp_path / "file"))
    assert isinstance(result.exception, RequestError)
    assert pretended["calls"] == []


def test_corrupt_lines_of_a_study_are_told(app, pretended, tmp_path):
    (tmp_path / "records.jsonl").write_text("rubbish\n")
    result = run(app, "measure", "vit_ti16", "--study", str(tmp_path), "--json")
    assert "records.jsonl:1: corrupt line, skipped" in result.stderr
    assert len(json.loads(result.stdout)) == 1


def test_ctrl_c_keeps_what_was_found_says_how_to_go_on_and_exits_with_130(app, pretended, tmp_path):
    pretended["interrupted_at"] = 2
    result = run(app, "measure", "vit_ti16", "vit_s16", "vit_b16", "--study", str(tmp_path), "--json")
    assert result.exit_code == 130
    assert [record["name"] for record in json.loads(result.stdout)] == ["vit_ti16", "vit_s16"]
    assert "the same command continues from there" in result.stderr
    assert [record.name for record in read(tmp_path).records] == ["vit_ti16", "vit_s16"]


@pytest.mark.parametrize(
    ("arguments", "why"),
    [
        (("vit_xx16",), "unknown model 'vit_xx16'"),
        (("vit_ti16", "--phase", "trainig"), "unknown phase 'trainig'; did you mean 'training'"),
        (("vit_ti16", "--batch-size", "many"), "--batch-size: write best or a whole number of 1 or more, not 'many'"),
        (("vit_ti16", "--fit-memory", "8"), "--fit-memory: cannot read '8'"),
        (("vit_ti16", "--device", "gpu"), "unknown device 'gpu'"),
        (("vit_ti16", "--batch-size", "99999999999999999999"), "batch size must be 2147483647 or less"),
        (("vit_ti16", "--threads", "0"), "--threads: must be 1 or more, not 0"),
        (("vit_ti16", ""), "a model's name is empty"),
        (("vit_ti16", "--precision", "fp31"), "--precision: unknown precision 'fp31'; did you mean 'fp32'"),
        (("vit_ti16", "--optimizer", "lambda"), "unknown optimizer 'lambda'; did you mean 'lamb'"),
        (("vit_ti16", "--batch-size", "0"), "--batch-size: write best or a whole number of 1 or more, not 0"),
        (("vit_ti16", "--budget", "0"), "--budget: 0 s is too short; write 0.1 s or more"),
        (("vit_ti16", "--time-limit", "0"), "--time-limit: 0 s is too short"),
        (("vit_ti16", "--budget", "nan"), "--budget: cannot read 'nan s'"),
        (("vit_ti16", "--memory-limit", "0B"), "--memory-limit: 0B is too small; write 1 B or more"),
        (("vit_ti16", "--fit-memory", "-5B"), "--fit-memory: cannot read '-5B': it must be zero or more"),
        (("vit_ti16", "--price-per-hour", "-1"), "--price-per-hour: must be 0 or more, not -1.0"),
        (("vit_ti16", "--img-size", "225"), "--img-size: vit_ti16 cannot take an image side of 225 px"),
        (("vit_ti16", "--repeat", "flaged"), "did you mean 'flagged'"),
    ],
)
def test_a_wrong_request_is_refused_before_anything_is_measured(app, pretended, arguments, why):
    result = run(app, "measure", *arguments)
    assert isinstance(result.exception, RequestError)
    assert why in str(result.exception)
    assert pretended["calls"] == []


def test_variability_gives_range_and_deviation_in_absolute_and_in_percent(app, pretended):
    result = run(app, "variability", "vit_ti16", "--runs", "3", "--json")
    assert result.exit_code == 0
    (row,) = json.loads(result.stdout)
    assert (row["name"], row["phase"], row["metric"], row["runs"]) == ("vit_ti16", "inference", "throughput", 3)
    assert (row["lowest"], row["highest"], row["mean"], row["deviation"]) == (11.0, 13.0, 12.0, 1.0)
    assert row["range_percent"] == pytest.approx(100 * 2 / 12)
    assert row["deviation_percent"] == pytest.approx(100 / 12)


def test_variability_takes_the_conditions_that_measure_takes(app, pretended):
    options = ("--runs", "2", "--runtime", "compile", "--num-classes", "10", "--img-size", "64", "--batch-size", "4")
    assert run(app, "variability", "vit_ti16", *options).exit_code == 0
    asked = pretended["calls"][0]
    assert (asked["runtime"], asked["num_classes"], asked["img_size"], asked["batch_size"]) == ("compile", 10, 64, 4)


@pytest.mark.parametrize("runs", ["1", "10001", "999999999999"])
def test_variability_takes_no_number_of_runs_that_tells_nothing_or_never_ends(app, pretended, runs):
    result = run(app, "variability", "vit_ti16", "--runs", runs)
    assert result.exit_code == 2
    assert "--runs" in result.stderr


def test_variability_prints_a_table_per_phase(app, pretended):
    result = run(app, "variability", "vit_ti16", "--runs", "2", "--phase", "both")
    assert "vit_ti16, inference: 2 runs" in result.stdout
    assert "vit_ti16, training: 2 runs" in result.stdout
    assert "Standard deviation" in result.stdout


def test_doctor_says_what_can_be_measured(app, monkeypatch):
    monkeypatch.setattr(doctor, "NOISE_SECONDS", 0.2)
    found = json.loads(run(app, "doctor", "--json").stdout)
    assert {"processor", "threads", "others", "busy", "free_memory", "devices", "timer", "compiler"} <= found.keys()
    assert found["devices"][0]["kind"] == "cpu"
    assert found["timer"]["work_median"] > 10 * found["timer"]["reading_cost"] > 0
    assert 0 < found["free_memory"] <= found["total_memory"]
    table = run(app, "doctor").stdout
    assert "timer noise" in table
    assert "energy: codecarbon" in table
