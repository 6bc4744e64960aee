"""`favor run`, `favor resume` and `favor status` as a user calls them; the children are pretended."""

import json
import os
import shutil
import signal
import subprocess
import sys
import threading
from datetime import UTC, datetime
from pathlib import Path

import pytest
import torch
import typer
from msgspec.structs import replace
from typer.testing import CliRunner

import favor.report
from favor.cli import count, measure, study, study_text
from favor.cli.study import add_commands
from favor.errors import RequestError, WorkError
from favor.machine import environment
from favor.machine.device import Cpu
from favor.machine.locks import measuring, training
from favor.machine.messages import Channel, Findings
from favor.machine.process import InterruptedJob
from favor.machine.stopping import Estimate
from favor.measurement import measure as measure_module
from favor.records.store import append, read
from favor.study import runner, second_look
from favor.study.folder import locked
from favor.study.plan import jobs_of
from favor.study.progress import JobState
from favor.study.summary import Answer
from favor.zoo import registry
from study.made_up import MACHINE, a_study

STUDY = """\
name: mine
doc: Three models.
models: [vit_s16, swin_ti, cvt_13]
budget: {measurement: 2 s}
report: {min_accuracy: 80}
"""


@pytest.fixture
def app() -> typer.Typer:
    made = typer.Typer()
    made.callback()(lambda: None)
    add_commands(made)
    measure.add_commands(made)
    count.add_commands(made)
    return made


def in_turns(job, speed):
    """What a worker finds in eight rounds with other models."""
    findings = Findings(status="ok")
    channel = Channel(findings.take)
    channel.environment({"device_name": Cpu().name, "torch": torch.__version__, "threads": job.threads})
    channel.environment({"stretch": "now", "busy_rounds": "", "round_throughput": " ".join([str(speed)] * 8)})
    channel.found("throughput", Estimate(speed, speed, speed), "made up")
    channel.found("inference_memory", 1e8, "made up")
    return measure_module.record_of(job, findings, datetime.now(UTC))


@pytest.fixture
def world(monkeypatch, tmp_path):
    """A folder to work in, children that find something at once, and a page that is only noted."""
    state = {
        "calls": [],
        "failing": set(),
        "busy": set(),
        "without_p99": set(),
        "interrupted_at": None,
        "pages": [],
        "load": 0.0,
    }

    def supervise(command, request, *, time_limit, on_step, environment):
        asked = json.loads(request)
        state["calls"].append(asked["name"])
        findings = Findings()
        channel = Channel(findings.take)
        channel.begin("latency")
        on_step("latency")
        channel.environment({"device_name": Cpu().name, "torch": torch.__version__, "threads": asked["threads"]})
        channel.environment({"budget": asked["budget"]})
        channel.found("throughput", 10.0 + len(state["calls"]), "made up")
        channel.found("inference_memory", 1e8 + len(state["calls"]), "made up")
        if asked["name"] in state["without_p99"]:
            channel.environment({"latency_p99_missing": "too few"})
        if asked["name"] in state["busy"]:
            channel.flag("busy")
        if len(state["calls"]) == state["interrupted_at"]:
            channel.failed("failed", "interrupted")
            raise InterruptedJob(findings)
        if asked["name"] in state["failing"]:
            channel.failed("out_of_memory", "too large")
        else:
            channel.done()
        return findings

    def write_report(sources, output, answer):
        state["pages"].append((list(sources), output))
        state["answer"] = answer
        output.write_text("a page")

    def head_to_head(jobs, seconds, clock, processors, on_step, exporting):
        state["head_to_head"] += [job.name for job in jobs]
        return tuple(in_turns(job, speed) for job, speed in zip(jobs, state["speeds"], strict=False))

    state |= {"head_to_head": [], "speeds": ()}
    monkeypatch.setattr(measure_module, "supervise", supervise)
    monkeypatch.setattr(second_look, "measure_head_to_head", head_to_head)
    monkeypatch.setattr(environment, "look_at_load", lambda seconds: state["load"])
    monkeypatch.setattr(favor.report, "write_report", write_report)
    monkeypatch.chdir(tmp_path)
    (tmp_path / "mine.yaml").write_text(STUDY)
    return state


@pytest.fixture
def working(world, monkeypatch):
    """The same world without an answer, which takes longer than all the rest and has tests of its own."""
    blank = Answer(favored={}, undecided={}, figures={}, standing=(), disagreement=None, models=3)
    monkeypatch.setattr(study, "answer_of", lambda study, folder: blank)
    return world


