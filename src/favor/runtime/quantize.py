"""Post-training quantization to int8, by the runtimes' own tools."""

import logging
import sys
from collections.abc import Iterator, Sequence
from contextlib import redirect_stdout
from pathlib import Path

import numpy as np
from numpy.typing import NDArray
from torch import Tensor

from favor.errors import WorkError
from favor.runtime.openvino_core import openvino_core
from favor.runtime.session import as_array, first_line
from favor.runtime.telemetry import without_telemetry

INPUT = "images"


def quantize_onnx(float_file: Path, file: Path, batches: Sequence[Tensor]) -> None:
    """Quantize an ONNX file with ONNX Runtime: 8-bit weights per channel, activations by their calibrated ranges."""
    from onnxruntime import quantization
    from onnxruntime.quantization.shape_inference import quant_pre_process

    class Reader(quantization.CalibrationDataReader):
        def __init__(self) -> None:
            self._batches: Iterator[NDArray[np.float32]] = iter([as_array(batch) for batch in batches])

        def get_next(self) -> dict[str, NDArray[np.float32]] | None:  # None ends it
            batch = next(self._batches, None)
            return None if batch is None else {INPUT: batch}

    prepared = file.with_name("prepared.onnx")
    try:
        quant_pre_process(str(float_file), str(prepared), skip_symbolic_shape=True)
        quantization.quantize_static(
            str(prepared),
            str(file),
            Reader(),
            quant_format=quantization.QuantFormat.QDQ,
            op_types_to_quantize=["Conv", "Gemm", "MatMul"],
            per_channel=True,
            activation_type=quantization.QuantType.QUInt8,
            weight_type=quantization.QuantType.QInt8,
            reduce_range=not has_dot_product_instructions(),
        )
    except Exception as error:
        raise WorkError(f"ONNX Runtime cannot quantize the model: {first_line(error)}") from error
    finally:
        prepared.unlink(missing_ok=True)


def has_dot_product_instructions() -> bool:
    """Whether the processor adds 8-bit products in 32 bits; older x86 ones overflow at 16 bits with 8-bit weights."""
    information = Path("/proc/cpuinfo")
    if not information.is_file():
        return True  # not x86 under Linux; Arm and Apple's processors have them
    words = set(information.read_text().split())
    return bool(words & {"avx512_vnni", "avx_vnni", "asimddp", "amx_int8"}) or "avx2" not in words


def quantize_openvino(onnx_file: Path, file: Path, batches: Sequence[Tensor]) -> None:
    """Quantize an ONNX file with NNCF, as a transformer, and write it in OpenVINO's own format."""
    without_telemetry()
    logging.getLogger("torch.utils.cpp_extension").setLevel(logging.ERROR)  # NNCF imports it, which warns of no CUDA
    import nncf
    import openvino

    logging.getLogger("nncf").setLevel(logging.ERROR)  # nncf.set_log_level would also change the handlers of others
    try:
        model = openvino_core().read_model(onnx_file)
        with redirect_stdout(sys.stderr):  # its progress bars; stdout is for data
            quantized = nncf.quantize(
                model,
                nncf.Dataset([as_array(batch) for batch in batches]),
                model_type=nncf.ModelType.TRANSFORMER,
                subset_size=len(batches),
            )
        openvino.save_model(quantized, file, compress_to_fp16=False)
    except Exception as error:
        raise WorkError(f"NNCF cannot quantize the model: {first_line(error)}") from error
