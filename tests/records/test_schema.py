"""The schema: what a record is, and what is refused with which words."""

import hashlib
import json
import unicodedata

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from favor.errors import RequestError
from favor.records.schema import (
    BatchPoint,
    CardFields,
    LoadCurves,
    NewerSchemaError,
    Record,
    Scalar,
    from_data,
    from_line,
    reading,
    request_of,
    to_data,
    to_line,
)
from records.record_strategies import a_record, records


@settings(max_examples=60, deadline=None)
@given(records())
def test_any_record_comes_back_from_its_line_as_it_was(record: Record) -> None:
    line = to_line(record)
    assert line.endswith(b"\n")
    assert line.count(b"\n") == 1
    assert from_line(line) == from_data(to_data(record)) == record


ASKED = st.tuples(
    st.sampled_from(["vit_s16", "vit_b16"]),
    st.sampled_from(["count", "inference"]),
    st.dictionaries(st.sampled_from(["img_size", "ema"]), st.sampled_from([1, True, "1", 224]), max_size=2),
)


@given(ASKED, ASKED)
def test_two_requests_are_the_same_exactly_when_name_task_and_conditions_are(
    one: tuple[str, str, dict[str, Scalar]], other: tuple[str, str, dict[str, Scalar]]
) -> None:
    same = json.dumps(one, sort_keys=True) == json.dumps(other, sort_keys=True)
    assert (request_of(*one) == request_of(*other)) is same


def test_a_request_does_not_depend_on_the_order_of_conditions_or_on_what_was_found() -> None:
    turned = dict(reversed(list(a_record().conditions.items())))
    assert a_record(conditions=turned, value=99.0, time=None).request == a_record().request
    assert a_record(task="training").request != a_record().request


def test_the_hash_of_a_request_is_that_of_its_canonical_json_in_every_version() -> None:
    # Studies on disk are resumed by it, so neither the order nor the spacing may ever change.
    canonical = (
        b'{"conditions":{"ema":true,"img_size":224,"lr":0.001,"note":"\\u00e9"},"name":"vit_s16","task":"count"}'
    )
    conditions = {"note": "é", "lr": 1e-3, "img_size": 224, "ema": True}
    assert request_of("vit_s16", "count", conditions) == hashlib.sha256(canonical).hexdigest()[:16]
    assert request_of("vit_s16", "count", {"img_size": 224}) == "2ff2a767f7898064"


def test_a_reading_gets_the_unit_of_its_metric() -> None:
    assert reading("train_memory", 5.0, method="printed").unit == "B"
    with pytest.raises(RequestError, match="did you mean 'throughput'"):
        reading("troughput", 5.0, method="printed")


def test_what_is_null_may_be_left_out_and_so_may_what_follows_from_the_rest() -> None:
    data = to_data(a_record(time=None, environment={}))
    for key in ("request", "time", "reason", "provenance", "environment"):
        del data[key]
    for key in ("low", "high", "method"):
        data["metrics"]["throughput"][key] = None
    record = from_line(json.dumps(data).encode())
    assert record == from_data(data)
    assert record.request == a_record().request
    assert record.environment == {}
    assert record.metrics["throughput"].low is None
    assert record.metrics["throughput"].method == ""


def test_a_model_from_elsewhere_has_a_card_without_fields() -> None:
    data = to_data(a_record())
    assert from_data(data | {"model": {}}).model == CardFields()
    assert from_data(data | {"model": {"family": None, "year": None}}).model == CardFields()


SPOILED = {
    "no object": (lambda data: [data], "JSON object"),
    "an unknown schema": (lambda data: data | {"schema": "one"}, "schema: 'one'"),
    "no name": (lambda data: data | {"name": None}, "record: name is missing"),
    "no model": (lambda data: data | {"model": None}, "record: model is missing"),
    "an empty name": (lambda data: data | {"name": ""}, "name: ''"),
    "an unknown key": (lambda data: data | {"condition": {}}, "did you mean 'conditions'"),
    "an unknown task": (lambda data: data | {"task": "inferense"}, "did you mean 'inference'"),
    "a success with a reason": (lambda data: data | {"reason": "why"}, "a failure needs a reason"),
    "a failure without a reason": (lambda data: data | {"status": "timeout"}, "a failure needs a reason"),
    "a local time": (lambda data: data | {"time": "2026-11-15 21:40"}, "2026-11-15T21:40:00Z"),
    "a year that is none": (lambda data: data | {"model": {"year": True}}, "model.year"),
    "an impossible class": (
        lambda data: data | {"model": {"where": "mlp_block", "how": "sparse"}},
        "no class of the taxonomy",
    ),
    "a place that is a list": (lambda data: data | {"model": {"where": ["a"]}}, "model.where: ['a']: expected"),
    "a way that is an object": (lambda data: data | {"model": {"how": {"a": 1}}}, "model.how: {'a': 1}: expected"),
    "a year without end": (lambda data: data | {"model": {"year": 10**400}}, "model.year"),
    "a schema that is true": (lambda data: data | {"schema": True}, "schema: True"),
    "a value below zero": (lambda data: data | {"metrics": {"top1": {"value": -1, "unit": "%"}}}, "below zero"),
    "an accuracy above 100 %": (lambda data: data | {"metrics": {"top1": {"value": 150, "unit": "%"}}}, "above 100 %"),
    "an interval from below zero": (
        lambda data: data | {"metrics": {"top1": {"value": 1, "unit": "%", "low": -1}}},
        "below zero",
    ),
    "a condition named machine": (lambda data: data | {"conditions": {"machine": "a"}}, "is already a column"),
    "an image size that is a text": (lambda data: data | {"conditions": {"img_size": "224px"}}, "conditions.img_size"),
    "no batch": (lambda data: data | {"conditions": {"batch_size": 0}}, "conditions.batch_size: 0"),
    "an image size that is true": (lambda data: data | {"conditions": {"img_size": True}}, "conditions.img_size"),
    "nested conditions": (lambda data: data | {"conditions": {"a": {"b": 1}}}, "conditions.a"),
    "an endless condition": (lambda data: data | {"conditions": {"a": 10**400}}, "conditions.a"),
    "a condition named like a metric": (
        lambda data: data | {"conditions": {"top1": 5}},
        "'top1' is already a column",
    ),
    "an unknown metric": (lambda data: data | {"metrics": {"top_1": None}}, "did you mean 'top1'"),
    "another unit": (
        lambda data: data | {"metrics": {"top1": {"value": 0.8, "unit": "1"}}},
        "stored in '%', not in '1'",
    ),
    "a value that is no number": (
        lambda data: data | {"metrics": {"top1": {"value": True, "unit": "%"}}},
        "metrics.top1.value: True: expected `float`",
    ),
    "a value outside of its interval": (
        lambda data: data | {"metrics": {"top1": {"value": 80, "unit": "%", "low": 81}}},
        "not within low 81",
    ),
}