def run(app, *arguments):
    result = CliRunner().invoke(app, list(arguments))
    if isinstance(result.exception, RequestError):
        raise result.exception
    return result


def test_a_study_is_run_kept_shown_and_answered(app, world, tmp_path):
    result = run(app, "run", "mine.yaml")
    assert result.exit_code == 0, result.output
    assert world["calls"] == ["vit_s16", "swin_ti", "cvt_13"]
    assert len(read(tmp_path / "runs" / "mine").records) == 3
    assert [str(output) for _, output in world["pages"]] == ["runs/mine/report.html"]
    for told in ("speed, 80 % or more", "cvt_13", "vit_s16: 3rd of 3 by throughput", "Page: runs/mine/report.html"):
        assert told in result.stdout
    on_page = world["answer"]
    assert on_page.rows[0][:2] == ("speed, 80 % or more", "cvt_13")
    assert all(sentence in result.stdout for sentence in on_page.sentences), "the page says what the terminal says"
    assert "mine: Three models." in result.stderr
    assert "3 jobs to do on" in result.stderr
    assert "[3/3] cvt_13@224 inference fp32: 13 img/s" in result.stderr
    assert " left" in result.stderr


def test_a_second_run_of_the_same_does_nothing_and_says_so(app, working):
    first = run(app, "run", "mine.yaml", "--study", "here")
    again = run(app, "run", "mine.yaml", "--study", "here")
    assert again.exit_code == 0
    assert len(working["calls"]) == 3
    assert len(working["pages"]) == 1
    assert "6 of 6 jobs are already done; nothing is left to do" in again.stderr
    assert again.stdout == first.stdout


def test_killed_before_its_page_was_written_the_next_run_writes_the_page_and_measures_nothing(app, working, tmp_path):
    run(app, "run", "mine.yaml", "--study", "here")
    (tmp_path / "here" / "report.html").unlink()
    resumed = run(app, "resume", "here")
    assert "6 of 6 jobs are already done; nothing is left to do" in resumed.stderr
    assert "Page: here/report.html" in resumed.stdout
    records = tmp_path / "here" / "records.jsonl"
    later = (tmp_path / "here" / "report.html").stat().st_mtime_ns + 1
    os.utime(records, ns=(later, later))
    run(app, "run", "mine.yaml", "--study", "here")
    assert (len(working["pages"]), len(working["calls"])) == (3, 3)


def test_a_record_that_cannot_be_read_is_told_and_done_again(app, working, tmp_path):
    run(app, "run", "mine.yaml", "--study", "here")
    records = tmp_path / "here" / "records.jsonl"
    records.write_bytes(records.read_bytes()[:-40])
    assert "records.jsonl:3" in run(app, "status", "here").stderr
    resumed = run(app, "resume", "here")
    assert "records.jsonl:3" in resumed.stderr
    assert working["calls"][3:] == ["cvt_13"]


def test_disturbed_measurements_are_repeated_once_and_those_that_stay_doubtful_are_told(app, working):
    working["busy"] = {"swin_ti", "cvt_13"}
    result = run(app, "run", "mine.yaml")
    assert working["calls"] == ["vit_s16", "swin_ti", "cvt_13", "swin_ti", "cvt_13"]
    assert "swin_ti@224 inference fp32: other programs were running; it will be repeated" in result.stderr
    assert "[5/5] cvt_13@224" in result.stderr
    assert "Doubtful: swin_ti@224 inference fp32: other programs were running" in result.stdout
    assert "2 of 3 measurements are doubtful; `favor resume runs/mine` repeats them" in result.stdout
    data = json.loads(run(app, "status", "runs/mine", "--json").stdout)
    reasons = ["other programs were running"]
    assert data["doubtful"] == [
        {"job": f"{name}@224 inference fp32", "reasons": reasons} for name in ("swin_ti", "cvt_13")
    ]


def test_a_missing_p99_is_told_at_the_end(app, working):
    working["without_p99"] = {"swin_ti"}
    assert "p99 latency is known for 2 of 3 models" in run(app, "run", "mine.yaml").stdout


