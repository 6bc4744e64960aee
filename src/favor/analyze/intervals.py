"""Intervals: those in a table, joint draws from them, and the interval of an accuracy from the size of its test set.

A number without an interval is unknown, unless its metric is exact. What all models of a draw share is drawn once:
the rates of a simulated device, the test images of accuracies, and the drift of a machine while models took turns
(docs/decisions.md).
"""

import math
from statistics import NormalDist

import numpy as np
import pandas as pd

from favor.analyze.flags import DISTURBED, UNSTEADY, is_contradictory, is_disturbed, is_unsteady, marked
from favor.analyze.metric_column import MetricColumn
from favor.analyze.selection import numbers, numbers_or_nan
from favor.analyze.setting import Setting, column_of
from favor.errors import RequestError, shown
from favor.metrics import METRICS, QUALITIES, Metric

CONFIDENCE = 0.95
Z = NormalDist().inv_cdf(0.5 + CONFIDENCE / 2)  # standard deviations from the middle of an interval to its end

UNKNOWN = math.log(1.2)
"""How far a cost without an interval may be off, as a logarithm: the end of the 95 % interval that is assumed."""

SIMULATED_OWN, COMPILED_OWN, TRAINING_OWN = 0.10, 0.135, 0.165
"""The deviation of the logarithm of simulated times that models do not share, in eager mode, compiled and in training:
the spread of residuals within a card (docs/simulation-accuracy.md). The rest of an interval is the card's and the
host's."""

LEAST_ROUNDS = 6  # fewer rounds in turns tell neither an order nor a correlation
SAME_IMAGES = 0.4
"""The correlation between the accuracies of two models that the choice of test images makes (docs/decisions.md)."""

# Number of test images per dataset, which bounds the precision of an accuracy.
TEST_IMAGES = {
    "imagenet-1k": 50_000,
    "imagenet-real": 46_837,
    "cars": 8_041,
    "flowers102": 6_149,
    "places365": 36_500,
    "digits": 360,
    "cifar10": 10_000,
    "cifar100": 10_000,
    "fashion-mnist": 10_000,
    "tiny-imagenet": 10_000,
    "synthetic": 512,
}


def has_intervals(table: pd.DataFrame, metric: str) -> bool:
    """Whether any row knows an interval of the metric."""
    return bool(_with_both_ends(table, metric).any())


def has_known_uncertainty(table: pd.DataFrame, metric: str) -> np.ndarray:
    """Mask of the rows whose uncertainty is known: they have an interval, or the metric is exact and not in doubt.

    >>> rows = pd.DataFrame({"params": [5e6], "throughput": [80.0]})
    >>> has_known_uncertainty(rows, "params").tolist(), has_known_uncertainty(rows, "throughput").tolist()
    ([True], [False])
    """
    exact = _is_exact(metric) & np.isfinite(numbers(table, metric)) & ~_is_in_doubt(table, metric)
    return _with_both_ends(table, metric) | exact


def says_nothing(table: pd.DataFrame, metric: str) -> np.ndarray:
    """Mask of the rows whose number was measured on a busy machine, or contradicts others, and has no interval.

    One call on a busy machine took 60 times as long as on a quiet one.
    """
    return _is_in_doubt(table, metric) & ~has_known_uncertainty(table, metric)


def _is_in_doubt(table: pd.DataFrame, metric: str) -> np.ndarray:
    return marked(column_of(table, f"{metric}_flags"), is_disturbed)


def _with_both_ends(table: pd.DataFrame, metric: str) -> np.ndarray:
    low, high = f"{metric}_low", f"{metric}_high"
    if low not in table.columns or high not in table.columns:
        return np.zeros(len(table), dtype=bool)
    return (table[low].notna() & table[high].notna()).to_numpy()


def _metric(column: str) -> Metric | None:
    """The metric of a column; `throughput@t4` is the throughput on another device."""
    return METRICS.get(MetricColumn.named(column).name)


def _is_exact(column: str) -> bool:
    metric = _metric(column)
    return metric is not None and metric.exact


def is_linear(column: str) -> bool:
    """Whether differences matter and not ratios: as for percentages, and for what may be below zero.

    >>> is_linear("top1"), is_linear("top1_change"), is_linear("latency_p50@t4")
    (True, True, False)
    """
    metric = _metric(column)
    return metric is not None and (metric.unit == "%" or metric.signed)


