"""The quality and cost of the search for the best batch size, compared with trying every batch size.

    python benchmarks/best_batch.py               simulated curves, a few seconds
    python benchmarks/best_batch.py --real        also a small model on this machine, about 2 minutes

Target: the winner within 3 % of the exhaustive search, at half its cost or less.

Simulated: the time of a batch is a fixed part plus a part per image, with steps where a device's units are filled up,
a slope where caches overflow, a memory limit, and noise. The code of `favor measure` runs on a simulated clock,
including memory passes and the final timing of the winner, so that the cost is in simulated seconds.
There are two exhaustive searches: over every batch size up to the limit, and over a grid of powers
of two and their midpoints, which is much cheaper and therefore the harder comparison.
"""

import argparse
import gc
import random
import statistics
from collections.abc import Callable, Iterable
from dataclasses import dataclass

import torch
from torch import Tensor

from favor.machine.clock import Clock, WallClock
from favor.machine.device import Cpu, Device, Peak
from favor.machine.messages import Channel
from favor.machine.stopping import StoppingRule
from favor.machine.timing import time_calls
from favor.measurement.bench import SAMPLE_SECONDS, SHARE_OF_ROOM, Bench
from favor.trace.workload import Call, Workload

BUDGET = 20.0
REAL_BUDGET = 4.0
IMAGE_BYTES = 1000


class Simulation:
    """A simulated device with its clock: a batch of b images takes `seconds(b)`, plus noise."""

    kind = label = "simulated"
    name = "a simulated device"

    def __init__(self, seconds: Callable[[int], float], largest: int, noise: float, seed: int) -> None:
        self.seconds, self.largest, self.noise = seconds, largest, noise
        self.draw = random.Random(seed)  # noqa: S311 - noise, not secrets
        self.time, self.allocated = 0.0, 0

    def now(self) -> float:
        return self.time

    def at(self, batch_size: int) -> Call:
        def run() -> None:
            # Disturbances only slow down, some of them a lot.
            slow = abs(self.draw.gauss(0, self.noise)) + (0.3 if self.draw.random() < 0.01 else 0.0)
            self.time += self.seconds(batch_size) * (1 + slow)
            self.allocated = batch_size * IMAGE_BYTES

        return Call(run, (torch.empty(0),))

    def synchronize(self) -> None:
        """Nothing to do: calls are synchronous."""

    def release(self) -> None:
        """Nothing is held."""

    def peak_of(self, run: Callable[[], None], held: Iterable[Tensor]) -> Peak:
        run()
        return Peak(self.allocated, None, "simulated")

    def room(self, held: int, limit: int | None) -> int:
        return int((self.largest + 0.5) * IMAGE_BYTES / SHARE_OF_ROOM)

    def total_memory(self) -> int:
        return self.room(0, None)

    def free_memory(self) -> int:
        return self.room(0, None)

    def limit_memory(self, limit: int) -> None:
        """It has none but its own."""


class SmallCpu(Cpu):
    """The processor with room for so many bytes of tensors."""

    def __init__(self, size: int) -> None:
        super().__init__()
        self.size = size

    def room(self, held: int, limit: int | None) -> int:
        return self.size


@dataclass(frozen=True)
class Curve:
    """A model on a device, and the largest batch that its memory holds."""

    name: str
    seconds: Callable[[int], float]
    largest: int


