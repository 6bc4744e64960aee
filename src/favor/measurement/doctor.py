"""What can be measured on this machine, and how well: devices, threads, counters, timer noise, memory, load."""

import os
import shutil
import time
from dataclasses import dataclass

import psutil
import torch

from favor.machine.clock import WallClock
from favor.machine.device import PRIVATE_MEMORY, Cpu, available, find_device
from favor.machine.energy import EnergySource, energy_sources
from favor.machine.environment import is_busy, look_at_load, processor_name, usable_threads
from favor.machine.stopping import StoppingRule
from favor.machine.timing import time_calls

NOISE_SECONDS = 2.0
NOISE_SIDE = 192
"""Multiplying two square matrices of this size takes some tenths of a millisecond, like a layer of a small model."""


@dataclass(frozen=True)
class DeviceReport:
    """A device, its memory in bytes, and the ways to measure its energy."""

    kind: str
    name: str
    label: str
    total_memory: int
    free_memory: int
    energy: tuple[EnergySource, ...]


@dataclass(frozen=True)
class TimerReport:
    """The clock's resolution in seconds, and the spread of a small task's time in percent of its median."""

    resolution: float
    reading_cost: float
    work_median: float
    middle_half_percent: float
    p99_percent: float
    interval_percent: float | None
    flags: tuple[str, ...]


@dataclass(frozen=True)
class Diagnosis:
    """The report of `favor doctor`."""

    processor: str
    processors: int
    threads: int
    others: float
    load_average: float
    busy: bool
    total_memory: int
    free_memory: int
    memory_limit_on: str | None
    compiler: str | None
    devices: tuple[DeviceReport, ...]
    timer: TimerReport


def diagnose() -> Diagnosis:
    """Examine the machine for about three seconds."""
    others = look_at_load()
    memory, processors = psutil.virtual_memory(), psutil.cpu_count() or 1
    return Diagnosis(
        processor=processor_name(),
        processors=processors,
        threads=usable_threads(),
        others=others,
        load_average=os.getloadavg()[0],
        busy=is_busy(others, processors),
        total_memory=memory.total,
        free_memory=memory.available,
        memory_limit_on=PRIVATE_MEMORY if psutil.LINUX else None,
        compiler=next(filter(None, map(shutil.which, (os.environ.get("CXX", "c++"), "g++", "clang++"))), None),
        devices=tuple(_report(kind) for kind in _device_names()),
        timer=timer_noise(NOISE_SECONDS),
    )


def _device_names() -> list[str]:
    gpus = [f"cuda:{index}" for index in range(torch.cuda.device_count())]
    return [name for kind in available() for name in (gpus if kind == "cuda" else [kind])]


def _report(wanted: str) -> DeviceReport:
    device = find_device(wanted)
    return DeviceReport(
        kind=device.kind,
        name=device.name,
        label=device.label,
        total_memory=device.total_memory(),
        free_memory=device.free_memory(),
        energy=energy_sources(device.kind, device.torch_device.index or 0),
    )


def timer_noise(seconds: float) -> TimerReport:
    """Time the same small task on one thread repeatedly, the way that models are timed."""
    left, right = torch.randn(2, NOISE_SIDE, NOISE_SIDE)
    result = torch.empty(NOISE_SIDE, NOISE_SIDE)
    threads = torch.get_num_threads()
    torch.set_num_threads(1)
    try:
        rule = StoppingRule(seconds, relative_width=0.0)
        timing = time_calls(lambda: _multiply(left, right, result), Cpu(), WallClock(), rule)
    finally:
        torch.set_num_threads(threads)
    middle = timing.quantile(0.5)
    spread = timing.quantile(0.75).value - timing.quantile(0.25).value
    interval = None if middle.low is None or middle.high is None else (middle.high - middle.low) / 2
    return TimerReport(
        resolution=time.get_clock_info("perf_counter").resolution,
        reading_cost=_reading_cost(),
        work_median=middle.value,
        middle_half_percent=100 * spread / middle.value,
        p99_percent=100 * (timing.quantile(0.99).value / middle.value - 1),
        interval_percent=None if interval is None else 100 * interval / middle.value,
        flags=tuple(flag for flag in timing.flags if flag != "wide"),
    )


def _multiply(left: torch.Tensor, right: torch.Tensor, result: torch.Tensor) -> None:
    torch.mm(left, right, out=result)


def _reading_cost() -> float:
    """The seconds that reading the clock takes."""
    clock, times = WallClock(), 1000
    start = clock.now()
    for _ in range(times):
        clock.now()
    return (clock.now() - start) / times