def deviations(table: pd.DataFrame, metric: str) -> tuple[np.ndarray, np.ndarray]:
    """The standard deviations below and above each value: in points where it `is_linear`, else of the logarithm.

    Flags widen them. A number whose uncertainty is unknown is assumed to be as uncertain as the most uncertain one
    that is known, and a cost at least by 20 %.
    """
    value = numbers(table, metric)
    unknown = 0.0 if _is_exact(metric) or is_linear(metric) else UNKNOWN / Z
    if not has_intervals(table, metric):
        below = above = np.full(len(table), unknown)
    else:
        low, high = (numbers(table, f"{metric}_{end}") for end in ("low", "high"))
        if is_linear(metric):
            below, above = value - low, high - value
        else:
            with np.errstate(divide="ignore", invalid="ignore"):
                below, above = np.log(value / np.maximum(low, 1e-3 * value)), np.log(high / value)
        known = _with_both_ends(table, metric)
        below, above = (np.where(known, np.clip(np.nan_to_num(side), 0, None), np.nan) / Z for side in (below, above))
        unknown = 0.0 if _is_exact(metric) else max(unknown, float(np.nanmax([below, above])))
        below, above = (np.where(known, side, unknown) for side in (below, above))
    return _widened(table, metric, below, above)


def _widened(table: pd.DataFrame, metric: str, below: np.ndarray, above: np.ndarray) -> tuple[np.ndarray, np.ndarray]:
    """The deviations with the doubt that flags on the measurements raise."""
    flags = column_of(table, f"{metric}_flags")
    if not flags.notna().any():
        return below, above
    unsteady = np.where(marked(flags, is_unsteady), UNSTEADY, 0.0)
    below, above = np.hypot(below, unsteady), np.hypot(above, unsteady)
    better = np.where(marked(flags, is_disturbed), DISTURBED / Z, 0.0)
    worse = np.where(marked(flags, is_contradictory), DISTURBED / Z, 0.0)
    described = _metric(metric)
    if described is not None and described.better == "higher":
        return np.hypot(below, worse), np.hypot(above, better)
    return np.hypot(below, better), np.hypot(above, worse)


def shared_variance(table: pd.DataFrame, metric: str) -> np.ndarray:
    """The share of each row's variance that it has in common with the other models that share its cause.

    Measured numbers share nothing, since each was measured at another time, unless the models took turns.
    """
    if f"{metric}_shared" in table.columns:
        return np.nan_to_num(numbers(table, f"{metric}_shared"))
    in_turns = _shared_in_turns(table, metric) if f"{metric}_stretch" in table.columns else np.zeros(len(table))
    simulated = _is_simulated(table, metric)
    if not simulated.any() or _is_exact(metric):
        return in_turns
    widest = np.maximum(*deviations(table, metric))
    own = _simulated_own(table, metric)
    share = np.divide(own, widest, out=np.ones(len(table)), where=widest > own)
    return np.where(simulated, 1 - share**2, in_turns)


def _is_simulated(table: pd.DataFrame, metric: str) -> np.ndarray:
    return (column_of(table, f"{metric}_source") == "simulated").fillna(False).to_numpy(dtype=bool)


def _simulated_own(table: pd.DataFrame, metric: str) -> np.ndarray:
    """The deviation of each row that is its model's own, if it is simulated."""
    described = _metric(metric)
    if described is not None and described.phase == "training":
        return np.full(len(table), TRAINING_OWN)
    settings = column_of(table, f"{metric}_setting")
    compiled = [isinstance(setting, Setting) and setting.runtime == "compile" for setting in settings]
    return np.where(compiled, COMPILED_OWN, SIMULATED_OWN)


def _shared_in_turns(table: pd.DataFrame, metric: str) -> np.ndarray:
    """The mean correlation, over rounds, between models that took turns: the drift of the machine."""
    shared = np.zeros(len(table))
    stretches = table[f"{metric}_stretch"]
    for stretch in stretches.dropna().unique():
        members = np.flatnonzero((stretches == stretch).to_numpy())
        rounds = [round_values(text) for text in table[f"{metric}_rounds"].iloc[members]]
        logs = np.log([values[: min(map(len, rounds))] for values in rounds])
        logs = logs[:, np.isfinite(logs).all(axis=0)]
        if len(members) > 1 and logs.shape[1] >= LEAST_ROUNDS and (logs.std(axis=1) > 0).all():
            correlations = np.corrcoef(logs)[np.triu_indices(len(members), 1)]
            shared[members] = np.clip(correlations.mean(), 0.0, 1.0)
    return shared


def round_values(text: object) -> list[float]:
    """The values of rounds, as a table has them; nan for one that was disturbed.

    >>> round_values("12.3 nan 12.5")
    [12.3, nan, 12.5]
    """
    try:
        values = [float(value) for value in str(text).split()]
    except ValueError:
        values = [0.0]
    if any(value <= 0 or value == math.inf for value in values):
        raise RequestError(f"rounds must be numbers above zero, not {shown(text)}; measure the model again")
    return values