def test_status_says_what_is_doubtful_and_resume_repeats_it_and_a_second_run_does_not(app, working):
    working["busy"] = {"swin_ti"}
    run(app, "run", "mine.yaml")
    status = run(app, "status", "runs/mine").stdout
    assert "Doubtful: swin_ti@224 inference fp32" in status
    assert "1 of 3 measurements are doubtful; `favor resume runs/mine` repeats them" in status
    assert "Nothing is left" not in status
    again = run(app, "run", "mine.yaml")
    assert "1 of them doubtful (`favor resume runs/mine` repeats these)" in again.stderr
    assert working["calls"][3:] == ["swin_ti"]
    working["busy"] = set()
    resumed = run(app, "resume", "runs/mine")
    assert working["calls"][4:] == ["swin_ti"]
    assert "oubtful" not in resumed.stdout
    run(app, "resume", "runs/mine")
    assert len(working["calls"]) == 5


def test_models_that_can_still_win_are_measured_head_to_head(app, world):
    world["speeds"] = (14.0, 12.0)
    result = run(app, "run", "mine.yaml")
    assert world["head_to_head"] == ["cvt_13", "swin_ti"]
    assert "head to head: cvt_13, swin_ti" in result.stderr
    line = "Head to head: cvt_13 is 1.17 times as fast as swin_ti (95 %: 1.17 to 1.17, 8 quiet rounds in turns)"
    assert line in result.stdout
    [pair] = json.loads(run(app, "run", "mine.yaml", "--json").stdout)["head_to_head"]
    assert (pair["fastest"], pair["other"], pair["rounds"]) == ("cvt_13", "swin_ti", 8)


def test_another_request_in_the_same_folder_is_refused_with_what_differs(app, working, tmp_path):
    run(app, "run", "mine.yaml", "--study", "here")
    (tmp_path / "mine.yaml").write_text(STUDY.replace("cvt_13", "tome_r8_s16").replace("2 s", "3 s"))
    with pytest.raises(RequestError, match=r"here holds another study \(mine; it differs in models, budget\)"):
        run(app, "run", "mine.yaml", "--study", "here")


def test_json_is_the_same_answer_and_nothing_else(app, world):
    result = run(app, "run", "mine.yaml", "--json")
    data = json.loads(result.stdout)
    assert (data["study"], data["page"], data["jobs"], data["done"]) == ("mine", "runs/mine/report.html", 6, 6)
    assert (data["failed"], data["left"]) == ([], [])
    assert data["answer"]["favored"]["speed"]["favored"]["name"] == "cvt_13"
    assert data["machine"]["device"] == "cpu"


def test_ctrl_c_keeps_what_was_found_says_how_to_go_on_and_resume_does(app, working, tmp_path):
    working["interrupted_at"] = 2
    stopped = run(app, "run", "mine.yaml")
    assert stopped.exit_code == 130
    assert "stopped by SIGINT; saved in runs/mine: `favor resume runs/mine` continues" in stopped.stderr
    status = json.loads(run(app, "status", "runs/mine", "--json").stdout)
    assert (status["done"], status["left"]) == (4, ["swin_ti@224 inference fp32", "cvt_13@224 inference fp32"])
    assert status["seconds_left"] > 10
    resumed = run(app, "resume", "runs/mine")
    assert resumed.exit_code == 0
    assert working["calls"] == ["vit_s16", "swin_ti", "swin_ti", "cvt_13"]


def test_a_failure_is_told_with_its_reason_and_tried_again_on_demand_only(app, working):
    working["failing"] = {"swin_ti"}
    result = run(app, "run", "mine.yaml")
    assert result.exit_code == 0
    assert "Failed: swin_ti@224 inference fp32: out_of_memory: latency: too large" in result.stdout
    again = run(app, "resume", "runs/mine")
    assert "1 failed (--repeat failed retries these)" in again.stderr
    assert len(working["calls"]) == 3
    working["failing"] = set()
    retried = run(app, "resume", "runs/mine", "--repeat", "failed")
    assert working["calls"][3:] == ["swin_ti"]
    assert "Failed" not in retried.stdout


def test_a_study_of_which_everything_failed_has_failed(app, working):
    working["failing"] = {"vit_s16", "swin_ti", "cvt_13"}
    assert run(app, "run", "mine.yaml").exit_code == 1


