"""Uncertain numbers: intervals in a table, draws from them, and the one that a test set's size gives an accuracy."""

import math
from statistics import NormalDist

import numpy as np
import pandas as pd

from favor.analyze.selection import numbers

CONFIDENCE = 0.95
Z = NormalDist().inv_cdf(0.5 + CONFIDENCE / 2)  # standard deviations from the middle of an interval to its end

# Images that the data sets' accuracies are taken over; their number bounds how sure an accuracy can be.
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
    centre = (share + Z**2 / (2 * images)) / (1 + Z**2 / images)
    half = Z / (1 + Z**2 / images) * math.sqrt(share * (1 - share) / images + Z**2 / (4 * images**2))
    return 100 * (centre - half), 100 * (centre + half)


def with_accuracy_intervals(table: pd.DataFrame, dataset: str | None) -> pd.DataFrame:
    """The table with `top1_low` and `top1_high` filled from the data set's size where they are unknown."""
    images = TEST_IMAGES.get(dataset or "")
    if images is None or "top1" not in table.columns:
        return table
    bounds = np.array([accuracy_interval(value, images) for value in numbers(table, "top1")]).reshape(-1, 2)
    columns = {}
    for column, bound in (("top1_low", bounds[:, 0]), ("top1_high", bounds[:, 1])):
        known = numbers(table, column) if column in table.columns else np.full(len(table), np.nan)
        columns[column] = np.where(np.isnan(known), bound, known)
    return table.assign(**columns)