def _causes(table: pd.DataFrame, metric: str) -> tuple[np.ndarray, int]:
    """For every row, the number of the cause of error that it shares with others, and how many causes there are.

    Simulations have their device in common, models that took turns their stretch, and accuracies their test images.
    """
    stretches, settings = (column_of(table, f"{metric}_{what}") for what in ("stretch", "setting"))
    causes = [
        (by, getattr(setting, "device", None) if by else None if pd.isna(stretch) else stretch)
        for by, setting, stretch in zip(_is_simulated(table, metric), settings, stretches, strict=True)
    ]
    number = {cause: place for place, cause in enumerate(dict.fromkeys(causes))}
    return np.array([number[cause] for cause in causes], dtype=int), len(number)


def draw(table: pd.DataFrame, metric: str, draws: int, rng: np.random.Generator) -> np.ndarray:
    """Joint draws (draws × rows) of a metric from its 95 % intervals; an exact number stays at its value.

    A two-piece normal: each side of the interval is 1.96 standard deviations of that side wide.
    """
    value = numbers(table, metric)
    below, above = deviations(table, metric)
    if not below.any() and not above.any():
        return np.broadcast_to(value, (draws, len(value)))
    number, networks = _networks(table, metric)
    shared = shared_variance(table, metric)
    z = np.sqrt(1 - shared) * rng.standard_normal((draws, networks))[:, number]
    if shared.any():
        cause, causes = _causes(table, metric)
        z = z + np.sqrt(shared) * rng.standard_normal((draws, causes))[:, cause]
    moved = z * np.where(z > 0, above, below)
    return value + moved if is_linear(metric) else value * np.exp(moved)


def _networks(table: pd.DataFrame, metric: str) -> tuple[np.ndarray, int]:
    """For every row the number of its network, and how many there are: equal simulations are of the same network."""
    simulated = _is_simulated(table, metric)
    if not simulated.any():
        return np.arange(len(table)), len(table)
    columns = [metric, *(end for end in (f"{metric}_low", f"{metric}_high") if end in table.columns)]
    apart = pd.Series(np.arange(len(table)), index=table.index).mask(simulated, -1)
    number = table[columns].assign(_apart=apart).groupby([*columns, "_apart"], dropna=False, sort=False).ngroup()
    return number.to_numpy(), int(number.max()) + 1


def accuracy_interval(accuracy: float, images: float) -> tuple[float, float]:
    """The 95 % Wilson interval of an accuracy in % over so many test images.

    >>> [round(bound, 2) for bound in accuracy_interval(82.54, 50_000)]
    [82.2, 82.87]
    """
    low, high = _wilson(np.array(accuracy), np.array(images))
    return float(low), float(high)


def _wilson(accuracy: np.ndarray, images: np.ndarray) -> tuple[np.ndarray, np.ndarray]:
    share = accuracy / 100
    center = (share + Z**2 / (2 * images)) / (1 + Z**2 / images)
    half = Z / (1 + Z**2 / images) * np.sqrt(share * (1 - share) / images + Z**2 / (4 * images**2))
    return 100 * (center - half), 100 * (center + half)


def with_quality_intervals(table: pd.DataFrame, dataset: str | None) -> pd.DataFrame:
    """The table with missing intervals of qualities estimated from test set size and seeds.

    An accuracy varies with the sample of test images, and every quality with the seed of its training. A model with one
    seed is assumed to vary like those with several; without any of these, the variation between seeds is left out.
    `<metric>_shared` is the share of the variance that comes from test images that all models have in common.
    """
    columns = {}
    for metric in [name for name in QUALITIES if name in table.columns]:
        value, half = numbers(table, metric), _half_width_over_seeds(table, metric)
        images = _test_images(table, metric, dataset)
        low, high = _wilson(value, images)
        below, above = np.nan_to_num(value - low), np.nan_to_num(high - value)
        known = (half > 0) | ~np.isnan(images)
        bounds = {"_low": value - np.hypot(below, half), "_high": value + np.hypot(above, half)}
        estimated = np.zeros(len(table), dtype=bool)
        for end, bound in bounds.items():
            given = numbers_or_nan(table, metric + end)
            estimated |= np.isnan(given) & known
            columns[metric + end] = np.where(np.isnan(given) & known, bound, given)
        if not np.isnan(images).all():
            by_images = np.divide(below**2, below**2 + half**2, out=np.zeros(len(table)), where=below > 0)
            # A table that has its intervals already keeps what they share.
            before = numbers_or_nan(table, f"{metric}_shared")
            columns[f"{metric}_shared"] = np.where(estimated, SAME_IMAGES * by_images, np.nan_to_num(before))
    return table.assign(**{name: ends for name, ends in columns.items() if not np.isnan(ends).all()})


def _test_images(table: pd.DataFrame, metric: str, dataset: str | None) -> np.ndarray:
    """How many images each accuracy was evaluated on, as its record says or else its dataset has; NaN if unknown."""
    if METRICS[metric].unit != "%":
        return np.full(len(table), np.nan)
    of_dataset = float(TEST_IMAGES.get(dataset or "", np.nan))
    own = numbers_or_nan(table, f"{metric}_images")
    return np.where(np.isnan(own), of_dataset, own)


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
