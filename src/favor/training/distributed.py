"""One process or several: what torchrun has started, and what its processes tell each other."""

import os
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from dataclasses import dataclass, field

import torch
from torch import distributed as dist
from torch import nn
from torch.nn.parallel import DistributedDataParallel

from favor.data.loader import Share
from favor.errors import RequestError
from favor.machine.environment import usable_threads


@dataclass(frozen=True)
class Processes:
    """The processes of a run; `words` is the group in which they exchange a few numbers on the CPU."""

    share: Share = field(default_factory=Share)
    words: dist.ProcessGroup | None = None

    @property
    def count(self) -> int:
        return self.share.processes

    @property
    def leads(self) -> bool:
        """Whether this is the process that writes files and speaks."""
        return self.share.process == 0

    def sums(self, values: Sequence[float]) -> tuple[float, ...]:
        """Each number added up over all processes, the same for all of them."""
        if self.words is None:
            return tuple(values)
        total = torch.tensor(values, dtype=torch.float64)
        dist.all_reduce(total, group=self.words)
        return tuple(total.tolist())

    def agree(self, value: object) -> object:
        """What the leading process says, a plain value of JSON; the others pass None."""
        if self.words is None:
            return value
        said = [value]
        dist.broadcast_object_list(said, src=0, group=self.words)
        return said[0]

    def wrapped(self, model: nn.Module, idle_parameters: bool) -> nn.Module:
        """The model with gradients averaged over the processes; alone it stays as it is."""
        if self.words is None:
            return model
        return DistributedDataParallel(model, find_unused_parameters=idle_parameters)

    def share_buffers(self, model: nn.Module) -> None:
        """Give all processes the leading one's buffers: running statistics are each process's own until then."""
        if self.words is None:
            return
        for buffer in model.buffers():
            dist.broadcast(buffer, src=0)


def is_started_by_torchrun() -> bool:
    """Whether torchrun's variables say that this process is one of several."""
    return "RANK" in os.environ and "WORLD_SIZE" in os.environ


def device_of_this_process(wanted: str | None) -> str | None:
    """The name of the device to use: of several GPUs each process has its own, unless one is asked for by number."""
    if wanted in (None, "cuda") and torch.cuda.is_available():
        return f"cuda:{os.environ.get('LOCAL_RANK', '0')}"
    return wanted


def workers_of_this_process(wanted: int | None) -> int:
    """How many processes decode images for this one: unless given, the cores are divided among those of a machine."""
    if wanted is not None:
        return wanted
    return max(1, usable_threads() // int(os.environ.get("LOCAL_WORLD_SIZE", "1")))


@contextmanager
def joined(device_kind: str) -> Iterator[Processes]:
    """Join the processes that torchrun has started, for as long as the context lasts."""
    if not is_started_by_torchrun():
        yield Processes()
        return
    if device_kind == "mps":
        raise RequestError("several processes need cpu or cuda; there is one mps device only")
    dist.init_process_group("nccl" if device_kind == "cuda" else "gloo")
    try:
        words = dist.new_group(backend="gloo")
        assert isinstance(words, dist.ProcessGroup)  # noqa: S101 - every process is a member
        yield Processes(Share(dist.get_rank(), dist.get_world_size()), words)
    finally:
        dist.destroy_process_group()
