"""The four runtimes give the outputs of eager mode, and say how they got them."""

import json
import logging
import os
import subprocess
import sys
from pathlib import Path
from types import SimpleNamespace

import pytest
import torch
from onnx import GraphProto, TensorProto, helper
from PIL import Image
from torch import Tensor, nn

from equality import images
from favor.errors import FavorError, RequestError, WorkError
from favor.machine.device import find_device
from favor.machine.memory import is_out_of_memory
from favor.runtime.card import ExportCard, SelfTest, card_file, checksums
from favor.runtime.export import export_file
from favor.runtime.names import ENDINGS, OPENERS
from favor.runtime.opening import open_file, open_foreign
from favor.runtime.openvino_session import reason
from favor.runtime.session import Choice, Session
from favor.runtime.torch_session import TorchSession
from favor.training.predict import Classifier, open_classifier, predict
from favor.zoo.fuse import fuse
from favor.zoo.registry import create_miniature

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


def session_of(
    model: nn.Module, x: Tensor, choice: Choice, folder: Path, dynamic_batch: bool = True, calibration=()
) -> Session:
    form = next((form for form, opener in OPENERS.items() if opener == choice.runtime), None)
    if form is None:
        return TorchSession(model, x, choice)
    file = folder / f"model{ENDINGS[form]}"
    export_file(model, x, file, form, choice.precision, dynamic_batch=dynamic_batch, calibration=calibration)
    return open_file(file, choice)


@pytest.fixture(scope="module")
def model() -> nn.Module:
    torch.manual_seed(0)
    return Small()


@pytest.fixture(scope="module")
def expected(model: nn.Module) -> Tensor:
    return TorchSession(model, images(5, 3, 8, 8), Choice()).run(images(5, 3, 8, 8))


def assert_outputs_are(expected: Tensor, session: Session) -> None:
    x = images(5, 3, 8, 8)
    assert (session.run(x) - expected).abs().max() < 1e-5
    assert torch.equal(session.run(x.numpy()), session.run(x))
    assert (session.run(1.03 * x) - expected).abs().max() > 1e-3


@pytest.mark.parametrize("runtime", EXPORTED)
def test_a_session_gives_the_outputs_of_eager_mode(
    runtime: str, model: nn.Module, expected: Tensor, tmp_path: Path
) -> None:
    assert_outputs_are(expected, session_of(model, images(2, 3, 8, 8), Choice(runtime, threads=1), tmp_path))


def test_a_model_that_is_in_its_inference_form_already_runs_as_it_is() -> None:
    torch.manual_seed(0)
    fused = fuse(create_miniature("fastvit_s12"))
    x = images(2, 3, *fused.img_size)
    with torch.inference_mode():
        assert torch.equal(TorchSession(fused, x, Choice()).run(x), fused(x))


# In a process of its own, as favor itself compiles.
COMPILED = """
import sys

sys.path.insert(0, sys.argv[1])
from runtime.test_sessions import Choice, Small, TorchSession, assert_outputs_are, images

model, x = Small(), images(5, 3, 8, 8)
assert_outputs_are(TorchSession(model, x, Choice()).run(x), TorchSession(model, x, Choice("compile", threads=1)))
print("equal")
"""


def test_a_compiled_session_gives_the_outputs_of_eager_mode() -> None:
    command = [sys.executable, "-c", COMPILED, str(Path(__file__).parents[1])]
    done = subprocess.run(command, capture_output=True, text=True, check=False)
    assert (done.returncode, done.stdout) == (0, "equal\n"), done.stderr[-2000:]


SIGNALED = """
import gc
import signal
import sys
from pathlib import Path

sys.path.insert(0, sys.argv[1])
from runtime.test_sessions import Choice, Small, images, session_of

signal.signal(signal.SIGUSR1, lambda *_: print("handled"))
sessions = [session_of(Small(), images(2, 3, 8, 8), Choice("openvino", threads=1), Path(sys.argv[2])) for _ in range(2)]
while sessions:
    sessions.pop(0)
    gc.collect()
signal.raise_signal(signal.SIGUSR1)
"""


