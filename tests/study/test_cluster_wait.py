"""Waiting for the jobs of a cluster."""

from pathlib import Path

import pytest

from favor.cli import cluster
from favor.errors import WorkError
from favor.records.store import append
from favor.study import cluster_queue
from favor.study.plan import jobs_of
from favor.study.session import Session
from study.made_up import a_record, a_study

STUDY = a_study(names=("vit_s16", "swin_ti"), phases=("inference",))
FIRST, SECOND = jobs_of(STUDY)


def test_waiting_asks_the_scheduler_once_in_five_seconds_and_shows_what_has_ended(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    events: list[object] = []

    class Queue:
        @classmethod
        def now(cls, study: Path) -> "Queue":
            events.append("asked")
            if len(events) == 1:
                raise WorkError("Slurm: no answer; try again later")
            return cls()

        def alive(self, jobs):
            return tuple(jobs)

    def sleep(seconds: float) -> None:
        events.append(seconds)
        append(tmp_path, [a_record(FIRST if events.count("asked") == 1 else SECOND)])

    monkeypatch.setattr(cluster_queue, "ClusterQueue", Queue)
    monkeypatch.setattr(cluster.time, "sleep", sleep)
    append(tmp_path, [a_record(FIRST, "2026-11-16T00:00:00Z")])  # it is repeated
    cluster.wait_for(Session((STUDY,), tmp_path), (FIRST, SECOND))
    assert events == ["asked", 5.0, "asked", 5.0, "asked"]
    said = capsys.readouterr().err
    assert "warning: Slurm: no answer" in said
    assert "[1/2] vit_s16@224 inference fp32: done" in said
    assert "[2/2] swin_ti@224 inference fp32: done" in said
