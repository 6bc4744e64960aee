"""The wide table: one row per model and conditions."""

import json
import math
import subprocess
import sys
import warnings
from pathlib import Path

import pandas as pd
import pytest
from hypothesis import example, given, settings
from hypothesis import strategies as st

import favor.records
from favor.errors import RequestError
from favor.records.loading import with_shipped
from favor.records.schema import TABLE_COLUMNS, Record, from_line, from_lines, reading, to_data, to_line
from favor.records.store import FILE_NAME, append, read
from favor.records.table import RecordsWarning, load, load_reporting, table_of
from records.record_strategies import a_record, records


@settings(max_examples=30, deadline=None)
@given(st.lists(records(), min_size=1, max_size=4))
@example([a_record("one"), a_record("other", conditions={"img_size": 224, "ema": True})])
def test_many_lines_at_once_give_the_same_records_as_one_by_one(some: list[Record]) -> None:
    assert from_lines(b"".join(map(to_line, some))) == [from_line(to_line(record)) for record in some] == some


JSON_VALUES = st.recursive(
    st.one_of(
        st.none(),
        st.booleans(),
        st.sampled_from([0, 1, -1, 2, -0.5, 1.0, 1e308, 2**63, -(2**64), 10**400, -(10**400)]),
        st.integers(),
        st.floats(allow_nan=False, allow_infinity=False),
        st.text(st.characters(codec="utf-8"), max_size=4),
        st.sampled_from(["ok", "failed", "baseline", "count", "img/s", "2026-11-15T21:40:00Z"]),
    ),
    lambda inner: st.one_of(st.lists(inner, max_size=2), st.dictionaries(st.sampled_from(["a", "value"]), inner)),
    max_leaves=3,
)


def places_in(data: object, *above: str) -> list[tuple[str, ...]]:
    """Every field of a record and every field inside of one, by its path."""
    if not isinstance(data, dict):
        return [above]
    return [*([above] if above else []), *(place for key in data for place in places_in(data[key], *above, key))]


def replaced(data: dict[str, object], place: tuple[str, ...], value: object) -> dict[str, object]:
    key, *rest = place
    return data | {key: replaced(data[key], tuple(rest), value) if rest else value}  # type: ignore[arg-type]


@pytest.mark.parametrize("place", places_in(to_data(a_record(provenance={"file": "a.csv"}))), ids=".".join)
@settings(max_examples=25, deadline=None)
@given(value=JSON_VALUES)
@example(value=["a"])
@example(value={"a": 1})
@example(value=True)
@example(value=1.0)
@example(value=-1)
@example(value=10**400)
@example(value="")
@example(value={"a": 2**63})
def test_whatever_stands_in_a_field_both_readers_agree_and_no_other_line_is_lost(
    tmp_path_factory: pytest.TempPathFactory, place: tuple[str, ...], value: object
) -> None:
    spoiled = json.dumps(replaced(to_data(a_record(provenance={"file": "a.csv"})), place, value)).encode() + b"\n"
    study = tmp_path_factory.mktemp("study")
    (study / FILE_NAME).write_bytes(to_line(a_record("first")) + spoiled + to_line(a_record("last")))
    result = read(study)
    assert result.records[0] == a_record("first")
    assert result.records[-1] == a_record("last")
    assert [problem.line for problem in result.problems] == [2] * (3 - len(result.records))
    at_once = from_lines(spoiled)
    if at_once is not None:
        assert at_once == list(result.records[1:2])
    if len(result.records) == 3:
        assert len(table_of(result.records)) in (2, 3)


def test_a_byte_order_mark_at_a_files_start_is_no_part_of_its_first_record(tmp_path: Path) -> None:
    (tmp_path / FILE_NAME).write_bytes(b"\xef\xbb\xbf" + LINE + to_line(a_record("other")))
    table, problems = load_reporting(tmp_path)
    assert (table["name"].tolist(), problems) == (["vit_s16", "other"], ())
    assert ([record.name for record in read(tmp_path).records], read(tmp_path).problems) == (["vit_s16", "other"], ())


