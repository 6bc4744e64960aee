"""The fit: the efficiencies of all operator classes at once, from the times of whole models on several devices.

It fits the logarithm of every model's time with a pseudo-Huber loss, which limits the weight of outliers. A prior
keeps every efficiency near the usual value of its kind, so that rare classes stay plausible. Efficiencies are bounded:
products by the sustained peak, bytes by what a streaming kernel reaches. All devices share the efficiencies; each has
two rates of its own, the shares of its peak and of its bandwidth that it sustains.
"""

from collections.abc import Sequence
from dataclasses import dataclass, replace

import numpy as np
import torch
from scipy.optimize import least_squares
from torch import Tensor

from favor.simulation.calibration import Calibration, Efficiency, Residuals, Training
from favor.simulation.devices import Device
from favor.simulation.fitting.timm_tables import Traced
from favor.simulation.kernels import CLASSES
from favor.simulation.time_model import CACHE_COST, Demands, Estimate, demands_on, estimate_counted

TINY = 1e-15  # seconds, so that powers of zero have a gradient
MOST_MATRIX, MOST_MEMORY = 1.0, 0.95
"""The largest efficiencies: of the sustained peak, and of the bandwidth."""
USUAL_MATRIX = {
    "gemm": 0.85,
    "gemm_unaligned": 0.4,
    "bmm": 0.4,
    "bmm_unaligned": 0.2,
    "bmm_full": 0.3,
    "attention_flash": 0.6,
    "attention_efficient": 0.4,
    "conv": 0.75,
    "conv_pointwise": 0.75,
    "conv_pointwise_last": 0.75,
    "conv_first": 0.4,
    "conv_patch": 0.5,
    "conv_grouped": 0.4,
}
_WINOGRAD = 2.25
FULL_PRECISION = {
    "gemm_full": 1.15,
    "conv_full": 1.2,
    "conv_full_pointwise": 1.1,
    "conv_full_3x3": 1.2 * _WINOGRAD,
    "gemm_tf32": 0.6,
    "conv_tf32": 0.65,
}
"""Float32 products, on CUDA cores or as TF32 on tensor cores, as shares of the sustained peak. Tables of mixed
precision do not contain them, so these are set; those on CUDA cores come from published V100 times
(docs/simulation-accuracy.md). They exceed 1 where float32 sustains more of its peak than half precision, which
`sustained` describes, and by far with Winograd convolution, which needs fewer products than are counted."""
USUAL_MEMORY, USUAL_LOADS, USUAL_OTHER_MATRIX = 0.85, 4.0, 0.5
OPERATIONS = {
    **dict.fromkeys(("copy", "batch_norm", "batch_norm_last"), 16.0),
    **dict.fromkeys(("elementwise", "elementwise_mixed", "bias", "layout", "reduction"), 22.0),
    **dict.fromkeys(("fused", "fused_reduction", "fused_reduction_long", "fused_group_norm"), 22.0),
    **dict.fromkeys(("elementwise_spread", "cat", "pool", "fused_transpose", "fused_norm", "fused_pool"), 28.0),
    **dict.fromkeys(("layer_norm", "layer_norm_strided", "group_norm", "softmax"), 40.0),
    "cast": 45.0,
    "activation": 55.0,
    **dict.fromkeys(("elementwise_strided", "transpose", "cat_strided", "rearrange", "gather"), 70.0),
}
"""Float32 operations per element on CUDA cores: conversions, address computation and the arithmetic itself. They hide
behind memory on the device of the fit, which has 128 CUDA cores per multiprocessor, and show on devices with 64 and
more bandwidth, so they are not fitted. Their ratios follow the kernels: strided elements need an address each, and
PyTorch's casts check the type of every element, which takes 5.4 ps on an A100 and 4.1 ps on an H100 PCIe (its pull
requests 195542 and 137053). Their level was set by published half-precision times on V100, T4 and A100
(docs/simulation-accuracy.md)."""
DEVIATION = 0.7
"""Standard deviation of the log of an efficiency relative to the largest one, and of the loads of CUDA cores."""
START_DEVIATION = 0.5
"""The same for a class that an earlier calibration has."""
USUAL_CYCLES = {"tile_cycles": 600.0, "step_cycles": 500.0}
USUAL_KERNEL_SECONDS = 4e-6
_SHARED_DEVIATIONS = (0.5, 0.5, 0.05)
"""Of the logarithms of tile cycles, step cycles and kernel seconds. The last is almost fixed: kernels at the tables'
batch sizes take a millisecond, which says little about the microseconds of their start-up."""
NOISE = 0.05
"""Deviation of the logarithm of a time that the prior is weighed against."""
OUTLIER = 0.08
STEPS = 120
CARD_DEVIATIONS = (0.05, 0.1)
"""Of the logarithms of a device's sustained peak and sustained bandwidth, relative to its description."""
NEWER = (2, 9)
"""The first version of PyTorch in the tables whose kernels are told apart from those of 2.4."""
NEWER_DEVIATION = 0.1
"""Of the logarithm of the time of a class in newer versions. Only one device shows them, so that they are kept small:
what all classes share is the device's."""
SHOWS = 0.005
"""Factors of newer kernels closer to 1 than this are left out of the calibration."""
TINY_SHARE = 0.002
"""Kernels below this share of a model's time are not fitted; they are half of all kernels and 3 % of the time."""


