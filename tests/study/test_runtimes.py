"""Runtimes and integers in a study: what goes together is measured, the rest is refused before anything runs."""

import importlib.util
import os
import subprocess
import sys
from dataclasses import replace
from pathlib import Path

import pytest
import yaml

from favor.errors import RequestError
from favor.machine.messages import Findings
from favor.measurement.job import MeasureJob
from favor.runtime import matrix
from favor.runtime.matrix import Cell
from favor.study import exporting
from favor.study.exporting import Exports
from favor.study.folder import save_requests, saved_requests
from favor.study.local_executor import LocalExecutor
from favor.study.options import study_from_options
from favor.study.plan import jobs_of
from favor.study.resolve import resolve
from favor.study.resolved import ResolvedStudy, content_hash
from favor.study.schema import study_in
from favor.study.study_files import open_study
from favor.training.checkpoint import save_model
from favor.training.recipe import load_recipe
from favor.training.state import Trained
from favor.yaml_file import YamlFile
from favor.zoo.registry import create_model

DIGITS = {"calibration": "digits"}


def asked(
    models: tuple[str, ...] = ("vit_xs4",), phases: tuple[str, ...] = ("inference",), **options: object
) -> ResolvedStudy:
    return study_from_options("measure", models, phases, {"device": "cpu", **options})


def runs(study: ResolvedStudy) -> list[tuple[str, str]]:
    return [(job.runtime, job.precision) for job in jobs_of(study) if isinstance(job, MeasureJob)]


def test_runtimes_and_precisions_that_go_together_are_measured() -> None:
    both = {"runtimes": ["eager", "openvino"], "precisions": ["fp32", "int8"], **DIGITS}
    study = asked(**both)
    assert runs(study) == [("eager", "fp32"), ("openvino", "fp32"), ("openvino", "int8")]
    assert [job.calibration for job in jobs_of(study)] == [None, None, "digits"]
    assert runs(asked(phases=("training",), **both)) == [("eager", "fp32")]


@pytest.mark.parametrize(
    ("options", "line"),
    [
        (
            {"precisions": ["int8"]},
            "--runtime: eager does not run int8; onnxruntime and openvino do (--runtime onnxruntime)",
        ),
        (
            {"precisions": ["int8"], "runtimes": ["openvino"]},
            "--calibration: int8 needs images to calibrate with; name some with --calibration NAME[:PATH] such as "
            "folder:photos, or trained weights with --checkpoint RUN",
        ),
        (
            {"precisions": ["bf16"], "runtimes": ["openvino"]},
            "--runtime: openvino does not run bf16; eager and compile do (--runtime eager)",
        ),
        (DIGITS, "--calibration: only int8 is calibrated; add --precision int8, or leave it out"),
        (
            {"precisions": ["int8"], "runtimes": ["openvino"], "calibration": "folder:/nowhere"},
            "--calibration: dataset 'folder:/nowhere': no such folder or file",
        ),
        ({"runtimes": ["openvin"]}, "--runtime: unknown runtime 'openvin'; did you mean 'openvino'?"),
    ],
)
def test_what_cannot_run_is_refused_in_one_line_that_says_what_would(options: dict[str, object], line: str) -> None:
    with pytest.raises(RequestError) as refusal:
        asked(**options)
    assert str(refusal.value).startswith(line)
    assert "\n" not in str(refusal.value)


def test_int8_without_a_single_image_is_refused_before_anything_runs(tmp_path: Path) -> None:
    int8 = {"precisions": ["int8"], "runtimes": ["openvino"]}
    with pytest.raises(RequestError, match="--calibration: .*it has no folders"):
        asked(**int8, calibration=f"folder:{tmp_path}")
    save_checkpoint(tmp_path / "best.safetensors", dataset="cars")
    with pytest.raises(RequestError, match=r"--calibration: .* trained on \(cars\) are not available; name others"):
        asked(**int8, checkpoint=str(tmp_path), img_sizes=[32], num_classes=10)
    asked(**int8, checkpoint=str(tmp_path), img_sizes=[32], num_classes=10, **DIGITS)


def save_checkpoint(file: Path, dataset: str) -> None:
    known = Trained(
        favor="0",
        run="a",
        step=1,
        epochs=1.0,
        model="vit_xs4",
        img_size=32,
        in_chans=3,
        classes=tuple(map(str, range(10))),
        dataset=dataset,
        pretraining="none",
        recipe=load_recipe("laptop-digits"),
        top1=None,
    )
    save_model(file, create_model("vit_xs4", img_size=32, num_classes=10), known)


def test_training_is_refused_outside_of_pytorch() -> None:
    with pytest.raises(RequestError, match="training runs in eager and compile, not in onnxruntime with fp32"):
        asked(phases=("training",), runtimes=["onnxruntime"])


