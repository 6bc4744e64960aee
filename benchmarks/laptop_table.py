"""At least one architecture of every class at laptop size on CIFAR-10: same recipe, same time, on one thread each.

    FAVOR_DATA=... python benchmarks/laptop_table.py --out laptop-study            # 50 minutes, two at a time
    FAVOR_DATA=... python benchmarks/laptop_table.py --out laptop-study --second-seed   # then what is too close to call
    python benchmarks/laptop_table.py --out laptop-study --show                         # the table of what is there

Each model is one `favor train --minutes 5`: its speed is measured first, and the schedule fitted to the steps that
fit into the time. A stopped run continues when called again. The table, in Markdown, is for docs/training.md.
"""

import argparse
import math
import subprocess
import sys
from collections import defaultdict
from collections.abc import Iterable, Mapping, Sequence
from concurrent.futures import ThreadPoolExecutor
from itertools import pairwise
from pathlib import Path

from favor.records.schema import Record
from favor.records.store import FILE_NAME, read
from favor.trace.counts import count
from favor.units import format_quantity
from favor.zoo.registry import card, list_models

RECIPE, IMAGES = "laptop-cifar10", 10_000
Z = 1.96


def train_all(jobs: Iterable[tuple[str, int]], out: Path, minutes: float, data: str, side_by_side: int) -> None:
    """Train models with seeds, several at once on a thread each; one that fails is a record, and the others go on."""

    def one(job: tuple[str, int]) -> None:
        model, seed = job
        print(f"{model}, seed {seed}", file=sys.stderr, flush=True)
        asked = ["--recipe", RECIPE, "--data", data, "--minutes", str(minutes), "--set", f"seed={seed}"]
        command = [
            sys.executable,
            "-m",
            "favor",
            "train",
            model,
            *asked,
            "--study",
            str(out / f"{model}-seed{seed}"),  # one process at a time works in a study
            "--threads",
            "1",
            "--resume",
        ]
        subprocess.run(command, stdout=subprocess.DEVNULL, check=False)

    with ThreadPoolExecutor(side_by_side) as pool:
        list(pool.map(one, jobs))


def results(out: Path) -> dict[str, list[Record]]:
    """The last records of all runs, by model."""
    found: dict[str, list[Record]] = defaultdict(list)
    for record in read(*out.glob(f"*/{FILE_NAME}")).records:
        if record.status == "ok" and record.conditions.get("final") is True:
            found[record.name].append(record)
    return found


def too_close(found: Mapping[str, Sequence[Record]]) -> list[str]:
    """Models whose accuracy differs from a neighbor's by less than a test set of this size can resolve."""
    means = {name: mean("top1", records) for name, records in found.items()}
    close: dict[str, None] = {}
    ranked = sorted(means, key=lambda name: -means[name])
    for better, worse in pairwise(ranked):
        share = (means[better] + means[worse]) / 200
        if means[better] - means[worse] < 100 * Z * math.sqrt(2 * share * (1 - share) / IMAGES):
            close |= {better: None, worse: None}
    return list(close)


def mean(metric: str, records: Sequence[Record]) -> float:
    """The mean over the seeds."""
    return sum(record.metrics[metric].value for record in records) / len(records)


def table(found: Mapping[str, Sequence[Record]]) -> str:
    """The table in Markdown, the most accurate first."""
    lines = [
        "| model | class | top-1 | seeds | epochs | trained at | step | memory | parameters | multiply-adds |",
        "|---|---|---|---|---|---|---|---|---|---|",
    ]
    for name in sorted(found, key=lambda name: -mean("top1", found[name])):
        records, known = found[name], card(name)
        counts = count(name, img_size=32, num_classes=10, batch_size=1)
        seeds = " ".join(f"{record.metrics['top1'].value:.1f}" for record in records) if len(records) > 1 else ""
        epochs = sum(float(record.conditions["epochs"]) for record in records) / len(records)
        cells = (
            f"`{name}`",
            known.how.title if known.how else "",
            f"{mean('top1', records):.1f} %",
            seeds,
            f"{epochs:.2f}",
            format_quantity(mean("train_throughput", records), "img/s"),
            format_quantity(mean("train_step_time_end_to_end", records), "s"),
            format_quantity(mean("train_memory", records), "B"),
            format_quantity(counts.params, "1"),
            format_quantity(counts.macs, "1"),
        )
        lines.append(f"| {' | '.join(cells)} |")
    return "\n".join(lines)


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("models", nargs="*", help="all of laptop size unless given")
    parser.add_argument("--out", type=Path, required=True, help="the study folder")
    parser.add_argument("--minutes", type=float, default=5.0)
    parser.add_argument("--data", default="cifar10")
    parser.add_argument("--side-by-side", type=int, default=2, help="models at once, a thread each")
    parser.add_argument("--second-seed", action="store_true", help="train those again that are too close to call")
    parser.add_argument("--show", action="store_true", help="train nothing")
    arguments = parser.parse_args()
    if not arguments.show:
        models = arguments.models or list_models("*_xs4")
        jobs = [(model, 0) for model in models]
        if arguments.second_seed:
            jobs = [(model, 1) for model in too_close(results(arguments.out)) if model in models]
        train_all(jobs, arguments.out, arguments.minutes, arguments.data, arguments.side_by_side)
    found = results(arguments.out)
    print(table(found))
    close = too_close(found)
    print(
        f"\nToo close to a neighbor to call: {', '.join(close)}" if close else "\nNo neighbors are too close to call."
    )


if __name__ == "__main__":
    main()
