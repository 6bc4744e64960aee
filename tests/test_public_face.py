"""`import favor`: fast, without torch, and what it names is what it says."""

import importlib
import inspect
import pkgutil
import subprocess
import sys
from pathlib import Path

import pandas as pd
import pytest
from msgspec.structs import replace

import favor
from favor.api import Records
from favor.errors import RequestError
from favor.records.schema import reading
from favor.trace.conditions import phases_named
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
        favor.train("vit_xs4", epochs=1, minutes=1.0)
