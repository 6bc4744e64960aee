"""How a run is shown: a bar in a terminal, lines without one."""

import io
import re

import pytest
from rich.console import Console

from favor import terminal
from favor.study.display import Display
from favor.study.estimate import Forecast, work_from
from favor.study.plan import jobs_of
from favor.terminal import progress_bar
from study.made_up import FakeClock, a_record, a_study

JOBS = jobs_of(a_study(phases=("inference",)))


@pytest.fixture
def shown(monkeypatch):
    """What is written to stderr, which is no terminal."""
    written = io.StringIO()
    monkeypatch.setattr(terminal, "stderr_console", lambda: Console(file=written, force_terminal=False, width=200))
    return written


def test_without_a_terminal_a_long_job_gets_a_line_now_and_then(shown):
    clock = FakeClock()
    with progress_bar() as bar:
        display = Display(bar, Forecast(JOBS, clock, work_from(())), None, 2, clock)
        display.begins(JOBS[0])
        for second in range(100):
            clock.sleep(1.0)
            display.at_step(JOBS[0], f"epoch {second}")
        display.ended(JOBS[0], [a_record(JOBS[0])], 100.0)
    lines = shown.getvalue().splitlines()
    assert [line.rpartition(" ")[2] for line in lines[:-1]] == ["29", "59", "89"]
    assert lines[-1].startswith(f"[1/2] {JOBS[0]}: ")


def test_short_jobs_get_no_more_lines_than_their_results(shown):
    clock = FakeClock()
    with progress_bar() as bar:
        display = Display(bar, Forecast(JOBS, clock, work_from(())), None, 2, clock)
        for job in JOBS[:2]:
            clock.sleep(20.0)
            display.at_step(job, "latency")
            display.ended(job, [a_record(job)], 20.0)
    assert [line[:5] for line in shown.getvalue().splitlines()] == ["[1/2]", "[2/2]"]


def test_in_a_terminal_each_time_has_its_word_after_it(monkeypatch):
    written = io.StringIO()
    screen = Console(file=written, force_terminal=True, width=200)
    monkeypatch.setattr(terminal, "stderr_console", lambda: screen)
    monkeypatch.setattr("sys.stderr.isatty", lambda: True, raising=False)
    with progress_bar(lambda: 250.0) as bar:
        bar.add_task("vit_s16", total=3)
    text = re.sub(r"\x1b\[[0-9;?]*[a-zA-Z]", "", written.getvalue())
    assert re.search(r"0/3 0 s elapsed, about 4\.2 min left", text), text