def test_a_model_that_is_known_to_fail_is_refused_with_the_runtimes_that_run_it(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    cell = Cell("vit_xs4", "openvino", "fails", reason="no operator")
    monkeypatch.setattr(matrix, "shipped_cells", lambda: {("vit_xs4", "openvino"): cell})
    with pytest.raises(RequestError, match="vit_xs4 does not run in openvino: no operator; use --runtime eager"):
        asked(runtimes=["openvino"])


def test_a_missing_package_is_one_line_that_says_what_to_install(monkeypatch: pytest.MonkeyPatch) -> None:
    found = importlib.util.find_spec
    monkeypatch.setattr(importlib.util, "find_spec", lambda name: None if name == "openvino" else found(name))
    with pytest.raises(
        RequestError, match=r"openvino needs openvino, not installed here; pip install 'favor\[openvino\]'"
    ):
        asked(runtimes=["openvino"])


def test_the_old_key_is_refused_with_the_new_one() -> None:
    source = YamlFile("my.yaml", "models: [vit_xs4]\ncompile: true\n")
    with pytest.raises(RequestError, match=r"compile is now a runtime; write `runtimes: \[compile\]`"):
        study_in(source, "my")


def test_images_that_the_study_trains_on_calibrate_it_too() -> None:
    text = (
        "models: [vit_xs4]\nphases: [inference, accuracy]\ndevice: cpu\nruntimes: [eager, onnxruntime]\n"
        "precisions: [fp32, int8]\ntrain: {recipe: laptop-digits, epochs: 5}\n"
    )
    source = YamlFile("my.yaml", text)
    study = resolve(study_in(source, "my"), source)
    assert [job.calibration for job in jobs_of(study) if getattr(job, "precision", "") == "int8"] == ["digits"]


def test_a_folder_of_an_earlier_version_is_read_with_what_compile_meant(tmp_path: Path) -> None:
    study = asked(runtimes=["compile"])
    save_requests(tmp_path, [study])
    file = tmp_path / "study.yaml"
    earlier = {
        key: value for key, value in study.to_data().items() if key not in ("runtimes", "calibration", "checkpoint")
    }
    earlier["compile"] = True
    file.write_text(yaml.safe_dump({"format": 2, "requests": [{"hash": content_hash(earlier), **earlier}]}))
    assert saved_requests(tmp_path) == (study,)


class _Exporter:
    """Pretends to export, and keeps what was asked."""

    def __init__(self, status: str = "ok", reason: str | None = None) -> None:
        self.asked: list[str] = []
        self._status, self._reason = status, reason

    def __call__(self, command: tuple[str, ...], request: str, **options: object) -> Findings:
        self.asked.append(request)
        return Findings(status=self._status, reason=self._reason)  # type: ignore[arg-type]


def test_jobs_that_share_a_graph_share_its_folder(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(exporting, "supervise", _Exporter())
    exports = Exports()
    one, two, *_ = jobs_of(asked(runtimes=["onnxruntime", "openvino"]))
    assert isinstance(one, MeasureJob)
    assert isinstance(two, MeasureJob)
    places = [Path(str(exports.of(job, print).job.exported)) for job in (one, two, replace(one, img_size=64))]
    assert places[0].parent == places[1].parent != places[2].parent
    assert [place.name for place in places[:2]] == ["onnxruntime-fp32.json", "openvino-fp32.json"]


def test_a_model_that_cannot_be_exported_is_a_record_with_the_reason(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(exporting, "supervise", _Exporter("failed", "exporting: torch.export: no"))
    (job,) = jobs_of(asked(runtimes=["onnxruntime"]))
    (record,) = LocalExecutor(None).execute(job, 1.0, print, print)
    assert (record.status, record.reason) == ("failed", "exporting: torch.export: no; use --runtime eager")
    (int8,) = jobs_of(asked(runtimes=["onnxruntime"], precisions=["int8"], **DIGITS))
    (record,) = LocalExecutor(None).execute(int8, 1.0, print, print)
    assert record.reason == "exporting: torch.export: no; use --runtime eager --precision fp32"
    assert record.conditions["runtime"] == "onnxruntime"


EXPORTING = """
import os, signal, sys, time
from favor.cli import main
from favor.study import exporting

def export(*request, **options):
    print(os.listdir(os.environ["TMPDIR"]))
    os.kill(os.getpid(), signal.SIGTERM)
    time.sleep(60)

exporting.supervise = export
sys.argv = ["favor", "measure", "vit_xs4", "--runtime", "onnxruntime", "--device", "cpu"]
main()
"""


def test_sigterm_leaves_no_exported_models_in_the_temporary_folder(tmp_path: Path) -> None:
    environment = {**os.environ, "TMPDIR": str(tmp_path), "XDG_RUNTIME_DIR": str(tmp_path)}
    done = subprocess.run(
        [sys.executable, "-c", EXPORTING], env=environment, capture_output=True, text=True, timeout=120, check=False
    )
    assert done.returncode == 0, done.stderr
    assert "favor-exports-" in done.stdout
    assert "stopped by SIGTERM" in done.stderr
    assert not list(tmp_path.glob("favor-exports-*"))


def test_the_built_in_study_has_ten_models_in_six_ways_to_run() -> None:
    study, _ = open_study("runtimes")
    assert len(study.models) == 10
    assert (len(study.runtimes), study.precisions, study.calibration) == (4, ("fp32", "int8"), "digits")
