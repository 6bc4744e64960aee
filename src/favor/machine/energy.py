"""The energy of a workload: from the device's counter, else its polled power, else estimated by codecarbon.

Without any of them there is no meter and no figure: a guess must not look like a measurement.
"""

import importlib
import importlib.util
import threading
from collections.abc import Sequence
from dataclasses import dataclass
from itertools import pairwise
from pathlib import Path
from typing import Any, Protocol

from favor.errors import WorkError
from favor.machine.clock import Clock, WallClock
from favor.machine.footprint import JOULES_PER_KWH

POWERCAP = Path("/sys/class/powercap")
POLL_SECONDS = 0.1


class EnergyError(WorkError):
    """A meter failed; the other measurements do not depend on it."""


class EnergyMeter(Protocol):
    """Measures the energy between `start` and `stop`, or raises an EnergyError."""

    method: str

    def start(self) -> None: ...

    def stop(self) -> float:
        """Joules since `start`."""


@dataclass(frozen=True)
class EnergySource:
    """A way to measure energy: whether it is available on this machine, and if not, why."""

    name: str
    usable: bool
    why: str


class Rapl:
    """The energy counters of the processor packages; they include everything else that runs there."""

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
    """The energy counter of the GPU board."""

    method = "counter: NVML, the GPU board alone"

    def __init__(self, index: int) -> None:
        self._library, self._board = nvml_board(index)
        self._before = 0
        self._millijoules()

    def _millijoules(self) -> int:
        try:
            return self._library.nvmlDeviceGetTotalEnergyConsumption(self._board)
        except self._library.NVMLError as error:
            raise EnergyError(f"NVML cannot read the GPU board's energy: {error}") from error

    def start(self) -> None:
        self._before = self._millijoules()

    def stop(self) -> float:
        return (self._millijoules() - self._before) / 1e3


class NvmlPower:
    """The GPU board's power, polled: for boards without an energy counter."""

    method = f"polled: NVML, the GPU board's power every {POLL_SECONDS:g} s"

    def __init__(self, index: int, clock: Clock | None = None) -> None:
        self._library, self._board = nvml_board(index)
        self._clock = clock or WallClock()
        self._samples: list[tuple[float, float]] = []
        self._ended = threading.Event()
        self._thread: threading.Thread | None = None
        self._failure: EnergyError | None = None
        self._look()

    def _look(self) -> None:
        try:
            milliwatts = self._library.nvmlDeviceGetPowerUsage(self._board)
        except self._library.NVMLError as error:
            raise EnergyError(f"NVML cannot read the GPU board's power: {error}") from error
        self._samples.append((self._clock.now(), milliwatts / 1e3))

    def _poll(self) -> None:
        try:
            while not self._ended.wait(POLL_SECONDS):
                self._look()
        except EnergyError as error:
            self._failure = error

    def start(self) -> None:
        self._samples, self._failure = [], None
        self._ended.clear()
        self._look()
        self._thread = threading.Thread(target=self._poll, daemon=True)
        self._thread.start()

    def stop(self) -> float:
        self._ended.set()
        if self._thread is not None:
            self._thread.join()
        if self._failure is not None:
            raise self._failure
        self._look()
        return energy_of(self._samples)


def energy_of(samples: Sequence[tuple[float, float]]) -> float:
    """Joules from samples of power (seconds, watts), by the trapezoidal rule.

    >>> energy_of([(0.0, 100.0), (1.0, 200.0), (3.0, 200.0)])
    550.0
    """
    return sum((later - sooner) * (low + high) / 2 for (sooner, low), (later, high) in pairwise(samples))


def nvml_board(index: int) -> tuple[Any, Any]:
    """The NVML library and its handle of the GPU with this PyTorch index.

    The two number GPUs differently if `CUDA_VISIBLE_DEVICES` hides or reorders some, so the bus address is compared.
    """
    import torch

    library: Any = importlib.import_module("pynvml")
    gpu: Any = torch.cuda.get_device_properties(index)
    address = f"{gpu.pci_domain_id:08X}:{gpu.pci_bus_id:02X}:{gpu.pci_device_id:02X}.0"
    try:
        library.nvmlInit()
        return library, library.nvmlDeviceGetHandleByPciBusId(address.encode())
    except library.NVMLError as error:
        raise EnergyError(f"NVML does not know the GPU at {address}: {error}") from error


