"""A model on devices: one trace, priced on each of them, as records of source `simulated` with intervals."""

from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass, replace
from datetime import UTC, datetime
from functools import cached_property
from typing import Literal

from favor.errors import FavorError, RequestError, unknown_name
from favor.machine.best_batch import search_best_batch
from favor.machine.precision import resolve_precision
from favor.records.schema import CardFields, Reading, Record, Scalar, Status, reading, timestamp
from favor.runtime.names import PRECISIONS
from favor.simulation.batch_scaling import Batches
from favor.simulation.calibration import Calibration
from favor.simulation.correction import NO_CORRECTION, Correction
from favor.simulation.devices import Device
from favor.simulation.fused_kernels import fused_kernels_of, wants_channels_last
from favor.simulation.kernels import Kernel, kernels_of
from favor.simulation.memory import WORKSPACE, Footprint, footprint, usable_memory
from favor.simulation.networks import Network, network
from favor.simulation.shipped import FINETUNING_EPOCHS
from favor.simulation.spread import bounds, spread
from favor.simulation.time_model import Columns, Estimate, columns_of, estimate
from favor.text import cut_to_line
from favor.trace.attention import attention_conditions, check_attention
from favor.trace.conditions import (
    IMAGENET_IMAGES,
    OPTIMIZERS,
    PHASES,
    REFERENCE_BATCH,
    Phase,
    check_batch_size,
)
from favor.trace.operator_trace import Trace
from favor.trace.optimizer import steps_on_device
from favor.units import format_quantity
from favor.zoo.operating_point import operating_point
from favor.zoo.registry import card

LARGEST_BATCH = 1024
TRAINING_BATCH = 64
RUNTIMES = ("eager", "compile")
_WITHOUT_MODULES = 0.5
"""The host time per kernel in an optimizer update and in a compiled model, relative to operators called through a
model's modules."""
_LAYOUT_AT = 8  # images at which the compiler's choice of a memory format is looked up
_LIVE = "peak of live storages in the trace; the interval is for the libraries' scratch and the allocator's rounding"


@dataclass(frozen=True)
class SimulationRequest:
    """The request for every model; a batch size of None means the best one at inference and 64 in training."""

    phase: Phase = "inference"
    precision: str = "amp"
    batch_size: int | Literal["best"] | None = None
    img_size: int | None = None
    num_classes: int = 1000
    optimizer: str = "lamb"
    reference_batch: int = REFERENCE_BATCH
    epoch_images: int = IMAGENET_IMAGES
    attention: str = "fused"
    runtime: str = "eager"

    def __post_init__(self) -> None:
        for what, value, known in (
            ("phase", self.phase, PHASES),
            ("precision", self.precision, PRECISIONS),
            ("optimizer", self.optimizer, OPTIMIZERS),
            ("runtime", self.runtime, RUNTIMES),
        ):
            if value not in known:
                raise unknown_name(what, value, known, "choose from " + ", ".join(known))
        if self.runtime == "compile" and self.phase == "training":
            raise RequestError("a compiled training step is not simulated; use --runtime eager, or --phase inference")
        check_batch_size(None if self.batch_size == "best" else self.batch_size)
        check_attention(self.attention)

    @property
    def is_finetuning(self) -> bool:
        """Whether the step is that of the benchmark's fine-tuning on ImageNet-1k."""
        schedule = (self.optimizer, self.reference_batch, self.epoch_images)
        return schedule == ("lamb", REFERENCE_BATCH, IMAGENET_IMAGES)

    @property
    def given_batch(self) -> int | None:
        """The requested batch size; None if it is searched."""
        if self.batch_size is None and self.phase == "training":
            return TRAINING_BATCH
        return self.batch_size if isinstance(self.batch_size, int) else None


class Passes:
    """The passes of one model at any batch size, the same for all devices: kernels and memory."""

    def __init__(self, subject: Network, optimizer: str, *, compiled: bool = False) -> None:
        self.network, self.compiled = subject, compiled
        self._optimizer = optimizer
        self._kernels: dict[int, Columns] = {}

    @cached_property
    def batches(self) -> Batches:
        return self.network.batches()

    @cached_property
    def update(self) -> Trace | None:
        """The optimizer's update, in training."""
        return self.network.update(self._optimizer) if self.network.phase == "training" else None

    @cached_property
    def footprint(self) -> Footprint:
        """The memory of the pass."""
        return footprint(self.batches, self.network.image_bytes, self.update)

    @cached_property
    def update_kernels(self) -> Columns:
        """The kernels of the optimizer's update; none at inference."""
        return columns_of(() if self.update is None else kernels_of(steps_on_device(self.update)))

    def kernels(self, batch_size: int) -> Columns:
        """The kernels of the pass, without the update."""
        if batch_size not in self._kernels:
            self._kernels[batch_size] = columns_of(self._kernels_at(batch_size))
        return self._kernels[batch_size]

    def _kernels_at(self, batch_size: int) -> tuple[Kernel, ...]:
        if self.compiled:
            return fused_kernels_of(self._compiled_batches.at(batch_size))
        return kernels_of(self.batches.working_steps(batch_size))

    @cached_property
    def _compiled_batches(self) -> Batches:
        """The passes in the memory format that the compiler chooses."""
        if not wants_channels_last(self.batches.at(_LAYOUT_AT)):
            return self.batches
        return replace(self.network, channels_last=True).batches()


