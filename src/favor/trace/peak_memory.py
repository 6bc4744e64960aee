"""What a training step holds at its peak: weights, gradients, optimizer state, and activations by kind of operator."""

from collections import Counter
from dataclasses import dataclass
from functools import partial

import torch

from favor.machine.precision import Precision
from favor.trace.attention import attention_implementation
from favor.trace.conditions import REFERENCE_BATCH, check_batch_size
from favor.trace.fake_device import trace_on
from favor.trace.meta_shortcuts import SkipInitialization
from favor.trace.operator_trace import Storage, Trace
from favor.trace.optimizer import trace_update
from favor.trace.workload import benchmark_optimizer, build
from favor.zoo.registry import card

_FIXED = {"parameter": "weights", "buffer": "weights", "input": "images", "gradient": "gradients", "constant": "other"}


@dataclass(frozen=True)
class PeakMemory:
    """Live tensor bytes at the peak of a training step, by what holds them.

    `parts` are `weights`, `gradients`, `optimizer`, `images`, `kept: KIND` for activations that the backward pass
    needs, by the kind of operator that made them, `temporary` for other activations, and `other`. They add up to the
    peak.
    """

    name: str
    img_size: int
    batch_size: int
    precision: str
    optimizer: str
    attention: str
    parts: dict[str, int]

    @property
    def peak(self) -> int:
        """The peak in bytes."""
        return sum(self.parts.values())

    @property
    def kept(self) -> int:
        """The bytes of activations that the backward pass needs."""
        return sum(size for part, size in self.parts.items() if part.startswith("kept: "))


def peak_memory(
    name: str,
    *,
    img_size: int | None = None,
    num_classes: int = 1000,
    batch_size: int = REFERENCE_BATCH,
    precision: str = "amp",
    optimizer: str = "lamb",
    attention: str = "fused",
) -> PeakMemory:
    """The peak of a training step on a GPU, from the operator trace; nothing is allocated.

    >>> memory = peak_memory("vit_s16", batch_size=2048)
    >>> 0.9 < memory.kept / memory.peak < 1.0
    True
    """
    check_batch_size(batch_size)
    model_card = card(name)
    side = model_card.image_sizes.default if img_size is None else img_size
    model_card.image_sizes.check(name, (side, side))
    types = Precision.named(precision, "cuda")
    with torch.device("meta"), SkipInitialization():
        model = build(name, "training", side, num_classes).to(types.weights)
    with attention_implementation(attention):
        step = trace_on(
            "cuda",
            model,
            (batch_size, 3, side, side),
            training=True,
            autocast=types.autocast,
            dtype=types.weights,
            subject=name,
        )
    update = trace_update(model, partial(benchmark_optimizer, optimizer), f"{optimizer} for {name}")
    state = sum(storage.size for storage in update.storages if storage.role == "buffer")
    images = batch_size * 3 * side**2 * types.weights.itemsize
    if step.peak_bytes + state >= update.peak_bytes + images:
        parts = _parts(step) + Counter(optimizer=state)
    else:
        # The state is a buffer of the update's trace.
        parts = _parts(update) + Counter(optimizer=state, images=images)
        parts["weights"] -= state
    return PeakMemory(model_card.name, side, batch_size, precision, optimizer, attention, dict(parts.most_common()))


def _parts(trace: Trace) -> Counter[str]:
    """The bytes that live during the operator at the peak, by part."""
    live = trace.live_bytes()
    peak = live.index(max(live))
    parts: Counter[str] = Counter()
    for storage in trace.storages:
        if storage.first <= peak <= storage.last:
            parts[_part(storage, trace)] += storage.size
    return parts


def _part(storage: Storage, trace: Trace) -> str:
    if storage.role != "activation":
        return _FIXED[storage.role]
    return f"kept: {trace.ops[storage.first].kind}" if storage.kept_for_backward else "temporary"
