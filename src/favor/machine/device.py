"""The devices that measurements run on, behind one small interface."""

import gc
import platform
import re
from collections.abc import Callable, Iterable
from dataclasses import dataclass
from pathlib import Path
from typing import Protocol

import psutil
import torch
from torch import Tensor

from favor.errors import MissingHereError, RequestError, unknown_name
from favor.machine.memory import limit_process_memory, live_tensor_peak

KINDS = ("cpu", "cuda", "mps")
PRIVATE_MEMORY = "private memory"
ALLOCATOR = "PyTorch's allocator on the device"


@dataclass(frozen=True)
class Peak:
    """Peak bytes allocated for tensors, and reserved by the allocator if that is more.

    `low` and `high` are the least and the most of several runs, where they differ.
    """

    allocated: int
    reserved: int | None
    method: str
    low: int | None = None
    high: int | None = None


class Device(Protocol):
    """The interface that meters use."""

    kind: str
    name: str
    """The manufacturer's name."""
    label: str
    """The short name in records' conditions, such as `cpu` or `a100`."""
    torch_device: torch.device

    def synchronize(self) -> None:
        """Wait until the device has finished all queued work."""

    def peak_of(self, run: Callable[[], None], held: Iterable[Tensor]) -> Peak:
        """The peak memory of a run, including the tensors `held` before it."""

    def total_memory(self) -> int:
        """Total bytes of memory."""

    def free_memory(self) -> int:
        """Bytes of memory that are free now."""

    def room(self, held: int, limit: int | None) -> int:
        """Bytes that this process's tensors may take, including the `held` ones, within its memory limit, if any."""

    def release(self) -> None:
        """Release cached memory."""

    def limit_memory(self, limit: int) -> str | None:
        """Limit this process's memory, in bytes; returns what is limited, or None if that is not possible."""


class Cpu:
    """The processors of this machine, with as many threads as PyTorch was given."""

    kind = "cpu"
    label = "cpu"
    torch_device = torch.device("cpu")

    def __init__(self) -> None:
        self.name = processor_name()

    def synchronize(self) -> None:
        """Nothing to do: a call on a CPU returns when it is done."""

    def peak_of(self, run: Callable[[], None], held: Iterable[Tensor]) -> Peak:
        return Peak(live_tensor_peak(run, held), None, "exact: live tensor bytes from PyTorch's allocation events")

    def total_memory(self) -> int:
        return psutil.virtual_memory().total

    def free_memory(self) -> int:
        return psutil.virtual_memory().available

    def room(self, held: int, limit: int | None) -> int:
        resident = psutil.Process().memory_info().rss
        most = self.free_memory() + resident
        return min(most, most if limit is None else limit) - resident + held

    def release(self) -> None:
        gc.collect()

    def limit_memory(self, limit: int) -> str | None:
        return PRIVATE_MEMORY if limit_process_memory(limit) else None


class Cuda:
    """One NVIDIA GPU (or AMD GPU, which PyTorch addresses in the same way)."""

    kind = "cuda"

    def __init__(self, index: int) -> None:
        self.torch_device = torch.device("cuda", index)
        self.name = torch.cuda.get_device_name(index)
        self.label = short_gpu_name(self.name)

    def synchronize(self) -> None:
        torch.cuda.synchronize(self.torch_device)

    def peak_of(self, run: Callable[[], None], held: Iterable[Tensor]) -> Peak:
        self.release()
        torch.cuda.reset_peak_memory_stats(self.torch_device)
        run()
        self.synchronize()
        return Peak(
            torch.cuda.max_memory_allocated(self.torch_device),
            torch.cuda.max_memory_reserved(self.torch_device),
            "torch.cuda.max_memory_allocated",
        )

    def total_memory(self) -> int:
        return torch.cuda.get_device_properties(self.torch_device).total_memory

    def free_memory(self) -> int:
        return torch.cuda.mem_get_info(self.torch_device)[0]

    def room(self, held: int, limit: int | None) -> int:
        most = self.free_memory() + torch.cuda.memory_reserved(self.torch_device)
        return most if limit is None else min(most, limit)

    def release(self) -> None:
        gc.collect()
        torch.cuda.empty_cache()

    def limit_memory(self, limit: int) -> str | None:
        torch.cuda.set_per_process_memory_fraction(min(1.0, limit / self.total_memory()), self.torch_device)
        return ALLOCATOR


