"""Flags on measurements: which numbers they put in doubt, and how much wider that makes them.

Other load only ever slows a call down, so a busy number is widened towards the better side. A number that contradicts
others may be wrong either way.
"""

import math
from collections.abc import Callable, Iterable
from typing import Literal

import numpy as np

from favor.metrics import METRICS

DISTURBED = math.log(6)
"""How much better the true number may be than a disturbed one, as a logarithm: the end of a 95 % interval.

On two cores with another program running, 597 ms were measured for 84 ms, 0.8 img/s for 10, and 1.8 img/s for 9.6."""

UNSTEADY = math.log(1.05)
"""The standard deviation of times that drifted or had not settled: the threshold of these flags is 5 %."""

_UNSTEADY = {"drift", "unsettled"}
_TIMED = ("speed", "energy", "money")
_OF_TRAINING = tuple(name for name, metric in METRICS.items() if metric.group in _TIMED and metric.phase == "training")
# Flags name the step or the metric that was measured; they concern all metrics whose names start with it, and these,
# which are derived from it.
_DERIVED = {
    "latency": ("max_qps",),
    "throughput": ("energy_per_image", "carbon_per_image", "money_per_image", "max_qps"),
    "train_step": _OF_TRAINING,
    "train_throughput": _OF_TRAINING,
    "update": tuple(name for name in _OF_TRAINING if name.endswith("_per_epoch")),
}


def flags_on(metric: str, flags: object) -> str | None:
    """Those of a record's flags that concern a metric; None without any.

    >>> flags_on("latency_p50", "busy latency:wide throughput:drift"), flags_on("inference_memory", "busy")
    ('busy latency:wide', None)
    >>> flags_on("train_hours_per_epoch", "train_throughput:contradictory update:wide")
    'train_throughput:contradictory update:wide'
    """
    if not isinstance(flags, str):
        return None
    return " ".join(flag for flag in flags.split() if _concerns(flag, metric)) or None


def _concerns(flag: str, metric: str) -> bool:
    step, _, what = flag.partition(":")
    if not what:
        return is_disturbed(step) and METRICS[metric].group in _TIMED
    return metric.startswith(step) or metric in _DERIVED.get(step, ())


def is_disturbed(flags: object) -> bool:
    """Whether other load, or a contradiction, puts a number in doubt.

    >>> is_disturbed("busy latency:wide"), is_disturbed("throughput:contradictory"), is_disturbed("latency:wide")
    (True, True, False)
    """
    return disturbance(flags) is not None


def disturbance(flags: object) -> Literal["busy", "contradictory"] | None:
    """What puts a number in doubt: other load, or else a contradiction.

    >>> [disturbance(flags) for flags in ("busy latency:wide", "throughput:contradictory", "latency:wide")]
    ['busy', 'contradictory', None]
    """
    words = _words(flags)
    return "busy" if "busy" in words else "contradictory" if "contradictory" in words else None


def is_contradictory(flags: object) -> bool:
    """Whether a number contradicts others, so that it may be too good, too.

    >>> is_contradictory("throughput:contradictory"), is_contradictory("busy")
    (True, False)
    """
    return "contradictory" in _words(flags)


def is_unsteady(flags: object) -> bool:
    """Whether times drifted or had not settled."""
    return bool(_UNSTEADY & _words(flags))


def _words(flags: object) -> set[str]:
    """The reasons in flags, without the step: `latency:wide` is wide."""
    return {flag.rpartition(":")[2] for flag in flags.split()} if isinstance(flags, str) else set()


def marked(flags: Iterable[object], is_so: Callable[[object], bool]) -> np.ndarray:
    """Mask of the rows whose flags are of a kind."""
    return np.array([is_so(of_row) for of_row in flags], dtype=bool)
