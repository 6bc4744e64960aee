"""From a model to a file that runs without favor: ONNX, OpenVINO's own format, or PyTorch's."""

import logging
import warnings
from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from pathlib import Path
from types import MappingProxyType

import torch
from torch import Tensor, nn

from favor.errors import RequestError, WorkError, unknown_name
from favor.runtime.names import RUNTIMES, require_packages
from favor.runtime.offline import without_telemetry
from favor.runtime.openvino_session import reason
from favor.runtime.quantize import INPUT
from favor.runtime.session import first_line

ENDINGS: Mapping[str, str] = MappingProxyType({"onnx": ".onnx", "openvino": ".xml", "torch-export": ".pt2"})
"""The formats that models are exported to -> how their files' names end."""
PRECISIONS: Mapping[str, tuple[str, ...]] = MappingProxyType(
    {"onnx": ("fp32", "fp16", "int8"), "openvino": ("fp32", "fp16", "int8"), "torch-export": ("fp32", "fp16")}
)
OPENERS: Mapping[str, str] = MappingProxyType({"onnx": "onnxruntime", "openvino": "openvino"})
"""The runtime that opens a format. PyTorch's own format may hold pickles, so favor writes it and never reads it."""
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


def files_of(file: Path) -> tuple[Path, ...]:
    """All files of an exported model, the weights first: OpenVINO keeps them beside the graph."""
    return (file.with_suffix(".bin"), file) if file.suffix == ENDINGS["openvino"] else (file,)


class HalfPrecision(nn.Module):
    """A model with weights and activations in float16 that takes and gives float32."""

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
        model = openvino.Core().read_model(onnx_file)
        openvino.save_model(model, file, compress_to_fp16=False)
    except RuntimeError as error:
        raise WorkError(f"OpenVINO cannot convert the model: {reason(error)}") from error


def write_torch(program: torch.export.ExportedProgram, file: Path) -> None:
    """Write the graph as `torch.export.load` reads it."""
    with _quiet():
        torch.export.save(program, file)


def _operator(error: BaseException) -> str:
    """The innermost error of the exporter: it names the operator, the outer ones say that something failed."""
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
