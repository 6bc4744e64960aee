"""`import favor`: fast, without torch, and what it names is what it says."""

import importlib
import inspect
import pkgutil
import re
import subprocess
import sys
from collections.abc import Callable
from pathlib import Path

import pandas as pd
import pytest
from msgspec.structs import replace

import favor
from favor.api import Records
from favor.cli.decide import pareto_command, recommend_command
from favor.errors import RequestError, WorkError
from favor.measurement.job import MeasureJob
from favor.records.schema import Record, reading
from favor.records.store import read
from favor.records.table import RecordsWarning
from favor.study import local_executor
from favor.study.folder import saved_requests
from favor.study.session import Session
from favor.trace.conditions import phases_named
from favor.training.checkpoint import BEST, load_model_file
from records.record_strategies import a_record

VERBS = ("count", "measure", "simulate", "train", "recommend", "pareto", "load_records")


def test_importing_favor_imports_nothing_heavy() -> None:
    code = "import sys, favor; dir(favor); sys.exit(bool({'torch', 'timm', 'pandas', 'numpy'} & set(sys.modules)))"
    assert subprocess.run([sys.executable, "-c", code], check=False).returncode == 0


def test_decisions_need_no_torch() -> None:
    code = "import sys, favor; favor.recommend(); favor.pareto('top1', 'params'); sys.exit('torch' in sys.modules)"
    assert subprocess.run([sys.executable, "-c", code], check=False).returncode == 0


def test_every_public_name_is_offered_and_found() -> None:
    assert dir(favor) == sorted(favor.__all__)
    for name in favor.__all__:
        assert getattr(favor, name) is not None
    with pytest.raises(AttributeError, match="has no attribute 'mesure'"):
        favor.mesure  # type: ignore[attr-defined] # noqa: B018


@pytest.mark.parametrize("verb", VERBS)
def test_a_verb_is_typed_and_has_an_example(verb: str) -> None:
    function = getattr(favor, verb)
    signature = inspect.signature(function)
    assert all(parameter.annotation is not parameter.empty for parameter in signature.parameters.values())
    assert signature.return_annotation is not signature.empty
    assert f"favor.{verb}(" in (inspect.getdoc(function) or "")


def test_verbs_stay_functions_whatever_is_imported() -> None:
    for module in pkgutil.walk_packages(favor.__path__, "favor."):
        if module.name != "favor.__main__" and not module.name.startswith("favor.zoo."):
            importlib.import_module(module.name)
    for verb in VERBS:
        assert inspect.isfunction(getattr(favor, verb)), f"favor.{verb} is hidden by a package of that name"


def test_records_are_a_sequence_with_a_table_and_a_view_for_notebooks() -> None:
    good = replace(a_record(), metrics={"throughput": reading("throughput", 1200.0, method="a clock")})
    failed = replace(a_record(), name="<b>", metrics={}, status="failed", reason="no <memory>")
    found = Records((good, failed))
    assert (len(found), found[0].name, len(found[1:])) == (2, "vit_s16", 1)
    assert found.table()["throughput"].tolist()[0] == 1200.0
    shown = found._repr_html_()
    assert "1,200 img/s" in shown
    assert "failed: no &lt;memory&gt;" in shown
    assert "<b>" not in shown


def test_simulate_takes_several_devices_and_keeps_the_records_in_a_study(tmp_path: Path) -> None:
    found = favor.simulate("vit_xs4", "a100,t4", batch_size=8, study=tmp_path / "study")
    assert [record.conditions["device"] for record in found] == ["a100", "t4"]
    assert len(favor.load_records(tmp_path / "study")) == 2


