"""Make src/favor/simulation/calibration.json from timm's published tables of several GPUs.

T=where/timm_results
python benchmarks/fit_simulation.py --cache DIR [--models benchmarks/fit_models.txt] \\
    --inference rtx3090=$T/benchmark-infer-amp-nchw-pt240-cu124-rtx3090.csv \\
    --inference rtx4090=$T/benchmark-infer-amp-nchw-pt240-cu124-rtx4090.csv \\
    --inference rtx5090=$T/benchmark-infer-amp-nchw-pt291-cu130-5090.csv \\
    --inference rtx4090=$T/benchmark-infer-amp-nchw-pt240-cu124-rtx4090-dynamo.csv \\
    [--training rtx3090=$T/benchmark-train-amp-nchw-pt112-cu113-rtx3090.csv]

Nearly all of the time is tracing, 1 to 2 s of processor time per network and table; the cache folder keeps the traces.
Prints the errors with families held out, with devices held out, and the rates of the devices, which go into their
files by hand. Without --training, the factors of training stay as they are.
"""

import argparse
import random
from collections.abc import Sequence
from dataclasses import replace
from importlib.resources import files
from pathlib import Path

import numpy as np

from favor.simulation.calibration import FILE_NAME, Calibration, Residuals, from_json, shipped_calibration
from favor.simulation.correction import NO_CORRECTION
from favor.simulation.devices import Device, device
from favor.simulation.fitting.fit import Fitted, Observation, fit, fit_training, hold_out_device, hold_out_families
from favor.simulation.fitting.timm_tables import Row, judged, rows_of, traced_rows
from favor.simulation.spread import Z, spread

FOLDS = 5
TRAINING_ROWS = 90
SET_BY_HAND = {"matrix": 0.05, "lanes": 0.2, "memory": 0.05, "host": 0.35, "full": 0.2, "training_elsewhere": 0.2}
"""The uncertainties of another device's rates, beyond those in its file, of float32 products everywhere, and of
training on another device. Leaving out one device at a time shows whether they are wide enough, and published times of
training (docs/simulation-accuracy.md)."""
UNKNOWN = {"sustained_deviation": 0.1, "compute_capability": 8.9}
"""The description of a device that no table shows; what is special about Blackwell is known from one of the tables."""
WIDTHS = (0.10, 0.13, 0.16)
"""Values of `bandwidth_deviation` that are tried on a device that no table shows."""
SAME_MEMORY = {"rtx3090": ["rtx4090"], "rtx4090": ["rtx3090"]}
"""The device with the same kind of memory (GDDR6X), whose rates a held-out device gets; others get the mean of all."""

Observed = list[tuple[Row, Observation]]


def main() -> None:
    arguments = _arguments()
    names = None if arguments.models is None else set(arguments.models.read_text(encoding="utf-8").split())
    tables = [_observed(file, device(on), names, arguments.cache) for on, file in arguments.inference]
    observed = [each for table in tables for each in table]
    observations = [each for _, each in observed]
    start = None if arguments.start is None else from_json(arguments.start.read_text(encoding="utf-8"))
    found = hold_out_families(observations, FOLDS, start)
    eager, compiled = (np.array([row.compiled == fused for row, _ in observed], dtype=bool) for fused in (False, True))
    for title, some in (("families held out, eager", eager), ("families held out, compiled", compiled)):
        for on in sorted({row.device for (row, _), one in zip(observed, some, strict=True) if one}):
            here = some & np.array([row.device == on for row, _ in observed])
            _report(f"{title}, {on}", found[here], [each for each, one in zip(observed, here, strict=True) if one])
    fitted = fit(observations, [file.name for _, file in arguments.inference], start)
    for place in fitted.devices.values():
        rates = f"sustained {place.sustained:.3f}, sustained_bandwidth {place.sustained_bandwidth:.3f}"
        print(f"{place.name}: {rates}")
    seconds = np.array([each.seconds for each in observations])
    residuals = Residuals(
        within=_deviation(found[eager], seconds[eager]),
        compiled=_deviation(found[compiled], seconds[compiled]) if compiled.any() else 0.0,
        training=shipped_calibration().residuals.training,
        **SET_BY_HAND,
    )
    calibration = replace(
        fitted.calibration,
        devices_compiled=tuple(dict.fromkeys(each.device.name for row, each in observed if row.compiled)),
        devices_training=shipped_calibration().devices_training,
        networks=len({(row.architecture, row.img_size) for row, _ in observed}),
        residuals=residuals,
        training=shipped_calibration().training,
    )
    if arguments.training:
        calibration = _with_training(arguments, fitted, calibration)
    (files("favor.simulation") / FILE_NAME).write_text(calibration.to_json(), encoding="utf-8")
    for on in calibration.devices:
        _without(on, observed, calibration, start)


