"""From a model to a file that runs without favor: ONNX, OpenVINO's own format, or PyTorch's."""

import logging
import tempfile
import warnings
from collections.abc import Iterator, Mapping, Sequence
from contextlib import contextmanager
from pathlib import Path
from types import MappingProxyType

import torch
from torch import Tensor, nn

from favor.errors import RequestError, WorkError, unknown_name
from favor.runtime.exported import files_of
from favor.runtime.names import ENDINGS, OPENERS, RUNTIMES, require_packages
from favor.runtime.openvino_core import openvino_core
from favor.runtime.openvino_session import reason
from favor.runtime.quantize import INPUT, quantize_onnx, quantize_openvino
from favor.runtime.session import first_line
from favor.runtime.telemetry import without_telemetry
from favor.zoo.fuse import fuse

PRECISIONS: Mapping[str, tuple[str, ...]] = MappingProxyType(
    {"onnx": ("fp32", "fp16", "int8"), "openvino": ("fp32", "fp16", "int8"), "torch-export": ("fp32", "fp16")}
)
OPSET = 20


def check_export(form: str, precision: str, file: Path) -> None:
    """Refuse what cannot be exported, before anything runs."""
    if form not in ENDINGS:
        raise unknown_name("format", form, ENDINGS, "choose from " + ", ".join(ENDINGS))
    if precision not in PRECISIONS["onnx"]:
        raise unknown_name("precision", precision, PRECISIONS["onnx"], "choose from " + ", ".join(PRECISIONS["onnx"]))
    if precision not in PRECISIONS[form]:
        fitting = " or ".join(other for other in PRECISIONS if precision in PRECISIONS[other])
        raise RequestError(f"{form} does not store {precision}; use --runtime {fitting}")
    if file.suffix != ENDINGS[form]:
        renamed = file.with_suffix(ENDINGS[form])
        raise RequestError(f"{file}: a file for {form} ends in {ENDINGS[form]}; use -o {renamed}")
    if not file.parent.is_dir():
        raise RequestError(f"{file.parent}: there is no such folder; create it first")
    if form in OPENERS:
        require_packages(RUNTIMES[OPENERS[form]])


def export_file(
    model: nn.Module,
    images: Tensor,
    file: Path,
    form: str,
    precision: str,
    *,
    dynamic_batch: bool,
    calibration: Sequence[Tensor] = (),
) -> None:
    """Write a model in its inference form, for batches like `images` or, with `dynamic_batch`, of any size."""
    check_export(form, precision, file)
    if precision == "int8" and not calibration:
        raise RequestError("int8 needs images to calibrate with; name a dataset with --calibration NAME[:PATH]")
    fused = fuse(model).cpu()
    program = traced(HalfPrecision(fused) if precision == "fp16" else fused, images.cpu(), dynamic_batch)
    # Written to a temporary file and renamed, so that an incomplete file is never taken for a model.
    with tempfile.TemporaryDirectory(dir=file.parent, prefix=f".{file.stem}-") as beside:
        finished = Path(beside) / file.name
        graph = Path(beside) / "float.onnx"
        if form == "torch-export":
            write_torch(program, finished)
        elif precision == "int8":
            write_onnx(program, graph)
            (quantize_onnx if form == "onnx" else quantize_openvino)(graph, finished, calibration)
        elif form == "openvino":
            write_onnx(program, graph)
            write_openvino(graph, finished)
        else:
            write_onnx(program, finished)
        try:
            for part in files_of(finished):
                part.replace(file.with_suffix(part.suffix))
        except OSError as error:
            raise WorkError(f"cannot write {file}: {error.strerror}") from error


class HalfPrecision(nn.Module):
    """A model with weights and activations in float16, and inputs and outputs in float32."""

    def __init__(self, model: nn.Module) -> None:
        super().__init__()
        self.model = model.half()

    def forward(self, images: Tensor) -> Tensor:
        return self.model(images.half()).float()


def traced(model: nn.Module, images: Tensor, dynamic_batch: bool) -> torch.export.ExportedProgram:
    """The graph of a model in eval mode, for the shape of `images` or for any batch size."""
    shapes = ({0: torch.export.Dim.DYNAMIC},) if dynamic_batch else None
    if dynamic_batch and len(images) < 2:
        raise RequestError("a graph for any batch size is traced with two images or more; PyTorch specializes to one")
    try:
        # With gradients, HiViT's attention is traced with other strides than it is decomposed with.
        with _quiet(), torch.no_grad():
            return torch.export.export(model, (images,), dynamic_shapes=shapes)
    except Exception as error:
        raise WorkError(f"torch.export: {first_line(error)}") from error


def write_onnx(program: torch.export.ExportedProgram, file: Path) -> None:
    """Write the graph as ONNX, weights included."""
    try:
        with _quiet(), torch.no_grad():
            exported = torch.onnx.export(
                program, (), input_names=[INPUT], output_names=["outputs"], opset_version=OPSET, verbose=False
            )
            if exported is None:
                raise WorkError("torch.onnx.export returned nothing")
            exported.save(file, external_data=False)
    except torch.onnx.errors.OnnxExporterError as error:
        raise WorkError(f"torch.onnx.export: {_operator(error)}") from error


def write_openvino(onnx_file: Path, file: Path) -> None:
    """Write an ONNX file in OpenVINO's own format: an .xml file for the graph, a .bin file for the weights."""
    without_telemetry()
    import openvino

    try:
        model = openvino_core().read_model(onnx_file)
        openvino.save_model(model, file, compress_to_fp16=False)
    except RuntimeError as error:
        raise WorkError(f"OpenVINO cannot convert the model: {reason(error)}") from error


def write_torch(program: torch.export.ExportedProgram, file: Path) -> None:
    """Write the graph as `torch.export.load` reads it."""
    with _quiet():
        torch.export.save(program, file)


def _operator(error: BaseException) -> str:
    """The innermost error of the exporter: it names the operator; the outer ones only say that something failed."""
    while error.__cause__ is not None:
        error = error.__cause__
    return first_line(error)


@contextmanager
def _quiet() -> Iterator[None]:
    """Without the warnings of PyTorch's exporter about its own code."""
    loggers = [logging.getLogger(name) for name in ("torch.onnx", "onnxscript", "onnx_ir")]
    levels = [logger.level for logger in loggers]
    for logger in loggers:
        logger.setLevel(logging.ERROR)
    try:
        with warnings.catch_warnings():
            warnings.simplefilter("ignore")
            yield
    finally:
        for logger, level in zip(loggers, levels, strict=True):
            logger.setLevel(level)
