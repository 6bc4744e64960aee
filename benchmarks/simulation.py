"""The accuracy of simulated times on one of timm's speed tables, compared with baselines.

python benchmarks/simulation.py --truth benchmark-infer-amp-nchw-pt240-cu124-rtx3090.csv --on rtx3090 [--limit 200]
python benchmarks/simulation.py --truth ...rtx3090.csv --on rtx3090 --hold-out     families held out, refitted
python benchmarks/simulation.py --truth ...h100.csv --on h100 --reference ...rtx3090.csv

Any of timm's GPU speed tables works: NCHW or NHWC, amp, bf16, fp16 or fp32, inference or training. The file name
gives the conditions. It takes a second or two per model; --cache DIR keeps the traces, so that it can be stopped
and run again. The baselines by multiply-adds, activations and bytes have one factor each, fitted to the true times;
the simulation and the scaling by bandwidth have none, unless stated.
"""

import argparse
import random
import sys
from collections.abc import Callable
from pathlib import Path

import numpy as np

from favor.errors import FavorError, RequestError
from favor.simulation.calibration import shipped_calibration
from favor.simulation.correction import NO_CORRECTION
from favor.simulation.devices import Device, device, known_as
from favor.simulation.fitting.fit import Observation, hold_out_families, of_version
from favor.simulation.fitting.timm_tables import Row, Traced, judged, rows_of, traced_rows
from favor.simulation.spread import Z, spread
from favor.simulation.time_model import estimate_counted

FOLDS = 10


def main() -> None:
    try:
        _compare(_arguments())
    except FavorError as error:
        sys.exit(f"error: {error}")


def _compare(arguments: argparse.Namespace) -> None:
    place = device(arguments.on)
    rows = rows_of(arguments.truth, by_timm=not arguments.plain)
    if not known_as(place, rows[0].device):
        print(f"note: the table's device is {rows[0].device}, which is not a name of {place.name}")
    if rows[0].compiled:
        print(f"note: the table is of compiled networks, simulated as {'fused' if rows[0].is_fused else 'eager'} ones")
    if arguments.limit is not None and arguments.limit < len(rows):
        rows = random.Random(0).sample(rows, arguments.limit)  # noqa: S311 - a sample, no secret
    asked = len(rows)
    rows, traced, left_out = traced_rows(rows, arguments.cache)
    if not rows:
        raise RequestError(f"none of {asked} rows can be traced; the first: {left_out[0]}")
    print(f"left out: {len(left_out)} of {asked} rows, whose network this timm does not have or cannot be traced")
    images = np.array([row.batch_size for row in rows])
    true = np.array([row.seconds for row in rows]) / images
    print(f"{arguments.truth.name}: {len(rows)} rows on {place.title}\n")
    print("| time of an image | networks | Spearman | median error | p90 error | in the 95 % interval |")
    print("|---|---:|---:|---:|---:|---:|")
    calibration = shipped_calibration()
    calibration = calibration if rows[0].is_fused else of_version(calibration, rows[0].version)
    calibration = calibration.in_training() if rows[0].training else calibration
    found = [estimate_counted(place, each.kernels, each.counts, calibration) for each in traced]
    simulated = np.array([each.seconds for each in found]) / images
    reference = device(calibration.device)
    as_run = {"training": rows[0].training, "compiled": rows[0].is_fused}
    deviations = np.array([spread(each, place, calibration, NO_CORRECTION, **as_run) for each in found])
    _report("simulated", simulated, true, deviations)
    by_image = dict(zip([row.key for row in rows], simulated, strict=True))
    _baseline("simulated, given a factor as the baselines are", rows, true, lambda row: by_image[row.key])
    if arguments.hold_out:
        observations = [
            Observation(each, row.seconds, place, row.version) for row, each in zip(rows, traced, strict=True)
        ]
        held_out = hold_out_families(observations, FOLDS) / images
        _report("simulated, its family held out of the fit", held_out, true, deviations)
    _baseline("multiply-adds", rows, true, lambda row: row.macs)
    _baseline("activations", rows, true, lambda row: row.activations)
    if arguments.reference is not None:
        elsewhere = {(row.architecture, row.img_size): row for row in rows_of(arguments.reference)}
        scale = reference.bandwidth / place.bandwidth
        title = f"{reference.name}'s time x {scale:.2f}, by bandwidth"
        _baseline(title, rows, true, lambda row: _scaled(elsewhere.get((row.architecture, row.img_size)), scale), False)
    moved = dict(zip([row.key for row in rows], [_bytes_time(each, place) for each in traced], strict=True))
    _baseline("bytes over bandwidth", rows, true, lambda row: moved[row.key] / row.batch_size)


def _scaled(row: Row | None, scale: float) -> float | None:
    return None if row is None else scale * row.seconds / row.batch_size


def _bytes_time(traced: Traced, place: Device) -> float:
    moved = sum(kernel.bytes_moved * count for kernel, count in zip(traced.kernels, traced.counts, strict=True))
    return moved / place.bandwidth


def _baseline(
    title: str, rows: list[Row], true: np.ndarray, per_image: Callable[[Row], float | None], fitted: bool = True
) -> None:
    known = [(value, seconds) for row, seconds in zip(rows, true, strict=True) if (value := per_image(row))]
    if len({value for value, _ in known}) < 2:  # a constant has no ranks
        return
    guess, seconds = np.array(known).T
    if fitted:
        guess = guess * np.exp(np.median(np.log(seconds / guess)))
    _report(title, guess, seconds, None)


def _report(title: str, simulated: np.ndarray, true: np.ndarray, deviations: np.ndarray | None) -> None:
    good = judged(simulated, true)
    held = "" if deviations is None else f"{np.mean(np.abs(np.log(simulated / true)) <= Z * deviations):.1%}"
    print(f"| {title} | {len(true)} | {good.spearman:.4f} | {good.median:.1%} | {good.p90:.1%} | {held} |")


def _count(text: str) -> int:
    if (count := int(text)) < 1:
        raise argparse.ArgumentTypeError("must be 1 or more")
    return count


def _arguments() -> argparse.Namespace:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--truth", type=Path, required=True, help="one of timm's benchmark-*.csv, under its own name")
    parser.add_argument("--on", required=True, help="the device of the table")
    parser.add_argument("--reference", type=Path, help="the table of the fit's device, for scaling by bandwidth")
    parser.add_argument("--hold-out", action="store_true", help="refit without each family; for the device of the fit")
    parser.add_argument(
        "--plain",
        action="store_true",
        help="not by timm's script: norms in float32 under autocast, TF32 for convolutions alone, as PyTorch has it",
    )
    parser.add_argument("--limit", type=_count, help="only this many rows, drawn at random")
    parser.add_argument("--cache", type=Path, help="folder that keeps the traces")
    return parser.parse_args()


if __name__ == "__main__":
    main()
