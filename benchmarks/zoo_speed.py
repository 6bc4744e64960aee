"""How fast is each architecture beside ViT-S, and beside an existing implementation of the same?

    FAVOR_DATA=../shared/data python benchmarks/zoo_speed.py                     # all of speed.csv
    FAVOR_DATA=../shared/data python benchmarks/zoo_speed.py 'linformer*' 'tome*' --rounds 15

Batch 8, 224 px, float32, two threads. The model alternates with `vit_s16`, one call each, and the median of the
ratios of such pairs is printed: this survives a machine whose speed drifts. The reference's ratios come from
`reference/speed.csv` beside the data (see DESIGN); without it only ours are printed. Exits with 1 where one of our own
files is slower than 0.9 of the reference, or their geometric mean is below 1.

Models are those that `favor measure` times: inference in the fused form and at the operating point where the work
depends on the image, training with the extra losses. So A-ViT's forward pass really drops tokens, as its prior says
(tokens pass 9 of 12 blocks on average), where the reference multiplies them by zero; Switch routes by its fresh router.
In training A-ViT keeps all tokens, here and there.
"""

import argparse
import csv
import fnmatch
import math
import os
import statistics
import sys
import time
from collections.abc import Callable
from pathlib import Path

import torch
from torch import nn

import favor
from favor.trace.conditions import Phase
from favor.trace.workload import build
from favor.zoo.training import take_extra_losses

BATCH, SIDE, CLASSES, THREADS = 8, 224, 1000, 2
PHASES: tuple[Phase, ...] = ("inference", "training")
FLOOR_EACH, FLOOR_MEAN = 0.9, 1.0


def forward(model: nn.Module) -> Callable[[], None]:
    """One forward pass in the form that inference is measured in."""
    fused, x = favor.fuse(model.eval()), torch.randn(BATCH, 3, SIDE, SIDE)

    def run() -> None:
        with torch.inference_mode():
            fused(x)

    return run


def train_step(model: nn.Module) -> Callable[[], None]:
    """Forward, backward of all losses and a step of SGD."""
    model.train()
    optimizer = torch.optim.SGD(model.parameters(), lr=1e-4)
    x, y = torch.randn(BATCH, 3, SIDE, SIDE), torch.randint(CLASSES, (BATCH,))

    def run() -> None:
        optimizer.zero_grad(set_to_none=True)
        loss = nn.functional.cross_entropy(model(x), y)
        sum(take_extra_losses(model).values(), loss).backward()
        optimizer.step()

    return run


def pass_of(name: str, phase: Phase) -> Callable[[], None]:
    """A forward pass or a training step of a model, at the point that it is measured at."""
    model = build(name, phase, SIDE, CLASSES)
    return forward(model) if phase == "inference" else train_step(model)


def speed_ratio(run: Callable[[], None], baseline: Callable[[], None], rounds: int) -> float:
    """How many times faster `run` is than the baseline: the median of pairs of calls, one after the other."""
    ratios = [_seconds(baseline) / _seconds(run) for _ in range(rounds + 2)]
    return statistics.median(ratios[2:])


def _seconds(call: Callable[[], None]) -> float:
    start = time.perf_counter()
    call()
    return time.perf_counter() - start


def reference_ratios() -> dict[str, tuple[float | None, float | None]]:
    """Forward and training speed of the existing implementation, relative to its own ViT-S."""
    data = os.environ.get("FAVOR_DATA")
    file = Path(data).parent / "reference" / "speed.csv" if data else None
    if file is None or not file.is_file():
        return {}

    def number(text: str) -> float | None:
        return float(text) if text else None

    with file.open() as lines:
        return {
            row["name"]: (number(row["forward_speed_vs_vit_s"]), number(row["train_step_speed_vs_vit_s"]))
            for row in csv.DictReader(lines)
        }


def show(value: float | None) -> str:
    return "     -" if value is None else f"{value:6.2f}"


def main() -> int:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("patterns", nargs="*", help="names with wildcards; default: all that the reference has")
    parser.add_argument("--rounds", type=int, default=11)
    arguments = parser.parse_args()
    torch.set_num_threads(THREADS)
    torch.manual_seed(0)

    reference = reference_ratios()
    patterns = arguments.patterns or list(reference) or ["*_s16"]
    names = [name for name in favor.list_models() if any(fnmatch.fnmatchcase(name, pattern) for pattern in patterns)]
    baseline = {phase: pass_of("vit_s16", phase) for phase in PHASES}
    own: list[float] = []
    slow: list[str] = []
    print(f"{'model':24} {'from':5} | forward: ours   ref ours/ref | train: ours   ref ours/ref")
    for name in names:
        cells, origin = [], favor.card(name).origin
        for phase, theirs in zip(PHASES, reference.get(name, (None, None)), strict=True):
            ours = speed_ratio(pass_of(name, phase), baseline[phase], arguments.rounds)
            ratio = ours / theirs if theirs else None
            cells += [show(ours), show(theirs), show(ratio)]
            if ratio is not None and origin == "own":
                own.append(ratio)
                if ratio < FLOOR_EACH:
                    slow.append(f"{name} {phase} {ratio:.2f}")
        print(
            f"{name:24} {origin:5} |       {cells[0]} {cells[1]} {cells[2]}   |     {cells[3]} {cells[4]} {cells[5]}",
            flush=True,
        )
    if not own:
        return 0
    mean = math.exp(statistics.fmean(math.log(ratio) for ratio in own))
    print(
        f"own files, ours/ref: geometric mean {mean:.2f} of {len(own)}; below {FLOOR_EACH}: {', '.join(slow) or 'none'}"
    )
    return int(bool(slow) or mean < FLOOR_MEAN)


if __name__ == "__main__":
    sys.exit(main())
