"""The wide table: one row per model and conditions."""

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
from favor.records.bulk import frame_of_chunk
from favor.records.frame import frame_of
from favor.records.schema import RECORD_COLUMNS, Record, json_of_line, reading, to_data, to_line
from favor.records.store import FILE_NAME, Chunk, append, is_record, json_lines
from favor.records.table import RecordsWarning, load, table_of
from records.record_strategies import a_record, records


def chunk_of(lines: list[bytes]) -> Chunk:
    return Chunk("records.jsonl", 1, len(lines), b"".join(lines))


def one_by_one(chunk: Chunk) -> pd.DataFrame:
    return frame_of([line.data for line in json_lines(chunk, []) if is_record(line, [])])


@settings(max_examples=30, deadline=None)
@given(st.lists(records(), min_size=1, max_size=4))
@example([a_record("one"), a_record("other", conditions={"img_size": 224, "ema": True})])
def test_many_lines_at_once_give_the_same_columns_as_one_by_one(some: list[Record]) -> None:
    chunk = chunk_of([to_line(record) for record in some])
    at_once = frame_of_chunk(chunk)
    if at_once is not None:
        single = one_by_one(chunk)
        pd.testing.assert_frame_equal(at_once[sorted(at_once)], single[sorted(single)])


def test_ordinary_lines_are_taken_at_once() -> None:
    some = [a_record(f"model_{number}", float(number), time=None) for number in range(20)]
    some.append(a_record(status="timeout", reason="too slow", metrics={}, conditions={"img_size": 224, "ema": False}))
    assert frame_of_chunk(chunk_of([to_line(record) for record in some])) is not None


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
def test_a_spoiled_line_is_never_taken_at_once_and_its_neighbours_are_kept(spoiled: str, tmp_path: Path) -> None:
    assert SPOILED[spoiled] != LINE
    neighbour = to_line(a_record("neighbour"))
    assert frame_of_chunk(chunk_of([neighbour, SPOILED[spoiled], neighbour])) is None
    (tmp_path / FILE_NAME).write_bytes(neighbour + SPOILED[spoiled] + to_line(a_record("last")))
    if spoiled == "a newer schema":
        with pytest.raises(RequestError, match=r"records.jsonl:2: schema 2 is newer than 1.*upgrade"):
            load(tmp_path)
        return
    with warnings.catch_warnings(record=True) as said:
        warnings.simplefilter("always")
        names = set(load(tmp_path)["name"])
    assert {"neighbour", "last"} <= names
    whole = spoiled in ("two on one line", "empty")
    assert ["records.jsonl:2:" in str(warning.message) for warning in said] == ([] if whole else [True])
    assert ("vit_s16" in names) == (spoiled == "two on one line")


def test_a_row_has_the_contracts_columns_and_an_interval_only_where_one_is_known() -> None:
    metrics = {"top1": reading("top1", 82.5, method="printed"), "params": reading("params", 5, 4, 6, method="printed")}
    table = table_of([a_record(metrics=metrics)])
    conditions = ["img_size", "batch_size", "device", "precision"]
    assert list(table.columns) == [*RECORD_COLUMNS, *conditions, "params", "params_low", "params_high", "top1"]
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


def test_of_repeated_measurements_the_newest_counts_in_whatever_order_files_were_joined() -> None:
    failed = a_record(status="timeout", reason="too slow", metrics={}, time="2026-11-15T10:00:00Z")
    old, new = a_record(value=1.0, time="2026-11-15T11:00:00Z"), a_record(value=2.0, time="2026-11-15T12:00:00Z")
    other = a_record("other", 7.0)
    for some in ([failed, old, new, other], [new, other, old, failed]):
        table = table_of(some)
        assert dict(zip(table["name"], table["throughput"], strict=True)) == {"vit_s16": 2.0, "other": 7.0}
        assert set(table["status"]) == {"ok"}


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
    assert list(load(tmp_path).columns) == list(RECORD_COLUMNS)
    assert len(load(tmp_path)) == 0


def test_a_line_that_is_skipped_is_warned_about(tmp_path: Path) -> None:
    (tmp_path / FILE_NAME).write_bytes(LINE + LINE[:50])
    with pytest.warns(RecordsWarning, match="records.jsonl:2: torn line, skipped"):
        assert len(favor.records.load(tmp_path)) == 1


def test_appending_and_reading_need_neither_pandas_nor_torch() -> None:
    code = (
        "import sys; import favor.records as r; r.append; r.read; from favor.records import published; "
        "published.records(); assert not {'pandas', 'torch', 'timm', 'pyarrow'} & set(sys.modules), sorted(sys.modules)"
    )
    subprocess.run([sys.executable, "-c", code], check=True)


def test_a_line_holds_the_data_of_its_record() -> None:
    assert to_data(a_record()) == json_of_line(LINE)