class OnDevice:
    """A model's passes on one device: times with their uncertainty."""

    def __init__(self, passes: Passes, gpu: Device, calibration: Calibration, correction: Correction) -> None:
        self.passes, self.device = passes, gpu
        self._training = passes.network.phase == "training"
        # No table shows compiled models in newer versions (docs/simulation-model.md).
        current = calibration if passes.compiled else calibration.in_newer_torch()
        self._calibration = current.in_training() if self._training else current
        self._correction = correction
        self._estimates: dict[int, Estimate] = {}

    def pass_estimate(self, batch_size: int) -> Estimate:
        """The pass without the optimizer's update, not yet corrected."""
        if batch_size not in self._estimates:
            kernels = self.passes.kernels(batch_size)
            host = self._without_modules if self.passes.compiled else self.device
            self._estimates[batch_size] = estimate(host, kernels, self._calibration)
        return self._estimates[batch_size]

    @cached_property
    def _without_modules(self) -> Device:
        """The device with a host that launches kernels without calling modules."""
        return self.device.model_copy(update={"launch_us": _WITHOUT_MODULES * self.device.launch_us})

    @cached_property
    def _update_seconds(self) -> float:
        return estimate(self._without_modules, self.passes.update_kernels, self._calibration).seconds

    def seconds(self, batch_size: int) -> float:
        """The time of a pass, including the update."""
        return self.accumulated_seconds(batch_size, batch_size)

    def accumulated_seconds(self, batch_size: int, images: int) -> float:
        """The time of a step over more images by gradient accumulation: many batches, one update."""
        passes = self.pass_estimate(batch_size).seconds * images / batch_size
        return self._correction.factor * (passes + self._update_seconds)

    def deviation(self, batch_size: int) -> float:
        """The standard deviation of the logarithm of a time."""
        return spread(
            self.pass_estimate(batch_size),
            self.device,
            self._calibration,
            self._correction,
            training=self._training,
            compiled=self.passes.compiled,
        )

    def reading(self, metric: str, value: float, batch_size: int, how: str) -> Reading:
        """A time, or a metric derived from one, with its interval."""
        low, high = bounds(value, self.deviation(batch_size))
        corrected = (
            f"; corrected by {self._correction.factor:.3f} from {self._correction.measurements} measurements"
            if self._correction.measurements
            else ""
        )
        fused = ", fused as torch.compile does" if self.passes.compiled else ""
        return reading(metric, value, low, high, method=f"simulated from the operator trace{fused}, {how}{corrected}")


def simulate(
    name: str,
    devices: Sequence[Device],
    request: SimulationRequest,
    calibration: Calibration,
    corrections: Mapping[str, Correction] | None = None,
    build: Callable[..., Network] | None = None,
) -> list[Record]:
    """A model on devices, one record each; a failure is a record with its status and reason.

    `build` makes the network from its name, where it is not made anew.
    """
    started = datetime.now(UTC)
    try:
        passes = Passes(
            (build or network)(
                name, request.phase, request.precision, request.img_size, request.num_classes, request.attention
            ),
            request.optimizer,
            compiled=request.runtime == "compile",
        )
        corrections = corrections or {}
        targets = [OnDevice(passes, gpu, calibration, corrections.get(gpu.name, NO_CORRECTION)) for gpu in devices]
        return [_record(passes, target, request, started) for target in targets]
    except RequestError:
        raise
    except FavorError as error:  # a model that cannot be traced, at one batch size or at any
        return [_failed(name, gpu, request, str(error), started) for gpu in devices]


def _record(passes: Passes, target: OnDevice, request: SimulationRequest, started: datetime) -> Record:
    img_size = passes.network.img_size
    smallest = request.given_batch or 1
    largest = passes.footprint.largest_batch(target.device)
    if largest < smallest and passes.footprint.peak(smallest) <= usable_memory(target.device):
        largest = smallest  # a model with rounded sizes is linear only at multiples of eight
    status: Status = "ok"
    reason, metrics = None, {}
    environment: dict[str, Scalar] = {}
    conditions = conditions_on(target.device, request, img_size) | operating_point(passes.network.model)
    if largest < smallest:
        status = "out_of_memory"
        reason = (
            f"{smallest} images of {img_size} px need {format_quantity(passes.footprint.peak(smallest), 'B')} in "
            f"{request.phase}; {target.device.title} has "
            f"{format_quantity(usable_memory(target.device), 'B')} for tensors"
        )
    else:
        batch_size = request.given_batch or _best_batch(target, largest)
        simulated_metrics = _training if request.phase == "training" else _inference
        metrics = dict(simulated_metrics(target, request, batch_size, largest))
        if request.given_batch is None and request.phase == "training":
            # As on the record of a measurement.
            environment["train_batch_size"] = conditions["micro_batch_size"] = batch_size
    return _made(passes.network.name, target.device, conditions, request, started, metrics, status, reason, environment)


