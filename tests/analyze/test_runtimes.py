"""Several runtimes in one table: each model in its best one, never mixed, and integers only with a known accuracy."""

import functools
import json
from collections.abc import Sequence
from pathlib import Path

import pandas as pd
import pytest
from msgspec.structs import replace

import favor
from favor.analyze import Request, recommend
from favor.analyze.comparison import Comparison
from favor.analyze.limits import Limit
from favor.analyze.trainings import Scope
from favor.cli.decision_text import print_recommendation
from favor.errors import RequestError
from favor.records import Record, append, reading, table_of
from favor.records.loading import Gathered, with_shipped
from favor.records.published import card_fields
from favor.report.data import as_json, page_data

IMAGENET = Scope("imagenet-1k")
FAST = Request("throughput")


def ran(name: str, runtime: str | None = None, precision: str = "fp32", **metrics: float) -> Record:
    """A measurement with narrow intervals."""
    conditions = {"img_size": 224, "num_classes": 1000, "device": "cpu", "precision": precision, "batch": "best"}
    signed = ("top1_change",)
    return Record(
        name=name,
        model=card_fields()[name],
        task="inference",
        source="measured",
        conditions=conditions | ({} if runtime is None else {"runtime": runtime}),
        metrics={
            metric: reading(
                metric, value, *((value, value) if metric in signed else (0.99 * value, 1.01 * value)), method=""
            )
            for metric, value in metrics.items()
        },
        environment={"host": "lab", "device_name": "a processor", "threads": 2},
        time="2026-11-16T00:00:00Z",
    )


@functools.cache
def shipped() -> pd.DataFrame:
    """What ships with favor about three models: the whole table takes longer, and says no more here."""
    known = with_shipped()
    return known[known["name"].isin(["vit_s16", "swin_ti", "xcit_s12_p16"])].dropna(axis="columns", how="all")


def table(records: Sequence[Record]) -> pd.DataFrame:
    return pd.concat([shipped(), table_of(records)], ignore_index=True)


TWO = (
    ran("vit_s16", "eager", throughput=30.0),
    ran("vit_s16", "openvino", throughput=60.0),
    ran("swin_ti", "eager", throughput=40.0),
    ran("swin_ti", "openvino", throughput=45.0),
)


@pytest.mark.parametrize(
    ("runtime", "deployment"),
    [
        ("onnxruntime", "favor export vit_s16 -o vit_s16.onnx --runtime onnx"),
        ("openvino", "favor export vit_s16 -o vit_s16.xml --runtime openvino"),
        ("compile", 'torch.compile(favor.create_model("vit_s16"))'),
        ("eager", None),
    ],
)
def test_the_answer_ends_with_what_gets_the_model_into_its_runtime(
    runtime: str, deployment: str | None, capsys: pytest.CaptureFixture[str]
) -> None:
    answer = recommend(
        table([ran("vit_s16", runtime, throughput=60.0), ran("swin_ti", runtime, throughput=45.0)]), FAST
    )
    assert answer.favored is not None
    assert (answer.favored.runtime, answer.favored.deployment) == (runtime, deployment)
    print_recommendation(answer, dict.fromkeys(choice.name for choice in answer.choices))
    ways = [line for line in capsys.readouterr().out.splitlines() if " it" in line.partition(":")[0]]
    if runtime == "compile":
        assert ways == [f"Create it: {deployment}"]
    else:
        export = [] if deployment is None else [f"Export it for {runtime}: {deployment}"]
        assert ways == ['Create it: favor.create_model("vit_s16")', *export]


def test_the_answer_names_a_model_and_its_best_runtime_with_one_row_per_model() -> None:
    answer = recommend(table(TWO), FAST)
    assert answer.favored is not None
    assert (answer.favored.name, answer.favored.runtime, answer.favored.called) == (
        *("vit_s16", "openvino"),
        "vit_s16 in openvino",
    )
    assert [choice.name for choice in answer.choices] == ["vit_s16", "swin_ti"]
    assert answer.why is not None
    assert answer.why.summary.startswith("vit_s16 in openvino has the highest throughput")
    assert answer.to_dict()["favored"]["runtime"] == "openvino"


