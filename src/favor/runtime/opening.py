"""A session of an exported file. Imports no torch."""

from dataclasses import dataclass
from pathlib import Path

from favor.errors import RequestError, one_line
from favor.runtime.names import find_runtime
from favor.runtime.onnx_session import OnnxRuntimeSession
from favor.runtime.openvino_core import openvino_core
from favor.runtime.openvino_session import OpenVinoSession, reason
from favor.runtime.session import Choice

FileSession = OnnxRuntimeSession | OpenVinoSession
_CONTROL_FLOW = frozenset(("Loop", "Scan", "TensorIterator", "If"))
"""Loops may never end, and OpenVINO does not list the operators inside of an If."""
_QUANTIZED = frozenset(("QuantizeLinear", "DequantizeLinear", "FakeQuantize"))


@dataclass(frozen=True)
class _Graph:
    """The operators of a graph, also those of its functions and of graphs inside of operators, and its weights."""

    operators: frozenset[str]
    has_float16: bool

    @property
    def precision(self) -> str:
        """The precision that `favor export` calls it by."""
        if self.operators & _QUANTIZED:
            return "int8"
        return "fp16" if self.has_float16 else "fp32"


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
    """A session of a file that anyone may have made; loops, branches and a wrong precision are refused."""
    graph = _read_graph(file)
    found = max(graph.operators & _CONTROL_FLOW, default=None)
    if found is not None:
        raise RequestError(f"{file}: has the operator {found}, which may never end; `favor export` writes none")
    if graph.precision != choice.precision:
        raise RequestError(
            f"{file}: a graph in {graph.precision}, but its card says {choice.precision}; export the model again"
        )
    return open_file(file, choice)


def _read_graph(file: Path) -> _Graph:
    if file.suffix == ".xml":
        try:
            nodes = openvino_core().read_model(file).get_ops()
            constants = (node for node in nodes if node.get_type_name() == "Constant")
            has_float16 = any(constant.get_element_type().get_type_name() == "f16" for constant in constants)
            return _Graph(frozenset(node.get_type_name() for node in nodes), has_float16)
        except (RuntimeError, UnicodeDecodeError) as error:
            raise RequestError(f"{file}: OpenVINO cannot read it: {reason(error)}") from error
    import onnx
    from google.protobuf.message import DecodeError  # type: ignore[import-untyped]

    try:
        model = onnx.load(file, load_external_data=False)
    except DecodeError as error:
        raise RequestError(f"{file}: truncated, or not an ONNX file ({one_line(error)})") from error
    has_float16 = any(weight.data_type == onnx.TensorProto.FLOAT16 for weight in model.graph.initializer)
    operators: set[str] = set()
    graphs = [model.graph, *model.functions]
    while graphs:
        for node in graphs.pop().node:
            operators.add(node.op_type)
            for attribute in node.attribute:
                graphs += [attribute.g, *attribute.graphs]
    return _Graph(frozenset(operators), has_float16)
