"""A model on its way to a measurement outside of PyTorch: exported once, compared, opened, timed."""

import json
from dataclasses import replace
from pathlib import Path

import pytest
import torch
from safetensors.torch import save_file
from torch import Tensor, nn

from equality import images
from favor.errors import RequestError, WorkError
from favor.machine.clock import WallClock
from favor.machine.device import Cpu
from favor.machine.messages import Channel, Findings
from favor.measurement import file_workload, worker
from favor.measurement.bench import Bench
from favor.measurement.job import MeasureJob
from favor.runtime.export import traced
from favor.runtime.exported import ANY_BATCH, ExportedModel
from favor.runtime.memory import Growth, growth
from favor.runtime.opening import open_file
from favor.runtime.session import Choice
from favor.study.options import study_from_options
from favor.study.plan import jobs_of
from favor.study.resolved import ResolvedStudy
from favor.training import export_worker
from favor.training.checkpoint import load_model_file
from favor.training.export import subject_of
from favor.training.export_worker import ExportJob
from favor.zoo.registry import loaded_plugins


@pytest.fixture(scope="module")
def folder(tmp_path_factory: pytest.TempPathFactory) -> Path:
    return tmp_path_factory.mktemp("exports")


def exported(folder: Path, runtime: str, precision: str = "fp32", **more: object) -> tuple[ExportJob, Findings]:
    asked = ExportJob("tiny_vit", 32, 10, runtime, precision, "cpu", 1, "fused", str(folder), **more)  # type: ignore[arg-type]
    findings = Findings()
    export_worker.run(replace(asked, plugins=tuple(map(str, loaded_plugins()))).to_json(), Channel(findings.take))
    return asked, findings


@pytest.mark.usefixtures("checkpoint")
def test_both_runtimes_open_one_graph_and_it_is_written_once(folder: Path) -> None:
    asked, findings = exported(folder, "onnxruntime")
    assert findings.status == "ok"
    assert findings.environment["deviation_from_eager"] < 1e-5
    assert findings.conditions == {"fused": False}
    assert findings.metrics["preparation_time"].value > 0
    file = ExportedModel.load(asked.manifest)
    assert (list(file.files), file.batch_sizes) == ([ANY_BATCH], None)
    assert findings.metrics["file_size"].value == file.file(7).stat().st_size
    written = file.file(1).stat().st_mtime_ns
    other, _ = exported(folder, "openvino")
    assert ExportedModel.load(other.manifest).file(1).stat().st_mtime_ns == written