class CodeCarbon:
    """codecarbon's offline tracker: it polls what it can and assumes rated power for the rest."""

    method = "estimated: codecarbon offline, the whole machine (processor, memory, GPUs)"

    def __init__(self) -> None:
        self._tracker: Any = None

    def start(self) -> None:
        # codecarbon probes the whole machine, so any exception is possible.
        try:
            library: Any = importlib.import_module("codecarbon")
            # A tracker serves one measurement only. The country affects only the carbon, which we do not use.
            self._tracker = library.OfflineEmissionsTracker(
                country_iso_code="USA",
                save_to_file=False,
                measure_power_secs=1,
                log_level="error",
                allow_multiple_runs=True,
            )
            self._tracker.start()
        except Exception as error:
            raise EnergyError(f"codecarbon cannot start: {type(error).__name__}: {error}") from error

    def stop(self) -> float:
        try:
            self._tracker.stop()
        except Exception as error:
            raise EnergyError(f"codecarbon cannot stop: {type(error).__name__}: {error}") from error
        # It swallows its own errors, and then has no energy.
        data = getattr(self._tracker, "final_emissions_data", None)
        if data is None:
            raise EnergyError("codecarbon gave no energy for the measurement; upgrade codecarbon or uninstall it")
        return float(data.energy_consumed) * JOULES_PER_KWH


def find_energy_meter(device_kind: str, device_index: int = 0, powercap: Path = POWERCAP) -> EnergyMeter | None:
    """The best meter for a device: its counter, else its polled power, else codecarbon, else none."""
    for source in energy_sources(device_kind, device_index, powercap):
        if not source.usable:
            continue
        if source.name == "nvml":
            return Nvml(device_index)
        if source.name == "nvml power":
            return NvmlPower(device_index)
        if source.name == "rapl":
            return Rapl(_packages(powercap))
        return CodeCarbon()
    return None


def energy_sources(device_kind: str, device_index: int = 0, powercap: Path = POWERCAP) -> tuple[EnergySource, ...]:
    """The ways to measure a device's energy, the best first, each with why it is or is not available."""
    own: tuple[EnergySource, ...] = ()
    if device_kind == "cuda":
        own = _nvml_sources(device_index)
    elif device_kind == "cpu":
        own = (_rapl_source(powercap),)
    return (*own, _codecarbon_source())


def _rapl_source(powercap: Path) -> EnergySource:
    packages = _packages(powercap)
    if not packages:
        return EnergySource("rapl", False, f"no package counters under {powercap}")
    try:
        for package in packages:
            _number(package / "energy_uj")
    except EnergyError as error:
        return EnergySource("rapl", False, str(error))
    return EnergySource("rapl", True, f"{len(packages)} package counter(s)")


def _packages(powercap: Path) -> list[Path]:
    """The folders of whole packages, without those of their parts (cores, DRAM) and of the platform."""
    folders = sorted(powercap.glob("intel-rapl:*")) if powercap.is_dir() else []
    return [folder for folder in folders if _domain(folder).startswith("package")]


def _domain(folder: Path) -> str:
    """What a counter counts, such as `package-0`, `dram` or `psys`; empty if unknown."""
    name = folder / "name"
    return name.read_text().strip() if name.is_file() and (folder / "energy_uj").exists() else ""


def _nvml_sources(index: int) -> tuple[EnergySource, ...]:
    if importlib.util.find_spec("pynvml") is None:
        return (EnergySource("nvml", False, "not installed; `pip install nvidia-ml-py`"),)
    ways: tuple[tuple[str, type[Nvml | NvmlPower], str], ...] = (
        ("nvml", Nvml, "energy counter of the GPU board"),
        ("nvml power", NvmlPower, "power of the GPU board, polled"),
    )
    return tuple(_nvml_source(name, meter, index, what) for name, meter, what in ways)


def _nvml_source(name: str, meter: "type[Nvml | NvmlPower]", index: int, what: str) -> EnergySource:
    try:
        meter(index)
    except EnergyError as error:
        return EnergySource(name, False, str(error))
    return EnergySource(name, True, what)


def _codecarbon_source() -> EnergySource:
    if importlib.util.find_spec("codecarbon") is None:
        return EnergySource("codecarbon", False, "not installed; `pip install 'favor[energy]'`")
    return EnergySource("codecarbon", True, "an estimate, not a counter")


def _number(file: Path) -> int:
    try:
        return int(file.read_text())
    except PermissionError as error:
        raise EnergyError(f"only root can read {file}") from error
    except (OSError, ValueError) as error:
        raise EnergyError(f"{file} has no number: {error}") from error
