"""The four runtimes give the outputs of eager mode, and say how they got them."""

from pathlib import Path

import pytest
import torch
from torch import Tensor, nn

from equality import images
from favor.errors import RequestError, WorkError
from favor.runtime.openvino_session import reason
from favor.runtime.session import Choice
from favor.runtime.start import export_file, open_file, start
from favor.runtime.torch_session import TorchSession

EXPORTED = ("onnxruntime", "openvino")


class Small(nn.Module):
    """A convolution, a norm and a head; dropout says whether somebody forgot eval mode."""

    def __init__(self) -> None:
        super().__init__()
        self.layers = nn.Sequential(
            nn.Conv2d(3, 8, 4, 4), nn.GELU(), nn.Flatten(), nn.LayerNorm(32), nn.Dropout(0.5), nn.Linear(32, 5)
        )

    def forward(self, x: Tensor) -> Tensor:
        return self.layers(x)


@pytest.fixture(scope="module")
def model() -> nn.Module:
    torch.manual_seed(0)
    return Small()


@pytest.fixture(scope="module")
def expected(model: nn.Module) -> Tensor:
    return TorchSession(model, images(5, 3, 8, 8), Choice()).run(images(5, 3, 8, 8))


@pytest.mark.parametrize("runtime", ["compile", *EXPORTED])
def test_a_session_gives_the_outputs_of_eager_mode(
    runtime: str, model: nn.Module, expected: Tensor, tmp_path: Path
) -> None:
    x = images(5, 3, 8, 8)
    session = start(model, x[:2] if runtime != "compile" else x, Choice(runtime, threads=1), tmp_path)
    assert (session.run(x) - expected).abs().max() < 1e-5
    assert torch.equal(session.run(x.numpy()), session.run(x))
    assert (session.run(1.03 * x) - expected).abs().max() > 1e-3


@pytest.mark.parametrize("runtime", EXPORTED)
def test_one_result_is_not_written_over_by_the_next(runtime: str, model: nn.Module, tmp_path: Path) -> None:
    x = images(2, 3, 8, 8)
    session = start(model, x, Choice(runtime), tmp_path)
    first = session.run(x)
    before = first.clone()
    session.run(-x)
    assert torch.equal(first, before)


@pytest.mark.parametrize(
    ("runtime", "provider", "memory"),
    [
        ("eager", "cpu", "allocator"),
        ("onnxruntime", "CPUExecutionProvider", "process"),
        ("openvino", "CPU", "process"),
    ],
)
def test_a_session_says_what_goes_onto_its_record(
    runtime: str, provider: str, memory: str, model: nn.Module, tmp_path: Path
) -> None:
    facts = start(model, images(2, 3, 8, 8), Choice(runtime, threads=1), tmp_path).facts
    assert (facts.runtime, facts.provider, facts.memory, facts.threads) == (runtime, provider, memory, 1)
    assert facts.preparation > 0
    assert all(version[0].isdigit() for version in facts.versions.values())
    assert ("torch" if runtime == "eager" else runtime) in facts.versions


@pytest.mark.parametrize("runtime", EXPORTED)
def test_a_graph_for_one_image_refuses_two_in_one_line(runtime: str, model: nn.Module, tmp_path: Path) -> None:
    session = start(model, images(1, 3, 8, 8), Choice(runtime), tmp_path, dynamic_batch=False)
    session.run(images(1, 3, 8, 8))
    with pytest.raises(WorkError) as refused:
        session.run(images(2, 3, 8, 8))
    assert "\n" not in str(refused.value)


def test_half_precision_is_stored_in_half_the_bytes_and_takes_float32(
    model: nn.Module, expected: Tensor, tmp_path: Path
) -> None:
    wide = nn.Sequential(model, nn.Linear(5, 4000), nn.Linear(4000, 5))
    x, sizes = images(2, 3, 8, 8), {}
    for precision in ("fp32", "fp16"):
        file = tmp_path / f"{precision}.onnx"
        export_file(wide, x, file, "onnx", precision, dynamic_batch=False)
        sizes[precision] = file.stat().st_size
    outputs = [open_file(tmp_path / f"{name}.onnx", Choice("onnxruntime", name)).run(x) for name in sizes]
    assert sizes["fp16"] < 0.6 * sizes["fp32"]
    assert 0 < (outputs[0] - outputs[1]).abs().max() < 0.01
    assert outputs[1].dtype is torch.float32


@pytest.mark.parametrize("runtime", EXPORTED)
def test_int8_is_near_the_float_model_and_needs_images(
    runtime: str, model: nn.Module, expected: Tensor, tmp_path: Path
) -> None:
    x = images(5, 3, 8, 8)
    with pytest.raises(RequestError, match="int8 needs images to calibrate with"):
        start(model, x[:2], Choice(runtime, "int8"), tmp_path)
    calibration = images(64, 3, 8, 8, seed=3).split(1)
    found = start(model, x[:2], Choice(runtime, "int8"), tmp_path, calibration=calibration).run(x)
    assert 1e-4 < (found - expected).abs().max() < 0.15


def test_a_model_that_cannot_be_traced_is_refused_in_one_line(tmp_path: Path) -> None:
    class Branches(nn.Module):
        def forward(self, x: Tensor) -> Tensor:
            return x.mean((2, 3)) if x.sum().item() > 0 else x.amax((2, 3))

    with pytest.raises(WorkError, match="torch.export: ") as refused:
        export_file(Branches(), images(2, 3, 8, 8), tmp_path / "a.onnx", "onnx", "fp32", dynamic_batch=True)
    assert "\n" not in str(refused.value)
    assert not list(tmp_path.iterdir())


def test_a_file_is_opened_by_its_own_runtime_only(tmp_path: Path) -> None:
    with pytest.raises(RequestError, match="onnxruntime does not open such a file"):
        open_file(tmp_path / "a.xml", Choice("onnxruntime"))
    torn = tmp_path / "torn.onnx"
    torn.write_bytes(b"\x08no model")
    for runtime in EXPORTED:
        with pytest.raises(WorkError, match="cannot open it") as refused:
            open_file(torn, Choice(runtime))
        assert "\n" not in str(refused.value)


def test_what_openvino_refuses_is_named_with_its_operator() -> None:
    told = """Exception from src/inference/src/cpp/core.cpp:84:
    Check 'false' failed at src/frontends/common_translators/src/unconverted_ops_report.cpp:151:
    FrontEnd API failed with OpConversionFailure:
    Model wasn't fully converted. Failed operations detailed log:
    -- Mul-20 with a message:
    While validating ONNX node '<Node(Mul): val_21>': Argument shapes are inconsistent."""
    assert reason(RuntimeError(told)) == (
        "-- Mul-20 with a message: While validating ONNX node '<Node(Mul): val_21>': Argument shapes are inconsistent."
    )


def test_threads_are_positive() -> None:
    with pytest.raises(RequestError, match="0 threads cannot run anything"):
        Choice("eager", threads=0).check()
