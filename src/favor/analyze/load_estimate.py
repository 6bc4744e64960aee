"""The load that a model can take where it was not measured: an estimate by queueing theory from its service times."""

import math
from collections.abc import Sequence

import numpy as np
import pandas as pd

from favor.analyze.limits import Limit
from favor.analyze.setting import column_of, condition_of, given_batch
from favor.metrics import METRICS
from favor.queueing import largest_load

PREDICTED = "predicted"
ENOUGH = 4
"""Loads are estimated up to this multiple of the load that is asked for."""
_NEEDED = ("latency_p50", "throughput", "best_batch_size")


def at_load(table: pd.DataFrame, limits: Sequence[Limit]) -> pd.DataFrame:
    """The table with only the loads at the latency that the limits name, and estimates for rows with service times."""
    asked_for = next((limit for limit in limits if limit.p99 is not None), None)
    if asked_for is None or asked_for.p99 is None:
        return table
    p99 = asked_for.p99
    asked = np.isclose(column_of(table, "p99_limit").astype(float), p99) & (column_of(table, "scenario") == "server")
    loads = [column for column in ("max_qps", "max_qps_low", "max_qps_high") if column in table.columns]
    of_limit = table.assign(**{column: table[column].where(asked) for column in loads})
    return pd.concat([_predicted_rows(table, p99, ENOUGH * asked_for.value), of_limit], ignore_index=True)


def _predicted_rows(table: pd.DataFrame, p99: float, enough: float) -> pd.DataFrame:
    """One row for every row with service times, with the load at which 99 % of the answers come within `p99` seconds.

    Loads above `enough` are not estimated, nor those of models without an accuracy, which cannot be favored. The source
    of the estimate is `predicted`; the machine and the flags are those of the service times.
    """
    if not set(_NEEDED) <= set(table.columns):
        return table[:0]
    is_candidate = table["name"].isin(table.loc[column_of(table, "top1").notna(), "name"])
    is_known = np.isfinite(table[list(_NEEDED)].to_numpy(dtype=float)).all(axis=1) & ~given_batch(table)
    known = table[is_known & is_candidate.to_numpy()]
    p99_of_one = known["latency_p99"] if "latency_p99" in known.columns else pd.Series(np.nan, index=known.index)
    columns = [known[name].astype(float) for name in _NEEDED]
    loads = [
        predicted_load(latency, throughput, int(batch), p99, slowest, enough)
        for latency, throughput, batch, slowest in zip(*columns, p99_of_one.astype(float), strict=True)
    ]
    numbers = {f"{name}{end}" for name in METRICS for end in ("", "_low", "_high")}
    rows = known[[column for column in known.columns if column not in numbers]]
    # An estimate is in the setting of its service times, which does not name the machine of what is not measured.
    machine = {
        "machine": condition_of(known, "machine"),
        "environment.host": condition_of(known, "host"),
        "environment.device_name": condition_of(known, "device_name"),
    }
    return rows.assign(**machine, max_qps=loads, source=PREDICTED, task="load", p99_limit=p99, scenario="server")


def predicted_load(
    latency: float,
    throughput: float,
    best_batch: int,
    limit: float,
    latency_p99: float = math.nan,
    enough: float = math.inf,
) -> float:
    """The largest load by queueing theory, from the median latency of one image and the throughput of the best batch.

    In between, the time of a batch is taken as linear in its size. The limit is shortened by p99 - p50 of one image.

    >>> 90 < predicted_load(0.010, 200.0, 8, limit=0.05) < 200
    True
    >>> predicted_load(0.060, 200.0, 8, limit=0.05)
    0.0
    """
    best_time = best_batch / throughput
    per_image = (best_time - latency) / (best_batch - 1) if best_batch > 1 else 0.0
    sizes = [2**power for power in range(best_batch.bit_length())]
    seconds = {size: max(latency, latency + per_image * (size - 1)) for size in sizes}
    jitter = 0.0 if np.isnan(latency_p99) else max(0.0, latency_p99 - latency)
    return largest_load(seconds, limit - jitter, enough).rate