class Mps:
    """Apple's GPU, which shares the machine's memory. Memory is read after the run, so its peak is a lower bound."""

    kind = "mps"
    label = "mps"
    torch_device = torch.device("mps")

    def __init__(self) -> None:
        self.name = f"{processor_name()} GPU"

    def synchronize(self) -> None:
        torch.mps.synchronize()

    def peak_of(self, run: Callable[[], None], held: Iterable[Tensor]) -> Peak:
        self.release()
        run()
        self.synchronize()
        # The driver keeps what the run needed until the cache is emptied: PyTorch has no peak counter here.
        reserved = torch.mps.driver_allocated_memory()
        return Peak(reserved, reserved, "torch.mps.driver_allocated_memory after the run, cache emptied before")

    def total_memory(self) -> int:
        return torch.mps.recommended_max_memory()

    def free_memory(self) -> int:
        return self.total_memory() - torch.mps.driver_allocated_memory()

    def room(self, held: int, limit: int | None) -> int:
        return self.total_memory() if limit is None else min(self.total_memory(), limit)

    def release(self) -> None:
        gc.collect()
        torch.mps.empty_cache()

    def limit_memory(self, limit: int) -> str | None:
        torch.mps.set_per_process_memory_fraction(min(1.0, limit / self.total_memory()))
        return ALLOCATOR


def find_device(wanted: str | None = None) -> Device:
    """The device with a name such as `cpu`, `cuda`, `cuda:1` or `mps`; by default the fastest kind available."""
    if wanted is None:
        wanted = available()[-1]
    kind, _, index = wanted.partition(":")
    if kind not in KINDS:
        raise unknown_name("device", wanted, KINDS, "choose from cpu, cuda, cuda:N, mps")
    if kind not in available():
        raise MissingHereError(
            f"device {wanted}: PyTorch {torch.__version__} does not find it; available: {', '.join(available())}"
        )
    if kind != "cuda":
        if index:
            raise RequestError(f"device {wanted}: there is only one; write {kind}")
        return Cpu() if kind == "cpu" else Mps()
    if index and (not index.isdecimal() or int(index) >= torch.cuda.device_count()):
        raise MissingHereError(f"device {wanted}: this machine has cuda:0 to cuda:{torch.cuda.device_count() - 1}")
    return Cuda(int(index or 0))


def available() -> tuple[str, ...]:
    """The device kinds that PyTorch can use on this machine, the CPU first."""
    here = {"cpu": True, "mps": torch.backends.mps.is_available(), "cuda": torch.cuda.is_available()}
    return tuple(kind for kind, is_here in here.items() if is_here)


def short_gpu_name(name: str) -> str:
    """A GPU's name as records and published results write it.

    >>> short_gpu_name("NVIDIA GeForce RTX 3090"), short_gpu_name("NVIDIA A100-SXM4-80GB")
    ('rtx3090', 'a100-sxm4-80gb')
    """
    words = re.sub(r"\b(nvidia|geforce|tesla|amd|radeon)\b", " ", name.lower()).split()
    joined = "-".join(words)
    return re.sub(r"\b(rtx|gtx|rx)-", r"\1", joined)


def processor_name(information: Path = Path("/proc/cpuinfo")) -> str:
    """The manufacturer's name of the processor, or its architecture if the system does not give one.

    Virtual machines often hide the model number. Then the family and model that the processor itself reports tell two
    generations apart, which may differ twofold in speed: `AMD EPYC (family 26, model 2)`.
    """
    if not information.is_file():
        return platform.processor() or platform.machine()
    text = information.read_text()
    name, family, model = (_first_of(text, key) for key in ("model name", "cpu family", "model"))
    if name is None:
        return platform.processor() or platform.machine()
    is_numbered = re.search(r"\d", name.partition("@")[0])  # what follows @ is the clock
    return name if is_numbered or None in (family, model) else f"{name} (family {family}, model {model})"


def _first_of(text: str, key: str) -> str | None:
    found = re.search(rf"^{key}\s*:\s*(.+)$", text, re.MULTILINE)
    return found[1].strip() if found else None
