"""The time model: the demands of kernels, priced with the specification of a device and the calibrated efficiencies.

The time of a kernel is the p-norm of three times: that of its products, of its CUDA-core work and of its memory
traffic, each divided by the efficiency of its class. The host launches kernels in order; the device runs them in order.
"""

from collections.abc import Sequence
from dataclasses import dataclass

import numpy as np

from favor.simulation.calibration import Calibration
from favor.simulation.devices import Device
from favor.simulation.kernels import ELEMENT_BY_ELEMENT, Kernel, Unit

Array = np.ndarray

CACHE_COST = 0.3  # the cost of a byte from the cache relative to one from memory
_EXPONENT = 2.0
_LEAST_OVERLAP = 1.2  # the exponent of matrix products whose tiles wait until others are written
_BLACKWELL = 12.0  # compute capability
_PRODUCTS = frozenset(
    {
        *("gemm", "gemm_unaligned", "gemm_full", "gemm_tf32", "bmm", "bmm_unaligned", "bmm_full"),
        *("conv_pointwise", "conv_pointwise_last", "conv_full_pointwise"),
    }
)
_ON_MATRIX_UNITS = {
    "gemm_full": "gemm_tf32",
    "conv_full": "conv_tf32",
    "conv_full_3x3": "conv_tf32",
    "conv_full_pointwise": "conv_tf32",
}
"""The classes of float32 products on devices whose tensor cores compute them in TF32; on others CUDA cores do."""
_DOUBLED_LANES = 0.6
"""The share of the peak that float32 products reach with 128 CUDA cores per multiprocessor instead of 64: both halves
share one register file. cuBLAS reaches 23.3 of the 38.7 TFLOP/s of an RTX A6000, and nearly all of a V100's."""
_UNALIGNED_BEFORE_AMPERE = 1 / 3
"""The efficiency of unaligned products (sizes that are not multiples of 8) on Volta and Turing relative to Ampere: set
by DeiT III's published times on a V100, whose attention consists of such products."""
_HALF_BEFORE_AMPERE = 0.85
"""The share of the peak that tensor cores of Volta and Turing hold, relative to the share that their CUDA cores hold:
cuBLAS reaches 89 of 130 TFLOP/s in half precision on a V100S and 94 of 130 on a TITAN RTX, and in float32 13.6 of 16.4
and 14.3 of 16.3."""
_FED, _FED_LESS, _DENSEST = 1.1, 0.5, 4.0
"""The share of the peak up to which tensor cores can be fed in half precision: `_FED` at as many products per cycle of
a multiprocessor as on the device of the fit, falling with the power `_FED_LESS` of that number, since all devices read
from the same shared memory. Set by published times on the A100, which has four times as many products per cycle:
products of real models reach 0.55 of its peak, large square ones 0.84. Beyond `_DENSEST` nothing is known; Hopper has
new hardware for feeding."""
FIT_PRODUCTS = 512
"""Half-precision operations per cycle of a multiprocessor on the device of the fit."""
_START_CYCLES = 1000  # to start a tile, about as fitted; used to choose a tiling
_TILE_BYTES = 128 * 256 * 2
_READS = 3  # inputs whose reuse is followed; others are small, except those of an optimizer update


@dataclass(frozen=True)
class Demands:
    """The demands of kernels on one device, in seconds at its peak rates, one entry per kernel.

    `classes` are the operator classes of the kinds of kernels there, `kind_of` the kind of each kernel. `tiles` and
    `steps` are seconds per cycle of starting a tile or making a step. `cached` is the part of `memory` whose bytes are
    still in the cache. `exponents` are those of the p-norm: 1 without overlap, larger the better the parts overlap.
    `full` marks float32 products.
    """

    classes: tuple[str, ...]
    kind_of: Array
    matrix: Array
    tiles: Array
    lanes: Array
    memory: Array
    cached: Array
    steps: Array
    exponents: Array
    full: Array

    @property
    def groups(self) -> tuple[str, ...]:
        """The operator class of each kernel."""
        return tuple(self.classes[kind] for kind in self.kind_of)


@dataclass(frozen=True)
class Estimate:
    """Seconds of a pass, divided by what bounds them: tensor cores, CUDA cores, memory, host.

    Work that overlaps with waiting for the host counts as time of the host. `full` is the part of float32 products.
    """

    seconds: float
    matrix: float
    lanes: float
    memory: float
    host: float
    full: float = 0.0