def test_a_model_that_is_refused_does_not_lose_the_results_of_others(
    monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    def measured(job: MeasureJob, *_: object) -> Record:
        if job.name == "vit_xs4":
            raise RequestError("no vit_xs4 today")
        return replace(a_record(), name=job.name)

    monkeypatch.setattr(local_executor, "measure", measured)
    assert [record.name for record in favor.measure(["vit_xs4", "linformer_xs4"])] == ["linformer_xs4"]
    assert "error: no vit_xs4 today" in capsys.readouterr().err
    with pytest.raises(RequestError, match="no vit_xs4 today"):
        favor.measure("vit_xs4")


def test_simulate_does_not_repeat_what_the_study_has(tmp_path: Path) -> None:
    first, second = (favor.simulate("vit_xs4", "a100", batch_size=8, study=tmp_path / "study") for _ in range(2))
    assert list(second) == list(first)
    assert len((tmp_path / "study" / "records.jsonl").read_text().splitlines()) == 1


def test_measure_measures_here_and_keeps_the_record_in_a_study(tmp_path: Path) -> None:
    found = favor.measure("vit_xs4", batch_size=1, budget=0.2, threads=1, study=tmp_path)
    assert [record.status for record in found] == ["ok"]
    assert favor.load_records(tmp_path)["latency_p50"].notna().all()


def test_a_front_is_a_table_and_everyone_adds_the_others() -> None:
    front, everyone = favor.pareto("top1", "params"), favor.pareto("top1", "params", everyone=True)
    assert isinstance(front, pd.DataFrame)
    assert front["on_front"].all()
    assert len(everyone) > len(front)
    assert everyone["model"].tolist()[: len(front)] == front["model"].tolist()


@pytest.mark.parametrize(("verb", "command"), [("recommend", recommend_command), ("pareto", pareto_command)])
def test_a_decision_has_the_options_and_defaults_of_its_command(verb: str, command: Callable[..., None]) -> None:
    here, there = (inspect.signature(function).parameters for function in (getattr(favor, verb), command))
    names = set(there) - {"guide", "as_json"}
    assert names - {"metrics"} <= set(here)
    differing = {name for name in names & set(here) if (here[name].default or None) != (there[name].default or None)}
    assert differing <= {"metrics"}


def test_lines_of_a_study_that_cannot_be_read_are_told_with_the_decision(tmp_path: Path) -> None:
    (tmp_path / "records.jsonl").write_text("no record\n")
    with pytest.warns(RecordsWarning, match="records.jsonl:1"):
        favor.recommend(study=tmp_path)
    with pytest.warns(RecordsWarning, match="records.jsonl:1"):
        favor.pareto("top1", "params", study=tmp_path)


def test_the_further_options_of_a_command_are_taken_by_their_names_and_others_refused(tmp_path: Path) -> None:
    (record,) = favor.measure("vit_xs4", batch_size=1, budget=0.2, threads=1, attention="plain", price_per_hour=2.0)
    assert (record.conditions["attention"], record.conditions["price_per_hour"]) == ("plain", 2.0)
    with pytest.raises(RequestError, match="unknown option 'atention'; did you mean 'attention'"):
        favor.measure("vit_xs4", atention="plain")
    with pytest.raises(RequestError, match="unknown option 'precisions'"):
        favor.measure("vit_xs4", precisions=["bf16"])
    with pytest.raises(RequestError, match="--set: unknown key of a recipe 'lrr'; did you mean 'lr'"):
        favor.train("vit_xs4", set=["lrr=1"], study=tmp_path)


def test_limits_are_numbers_or_texts_with_a_unit() -> None:
    by_text = favor.recommend(max_params="30M", min_accuracy="80 %")
    assert by_text == favor.recommend(max_params=30e6, min_accuracy=80)
    assert by_text.favored is not None
    assert by_text.favored.name in by_text._repr_html_()


@pytest.mark.parametrize(
    ("limit", "why"),
    [
        ({"min_accuracy": 0.82}, "min_accuracy: cannot read 0.82: this is a percentage; did you mean 82 %?"),
        ({"min_accuracy": 820}, "min_accuracy: cannot read 820: more than 100 %"),
        ({"max_latency": -0.05}, "max_latency: cannot read -0.05: it must be zero or more"),
        ({"max_params": float("nan")}, "max_params: cannot read nan: it must be zero or more"),
    ],
)
def test_a_number_that_cannot_be_a_limit_is_refused_in_one_line(limit: dict[str, float], why: str) -> None:
    with pytest.raises(RequestError) as refused:
        favor.recommend(**limit)  # type: ignore[arg-type]
    assert str(refused.value).startswith(why)
    assert "\n" not in str(refused.value)


def test_counts_of_a_training_step_are_more_than_of_inference() -> None:
    step, inference = favor.count("vit_xs4", phase="training"), favor.count("vit_xs4")
    assert step.macs > 2 * inference.macs
    assert f"{step.macs:,}" in step._repr_html_()


def test_a_wrong_phase_and_two_lengths_of_a_training_are_refused() -> None:
    with pytest.raises(RequestError, match="unknown phase 'sleep'"):
        phases_named("sleep")
    with pytest.raises(RequestError, match="give one of them"):
        favor.train("vit_xs4", epochs=3, minutes=1.0)
    with pytest.raises(RequestError, match="unknown phase 'both'; choose from inference, training"):
        favor.count("vit_xs4", phase="both")  # type: ignore[arg-type]
    with pytest.raises(RequestError, match=r"'vit_\*4' stands for \d+ models; favor.train trains one"):
        favor.train("vit_*4", epochs=3)


def a_recipe(folder: Path, lr: float) -> str:
    file = folder / "short.yaml"
    file.write_text(
        "name: short\nversion: 1\ndoc: x\ndata: digits\nimg_size: 32\n"
        f"epochs: 1\nbatch_size: 240\noptimizer: adam\nlr: {lr}\n"
    )
    return str(file)


def test_train_adds_a_job_to_a_study_which_is_done_once(tmp_path: Path) -> None:
    recipe, study = a_recipe(tmp_path, lr=0.01), tmp_path / "study"
    run = favor.train("vit_xs4", recipe=recipe, study=study, device="cpu", threads=1)
    assert run.record.conditions["final"] is True
    assert "vit_xs4" in run._repr_html_()
    pipeline = str(run.record.conditions["pipeline"])
    assert re.fullmatch("short@1:[0-9a-f]{8}", pipeline)
    assert load_model_file(run.folder / BEST)[0].pipeline_name == pipeline
    (state,) = Session(saved_requests(study), study).states()
    assert (state.job.phase, state.status) == ("accuracy", "done")
    again = favor.train("vit_xs4", recipe=recipe, study=study, device="cpu", threads=1)
    assert (again.record.time, again.folder) == (run.record.time, run.folder)


def test_a_training_that_torchrun_started_is_a_job_of_the_study(tmp_path: Path) -> None:
    study, torchrun = tmp_path / "study", [sys.executable, "-m", "torch.distributed.run", "--standalone"]
    options = ["--recipe", a_recipe(tmp_path, lr=0.01), "--study", str(study), "--device", "cpu", "--threads", "1"]
    subprocess.run([*torchrun, "--nproc-per-node=2", "-m", "favor", "train", "vit_xs4", *options], check=True)
    (state,) = Session(saved_requests(study), study).states()
    assert (state.job.phase, state.status) == ("accuracy", "done")
    assert state.record is not None
    assert state.record.conditions["processes"] == 2


def test_train_refuses_to_start_in_several_processes(monkeypatch: pytest.MonkeyPatch) -> None:
    for name in ("RANK", "WORLD_SIZE"):
        monkeypatch.setenv(name, "1")
    with pytest.raises(RequestError, match="favor.train starts its own processes: give it processes=N"):
        favor.train("vit_xs4")


def test_a_training_that_fails_raises_its_reason_and_is_retried_only_with_resume(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    recipe, study = a_recipe(tmp_path, lr=1e30), tmp_path / "study"
    for _ in range(2):
        with pytest.raises(WorkError, match="vit_xs4: failed: .*not finite|vit_xs4: failed: .*the loss is"):
            favor.train("vit_xs4", recipe=recipe, study=study, device="cpu", threads=1)
    assert "1 failed (--resume retries these); nothing is left to do" in capsys.readouterr().err
    assert len(saved_requests(study)) == len(read(study).records) == 1