def curve(name: str, fixed: float, per_image: float, largest: int, units: int = 1, cache: int = 10**9) -> Curve:
    def seconds(batch: int) -> float:
        filled = -(-batch // units) * units
        overflow = 1 + 0.25 * max(0.0, min(1.0, (batch - cache) / cache))
        return fixed + per_image * filled * overflow

    return Curve(name, seconds, largest)


CURVES = (
    curve("GPU, small model", 4e-3, 5e-5, 4096, units=8),
    curve("GPU, large model", 1.2e-2, 1.1e-3, 512, units=4),
    curve("GPU, little memory", 8e-3, 4e-4, 90, units=4),
    curve("GPU, coarse steps", 5e-3, 2e-4, 2048, units=48),
    curve("CPU, small model", 1e-3, 6e-3, 1024, cache=6),
    curve("CPU, large model", 2e-2, 9e-2, 256, cache=16),
    curve("CPU, many cores", 5e-3, 2e-3, 2048, units=32, cache=200),
    curve("flat from one image", 1e-5, 5e-2, 512),
)


def grid(largest: int) -> list[int]:
    powers = [2**power for power in range(largest.bit_length()) if 2**power <= largest]
    middles = [3 * power // 2 for power in powers[1:] if 3 * power // 2 <= largest]
    return sorted({*powers, *middles, largest})


def exhaustive(work: Workload, device: Device, clock: Clock, batches: list[int], budget: float) -> tuple[int, float]:
    """The best of all these batch sizes, each measured as a figure on a record is; and what that cost."""
    start, found = clock.now(), {}
    for batch in batches:
        timing = time_calls(work.at(batch).run, device, clock, StoppingRule(budget), SAMPLE_SECONDS)
        found[batch] = batch / timing.quantile(0.5).value
    return max(found, key=lambda batch: found[batch]), clock.now() - start


def searched(work: Workload, device: Device, clock: Clock, budget: float) -> tuple[int, float]:
    """The searched batch size, with the winner measured again, as `favor measure` does it; and what that cost."""
    start = clock.now()
    bench = Bench(device, clock, Channel(lambda line: None), budget)
    best = bench.search("search", work).best
    bench.time("throughput", work.at(best))
    return best, clock.now() - start


def simulate(noise: float, seeds: int) -> None:
    print(f"noise {noise:.0%}, {seeds} runs each; losses against the true best of every batch size")
    print(
        f"{'':24s} {'mean loss':>9s} {'worst':>7s} {'cost':>8s} {'grid cost':>10s} {'ratio':>6s} {'every batch':>12s}"
    )
    worst_loss = worst_ratio = 0.0
    for one in CURVES:
        true_best = max(batch / one.seconds(batch) for batch in range(1, one.largest + 1))
        losses, costs, grid_costs = [], [], []
        for seed in range(seeds):
            searching = Simulation(one.seconds, one.largest, noise, seed)
            best, cost = searched(searching, searching, searching, BUDGET)
            losses.append(1 - best / one.seconds(best) / true_best)
            costs.append(cost)
            trying = Simulation(one.seconds, one.largest, noise, seed + 10**6)
            grid_costs.append(exhaustive(trying, trying, trying, grid(one.largest), BUDGET)[1])
        every = statistics.fmean(grid_costs) / len(grid(one.largest)) * one.largest
        ratio = statistics.fmean(costs) / statistics.fmean(grid_costs)
        worst_loss, worst_ratio = max(worst_loss, *losses), max(worst_ratio, ratio)
        print(
            f"{one.name:24s} {statistics.fmean(losses):9.2%} {max(losses):7.2%} {statistics.fmean(costs):7.1f}s "
            f"{statistics.fmean(grid_costs):9.1f}s {ratio:6.2f} {every:11.0f}s"
        )
    print(f"worst loss {worst_loss:.2%} (target 3 %), worst ratio of costs {worst_ratio:.2f} (target 0.5)\n")


def real(name: str, largest: int) -> None:
    from favor.trace.workload import Inference, Precision
    from favor.zoo.registry import create_miniature

    torch.set_num_threads(1)  # two threads would wait for each other on a loaded machine
    model = create_miniature(name)
    work = Inference(model, 64, torch.device("cpu"), Precision.named("fp32", "cpu"), compiled=False)
    clock = WallClock()
    peak = Bench(Cpu(), clock, Channel(lambda line: None), REAL_BUDGET).peak(work, largest).allocated
    device = SmallCpu(int(peak / SHARE_OF_ROOM) + 1)

    def undisturbed(batch: int) -> float:
        return time_calls(work.at(batch).run, device, clock, StoppingRule(REAL_BUDGET), SAMPLE_SECONDS).undisturbed

    found, cost = searched(work, device, clock, REAL_BUDGET)
    best, grid_cost = exhaustive(work, device, clock, grid(largest), REAL_BUDGET)
    # Alternating, and the fastest of all, so that the load of the machine does not decide.
    pairs = [(undisturbed(found), undisturbed(best)) for _ in range(5)]
    ours, theirs = (min(seconds) for seconds in zip(*pairs, strict=True))
    loss = 1 - (found / ours) / (best / theirs)
    print(f"{name}, miniature, 64 px, up to {largest} images, 1 thread")
    print(f"searched: {found} images, in {cost:.1f} s, memory passes and final timing included")
    print(f"exhaustive over {len(grid(largest))} batch sizes: {best} images, in {grid_cost:.1f} s")
    print(f"loss {loss:+.2%} (5 alternating pairs), ratio of costs {cost / grid_cost:.2f}")


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--real", action="store_true", help="also measure a small model")
    parser.add_argument("--seeds", type=int, default=10, help="simulated runs of each curve")
    arguments = parser.parse_args()
    gc.freeze()  # else garbage collection before each timing would scan all of PyTorch
    for noise in (0.01, 0.04):
        simulate(noise, arguments.seeds)
    if arguments.real:
        real("vit_ti16", 256)


if __name__ == "__main__":
    main()