def test_a_file_of_a_byte_order_mark_alone_is_empty(tmp_path: Path) -> None:
    (tmp_path / FILE_NAME).write_bytes(b"\xef\xbb\xbf")
    assert len(load(tmp_path)) == len(read(tmp_path).records) == 0


def test_a_byte_order_mark_further_on_is_reported_by_both_readers_and_its_record_kept(tmp_path: Path) -> None:
    marked = b"\xef\xbb\xbf" + to_line(a_record("other"))
    (tmp_path / FILE_NAME).write_bytes(LINE + marked)
    table, problems = load_reporting(tmp_path)
    assert table["name"].tolist() == ["vit_s16", "other"]
    assert [problem.line for problem in problems] == [2]
    assert read(tmp_path).problems == problems


@pytest.mark.parametrize(("opening", "closing"), [(b"[", b"]"), (b'{"a":', b"}")], ids=["lists", "objects"])
def test_a_line_nested_too_deep_for_the_parser_is_a_corrupt_line(
    tmp_path: Path, opening: bytes, closing: bytes
) -> None:
    deep = LINE.replace(b'"img_size":224', b'"deep":' + opening * 100_000 + b"1" + closing * 100_000)
    (tmp_path / FILE_NAME).write_bytes(deep + LINE + to_line(a_record("last")))
    # In a process of its own: without the guard the parser ends it.
    code = "import sys; from favor.records.table import load_reporting as l; t, p = l(sys.argv[1]); print(len(t), *p)"
    said = subprocess.run([sys.executable, "-c", code, str(tmp_path)], check=True, capture_output=True, text=True)
    assert said.stdout.startswith("2 ")
    assert "records.jsonl:1: corrupt line, skipped" in said.stdout


MACHINE = {"host": "lab-3", "device_name": "a processor", "torch": "2.15.0", "threads": 2}


@pytest.mark.parametrize("key", MACHINE)
def test_rows_of_two_machines_can_be_told_apart(key: str, tmp_path: Path) -> None:
    other = MACHINE | {key: 4 if key == "threads" else "other"}
    without = {name: value for name, value in MACHINE.items() if name != key}
    append(tmp_path, [a_record(environment=environment) for environment in (MACHINE, other, without)])
    assert load(tmp_path)["machine"].nunique() == 3


def test_a_machine_is_told_in_short_and_none_is_told_where_none_is_known() -> None:
    table = table_of([a_record(environment=MACHINE), a_record(environment={}), a_record("other", environment=MACHINE)])
    text = "a processor, host lab-3, 2 threads, torch 2.15.0"
    assert [None if pd.isna(machine) else machine for machine in table["machine"]] == [text, None, text]


def test_a_machine_with_one_thread_is_one_machine_and_has_no_plural() -> None:
    records = [a_record(environment=MACHINE | {"threads": 1}), a_record("other", environment=MACHINE | {"threads": 1})]
    assert set(table_of(records)["machine"]) == {"a processor, host lab-3, 1 thread, torch 2.15.0"}


def test_ordinary_lines_are_taken_at_once() -> None:
    some = [a_record(f"model_{number}", float(number), time=None) for number in range(20)]
    some.append(a_record(status="timeout", reason="too slow", metrics={}, conditions={"img_size": 224, "ema": False}))
    assert from_lines(b"".join(map(to_line, some))) == some


