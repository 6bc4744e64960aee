"""The exporting worker: from a model or a checkpoint to the files that a runtime opens, compared with the float model.

The float graph is written once for all runtimes and precisions that share a folder.
"""

import json
import os
import time
from collections.abc import Mapping
from dataclasses import asdict, dataclass
from pathlib import Path
from typing import TYPE_CHECKING

from favor.machine.messages import Channel
from favor.machine.worker import serve
from favor.records.schema import Scalar

if TYPE_CHECKING:
    from torch import Tensor

    from favor.runtime.exported import ExportedModel
    from favor.runtime.session import Choice
    from favor.training.export import Subject
    from favor.training.state import Trained

FIXED_BATCH_SIZES = (1, 2, 4, 8, 16, 32)
"""The batch sizes that get a file of their own where the graph fixes it."""

QUICK_CALIBRATION_IMAGES, QUICK_TEST_IMAGES = 16, 64
"""Images for fresh weights: their speed and size do not depend on the calibration, and their outputs mean nothing."""

_CHECKED = 2
"""Images on which the outputs of a float file are compared with eager mode."""


@dataclass(frozen=True)
class ExportJob:
    """What to export for a measurement, and the folder for its graph; checkpoint and calibration are for int8."""

    name: str
    img_size: int
    num_classes: int
    runtime: str
    precision: str
    device: str
    threads: int
    attention: str
    folder: str
    batch_size: int | None = None
    calibration: str | None = None
    checkpoint: str | None = None
    checkpoint_hash: str | None = None
    plugins: tuple[str, ...] = ()

    @property
    def manifest(self) -> Path:
        """The list of the files."""
        return Path(self.folder) / f"{self.runtime}-{self.precision}.json"

    def to_json(self) -> str:
        """The job as one line of JSON."""
        return json.dumps(asdict(self))

    @classmethod
    def from_json(cls, line: str) -> "ExportJob":
        """The job from a line that `to_json` made."""
        data = json.loads(line)
        return cls(**data | {"plugins": tuple(data["plugins"])})


@dataclass(frozen=True)
class FloatFiles:
    """The float graph: its files, how long it took, and what the record says of the model."""

    exported: "ExportedModel"
    seconds: float
    conditions: Mapping[str, Scalar]


def run(request: str, channel: Channel) -> None:
    """Export what is requested."""
    import torch

    from favor.runtime.session import Choice
    from favor.trace.attention import attention_implementation
    from favor.zoo.registry import load_plugin

    job = ExportJob.from_json(request)
    torch.set_num_threads(job.threads)
    for plugin in job.plugins:
        load_plugin(plugin)
    choice = Choice(job.runtime, job.precision, job.device, job.threads)
    choice.check()
    with attention_implementation(job.attention):
        subject = _trained(job) if job.checkpoint else None
        floats = _float_files(job, subject, channel)
        channel.conditions(floats.conditions)
        if job.precision == "int8":
            _quantize(job, subject, floats, choice, channel)
        else:
            _check(job, floats, choice, channel)
    channel.done()


def _trained(job: ExportJob) -> "Subject":
    """The model of the checkpoint, which must be the one that is measured."""
    from favor.errors import RequestError
    from favor.training.export import subject_of
    from favor.training.initial_weights import checkpoint_hash

    path = Path(str(job.checkpoint))
    if job.checkpoint_hash not in (None, checkpoint_hash(path)):
        raise RequestError(f"{path} has changed since the measurement was requested; request it again")
    subject = subject_of(path)
    trained = subject.trained
    assert trained is not None  # noqa: S101 - a checkpoint is
    held = (trained.model, trained.img_size, len(trained.classes), trained.in_chans)
    if held != (job.name, job.img_size, job.num_classes, 3):
        raise RequestError(
            f"{job.checkpoint} holds {held[0]} at {held[1]} px for {held[2]} classes, not {job.name} at "
            f"{job.img_size} px for {job.num_classes}; add --img-size {held[1]} --num-classes {held[2]}"
        )
    return subject


def _float_files(job: ExportJob, subject: "Subject | None", channel: Channel) -> FloatFiles:
    """The float graph of the folder, written if it is not there; int8 starts from float32."""
    from favor.runtime.exported import ExportedModel

    precision = "fp16" if job.precision == "fp16" else "fp32"
    folder = Path(job.folder)
    manifest, about = folder / f"{precision}.json", folder / f"{precision}.about.json"
    if not about.is_file():
        _write_float(job, subject, precision, manifest, about, channel)
    known = json.loads(about.read_text())
    return FloatFiles(ExportedModel.load(manifest), known["seconds"], known["conditions"])


