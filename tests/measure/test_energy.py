"""Energy meters with counters that are files, and libraries that are pretended."""

import sys
import time
from importlib.machinery import ModuleSpec
from pathlib import Path
from types import ModuleType, SimpleNamespace

import pytest

from favor.errors import WorkError
from favor.measure import energy
from favor.measure.energy import CodeCarbon, Nvml, Rapl, energy_sources, find_energy_meter


@pytest.fixture
def powercap(tmp_path: Path) -> Path:
    """Two packages, the first with a part that must not count twice."""
    for name, microjoules in (("intel-rapl:0", 1_000_000), ("intel-rapl:0:0", 900_000), ("intel-rapl:1", 9_999_000)):
        folder = tmp_path / name
        folder.mkdir()
        (folder / "energy_uj").write_text(f"{microjoules}\n")
        (folder / "max_energy_range_uj").write_text("10000000\n")
    return tmp_path


def install(monkeypatch, name: str, **contents) -> None:
    library = ModuleType(name)
    library.__spec__ = ModuleSpec(name, loader=None)
    vars(library).update(contents)
    monkeypatch.setitem(sys.modules, name, library)


@pytest.fixture
def no_libraries(monkeypatch):
    monkeypatch.setattr(energy.importlib.util, "find_spec", lambda name: None)


def test_packages_are_summed_and_a_counter_that_starts_again_is_noticed(powercap):
    meter = find_energy_meter("cpu", powercap=powercap)
    assert isinstance(meter, Rapl)
    meter.start()
    (powercap / "intel-rapl:0" / "energy_uj").write_text("4000000")
    (powercap / "intel-rapl:1" / "energy_uj").write_text("499000")
    assert meter.stop() == pytest.approx(3.0 + 0.5)
    assert meter.method.startswith("counter: RAPL, 2 whole")


def test_without_counters_and_libraries_there_is_no_meter(tmp_path, no_libraries):
    assert find_energy_meter("cpu", powercap=tmp_path / "nothing") is None
    assert find_energy_meter("cuda") is None
    assert find_energy_meter("mps") is None


def test_what_is_missing_is_said_with_what_to_install(tmp_path, no_libraries):
    rapl, codecarbon = energy_sources("cpu", powercap=tmp_path)
    assert not rapl.usable
    assert "no package counters" in rapl.why
    assert "pip install 'favor[energy]'" in codecarbon.why
    assert "nvidia-ml-py" in energy_sources("cuda")[0].why


def test_a_counter_for_root_only_is_not_usable_and_says_so(powercap, monkeypatch, no_libraries):
    def refuse(file: Path) -> int:
        raise PermissionError

    monkeypatch.setattr(energy, "_number", refuse)
    source = energy_sources("cpu", powercap=powercap)[0]
    assert (source.name, source.usable) == ("rapl", False)
    assert "by root only" in source.why
    assert find_energy_meter("cpu", powercap=powercap) is None


def test_codecarbon_is_an_estimate_in_joules_with_a_new_tracker_for_every_window(tmp_path, monkeypatch):
    trackers = []

    class Tracker:
        def __init__(self, **options) -> None:
            trackers.append(options)

        def start(self) -> None:
            self.final_emissions_data = None

        def stop(self) -> None:
            self.final_emissions_data = SimpleNamespace(energy_consumed=2e-6)

    install(monkeypatch, "codecarbon", OfflineEmissionsTracker=Tracker)
    meter = find_energy_meter("cpu", powercap=tmp_path)
    assert isinstance(meter, CodeCarbon)
    for _ in range(2):
        meter.start()
        assert meter.stop() == pytest.approx(7.2)
    assert len(trackers) == 2
    assert trackers[0]["save_to_file"] is False
    assert meter.method.startswith("estimated")


def test_the_real_codecarbon_gives_a_power_that_a_machine_can_have():
    pytest.importorskip("codecarbon", reason="the extra `energy` is not installed")
    meter = CodeCarbon()
    start = time.monotonic()
    meter.start()
    begun = time.monotonic()
    while time.monotonic() - begun < 1.0:
        pass
    joules = meter.stop()
    assert 0 < joules < 10_000 * (time.monotonic() - start)


def test_codecarbon_without_a_figure_is_an_error(monkeypatch):
    tracker = SimpleNamespace(start=lambda: None, stop=lambda: None, final_emissions_data=None)
    install(monkeypatch, "codecarbon", OfflineEmissionsTracker=lambda **options: tracker)
    meter = CodeCarbon()
    meter.start()
    with pytest.raises(WorkError, match="codecarbon gave no energy"):
        meter.stop()


def test_a_gpus_counter_is_in_millijoules_and_goes_before_codecarbon(monkeypatch):
    counter = iter([0, 0, 5_000, 12_500])
    install(
        monkeypatch,
        "pynvml",
        nvmlInit=lambda: None,
        nvmlDeviceGetHandleByIndex=lambda index: index,
        nvmlDeviceGetTotalEnergyConsumption=lambda board: next(counter),
        NVMLError=OSError,
    )
    meter = find_energy_meter("cuda")
    assert isinstance(meter, Nvml)
    meter.start()
    assert meter.stop() == pytest.approx(7.5)


def test_a_gpu_without_an_energy_counter_is_said(monkeypatch):
    def refuse(board: int) -> int:
        raise OSError("Not Supported")

    install(
        monkeypatch,
        "pynvml",
        nvmlInit=lambda: None,
        nvmlDeviceGetHandleByIndex=lambda index: index,
        nvmlDeviceGetTotalEnergyConsumption=refuse,
        NVMLError=OSError,
    )
    source = energy_sources("cuda")[0]
    assert not source.usable
    assert "no energy counter for GPU 0: Not Supported" in source.why
