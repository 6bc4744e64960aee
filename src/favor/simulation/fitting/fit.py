"""The fit: the efficiencies of all operator classes at once, from the times of whole models.

It fits the logarithm of every model's time with a pseudo-Huber loss, which limits the weight of outliers. A prior
keeps every efficiency near the usual value of its kind, so that rare classes stay plausible. Efficiencies are bounded:
products by the sustained peak, bytes by what a streaming kernel reaches.
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
from favor.simulation.time_model import CACHE_COST, Demands, demands_on, estimate_counted

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
    **dict.fromkeys(("elementwise_spread", "cat", "pool"), 28.0),
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
USUAL_CYCLES = {"tile_cycles": 600.0, "step_cycles": 500.0}
USUAL_KERNEL_SECONDS = 4e-6
_SHARED_DEVIATIONS = (0.5, 0.5, 0.05)
"""Of the logarithms of tile cycles, step cycles and kernel seconds. The last is almost fixed: kernels at the tables'
batch sizes take a millisecond, which says little about the microseconds of their start-up."""
NOISE = 0.05
"""Deviation of the logarithm of a time that the prior is weighed against."""
OUTLIER = 0.08
STEPS = 120


@dataclass(frozen=True)
class Observation:
    """A model's kernels, how often each runs, and the measured seconds."""

    traced: Traced
    seconds: float


class _Networks:
    """The demands of many models on a device in one table."""

    def __init__(self, observations: Sequence[Observation], device: Device, classes: Sequence[str]) -> None:
        place = {name: index for index, name in enumerate(classes)}
        kernels = [kernel for each in observations for kernel in each.traced.kernels]
        counts = [count for each in observations for count in each.traced.counts]
        sizes = [len(each.traced.kernels) for each in observations]
        demands = demands_on(device, kernels)
        self.length = len(observations)
        self.owner = torch.from_numpy(np.repeat(np.arange(self.length), sizes))
        self.group = torch.tensor([place[group] for group in demands.groups])
        self.counts = torch.tensor(counts, dtype=torch.float64)
        self.seconds = torch.tensor([each.seconds for each in observations], dtype=torch.float64)
        self.powers = torch.from_numpy(demands.exponents)
        self.matrix, self.tiles, self.lanes, self.memory, self.steps = _tensors(demands)

    def times(self, prices: Tensor, shared: Tensor) -> Tensor:
        """The seconds of every model; `prices` are 3 x classes, `shared` the parameters common to all classes."""
        matrix, lanes, memory = prices[:, self.group]
        tile_cycles, step_cycles, kernel_seconds = shared.exp()
        power = self.powers
        bound = (
            (matrix * self.matrix + tile_cycles * self.tiles + TINY) ** power
            + (lanes * self.lanes + TINY) ** power
            + (memory * self.memory + TINY) ** power
        ) ** (1 / power)
        each = (bound + step_cycles * self.steps + kernel_seconds) * self.counts
        return torch.zeros(self.length, dtype=torch.float64).index_add(0, self.owner, each)


def _tensors(demands: Demands) -> list[Tensor]:
    memory = demands.memory - (1 - CACHE_COST) * demands.cached
    arrays = (demands.matrix, demands.tiles, demands.lanes, memory, demands.steps)
    return [torch.from_numpy(np.asarray(array, dtype=np.float64)) for array in arrays]


