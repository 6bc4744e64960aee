"""Energy meters with counters that are files, and libraries that are pretended."""

import sys
import time
from importlib.machinery import ModuleSpec
from pathlib import Path
from types import ModuleType, SimpleNamespace

import pytest

from favor.machine import energy
from favor.machine.energy import (
    CodeCarbon,
    EnergyError,
    Nvml,
    NvmlPower,
    Rapl,
    energy_of,
    energy_sources,
    find_energy_meter,
)
from measurement.fakes import FakeClock


@pytest.fixture
def powercap(tmp_path: Path) -> Path:
    """Two packages, one with a part and both in a platform, which must not count twice."""
    for name, domain, microjoules in (
        ("intel-rapl:0", "package-0", 1_000_000),
        ("intel-rapl:0:0", "core", 900_000),
        ("intel-rapl:1", "package-1", 9_999_000),
        ("intel-rapl:2", "psys", 50_000_000),
    ):
        folder = tmp_path / name
        folder.mkdir()
        (folder / "name").write_text(f"{domain}\n")
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
    (powercap / "intel-rapl:2" / "energy_uj").write_text("59000000")
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
    read = Path.read_text

    def refuse(file: Path) -> str:
        if file.name == "energy_uj":
            raise PermissionError
        return read(file)

    monkeypatch.setattr(Path, "read_text", refuse)
    source = energy_sources("cpu", powercap=powercap)[0]
    assert (source.name, source.usable) == ("rapl", False)
    assert "only root can read" in source.why
    assert find_energy_meter("cpu", powercap=powercap) is None


def test_a_counter_without_a_number_is_not_usable_and_says_so(powercap, no_libraries):
    (powercap / "intel-rapl:1" / "energy_uj").write_text("")
    source = energy_sources("cpu", powercap=powercap)[0]
    assert not source.usable
    assert "intel-rapl:1/energy_uj has no number" in source.why
    assert find_energy_meter("cpu", powercap=powercap) is None


def test_a_counter_that_goes_away_is_an_energy_error(powercap):
    meter = find_energy_meter("cpu", powercap=powercap)
    meter.start()
    (powercap / "intel-rapl:0" / "energy_uj").unlink()
    with pytest.raises(EnergyError, match="has no number"):
        meter.stop()


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
    with pytest.raises(EnergyError, match="codecarbon gave no energy"):
        meter.stop()


def test_codecarbon_that_lacks_its_figure_or_breaks_is_an_energy_error(monkeypatch):
    install(
        monkeypatch,
        "codecarbon",
        OfflineEmissionsTracker=lambda **options: SimpleNamespace(start=lambda: None, stop=lambda: None),
    )
    meter = CodeCarbon()
    meter.start()
    with pytest.raises(EnergyError, match="codecarbon gave no energy"):
        meter.stop()
    install(monkeypatch, "codecarbon", OfflineEmissionsTracker=lambda **options: {}["no such thing"])
    with pytest.raises(EnergyError, match="codecarbon cannot start: KeyError"):
        CodeCarbon().start()


@pytest.fixture
def gpu(monkeypatch) -> dict:
    """A GPU that PyTorch counts as the first and NVML as another; its counter and power are what a test says."""
    said = {"millijoules": iter([0, 0, 5_000, 12_500]), "milliwatts": 50_000, "asked": []}
    places = {0: (0, 0x65, 0), 1: (1, 0x0A, 0)}

    def properties(index: int) -> SimpleNamespace:
        domain, bus, device = places[index]
        return SimpleNamespace(pci_domain_id=domain, pci_bus_id=bus, pci_device_id=device)

    def tell(what: str):
        def number(board: object) -> int:
            if isinstance(said[what], Exception):
                raise said[what]
            return said[what] if isinstance(said[what], int) else next(said[what])

        return number

    def board_at(place: bytes) -> bytes:
        said["asked"].append(place)
        return place

    monkeypatch.setattr("torch.cuda.get_device_properties", properties)
    install(
        monkeypatch,
        "pynvml",
        nvmlInit=lambda: None,
        nvmlDeviceGetHandleByPciBusId=board_at,
        nvmlDeviceGetTotalEnergyConsumption=tell("millijoules"),
        nvmlDeviceGetPowerUsage=tell("milliwatts"),
        NVMLError=OSError,
    )
    return said


def test_a_gpus_counter_is_in_millijoules_and_goes_before_everything_else(gpu):
    meter = find_energy_meter("cuda")
    assert isinstance(meter, Nvml)
    assert meter.method.startswith("counter")
    meter.start()
    assert meter.stop() == pytest.approx(7.5)


def test_the_board_is_found_by_its_place_on_the_bus_and_not_by_pytorchs_index(gpu):
    find_energy_meter("cuda", 1)
    assert set(gpu["asked"]) == {b"00000001:0A:00.0"}
    gpu["asked"].clear()
    gpu["millijoules"] = 0
    find_energy_meter("cuda", 0)
    assert set(gpu["asked"]) == {b"00000000:65:00.0"}


def test_a_gpu_without_an_energy_counter_has_its_power_polled(gpu):
    gpu["millijoules"] = OSError("Not Supported")
    counter, power, _ = energy_sources("cuda")
    assert not counter.usable
    assert "cannot read the GPU board's energy: Not Supported" in counter.why
    assert power.usable
    assert isinstance(find_energy_meter("cuda"), NvmlPower)


def test_polled_power_times_the_time_is_the_energy(gpu):
    clock = FakeClock()
    meter = NvmlPower(0, clock)
    meter.start()
    clock.sleep(4.0)
    assert meter.stop() == pytest.approx(50 * 4.0)
    assert meter.method.startswith("polled: NVML")


def test_power_is_straight_between_two_looks():
    assert energy_of([(0.0, 100.0), (2.0, 300.0)]) == pytest.approx(400.0)
    assert energy_of([(5.0, 100.0)]) == 0.0


def test_a_board_that_stops_to_tell_its_power_is_an_energy_error(gpu):
    meter = NvmlPower(0)
    meter.start()
    gpu["milliwatts"] = OSError("GPU is lost")
    with pytest.raises(EnergyError, match="GPU is lost"):
        meter.stop()


def test_a_gpu_that_tells_nothing_leaves_the_estimate(gpu, monkeypatch):
    gpu["millijoules"] = gpu["milliwatts"] = OSError("Not Supported")
    install(monkeypatch, "codecarbon")
    assert isinstance(find_energy_meter("cuda"), CodeCarbon)
