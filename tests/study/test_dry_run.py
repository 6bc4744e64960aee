"""`favor run --dry-run` on a machine that lacks what the study needs: the plan, then what is missing."""

import sys
from pathlib import Path

import pytest
import submitit  # noqa: F401 - its first import resets logging, which inside of a CliRunner closes pytest's own output
import torch
from torchvision import datasets
from typer.testing import CliRunner

from favor.cli import app
from favor.errors import FavorError, RequestError
from favor.machine import device
from favor.training import initial_weights

SLURM = ("--executor", "slurm", "--set", "gpus_per_node=8")
NO_CUDA = "missing here: device cuda: PyTorch "
NO_SLURM = "missing here: there is no `scontrol` on this machine"


@pytest.fixture(autouse=True)
def laptop(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> Path:
    """A machine without a GPU, datasets, downloads and Slurm; anything that it would write is below the folder."""

    def refuse(*arguments: object) -> None:
        raise AssertionError(f"downloads {arguments}")

    for module, name in (
        (datasets, "CIFAR10"),
        (initial_weights, "pretrained_weights"),
        (initial_weights, "pushed_file"),
    ):
        monkeypatch.setattr(module, name, refuse)
    monkeypatch.setattr(device, "available", lambda: ("cpu",))
    (tmp_path / "data").mkdir()
    here = {"FAVOR_DATA": "data", "XDG_CACHE_HOME": "cache", "PATH": "programs"}
    for variable, folder in here.items():
        monkeypatch.setenv(variable, str(tmp_path / folder))
    monkeypatch.chdir(tmp_path)
    return tmp_path


def lines_of(*words: str) -> list[str]:
    result = CliRunner().invoke(app, ["run", *words], catch_exceptions=False)
    assert result.exit_code == 0
    return result.stdout.splitlines()


@pytest.mark.parametrize(
    ("study", "job", "jobs", "dataset"),
    [
        ("paper", "vit_s16@224 accuracy deit3-pretrain seed 7", 336, "imagenet-21k"),
        ("vix-tiny-imagenet", "vix_vit@64 accuracy vix-tiny-imagenet seed 2", None, "tiny-imagenet"),
    ],
)
def test_the_plan_is_shown_where_neither_gpu_nor_data_nor_slurm_are_there(
    laptop: Path, study: str, job: str, jobs: int | None, dataset: str
) -> None:
    before = list(laptop.rglob("*"))
    here, on_slurm = lines_of(study, "--dry-run"), lines_of(study, "--dry-run", *SLURM)
    assert job in here
    assert any(line.endswith(f"  {job}") for line in on_slurm)
    (total,) = (line for line in here if line.endswith(f"jobs on a machine with cuda, in runs/{study}"))
    assert jobs is None or total.startswith(f"{jobs} jobs")
    assert "#SBATCH --gpus-per-node=8" in on_slurm
    for said in (here, on_slurm):
        missing = [line for line in said if line.startswith("missing here: ")]
        assert missing == said[-len(missing) :]
        assert len(set(missing)) == len(missing)
        assert sum(line.startswith(f"missing here: dataset {dataset}: not in ") for line in missing) == 1
        assert any("give its path as" in line for line in missing)
    assert sum(line.startswith(NO_CUDA) for line in here) == 1
    assert not any(line.startswith(NO_CUDA) for line in on_slurm)
    assert sum(line.startswith(NO_SLURM) for line in on_slurm) == 1
    assert list(laptop.rglob("*")) == before


def test_a_gpu_beyond_those_of_this_machine_is_missing_here(laptop: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(device, "available", lambda: ("cpu", "cuda"))
    monkeypatch.setattr(torch.cuda, "device_count", lambda: 1)
    (laptop / "my.yaml").write_text("models: [vit_s16]\ndevice: cuda:1\n")
    said = lines_of("my.yaml", "--dry-run")
    assert said[-2:] == [
        "1 job on a machine with cuda:1, in runs/my",
        "missing here: device cuda:1: this machine has cuda:0 to cuda:0",
    ]


def test_a_dry_run_downloads_nothing_and_says_what_the_run_would(laptop: Path) -> None:
    said = lines_of("vix-cifar10", "--dry-run")
    assert sum("dataset cifar10: " in line for line in said) == 1
    assert said[-1].endswith("(`favor run` without --dry-run downloads it)")
    (laptop / "cache" / "favor" / "downloads").mkdir(parents=True)
    (laptop / "cache" / "favor" / "downloads" / "cifar10.complete").touch()
    assert "dataset cifar10" not in " ".join(lines_of("vix-cifar10", "--dry-run"))


@pytest.mark.parametrize(
    ("text", "missing"),
    [
        ("device: mps\n", "device mps: PyTorch "),
        ("log: [wandb]\n", "--log wandb: wandb is not installed"),
        ("runtimes: [openvino]\n", "openvino needs openvino, not installed here"),
        ("phases: [load]\nload: {p99: 50 ms}\n", "load tests need mlcommons-loadgen"),
        ("phases: [accuracy]\ntrain: {recipe: laptop-digits, data: 'folder:photos'}\n", "dataset 'folder:/"),
        ("phases: [accuracy]\ntrain: {recipe: laptop-digits, log: [wandb]}\n", "--log wandb: wandb is not installed"),
        ("phases: [accuracy]\ntrain: {recipe: laptop-digits, init: best.safetensors}\n", "best.safetensors: there is"),
        (
            "phases: [accuracy]\ntrain: {recipe: laptop-digits, init: 'timm:augreg_in21k_ft_in1k'}\n",
            "weights timm:augreg_in21k_ft_in1k: `favor run` without --dry-run downloads them",
        ),
        (
            "runtimes: [onnxruntime]\nprecisions: [int8]\ncheckpoint: 'hub:me/my-vit'\n",
            "weights hub:me/my-vit: `favor run` without --dry-run downloads them",
        ),
        (
            "runtimes: [onnxruntime]\nprecisions: [int8]\ncalibration: 'folder:photos'\n",
            "dataset 'folder:/",
        ),
    ],
)
def test_whatever_else_this_machine_lacks_is_said_once_and_refused_only_by_the_run(
    laptop: Path, monkeypatch: pytest.MonkeyPatch, text: str, missing: str
) -> None:
    for package in ("wandb", "openvino", "mlperf_loadgen"):
        monkeypatch.setitem(sys.modules, package, None)  # as if not installed
    (laptop / "my.yaml").write_text(f"models: [vit_s16]\n{text}")
    said = [line for line in lines_of("my.yaml", "--dry-run") if line.startswith("missing here: ")]
    assert len(said) == 1
    assert missing in said[0]
    if "download" not in missing:
        refused = CliRunner().invoke(app, ["run", "my.yaml"]).exception
        assert isinstance(refused, RequestError)
        assert str(refused).startswith("my.yaml:")
        assert str(refused).endswith(said[0].removeprefix("missing here: "))
    assert {file.name for file in laptop.iterdir()} == {"my.yaml", "data"}


def test_trainings_from_different_weights_that_are_not_here_are_not_taken_for_one(laptop: Path) -> None:
    train = "".join(f"- {{recipe: laptop-digits, init: {name}.safetensors}}\n" for name in ("one", "other"))
    (laptop / "my.yaml").write_text(f"models: [vit_s16]\nphases: [accuracy]\ntrain:\n{train}")
    said = lines_of("my.yaml", "--dry-run")
    assert sum(line.startswith("vit_s16@32 accuracy laptop-digits") for line in said) == 2
    assert [line.partition(".safetensors: ")[2][:21] for line in said[-2:]] == ["there is no such file"] * 2


def test_a_tracker_of_the_command_line_that_is_not_installed_is_said_too(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setitem(sys.modules, "wandb", None)
    said = lines_of("quick", "--dry-run", "--log", "wandb")
    assert sum(line.startswith("missing here: --log wandb: ") for line in said) == 1


def test_without_submitit_the_jobs_are_listed_without_scripts(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setitem(sys.modules, "submitit", None)
    said = lines_of("quick", "--dry-run", "--executor", "slurm")
    assert "   0  vit_s16@224 inference fp32" in said
    assert any(line.startswith("missing here: the executor slurm needs submitit; install it with") for line in said)


def test_without_ray_the_tasks_are_listed(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setitem(sys.modules, "ray", None)
    said = lines_of("quick", "--dry-run", "--executor", "ray")
    assert any(line.startswith("ray task: ") for line in said)
    assert said[-1].startswith("missing here: the executor ray needs ray; install it with")


@pytest.mark.parametrize(
    ("text", "words", "why"),
    [
        ("device: abacus\n", (), "my.yaml:2: device: unknown device 'abacus'"),
        ("device: cuda\n", ("--executor", "slurm"), "device cuda: the jobs request no GPU; add --set gpus_per_node=N"),
        ("log: [wnadb]\n", (), "unknown tracker 'wnadb'; did you mean 'wandb'"),
        ("phases: [accuracy]\ntrain: {recipe: laptop-digits, data: cifar11}\n", (), "unknown dataset 'cifar11'"),
        ("phases: [accuracy]\ntrain: {recipe: laptop-digits, init: 'timm:nonsense'}\n", (), "unknown checkpoint of"),
        ("runtimes: [openvino]\ndevice: cuda\n", (), "openvino does not run on cuda here"),
    ],
)
def test_a_plan_that_no_machine_can_run_is_refused(laptop: Path, text: str, words: tuple[str, ...], why: str) -> None:
    (laptop / "my.yaml").write_text(f"models: [vit_s16]\n{text}")
    refused = CliRunner().invoke(app, ["run", "my.yaml", "--dry-run", *words]).exception
    assert isinstance(refused, FavorError)
    assert why in str(refused)


@pytest.mark.parametrize(
    ("words", "why"),
    [
        ((), "built-in study paper:70: device: device cuda: PyTorch "),
        (SLURM, "built-in study paper:73: train[0].data: dataset imagenet-21k: not in "),
    ],
)
def test_the_run_itself_refuses_at_once(laptop: Path, words: tuple[str, ...], why: str) -> None:
    refused = CliRunner().invoke(app, ["run", "paper", *words]).exception
    assert isinstance(refused, RequestError)
    assert str(refused).startswith(why)
    assert [file.name for file in laptop.iterdir()] == ["data"]
