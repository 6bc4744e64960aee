"""The shipped simulations of timm's networks, and simulations of many networks that go on after a stop."""

import gzip
from importlib.resources import files
from pathlib import Path

import pytest
from msgspec.structs import replace
from typer.testing import CliRunner

from favor.cli import app
from favor.records.store import read
from favor.records.timm_candidates import shipped_accuracies
from favor.simulation.calibration import shipped_calibration
from favor.simulation.devices import built_in_devices, device
from favor.simulation.shipped_timm import FILE_NAME, shipped_timm_records, to_bytes
from favor.simulation.simulation import SimulationRequest, simulate


def test_the_file_is_small_and_every_device_has_networks() -> None:
    assert len((files("favor.simulation") / FILE_NAME).read_bytes()) < 2e6
    for gpu in built_in_devices():
        assert len(shipped_timm_records(gpu.name)) > 100, gpu.name


def test_every_simulated_network_has_an_accuracy_at_its_image_size() -> None:
    known = {(record.name, record.conditions["img_size"]) for record in shipped_accuracies()}
    assert {(record.name, record.conditions["img_size"]) for record in shipped_timm_records("t4")} <= known


@pytest.mark.parametrize("name", ["timm:levit_256", "timm:resnet50"])
def test_the_file_has_what_the_simulation_gives(name: str) -> None:
    """If this fails, the calibration, a device or a network changed: run benchmarks/make_timm_simulated.py."""
    (now,) = simulate(name, [device("t4")], SimulationRequest(img_size=224), shipped_calibration())
    (then,) = [
        record for record in shipped_timm_records("t4") if (record.name, record.conditions["img_size"]) == (name, 224)
    ]
    for metric in ("throughput", "latency_p50", "inference_memory", "best_batch_size", "max_batch_size"):
        assert then.metrics[metric].value == pytest.approx(now.metrics[metric].value, rel=1e-3), metric
        if then.metrics[metric].low is not None:
            assert then.metrics[metric].low == pytest.approx(now.metrics[metric].low, rel=1e-3), metric
    assert then.conditions == now.conditions


def test_a_network_that_does_not_fit_a_device_has_no_number_there() -> None:
    fits = shipped_timm_records("t4")[0]
    too_large = replace(
        fits, status="out_of_memory", reason="too large", conditions={**fits.conditions, "device": "p100"}
    )
    header, line = gzip.decompress(to_bytes([fits, too_large])).decode().splitlines()
    assert "throughput@t4" in header
    assert "p100" not in header
    assert line.startswith(f"{fits.name.removeprefix('timm:')},")


def simulated(study: Path, *names: str) -> str:
    done = CliRunner().invoke(app, ["simulate", *names, "--device", "t4", "--study", str(study)])
    assert done.exit_code == 0, done.output + str(done.exception)
    return done.output


def test_a_stopped_simulation_goes_on_where_it_was(tmp_path: Path) -> None:
    simulated(tmp_path, "timm:resnet18")
    told = simulated(tmp_path, "timm:resnet18", "timm:resnet10t")
    assert "1 of 2 simulations are in" in told
    assert "timm:resnet18" in told
    assert sorted(record.name for record in read(tmp_path).records) == ["timm:resnet10t", "timm:resnet18"]


def test_another_precision_is_simulated_anew(tmp_path: Path) -> None:
    simulated(tmp_path, "timm:resnet18")
    told = simulated(tmp_path, "timm:resnet18", "--precision", "fp32")
    assert "already" not in told
    assert len(read(tmp_path).records) == 2