def _best_batch(target: OnDevice, largest: int) -> int:
    """The batch size with the highest throughput, by the search that measurements use."""
    search = search_best_batch(
        lambda batch_size: batch_size / target.seconds(batch_size), largest=min(largest, LARGEST_BATCH)
    )
    return search.best


def _inference(
    target: OnDevice, request: SimulationRequest, batch_size: int, largest: int
) -> Iterator[tuple[str, Reading]]:
    memory = target.passes.footprint
    kept = ", as in eager mode: fusing saves some of it" if target.passes.compiled else ""
    yield "latency_p50", target.reading("latency_p50", target.seconds(1), 1, "batch size 1")
    rate = batch_size / target.seconds(batch_size)
    yield "throughput", target.reading("throughput", rate, batch_size, f"batch size {batch_size}")
    yield "inference_memory", _memory("inference_memory", memory.peak(1), f"batch size 1{kept}")
    if request.given_batch is None:
        yield "best_batch_size", reading("best_batch_size", batch_size, method="the search of measurements, simulated")
        peak = _memory("inference_memory_best_batch", memory.peak(batch_size), f"batch size {batch_size}{kept}")
        yield "inference_memory_best_batch", peak
    yield "max_batch_size", _largest("max_batch_size", largest, target.device)


def _training(
    target: OnDevice, request: SimulationRequest, batch_size: int, largest: int
) -> Iterator[tuple[str, Reading]]:
    how = f"batch size {batch_size}, {request.optimizer}"
    images = max(request.reference_batch, batch_size)
    at_reference = target.accumulated_seconds(batch_size, images)
    by_accumulation = f"{images} images by accumulation of {batch_size}, {request.optimizer}"
    seconds, size, what = target.seconds(batch_size), batch_size, how
    if request.given_batch is None:  # steps are compared at the same number of images on all devices
        seconds, size, what = at_reference, images, by_accumulation
    yield "train_step_time", target.reading("train_step_time", seconds, batch_size, what)
    yield "train_throughput", target.reading("train_throughput", size / seconds, batch_size, what)
    hours = at_reference * request.epoch_images / images / 3600
    an_epoch = f"{request.epoch_images} images, steps of {by_accumulation}"
    yield "train_hours_per_epoch", target.reading("train_hours_per_epoch", hours, batch_size, an_epoch)
    if request.is_finetuning:
        schedule = f"{FINETUNING_EPOCHS} epochs of {an_epoch}"
        yield "finetune_time", target.reading("finetune_time", FINETUNING_EPOCHS * hours, batch_size, schedule)
    yield "train_memory", _memory("train_memory", target.passes.footprint.peak(batch_size), how)
    at_once = _memory("train_memory_reference_batch", target.passes.footprint.peak(images), f"{images} images at once")
    yield "train_memory_reference_batch", at_once
    yield "train_max_batch_size", _largest("train_max_batch_size", largest, target.device)


def _memory(metric: str, peak: int, how: str) -> Reading:
    return reading(metric, peak, peak, peak * 1.02 + WORKSPACE, method=f"{_LIVE}; {how}")


def _largest(metric: str, largest: int, gpu: Device) -> Reading:
    room = format_quantity(usable_memory(gpu), "B")
    return reading(metric, largest, method=f"live storages within {room} of {gpu.memory_gib:g} GiB")


def conditions_on(gpu: Device, request: SimulationRequest, img_size: int) -> dict[str, Scalar]:
    """The conditions of the same measurement; the device is the simulated one."""
    conditions: dict[str, Scalar] = {
        "img_size": img_size,
        "num_classes": request.num_classes,
        "device": gpu.name,
        "precision": resolve_precision(request.precision, "cuda"),
        "runtime": request.runtime,
        "batch": "best" if request.given_batch is None else "given",
        "fit_memory": gpu.memory,
        **attention_conditions(request.attention),
    }
    if request.given_batch is not None:
        conditions["batch_size"] = request.given_batch
    if request.phase == "training":
        conditions |= {
            "optimizer": request.optimizer,
            "reference_batch": request.reference_batch,
            "epoch_images": request.epoch_images,
        }
    return conditions


def _failed(name: str, gpu: Device, request: SimulationRequest, why: str, started: datetime) -> Record:
    img_size = request.img_size or card(name).image_sizes.default
    conditions = conditions_on(gpu, request, img_size)
    return _made(name, gpu, conditions, request, started, {}, "failed", f"trace: {cut_to_line(why)}", {})


def _made(
    name: str,
    gpu: Device,
    conditions: Mapping[str, Scalar],
    request: SimulationRequest,
    started: datetime,
    metrics: Mapping[str, Reading],
    status: Status,
    reason: str | None,
    environment: Mapping[str, Scalar],
) -> Record:
    return Record(
        name=name,
        model=CardFields.of(card(name)),
        task=request.phase,
        source="simulated",
        conditions=conditions,
        metrics=metrics,
        status=status,
        reason=reason,
        environment={"device_name": gpu.title, **environment},
        time=timestamp(started),
    )
