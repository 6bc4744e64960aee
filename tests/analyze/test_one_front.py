"""One front: command, Python, page, figures and recommendation agree on who is on it, over the shipped records."""

import json
from functools import cache

import pandas as pd
import pytest
from typer.testing import CliRunner

import favor
from favor.analyze import pareto
from favor.cli import app
from favor.records import gather
from favor.report.data import as_json, page_data
from favor.report.figures.evidence import evidence_of
from favor.report.figures.trade_off import trade_off

STUDY = "example:cpu"
RUNTIMES = "example:runtimes"
COSTS = ("throughput", "latency_p50", "inference_memory", "params")
PREFERENCE = {"throughput": "throughput", "latency_p50": "latency", "inference_memory": "memory", "params": "params"}


def answered(*words: str) -> dict:  # type: ignore[type-arg]
    done = CliRunner().invoke(app, [*words, "--json"])
    assert done.exit_code == 0, done.output
    return dict(json.loads(done.stdout))


def by_command(cost: str, study: str = STUDY) -> set[str]:
    return {p["name"] for p in answered("pareto", "top1", cost, "--study", study)["points"] if p["member"]}


# Each takes seconds and is the same for every cost.
gathered = cache(lambda study: gather([study]))
evidence_of_study = cache(lambda study: evidence_of(gathered(study).table))
page_of_study = cache(lambda study: page_data(gathered(study)))


def by_figure(cost: str, study: str = STUDY) -> set[str]:
    evidence = evidence_of_study(study)
    rows = evidence.rows([cost, "top1"])
    rows = rows[rows["img_size"] == evidence.base_size]
    return {corner.name for corner in trade_off(rows, cost, base_size=evidence.base_size, flags=evidence.flags).front}


def by_page(cost: str, study: str = STUDY) -> set[str]:
    data = page_of_study(study)
    view = data.views.accuracies[data.opening.accuracy]
    setting = data.views.settings[data.opening.setting]
    column = data.views.counted[cost] if cost in data.views.counted else setting.columns[cost]
    rows = pd.DataFrame(
        {"name": data.views.models.name, "top1": view.columns["top1"].value, cost: column.value}, dtype=object
    ).assign(top1=lambda table: table["top1"].astype(float), **{cost: lambda table: table[cost].astype(float)})
    return set(pareto(rows, ["top1", cost], flags=view.flags, draws=0).members)


def by_recommendation(cost: str, study: str = STUDY, runtime: str | None = None) -> set[str]:
    answer = favor.recommend(prefer=PREFERENCE[cost], study=study, runtime=runtime, top=100)
    return {choice.name for choice in answer.choices if choice.on_front}


@pytest.mark.parametrize("cost", COSTS)
def test_command_python_page_figures_and_recommendation_have_one_front(cost: str) -> None:
    front = by_command(cost)
    assert len(front) > 3
    assert set(favor.pareto("top1", cost, study=STUDY)["model"]) == front
    assert by_figure(cost) == front
    assert by_page(cost) == front
    assert by_recommendation(cost) == front


@pytest.mark.parametrize("cost", ["throughput", "latency_p50"])
def test_where_models_ran_in_several_runtimes_the_fronts_in_one_of_them_agree_and_name_it(cost: str) -> None:
    front = by_command(cost, RUNTIMES)
    assert by_figure(cost, RUNTIMES) == by_page(cost, RUNTIMES) == by_recommendation(cost, RUNTIMES, "eager") == front
    assert answered("pareto", "top1", cost, "--study", RUNTIMES)["setting"] == "cpu, fp32, eager"
    notes = CliRunner().invoke(app, ["pareto", "top1", cost, "--study", RUNTIMES]).stderr
    others = "in eager, not in compile, onnxruntime, openvino"
    assert f"{others}; `favor recommend` takes each model's best runtime" in notes
    frame = favor.pareto("top1", cost, study=RUNTIMES)
    assert (set(frame["model"]), set(frame[f"{cost}_setting"])) == (front, {"cpu, fp32"})
    page = page_of_study(RUNTIMES)
    assert json.loads(as_json(page))["settings"][page.opening.setting]["text"] == "cpu, fp32, eager"


def test_a_recommendation_has_the_front_of_each_model_in_its_best_runtime_which_it_names() -> None:
    answer = favor.recommend(prefer="throughput", study=RUNTIMES, top=100)
    shown = [
        {"name": choice.name, "runtime": choice.runtime}
        | {metric: choice.metrics[metric].value for metric in ("top1", "throughput")}
        for choice in answer.choices
    ]
    rows = pd.DataFrame(shown)
    assert rows["runtime"].nunique() > 1
    assert set(pareto(rows, ["top1", "throughput"]).members) == by_recommendation("throughput", RUNTIMES)
    assert by_recommendation("throughput", RUNTIMES) != by_command("throughput", RUNTIMES)
    settings = {choice.metrics["throughput"].setting for choice in answer.choices}
    assert {f"throughput: imported; {setting}" for setting in settings} <= set(answer.notes)


def test_a_flagged_accuracy_is_on_no_front_and_keeps_nobody_from_it() -> None:
    result = answered("pareto", "top1", "throughput", "--study", STUDY)
    assert "evit_s16" in result["flagged"]
    members = {point["name"] for point in result["points"] if point["member"]}
    assert not members & set(result["flagged"])
    flagged = next(point for point in result["points"] if point["name"] == "evit_s16")
    assert (flagged["member"], flagged["flag"]) == (False, result["flagged"]["evit_s16"])
    beaten = [
        p for p in result["points"] if p["member"] and all(p["values"][m] < flagged["values"][m] for m in p["values"])
    ]
    assert beaten, "without the flag it would keep one from the front"


@pytest.mark.parametrize("words", [("--any-pipeline",), ()])
def test_an_accuracy_reached_with_a_teacher_is_flagged_whatever_is_compared(words: tuple[str, ...]) -> None:
    flagged = answered("pareto", "top1", "params", "--all", *words)["flagged"]
    assert "dynamicvit_s16" in flagged
    alone = favor.recommend(among="dynamicvit*", any_pipeline=bool(words))
    assert (alone.favored, [choice.name for choice in alone.flagged]) == (None, ["dynamicvit_s16"])
