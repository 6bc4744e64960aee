"""How well the simulation transfers to other GPUs: on all published times, and leave-one-source-out.

python benchmarks/simulation_transfer.py [--cache DIR]         about 3 minutes, half a minute with the traces kept

Three parameters were set by half-precision times: how much less of faster tensor cores models use, the operations
per strided element, and the operations per other element. So each source is also simulated with these three fitted
to all other sources only.
The conditions are in the file names, the sources in published/README.md.
"""

import argparse
from collections.abc import Collection, Iterator, Sequence
from dataclasses import dataclass, replace
from pathlib import Path
from unittest import mock

import numpy as np
from scipy.optimize import least_squares

from favor.simulation import time_model
from favor.simulation.calibration import Efficiency, shipped_calibration
from favor.simulation.correction import NO_CORRECTION
from favor.simulation.devices import Device, device
from favor.simulation.fitting.fit import OPERATIONS
from favor.simulation.fitting.timm_tables import Row, Traced, judged, rows_of, traced_rows
from favor.simulation.spread import Z, spread
from favor.simulation.time_model import Estimate, estimate_counted

PUBLISHED = Path(__file__).parent / "published"
HALF = {
    "MambaVision, A100": ("infer-amp-nhwc-pt114-cu120-a100", "a100-80gb"),
    "Hiera, A100": ("infer-amp-nchw-pt113-cu117-a100", "a100"),
    "AITemplate, A100": ("infer-fp16-nchw-pt112-cu116-a100", "a100"),
    "NVIDIA, A100": ("infer-amp-nhwc-pt109-cu112-a100", "a100-80gb"),
    "NVIDIA, V100": ("infer-amp-nhwc-pt109-cu112-v100", "v100"),
    "NVIDIA, T4": ("infer-amp-nhwc-pt109-cu112-t4", "t4"),
    "DeiT III, V100": ("infer-amp-nchw-pt110-cu113-v100", "v100"),
    "CLIP, A10G": ("infer-fp16-nchw-pt231-cu121-a10g", str(PUBLISHED / "a10g.yaml")),
}
OTHERS = {
    "pycls, V100, float32": ("infer-fp32-nchw-pt106-cu92-v100", "v100"),
    "Swin, V100, float32": ("infer-fp32-nchw-pt108-cu102-v100", "v100"),
    "ToMe, V100, float32": ("infer-fp32-nchw-pt112-cu113-v100", "v100"),
    "NVIDIA, V100, float32": ("infer-fp32-nchw-pt109-cu112-v100", "v100"),
    "NVIDIA, T4, float32": ("infer-fp32-nchw-pt109-cu112-t4", "t4"),
    "Hugging Face, A100, float32": ("infer-fp32-nchw-pt201-cu117-a100", "a100"),
    "Hugging Face, V100, float32": ("infer-fp32-nchw-pt201-cu117-v100", "v100"),
    "Hugging Face, T4, float32": ("infer-fp32-nchw-pt201-cu117-t4", "t4"),
    "InceptionNeXt, A100, TF32": ("infer-fp32-nhwc-pt113-cu117-a100", "a100"),
    "TorchInductor, A100, training": ("train-amp-nchw-pt210-cu117-a100", "a100"),
    "TorchInductor, A100, training, TF32": ("train-fp32-nchw-pt210-cu117-a100", "a100"),
    "torch_benchmark, RTX 4090, training": ("train-fp16-nchw-pt210-cu121-rtx4090", "rtx4090"),
    "torch_benchmark, RTX 4090, training, TF32": ("train-fp32-nchw-pt210-cu121-rtx4090", "rtx4090"),
    "torch_benchmark, TITAN RTX, training": ("train-fp16-nchw-pt210-cu121-titanrtx", str(PUBLISHED / "titan-rtx.yaml")),
    "torch_benchmark, TITAN RTX, training, float32": (
        "train-fp32-nchw-pt210-cu121-titanrtx",
        str(PUBLISHED / "titan-rtx.yaml"),
    ),
}
ALLOW_TF32 = ("TF32",)
"""The name endings of sources whose scripts allow TF32 for all products, as timm's does."""
OUT_OF_ORDER = ("elementwise_strided", "transpose", "cat_strided", "rearrange", "gather")
USUAL, DEVIATIONS = np.array([0.25, np.log(30.0), np.log(0.5)]), np.array([0.25, 0.8, 0.8])
"""The prior of the three: slightly less of faster tensor cores, and about half of what was set per element."""
NOISE = 0.15