def test_in_a_given_runtime_only_its_numbers_count() -> None:
    answer = recommend(table(TWO), Request("throughput", runtime="eager"))
    assert answer.favored is not None
    assert (answer.favored.name, answer.favored.runtime) == ("swin_ti", "eager")
    assert {choice.metrics["throughput"].value for choice in answer.choices} == {40.0, 30.0}
    assert "--runtime eager" in Request("throughput", runtime="eager").options()


def test_a_limit_may_need_another_runtime_than_the_one_that_is_fastest() -> None:
    slow = [
        ran("vit_s16", "eager", throughput=30.0, latency_p50=0.02),
        ran("swin_ti", "eager", throughput=9.0, latency_p50=0.03),
    ]
    fast = [ran("vit_s16", "openvino", throughput=60.0, latency_p50=0.2)]
    limits = (Limit.named("max_latency", 0.05),)
    answer = recommend(table([*slow, *fast]), Request("throughput", limits))
    assert answer.favored is not None
    assert (answer.favored.runtime, answer.favored.metrics["latency_p50"].value) == ("eager", 0.02)


def test_an_unknown_runtime_is_refused_with_the_closest_one() -> None:
    with pytest.raises(RequestError, match="did you mean 'openvino'"):
        recommend(table(TWO), Request("throughput", runtime="openvin"))


def test_earlier_records_of_compiled_models_and_those_that_name_no_runtime_keep_their_meaning() -> None:
    before = replace(ran("vit_s16"), conditions={**ran("vit_s16").conditions, "compile": True})
    assert before.conditions["runtime"] == "compile"
    assert before.request == ran("vit_s16", "compile").request
    with pytest.raises(RequestError, match="keep `runtime` only"):
        replace(before, conditions={**before.conditions, "compile": False})
    rows = [
        ran("vit_s16", throughput=30.0),
        ran("swin_ti", "eager", throughput=40.0),
        ran("xcit_s12_p16", "compile", throughput=99.0),
    ]
    compared = Comparison(table(rows), IMAGENET).compare(["throughput"]).rows
    found = compared[compared["throughput"].notna()]
    assert sorted(found["name"]) == ["swin_ti", "vit_s16"], "two of one runtime, and not the compiled one"


INT8 = (*TWO, ran("vit_s16", "openvino", "int8", throughput=99.0), ran("swin_ti", "openvino", "int8", throughput=98.0))


def test_a_quantized_model_without_a_known_accuracy_never_decides() -> None:
    answer = recommend(table(INT8), Request("throughput", (Limit.named("min_accuracy", 70.0),)))
    assert answer.favored is not None
    assert (answer.favored.called, answer.favored.precision) == ("vit_s16 in openvino", "fp32")
    assert any("2 models in int8, whose accuracy is unknown" in note for note in answer.notes)
    in_another = recommend(table([*INT8, ran("vit_s16", "onnxruntime", "int8", throughput=97.0)]), FAST)
    assert any("not considered: 2 models in int8" in note for note in in_another.notes), "each model counts once"


def _with_change(change: float, **training: object) -> Record:
    found = ran("vit_s16", "openvino", "int8", throughput=99.0, top1_change=change)
    basis = Comparison(table(TWO), IMAGENET).basis
    assert basis is not None
    trained = {"dataset": "imagenet-1k", "pipeline": basis.pipeline, "pretraining": basis.pretraining} | training
    known = {name: value for name, value in trained.items() if value is not None}
    return replace(found, conditions={**found.conditions, **known})


def test_with_a_known_change_of_top1_it_decides_by_the_accuracy_in_integers() -> None:
    own = recommend(table(TWO), FAST).favored
    assert own is not None
    accuracy = own.metrics["top1"].value
    known = table([*TWO, _with_change(-1.5)])
    answer = recommend(known, FAST)
    assert answer.favored is not None
    assert answer.favored.called == "vit_s16 in openvino int8"
    assert answer.favored.deployment == "favor export RUN -o vit_s16.xml --runtime openvino --precision int8"
    assert answer.favored.metrics["top1"].value == pytest.approx(accuracy - 1.5)
    strict = recommend(known, Request("throughput", (Limit.named("min_accuracy", accuracy - 1.0),)))
    assert "int8" not in [choice.precision for choice in strict.choices]


