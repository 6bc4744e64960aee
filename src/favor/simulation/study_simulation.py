"""Simulations for a study: its measurements correct the times, and what it has already is not simulated again."""

from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path

from favor.records.schema import Record
from favor.records.store import append, has_records, read
from favor.simulation.calibration import Calibration, shipped_calibration
from favor.simulation.correction import Correction
from favor.simulation.devices import Device
from favor.simulation.pool import Simulated, already_simulated, simulate_several
from favor.simulation.simulation import SimulationRequest
from favor.simulation.study_correction import local_corrections


@dataclass(frozen=True)
class SimulationPlan:
    """The models that are left for each request, and the records that the study has of the others."""

    devices: tuple[Device, ...]
    calibration: Calibration
    corrections: Mapping[str, Correction]
    study: Path | None
    done: tuple[Record, ...]
    left: Mapping[SimulationRequest, tuple[str, ...]]

    def run(self) -> Iterator[Simulated]:
        """Simulate what is left; the study gets the records as they come."""
        for request, names in self.left.items():
            for simulated in simulate_several(names, self.devices, request, self.calibration, self.corrections):
                if self.study is not None and simulated.records:
                    append(self.study, simulated.records)
                yield simulated


def plan_simulations(
    names: Sequence[str], devices: Sequence[Device], requests: Sequence[SimulationRequest], study: Path | None
) -> SimulationPlan:
    """The plan for models on devices; all requests share a precision and a runtime."""
    records = read(study).records if study is not None and has_records(study) else ()
    calibration, first = shipped_calibration(), requests[0]
    for device in devices if first.precision == "bf16" else ():
        device.peak_flops("bf16")  # refused before any model is traced
    corrections = local_corrections(records, devices, first.precision, calibration, first.runtime) if records else {}
    done: list[Record] = []
    left: dict[SimulationRequest, tuple[str, ...]] = {}
    for request in requests:
        kept = already_simulated(names, devices, request, calibration, corrections, records)
        done += [record for of_model in kept.values() for record in of_model]
        left[request] = tuple(name for name in names if name not in kept)
    return SimulationPlan(tuple(devices), calibration, corrections, study, tuple(done), left)
