"""What can go wrong between a login node and its cluster: one clear line, and nothing is lost."""

import importlib.util
import json
import os
import re
import shutil
import subprocess
import sys
from pathlib import Path

import pytest
from typer.testing import CliRunner, Result

from cluster.slurm_cluster import SlurmCluster, wait_until
from cluster.studies import favor_command, states_and_places, users_environment
from favor.cli import app
from favor.errors import FavorError
from favor.study.submission import submissions_of

COUNTS = "name: counts\nmodels: [vit_ti16]\nimg_sizes: [64]\nphases: [count]\nreport: {page: false}\n"
SPECIFICATION = importlib.util.spec_from_file_location(
    "kill_drill_of_clusters", Path(__file__).parents[2] / "benchmarks" / "kill_drill.py"
)
assert SPECIFICATION is not None and SPECIFICATION.loader is not None  # noqa: PT018
kill_drill = importlib.util.module_from_spec(SPECIFICATION)
sys.modules["kill_drill_of_clusters"] = kill_drill
SPECIFICATION.loader.exec_module(kill_drill)


@pytest.fixture
def study(slurm: SlurmCluster, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """A study file, for a user who is logged in to the cluster."""
    monkeypatch.setenv("SLURM_CONF", slurm.environment["SLURM_CONF"])
    file = tmp_path / "counts.yaml"
    file.write_text(COUNTS)
    return file


def run(file: Path, folder: Path, *settings: str) -> str:
    """The error of `favor run` on Slurm; empty if the jobs were submitted."""
    words = [word for setting in settings for word in ("--set", setting)]
    ended = CliRunner().invoke(app, ["run", str(file), "--study", str(folder), "--executor", "slurm", *words])
    if ended.exception is None:
        return ""
    assert isinstance(ended.exception, FavorError), repr(ended.exception)
    said = str(ended.exception)
    assert "\n" not in said
    return said


@pytest.mark.parametrize(
    ("setting", "why"),
    [
        (
            "partition=gpuu",
            "Slurm refused the jobs: invalid partition specified: gpuu; Invalid partition name specified",
        ),
        ("extra=--reservation=secret", "Slurm refused the jobs: Requested reservation is invalid"),
        ("partition=full", "is not available|drain|unavailable|inactive"),
        ("constraint=h100", "Slurm refused the jobs: Invalid feature specification"),
        ("gpus_per_node=8", "Slurm refused the jobs: .*(gres|GRES|node configuration)"),
    ],
)
def test_what_slurm_refuses_is_told_in_its_words_and_can_be_submitted_otherwise(
    study: Path, tmp_path: Path, setting: str, why: str
) -> None:
    assert re.search(why, run(study, tmp_path / "s", setting))
    assert submissions_of(tmp_path / "s") == ()
    assert list((tmp_path / "s" / "cluster").iterdir()) == []


def test_without_sbatch_the_user_is_sent_to_a_login_node(
    study: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("PATH", str(tmp_path))
    assert "no `sbatch` on this machine; run this on a login node" in run(study, tmp_path / "s")


def test_without_submitit_the_user_is_told_what_to_install(
    study: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setitem(sys.modules, "submitit", None)
    assert "install it with `pip install favor[slurm]`" in run(study, tmp_path / "s")


def test_a_controller_that_does_not_answer_is_told_and_nothing_is_submitted_twice(
    study: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    said = "slurm_load_jobs error: Unable to contact slurm controller (connect failure)"
    for program in ("scontrol", "squeue"):  # the real ones say so after a minute
        (tmp_path / program).write_text(f"#!/bin/sh\necho '{said}' >&2\nexit 1\n")
        (tmp_path / program).chmod(0o755)
    monkeypatch.setenv("PATH", f"{tmp_path}:{os.environ['PATH']}")
    assert run(study, tmp_path / "s") == f"Slurm: {said}; try again later"
    assert submissions_of(tmp_path / "s") == ()


def test_a_full_shared_disk_is_told_and_the_jobs_are_left(study: Path, tmp_path: Path, slurm: SlurmCluster) -> None:
    with kill_drill.small_disk(tmp_path / "disk") as disk:
        if disk is None:
            pytest.skip("this user may not mount a tmpfs")
        folder = disk / "s"
        assert run(study, folder, "partition=gpuu")  # the study begins, and nothing is submitted
        room = os.statvfs(disk)
        (disk / "ballast").write_bytes(b"x" * (room.f_bavail * room.f_frsize))
        assert "No space left on device" in run(study, folder)
        (disk / "ballast").unlink()
        assert submissions_of(folder) == ()
        assert slurm.call("squeue", "--noheader", "--name=favor-s") == ""
        assert run(study, folder, "extra=--hold") == ""
        assert len(submissions_of(folder)) == 1
        slurm.call("scancel", f"--name={submissions_of(folder)[0].name}")


def test_an_interpreter_that_a_node_lacks_is_a_lost_job_with_its_reason(
    study: Path, tmp_path: Path, slurm: SlurmCluster
) -> None:
    interpreter = tmp_path / "python"
    interpreter.symlink_to(sys.executable)
    packages = os.pathsep.join(path for path in sys.path if path)
    user = users_environment(slurm.environment, tmp_path) | {"PYTHONPATH": packages}
    words = favor_command("run", study, "--study", tmp_path / "s", "--executor", "slurm", "--set", "extra=--hold")
    subprocess.run([str(interpreter), *words[1:]], env=user, check=True, capture_output=True)
    interpreter.unlink()
    (submission,) = submissions_of(tmp_path / "s")
    slurm.call("scontrol", "release", slurm.call("squeue", "--noheader", f"--name={submission.name}", "--format=%i"))
    wait_until(lambda: states_and_places(tmp_path / "s")[1]["vit_ti16 count"].status == "lost", 60.0)
    assert "No such file or directory" in states_and_places(tmp_path / "s")[1]["vit_ti16 count"].reason


def test_queued_jobs_are_not_submitted_again_until_they_are_canceled(study: Path, tmp_path: Path) -> None:
    folder = tmp_path / "s"
    assert run(study, folder, "extra=--hold") == ""

    def favor(*words: str) -> Result:
        ended = CliRunner().invoke(app, [*words], catch_exceptions=False)
        assert ended.exit_code == 0, ended.output
        return ended

    shown = json.loads(favor("status", str(folder), "--json").stdout)
    assert shown["queued"] == [{"job": "vit_ti16@64 count", "reason": "JobHeldUser"}]
    assert "nothing is left to submit" in favor("resume", str(folder)).stderr
    assert len(submissions_of(folder)) == 1
    assert "canceled 1 allocation; `favor resume" in favor("cancel", str(folder)).stderr
    shown = json.loads(favor("status", str(folder), "--json").stdout)
    assert (shown["queued"], shown["lost"][0]["reason"]) == ([], "CANCELLED")
    assert "submitted 1 job in 1 allocation" in favor("resume", str(folder)).stderr
    favor("cancel", str(folder))
    assert "canceled 0 allocations: nothing is queued" in favor("cancel", str(folder)).stderr


def test_a_dry_run_shows_the_script_and_leaves_no_trace(study: Path, tmp_path: Path) -> None:
    words = ["run", str(study), "--study", str(tmp_path / "s"), "--executor", "slurm", "--set", "partition=main"]
    shown = CliRunner().invoke(app, [*words, "--set", "extra=--qos=high", "--dry-run"], catch_exceptions=False).stdout
    assert "0  vit_ti16@64 count" in shown
    assert "1 job on 1 allocation of slurm" in shown
    for line in ("#SBATCH --partition=main", "#SBATCH --qos=high", "#SBATCH --time=240", "#SBATCH --signal=USR2@90"):
        assert line in shown
    assert not (tmp_path / "s").exists()


def test_jobs_that_slurm_took_although_sbatch_failed_are_canceled(
    study: Path, tmp_path: Path, slurm: SlurmCluster, monkeypatch: pytest.MonkeyPatch
) -> None:
    sbatch = shutil.which("sbatch", path=slurm.environment["PATH"])
    late = "sbatch: error: Batch job submission failed: Socket timed out on send/recv operation"
    (tmp_path / "sbatch").write_text(f"#!/bin/sh\n{sbatch} --hold \"$@\" >&2\necho '{late}' >&2\nexit 1\n")
    (tmp_path / "sbatch").chmod(0o755)
    monkeypatch.setenv("PATH", f"{tmp_path}:{os.environ['PATH']}")
    said = run(study, tmp_path / "late")
    assert said == "Slurm refused the jobs: Socket timed out on send/recv operation"
    queued = slurm.call("squeue", "--noheader", "--format=%j").splitlines()
    assert [name for name in queued if name.startswith("favor-late-")] == []


def test_ray_leaves_jobs_alone_that_wait_on_slurm(study: Path, tmp_path: Path, ray: None) -> None:
    folder = tmp_path / "s"
    assert run(study, folder, "extra=--hold") == ""
    words = ["run", str(study), "--study", str(folder), "--executor", "ray"]
    said = CliRunner().invoke(app, words, catch_exceptions=False)
    assert f"not run on Ray: 1 job in Slurm's queue; `favor cancel {folder}` removes them" in said.stderr
    assert said.exit_code == 1
    assert [submission.executor for submission in submissions_of(folder)] == ["slurm"]
    CliRunner().invoke(app, ["cancel", str(folder)], catch_exceptions=False)