def test_the_time_budget_is_blamed_only_for_the_jobs_that_it_left_undone(capsys):
    asked = a_study(names=("vit_s16", "swin_ti"), phases=("inference",))
    blank = Answer(favored={}, undecided={}, figures={}, standing=(), disagreement=None, models=2)

    def said(study, out_of_time=()):
        states = [JobState(job, "left") for job in jobs_of(study)]
        study_text.print_answer(study, blank, states, Path("runs/mine"), None, out_of_time)
        return [line for line in capsys.readouterr().out.splitlines() if line.startswith("Not done")]

    first, second = jobs_of(asked)
    assert said(asked, [first]) == [
        f"Not done, because the time budget ran out: {first}; `favor resume runs/mine` continues",
        f"Not done: {second}; `favor resume runs/mine` tries again",
    ]
    on_cluster = a_study(
        names=("vit_s16", "swin_ti"), phases=("inference",), machine=MACHINE.model_copy(update={"device_name": ""})
    )
    assert on_cluster.machine.is_cluster
    lost = "`favor status runs/mine` says why, `favor resume runs/mine` submits them again"
    assert said(on_cluster) == [f"Not done: {first}, {second}; {lost}"]


def test_a_job_without_time_is_told_at_the_end(app, working, tmp_path):
    (tmp_path / "mine.yaml").write_text(STUDY.replace("2 s}", "2 s, total: 0.1 s}"))
    result = run(app, "run", "mine.yaml")
    assert "Not done, because the time budget ran out: " in result.stdout
    assert "Not done: " not in result.stdout


def test_status_tells_done_failed_with_reasons_and_left(app, working):
    working["failing"] = {"swin_ti"}
    working["interrupted_at"] = 3
    run(app, "run", "mine.yaml")
    told = run(app, "status", "runs/mine").stdout
    rows = [[cell.strip() for cell in line.strip("│").split("│")] for line in told.splitlines() if line.startswith("│")]
    assert rows == [["count", "3", "3", "0", "0"], ["inference", "3", "1", "1", "1"]]
    assert "Failed: swin_ti@224 inference fp32: out_of_memory: latency: too large" in told
    assert "Not running; `favor resume runs/mine` would take about" in told


def test_a_page_that_cannot_be_written_takes_nothing_from_the_answer(app, working, monkeypatch):
    def no_page(study_files, output, answer):
        raise WorkError("cannot write: the disk is full")

    monkeypatch.setattr(favor.report, "write_report", no_page)
    result = run(app, "run", "mine.yaml")
    assert result.exit_code == 0
    assert "warning: the page was not written: cannot write: the disk is full" in result.stderr
    assert "Records: runs/mine" in result.stdout


def test_a_study_begun_on_another_machine_is_not_gone_on_with(app, working, monkeypatch):
    run(app, "run", "mine.yaml")
    monkeypatch.setattr(Cpu, "__init__", lambda self: setattr(self, "name", "Another processor"))
    with pytest.raises(RequestError, match="was started on .*, but this is Another processor"):
        run(app, "resume", "runs/mine")


def test_two_at_once_in_one_folder_are_refused(app, working, tmp_path):
    with locked(tmp_path / "runs" / "mine"), pytest.raises(RequestError, match="is in use by another favor"):
        run(app, "run", "mine.yaml")


def test_own_models_are_counted_by_the_study_and_one_that_cannot_be_is_a_record(app, working, tmp_path):
    (tmp_path / "own.py").write_text(
        "import torch\nimport favor\nfrom favor.zoo.registry import Variant\n"
        "class Broken(torch.nn.Module):\n    def forward(self, x):\n        return x.nonsense\n"
        "@favor.register([Variant('own_broken')], title='Own', how=None, year=2026, paper=None, changes='All.')\n"
        "def own(num_classes, img_size, in_chans, drop_path):\n    return Broken()\n"
    )
    (tmp_path / "own.yaml").write_text(
        "models: [vit_ti16, own_broken]\nplugins: [own.py]\nnum_classes: 10\nphases: [count]\nreport: {page: false}\n"
    )
    try:
        result = run(app, "run", "own.yaml")
        found = {record.name: record for record in read(tmp_path / "runs" / "own").records}
        assert found["vit_ti16"].metrics["macs"].value > 1e9
        assert found["own_broken"].status == "failed"
        assert "Failed: own_broken@224 count: failed: counting: " in result.stdout
        assert "AttributeError: 'Tensor' object has no attribute 'nonsense'" in result.stdout
        assert working["pages"] == []
    finally:
        registry.unregister(["own_broken"])


