"""OpenVINO."""

import time
from pathlib import Path

import torch
from torch import Tensor

from favor.errors import WorkError, one_line
from favor.runtime.names import versions
from favor.runtime.offline import without_telemetry
from favor.runtime.session import Choice, Facts, Images, as_array

_NOISE = ("Exception from ", "Check 'false' failed", "FrontEnd API failed", "Model wasn't fully converted")


class OpenVinoSession:
    """An ONNX file, or one of OpenVINO's own, in OpenVINO on the CPU.

    What is not quantized is calculated in float32; OpenVINO's own choice is bfloat16 on processors that have it.
    """

    def __init__(self, file: Path, choice: Choice) -> None:
        runtime = choice.check()
        without_telemetry()
        import openvino

        threads = choice.threads or torch.get_num_threads()
        settings = {
            "INFERENCE_PRECISION_HINT": "f32",
            "INFERENCE_NUM_THREADS": threads,
            "NUM_STREAMS": 1,
        }
        core = openvino.Core()
        started = time.perf_counter()
        try:
            self._model = core.compile_model(core.read_model(file), "CPU", settings)
        except RuntimeError as error:
            raise WorkError(f"{file}: OpenVINO cannot open it: {reason(error)}") from error
        self.facts = Facts(
            runtime=runtime.name,
            provider="CPU",
            precision=choice.precision,
            threads=threads,
            memory=runtime.memory,
            versions=versions(runtime),
            preparation=time.perf_counter() - started,
        )

    def run(self, images: Images) -> Tensor:
        try:
            outputs = self._model(as_array(images))
        except RuntimeError as error:
            raise WorkError(f"OpenVINO: {reason(error)}") from error
        return torch.from_numpy(outputs[0].copy()).float()  # OpenVINO writes its next result to the same memory


def reason(error: RuntimeError) -> str:
    """The operator and what is wrong with it: OpenVINO's errors begin with the places in its code that they passed."""
    lines = [line.strip() for line in str(error).splitlines()]
    return one_line(RuntimeError(" ".join(line for line in lines if not line.startswith(_NOISE))))
