"""Mutated files of records: every line is a record or one clear line of complaint, and no neighbor is lost."""

import json
import random
import unicodedata
from collections.abc import Iterator, Sequence
from pathlib import Path
from typing import Any

from favor.errors import RequestError
from favor.records.schema import Record, to_data, to_line
from favor.records.store import FILE_NAME, FOLDER_NAME, append, read
from favor.records.table import load_reporting
from hostile.harness import Format, drill
from hostile.spoil import either, spoiled_bytes, spoiled_text
from records.record_strategies import a_record

CASES = 400
UNTOUCHED = a_record("untouched")
NASTY = (
    *(
        None,
        True,
        False,
        0,
        -1,
        1.5,
        -0.0,
        1e308,
        2**53 + 1,
        2**63,
        -(2**63) - 1,
        10**400,
        10**4000,
        [],
        {},
        [[]],
        {"a": 1},
    ),
    *(
        "",
        "224px",
        "\x00",
        "\x1b[2J",
        "two\nlines",
        "\x7f\x85",
        "=cmd|' /C calc'!A0",
        "x" * 100_000,
        "../../x",
        "é\u2028",
    ),
    *("ok", "failed", "count", "baseline", "%", "2026-11-15T21:40:00Z", "NaN"),
)
NASTY_JSON = (
    b"NaN",
    b"Infinity",
    b"1e999",
    b"-",
    b"01",
    b'"\\ud800"',
    b'"\xff"',
    b"[" * 5000,
    b'{"a":' * 990,
    b"9" * 5000,
)


def write(folder: Path, rng: random.Random) -> Sequence[Path]:
    """A study of two files, the study's own and a writer's; only one of them is spoiled."""
    failed = a_record("failed", status="timeout", reason="too slow", metrics={}, time=None)
    records = [a_record("one"), failed, a_record("three", rng.random(), environment={"host": "lab"})]
    spoiled, other = rng.sample((None, "0001-00007"), 2)
    append(folder, rng.sample(records, rng.randrange(1, 4)), writer=spoiled)
    append(folder, [UNTOUCHED], writer=other)
    return [folder / FILE_NAME if spoiled is None else folder / FOLDER_NAME / f"{spoiled}.jsonl"]


def spoiled_record(content: bytes, rng: random.Random) -> bytes:
    """One field of a record, or one inside of a field, replaced by something nasty, left out, or under another name."""
    data = to_data(a_record("one"))
    inside: Any = data
    while True:
        key = rng.choice(list(inside))
        if not isinstance(inside[key], dict) or not inside[key] or rng.random() < 0.3:
            break
        inside = inside[key]
    match rng.randrange(5):
        case 0:
            del inside[key]
        case 1:
            inside[str(rng.choice(NASTY))] = inside.pop(key)
        case 2:
            inside[key] = "HERE"
            return content + json.dumps(data).encode().replace(b'"HERE"', rng.choice(NASTY_JSON)) + b"\n"
        case _:
            inside[key] = rng.choice(NASTY)
    return content + json.dumps(data).encode() + b"\n"


def texts_of(record: Record) -> Iterator[str]:
    yield from (record.name, record.reason or "", *record.metrics, *(value.method for value in record.metrics.values()))
    for values in (record.conditions, record.environment, record.provenance):
        yield from (*values, *(value for value in values.values() if isinstance(value, str)))


def read_study(folder: Path) -> None:
    """Read as favor does, and hold what was read to what the docs promise; a problem counts as a refusal."""
    result = read(folder)
    assert UNTOUCHED in result.records
    for record in result.records:
        to_line(record)
        assert not any(unicodedata.category(letter) == "Cc" for text in texts_of(record) for letter in text)
    for problem in result.problems:
        assert 0 < problem.line <= Path(problem.file).read_bytes().count(b"\n") + 1
        assert len(problem.why) <= 400
        assert problem.why.isprintable()
    table, problems = load_reporting(folder)
    assert problems == result.problems
    assert "untouched" in set(table["name"])
    if problems:
        raise RequestError("; ".join(problem.why for problem in problems[:2]))


RECORDS = Format("records", write, either(spoiled_record, spoiled_record, spoiled_text, spoiled_bytes), read_study)


def test_every_mutated_file_of_records_is_read_or_its_bad_lines_are_named() -> None:
    done = drill(RECORDS, CASES)
    assert done.findings == ()
    assert done.counts["accepted"] > CASES / 10
    assert done.counts["refused"] > CASES / 3