@dataclass(frozen=True)
class Observation:
    """A model's kernels, how often each runs, the measured seconds, and where: the device and PyTorch's version."""

    traced: Traced
    seconds: float
    device: Device
    torch_version: tuple[int, ...] = (2, 4)

    @property
    def is_newer(self) -> bool:
        """Whether it ran on the kernels of a newer PyTorch."""
        return self.torch_version >= NEWER


def of_version(calibration: Calibration, torch_version: tuple[int, ...]) -> Calibration:
    """The calibration for the kernels of a version of PyTorch."""
    return calibration.in_newer_torch() if torch_version >= NEWER else calibration


@dataclass(frozen=True)
class Fitted:
    """A calibration, and the devices of the fit with the rates that fit best."""

    calibration: Calibration
    devices: dict[str, Device]

    def seconds(self, observations: Sequence[Observation]) -> np.ndarray:
        """The simulated seconds of observations."""
        return np.array([self.estimate(each).seconds for each in observations])

    def estimate(self, each: Observation) -> Estimate:
        """The simulated time of an observation."""
        place = self.devices.get(each.device.name, each.device)
        calibration = of_version(self.calibration, each.torch_version)
        return estimate_counted(place, each.traced.kernels, each.traced.counts, calibration)


class _Networks:
    """The demands of many models in one table."""

    def __init__(self, observations: Sequence[Observation], usual: Tensor) -> None:
        place = {name: index for index, name in enumerate(CLASSES)}
        self.devices = list(dict.fromkeys(each.device for each in observations))
        self.length = len(observations)
        self.seconds = torch.tensor([each.seconds for each in observations], dtype=torch.float64)
        parts: list[dict[str, Tensor]] = []
        for number, device in enumerate(self.devices):
            some = [index for index, each in enumerate(observations) if each.device == device]
            traced = [observations[index].traced for index in some]
            demands = demands_on(device, [kernel for each in traced for kernel in each.kernels])
            sizes = [len(each.kernels) for each in traced]
            parts.append(
                {
                    "owner": torch.from_numpy(np.repeat(some, sizes)),
                    "group": torch.tensor([place[group] for group in demands.groups]),
                    "counts": torch.tensor([count for each in traced for count in each.counts], dtype=torch.float64),
                    "device": torch.full((sum(sizes),), number),
                    "newer": torch.from_numpy(np.repeat([float(observations[i].is_newer) for i in some], sizes)),
                    **_tensors(demands),
                }
            )
        joined = {name: torch.cat([part[name] for part in parts]) for name in parts[0]}
        # Small kernels keep their usual time.
        matrix, lanes, memory = usual[:, joined["group"]]
        each = (matrix * joined["matrix"] + lanes * joined["lanes"] + memory * joined["memory"]) * joined["counts"]
        each = each + USUAL_KERNEL_SECONDS * joined["counts"]
        small = each < TINY_SHARE * self._summed(joined["owner"], each)[joined["owner"]]
        self.rest = self._summed(joined["owner"][small], each[small])
        self.table = {name: column[~small] for name, column in joined.items()}

    def _summed(self, owner: Tensor, seconds: Tensor) -> Tensor:
        return torch.zeros(self.length, dtype=torch.float64).index_add(0, owner, seconds)

    def times(self, prices: Tensor, shared: Tensor, slower: Tensor, newer: Tensor) -> Tensor:
        """The seconds of every model.

        `prices` are 3 x classes, `shared` the parameters common to all classes, `slower` those of the devices (2 x
        devices), `newer` the factors of newer kernels by class; the last three as logarithms.
        """
        table = self.table
        matrix, lanes, memory = prices[:, table["group"]]
        products, bytes_ = slower.exp()[:, table["device"]]
        tile_cycles, step_cycles, kernel_seconds = shared.exp()
        power = table["powers"]
        bound = (
            (products * matrix * table["matrix"] + tile_cycles * table["tiles"] + TINY) ** power
            + (lanes * table["lanes"] + TINY) ** power
            + (bytes_ * memory * table["memory"] + TINY) ** power
        ) ** (1 / power)
        bound = bound * (newer[table["group"]] * table["newer"]).exp()
        each = (bound + step_cycles * table["steps"] + kernel_seconds) * table["counts"]
        return self.rest + self._summed(table["owner"], each)


