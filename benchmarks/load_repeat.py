"""How well two load tests agree: `favor load` several times, each in new processes.

    python benchmarks/load_repeat.py vit_xs4 --p99 50ms --runs 5 [--budget 120]

On a quiet machine any two runs agree within 5 %; records of a busy one have the flag `busy`, and the last line says how
many had it.
"""

import argparse
import json
import subprocess
import sys
from itertools import combinations


def main() -> None:
    options = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    options.add_argument("model")
    options.add_argument("--p99", default="50ms")
    options.add_argument("--runs", type=int, default=5)
    options.add_argument("--budget", default="120")
    options.add_argument("--threads", default=None)
    given = options.parse_args()
    threads = ["--threads", given.threads] if given.threads else []
    command = [sys.executable, "-m", "favor", "load", given.model, "--p99", given.p99, "--budget", given.budget]
    loads, busy = [], 0
    for run in range(1, given.runs + 1):
        answer = subprocess.run([*command, *threads, "--wait", "--json"], capture_output=True, text=True, check=True)
        (record,) = json.loads(answer.stdout)
        loads.append(record["metrics"]["max_qps"]["value"])
        busy += "busy" in record["environment"]["flags"]
        batching = f"batches of up to {record['conditions']['largest_batch']}"
        print(
            f"run {run}: {loads[-1]:.4g} img/s, {batching}, flags: {record['environment']['flags'] or 'none'}",
            flush=True,
        )
    apart = max((abs(a - b) / min(a, b) for a, b in combinations(loads, 2)), default=0.0)
    print(f"largest difference of two runs: {apart:.1%}; {busy} of {given.runs} runs on a busy machine")


if __name__ == "__main__":
    main()
