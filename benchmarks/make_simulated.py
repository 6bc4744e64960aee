"""Make src/favor/simulation/simulated.csv: every model of the zoo on every built-in device, inference with amp.

python benchmarks/make_simulated.py --keep DIR        about 6 minutes on two cores

Run it again when a model, a device, or the calibration changes; tests compare the file with the simulation and the
zoo. DIR is a study for the results, so that a stopped run can continue; a new one starts over.
"""

import argparse
from pathlib import Path

from favor.records.store import FILE_NAME as STUDY_FILE
from favor.records.store import append, read
from favor.simulation.calibration import shipped_calibration
from favor.simulation.devices import built_in_devices
from favor.simulation.pool import simulate_several
from favor.simulation.shipped import FILE_NAME, to_csv
from favor.simulation.simulation import SimulationRequest
from favor.zoo.registry import list_models

HERE = Path(__file__).parent.parent / "src" / "favor" / "simulate"


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--keep", type=Path, required=True, metavar="DIR", help="study for the results")
    study: Path = parser.parse_args().keep
    calibration, devices = shipped_calibration(), built_in_devices()
    kept = read(study).records if (study / STUDY_FILE).exists() else ()
    made = {record.name for record in kept if record.status != "failed"}
    missing = [name for name in list_models() if name not in made]
    for found in simulate_several(missing, devices, SimulationRequest(), calibration, {}):
        append(study, found.records)
        print(found.name, found.records[0].status, found.records[0].reason or "", flush=True)
    (HERE / FILE_NAME).write_text(to_csv(read(study).records), encoding="utf-8")


if __name__ == "__main__":
    main()