LINE = to_line(a_record())
SPOILED = {
    "torn": LINE[:200] + b"\n",
    "two on one line": LINE[:-1] + LINE,
    "empty": b"\n",
    "not UTF-8": LINE.replace(b"a processor", b"\xff"),
    "a newer schema": LINE.replace(b'{"schema":1', b'{"schema":2'),
    "no name": LINE.replace(b'"name":"vit_s16",', b""),
    "an empty name": LINE.replace(b'"vit_s16"', b'""'),
    "an unknown key": LINE.replace(b'"time"', b'"clock"'),
    "an unknown task": LINE.replace(b'"inference"', b'"dinner"'),
    "a local time": LINE.replace(b"21:40:00Z", b"21:40"),
    "a success with a reason": LINE.replace(b'"reason":null', b'"reason":"so"'),
    "a failure without a reason": LINE.replace(b'"status":"ok"', b'"status":"failed"'),
    "an impossible class": LINE.replace(b'"how":"baseline"', b'"how":"sparse"'),
    "an unknown field of the card": LINE.replace(b'"family"', b'"familiy"'),
    "a year that is a text": LINE.replace(b"2020", b'"2020"'),
    "conditions that are a list": LINE.replace(b'"conditions":{', b'"conditions":[],"environment":{', 1),
    "a condition that is a list": LINE.replace(b'"img_size":224', b'"img_size":[224]'),
    "a condition that is not a number": LINE.replace(b'"img_size":224', b'"img_size":NaN'),
    "a condition named like a column": LINE.replace(b'"img_size":224', b'"status":224'),
    "a place that is a list": LINE.replace(b'"where":"baseline"', b'"where":["a"]'),
    "a condition of 400 digits": LINE.replace(b'"img_size":224', b'"img_size":' + b"9" * 400),
    "a version of 400 digits": LINE.replace(b'"threads":2', b'"threads":' + b"9" * 400),
    "a year of 400 digits": LINE.replace(b"2020", b"9" * 400),
    "a value of 400 digits": LINE.replace(b'"value":12.5', b'"value":' + b"9" * 400).replace(b"13.5", b"null"),
    "a year before all years": LINE.replace(b"2020", b"-5"),
    "a schema that is true": LINE.replace(b'{"schema":1', b'{"schema":true'),
    "a schema that is a float": LINE.replace(b'{"schema":1', b'{"schema":1.0'),
    "a value below zero": LINE.replace(b'"value":12.5', b'"value":-12.5').replace(b"11.5", b"null"),
    "an interval from below zero": LINE.replace(b"11.5", b"-11.5"),
    "an unknown metric": LINE.replace(b'"throughput"', b'"speed"'),
    "another unit": LINE.replace(b'"img/s"', b'"m/s"'),
    "no unit": LINE.replace(b'"unit":"img/s",', b""),
    "no value": LINE.replace(b'"value":12.5,', b""),
    "a value that is a text": LINE.replace(b'"value":12.5', b'"value":"12.5"'),
    "a value that is true": LINE.replace(b'"value":12.5', b'"value":true'),
    "a value that is not a number": LINE.replace(b'"value":12.5', b'"value":NaN'),
    "a value under its interval": LINE.replace(b'"value":12.5', b'"value":1.5'),
    "a value over its interval": LINE.replace(b'"value":12.5', b'"value":100'),
    "a method that is a number": LINE.replace(b'"median of blocks"', b"5"),
    "an unknown field of a reading": LINE.replace(b'"method"', b'"way"'),
    "a metric that is a number": LINE.replace(b'"metrics":{', b'"metrics":{"top1":5,'),
}


@pytest.mark.parametrize("spoiled", SPOILED)
def test_a_spoiled_line_is_never_taken_at_once_and_its_neighbors_are_kept(spoiled: str, tmp_path: Path) -> None:
    assert SPOILED[spoiled] != LINE
    neighbor = to_line(a_record("neighbor"))
    assert from_lines(neighbor + SPOILED[spoiled] + neighbor) is None
    (tmp_path / FILE_NAME).write_bytes(neighbor + SPOILED[spoiled] + to_line(a_record("last")))
    if spoiled == "a newer schema":
        with pytest.raises(RequestError, match=r"records.jsonl:2: schema 2 is newer than 1.*upgrade"):
            load(tmp_path)
        return
    with warnings.catch_warnings(record=True) as said:
        warnings.simplefilter("always")
        names = set(load(tmp_path)["name"])
    assert {"neighbor", "last"} <= names
    whole = spoiled in ("two on one line", "empty")
    assert ["records.jsonl:2:" in str(warning.message) for warning in said] == ([] if whole else [True])
    assert ("vit_s16" in names) == (spoiled == "two on one line")


