"""Make src/favor/simulation/simulated.csv: every model of the zoo on every built-in device with amp.

python benchmarks/make_simulated.py --keep DIR        25 minutes of processor time

Inference in eager mode and compiled at the best batch, and training steps of 2048 images for the models of the
benchmark's Table 5, since a training takes several times as long to simulate. Run it again when a model, a
device, or the calibration changes; tests compare the file with the simulation and the zoo. DIR is a study for the
results, so that a stopped run can continue; a new one starts over.
"""

import argparse
from collections.abc import Sequence
from pathlib import Path

from favor.records.schema import Record
from favor.records.store import FILE_NAME as STUDY_FILE
from favor.records.store import append, read
from favor.simulation.calibration import shipped_calibration
from favor.simulation.devices import built_in_devices
from favor.simulation.pool import simulate_several
from favor.simulation.shipped import FILE_NAME, to_csv
from favor.simulation.simulation import SimulationRequest
from favor.study.study_files import open_study
from favor.zoo.registry import list_models

HERE = Path(__file__).parent.parent / "src" / "favor" / "simulation"
REQUESTS = (
    SimulationRequest(),
    SimulationRequest(runtime="compile"),
    SimulationRequest(phase="training", batch_size="best"),
)


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--keep", type=Path, required=True, metavar="DIR", help="study for the results")
    parser.add_argument("--processes", type=int, help="worker processes (default: one per core)")
    arguments = parser.parse_args()
    study: Path = arguments.keep
    calibration, devices = shipped_calibration(), built_in_devices()
    for request in REQUESTS:
        made = {record.name for record in _of(request, study) if record.status != "failed"}
        missing = [name for name in _models(request) if name not in made]
        for found in simulate_several(missing, devices, request, calibration, {}, arguments.processes):
            append(study, found.records)
            told = found.records[0].reason or ""
            print(request.phase, request.runtime, found.name, found.records[0].status, told, flush=True)
    everything = [record for request in REQUESTS for record in _of(request, study)]
    (HERE / FILE_NAME).write_text(to_csv(everything), encoding="utf-8")


def _models(request: SimulationRequest) -> Sequence[str]:
    return list_models() if request.phase == "inference" else open_study("full")[0].models


def _of(request: SimulationRequest, study: Path) -> list[Record]:
    """The records of a request that the study has."""
    kept = read(study).records if (study / STUDY_FILE).exists() else ()
    asked = (request.phase, request.runtime)
    models = set(_models(request))
    return [r for r in kept if (r.task, r.conditions["runtime"]) == asked and r.name in models]


if __name__ == "__main__":
    main()