def test_a_signal_after_two_sessions_of_openvino_is_handled(tmp_path: Path) -> None:
    command = [sys.executable, "-c", SIGNALED, str(Path(__file__).parents[1]), str(tmp_path)]
    done = subprocess.run(command, capture_output=True, text=True, check=False)
    assert (done.returncode, done.stdout) == (0, "handled\n"), done.stderr[-2000:]


@pytest.mark.parametrize("runtime", EXPORTED)
def test_one_result_is_not_written_over_by_the_next(runtime: str, model: nn.Module, tmp_path: Path) -> None:
    x = images(2, 3, 8, 8)
    session = session_of(model, x, Choice(runtime), tmp_path)
    first = session.run(x)
    before = first.clone()
    session.run(-x)
    assert torch.equal(first, before)


@pytest.mark.parametrize(
    ("runtime", "provider"), [("eager", "cpu"), ("onnxruntime", "CPUExecutionProvider"), ("openvino", "CPU")]
)
def test_a_session_says_what_goes_onto_its_record(
    runtime: str, provider: str, model: nn.Module, tmp_path: Path
) -> None:
    facts = session_of(model, images(2, 3, 8, 8), Choice(runtime, threads=1), tmp_path).facts
    assert facts.provider == provider
    assert facts.preparation > 0
    assert all(version[0].isdigit() for version in facts.versions.values())
    assert ("torch" if runtime == "eager" else runtime) in facts.versions


@pytest.mark.parametrize("runtime", EXPORTED)
def test_a_graph_for_one_image_refuses_two_in_one_line(runtime: str, model: nn.Module, tmp_path: Path) -> None:
    session = session_of(model, images(1, 3, 8, 8), Choice(runtime), tmp_path, dynamic_batch=False)
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
        session_of(model, x[:2], Choice(runtime, "int8"), tmp_path)
    calibration = images(64, 3, 8, 8, seed=3).split(1)
    found = session_of(model, x[:2], Choice(runtime, "int8"), tmp_path, calibration=calibration).run(x)
    assert 1e-4 < (found - expected).abs().max() < 0.15