@dataclass(frozen=True)
class Columns:
    """Kernels as columns, the same for all devices; `reads` and `distances` are those of the largest inputs.

    Distances are those of single bytes: a tensor is read in the order in which it was written, so its own size adds to
    its reuse distance. `macs` and `blocks` have one column per tiling, the usual one first. `kinds` are the operator
    classes and units that occur, `kind_of` the kind of each kernel: there are few kinds and many kernels.
    """

    kinds: tuple[tuple[str, Unit], ...]
    kind_of: Array
    macs: Array
    padded: Array
    lanes: Array
    blocks: Array
    steps: Array
    reads: Array
    distances: Array
    moved: Array

    def __len__(self) -> int:
        return len(self.kind_of)


def columns_of(kernels: Sequence[Kernel]) -> Columns:
    """Kernels as columns."""
    padded, lanes, steps, moved = (
        np.array([getattr(kernel, name) for kernel in kernels], dtype=float)
        for name in ("padded", "lanes", "steps", "bytes_moved")
    )
    ways = 1 + max((len(kernel.other_cuts) for kernel in kernels), default=0)
    macs, blocks = np.full((len(kernels), ways), np.inf), np.ones((len(kernels), ways))
    reads = np.zeros((len(kernels), _READS))
    distances = np.full((len(kernels), _READS), np.inf)
    for row, kernel in enumerate(kernels):
        for way, cut in enumerate(((kernel.macs, kernel.blocks), *kernel.other_cuts)):
            macs[row, way], blocks[row, way] = cut
        for slot, (size, distance) in enumerate(sorted(kernel.reads, reverse=True)[:_READS]):
            reads[row, slot], distances[row, slot] = size, size + distance
    kinds = {kind: place for place, kind in enumerate(dict.fromkeys((each.group, each.unit) for each in kernels))}
    kind_of = np.array([kinds[kernel.group, kernel.unit] for kernel in kernels], dtype=int)
    return Columns(tuple(kinds), kind_of, macs, padded, lanes, blocks, steps, reads, distances, moved)


def demands_on(device: Device, kernels: Sequence[Kernel] | Columns) -> Demands:
    """The demands of kernels on a device."""
    columns = kernels if isinstance(kernels, Columns) else columns_of(kernels)
    groups = tuple(_group_on(device, group, unit) for group, unit in columns.kinds)
    kind_of = columns.kind_of
    with_products = set(kind_of[columns.macs[:, 0] > 0].tolist())
    peaks = [
        _peak(device, group, unit) if kind in with_products else 1.0
        for kind, (group, (_, unit)) in enumerate(zip(groups, columns.kinds, strict=True))
    ]
    macs, per_unit, rounding = _cut_for(device, columns, peak := _of_kinds(peaks, kind_of))
    macs = np.where(
        _of_kinds([group == "conv_tf32" for group in groups], kind_of), np.maximum(macs, columns.padded), macs
    )
    lane_rates = [
        device.operations_per_second if group in ELEMENT_BY_ELEMENT else device.loads_per_second for group in groups
    ]
    exponents = [product_exponent(device) if group in _PRODUCTS else _EXPONENT for group in groups]
    is_full = [unit in ("fp32", "tf32") for _, unit in columns.kinds]
    cached = (columns.reads * _share_in_cache(columns.distances, device.cache)).sum(axis=1)
    return Demands(
        classes=groups,
        kind_of=kind_of,
        matrix=2 * macs / peak * rounding,
        tiles=np.where(macs > 0, per_unit / device.clock, 0.0),
        lanes=columns.lanes / _of_kinds(lane_rates, kind_of),
        memory=columns.moved / device.streaming_rate,
        cached=cached / device.streaming_rate,
        steps=columns.steps * np.ceil(per_unit) / device.clock,
        exponents=_of_kinds(exponents, kind_of),
        full=_of_kinds(is_full, kind_of) & (macs > 0),
    )


def _of_kinds(values: Sequence[float], kind_of: Array) -> Array:
    """A value of every kernel from those of the kinds."""
    return np.array(values)[kind_of]


def _peak(device: Device, group: str, unit: Unit) -> float:
    """The FLOP/s that large products of a class sustain."""
    peak = device.peak_flops(unit) * _share(device, unit)
    if device.has_doubled_lanes and (unit == "fp32" or (unit == "tf32" and not device.has_tf32)):
        peak *= _DOUBLED_LANES
    if device.has_early_matrix_units and group.endswith("_unaligned"):
        peak *= _UNALIGNED_BEFORE_AMPERE
    return peak


def _share(device: Device, unit: Unit) -> float:
    """The share of the peak that large products sustain."""
    if unit not in ("fp16", "bf16"):
        return device.sustained
    held = device.sustained * (_HALF_BEFORE_AMPERE if device.has_early_matrix_units else 1.0)
    denser = min(device.products_per_cycle / FIT_PRODUCTS, _DENSEST)
    return min(held, _FED * denser**-_FED_LESS)


