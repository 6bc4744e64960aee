"""Memory on a GPU: the peak of live storages at any batch size, and the largest batch that fits."""

from dataclasses import dataclass

from favor.simulation.batch_scaling import Batches
from favor.simulation.devices import Device
from favor.trace.operator_trace import Trace

CONTEXT = 600 * 2**20
"""Bytes of the CUDA context and PyTorch's libraries before the first tensor: 0.4 to 0.7 GiB on common cards."""
FRAGMENTS = 0.04
"""Share of the memory that the caching allocator loses to fragmentation."""
WORKSPACE = 96 * 2**20
"""Bytes of library workspaces during a pass (cuBLAS 8 to 32 MiB; cuDNN depends on its fastest kernel)."""


@dataclass(frozen=True)
class Footprint:
    """The live bytes of a pass at any batch size; a training step holds the optimizer's state and ends in its update.

    `state` are the bytes of the optimizer's state, `update` the peak during its step, `image` the bytes of one image,
    which stay allocated until the step ends.
    """

    batches: Batches
    image: int
    state: int = 0
    update: int = 0

    def peak(self, batch_size: int) -> int:
        """The peak of live tensor bytes."""
        return max(self.batches.peak_bytes(batch_size) + self.state, self.update + self.image * batch_size)

    def largest_batch(self, device: Device) -> int:
        """The largest batch that fits on a device; 0 if one image does not fit."""
        room = usable_memory(device)
        by_update = (room - self.update) // self.image
        return max(0, min(int(by_update), self.batches.largest_batch(room - self.state)))


def usable_memory(device: Device) -> float:
    """The bytes of a device that are available to tensors.

    >>> from favor.simulation.devices import device
    >>> round(usable_memory(device("a100")) / 2**30, 1)
    37.7
    """
    return max(0.0, (1 - FRAGMENTS) * (device.memory - CONTEXT) - WORKSPACE)


def footprint(batches: Batches, image: int, update: Trace | None = None) -> Footprint:
    """The footprint of a pass; of a training step if the trace of an optimizer update is given."""
    if update is None:
        return Footprint(batches, image)
    state = sum(storage.size for storage in update.storages if storage.role == "buffer")
    return Footprint(batches, image, state, update.peak_bytes)