def _tensors(demands: Demands) -> dict[str, Tensor]:
    arrays = {
        "matrix": demands.matrix,
        "tiles": demands.tiles,
        "lanes": demands.lanes,
        "memory": demands.memory - (1 - CACHE_COST) * demands.cached,
        "steps": demands.steps,
        "powers": demands.exponents,
    }
    return {name: torch.from_numpy(np.asarray(array, dtype=np.float64)) for name, array in arrays.items()}


def fit(observations: Sequence[Observation], fitted_on: Sequence[str] = (), start: Calibration | None = None) -> Fitted:
    """The calibration that fits the times best; its residuals come from leave-one-out fits later.

    The first device is described as it is; the rates of the others may move away from their descriptions. A sample of
    models says little about rare classes: with `start`, an earlier calibration is the prior of the classes it has.
    """
    least = torch.tensor([[1 / MOST_MATRIX], [0.0], [1 / MOST_MEMORY]], dtype=torch.float64)
    usual = torch.tensor(
        [
            [1 / USUAL_MATRIX.get(name, USUAL_OTHER_MATRIX), OPERATIONS.get(name, USUAL_LOADS), 1 / USUAL_MEMORY]
            for name in CLASSES
        ],
        dtype=torch.float64,
    ).T
    deviation = torch.full_like(usual, DEVIATION)
    if start is not None:
        known = [name in start.classes and name not in FULL_PRECISION for name in CLASSES]
        before = torch.from_numpy(
            start.prices([name if has else CLASSES[0] for name, has in zip(CLASSES, known, strict=True)])
        )
        usual = torch.where(torch.tensor(known), before, usual)
        deviation = torch.where(torch.tensor(known), START_DEVIATION, deviation)
    networks = _Networks(observations, usual)
    prior = torch.log(usual - least).contiguous()
    is_set = torch.zeros_like(prior, dtype=torch.bool)
    is_set[1] = torch.tensor([name in OPERATIONS for name in CLASSES])
    cycles = USUAL_CYCLES.values() if start is None else (start.tile_cycles, start.step_cycles)
    shared_prior = torch.tensor([*cycles, USUAL_KERNEL_SECONDS], dtype=torch.float64).log()
    deviations = torch.tensor(_SHARED_DEVIATIONS, dtype=torch.float64)
    card_deviations = torch.tensor(CARD_DEVIATIONS, dtype=torch.float64)[:, None]
    losses, shared = prior.clone().requires_grad_(), shared_prior.clone().requires_grad_()
    moved = torch.zeros(2, len(networks.devices) - 1, dtype=torch.float64, requires_grad=True)
    newer = torch.zeros(len(CLASSES), dtype=torch.float64, requires_grad=True)
    wanted = networks.seconds.log()
    optimizer = torch.optim.LBFGS([losses, shared, moved, newer], max_iter=STEPS, line_search_fn="strong_wolfe")

    def prices() -> Tensor:
        return least + torch.where(is_set, prior, losses).exp()

    def slower() -> Tensor:
        return torch.cat([torch.zeros(2, 1, dtype=torch.float64), moved], dim=1)

    def objective() -> Tensor:
        optimizer.zero_grad()
        off = networks.times(prices(), shared, slower(), newer).log() - wanted
        misfit = (OUTLIER / NOISE) ** 2 * ((1 + (off / OUTLIER) ** 2).sqrt() - 1).sum()
        held = ((losses - prior) / deviation).square().sum() / 2
        held = held + ((shared - shared_prior) / deviations).square().sum() / 2
        held = held + (moved / card_deviations).square().sum() / 2
        held = held + (newer / NEWER_DEVIATION).square().sum() / 2
        total = misfit + held
        total.backward()
        return total

    optimizer.step(objective)
    tile_cycles, step_cycles, kernel_seconds = shared.detach().exp().tolist()
    efficiencies = {
        name: Efficiency(float(1 / matrix), float(lanes), float(1 / memory))
        for name, (matrix, lanes, memory) in zip(CLASSES, prices().detach().numpy().T, strict=True)
    }
    efficiencies |= {name: Efficiency(share, USUAL_LOADS, USUAL_MEMORY) for name, share in FULL_PRECISION.items()}
    factors = newer.detach().exp().tolist()
    calibration = Calibration(
        device=networks.devices[0].name,
        devices=tuple(device.name for device in networks.devices),
        devices_compiled=(),
        devices_training=(),
        fitted_on=tuple(fitted_on),
        networks=len(observations),
        tile_cycles=tile_cycles,
        step_cycles=step_cycles,
        kernel_seconds=kernel_seconds,
        training=Training(1.0, 1.0),
        residuals=Residuals(*[0.0] * 9),
        classes=efficiencies,
        newer={name: factor for name, factor in zip(CLASSES, factors, strict=True) if abs(factor - 1) > SHOWS},
    )
    rates = slower().detach().neg().exp().T.tolist()
    return Fitted(calibration, {d.name: _with_rates(d, *rate) for d, rate in zip(networks.devices, rates, strict=True)})