@dataclass(frozen=True)
class Settings:
    """The three parameters; `others` is a factor on what was set for contiguous elements."""

    fed_less: float
    to_find: float
    others: float = 1.0

    def estimate(self, point: "Point") -> Estimate:
        shipped = shipped_calibration()
        calibration = replace(shipped, classes={name: self._set(name, each) for name, each in shipped.classes.items()})
        if point.row.training:
            calibration = calibration.in_training()
        with mock.patch.object(time_model, "_FED_LESS", self.fed_less):
            return estimate_counted(point.place, point.traced.kernels, point.traced.counts, calibration)

    def _set(self, name: str, shipped: Efficiency) -> Efficiency:
        if name in OUT_OF_ORDER:
            return replace(shipped, lanes=self.to_find)
        return replace(shipped, lanes=self.others * shipped.lanes) if name in OPERATIONS else shipped


@dataclass(frozen=True)
class Point:
    """One published time."""

    source: str
    place: Device
    row: Row
    traced: Traced


def main() -> None:
    arguments = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    arguments.add_argument("--cache", type=Path, help="folder that keeps the traces")
    cache = arguments.parse_args().cache
    shipped = Settings(time_model._FED_LESS, shipped_calibration().classes["transpose"].lanes)
    _head("half precision")
    half = list(_points(HALF, cache))
    for source in HALF:
        _report(source, [each for each in half if each.source == source], shipped)
    _report("all of these", half, shipped)
    without = {source: _fitted(half, HALF.keys() - {source}) for source in HALF}
    _report("all, each by what the other sources say", half, without)
    not_a100 = [source for source in HALF if "A100" not in source]
    on_a100 = [each for each in half if each.source not in not_a100]
    _report("A100, by what the other cards say", on_a100, _fitted(half, not_a100))
    _head("others")
    for source, where in OTHERS.items():
        _report(source, list(_points({source: where}, cache)), shipped)


def _head(title: str) -> None:
    print(f"\n| {title} | times | Spearman | median error | p90 error | in the 95 % interval |")
    print("|---|---:|---:|---:|---:|---:|")


def _points(sources: dict[str, tuple[str, str]], cache: Path | None) -> Iterator[Point]:
    for source, (name, place) in sources.items():
        file = PUBLISHED / f"benchmark-{name}.csv"
        kept = None if cache is None else cache / name
        rows, traced, left_out = traced_rows(rows_of(file, by_timm=source.endswith(ALLOW_TF32)), kept)
        for why in left_out:
            print(f"left out of {source}: {why}")
        yield from (Point(source, device(place), row, each) for row, each in zip(rows, traced, strict=True))


def _fitted(points: Sequence[Point], sources: Collection[str]) -> Settings:
    """The settings that explain the times of some sources best."""
    seen = [each for each in points if each.source in sources]

    def off(settings: np.ndarray) -> np.ndarray:
        these = _settings(settings)
        times = np.array([these.estimate(each).seconds for each in seen])
        misfit = np.log(times / np.array([each.row.seconds for each in seen])) / NOISE
        return np.concatenate([misfit, (settings - USUAL) / DEVIATIONS])

    best = least_squares(off, USUAL, loss="soft_l1", diff_step=0.02).x
    return _settings(best)


def _settings(numbers: np.ndarray) -> Settings:
    fed_less, to_find, others = numbers
    return Settings(float(fed_less), float(np.exp(to_find)), float(np.exp(others)))


def _report(title: str, points: Sequence[Point], settings: Settings | dict[str, Settings]) -> None:
    shipped = shipped_calibration()
    by_source = settings if isinstance(settings, dict) else dict.fromkeys([each.source for each in points], settings)
    found = [by_source[each.source].estimate(each) for each in points]
    images, true = (np.array([getattr(each.row, name) for each in points]) for name in ("batch_size", "seconds"))
    simulated = np.array([each.seconds for each in found])
    deviations = np.array(
        [
            spread(each, point.place, shipped, NO_CORRECTION, training=point.row.training)
            for each, point in zip(found, points, strict=True)
        ]
    )
    good = judged(simulated / images, true / images)
    inside = np.mean(np.abs(np.log(simulated / true)) <= Z * deviations)
    print(f"| {title} | {len(points)} | {good.spearman:.3f} | {good.median:.1%} | {good.p90:.1%} | {inside:.0%} |")


if __name__ == "__main__":
    main()