@pytest.mark.parametrize("spoiled", SPOILED)
def test_a_spoiled_record_is_refused_with_the_field_and_the_cause(spoiled: str) -> None:
    spoil, words = SPOILED[spoiled]
    from_data(to_data(a_record()))
    with pytest.raises(RequestError) as error:
        from_data(spoil(to_data(a_record())))
    assert words in str(error.value)
    assert "\n" not in str(error.value)


def test_a_newer_schema_is_refused_as_such_whatever_else_is_on_the_line() -> None:
    with pytest.raises(NewerSchemaError, match="upgrade favor"):
        from_data({"schema": 2, "something": "new"})


def test_a_record_that_could_not_be_read_back_is_not_written() -> None:
    with pytest.raises(RequestError, match="conditions of vit_s16"):
        to_line(a_record(conditions={"lr": float("nan")}))
    with pytest.raises(RequestError, match="not valid Unicode"):
        to_line(a_record(conditions={"device": "\ud800"}))
    with pytest.raises(RequestError, match="metrics.throughput"):
        to_line(a_record(value=float("inf")))


def test_numbers_of_numpy_are_written_as_plain_numbers() -> None:
    record = a_record(metrics={"throughput": reading("throughput", np.float32(2.5), method="median")})
    assert from_line(to_line(record)).metrics["throughput"].value == 2.5


def test_a_request_that_a_file_made_up_is_not_believed() -> None:
    assert from_data(to_data(a_record()) | {"request": "0" * 16}).request == a_record().request


@given(st.text(st.characters(codec="utf-8"), min_size=1), st.text(st.characters(codec="utf-8")))
def test_no_control_character_comes_through_a_line_and_all_else_does(name: str, device: str) -> None:
    record = from_line(to_line(a_record(name, conditions={"device": device}, status="failed", reason=device)))
    for given_text, read in ((name, record.name), (device, record.conditions["device"]), (device, record.reason)):
        harmless = "".join(
            " " if letter in "\n\r\t" else "\ufffd" if unicodedata.category(letter) == "Cc" else letter
            for letter in given_text
        )
        assert read == harmless


LONG = {
    "name": [{"name": ["x" * 1000]}, {"x" * 1000: 1}, {"task": "x" * 1000}, {"time": "x" * 1000}],
    "reason": [{"reason": "x" * 1000}, {"model": {"where": "x" * 1000, "how": "y" * 1000}}, {"model": "x" * 1000}],
    "conditions": [{"conditions": {"x" * 1000: ["y" * 1000]}}, {"conditions": {"a": 10**1000}}, {"schema": 10**1000}],
    "metrics": [{"metrics": {"x" * 1000: 5}}, {"metrics": {"top1": {"value": 1, "unit": "x" * 1000}}}],
}


@pytest.mark.parametrize("change", [change for some in LONG.values() for change in some], ids=str)
def test_no_message_repeats_more_than_200_characters_of_a_record(change: dict[str, object]) -> None:
    with pytest.raises(RequestError) as error:
        from_data(to_data(a_record()) | change)
    letters = str(error.value)
    assert max(letters.count(letter) for letter in "xy0") <= 200
    assert letters.count("x") + letters.count("y") <= 200 + 10


def test_the_curves_of_a_load_test_are_kept_and_other_records_do_not_have_them() -> None:
    curves = LoadCurves(batches=(BatchPoint(batch_size=2, throughput=20.0, latency=0.1),))
    record = a_record(task="load", load=curves)
    assert from_line(to_line(record)) == record
    assert to_data(record)["load"]["batches"] == ({"batch_size": 2, "throughput": 20.0, "latency": 0.1},)
    assert "load" not in to_data(a_record())


@pytest.mark.parametrize(
    ("load", "why"),
    [
        ({"rates": [{"rate": -1}]}, r"load\.rates\[0\]\.rate: expected `float` > 0"),
        (
            {"batches": [{"batch_size": 1, "throughput": 1.0, "latency": "x"}]},
            r"load\.batches\[0\]\.latency: expected `float`, got `str`",
        ),
        ({"curve": []}, "load: object contains unknown field `curve`"),
        (3, "load: expected"),
    ],
)
def test_curves_that_are_none_are_refused_with_their_place(load: object, why: str) -> None:
    with pytest.raises(RequestError, match=why):
        from_data(to_data(a_record(task="load")) | {"load": load})