def _with_rates(device: Device, products: float, bandwidth: float) -> Device:
    """The device with other sustained rates, relative to its description."""
    rates = {"sustained": products * device.sustained, "sustained_bandwidth": bandwidth * device.sustained_bandwidth}
    return device.model_copy(update=rates)


def fit_training(observations: Sequence[Observation], calibration: Calibration) -> Training:
    """The factors that fit the times of training steps best, with all else fixed by the fit of inference."""
    wanted = np.log([each.seconds for each in observations])

    def off(factors: np.ndarray) -> np.ndarray:
        slowed = replace(calibration, training=Training(*np.exp(factors).tolist())).in_training()
        return np.asarray((np.log(Fitted(slowed, {}).seconds(observations)) - wanted) / OUTLIER)

    return Training(*np.exp(least_squares(off, np.zeros(2), loss="soft_l1").x).tolist())


def hold_out_families(observations: Sequence[Observation], folds: int, start: Calibration | None = None) -> np.ndarray:
    """Leave-one-family-out: the simulated seconds of every model by a fit without its family, on all devices."""
    fold_of = family_folds([each.traced.family for each in observations], folds)
    simulated = np.zeros(len(observations))
    for fold in range(folds):
        held = [place for place, its in enumerate(fold_of) if its == fold]
        if held:
            seen = [each for each, its in zip(observations, fold_of, strict=True) if its != fold]
            simulated[held] = fit(seen, start=start).seconds([observations[place] for place in held])
    return simulated


def hold_out_device(
    observations: Sequence[Observation], name: str, like: Sequence[str], start: Calibration | None = None
) -> tuple[Fitted, Device]:
    """Leave-one-device-out: a fit without a device, and that device with the mean rates of those that are like it."""
    fitted = fit([each for each in observations if each.device.name != name], start=start)
    (held,) = {each.device for each in observations if each.device.name == name}
    others = [fitted.devices[other] for other in like]
    means = {rate: float(np.mean([getattr(o, rate) for o in others])) for rate in ("sustained", "sustained_bandwidth")}
    return fitted, held.model_copy(update=means)


def family_folds(families: Sequence[str], folds: int) -> list[int]:
    """The fold of each model: families stay together, and folds are about equally large."""
    names, sizes = np.unique(np.array(families), return_counts=True)
    filled = np.zeros(folds)
    fold_of = {}
    for place in np.argsort(-sizes, kind="stable"):
        fold_of[str(names[place])] = emptiest = int(filled.argmin())
        filled[emptiest] += sizes[place]
    return [fold_of[family] for family in families]