@pytest.mark.parametrize(
    ("arguments", "chosen"), [([], "quick"), (["--quick"], "quick"), (["--full"], "full"), (["full", "--full"], "full")]
)
def test_quick_is_the_default_and_the_two_have_options(app, working, monkeypatch, arguments, chosen):
    from favor.study import study_files

    asked = []

    def open_study(name):
        asked.append(name)
        raise RequestError("enough")

    monkeypatch.setattr(study_files, "open_study", open_study)
    with pytest.raises(RequestError, match="enough"):
        run(app, "run", *arguments)
    assert asked == [chosen]


def test_two_studies_at_once_are_refused(app, working):
    with pytest.raises(RequestError, match="name one study, not 2 \\(mine.yaml, quick\\)"):
        run(app, "run", "mine.yaml", "--quick")


def test_status_starts_without_torch_and_pandas(app, working, tmp_path):
    run(app, "run", "mine.yaml")
    script = (
        "import sys; sys.argv = ['favor', 'status', 'runs/mine']\n"
        "from favor.cli import app\n"
        "try:\n    app()\n"
        "finally:\n    assert not {'torch', 'timm', 'pandas'} & set(sys.modules)"
    )
    done = subprocess.run([sys.executable, "-c", script], capture_output=True, text=True, check=False, cwd=tmp_path)
    assert done.returncode == 0, done.stderr
    assert "Nothing is left to do" in done.stdout


def test_a_request_that_is_refused_leaves_no_folder_behind(app, working, tmp_path):
    (tmp_path / "mine.yaml").write_text(STUDY.replace("cvt_13", "cvt_31"))
    with pytest.raises(RequestError, match="mine.yaml:3: models\\[2\\]: unknown model 'cvt_31'"):
        run(app, "run", "mine.yaml")
    assert not (tmp_path / "runs").exists()


def test_a_folder_that_measure_made_has_a_status_can_be_resumed_and_extended(app, working, tmp_path):
    folder = tmp_path / "here"
    assert run(app, "measure", "vit_s16", "--study", "here").exit_code == 0
    working["interrupted_at"] = 2
    stopped = run(app, "measure", "swin_ti", "cvt_13", "--study", "here")
    assert stopped.exit_code == 130
    assert "stopped by SIGINT; saved in here: the same command continues from there" in stopped.stderr
    status = json.loads(run(app, "status", "here", "--json").stdout)
    assert (status["study"], status["jobs"], status["done"]) == ("measure", 3, 1)
    assert status["left"] == ["swin_ti@224 inference fp32", "cvt_13@224 inference fp32"]
    resumed = run(app, "resume", "here")
    assert resumed.exit_code == 0
    assert working["calls"] == ["vit_s16", "swin_ti", "swin_ti", "cvt_13"]
    assert "Nothing is left to do" in resumed.stdout
    assert not (folder / "report.html").exists()
    assert [record.name for record in read(folder).records if record.status == "ok"] == ["vit_s16", "swin_ti", "cvt_13"]


def test_measure_extends_a_study_of_run_and_resume_goes_on_with_both(app, working):
    run(app, "run", "mine.yaml", "--study", "here")
    working["interrupted_at"] = 4
    assert run(app, "measure", "vit_s16", "vit_ti16", "--study", "here").exit_code == 130
    assert working["calls"][3:] == ["vit_ti16"]
    assert json.loads(run(app, "status", "here", "--json").stdout)["left"] == ["vit_ti16@224 inference fp32"]
    assert run(app, "resume", "here").exit_code == 0
    assert working["calls"][4:] == ["vit_ti16"]


def test_counts_are_kept_in_a_study_and_those_that_come_with_favor_are_not_made_again(app, working, tmp_path):
    result = run(app, "count", "vit_ti16", "--study", "here", "--num-classes", "7", "--img-size", "32", "--json")
    (record,) = json.loads(result.stdout)
    assert (record["task"], record["conditions"]["num_classes"]) == ("count", 7)
    assert [kept.name for kept in read(tmp_path / "here").records] == ["vit_ti16"]
    again = run(app, "count", "vit_ti16", "vit_s16", "--study", "there")
    assert "2 of 2 jobs are already done; nothing is left to do" in again.stderr
    assert "5.722 M" in again.stdout
    with pytest.raises(RequestError, match="--study keeps counts of inference at batch size 1"):
        run(app, "count", "vit_ti16", "--study", "here", "--phase", "training")


def test_a_folder_with_records_alone_has_a_status(app, working, tmp_path):
    (tmp_path / "records.jsonl").write_text("")
    assert "records but no jobs" in run(app, "status", ".").stdout
    assert run(app, "resume", ".").exit_code == 0