def test_a_row_has_the_contracts_columns_and_an_interval_only_where_one_is_known() -> None:
    metrics = {"top1": reading("top1", 82.5, method="printed"), "params": reading("params", 5, 4, 6, method="printed")}
    table = table_of([a_record(metrics=metrics)])
    machine = ["environment.device_name", "environment.threads"]
    conditions = [*machine, "img_size", "batch_size", "device", "precision"]
    assert list(table.columns) == [*TABLE_COLUMNS, *conditions, "params", "params_low", "params_high", "top1"]
    row = table.iloc[0]
    assert (row["name"], row["where"], row["year"], row["img_size"]) == ("vit_s16", "baseline", 2020, 224)
    assert (row["params"], row["params_low"], row["params_high"], row["top1"]) == (5, 4, 6, 82.5)


def test_what_is_unknown_is_missing() -> None:
    table = table_of([a_record(conditions={"img_size": 224}), a_record("other", conditions={"ema": True})])
    assert math.isnan(table["img_size"][1])
    assert pd.isna(table["ema"][0])
    assert table["ema"][1] is True
    assert table["provenance"].isna().all()


def test_tasks_of_the_same_model_conditions_and_machine_are_one_row() -> None:
    training = a_record(task="training", metrics={"train_throughput": reading("train_throughput", 3.5, method="m")})
    table = table_of([a_record(), training])
    assert table[["task", "throughput", "train_throughput"]].to_numpy().tolist() == [["inference+training", 12.5, 3.5]]


@pytest.mark.parametrize(
    "change",
    [
        {"conditions": {"img_size": 384}},
        {"source": "simulated"},
        {"name": "vit_b16"},
        {"environment": {"device_name": "another processor"}},
        {"provenance": {"file": "a.csv", "line": 3}},
        {"metrics": {"throughput": reading("throughput", 99.0, method="m")}},
        {"status": "timeout", "reason": "too slow", "metrics": {}},
    ],
    ids=["conditions", "source", "name", "machine", "provenance", "metric", "status"],
)
def test_rows_are_not_joined_where_something_differs(change: dict[str, object]) -> None:
    assert len(table_of([a_record(), a_record(task="training", **change)])) == 2


def test_of_repeated_measurements_the_last_in_the_file_counts_whatever_the_clock_said(tmp_path: Path) -> None:
    failed = a_record(status="timeout", reason="too slow", metrics={}, time="2026-11-15T10:00:00Z")
    old, new = a_record(value=1.0, time="2026-11-15T11:00:00Z"), a_record(value=2.0, time="2026-11-15T12:00:00Z")
    other = a_record("other", 7.0)
    for number, (some, last) in enumerate([([failed, old, new, other], 2.0), ([new, other, failed, old], 1.0)]):
        append(tmp_path / str(number), some)
        for table in (table_of(some), load(tmp_path / str(number))):
            assert dict(zip(table["name"], table["throughput"], strict=True)) == {"vit_s16": last, "other": 7.0}
            assert set(table["status"]) == {"ok"}


def test_neither_a_busy_machine_nor_a_failure_replaces_a_quiet_measurement() -> None:
    environment = {"device_name": "a processor", "torch": "2.15.0", "threads": 2}
    busy = {"environment": {**environment, "flags": "busy throughput:wide"}}
    quiet, slower = a_record(value=20.0), a_record(value=3.0, **busy)
    for some, kept in (([quiet, slower], 20.0), ([slower, quiet], 20.0), ([slower, a_record(value=4.0, **busy)], 4.0)):
        assert table_of(some)["throughput"].tolist() == [kept]
    assert table_of([quiet, a_record(value=19.0)])["throughput"].tolist() == [19.0]
    failed = a_record(status="timeout", reason="too slow", metrics={})
    for some in ([quiet, failed], [slower, failed, quiet], [quiet, slower, failed]):
        assert table_of(some)["throughput"].tolist() == [20.0]
    trainings = [a_record(task="accuracy"), a_record(task="accuracy", value=3.0, **busy)]
    assert table_of(trainings)["throughput"].tolist() == [3.0]


