"""What is simulated: a model's passes, traced on a fake GPU at any batch size."""

from dataclasses import dataclass
from functools import lru_cache, partial

import torch
from torch import nn

from favor.errors import RequestError
from favor.machine.precision import Precision
from favor.simulation.batch_scaling import Batches
from favor.trace.attention import attention_implementation
from favor.trace.conditions import Phase
from favor.trace.fake_device import trace_on
from favor.trace.meta_shortcuts import SkipInitialization
from favor.trace.operator_trace import Trace
from favor.trace.optimizer import trace_update
from favor.trace.workload import benchmark_optimizer, build
from favor.zoo.fuse import fuse_in_place
from favor.zoo.registry import card


@dataclass(frozen=True)
class Network:
    """A model on the meta device, in the form in which it would be measured."""

    name: str
    phase: Phase
    img_size: int
    precision: str
    model: nn.Module
    attention: str = "fused"
    channels_last: bool = False

    @property
    def image_bytes(self) -> int:
        """Bytes of one image as the model's input."""
        return 3 * self.img_size**2 * Precision.named(self.precision, "cuda").weights.itemsize

    def batches(self) -> Batches:
        """The traces of its pass: forward, or forward, loss and backward."""
        # Models whose sizes are not linear are traced at the same few batch sizes for every device.
        return Batches(lru_cache(maxsize=8)(self.trace))

    def trace(self, batch_size: int) -> Trace:
        """The trace of its pass on a batch."""
        precision = Precision.named(self.precision, "cuda")
        with attention_implementation(self.attention):
            return trace_on(
                "cuda",
                self.model,
                (batch_size, 3, self.img_size, self.img_size),
                training=self.phase == "training",
                autocast=precision.autocast,
                dtype=precision.weights,
                channels_last=self.channels_last,
                subject=self.name,
            )

    def update(self, optimizer: str) -> Trace:
        """The trace of an optimizer step, after the first, on existing gradients."""
        return trace_update(self.model, partial(benchmark_optimizer, optimizer), f"{optimizer} for {self.name}")


def network(
    name: str,
    phase: Phase,
    precision: str,
    img_size: int | None = None,
    num_classes: int = 1000,
    attention: str = "fused",
) -> Network:
    """A model by name, built without allocating weights; by default at its own image size."""
    sizes = card(name).image_sizes
    side = sizes.default if img_size is None else img_size
    sizes.check(name, (side, side))
    if num_classes < 1:
        raise RequestError(f"the number of classes must be 1 or more, not {num_classes}")
    with torch.device("meta"), SkipInitialization():
        model = build(name, phase, side, num_classes)
        if phase == "inference":
            model = fuse_in_place(model)
        model = model.to(Precision.named(precision, "cuda").weights)
    return Network(name, phase, side, precision, model, attention)
