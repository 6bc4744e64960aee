"""Threads, load and the description of the machine."""

import os
import subprocess
import threading
import time

import pytest
import torch

from favor.machine.device import Cpu
from favor.machine.environment import Glance, describe, favor_commit, glance, is_busy, others_between, usable_threads


def topology(folder, *cores: str):
    for cpu, siblings in enumerate(cores):
        place = folder / f"cpu{cpu}" / "topology"
        place.mkdir(parents=True)
        (place / "thread_siblings_list").write_text(siblings)
    return folder


@pytest.fixture
def four_processors(monkeypatch):
    monkeypatch.setattr(os, "sched_getaffinity", lambda pid: {0, 1, 2, 3}, raising=False)
    monkeypatch.setattr("sys.platform", "linux")


def test_two_threads_of_a_core_count_as_one(tmp_path, four_processors):
    folder = topology(tmp_path, "0,2", "1,3", "0,2", "1,3")
    assert usable_threads(folder, tmp_path / "none") == 2


def test_a_process_bound_to_one_processor_gets_one_thread(tmp_path, four_processors, monkeypatch):
    monkeypatch.setattr(os, "sched_getaffinity", lambda pid: {1})
    assert usable_threads(topology(tmp_path, "0", "1", "2", "3"), tmp_path / "none") == 1


@pytest.mark.parametrize(("quota", "threads"), [("max 100000", 4), ("250000 100000", 2), ("50000 100000", 1)])
def test_a_groups_quota_limits_the_threads(tmp_path, four_processors, quota, threads):
    (tmp_path / "cpu.max").write_text(quota)
    assert usable_threads(topology(tmp_path, "0", "1", "2", "3"), tmp_path / "cpu.max") == threads


def test_where_the_topology_is_not_told_every_processor_counts(tmp_path, four_processors):
    assert usable_threads(tmp_path, tmp_path / "none") == 4


def test_others_are_what_the_machine_did_less_what_we_did():
    assert others_between(Glance(0.0, 100.0, 10.0), Glance(4.0, 107.0, 12.0)) == pytest.approx(5 / 4)
    assert others_between(Glance(0.0, 100.0, 10.0), Glance(4.0, 101.0, 12.0)) == 0.0


def test_our_own_work_is_not_counted_as_that_of_others():
    before = glance()
    deadline = time.monotonic() + 0.5
    while time.monotonic() < deadline:
        pass
    after = glance()
    assert after.own - before.own > 0.05
    assert after.machine - before.machine >= 0.8 * (after.own - before.own)
    assert threading.active_count() < 50


def test_a_tenth_of_the_machine_used_by_others_makes_it_busy():
    assert not is_busy(0.79, 8)
    assert is_busy(0.81, 8)


def test_the_description_is_flat_and_names_device_threads_and_versions():
    described = describe(Cpu(), threads=3)
    assert described["threads"] == 3
    assert described["torch"] == torch.__version__
    assert described["device_name"]
    assert all(isinstance(value, str | int | float | bool) for value in described.values())
    assert "plugins" not in described


def test_an_environment_tells_what_a_plugin_held(tmp_path):
    plugin = tmp_path / "my_models.py"
    plugin.write_text("first = 1")
    first = describe(Cpu(), threads=1, plugins=[str(plugin)])["plugins"]
    plugin.write_text("second = 2")
    second = describe(Cpu(), threads=1, plugins=[plugin])["plugins"]
    assert first.startswith("my_models.py ")
    assert first != second


def test_a_checkout_tells_its_commit_and_whether_files_differ_and_an_installed_favor_tells_none(tmp_path):
    assert favor_commit(tmp_path) is None
    git = ["git", "-C", str(tmp_path), "-c", "user.name=a", "-c", "user.email=a@b"]
    file = tmp_path / "file"
    file.write_text("one")
    for command in (["init", "-q"], ["add", "file"], ["commit", "-qm", "one"], ["tag", "-a", "v1", "-m", "v1"]):
        subprocess.run([*git, *command], check=True)
    favor_commit.cache_clear()
    commit = subprocess.run([*git, "rev-parse", "HEAD"], check=True, capture_output=True, text=True).stdout[:12]
    assert favor_commit(tmp_path) == commit
    file.write_text("two")
    favor_commit.cache_clear()
    assert favor_commit(tmp_path) == f"{commit}-dirty"