def test_the_status_of_records_alone_names_the_newest_doubtful_ones(app, working, tmp_path):
    run(app, "measure", "vit_s16", "vit_ti16", "--study", "made")
    records = read(tmp_path / "made").records
    busy = [replace(one, environment={**one.environment, "flags": "busy latency:wide"}) for one in records]
    append(tmp_path / "bare", [*busy, *(one for one in records if one.name == "vit_ti16")])
    status = run(app, "status", "bare").stdout
    assert "Doubtful: vit_s16@224 inference fp32: other programs were running" in status
    assert "vit_ti16" not in status
    again = "repeat those of a model with `favor measure NAME --study bare --repeat flagged`"
    assert f"1 doubtful measurement outside the study's jobs; {again}" in status
    (doubtful,) = json.loads(run(app, "status", "bare", "--json").stdout)["doubtful"]
    assert doubtful["job"] == "vit_s16@224 inference fp32"


@pytest.mark.parametrize("command", [("measure", "vit_s16"), ("measure", "vit_s16", "--study", "there"), ("run",)])
def test_a_device_is_measured_by_one_process_at_a_time_whatever_the_folder(app, working, tmp_path, command):
    words = ("run", "mine.yaml") if command == ("run",) else command
    with (
        measuring("cpu", tmp_path / "elsewhere", wait=False),
        pytest.raises(RequestError, match=f"cpu is being measured by process {os.getpid()} in .*elsewhere since"),
    ):
        run(app, *words)
    assert working["calls"] == []
    assert run(app, *words).exit_code == 0


def test_nobody_measures_on_a_device_that_a_training_run_uses_but_another_one_may_train_on_it(app, working, tmp_path):
    with training("cpu", tmp_path / "elsewhere", wait=False):
        with pytest.raises(
            RequestError, match=f"cpu is used for training by process {os.getpid()} in .*elsewhere since"
        ):
            run(app, "measure", "vit_s16")
        with training("cpu", None, wait=False):
            pass
    with (
        measuring("cpu", None, wait=False),
        pytest.raises(RequestError, match=f"cpu is being measured by process {os.getpid()} since"),
        training("cpu", None, wait=False),
    ):
        pass
    assert run(app, "measure", "vit_s16").exit_code == 0


HOLD = (
    "import time\nfrom favor.machine.locks import measuring\n"
    "with measuring('cpu', None, False):\n    print('locked', flush=True); time.sleep(60)"
)


def test_the_lock_of_a_device_vanishes_with_a_killed_process_and_one_that_waits_gets_it(app, working):
    other = subprocess.Popen([sys.executable, "-c", HOLD], stdout=subprocess.PIPE, text=True)
    assert other.stdout.readline() == "locked\n"
    with pytest.raises(RequestError, match=f"process {other.pid} since .*; --wait waits for it"):
        run(app, "measure", "vit_s16")
    threading.Timer(0.5, other.kill).start()
    assert run(app, "measure", "vit_s16", "--wait").exit_code == 0
    assert other.wait() == -signal.SIGKILL
    assert working["calls"] == ["vit_s16"]


def test_a_study_folder_deleted_while_it_runs_is_an_error_and_is_not_made_again(app, working, tmp_path, monkeypatch):
    find = measure_module.supervise

    def delete(*arguments, **options):
        shutil.rmtree(tmp_path / "runs" / "mine")
        return find(*arguments, **options)

    monkeypatch.setattr(measure_module, "supervise", delete)
    result = run(app, "run", "mine.yaml")
    assert isinstance(result.exception, WorkError)
    assert "runs/mine was deleted or moved while favor was working in it" in str(result.exception)
    assert "[1/3] vit_s16@224 inference fp32: 11 img/s" in result.stderr
    assert not (tmp_path / "runs" / "mine").exists()


def test_a_full_disk_ends_a_run_with_one_line_that_says_what_to_do(app, working, monkeypatch):
    def full(folder, records, writer):
        raise WorkError("cannot write records to x: No space left on device")

    monkeypatch.setattr(runner, "append", full)
    result = run(app, "run", "mine.yaml")
    assert "[1/3] vit_s16@224 inference fp32: 11 img/s" in result.stderr
    assert isinstance(result.exception, WorkError)
    assert "No space left on device; the last results (vit_s16) are printed above" in str(result.exception)
