"""One process or several: the group that torchrun or Slurm started, and how its processes communicate."""

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
from favor.training.slurm_step import variables_of_slurm


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
        """Whether this process writes files and reports progress."""
        return self.share.process == 0

    def sums(self, values: Sequence[float]) -> tuple[float, ...]:
        """Each number summed over all processes (all-reduce)."""
        if self.words is None:
            return tuple(values)
        total = torch.tensor(values, dtype=torch.float64)
        dist.all_reduce(total, group=self.words)
        return tuple(total.tolist())

    def largest(self, value: float) -> float:
        """The largest of the processes' numbers (all-reduce)."""
        if self.words is None:
            return value
        most = torch.tensor(value, dtype=torch.float64)
        dist.all_reduce(most, op=dist.ReduceOp.MAX, group=self.words)
        return float(most)

    def agree(self, value: object) -> object:
        """Broadcast a JSON value from the leading process; the others pass None."""
        if self.words is None:
            return value
        said = [value]
        dist.broadcast_object_list(said, src=0, group=self.words)
        return said[0]

    def wrapped(self, model: nn.Module, idle_parameters: bool) -> nn.Module:
        """The model with gradients averaged over the processes; unchanged if there is only one."""
        if self.words is None:
            return model
        return DistributedDataParallel(model, find_unused_parameters=idle_parameters)

    def share_buffers(self, model: nn.Module) -> None:
        """Broadcast the leading process's buffers, since each process keeps its own running statistics."""
        if self.words is None:
            return
        for buffer in model.buffers():
            dist.broadcast(buffer, src=0)


def is_one_of_several() -> bool:
    """Whether the environment variables of torchrun, or of a Slurm step, say that this process is one of several."""
    os.environ.update(variables_of_slurm(os.environ))
    return "RANK" in os.environ and "WORLD_SIZE" in os.environ


def device_of_this_process(wanted: str | None) -> str | None:
    """The name of the device to use: each process has its own GPU, unless one is requested by number."""
    is_one_of_several()  # for Slurm's LOCAL_RANK
    if wanted in (None, "cuda") and torch.cuda.is_available():
        return f"cuda:{os.environ.get('LOCAL_RANK', '0')}"
    return wanted


def workers_of_this_process(wanted: int | None) -> int:
    """How many workers decode images for this process; by default its share of the machine's cores."""
    if wanted is not None:
        return wanted
    return max(1, usable_threads() // int(os.environ.get("LOCAL_WORLD_SIZE", "1")))


@contextmanager
def joined(device_kind: str) -> Iterator[Processes]:
    """Join the processes that torchrun or Slurm has started, for as long as the context lasts."""
    if not is_one_of_several():
        yield Processes()
        return
    if device_kind == "mps":
        raise RequestError("several processes need cpu or cuda; there is only one mps device")
    dist.init_process_group("nccl" if device_kind == "cuda" else "gloo")
    try:
        words = dist.new_group(backend="gloo")
        assert isinstance(words, dist.ProcessGroup)  # noqa: S101 - every process is a member
        yield Processes(Share(dist.get_rank(), dist.get_world_size()), words)
    finally:
        dist.destroy_process_group()
