"""ONNX Runtime."""

import time
from collections.abc import Sequence
from pathlib import Path
from typing import TYPE_CHECKING, Any

import numpy as np
from numpy.typing import NDArray

from favor.errors import WorkError
from favor.runtime.names import versions
from favor.runtime.session import Choice, Facts, Images, Shapes, as_array, as_logits, first_line

if TYPE_CHECKING:
    from torch import Tensor

_FATAL_ONLY = 4  # errors are raised too, and their log repeats names of the file as they are
_OUT_OF_MEMORY = ("Failed to allocate memory", "is smaller than requested bytes", "out of memory")


class OnnxRuntimeSession:
    """An ONNX file in ONNX Runtime."""

    def __init__(self, file: Path, choice: Choice) -> None:
        runtime = choice.check()
        import onnxruntime

        onnxruntime.set_default_logger_severity(_FATAL_ONLY)
        options = onnxruntime.SessionOptions()
        options.log_severity_level = _FATAL_ONLY
        options.inter_op_num_threads = 1
        options.intra_op_num_threads = choice.cpu_threads
        kind, _, index = choice.device.partition(":")
        provider = ("CUDAExecutionProvider", {"device_id": index or "0"}) if kind == "cuda" else "CPUExecutionProvider"
        started = time.perf_counter()
        try:
            self._session = onnxruntime.InferenceSession(str(file), options, providers=[provider])
            self._input = self._session.get_inputs()[0].name
        except Exception as error:
            raise WorkError(f"{file}: ONNX Runtime cannot open it: {first_line(error)}") from error
        used = self._session.get_providers()[0]
        if kind == "cuda" and used != "CUDAExecutionProvider":
            raise WorkError(
                f"{file}: ONNX Runtime cannot start its CUDA provider and would use {used}; install the CUDA libraries "
                "that it needs, or use --device cpu"
            )
        self.facts = Facts(used, versions(runtime), time.perf_counter() - started)

    @property
    def shapes(self) -> Shapes:
        """The shapes that the file says."""
        try:
            return Shapes(_sizes(self._session.get_inputs()), _sizes(self._session.get_outputs()))
        except UnicodeDecodeError as error:
            raise WorkError("ONNX Runtime: the file names a dimension in bytes that are not text") from error

    def run(self, images: Images) -> "Tensor":
        import torch

        return torch.from_numpy(as_logits(self.outputs(as_array(images)), len(images))).float()

    def outputs(self, images: NDArray[np.float32]) -> NDArray[np.float32]:
        """The outputs as an array."""
        try:
            logits: NDArray[np.float32] = self._session.run(None, {self._input: images})[0]
        except Exception as error:
            if any(words in str(error) for words in _OUT_OF_MEMORY):
                # `is_out_of_memory` knows it by the words "not enough memory".
                raise WorkError(f"ONNX Runtime: not enough memory: {first_line(error)}") from error
            raise WorkError(f"ONNX Runtime: {first_line(error)}") from error
        return logits


def _sizes(ends: Sequence[Any]) -> tuple[int | None, ...]:
    """The shape of the first input or output; a name instead of a number stands for any size."""
    return tuple(size if isinstance(size, int) else None for end in ends[:1] for size in end.shape)