def fit(observations: Sequence[Observation], device: Device, fitted_on: str) -> Calibration:
    """The calibration that fits the times best; its residuals come from leave-one-family-out fits later."""
    classes = CLASSES
    networks = _Networks(observations, device, classes)
    least = torch.tensor([[1 / MOST_MATRIX], [0.0], [1 / MOST_MEMORY]], dtype=torch.float64)
    usual = torch.tensor(
        [
            [1 / USUAL_MATRIX.get(name, USUAL_OTHER_MATRIX), OPERATIONS.get(name, USUAL_LOADS), 1 / USUAL_MEMORY]
            for name in classes
        ],
        dtype=torch.float64,
    ).T
    prior = torch.log(usual - least).contiguous()
    is_set = torch.zeros_like(prior, dtype=torch.bool)
    is_set[1] = torch.tensor([name in OPERATIONS for name in classes])
    shared_prior = torch.tensor([*USUAL_CYCLES.values(), USUAL_KERNEL_SECONDS], dtype=torch.float64).log()
    deviations = torch.tensor(_SHARED_DEVIATIONS, dtype=torch.float64)
    losses, shared = prior.clone().requires_grad_(), shared_prior.clone().requires_grad_()
    wanted = networks.seconds.log()
    optimizer = torch.optim.LBFGS([losses, shared], max_iter=STEPS, line_search_fn="strong_wolfe")

    def prices() -> Tensor:
        return least + torch.where(is_set, prior, losses).exp()

    def objective() -> Tensor:
        optimizer.zero_grad()
        off = networks.times(prices(), shared).log() - wanted
        misfit = (OUTLIER / NOISE) ** 2 * ((1 + (off / OUTLIER) ** 2).sqrt() - 1).sum()
        held = ((losses - prior) / DEVIATION).square().sum() / 2
        held = held + ((shared - shared_prior) / deviations).square().sum() / 2
        total = misfit + held
        total.backward()
        return total

    optimizer.step(objective)
    tile_cycles, step_cycles, kernel_seconds = shared.detach().exp().tolist()
    efficiencies = {
        name: Efficiency(float(1 / matrix), float(lanes), float(1 / memory))
        for name, (matrix, lanes, memory) in zip(classes, prices().detach().numpy().T, strict=True)
    }
    efficiencies |= {name: Efficiency(share, USUAL_LOADS, USUAL_MEMORY) for name, share in FULL_PRECISION.items()}
    return Calibration(
        device=device.name,
        fitted_on=fitted_on,
        networks=len(observations),
        tile_cycles=tile_cycles,
        step_cycles=step_cycles,
        kernel_seconds=kernel_seconds,
        training=Training(1.0, 1.0),
        residuals=Residuals(*[0.0] * 7),
        classes=efficiencies,
    )


def fit_training(observations: Sequence[Observation], device: Device, calibration: Calibration) -> Training:
    """The factors that fit the times of training steps best, with all else fixed by the fit of inference."""
    wanted = np.log([each.seconds for each in observations])
    traced = [each.traced for each in observations]

    def off(factors: np.ndarray) -> np.ndarray:
        slowed = replace(calibration, training=Training(*np.exp(factors).tolist())).in_training()
        return np.asarray((np.log(times_on(device, traced, slowed)) - wanted) / OUTLIER)

    return Training(*np.exp(least_squares(off, np.zeros(2), loss="soft_l1").x).tolist())


def hold_out_families(observations: Sequence[Observation], device: Device, folds: int) -> np.ndarray:
    """Leave-one-family-out: the simulated seconds of every model by a fit without its family."""
    fold_of = _folds([each.traced.family for each in observations], folds)
    simulated = np.zeros(len(observations))
    for fold in range(folds):
        held = [place for place, its in enumerate(fold_of) if its == fold]
        if held:
            seen = [each for each, its in zip(observations, fold_of, strict=True) if its != fold]
            calibration = fit(seen, device, "")
            simulated[held] = times_on(device, [observations[place].traced for place in held], calibration)
    return simulated


def _folds(families: Sequence[str], folds: int) -> list[int]:
    """The fold of each model: families stay together, and folds are about equally large."""
    names, sizes = np.unique(np.array(families), return_counts=True)
    filled = np.zeros(folds)
    fold_of = {}
    for place in np.argsort(-sizes, kind="stable"):
        fold_of[str(names[place])] = emptiest = int(filled.argmin())
        filled[emptiest] += sizes[place]
    return [fold_of[family] for family in families]


def times_on(device: Device, traced: Sequence[Traced], calibration: Calibration) -> np.ndarray:
    """The simulated seconds of models on a device."""
    return np.array([estimate_counted(device, each.kernels, each.counts, calibration).seconds for each in traced])
