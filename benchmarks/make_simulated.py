"""Make src/favor/simulate/simulated.csv: every model of the zoo on every built-in device, inference in mixed precision.

python benchmarks/make_simulated.py        about 8 minutes on a quiet machine

To be run again when a model, a device, or the calibration changes; a test compares the file with the simulation.
"""

from importlib.resources import files

from favor.simulate.calibration import shipped_calibration
from favor.simulate.devices import built_in_devices
from favor.simulate.shipped import FILE_NAME, to_csv
from favor.simulate.simulation import Asked, simulate
from favor.zoo.registry import list_models


def main() -> None:
    calibration, devices, records = shipped_calibration(), built_in_devices(), []
    for name in list_models():
        found = simulate(name, devices, Asked(), calibration)
        records += found
        print(name, found[0].status, found[0].reason or "", flush=True)
    (files("favor.simulate") / FILE_NAME).write_text(to_csv(records), encoding="utf-8")


if __name__ == "__main__":
    main()
