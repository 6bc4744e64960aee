"""Make src/favor/simulation/calibration.json from timm's published tables of one GPU.

python benchmarks/fit_simulation.py --inference benchmark-infer-amp-nchw-pt240-cu124-rtx3090.csv \\
    --training benchmark-train-amp-nchw-pt112-cu113-rtx3090.csv --on rtx3090 --cache DIR

About 40 minutes on two quiet cores, nearly all of it tracing 1,400 networks; the cache folder keeps the traces, so that
the fit itself can be repeated in 3 minutes. Prints the leave-one-family-out errors.
"""

import argparse
import random
from dataclasses import replace
from importlib.resources import files
from pathlib import Path

import numpy as np

from favor.simulation.calibration import FILE_NAME, Calibration, Residuals, Training
from favor.simulation.devices import Device, device
from favor.simulation.fitting.fit import Observation, fit, fit_training, hold_out_families, times_on
from favor.simulation.fitting.timm_tables import Row, Traced, judged, rows_of, traced_rows
from favor.simulation.spread import Z

FOLDS = 10
TRAINING_ROWS = 90
SET_BY_HAND = {"matrix": 0.1, "lanes": 0.2, "memory": 0.1, "host": 0.35, "full": 0.2}
"""The uncertainties of another device's specification, and of float32 products everywhere. Not fitted: there is no
second eager table to fit it to."""


def main() -> None:
    arguments = _arguments()
    place = device(arguments.on)
    rows, traced = _traced(rows_of(arguments.inference), arguments.cache / "inference")
    observations = [Observation(each, row.seconds) for row, each in zip(rows, traced, strict=True)]
    print(f"{len(observations)} rows, {len({each.family for each in traced})} families")
    within = _report("families held out", hold_out_families(observations, place, FOLDS), rows)
    calibration = fit(observations, place, arguments.inference.name)
    training, left = _training(arguments, place, calibration, within)
    residuals = Residuals(within=within, training=left, **SET_BY_HAND)
    calibration = replace(calibration, residuals=residuals, training=training)
    (files("favor.simulation") / FILE_NAME).write_text(calibration.to_json(), encoding="utf-8")


def _training(
    arguments: argparse.Namespace, place: Device, calibration: Calibration, within: float
) -> tuple[Training, float]:
    """The factors of training, and their spread beyond that of inference."""
    all_rows = rows_of(arguments.training)
    chosen = random.Random(0).sample(all_rows, min(TRAINING_ROWS, len(all_rows)))  # noqa: S311 - a sample, no secret
    rows, traced = _traced(chosen, arguments.cache / "training")
    observations = [Observation(each, row.seconds) for row, each in zip(rows, traced, strict=True)]
    training = fit_training(observations, place, calibration)
    simulated = times_on(place, traced, replace(calibration, training=training).in_training())
    spread = _report(f"training, {training}", simulated, rows)
    return training, max(0.0, spread**2 - within**2) ** 0.5


def _traced(rows: list[Row], cache: Path) -> tuple[list[Row], list[Traced]]:
    kept, traced, left_out = traced_rows(rows, cache)
    print(f"left out {len(left_out)} of {len(rows)}:", *(why[:150] for why in left_out), sep="\n  ")
    return kept, traced


def _report(title: str, simulated: np.ndarray, rows: list[Row]) -> float:
    """Print the accuracy of times; returns the standard deviation whose 95 % interval covers 95 % of the true times."""
    seconds, images = (np.array([getattr(row, name) for row in rows]) for name in ("seconds", "batch_size"))
    good = judged(simulated / images, seconds / images)
    print(f"{title}: Spearman {good.spearman:.4f}, median {good.median:.1%}, p90 {good.p90:.1%}")
    return float(np.quantile(np.abs(np.log(simulated / seconds)), 0.95) / Z)


def _arguments() -> argparse.Namespace:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--inference", type=Path, required=True, help="timm's table of inference speeds")
    parser.add_argument("--training", type=Path, required=True, help="timm's table of training speeds")
    parser.add_argument("--on", default="rtx3090", help="the device of both tables")
    parser.add_argument("--cache", type=Path, required=True, help="folder for the traces")
    return parser.parse_args()


if __name__ == "__main__":
    main()