@pytest.mark.parametrize("found", [{"batch": "best", "micro_batch_size": 8}, {"largest_batch": 4, "longest_wait": 0.1}])
def test_measurements_that_differ_only_in_what_a_search_found_are_repetitions(found: dict[str, object]) -> None:
    environment = {"device_name": "a processor", "torch": "2.15.0", "threads": 2}
    asked = {"img_size": 224, "device": "cpu"}
    other = {name: value if name == "batch" else value * 2 for name, value in found.items()}  # type: ignore[operator]
    quiet = a_record(value=20.0, task="training", conditions={**asked, **found})
    busy = a_record(
        value=3.0, task="training", conditions={**asked, **other}, environment={**environment, "flags": "busy"}
    )
    for some in ([quiet, busy], [busy, quiet]):
        table = table_of(some)
        assert table["throughput"].tolist() == [20.0]
        assert {name: table[name].tolist() for name in found} == {name: [value] for name, value in found.items()}
    again = a_record(value=19.0, task="training", conditions={**asked, **other})
    assert table_of([quiet, again])["throughput"].tolist() == [19.0]


def test_a_micro_batch_that_was_asked_for_is_a_condition() -> None:
    split = [
        a_record(task="training", conditions={"batch": "given", "batch_size": 32, "micro_batch_size": size})
        for size in (4, 32)
    ]
    assert len(table_of(split)) == 2


@settings(max_examples=8, deadline=None)
@given(st.lists(records(), max_size=3), st.lists(records(), max_size=3))
def test_two_folders_give_the_table_of_their_records(
    tmp_path_factory: pytest.TempPathFactory, here: list[Record], there: list[Record]
) -> None:
    folder = tmp_path_factory.mktemp("two")
    append(folder / "here", here)
    append(folder / "there", there)
    loaded, made = load(folder / "here", folder / "there"), table_of([*here, *there])
    assert list(loaded.columns) == list(made.columns)
    for column in made.columns:
        cells = zip(loaded[column], made[column], strict=True)
        assert all(mine == yours or (pd.isna(mine) and pd.isna(yours)) for mine, yours in cells), column


def test_records_at_hand_are_checked_too() -> None:
    with pytest.raises(RequestError, match="stored in 'img/s'"):
        table_of([a_record(metrics={"throughput": reading("top1", 5.0, method="printed")})])


def test_an_empty_study_gives_an_empty_table(tmp_path: Path) -> None:
    append(tmp_path, [])
    assert list(load(tmp_path).columns) == list(TABLE_COLUMNS)
    assert len(load(tmp_path)) == 0


def test_a_line_that_is_skipped_is_warned_about(tmp_path: Path) -> None:
    (tmp_path / FILE_NAME).write_bytes(LINE + LINE[:50])
    with pytest.warns(RecordsWarning, match="records.jsonl:2: incomplete line, skipped"):
        assert len(favor.records.load(tmp_path)) == 1


def test_appending_and_reading_need_neither_pandas_nor_torch() -> None:
    code = (
        "import sys; import favor.records as r; r.append; r.read; from favor.records import published; "
        "published.records(); assert not {'pandas', 'torch', 'timm', 'pyarrow'} & set(sys.modules), sorted(sys.modules)"
    )
    subprocess.run([sys.executable, "-c", code], check=True)


def test_a_line_holds_the_data_of_its_record() -> None:
    assert to_data(a_record()) == json.loads(LINE)


def test_columns_are_added_to_a_wide_table_without_warnings() -> None:
    wide = {f"recipe.{key}": float(key) for key in range(150)}
    own = [a_record("one", conditions=wide), a_record("other", conditions=wide)]
    for table in (table_of(own), with_shipped(own)):
        with warnings.catch_warnings(action="error"):
            assert "one" in table.assign(one=1, two=2)
