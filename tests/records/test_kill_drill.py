"""Short forms of `benchmarks/kill_drill.py`: nothing whose `append` returned is lost, and nothing is doubled."""

import importlib.util
import random
import sys
from pathlib import Path

import pytest

FILE = Path(__file__).parents[2] / "benchmarks" / "kill_drill.py"
SPECIFICATION = importlib.util.spec_from_file_location("kill_drill", FILE)
assert SPECIFICATION is not None
assert SPECIFICATION.loader is not None
kill_drill = importlib.util.module_from_spec(SPECIFICATION)
sys.modules["kill_drill"] = kill_drill
SPECIFICATION.loader.exec_module(kill_drill)


def assert_unharmed(figures: object) -> None:
    assert figures.written > 0  # type: ignore[attr-defined]
    assert (figures.lost, figures.doubled, figures.corrupt) == (0, 0, 0), figures  # type: ignore[attr-defined]


def test_a_killed_writer_loses_nothing_that_it_was_told_is_written(tmp_path: Path) -> None:
    assert_unharmed(kill_drill.killed(tmp_path, 8, random.Random(1)))  # noqa: S311 - moments to kill at


@pytest.mark.parametrize("own_files", [False, True], ids=["one file", "a file each"])
def test_sixteen_writers_at_once_lose_and_double_nothing(tmp_path: Path, own_files: bool) -> None:
    assert_unharmed(kill_drill.at_once(tmp_path, 16, 8, own_files=own_files))


def test_readers_beside_eight_writers_call_nothing_corrupt(tmp_path: Path) -> None:
    assert_unharmed(kill_drill.beside_readers(tmp_path, 8, 8))


def test_a_clock_that_is_set_back_does_not_make_an_older_value_the_newest(tmp_path: Path) -> None:
    figures = kill_drill.clock_set_back(tmp_path, 5)
    assert_unharmed(figures)
    assert figures.note == "an older value was taken 0 times"


def test_a_full_disk_refuses_records_in_one_line_and_loses_none_that_it_took(tmp_path: Path) -> None:
    with kill_drill.small_disk(tmp_path / "disk") as disk:
        if disk is None:
            pytest.skip("this user may not mount a tmpfs")
        figures = kill_drill.disk_full(disk)
    assert_unharmed(figures)
    assert figures.note.startswith("2 appends refused in one line")
