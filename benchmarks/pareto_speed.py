"""How long a Pareto front takes: one million points in two dimensions in 1 s, 100,000 in four in 5 s, on one thread.

Run: python benchmarks/pareto_speed.py
"Random" resembles real models; "all on the front" is the worst case, in which no point is dominated.
Seconds are processor time of the one thread, so that other work on the machine does not count.
"""

import sys
import time

import numpy as np
import pandas as pd

from favor.analyze.dominance import nondominated
from favor.analyze.pareto import pareto


def on_the_simplex(rng: np.random.Generator, points: int, dimensions: int) -> np.ndarray:
    """Points whose coordinates add up to one: none dominates another."""
    return rng.dirichlet(np.ones(dimensions), points)


def seconds(costs: np.ndarray) -> tuple[float, int]:
    """Best of three runs, and the size of the front."""
    times = []
    for _ in range(3):
        start = time.process_time()
        front = nondominated(costs)
        times.append(time.process_time() - start)
    return min(times), int(front.sum())


def seconds_of_the_whole_analysis(costs: np.ndarray) -> float:
    """One run of `pareto` on a table: front, distances and the result object."""
    metrics = [f"c{k}" for k in range(costs.shape[1])]
    table = pd.DataFrame(costs, columns=metrics).assign(name="model", status="ok")
    start = time.process_time()
    pareto(table, metrics, better=dict.fromkeys(metrics, "lower"))
    return time.process_time() - start


def main() -> int:
    """Print the times; the exit code says whether the whole analysis meets the limits on random data."""
    rng = np.random.default_rng(0)
    within = True
    print(
        f"{'points':>9} {'dim':>3} {'data':<17} {'front':>9} {'front in s':>10} {'whole in s':>10} {'limit in s':>10}"
    )
    for points, dimensions, limit in ((1_000_000, 2, 1.0), (100_000, 4, 5.0)):
        data = {"random": rng.random((points, dimensions)), "all on the front": on_the_simplex(rng, points, dimensions)}
        for name, costs in data.items():
            taken, size = seconds(costs)
            whole = seconds_of_the_whole_analysis(costs)
            print(f"{points:>9,} {dimensions:>3} {name:<17} {size:>9,} {taken:>10.2f} {whole:>10.2f} {limit:>10.1f}")
            within &= name != "random" or whole <= limit
    return 0 if within else 1


if __name__ == "__main__":
    sys.exit(main())