@pytest.mark.parametrize("training", [{"recipe.epochs": 1}, {"pretraining": "none"}, {"pretraining": None}])
def test_a_change_of_top1_of_another_training_does_not_count(training: dict[str, object]) -> None:
    of_another = ran("swin_ti", "openvino", "int8", throughput=98.0)
    answer = recommend(table([*TWO, of_another, _with_change(-1.5, **training)]), FAST)
    assert answer.favored is not None
    assert answer.favored.called == "vit_s16 in openvino"
    assert any("2 models in int8, whose accuracy is unknown" in note for note in answer.notes)


def test_changes_of_top1_of_several_trainings_do_not_exclude_each_other() -> None:
    # The other change is of a model that has no accuracy of that training.
    other = replace(_with_change(-0.1, pipeline="another", pretraining="none"), name="swin_ti")
    answer = recommend(table([*TWO, other, _with_change(-1.5)]), FAST)
    assert answer.favored is not None
    assert answer.favored.called == "vit_s16 in openvino int8"


HALF = (*TWO, ran("vit_s16", "openvino", "fp16", throughput=70.0), ran("swin_ti", "eager", "bf16", throughput=80.0))


def test_models_in_half_precision_compete_with_those_in_float32_and_the_answer_names_the_precision(
    capsys: pytest.CaptureFixture[str],
) -> None:
    answer = recommend(table(HALF), FAST)
    assert [choice.called for choice in answer.choices] == ["swin_ti in eager bf16", "vit_s16 in openvino fp16"]
    assert [choice.deployment for choice in answer.choices] == [
        'favor.create_model("swin_ti").bfloat16()',
        "favor export vit_s16 -o vit_s16.xml --runtime openvino --precision fp16",
    ]
    assert "the accuracy is taken to be the same in bf16, fp16, fp32" in answer.notes
    print_recommendation(answer, dict.fromkeys(("vit_s16", "swin_ti")))
    shown = capsys.readouterr().out
    assert "Favored: swin_ti in eager bf16" in shown
    assert 'Create it: favor.create_model("swin_ti").bfloat16()' in shown
    faster = recommend(table([*HALF, ran("swin_ti", "compile", throughput=99.0)]), FAST).favored
    assert faster is not None
    assert (faster.called, faster.precision) == ("swin_ti in compile fp32", "fp32")


def test_a_precision_is_not_named_where_it_is_the_only_one_with_numbers_that_decide() -> None:
    memory = ran("swin_ti", "eager", "bf16", inference_memory=1e8)
    answer = recommend(table([*TWO, memory]), FAST)
    assert [choice.called for choice in answer.choices] == ["vit_s16 in openvino", "swin_ti in openvino"]
    assert not any("taken to be the same" in note for note in answer.notes)


def test_in_a_given_precision_only_its_numbers_count() -> None:
    both = [*HALF, ran("vit_s16", "eager", "bf16", throughput=20.0)]
    for precision, called in (
        ("fp32", ["vit_s16 in openvino", "swin_ti in openvino"]),
        ("bf16", ["swin_ti", "vit_s16"]),
    ):
        answer = recommend(table(both), Request("throughput", precision=precision))
        assert [choice.called for choice in answer.choices] == called
        assert {choice.precision for choice in answer.choices} == {precision}
        assert not any("taken to be the same" in note for note in answer.notes)
    slow = Request("throughput", runtime="eager", precision="bf16")
    assert slow.options()[-2:] == ["--runtime eager", "--precision bf16"]
    assert [choice.called for choice in recommend(table(both), slow).choices] == ["swin_ti", "vit_s16"]
    with pytest.raises(RequestError, match="unknown precision 'amp'; choose from fp32, bf16, amp-fp16"):
        recommend(table(HALF), Request("throughput", precision="amp"))
    with pytest.raises(RequestError, match="unknown precision 'float8'; choose from fp32, bf16"):
        recommend(table(HALF), Request("throughput", precision="float8"))