def _without(on: str, observed: Observed, calibration: Calibration, start: Calibration | None) -> None:
    """Print the accuracy on a device by a fit that has not seen it, and how many times are in their intervals."""
    others = [each for each in calibration.devices if each != on]
    fitted, described = hold_out_device([each for _, each in observed], on, SAME_MEMORY.get(on, others), start)
    place = described.model_copy(update=UNKNOWN)
    wider = [place.model_copy(update={"bandwidth_deviation": width}) for width in WIDTHS]
    knows = replace(
        fitted.calibration, residuals=calibration.residuals, device=calibration.device, training=calibration.training
    )
    for title, fused in (("eager", False), ("compiled", True)):
        some = [(row, each) for row, each in observed if each.device.name == on and row.compiled == fused]
        if some:
            here = Fitted(knows, {on: place})
            estimates = [here.estimate(each) for _, each in some]
            seconds = np.array([each.seconds for each in estimates])
            _report(f"{on} held out, {title}", seconds, some)
            off = np.abs(np.log(np.array([each.seconds for _, each in some]) / seconds))
            for each in wider:
                own = np.array([spread(one, each, knows, NO_CORRECTION, compiled=fused) for one in estimates])
                print(f"  inside, bandwidth_deviation {each.bandwidth_deviation}: {np.mean(off <= Z * own):.1%}")


def _with_training(arguments: argparse.Namespace, fitted: Fitted, calibration: Calibration) -> Calibration:
    """The calibration with the factors of training, and their spread beyond that of inference."""
    on, file = arguments.training
    rows = rows_of(file)
    chosen = random.Random(0).sample(rows, min(TRAINING_ROWS, len(rows)))  # noqa: S311 - a sample, no secret
    observed = _traced(chosen, fitted.devices[on], arguments.cache / file.stem)
    observations = [each for _, each in observed]
    calibration = replace(calibration, training=fit_training(observations, calibration))
    simulated = Fitted(calibration.in_training(), {}).seconds(observations)
    _report(f"training, {calibration.training}", simulated, observed)
    own = _deviation(simulated, np.array([each.seconds for each in observations]))
    left = max(0.0, own**2 - calibration.residuals.within**2) ** 0.5
    return replace(calibration, devices_training=(on,), residuals=replace(calibration.residuals, training=left))


def _observed(file: Path, place: Device, names: set[str] | None, cache: Path) -> Observed:
    rows = [row for row in rows_of(file) if names is None or f"{row.architecture}@{row.img_size}" in names]
    return _traced(rows, place, cache / file.stem)


def _traced(rows: Sequence[Row], place: Device, cache: Path) -> Observed:
    kept, traced, left_out = traced_rows(list(rows), cache)
    print(f"left out {len(left_out)} of {len(rows)}:", *(why[:150] for why in left_out), sep="\n  ")
    return [(row, Observation(each, row.seconds, place, row.version)) for row, each in zip(kept, traced, strict=True)]


def _report(title: str, simulated: np.ndarray, observed: Observed) -> None:
    seconds, images = (np.array([getattr(row, name) for row, _ in observed]) for name in ("seconds", "batch_size"))
    good = judged(simulated / images, seconds / images)
    print(
        f"{title} ({len(observed)}): Spearman {good.spearman:.4f}, median {good.median:.1%}, p90 {good.p90:.1%}, "
        f"offset {np.median(np.log(seconds / simulated)):+.3f}",
        flush=True,
    )


def _deviation(simulated: np.ndarray, seconds: np.ndarray) -> float:
    """The standard deviation whose 95 % interval covers 95 % of the true times."""
    return float(np.quantile(np.abs(np.log(simulated / seconds)), 0.95) / Z)


def _table(text: str) -> tuple[str, Path]:
    on, _, file = text.partition("=")
    return device(on).name, Path(file)


def _arguments() -> argparse.Namespace:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument(
        "--inference", type=_table, action="append", required=True, metavar="DEVICE=FILE", help="a table of speeds"
    )
    parser.add_argument("--training", type=_table, metavar="DEVICE=FILE", help="a table of training speeds")
    parser.add_argument("--models", type=Path, help="fit these networks only: NAME@PIXELS, separated by white space")
    parser.add_argument("--start", type=Path, help="an earlier calibration.json as the prior, for a sample of networks")
    parser.add_argument("--cache", type=Path, required=True, help="folder for the traces")
    return parser.parse_args()


if __name__ == "__main__":
    main()