def test_quantizing_leaves_the_handlers_of_others_as_they_are(
    model: nn.Module, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    from nncf.common.logging import nncf_logger

    own = logging.NullHandler()  # such as pytest's, which it adds to every logger that does not propagate
    monkeypatch.setattr(nncf_logger, "handlers", [own])
    calibration = images(8, 3, 8, 8).split(1)
    session_of(model, images(2, 3, 8, 8), Choice("openvino", "int8"), tmp_path, calibration=calibration)
    assert own.level == logging.NOTSET


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


def test_a_session_on_a_gpu_that_falls_back_to_the_cpu_is_an_error(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    class OnTheCpu:
        def __init__(self, *_: object, **__: object) -> None:
            """ONNX Runtime drops a provider that does not start, and says so in its log only."""

        def get_inputs(self) -> list[SimpleNamespace]:
            return [SimpleNamespace(name="images")]

        def get_providers(self) -> list[str]:
            return ["CPUExecutionProvider"]

    offered = ["CUDAExecutionProvider", "CPUExecutionProvider"]
    monkeypatch.setattr("onnxruntime.get_available_providers", lambda: offered)
    monkeypatch.setattr("onnxruntime.InferenceSession", OnTheCpu)
    with pytest.raises(WorkError, match="cannot start its CUDA provider and would use CPUExecutionProvider") as refused:
        open_file(tmp_path / "my.onnx", Choice("onnxruntime", device="cuda:1"))
    assert "\n" not in str(refused.value)
    assert open_file(tmp_path / "my.onnx", Choice("onnxruntime")).facts.provider == "CPUExecutionProvider"


def test_a_batch_that_onnx_runtime_has_no_memory_for_is_out_of_memory(
    model: nn.Module, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    def full(*_: object) -> None:
        raise RuntimeError(
            "[ONNXRuntimeError] : 6 : RUNTIME_EXCEPTION : Failed to allocate memory for requested buffer"
        )

    x = images(2, 3, 8, 8)
    session = session_of(model, x, Choice("onnxruntime", threads=1), tmp_path)
    monkeypatch.setattr("onnxruntime.InferenceSession.run", full)
    with pytest.raises(WorkError, match="ONNX Runtime: not enough memory: ") as refused:
        session.run(x)
    assert is_out_of_memory(refused.value)


def test_an_onnx_file_reaches_the_terminal_through_favor_alone(
    tmp_path: Path, capfd: pytest.CaptureFixture[str]
) -> None:
    elsewhere = TensorProto(name="w", data_type=1, dims=[4], data_location=TensorProto.EXTERNAL)
    elsewhere.external_data.add(key="location", value="pipe\x1b[2J")
    image, logits = (helper.make_tensor_value_info(name, 1, [4]) for name in ("image", "logits"))
    node = helper.make_node("Add", ["image", "w"], ["logits"], name="two\nlines\x1b[2J")
    graph = helper.make_graph([node], "network", [image], [logits], [elsewhere])
    network = helper.make_model(graph, opset_imports=[helper.make_opsetid("", 17)], ir_version=8)
    (tmp_path / "my.onnx").write_bytes(network.SerializeToString())
    os.mkfifo(tmp_path / "pipe\x1b[2J")
    with pytest.raises(WorkError, match="ONNX Runtime cannot open it") as refused:
        open_file(tmp_path / "my.onnx", Choice("onnxruntime"))
    assert str(refused.value).isprintable()
    assert capfd.readouterr() == ("", "")


def saved(graph: GraphProto, file: Path) -> Path:
    network = helper.make_model(graph, opset_imports=[helper.make_opsetid("", 17)], ir_version=8)
    file.write_bytes(network.SerializeToString())
    return file


def an_onnx_file(file: Path, operator: str, inputs: list[str], outputs: list[str], **attributes: object) -> Path:
    """A graph of one operator from `image` to `logits`, whose shape it does not say."""
    node = helper.make_node(operator, inputs, ["logits"], **attributes)
    of_type = {"image": TensorProto.FLOAT, "logits": attributes.get("to", TensorProto.FLOAT)}
    values = [
        [helper.make_tensor_value_info(name, of_type[name], None) for name in names] for names in (inputs, outputs)
    ]
    return saved(helper.make_graph([node], "network", *values), file)


@pytest.mark.parametrize(
    ("operator", "inputs", "outputs", "attributes"),
    [
        ("Identity", ["image"], ["logits"], {}),
        ("ReduceMean", ["image"], ["logits"], {"keepdims": 0}),
        ("Cast", ["image"], ["logits"], {"to": TensorProto.STRING}),
        ("Constant", [], ["logits"], {"value_floats": [1.0, 2.0]}),
        ("Identity", ["image"], [], {}),
    ],
)
def test_a_file_that_gives_something_else_than_a_row_per_image_is_refused_in_one_line(
    operator: str, inputs: list[str], outputs: list[str], attributes: dict[str, object], tmp_path: Path
) -> None:
    file = an_onnx_file(tmp_path / "my.onnx", operator, inputs, outputs, **attributes)
    with pytest.raises(WorkError) as refused:
        open_file(file, Choice("onnxruntime", threads=1)).run(images(2, 3, 8, 8))
    assert str(refused.value).isprintable()


@pytest.mark.parametrize("inside", [False, True])
def test_a_foreign_graph_that_may_never_end_is_refused(tmp_path: Path, inside: bool) -> None:
    flag, step = helper.make_tensor_value_info("on", TensorProto.BOOL, []), helper.make_tensor_value_info("i", 7, [])
    x, y, logits = (helper.make_tensor_value_info(name, 1, None) for name in ("x", "y", "logits"))
    on = helper.make_tensor_value_info("still", TensorProto.BOOL, [])
    again = [helper.make_node("Identity", ["on"], ["still"]), helper.make_node("Add", ["x", "x"], ["y"])]
    body = helper.make_graph(again, "body", [step, flag, x], [on, y])
    endless = [
        helper.make_node("Constant", [], ["times"], value_int=2**60),
        helper.make_node("Constant", [], ["true"], value=helper.make_tensor("t", TensorProto.BOOL, [], [True])),
        helper.make_node("Loop", ["times", "true", "image"], ["logits"], body=body),
    ]
    branch = helper.make_graph(endless, "branch", [], [logits])
    nodes = endless
    if inside:
        nodes = [endless[1], helper.make_node("If", ["true"], ["logits"], then_branch=branch, else_branch=branch)]
    image = helper.make_tensor_value_info("image", 1, None)
    file = saved(helper.make_graph(nodes, "network", [image], [logits]), tmp_path / "my.onnx")
    with pytest.raises(RequestError, match=r"my\.onnx: has the operator Loop, which may never end"):
        open_foreign(file, Choice("onnxruntime", threads=1))
    file.write_bytes(file.read_bytes()[:-7])
    with pytest.raises(RequestError, match=r"my\.onnx: truncated, or not an ONNX file"):
        open_foreign(file, Choice("onnxruntime", threads=1))


def test_a_branch_in_which_openvino_hides_its_operators_is_refused(tmp_path: Path) -> None:
    openvino = pytest.importorskip("openvino")
    from openvino import opset13

    image = opset13.parameter([1, 3, 8, 8], openvino.Type.f32, "image")
    chosen = opset13.if_op(opset13.constant(True))
    inputs = [opset13.parameter([1, 3, 8, 8], openvino.Type.f32) for _ in range(2)]
    results = [opset13.result(opset13.relu(one)) for one in inputs]
    for choose, result, given in zip((chosen.set_then_body, chosen.set_else_body), results, inputs, strict=True):
        choose(openvino.Model([result], [given]))
    chosen.set_input(image.output(0), *inputs)
    output = chosen.set_output(*results)
    openvino.save_model(openvino.Model([opset13.result(output)], [image]), tmp_path / "my.xml")
    with pytest.raises(RequestError, match=r"my\.xml: has the operator If, which may never end"):
        open_foreign(tmp_path / "my.xml", Choice("openvino", threads=1))


def a_classifier(folder: Path, weight: float, outputs: int, **changed: object) -> Classifier:
    """The channels' means times a weight, in a file whose card names two classes."""
    image, logits = (helper.make_tensor_value_info(name, 1, None) for name in ("image", "logits"))
    weights = helper.make_tensor("w", 1, [3, outputs], [weight] * (3 * outputs))
    nodes = [
        helper.make_node("ReduceMean", ["image"], ["mean"], axes=[2, 3], keepdims=0),
        helper.make_node("MatMul", ["mean", "w"], ["logits"]),
    ]
    file = saved(helper.make_graph(nodes, "network", [image], [logits], [weights]), folder / "my.onnx")
    test = SelfTest(data="digits", images=9, largest_deviation=0, relative_deviation=0, top1_agreement=100)
    card = ExportCard(
        favor="0",
        sha256=checksums(file),
        format="onnx",
        precision="fp32",
        dynamic_batch=True,
        model="vit_xs4",
        img_size=32,
        in_chans=3,
        mean=(0.5, 0.5, 0.5),
        std=(0.5, 0.5, 0.5),
        crop_ratio=1.0,
        num_classes=2,
        classes=("cat", "dog"),
        dataset="digits",
        epochs=1.0,
        source="",
        calibration=None,
        versions={},
        self_test=test,
    )
    card_file(file).write_text(json.dumps(card.model_dump(mode="json") | changed))
    return open_classifier(file, find_device("cpu"))


@pytest.mark.parametrize(
    ("weight", "outputs", "refusal"),
    [
        (1.0, 7, "my.onnx: has 7 outputs, but its card says 2 classes; export the model again"),
        (1.0, 1, "my.onnx: has 1 outputs, but its card says 2 classes; export the model again"),
        (float("nan"), 2, "the model's outputs are not finite"),
    ],
)
def test_a_prediction_of_a_file_that_does_not_fit_its_card_or_is_not_finite_is_refused(
    weight: float, outputs: int, refusal: str, tmp_path: Path
) -> None:
    Image.new("RGB", (32, 32), "red").save(tmp_path / "red.png")
    with pytest.raises(FavorError, match=refusal):
        list(predict(a_classifier(tmp_path, weight, outputs), [str(tmp_path / "red.png")]))


def test_a_card_with_class_names_that_cannot_be_printed_is_refused(tmp_path: Path) -> None:
    with pytest.raises(RequestError, match=r"classes\[0\].*characters that cannot be printed") as refused:
        a_classifier(tmp_path, 1.0, 2, classes=["\x1b[2Jcat\n", "d\u202eog"])
    assert str(refused.value).isprintable()