def test_where_precisions_compete_the_answer_says_how_to_run_autocast() -> None:
    amp = ran("swin_ti", "compile", "amp-bf16", throughput=99.0)
    favored = recommend(table([*TWO, amp]), FAST).favored
    assert favored is not None
    assert favored.called == "swin_ti in compile amp-bf16"
    assert favored.deployment is not None
    assert favored.deployment.endswith("called under torch.autocast(device_type, torch.bfloat16)")


def test_the_page_asks_in_one_precision_and_its_command_names_it() -> None:
    both = [
        *(
            ran("vit_s16", "eager", precision, throughput=speed)
            for precision, speed in (("fp32", 30.0), ("bf16", 35.0))
        ),
        *(
            ran("swin_ti", "eager", precision, throughput=speed)
            for precision, speed in (("fp32", 40.0), ("bf16", 20.0))
        ),
    ]
    questions = json.loads(as_json(page_data(Gathered((), table(both), tuple(both), (), ()))))["questions"]
    assert questions["options"][0][-2:] == ["--precision", "fp32"]
    of_bf16 = [words for words in questions["options"] if "bf16" in words]
    assert [words[-2:] for words in of_bf16] == [["--precision", "bf16"]]
    for precision, first in (("fp32", "swin_ti"), ("bf16", "vit_s16")):
        answer = recommend(table(both), Request("throughput", precision=precision, device="cpu"))
        assert answer.choices[0].name == first


def test_training_times_are_not_compared_across_precisions() -> None:
    def step(name: str, precision: str, seconds: float) -> Record:
        return replace(ran(name, "eager", precision, train_step_time=seconds), task="training")

    steps = [step("vit_s16", "fp32", 2.0), step("swin_ti", "fp32", 3.0), step("swin_ti", "bf16", 1.0)]
    answer = recommend(table(steps), Request("training-time", device="cpu"))
    assert [choice.name for choice in answer.choices] == ["vit_s16", "swin_ti"]


def test_where_only_int8_was_measured_the_answer_says_that_its_accuracy_is_unknown() -> None:
    only = [ran(name, "openvino", "int8", latency_p50=0.02) for name in ("vit_s16", "swin_ti")]
    with pytest.raises(RequestError, match="known accuracy in int8 .* measure with --checkpoint RUN"):
        recommend(table(only), Request("latency", device="cpu"))


def test_a_model_that_is_ranked_in_another_runtime_is_not_said_to_be_left_out() -> None:
    eager = [ran("vit_s16", "eager", latency_p50=0.03), ran("swin_ti", "eager", latency_p50=0.04)]
    answer = recommend(
        table([*eager, ran("xcit_s12_p16", "openvino", latency_p50=0.02)]), Request("latency", device="cpu")
    )
    assert {choice.name for choice in answer.choices} == {"vit_s16", "swin_ti", "xcit_s12_p16"}
    assert not [note for note in answer.notes if "whose latency_p50 is not from" in note]


def test_memory_that_is_measured_in_two_ways_is_not_compared() -> None:
    rows = [ran("vit_s16", "eager", inference_memory=5e8), ran("swin_ti", "eager", inference_memory=6e8)]
    process = [ran("vit_s16", "openvino", inference_memory=1e8), ran("swin_ti", "openvino", inference_memory=2e8)]
    answer = recommend(table([*rows, *process]), Request("memory"))
    assert {choice.runtime for choice in answer.choices} == {"eager"}
    assert any("openvino, whose memory is measured in another way" in note for note in answer.notes)


def test_the_terminal_shows_the_runtime(capsys: pytest.CaptureFixture[str]) -> None:
    answer = recommend(table(TWO), FAST)
    print_recommendation(answer, dict.fromkeys(("vit_s16", "swin_ti")))
    shown = capsys.readouterr().out
    assert "Favored: vit_s16 in openvino" in shown
    assert "Runtime" in shown


def test_python_asks_for_a_runtime_too(tmp_path: Path) -> None:
    append(tmp_path, TWO)
    answer = favor.recommend(prefer="throughput", runtime="openvino", study=tmp_path)
    assert {choice.runtime for choice in answer.choices} == {"openvino"}


