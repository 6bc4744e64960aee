"""Mutated files of every format end in one line or are read; never in a crash, a hang, a bomb, or a file elsewhere."""

import os
import random
import time
from collections.abc import Iterator, Sequence
from pathlib import Path

import pytest

from favor.errors import RequestError
from favor.zoo import registry
from hostile import formats
from hostile.formats import FORMATS
from hostile.harness import Format, drill, make_case
from hostile.test_records import RECORDS

CASES = 250


@pytest.fixture(scope="module", autouse=True)
def no_plugin_stays() -> Iterator[None]:
    """The files of a checkpoint are written with a plugin; later studies in this process must not name it."""
    before = registry.loaded_plugins()
    yield
    for file in set(registry.loaded_plugins()) - set(before):
        registry.unregister(registry.load_plugin(file))
    formats._tiny.cache_clear()


@pytest.mark.parametrize("known", FORMATS, ids=lambda known: known.name)
def test_every_mutated_file_is_read_or_refused_in_one_line(known: Format) -> None:
    done = drill(known, CASES)
    assert done.findings == ()
    assert done.counts["accepted"] > 0  # else the files were never right
    assert known.name == "images" or done.counts["refused"] > CASES / 5  # broken images are left out, not refused


def write_one(folder: Path, rng: random.Random) -> Sequence[Path]:
    (folder / "file").write_bytes(b"right")
    return [folder / "file"]


def refuse(text: str) -> object:
    raise RequestError(text)


@pytest.mark.parametrize(
    ("read", "outcome"),
    [
        (lambda folder: None, "accepted"),
        (lambda folder: refuse("file: torn"), "refused"),
        (lambda folder: refuse("file:\ntorn"), "not one line"),
        (lambda folder: refuse("file: \x1b[2J"), "not one line"),
        (lambda folder: refuse("x" * 5000), "not one line"),
        (lambda folder: {}["missing"], "internal error"),
        (lambda folder: os.abort(), "crash"),
        (lambda folder: [None for _ in iter(int, 1)], "timeout"),
        (lambda folder: len(bytearray(os.urandom(1)) * 300_000_000), "memory"),
        (lambda folder: (folder.parent.parent / "escaped").write_bytes(b"x"), "outside touched"),
        (lambda folder: os.system("true"), "outside touched"),  # noqa: S605, S607
    ],
)
def test_the_drill_sees_what_a_reader_does(read: object, outcome: str) -> None:
    known = Format("made up", write_one, lambda content, rng: rng.randbytes(5), read)  # type: ignore[arg-type]
    done = drill(known, 2, seconds=1.0, megabytes=200)
    assert done.counts == {outcome: 2}
    assert done.bad == (0 if outcome in ("accepted", "refused") else 2)


def test_a_case_that_kills_its_process_does_not_end_the_drill() -> None:
    def read(folder: Path) -> None:
        if (folder / "file").read_bytes()[0] < 128:
            os.abort()

    done = drill(Format("made up", write_one, lambda content, rng: rng.randbytes(5), read), 8)
    assert sum(done.counts.values()) == 8
    assert set(done.counts) == {"accepted", "crash"}


def test_a_case_is_the_same_whenever_it_is_made(tmp_path: Path) -> None:
    for known in FORMATS:
        contents = []
        for attempt in ("first", "second"):
            folder = tmp_path / attempt / known.name
            folder.mkdir(parents=True)
            make_case(known, folder, seed=3, number=7)
            contents.append({file.name: file.read_bytes() for file in folder.rglob("*") if file.is_file()})
            time.sleep(0.01)
        assert contents[0].keys() == contents[1].keys()
        # These keep a time, a random name or their path.
        if known.name not in ("zip", "idx", "matlab", "pth", "submission", "data of a run"):
            assert contents[0] == contents[1], known.name


def test_the_docs_say_how_many_formats_there_are() -> None:
    text = (Path(__file__).parents[2] / "docs" / "reliability.md").read_text(encoding="utf-8")
    assert f"all {len((*FORMATS, RECORDS))} file formats that favor reads" in text