def _write_float(
    job: ExportJob, subject: "Subject | None", precision: str, manifest: Path, about: Path, channel: Channel
) -> None:
    import torch

    from favor.errors import WorkError
    from favor.runtime.export import HalfPrecision, traced, write_onnx
    from favor.runtime.exported import ANY_BATCH, ExportedModel
    from favor.trace.workload import build, random_images
    from favor.zoo.fuse import inference_form
    from favor.zoo.operating_point import operating_point

    channel.begin("building")
    model = subject.model if subject else build(job.name, "inference", job.img_size, job.num_classes)
    model, fused = inference_form(model)
    conditions = {**({} if subject else operating_point(model)), "fused": fused}
    images = random_images(_CHECKED, job.img_size)
    with torch.inference_mode():
        torch.save({"images": images, "outputs": model(images)}, about.with_suffix(".pt"))
    channel.begin("exporting")
    began = time.perf_counter()
    form = HalfPrecision(model) if precision == "fp16" else model
    files = {ANY_BATCH: manifest.with_suffix(".onnx")}
    try:
        write_onnx(traced(form, images, dynamic_batch=True), files[ANY_BATCH])
    except WorkError as error:
        channel.environment({"fixed_batch": f"the graph fixes the batch size: {error}"})
        sizes = FIXED_BATCH_SIZES if job.batch_size is None else sorted({1, job.batch_size})
        files = {size: manifest.with_name(f"{precision}-{size}.onnx") for size in sizes}
        for size, file in files.items():
            channel.progress(f"for batches of {size}")
            write_onnx(traced(form, random_images(size, job.img_size), dynamic_batch=False), file)
    ExportedModel(files).save(manifest)
    about.write_text(json.dumps({"seconds": time.perf_counter() - began, "conditions": conditions}))


def _check(job: ExportJob, floats: FloatFiles, choice: "Choice", channel: Channel) -> None:
    """Open the float file, and refuse it if its outputs are not those of eager mode."""
    import torch

    from favor.errors import WorkError
    from favor.runtime.compare import compare
    from favor.runtime.opening import open_file
    from favor.training.export import TOLERANCES

    channel.begin("comparing with eager mode")
    session = open_file(floats.exported.file(1), choice)
    about = Path(job.folder) / f"{job.precision}.about.pt"
    known = torch.load(about, weights_only=True)  # written by this worker, or one before it
    outputs = torch.cat([session.run(image) for image in known["images"].split(1)])
    compared = compare(known["outputs"].float(), outputs)
    if compared.relative > TOLERANCES[job.precision]:
        raise WorkError(f"its outputs differ from eager mode by {compared.relative:.1e} of the largest one")
    channel.environment({"deviation_from_eager": compared.relative})
    _report(job, floats.exported, floats.seconds + session.facts.preparation, "exporting and opening", channel)


def _quantize(
    job: ExportJob, subject: "Subject | None", floats: FloatFiles, choice: "Choice", channel: Channel
) -> None:
    from favor.runtime.exported import ExportedModel
    from favor.runtime.quantize import quantize_onnx, quantize_openvino

    channel.begin("reading images")
    images = ComparisonImages.of(job, subject)
    channel.begin("quantizing")
    began = time.perf_counter()
    files = {}
    for size, file in floats.exported.files.items():
        ending = ".onnx" if job.runtime == "onnxruntime" else ".xml"
        files[size] = job.manifest.with_name(f"{job.manifest.stem}-{size}{ending}")
        batches = _full_batches(images.calibration, size or 1)
        (quantize_onnx if job.runtime == "onnxruntime" else quantize_openvino)(file, files[size], batches)
    seconds = time.perf_counter() - began
    exported = ExportedModel(files)
    opening = _compare(job, images, floats.exported, exported, choice, channel)
    channel.environment({"calibration_images": len(images.calibration)})
    _report(job, exported, floats.seconds + seconds + opening, "exporting, quantizing and opening", channel)


