"""Can a CPU be simulated? Ranks on timm's published times of single images on an i9-10940X.

python benchmarks/cpu_simulation.py TIMM_RESULTS      seconds

TIMM_RESULTS is the folder with benchmark-infer-fp32-nchw-pt240-cpu-i9_10940x-dynamo.csv. Every predictor uses only what
ships with favor: multiply-adds, parameters, and the simulated times of one GPU (T4).

- A described CPU, without any measurement: the peak of its cores and its bandwidth.
- Ten measurements on the CPU. A time is the sum of four parts: arithmetic (multiply-adds), weights (parameters), the
  traffic of activations and slow kernels (the GPU's time per image in a batch), and the starts of operators (its time
  for one image). The measurements give the weight of each part, which is never negative.

Wanted is a Spearman correlation of 0.97 with the times of the other networks after ten measurements.
"""

import argparse
from pathlib import Path

import numpy as np
from scipy.optimize import nnls
from scipy.stats import spearmanr

from favor.records.timm_results import import_timm
from favor.simulation.shipped_timm import shipped_timm_records

TABLE = "benchmark-infer-fp32-nchw-pt240-cpu-i9_10940x-dynamo.csv"
CORES, CLOCK, FLOPS_PER_CYCLE, BANDWIDTH = 14, 3.3e9, 64, 94e9
"""The i9-10940X: two AVX-512 units per core, four channels of DDR4-2933."""
SHARE = 0.5
"""The share of both peaks that the described CPU reaches; it changes the ranks little."""
GPU = "t4"
MEASUREMENTS, DRAWS = 10, 200
EQUAL = 0.5
"""How firmly each part is held at an equal share of the time; 1 is as firm as one measurement."""


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("tables", type=Path, help="folder with timm's tables")
    parts, seconds = _joined(parser.parse_args().tables / TABLE)
    macs, params, _, _ = parts.T
    described = 2 * macs / (SHARE * CORES * CLOCK * FLOPS_PER_CYCLE) + 4 * params / (SHARE * BANDWIDTH)
    print(f"{len(seconds)} networks and image sizes")
    print(f"multiply-adds alone: Spearman {spearmanr(macs, seconds)[0]:.3f}")
    print(f"described CPU: Spearman {spearmanr(described, seconds)[0]:.3f}, {_error(described, seconds):.0%} off")
    rng = np.random.default_rng(0)
    found = []
    for _ in range(DRAWS):
        order = rng.permutation(len(seconds))
        measured, others = order[:MEASUREMENTS], order[MEASUREMENTS:]
        predicted = parts[others] @ _weights(parts[measured], seconds[measured])
        found.append((spearmanr(predicted, seconds[others])[0], _error(predicted, seconds[others])))
    ranks, errors = np.array(found).T
    low, middle, high = np.quantile(ranks, [0.1, 0.5, 0.9])
    print(
        f"{MEASUREMENTS} measurements, {DRAWS} draws: Spearman {middle:.3f} (80 % of draws {low:.3f} to {high:.3f}), "
        f"{np.median(errors):.0%} off in the median"
    )
    fitted = parts @ _weights(parts, seconds)
    print(f"all measured: Spearman {spearmanr(fitted, seconds)[0]:.3f}, {_error(fitted, seconds):.0%} off")


def _joined(table: Path) -> tuple[np.ndarray, np.ndarray]:
    """The four parts of every network in table and simulation, unweighted, and the table's seconds."""
    simulated = {(each.name, each.conditions["img_size"]): each.metrics for each in shipped_timm_records(GPU)}
    parts, seconds = [], []
    for record in import_timm(table).records:
        architecture = str(record.provenance["row"]).partition(".")[0]
        known = simulated.get((f"timm:{architecture}", record.conditions["img_size"]))
        if known is not None:
            at_once, alone = 1 / known["throughput"].value, known["latency_p50"].value
            parts.append((known["macs"].value, record.metrics["params"].value, at_once, alone))
            seconds.append(1 / record.metrics["throughput"].value)
    return np.array(parts), np.array(seconds)


def _weights(parts: np.ndarray, seconds: np.ndarray) -> np.ndarray:
    """The weights of the parts, by non-negative least squares of relative errors."""
    relative = parts / seconds[:, None]
    equal = 1 / (np.median(relative, axis=0) * relative.shape[1])
    held = EQUAL * np.eye(len(equal))
    shares, _ = nnls(np.vstack([relative * equal, held]), np.append(np.ones(len(seconds)), EQUAL * np.ones(len(equal))))
    return np.asarray(shares * equal)


def _error(predicted: np.ndarray, seconds: np.ndarray) -> float:
    return float(np.median(np.abs(predicted / seconds - 1)))


if __name__ == "__main__":
    main()