@pytest.mark.usefixtures("checkpoint")
def test_a_file_is_measured_as_a_model_is_and_its_record_says_how(
    folder: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    asked, _ = exported(folder, "onnxruntime")
    monkeypatch.setattr(file_workload, "growth", lambda *arguments: Growth(2000, 1000, 3000))
    job = MeasureJob("tiny_vit", "inference", 32, "fp32", "cpu", "cpu", 1, runtime="onnxruntime", budget=0.3)
    findings = Findings()
    bench = Bench(Cpu(), WallClock(), Channel(findings.take), job.budget)
    worker.measure_phase(bench, replace(job, num_classes=10, exported=str(asked.manifest)))
    assert {"latency_p50", "throughput", "best_batch_size", "inference_memory"} <= findings.metrics.keys()
    memory = findings.metrics["inference_memory"]
    assert (memory.value, memory.low, memory.high) == (2000, 1000, 3000)
    assert memory.method.startswith("growth of a process's resident memory")
    assert findings.environment["provider"] == "CPUExecutionProvider"
    assert findings.environment["onnxruntime"]


@pytest.mark.usefixtures("checkpoint")
def test_the_memory_of_a_file_is_what_a_process_without_pytorch_grows_by(folder: Path) -> None:
    asked, _ = exported(folder, "onnxruntime")
    file = ExportedModel.load(asked.manifest).file(1)
    found = growth(file, Choice("onnxruntime", threads=1), 1, 32, runs=1)
    assert 1e5 < found.middle < 2e8


@pytest.mark.usefixtures("checkpoint")
def test_what_importing_takes_for_a_moment_is_not_memory_of_the_file(
    folder: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    asked, _ = exported(folder, "onnxruntime")
    (tmp_path / "sitecustomize.py").write_text("taken = b'1' * 500_000_000\ndel taken\n")
    monkeypatch.setenv("PYTHONPATH", str(tmp_path))
    found = growth(ExportedModel.load(asked.manifest).file(1), Choice("onnxruntime", threads=1), 1, 32, runs=1)
    assert found.middle < 2e8


@pytest.mark.usefixtures("checkpoint")
def test_the_memory_of_a_file_on_a_gpu_is_unknown_and_does_not_limit_the_batch(
    folder: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    asked, _ = exported(folder, "onnxruntime")
    monkeypatch.setattr(file_workload, "growth", lambda *arguments: pytest.fail("memory of a process on the CPU"))
    job = MeasureJob("tiny_vit", "inference", 32, "fp32", "cpu", "cpu", 1, runtime="onnxruntime", budget=0.3)
    findings, device = Findings(), Cpu()
    device.kind = "cuda"  # the session stays on the CPU
    bench = Bench(device, WallClock(), Channel(findings.take), job.budget)
    worker.measure_phase(bench, replace(job, num_classes=10, exported=str(asked.manifest), fit_memory=10**9))
    assert {"latency_p50", "throughput", "best_batch_size", "memory_process"} <= findings.metrics.keys()
    unknown = {"inference_memory", "inference_memory_best_batch", "max_batch_size"}
    assert not unknown & findings.metrics.keys()
    assert findings.environment["inference_memory_missing"] == "onnxruntime does not report its memory on cpu"


def test_the_growth_of_a_process_is_no_measure_of_the_memory_of_a_gpu(tmp_path: Path) -> None:
    with pytest.raises(WorkError, match="the memory of a.onnx on cuda:1 cannot be measured"):
        growth(tmp_path / "a.onnx", Choice("onnxruntime", device="cuda:1", threads=1), 1, 32)


def test_the_change_of_top1_is_known_for_trained_weights_and_labels(folder: Path, checkpoint: Path) -> None:
    _, findings = exported(folder / "..", "onnxruntime", "int8", checkpoint=str(checkpoint))
    change = findings.metrics["top1_change"]
    assert change.unit == "pp"
    assert change.low <= change.value <= change.high  # type: ignore[operator]
    assert abs(change.value) < 10
    assert 50 < findings.metrics["top1_agreement"].value <= 100
    assert (findings.conditions["dataset"], findings.conditions["pipeline"]) == ("digits", "laptop-digits@1")
    epochs = load_model_file(checkpoint)[0].recipe.epochs
    assert (findings.conditions["pretraining"], findings.conditions["recipe.epochs"]) == ("none", epochs)
    assert findings.environment["calibration_images"] == 128


def test_the_change_of_top1_belongs_to_the_pipeline_of_the_training_its_minutes_included(
    tmp_path: Path, checkpoint: Path
) -> None:
    known, weights = load_model_file(checkpoint)
    in_minutes = known.model_copy(update={"minutes": 5.0}).model_dump_json()
    save_file(weights, tmp_path / "best.safetensors", {"favor.trained": in_minutes})
    job = ExportJob("tiny_vit", 32, 10, "onnxruntime", "int8", "cpu", 1, "fused", "", checkpoint=str(tmp_path))
    training = export_worker.ComparisonImages.of(job, subject_of(tmp_path)).training
    named = {"dataset": "digits", "pipeline": "laptop-digits@1 minutes=5.0", "pretraining": "none"}
    assert training == named | {"minutes": 5.0}


def test_int8_of_a_checkpoint_whose_images_are_not_here_is_compared_on_the_calibration_images_without_labels(
    tmp_path: Path, checkpoint: Path
) -> None:
    known, weights = load_model_file(checkpoint)
    elsewhere = known.model_copy(update={"dataset": "folder:photos"}).model_dump_json()
    copied = tmp_path / "copied.safetensors"
    save_file(weights, copied, {"favor.trained": elsewhere})
    job = ExportJob("tiny_vit", 32, 10, "onnxruntime", "int8", "cpu", 1, "fused", "", checkpoint=str(copied))
    found = export_worker.ComparisonImages.of(replace(job, calibration="digits"), subject_of(copied))
    assert (found.name, found.labels, len(found.calibration), len(found.test)) == ("digits", None, 128, 360)
    with pytest.raises(RequestError, match=r"--calibration NAME\[:PATH\]\Z") as refused:
        export_worker.ComparisonImages.of(job, subject_of(copied))
    assert "--data" not in str(refused.value)


def test_a_checkpoint_of_another_model_size_or_number_of_classes_is_refused_before_anything_runs(
    checkpoint: Path,
) -> None:
    def ask(name: str, **more: object) -> ResolvedStudy:
        int8 = {"precisions": ["int8"], "runtimes": ["onnxruntime"], "checkpoint": str(checkpoint), "device": "cpu"}
        return study_from_options("measure", [name], ("inference",), int8 | more)

    (job,) = jobs_of(ask("tiny_vit", num_classes=10))
    assert (job.checkpoint, job.calibration) == (str(checkpoint.resolve()), None)
    with pytest.raises(RequestError, match="holds tiny_vit; measure that model alone"):
        ask("vit_xs4")
    with pytest.raises(RequestError, match="32 px and 10 classes; add --img-size 32 --num-classes 10"):
        ask("tiny_vit")
    with pytest.raises(RequestError, match="only int8 depends on weights"):
        ask("tiny_vit", precisions=["fp32"])


def test_two_checkpoints_of_one_name_are_two_requests_and_a_copy_is_the_same(checkpoint: Path, tmp_path: Path) -> None:
    known, weights = load_model_file(checkpoint)
    for folder, step in (("first", 60), ("second", 61), ("copy", 60)):
        (tmp_path / folder / "run").mkdir(parents=True)
        header = {"favor.trained": known.model_copy(update={"step": step}).model_dump_json()}
        save_file(weights, tmp_path / folder / "run" / "best.safetensors", header)

    def requested(folder: str) -> object:
        int8 = {"precisions": ["int8"], "runtimes": ["onnxruntime"], "num_classes": 10, "device": "cpu"}
        options = int8 | {"checkpoint": str(tmp_path / folder / "run")}
        (job,) = jobs_of(study_from_options("measure", ["tiny_vit"], ("inference",), options))
        return job.conditions["checkpoint"]

    assert requested("first") == requested("copy") != requested("second")


def test_a_checkpoint_that_has_changed_since_the_request_is_refused(checkpoint: Path, tmp_path: Path) -> None:
    with pytest.raises(RequestError, match="has changed since the measurement was requested; request it again"):
        exported(tmp_path, "onnxruntime", "int8", checkpoint=str(checkpoint), checkpoint_hash="0" * 16)


@pytest.mark.usefixtures("checkpoint")
def test_fresh_weights_have_an_agreement_and_no_change_of_top1(folder: Path) -> None:
    _, findings = exported(folder, "openvino", "int8", calibration="digits")
    assert "top1_change" not in findings.metrics
    assert "fresh weights" in findings.metrics["top1_agreement"].method
    assert findings.environment["calibration_images"] == export_worker.QUICK_CALIBRATION_IMAGES


@pytest.mark.usefixtures("checkpoint")
def test_int8_is_calibrated_for_a_fixed_batch_of_more_images_than_there_are(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    def fixes_the_batch_size(model: nn.Module, example: Tensor, dynamic_batch: bool) -> torch.export.ExportedProgram:
        if dynamic_batch:
            raise WorkError("not for any batch size")
        return traced(model, example, dynamic_batch)

    monkeypatch.setattr("favor.runtime.export.traced", fixes_the_batch_size)
    size = 2 * export_worker.QUICK_CALIBRATION_IMAGES
    asked, findings = exported(tmp_path, "onnxruntime", "int8", calibration="digits", batch_size=size)
    assert findings.environment["calibration_images"] == size // 2
    file = ExportedModel.load(asked.manifest)
    assert file.batch_sizes == (1, size)
    outputs = open_file(file.file(size), Choice("onnxruntime", "int8", threads=1)).run(images(size, 3, 32, 32))
    assert outputs.shape == (size, 10)


def test_a_graph_that_fixes_the_batch_size_has_a_file_for_each(tmp_path: Path) -> None:
    fixed = ExportedModel({size: tmp_path / f"{size}.onnx" for size in (1, 2, 4)})
    fixed.save(tmp_path / "files.json")
    assert json.loads((tmp_path / "files.json").read_text())["2"] == "2.onnx"
    again = ExportedModel.load(tmp_path / "files.json")
    assert again.batch_sizes == (1, 2, 4)
    assert again.file(4).name == "4.onnx"


def test_compiling_is_timed_before_anything_else(monkeypatch: pytest.MonkeyPatch) -> None:
    calls = []
    monkeypatch.setattr("favor.trace.workload.compile_model", lambda model: lambda images: calls.append(len(images)))
    monkeypatch.setattr("favor.measurement.inference.measure_inference", lambda *arguments: None)
    findings = Findings()
    bench = Bench(Cpu(), WallClock(), Channel(findings.take), 1.0)
    job = MeasureJob("vit_xs4", "inference", 32, "fp32", "cpu", "cpu", 1, runtime="compile", num_classes=10)
    worker.measure_phase(bench, job)
    assert calls == [1]
    assert findings.metrics["preparation_time"].method.startswith("first call at batch size 1, which compiles")
    assert torch.is_inference_mode_enabled() is False
