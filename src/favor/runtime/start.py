"""From a model to a session in any runtime, by way of a file where the runtime wants one."""

import tempfile
from collections.abc import Sequence
from pathlib import Path

from torch import Tensor, nn

from favor.errors import RequestError, WorkError
from favor.runtime.export import (
    ENDINGS,
    OPENERS,
    HalfPrecision,
    check_export,
    files_of,
    traced,
    write_onnx,
    write_openvino,
    write_torch,
)
from favor.runtime.names import find_runtime
from favor.runtime.onnx_session import OnnxRuntimeSession
from favor.runtime.openvino_session import OpenVinoSession
from favor.runtime.quantize import quantize_onnx, quantize_openvino
from favor.runtime.session import Choice, Session
from favor.runtime.torch_session import TorchSession
from favor.zoo.fuse import fuse


def start(
    model: nn.Module,
    images: Tensor,
    choice: Choice,
    folder: Path,
    *,
    dynamic_batch: bool = True,
    calibration: Sequence[Tensor] = (),
) -> Session:
    """A session of a model for images like these; a runtime that wants a file gets it in the folder.

    With `dynamic_batch` one file serves all batch sizes. `calibration` are batches that int8 finds ranges with.
    """
    runtime = choice.check()
    form = next((form for form, opener in OPENERS.items() if opener == runtime.name), None)
    if form is None:
        return TorchSession(model, images, choice)
    file = folder / f"model{ENDINGS[form]}"
    export_file(model, images, file, form, choice.precision, dynamic_batch=dynamic_batch, calibration=calibration)
    return open_file(file, choice)


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
        raise RequestError("int8 needs images to calibrate with; name a data set with --calibration NAME[:PATH]")
    fused = fuse(model).cpu()
    program = traced(HalfPrecision(fused) if precision == "fp16" else fused, images.cpu(), dynamic_batch)
    # Written beside and renamed, so that half a file is never taken for a model.
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


def open_file(file: Path, choice: Choice) -> Session:
    """A session of an exported file."""
    runtime = find_runtime(choice.runtime)
    if runtime.name == "openvino" and file.suffix in (ENDINGS["openvino"], ENDINGS["onnx"]):
        return OpenVinoSession(file, choice)
    if runtime.name == "onnxruntime" and file.suffix == ENDINGS["onnx"]:
        return OnnxRuntimeSession(file, choice)
    raise RequestError(
        f"{file}: {runtime.name} does not open such a file; onnxruntime opens .onnx, openvino .onnx and .xml"
    )
