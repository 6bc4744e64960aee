"""How well queueing theory tells the load of a model from its service times: the estimate against measured loads.

    python benchmarks/queueing_estimate.py --study runs/queueing [--p99 300ms] [--load-budget 60] [--threads 1]

It measures ten small models and tests their load in one study (the same command continues), then prints the load that
was measured, the estimate from `favor measure` (as `favor recommend` makes it), and the estimate from the batch times
of the load test itself, which leaves out what the machine did between the two.
"""

import argparse
import math
import statistics
import subprocess
import sys
from pathlib import Path

from favor.analyze.load_estimate import predicted_load
from favor.queueing import largest_load
from favor.records.store import read
from favor.units import parse_quantity

MODELS = (
    *("vit_xs4", "linformer_xs4", "nystrom_xs4", "performer_xs4", "hydra_xs4"),
    *("fnet_xs4", "gfnet_xs4", "mixer_xs4", "evit_xs4", "tome_xs4"),
)


def main() -> None:
    options = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    options.add_argument("--study", type=Path, required=True)
    options.add_argument("--p99", default="300ms")
    options.add_argument("--budget", default="20")
    options.add_argument("--load-budget", default="120")
    options.add_argument("--threads", default="1")
    options.add_argument("--models", nargs="+", default=list(MODELS))
    given = options.parse_args()
    shared = [*given.models, "--study", str(given.study), "--threads", given.threads, "--wait"]
    favor("measure", *shared, "--budget", given.budget)
    favor("load", *shared, "--p99", given.p99, "--budget", given.load_budget)
    compare(given.study, parse_quantity(given.p99, "s"))


def favor(*words: str) -> None:
    """Run a command; a model that fails is left out of the comparison."""
    subprocess.run([sys.executable, "-m", "favor", *words], stdout=subprocess.DEVNULL, check=False)


def compare(study: Path, limit: float) -> None:
    records = [record for record in read(study).records if record.status == "ok"]
    inference = {record.name: record.metrics for record in records if record.task == "inference"}
    loads = {
        record.name: record
        for record in records
        if record.task == "load" and math.isclose(float(record.conditions["p99_limit"]), limit)
    }
    print("| model | measured [img/s] | from `favor measure` | ratio | from the load test's batches | ratio | flags |")
    print("| :--- | ---: | ---: | ---: | ---: | ---: | :--- |")
    errors: dict[str, list[float]] = {"measure": [], "batches": []}
    for name in sorted(set(inference) & set(loads)):
        known, load = inference[name], loads[name]
        measured = load.metrics["max_qps"].value
        p99 = known["latency_p99"].value if "latency_p99" in known else math.nan
        service = (known["latency_p50"].value, known["throughput"].value, int(known["best_batch_size"].value))
        batches = {point.batch_size: point.latency for point in load.load.batches} if load.load else {}
        estimates = {
            "measure": predicted_load(*service, limit, p99),
            "batches": largest_load(batches, limit).rate,
        }
        cells = []
        for how, estimate in estimates.items():
            ratio = estimate / measured if measured else math.nan
            cells += [f"{estimate:.3g}", f"{ratio:.2f}"]
            if ratio > 0:
                errors[how].append(abs(math.log(ratio)))
        print(f"| {name} | {measured:.3g} | {' | '.join(cells)} | {load.environment.get('flags', '')} |")
    for how, found in errors.items():
        if found:
            middle, worst = math.exp(statistics.median(found)), math.exp(max(found))
            print(f"estimate from {how}: off by a factor of {middle:.2f} (median), {worst:.2f} (worst of {len(found)})")


if __name__ == "__main__":
    main()