def test_the_page_asks_for_one_runtime_and_shows_no_float_accuracy_with_integers() -> None:
    data = json.loads(as_json(page_data(Gathered((), table(INT8), INT8, (), ()))))
    ours = {view["text"]: view["quantized"] for view in data["settings"] if "a processor" in view["text"]}
    assert [text.split(", machine")[0] for text in ours] == [
        "cpu, fp32, eager",
        "cpu, fp32, openvino",
        "cpu, int8, openvino",
    ]
    assert list(ours.values()) == [False, False, True]
    asked = [words for words in data["questions"]["options"] if "openvino" in words]
    assert asked
    assert data["questions"]["options"][0] == ["--runtime", "eager"]
    deciding = {entry["setting"] for entry in data["questions"]["deciding"]}
    assert not any(data["settings"][at]["quantized"] for at in deciding if at is not None)


def test_a_compiled_model_that_was_simulated_is_named_as_such(capsys: pytest.CaptureFixture[str]) -> None:
    answer = favor.recommend(prefer="throughput", device="a100")
    first = answer.choices[0]
    assert (first.runtime, first.metrics["throughput"].source) == ("compile", "simulated")
    assert "throughput: simulated; a100, amp-fp16, compiled" in answer.notes
    print_recommendation(answer, dict.fromkeys(choice.name for choice in answer.choices))
    shown = capsys.readouterr().out
    assert f"{first.name} in compile" in shown
    assert "(simulated)" in shown


def test_trainings_on_a_gpu_are_ranked_by_simulated_steps_and_not_by_the_paper() -> None:
    answer = favor.recommend(prefer="training-time", device="a100")
    assert (answer.ranked_by, answer.objective) == ("numbers", "finetune_time")
    assert {choice.metrics["finetune_time"].source for choice in answer.choices} == {"simulated"}
    assert not any("Table 7" in note for note in answer.notes)


def on(machine: str, record: Record) -> Record:
    return replace(record, environment={**record.environment, "host": machine, "device_name": machine})


def test_limits_on_a_further_device_are_checked_in_the_precision_that_a_model_is_ranked_in() -> None:
    lab = [
        ran("vit_s16", "eager", "fp32", throughput=60.0, latency_p50=0.01),
        ran("vit_s16", "eager", "bf16", throughput=10.0, latency_p50=0.01),
        *(ran("swin_ti", "eager", precision, throughput=20.0, latency_p50=0.01) for precision in ("fp32", "bf16")),
    ]
    laptop = [
        on("laptop", ran("vit_s16", "eager", precision, latency_p50=seconds))
        for precision, seconds in (("fp32", 0.09), ("bf16", 0.03))
    ] + [on("laptop", ran("swin_ti", "eager", precision, latency_p50=0.02)) for precision in ("fp32", "bf16")]
    known = [on("lab", record) for record in lab] + laptop
    limit = Limit.named("max_latency", 0.05)
    answer = recommend(table(known), Request("throughput", (limit,), device="lab", also_on=("laptop",)))
    assert "vit_s16 in eager fp32" not in {choice.called for choice in answer.choices}
    assert answer.favored is not None
    assert answer.favored.name == "swin_ti"
    # A second row of a model, whose numbers are in doubt, is checked on its own.
    busy = on("lab", ran("swin_ti", "compile", "fp32", latency_p50=0.01))
    metrics = {**busy.metrics, "throughput": reading("throughput", 90.0, method="")}
    busy = replace(busy, environment={**busy.environment, "flags": "busy"}, metrics=metrics)
    again = recommend(table([*known, busy]), Request("throughput", (limit,), device="lab", also_on=("laptop",)))
    assert "swin_ti" in {choice.name for choice in again.choices}


def test_limits_on_a_further_device_are_checked_in_the_runtime_that_a_model_is_ranked_in() -> None:
    answer = favor.recommend(prefer="throughput", max_latency="10ms", device=["t4", "a100"])
    there = {choice.runtime: choice.metrics["latency_p50@a100"].setting for choice in answer.choices}
    assert there["compile"] == "a100, amp-fp16, compiled"
    assert there.get("eager", "a100, amp-fp16") == "a100, amp-fp16"
