"""OpenVINO."""

import time
from collections.abc import Sequence
from pathlib import Path
from typing import TYPE_CHECKING, Any

import numpy as np
from numpy.typing import NDArray

from favor.errors import WorkError, one_line
from favor.runtime.names import versions
from favor.runtime.openvino_core import openvino_core
from favor.runtime.session import Choice, Facts, Images, Shapes, as_array, as_logits

if TYPE_CHECKING:
    from torch import Tensor

_NOISE = ("Exception from ", "Check 'false' failed", "FrontEnd API failed", "Model wasn't fully converted")


class OpenVinoSession:
    """An ONNX file, or one of OpenVINO's own, in OpenVINO on the CPU.

    Operators that are not quantized compute in float32; OpenVINO's default is bfloat16 on processors that support it.
    """

    def __init__(self, file: Path, choice: Choice) -> None:
        runtime = choice.check()
        settings = {
            "INFERENCE_PRECISION_HINT": "f32",
            "INFERENCE_NUM_THREADS": choice.cpu_threads,
            "NUM_STREAMS": 1,
        }
        core = openvino_core()
        started = time.perf_counter()
        try:
            self._model = core.compile_model(core.read_model(file), "CPU", settings)
        except (RuntimeError, UnicodeDecodeError) as error:  # its messages repeat names of the file, of any bytes
            raise WorkError(f"{file}: OpenVINO cannot open it: {reason(error)}") from error
        self.facts = Facts("CPU", versions(runtime), time.perf_counter() - started)

    @property
    def shapes(self) -> Shapes:
        """The shapes that the file says."""
        return Shapes(_sizes(self._model.inputs), _sizes(self._model.outputs))

    def run(self, images: Images) -> "Tensor":
        import torch

        # OpenVINO writes its next result to the same memory
        return torch.from_numpy(as_logits(self.outputs(as_array(images)), len(images)).copy()).float()

    def outputs(self, images: NDArray[np.float32]) -> NDArray[np.float32]:
        """The outputs as an array, until the next call."""
        try:
            logits: NDArray[np.float32] = self._model(images)[0]
        except RuntimeError as error:
            raise WorkError(f"OpenVINO: {reason(error)}") from error
        return logits


def _sizes(ends: Sequence[Any]) -> tuple[int | None, ...]:
    """The shape of the first input or output, if its number of dimensions is known."""
    shapes = [end.partial_shape for end in ends[:1]]
    return tuple(
        size.get_length() if size.is_static else None for shape in shapes if shape.rank.is_static for size in shape
    )


def reason(error: RuntimeError | UnicodeDecodeError) -> str:
    """The operator and what is wrong with it: OpenVINO's errors begin with locations in its own code."""
    if isinstance(error, UnicodeDecodeError):
        return "it has names that are not text"
    lines = [line.strip() for line in str(error).splitlines()]
    return one_line(RuntimeError(" ".join(line for line in lines if not line.startswith(_NOISE))))
