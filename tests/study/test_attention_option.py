"""`--attention plain`, from the command line or the study file to the pass that runs and the record that is kept."""

import json
from pathlib import Path

import pandas as pd
import pytest
import torch
import torch.nn.functional as F
from typer.testing import CliRunner

from favor.analyze.comparison import Comparison, Scope
from favor.cli import app
from favor.data import opening
from favor.errors import RequestError
from favor.measurement.job import MeasureJob
from favor.records.store import read
from favor.study.plan import jobs_of
from favor.study.schema import Train
from favor.study.train_jobs import TrainJob, is_of, stage_request
from favor.trace.counts import count
from favor.training.recipe import load_recipe
from favor.training.request import TrainingRequest
from favor.training.run import train
from study.made_up import a_study
from study.some_digits import some_digits


def run(*arguments: str) -> str:
    done = CliRunner().invoke(app, list(arguments))
    assert done.exit_code == 0, done.output
    return done.stdout


def test_a_study_measures_and_trains_with_its_attention() -> None:
    recipe = Train(recipe="laptop-digits", data="digits")
    study = a_study(phases=("inference", "training", "accuracy"), train=recipe, attention="plain")
    jobs = jobs_of(study)
    assert {job.attention for job in jobs if isinstance(job, MeasureJob | TrainJob)} == {"plain"}
    measured = next(job for job in jobs if isinstance(job, MeasureJob))
    assert measured.conditions["attention"] == "plain"
    assert MeasureJob.from_json(measured.to_json()) == measured
    trained = next(job for job in jobs if isinstance(job, TrainJob))
    request = stage_request(trained, (trained.train,), Path("study"), (), resume=False)
    assert TrainingRequest.from_json(request.to_json()).attention == "plain"


def test_fused_attention_is_the_default_and_no_condition() -> None:
    (job, *_) = (job for job in jobs_of(a_study()) if isinstance(job, MeasureJob))
    assert job.attention == "fused"
    assert "attention" not in job.conditions


@pytest.mark.parametrize(
    "command", [("measure", "vit_xs4"), ("train", "vit_xs4"), ("simulate", "vit_xs4", "--device", "t4")]
)
def test_an_unknown_attention_is_refused(command: tuple[str, ...]) -> None:
    done = CliRunner().invoke(app, [*command, "--attention", "plane"])
    assert isinstance(done.exception, RequestError)
    assert "unknown attention 'plane'; did you mean 'plain'" in str(done.exception)


def test_measured_memory_of_a_training_step_is_larger_with_plain_attention() -> None:
    asked = ("measure", "vit_xs4", "--phase", "training", "--batch-size", "16", "--budget", "0.3", "--device", "cpu")
    memory = {}
    for attention in ("fused", "plain"):
        (record,) = json.loads(run(*asked, "--attention", attention, "--json"))
        assert record["conditions"].get("attention", "fused") == attention
        memory[attention] = record["metrics"]["train_memory"]["value"]
    queries = 16 * 4 * 3 * 65  # images, layers, heads, tokens
    assert memory["plain"] - memory["fused"] == 4 * queries * (65 - 1), "weights instead of a sum for each query"


def test_a_training_uses_the_attention_that_is_asked_for_says_it_and_is_a_run_of_its_own(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    fused_kernel = []
    attend = F.scaled_dot_product_attention

    def watched(*arguments: torch.Tensor, **options: object) -> torch.Tensor:
        fused_kernel.append(torch.backends.cuda.flash_sdp_enabled())
        return attend(*arguments, **options)

    monkeypatch.setattr(F, "scaled_dot_product_attention", watched)
    monkeypatch.setitem(opening.INSIDE_PACKAGE, "digits", some_digits)
    recipe = load_recipe("laptop-digits", ["epochs=1", "batch_size=40", "warmup_epochs=0"])
    folders = []
    for attention, has_fused in (("plain", False), ("fused", True)):
        fused_kernel.clear()
        request = TrainingRequest(
            *("vit_xs4", recipe, "digits", tmp_path), device="cpu", threads=1, survey_seconds=1e-9, attention=attention
        )
        folders.append(train(request).folder)
        assert set(fused_kernel) == {has_fused}
    assert len(set(folders)) == 2
    assert [record.conditions.get("attention") for record in read(tmp_path).records] == ["plain", None]
    job = TrainJob("vit_xs4", 0, Train(recipe="laptop-digits", set=("batch_size=40",)), "cpu", 1, (), attention="plain")
    of_job = [is_of(job, (job.train,), record) for record in _as_asked(tmp_path, job)]
    assert of_job == [True, False]


def _as_asked(folder: Path, job: TrainJob) -> list[object]:
    """The records of a study with the recipe that a job asks for, so that attention is all that differs."""
    from msgspec.structs import replace

    from favor.study.train_jobs import stage_conditions

    asked = stage_conditions(job.train, job.seed, job.name)
    return [replace(record, conditions={**record.conditions, **asked}) for record in read(folder).records]


def test_simulated_numbers_say_that_attention_is_plain() -> None:
    simulated = json.loads(run("simulate", "vit_xs4", "--device", "t4", "--attention", "plain", "--json"))
    assert simulated[0]["conditions"]["attention"] == "plain"


@pytest.mark.parametrize("training", [False, True])
def test_counts_are_the_same_for_both_so_that_the_option_is_refused_without_memory(training: bool) -> None:
    assert count("vit_xs4", training=training, attention="plain") == count("vit_xs4", training=training)
    done = CliRunner().invoke(app, ["count", "vit_xs4", "--attention", "plain"])
    assert "add --memory" in str(done.exception)


def test_plain_and_fused_numbers_are_never_ranked_together() -> None:
    common = {"status": "ok", "source": "measured", "img_size": 224, "device": "cpu", "machine": "here"}
    table = pd.DataFrame(
        [
            common | {"name": name, "family": name, "throughput": speed, "attention": attention}
            for name, speed, attention in (
                ("a", 9.0, None),
                ("b", 8.0, None),
                ("b", 99.0, "plain"),
                ("c", 98.0, "plain"),
            )
        ]
    )
    compared = Comparison(table, Scope()).compare(["throughput"])
    known = compared.rows.dropna(subset=["throughput"])
    assert compared.run is not None
    fused = compared.run.attention is None
    assert dict(zip(known["name"], known["throughput"], strict=True)) == (
        {"a": 9.0, "b": 8.0} if fused else {"b": 99.0, "c": 98.0}
    )
