"""ONNX Runtime."""

import time
from pathlib import Path

import torch
from torch import Tensor

from favor.errors import WorkError
from favor.runtime.names import versions
from favor.runtime.session import Choice, Facts, Images, as_array, first_line

_ERRORS_ONLY = 3


class OnnxRuntimeSession:
    """An ONNX file in ONNX Runtime."""

    def __init__(self, file: Path, choice: Choice) -> None:
        runtime = choice.check()
        import onnxruntime

        options = onnxruntime.SessionOptions()
        options.log_severity_level = _ERRORS_ONLY
        options.inter_op_num_threads = 1
        options.intra_op_num_threads = choice.threads or torch.get_num_threads()
        kind, _, index = choice.device.partition(":")
        provider = ("CUDAExecutionProvider", {"device_id": index or "0"}) if kind == "cuda" else "CPUExecutionProvider"
        started = time.perf_counter()
        try:
            self._session = onnxruntime.InferenceSession(str(file), options, providers=[provider])
        except Exception as error:
            raise WorkError(f"{file}: ONNX Runtime cannot open it: {first_line(error)}") from error
        self._input = self._session.get_inputs()[0].name
        self.facts = Facts(
            runtime=runtime.name,
            provider=self._session.get_providers()[0],
            precision=choice.precision,
            threads=options.intra_op_num_threads,
            memory=runtime.memory,
            versions=versions(runtime),
            preparation=time.perf_counter() - started,
        )

    def run(self, images: Images) -> Tensor:
        try:
            outputs = self._session.run(None, {self._input: as_array(images)})
        except Exception as error:
            raise WorkError(f"ONNX Runtime: {first_line(error)}") from error
        return torch.from_numpy(outputs[0]).float()
