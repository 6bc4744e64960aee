"""Energy of a stretch of work: from the device's counters where they can be read, else from codecarbon's estimate.

Where neither is to be had there is no meter and no figure: a guess must not look like a measurement.
"""

import importlib
import importlib.util
from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any, Protocol

from favor.errors import WorkError
from favor.measure.footprint import JOULES_PER_KWH

POWERCAP = Path("/sys/class/powercap")


class EnergyMeter(Protocol):
    """Something that tells the energy between `start` and `stop`."""

    method: str

    def start(self) -> None: ...

    def stop(self) -> float:
        """Joules since `start`."""


@dataclass(frozen=True)
class EnergySource:
    """A way to measure energy: whether it can be used here, and if not why."""

    name: str
    usable: bool
    why: str


class Rapl:
    """The processor packages' own energy counters; they include whatever else runs on the packages."""

    def __init__(self, packages: Sequence[Path]) -> None:
        self._packages = packages
        self._before: list[int] = []
        self.method = f"counter: RAPL, {len(packages)} whole processor package(s), without DRAM outside of them"

    def start(self) -> None:
        self._before = [_number(package / "energy_uj") for package in self._packages]

    def stop(self) -> float:
        total = 0
        for package, before in zip(self._packages, self._before, strict=True):
            spent = _number(package / "energy_uj") - before
            # The counter starts again at zero once it has reached its range.
            total += spent if spent >= 0 else spent + _number(package / "max_energy_range_uj")
        return total / 1e6


class Nvml:
    """The GPU board's own energy counter."""

    method = "counter: NVML, the GPU board alone"

    def __init__(self, index: int) -> None:
        self._library: Any = importlib.import_module("pynvml")
        self._library.nvmlInit()
        self._board = self._library.nvmlDeviceGetHandleByIndex(index)
        self._before = 0
        self._millijoules()

    def _millijoules(self) -> int:
        return self._library.nvmlDeviceGetTotalEnergyConsumption(self._board)

    def start(self) -> None:
        self._before = self._millijoules()

    def stop(self) -> float:
        return (self._millijoules() - self._before) / 1e3


class CodeCarbon:
    """codecarbon's offline tracker: it polls what it can and fills in rated power for the rest."""

    method = "estimated: codecarbon offline, the whole machine (processor, memory, GPUs)"

    def __init__(self) -> None:
        self._library: Any = importlib.import_module("codecarbon")
        self._tracker: Any = None

    def start(self) -> None:
        # A tracker serves one window only. The country decides the carbon, which we do not take from here.
        self._tracker = self._library.OfflineEmissionsTracker(
            country_iso_code="USA",
            save_to_file=False,
            measure_power_secs=1,
            log_level="error",
            allow_multiple_runs=True,
        )
        self._tracker.start()

    def stop(self) -> float:
        self._tracker.stop()
        data = self._tracker.final_emissions_data
        if data is None:
            raise WorkError("codecarbon gave no energy for the measurement; upgrade codecarbon or uninstall it")
        return float(data.energy_consumed) * JOULES_PER_KWH


def find_energy_meter(device_kind: str, device_index: int = 0, powercap: Path = POWERCAP) -> EnergyMeter | None:
    """The best meter for a device: its counter, else codecarbon, else none."""
    for source in energy_sources(device_kind, device_index, powercap):
        if source.usable and source.name == "nvml":
            return Nvml(device_index)
        if source.usable and source.name == "rapl":
            return Rapl(_packages(powercap))
        if source.usable and source.name == "codecarbon":
            return CodeCarbon()
    return None


def energy_sources(device_kind: str, device_index: int = 0, powercap: Path = POWERCAP) -> tuple[EnergySource, ...]:
    """The ways to measure a device's energy, the best first, each with why it can or cannot be used here."""
    counters: tuple[EnergySource, ...] = ()
    if device_kind == "cuda":
        counters = (_nvml_source(device_index),)
    elif device_kind == "cpu":
        counters = (_rapl_source(powercap),)
    return (*counters, _codecarbon_source())


def _rapl_source(powercap: Path) -> EnergySource:
    packages = _packages(powercap)
    if not packages:
        return EnergySource("rapl", False, f"no package counters under {powercap}")
    try:
        _number(packages[0] / "energy_uj")
    except PermissionError:
        return EnergySource("rapl", False, f"{packages[0] / 'energy_uj'} may be read by root only")
    return EnergySource("rapl", True, f"{len(packages)} package counter(s)")


def _packages(powercap: Path) -> list[Path]:
    """The folders of whole packages; their parts (cores, DRAM) are folders with a second colon."""
    folders = sorted(powercap.glob("intel-rapl:*")) if powercap.is_dir() else []
    return [folder for folder in folders if folder.name.count(":") == 1 and (folder / "energy_uj").exists()]


def _nvml_source(index: int) -> EnergySource:
    if importlib.util.find_spec("pynvml") is None:
        return EnergySource("nvml", False, "not installed; `pip install nvidia-ml-py`")
    library: Any = importlib.import_module("pynvml")
    try:
        Nvml(index)
    except library.NVMLError as error:
        return EnergySource("nvml", False, f"the driver has no energy counter for GPU {index}: {error}")
    return EnergySource("nvml", True, "energy counter of the GPU board")


def _codecarbon_source() -> EnergySource:
    if importlib.util.find_spec("codecarbon") is None:
        return EnergySource("codecarbon", False, "not installed; `pip install 'favor[energy]'`")
    return EnergySource("codecarbon", True, "an estimate, not a counter")


def _number(file: Path) -> int:
    return int(file.read_text())
