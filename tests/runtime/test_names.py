"""A combination of runtime, precision and device that does not exist is refused in one line, before anything runs."""

import importlib.util
import subprocess
import sys

import pytest

from favor.errors import RequestError
from favor.runtime import names
from favor.runtime.matrix import Cell, read_cells, refuse_known_failure


@pytest.mark.parametrize(
    ("runtime", "precision", "device", "text"),
    [
        ("eager", "int8", "cpu", "eager does not run int8; onnxruntime and openvino do (--runtime onnxruntime)"),
        ("compile", "fp16", "cpu", "compile does not run fp16; onnxruntime and openvino do (--runtime onnxruntime)"),
        ("openvino", "amp", "cpu", "openvino does not run amp; eager and compile do (--runtime eager)"),
        ("eager", "int8", "mps", "eager does not run int8 on mps; it runs fp32, bf16, amp, amp-fp16 and amp-bf16"),
        (
            "openvino",
            "fp32",
            "cuda",
            "openvino does not run on cuda here; use --device cpu, or --runtime eager, compile or onnxruntime",
        ),
        ("onnx", "fp32", "cpu", "unknown runtime 'onnx'; choose from eager, compile, onnxruntime, openvino"),
    ],
)
def test_a_wrong_combination_is_refused_with_what_would_work(
    runtime: str, precision: str, device: str, text: str
) -> None:
    with pytest.raises(RequestError) as refused:
        names.check(runtime, precision, device)
    assert str(refused.value).startswith(text)
    assert "\n" not in str(refused.value)


def test_what_exists_is_taken() -> None:
    assert names.check("onnxruntime", "int8", "cpu").memory == "process"
    assert names.check("eager", "amp", "cuda").memory == "allocator"


def test_a_missing_extra_is_one_line_that_installs_it(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(importlib.util, "find_spec", lambda name: None if name.startswith("o") else object())
    with pytest.raises(RequestError, match=r"openvino needs onnx, onnxscript and openvino, not installed here; pip"):
        names.check("openvino", "fp32", "cpu")
    with pytest.raises(RequestError, match=r"pip install 'favor\[onnx\]'\Z"):
        names.check("onnxruntime", "fp32", "cpu")


def test_compiling_wants_a_compiler_on_cpus_only(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("CXX", "no-such-compiler")
    with pytest.raises(RequestError, match="no-such-compiler is not here; install g\\+\\+, or use --runtime eager"):
        names.check("compile", "fp32", "cpu")
    names.check("compile", "fp32", "cuda")


def test_a_wheel_without_cuda_is_told_apart() -> None:
    import onnxruntime

    if "CUDAExecutionProvider" in onnxruntime.get_available_providers():
        pytest.skip("this onnxruntime has CUDA")
    with pytest.raises(RequestError, match="has no CUDA provider here .* use --device cpu"):
        names.check("onnxruntime", "fp32", "cuda")


def test_a_model_that_is_known_to_fail_is_refused_with_what_works(monkeypatch: pytest.MonkeyPatch) -> None:
    cells = {
        ("a", "openvino"): Cell("a", "openvino", "fails", reason="no operator X"),
        ("a", "onnxruntime"): Cell("a", "onnxruntime", "works", deviation=1e-7),
    }
    monkeypatch.setattr("favor.runtime.matrix.shipped_cells", lambda: cells)
    refuse_known_failure("a", "onnxruntime")
    refuse_known_failure("b", "openvino")
    with pytest.raises(RequestError, match="a does not run in openvino: no operator X; use --runtime eager or onnx"):
        refuse_known_failure("a", "openvino")


def test_the_whole_model_counts_before_its_miniature_and_the_last_record_before_others(tmp_path) -> None:
    import json

    cells = [
        Cell("a", "compile", "works", deviation=1.0),
        Cell("a", "compile", "works", "miniature", deviation=2.0),
        Cell("b", "compile", "fails", "miniature"),
        Cell("b", "compile", "works", "miniature", deviation=3.0),
    ]
    file = tmp_path / "matrix.jsonl"
    file.write_text("".join(json.dumps(cell.as_dict()) + "\n" for cell in cells))
    assert {key: cell.deviation for key, cell in read_cells(file).items()} == {
        ("a", "compile"): 1.0,
        ("b", "compile"): 3.0,
    }


def test_names_are_known_without_torch() -> None:
    code = "import sys, favor.runtime.names, favor.runtime.matrix; sys.exit('torch' in sys.modules)"
    assert subprocess.run([sys.executable, "-c", code], check=False).returncode == 0
