"""A session of an exported file. Imports no torch."""

from collections.abc import Iterator
from pathlib import Path

from favor.errors import RequestError, one_line
from favor.runtime.names import find_runtime
from favor.runtime.onnx_session import OnnxRuntimeSession
from favor.runtime.openvino_core import openvino_core
from favor.runtime.openvino_session import OpenVinoSession, reason
from favor.runtime.session import Choice

FileSession = OnnxRuntimeSession | OpenVinoSession
_LOOPS = ("Loop", "Scan", "TensorIterator")


def open_file(file: Path, choice: Choice) -> FileSession:
    """A session of an exported file."""
    runtime = find_runtime(choice.runtime)
    if runtime.name == "openvino" and file.suffix in (".xml", ".onnx"):
        return OpenVinoSession(file, choice)
    if runtime.name == "onnxruntime" and file.suffix == ".onnx":
        return OnnxRuntimeSession(file, choice)
    raise RequestError(
        f"{file}: {runtime.name} does not open such a file; onnxruntime opens .onnx, openvino .onnx and .xml"
    )


def open_foreign(file: Path, choice: Choice) -> FileSession:
    """A session of a file that anyone may have made: a loop, which may never end, is refused."""
    loop = next((operator for operator in _operators(file) if operator in _LOOPS), None)
    if loop is not None:
        raise RequestError(f"{file}: has the operator {loop}, which may never end; `favor export` writes none")
    return open_file(file, choice)


def _operators(file: Path) -> Iterator[str]:
    """The operators of a graph, of its functions and of the graphs inside of operators."""
    if file.suffix == ".xml":
        try:
            yield from (operator.get_type_name() for operator in openvino_core().read_model(file).get_ops())
        except (RuntimeError, UnicodeDecodeError) as error:
            raise RequestError(f"{file}: OpenVINO cannot read it: {reason(error)}") from error
        return
    import onnx
    from google.protobuf.message import DecodeError  # type: ignore[import-untyped]

    try:
        model = onnx.load(file, load_external_data=False)
    except DecodeError as error:
        raise RequestError(f"{file}: truncated, or not an ONNX file ({one_line(error)})") from error
    graphs = [model.graph, *model.functions]
    while graphs:
        for node in graphs.pop().node:
            yield node.op_type
            for attribute in node.attribute:
                graphs += [attribute.g, *attribute.graphs]