def _cut_for(device: Device, columns: Columns, peak: Array) -> tuple[Array, Array, Array]:
    """Multiply-adds, blocks per multiprocessor and the factor of the last wave, of the fastest tiling on the device."""
    per_unit = np.maximum(columns.blocks, 1) / device.multiprocessors
    # The last wave of blocks takes as long as a full one.
    rounding = np.where(columns.blocks > 0, np.ceil(per_unit) / per_unit, 1.0)
    starting = _START_CYCLES * per_unit / device.clock
    best = np.argmin(2 * columns.macs / peak[:, None] * rounding + starting, axis=1)
    here = np.arange(len(columns))
    return columns.macs[here, best], per_unit[here, best], rounding[here, best]


def _group_on(device: Device, group: str, unit: Unit) -> str:
    if group == "attention_flash" and not device.has_flash_attention:
        return "attention_efficient"
    return _ON_MATRIX_UNITS.get(group, group) if unit == "tf32" and device.has_tf32 else group


def product_exponent(device: Device) -> float:
    """How well the memory traffic of a product overlaps with its arithmetic.

    All multiprocessors finish their tiles at about the same time and write them at once. A cache that holds a few such
    bursts lets the next tiles start (RTX 4090); a smaller one makes them wait (RTX 3090). On the RTX 5090 they wait
    too, in spite of its cache: its products take as long as with `_LEAST_OVERLAP`.
    """
    if device.compute_capability >= _BLACKWELL:
        return _LEAST_OVERLAP
    bursts = device.cache / (device.multiprocessors * _TILE_BYTES)
    return max(_LEAST_OVERLAP, 1 + 2 * (1 - min(1.0, 2 / bursts)))


def _share_in_cache(distance: Array, cache: float) -> Array:
    """The share of a tensor that the cache still holds at a reuse distance: half at the size of the cache."""
    return 1 / (1 + (distance / cache) ** 2)


def kernel_seconds(demands: Demands, calibration: Calibration) -> tuple[Array, Array]:
    """Seconds of each kernel, and the terms of its p-norm (3 x kernels), whose shares say what bounds it."""
    matrix, lanes, memory = calibration.prices(demands.classes)[:, demands.kind_of]
    power = demands.exponents
    powers = np.stack(
        [
            (matrix * demands.matrix + calibration.tile_cycles * demands.tiles) ** power,
            (lanes * demands.lanes) ** power,
            (memory * (demands.memory - (1 - CACHE_COST) * demands.cached)) ** power,
        ]
    )
    bound = powers.sum(axis=0) ** (1 / power)
    return bound + calibration.step_cycles * demands.steps + calibration.kernel_seconds, powers


def estimate(device: Device, kernels: Sequence[Kernel] | Columns, calibration: Calibration) -> Estimate:
    """The time of a pass; the device waits wherever the host launches more slowly than the device runs."""
    if not len(kernels):
        return Estimate(0.0, 0.0, 0.0, 0.0, 0.0)
    demands = demands_on(device, kernels)
    seconds, powers = kernel_seconds(demands, calibration)
    issued = device.launch_us * 1e-6 * np.arange(1, len(seconds) + 1)
    until_end = np.cumsum(seconds[::-1])[::-1]
    # After the last kernel that the device waits for, the device sets the time.
    last = int(np.argmax(issued + until_end))
    return _divided(float(issued[last]), seconds[last:], powers[:, last:], demands.full[last:])


def estimate_counted(
    device: Device, kernels: Sequence[Kernel], counts: Sequence[int], calibration: Calibration
) -> Estimate:
    """The time of a pass from the counts of its kernels: that of the device or of the host, whichever is longer."""
    demands = demands_on(device, kernels)
    seconds, powers = kernel_seconds(demands, calibration)
    totals = seconds * np.array(counts, dtype=float)
    issued = device.launch_us * 1e-6 * sum(counts)
    if issued > totals.sum():
        return Estimate(issued, 0.0, 0.0, 0.0, host=issued)
    return _divided(0.0, totals, powers, demands.full)


def _divided(host: float, seconds: Array, powers: Array, full: Array) -> Estimate:
    """The time of the host plus that of kernels, each kernel's divided by what bounds it."""
    shares = powers / np.maximum(powers.sum(axis=0), 1e-300)
    matrix, lanes, memory = (shares * seconds).sum(axis=1)
    total = host + float(seconds.sum())
    return Estimate(total, float(matrix), float(lanes), float(memory), host, float(seconds[full].sum()))