def _full_batches(images: "Tensor", size: int) -> list["Tensor"]:
    """Batches of exactly this size, which a graph may fix; too few images for one batch are repeated."""
    repeated = images.repeat(-(-size // len(images)), 1, 1, 1) if len(images) < size else images
    return [batch for batch in repeated.split(size) if len(batch) == size]


def _compare(
    job: ExportJob,
    images: "ComparisonImages",
    floats: "ExportedModel",
    quantized: "ExportedModel",
    choice: "Choice",
    channel: Channel,
) -> float:
    """Compare the quantized file with the float one in the same runtime; returns the seconds of opening it."""
    from dataclasses import replace

    import torch

    from favor.machine.stopping import Estimate
    from favor.runtime.compare import compare
    from favor.runtime.opening import open_file

    channel.begin("comparing with the float model")
    before = open_file(floats.file(1), replace(choice, precision="fp32"))
    after = open_file(quantized.file(1), choice)
    expected, outputs = (torch.cat([one.run(image) for image in images.test.split(1)]) for one in (before, after))
    compared = compare(expected, outputs, images.labels)
    where = f"{compared.images} images of {images.name}"
    weights = "" if job.checkpoint else "; fresh weights, so it says little about a trained model"
    channel.found("top1_agreement", compared.agreement, f"with the float file in {job.runtime}, {where}{weights}")
    if compared.change is not None:
        change = compared.change
        low, high = min(change.low, change.value), max(change.high, change.value)
        method = f"{where}, float file {compared.top1:.2f} %; 95 % interval for paired shares (Bonett and Price)"
        channel.found("top1_change", Estimate(change.value, low, high), method)
        channel.conditions(images.training)
    return after.facts.preparation


@dataclass(frozen=True)
class ComparisonImages:
    """Images to calibrate with, and to compare on; `labels` are None where the model does not know the classes."""

    calibration: "Tensor"
    test: "Tensor"
    labels: "Tensor | None"
    name: str
    training: Mapping[str, Scalar]

    @classmethod
    def of(cls, job: ExportJob, subject: "Subject | None") -> "ComparisonImages":
        from favor.data.augment import Normalization
        from favor.data.framing import Framing
        from favor.errors import RequestError
        from favor.training.export import CALIBRATION_IMAGES, TEST_IMAGES_INT8, images_of, named_images, own_images

        trained = subject.trained if subject else None
        if trained is None:
            assert job.calibration is not None  # noqa: S101 - refused before anything runs
            data, framing, normalization = named_images(job.calibration), Framing(job.img_size), Normalization()
            test, _ = images_of(data.evaluation, QUICK_TEST_IMAGES, framing, normalization)
            calibration, _ = images_of(data.train, QUICK_CALIBRATION_IMAGES, framing, normalization)
            return cls(calibration, test, None, data.name, {})
        assert subject is not None  # noqa: S101 - it is trained
        named = named_images(job.calibration) if job.calibration else None
        training = _training_of(trained)
        try:
            own = own_images(Path(str(job.checkpoint)), trained)
        except RequestError:
            if named is None:
                raise
            # A change of top-1 on other images than the checkpoint's would be taken for one on its dataset.
            test, _ = subject.images(named.evaluation, TEST_IMAGES_INT8)
            calibration, _ = subject.images(named.train, CALIBRATION_IMAGES)
            return cls(calibration, test, None, named.name, training)
        test, labels = subject.images(own.evaluation, TEST_IMAGES_INT8)
        calibration, _ = subject.images((named or own).train, CALIBRATION_IMAGES)
        return cls(calibration, test, labels if trained.classes == own.classes else None, own.name, training)


def _training_of(trained: "Trained") -> dict[str, Scalar]:
    """The training run behind the weights, described as in the records of its accuracies."""
    before = {"pretraining": trained.pretraining, "pretraining_pipeline": trained.pretraining_pipeline}
    length = {"recipe.epochs": trained.recipe.epochs} if trained.minutes is None else {"minutes": trained.minutes}
    told = {"dataset": trained.dataset, "pipeline": trained.pipeline_name, **before, **length}
    return {name: value for name, value in told.items() if value is not None}


def _report(job: ExportJob, exported: "ExportedModel", seconds: float, what: str, channel: Channel) -> None:
    exported.save(job.manifest)
    channel.found("preparation_time", seconds, f"{what}, once, in a separate process")
    channel.found("file_size", exported.size(), "the file for single images, weights included")


if __name__ == "__main__":
    serve(run, when_the_parent_ends=lambda: os._exit(1))
