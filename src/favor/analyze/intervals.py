"""Intervals: those in a table, draws from them, and the interval of an accuracy from the size of its test set."""

import math
from statistics import NormalDist

import numpy as np
import pandas as pd

from favor.analyze.selection import numbers
from favor.metrics import METRICS, QUALITIES

CONFIDENCE = 0.95
Z = NormalDist().inv_cdf(0.5 + CONFIDENCE / 2)  # standard deviations from the middle of an interval to its end

# Number of test images per data set, which bounds the precision of an accuracy.
TEST_IMAGES = {
    "imagenet-1k": 50_000,
    "imagenet-real": 46_837,
    "cars": 8_041,
    "flowers102": 6_149,
    "places365": 36_500,
    "cifar10": 10_000,
    "tiny-imagenet": 10_000,
}


def has_intervals(table: pd.DataFrame, metric: str) -> bool:
    """Whether any row knows an interval of the metric."""
    low, high = f"{metric}_low", f"{metric}_high"
    return low in table.columns and high in table.columns and bool((table[low].notna() & table[high].notna()).any())


def draw(table: pd.DataFrame, metric: str, draws: int, rng: np.random.Generator) -> np.ndarray:
    """Draws (draws × rows) of a metric from its 95 % intervals; a row without an interval stays at its value.

    A two-piece normal: each side of the interval is 1.96 standard deviations of that side wide.
    """
    value = numbers(table, metric)
    if not has_intervals(table, metric):
        return np.broadcast_to(value, (draws, len(value)))
    below = _deviation(value - numbers(table, f"{metric}_low"))
    above = _deviation(numbers(table, f"{metric}_high") - value)
    z = rng.standard_normal((draws, len(value)))
    return value + z * np.where(z > 0, above, below)


def _deviation(half_width: np.ndarray) -> np.ndarray:
    return np.clip(np.nan_to_num(half_width), 0, None) / Z


def accuracy_interval(accuracy: float, images: int) -> tuple[float, float]:
    """The 95 % Wilson interval of an accuracy in % over so many test images.

    >>> [round(bound, 2) for bound in accuracy_interval(82.54, 50_000)]
    [82.2, 82.87]
    """
    share = accuracy / 100
    center = (share + Z**2 / (2 * images)) / (1 + Z**2 / images)
    half = Z / (1 + Z**2 / images) * math.sqrt(share * (1 - share) / images + Z**2 / (4 * images**2))
    return 100 * (center - half), 100 * (center + half)


def with_quality_intervals(table: pd.DataFrame, dataset: str | None) -> pd.DataFrame:
    """The table with missing intervals of qualities estimated from test set size and seeds.

    An accuracy varies with the sample of test images, and every quality with the seed of its training. A model with one
    seed is assumed to vary like those with several; without any of these, the variation between seeds is left out.
    """
    columns = {}
    for metric in [name for name in QUALITIES if name in table.columns]:
        value, half = numbers(table, metric), _half_width_over_seeds(table, metric)
        below = above = np.zeros(len(table))
        images = TEST_IMAGES.get(dataset or "") if METRICS[metric].unit == "%" else None
        if images is not None:
            ends = np.array([accuracy_interval(each, images) for each in value]).reshape(-1, 2)
            below, above = value - ends[:, 0], ends[:, 1] - value
        known = (half > 0) | (images is not None)
        bounds = {"_low": value - np.hypot(below, half), "_high": value + np.hypot(above, half)}
        for end, bound in bounds.items():
            given = numbers(table, metric + end) if metric + end in table.columns else np.full(len(table), np.nan)
            columns[metric + end] = np.where(np.isnan(given) & known, bound, given)
    return table.assign(**{name: ends for name, ends in columns.items() if not np.isnan(ends).all()})


def _half_width_over_seeds(table: pd.DataFrame, metric: str) -> np.ndarray:
    """Half the 95 % interval of a mean over seeds, by Student's t; zero where no model has several seeds."""
    if f"{metric}_seeds" not in table.columns or not (table[f"{metric}_seeds"] > 1).any():
        return np.zeros(len(table))
    from scipy.special import stdtrit

    seeds, spread = numbers(table, f"{metric}_seeds"), numbers(table, f"{metric}_std")
    several = seeds > 1
    freedom = np.where(several, seeds - 1, (seeds[several] - 1).sum())
    pooled = math.sqrt(((seeds[several] - 1) * spread[several] ** 2).sum() / (seeds[several] - 1).sum())
    spread = np.where(several, spread, pooled)
    return stdtrit(freedom, 0.5 + CONFIDENCE / 2) * spread / np.sqrt(seeds)
