"""The matrix of models and runtimes: its records are whole, its page is up to date, and a sample of it holds."""

import importlib.util
from pathlib import Path
from types import ModuleType

import pytest

from favor.runtime.matrix import every_cell, read_cells

ROOT = Path(__file__).parents[2]


@pytest.fixture(scope="module")
def benchmark() -> ModuleType:
    spec = importlib.util.spec_from_file_location("runtime_matrix", ROOT / "benchmarks" / "runtime_matrix.py")
    assert spec is not None
    assert spec.loader is not None
    module = importlib.util.module_from_spec(spec)
    spec.loader.exec_module(module)
    return module


def test_a_cell_has_its_deviation_or_the_reason_it_fails(benchmark: ModuleType) -> None:
    assert len(benchmark.models()) == len(set(benchmark.models())) == 55
    for cell in every_cell():
        assert cell.model in benchmark.models()
        assert cell.runtime in benchmark.RUNTIMES
        assert (cell.deviation is None) == (cell.status == "fails") == bool(cell.reason)
        assert cell.status != "works" or cell.deviation <= benchmark.TOLERANCE  # type: ignore[operator]


def test_the_page_shows_the_records(benchmark: ModuleType) -> None:
    assert (ROOT / "docs" / "runtimes.md").read_text() == benchmark.page(read_cells())


@pytest.mark.parametrize(
    ("name", "runtime"), [("gfnet_s16", "openvino"), ("switch_8_s16", "onnxruntime"), ("hivit_ti16", "onnxruntime")]
)
def test_a_sample_of_the_matrix_holds(name: str, runtime: str, benchmark: ModuleType, tmp_path: Path) -> None:
    found = benchmark.run_cell(name, runtime, tmp_path, "miniature")
    assert (found.status, found.batch_size) == ("works", None)
    assert found.deviation < 1e-5


def test_a_compiled_cell_of_the_matrix_holds(benchmark: ModuleType, tmp_path: Path) -> None:
    # In a process of its own, as favor itself compiles. FastViT reaches it in its inference form.
    found = benchmark.run_apart("fastvit_s12", "compile", str(tmp_path), "miniature")
    assert found.status == "works", found.reason
    assert found.deviation < 1e-5


def test_no_cell_is_missing_and_95_percent_work(benchmark: ModuleType) -> None:
    cells = read_cells()
    assert cells.keys() == {(name, runtime) for name in benchmark.models() for runtime in benchmark.RUNTIMES}
    assert sum(cell.status == "works" for cell in cells.values()) >= 0.95 * len(cells)
