"""The benchmark of answers on a busy machine: what it calls agreement."""

import importlib.util
import threading
from pathlib import Path

import psutil
import pytest

FILE = Path(__file__).parents[2] / "benchmarks" / "busy_machine.py"
spec = importlib.util.spec_from_file_location("busy_machine", FILE)
busy_machine = importlib.util.module_from_spec(spec)
spec.loader.exec_module(busy_machine)


def of(favored, *between):
    content = {"favored": favored and {"name": favored}, "undecided_between": [{"name": name} for name in between]}
    return busy_machine.goal_answer(content)


@pytest.mark.parametrize(
    ("quiet", "loaded", "expected"),
    [
        (of("a"), of("a"), "agree"),
        (of("a"), of("b"), "wrong"),
        (of("a"), of(None, "a", "b"), "undecided"),
        (of("a"), of(None, "b", "c"), "undecided"),
        (of(None, "a", "b"), of("b"), "agree"),
        (of(None, "a", "b"), of("c"), "wrong"),
        (of("a"), busy_machine.goal_answer(None), "undecided"),
    ],
)
def test_an_answer_agrees_is_undecided_or_wrong(quiet, loaded, expected):
    assert busy_machine.verdict(quiet, loaded) == expected


def test_load_comes_in_stretches_and_leaves_nothing_behind():
    before, children = set(threading.enumerate()), psutil.Process().children()
    with busy_machine.Load(seed=0, stretch=(0.2, 0.4), cores=1) as load:
        busy_machine.time.sleep(1.5)
    assert 0 < load.share < 1
    assert set(threading.enumerate()) <= before
    assert set(psutil.Process().children()) <= set(children)
