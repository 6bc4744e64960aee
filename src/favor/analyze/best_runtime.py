"""Models in their best runtime: the same device and machine, whatever runs the model there."""

import math
from collections.abc import Sequence
from dataclasses import replace

import numpy as np
import pandas as pd

from favor.analyze.comparison import Comparison
from favor.analyze.flags import DISTURBED, is_contradictory, is_disturbed, marked
from favor.analyze.intervals import says_nothing
from favor.analyze.ranking import Ranking, Request, candidates
from favor.analyze.selection import numbers
from favor.analyze.setting import EAGER, QUANTIZED, RUN_CONDITIONS, Setting, column_of, condition_of
from favor.errors import RequestError, unknown_name
from favor.metrics import DEVICE_METRICS, METRICS
from favor.runtime.names import ALL_PRECISIONS, RUNTIMES
from favor.text import plural

_MODEL = ["name", "img_size"]
_MAY_DIFFER = ("runtime", "precision")
_MEMORY = {"inference_memory", "inference_memory_best_batch"}
"""What PyTorch's allocator tells exactly, and other runtimes do not."""


def in_runtime(table: pd.DataFrame, runtime: str | None) -> pd.DataFrame:
    """The table with the costs of one runtime only; all of them without one."""
    if runtime is None:
        return table
    of_row = condition_of(table, "runtime").fillna(EAGER)
    known = dict.fromkeys((*RUNTIMES, *map(str, of_row.unique())))
    if runtime not in known:
        raise unknown_name("runtime", runtime, known, "choose from " + ", ".join(known))
    return _without_costs(table, (of_row != runtime).to_numpy(dtype=bool))


def in_precision(table: pd.DataFrame, precision: str | None) -> pd.DataFrame:
    """The table with the costs of one precision only; all of them without one."""
    if precision is None:
        return table
    of_row = condition_of(table, "precision")
    named = (name for name in ALL_PRECISIONS if name != "amp")  # of records, amp-fp16 or amp-bf16
    known = dict.fromkeys((*named, *map(str, of_row.dropna().unique())))
    if precision not in known:
        raise unknown_name("precision", precision, known, "choose from " + ", ".join(known))
    return _without_costs(table, (of_row != precision).fillna(True).to_numpy(dtype=bool))


def _without_costs(table: pd.DataFrame, others: np.ndarray) -> pd.DataFrame:
    columns = [f"{name}{end}" for name in DEVICE_METRICS for end in ("", "_low", "_high", "_rounds")]
    return table.assign(**{name: table[name].mask(others) for name in columns if name in table.columns})


def in_best_runtime(ranking: Ranking, comparison: Comparison, request: Request) -> Ranking:
    """The ranking with each model in the runtime and precision that suit what is preferred best, within the limits.

    A model has a second row for another runtime that may suit better, because its numbers there are in doubt. int8 is
    among them for models whose accuracy in int8 is known. The rows have the columns `runtime`, `run_precision` and
    `names_precision`: whether there are several precisions besides int8.
    """
    if ranking.setting is None or ranking.undecided is not None or ranking.ranked_by != "numbers":
        return ranking
    of_candidates = comparison.narrowed(comparison.compare_in(ranking.setting).trained["name"])
    others = [setting for setting in of_candidates.run_settings.settings if _differs_by_runtime(setting, ranking)]
    remarks = list(ranking.remarks)
    if _MEMORY.intersection((ranking.objective, *(limit.metric for limit in ranking.limits))):
        kind = _memory(ranking.setting)
        alike = [setting for setting in others if _memory(setting) == kind]
        if len(alike) < len(others):
            left = ", ".join(sorted({setting.runtime_name for setting in others if setting not in alike}))
            remarks.append(f"not considered: {left}, whose memory is measured in another way (choose with --runtime)")
        others = alike
    rows, unknown = [_named(ranking.rows, ranking.setting)], set[str]()
    for setting in others:
        if setting.is_quantized:
            unknown |= _without_accuracy(of_candidates, setting, ranking)
        try:
            of_setting = candidates(of_candidates, request, setting)
        except RequestError:
            continue  # no model has an accuracy in int8
        if METRICS[ranking.objective].depends_on_device:
            of_setting = of_setting[column_of(of_setting, ranking.objective).notna()]
        rows.append(_named(of_setting, setting))
    if unknown:
        left_out = f"not considered: {plural(len(unknown), 'model')} in int8, whose accuracy is unknown"
        remarks.append(f"{left_out}; favor measure --precision int8 --checkpoint RUN measures it")
    everywhere = pd.concat(rows, ignore_index=True)
    if len(precisions := _float_precisions(everywhere, ranking)) > 1:
        remarks.append(f"the accuracy is taken to be the same in {', '.join(precisions)}")
    best = _best_of_each(everywhere, ranking).assign(names_precision=len(precisions) > 1)
    return replace(ranking, rows=best, remarks=tuple(remarks))


def _float_precisions(rows: pd.DataFrame, ranking: Ranking) -> list[str]:
    """The precisions but for int8 in which any model has a number that decides."""
    involved = [ranking.objective, *(limit.metric for limit in ranking.limits)]
    costs = [metric for metric in involved if METRICS[metric].depends_on_device and metric in rows.columns]
    found = rows.loc[rows[costs].notna().any(axis=1), "run_precision"].dropna().unique()
    return sorted(str(precision) for precision in found if precision != QUANTIZED)


def _memory(setting: Setting) -> str:
    """Who tells the memory of a run; of a runtime that favor does not run, nobody knows."""
    runtime = RUNTIMES.get(setting.runtime_name)
    return "unknown" if runtime is None else runtime.memory


def _differs_by_runtime(setting: Setting, ranking: Ranking) -> bool:
    """Whether another setting is that of the ranking but for the runtime, or the precision of inference."""
    base = ranking.setting
    if base is None or setting == base:
        return False
    same = all(getattr(setting, name) == getattr(base, name) for name in RUN_CONDITIONS if name not in _MAY_DIFFER)
    same_precision = setting.precision == base.precision or setting.is_quantized
    # Training in another precision is another training run.
    may_differ = None not in (setting.precision, base.precision) and METRICS[ranking.objective].phase != "training"
    return same and (same_precision or may_differ)


def _without_accuracy(comparison: Comparison, setting: Setting, ranking: Ranking) -> set[str]:
    """The models that ran in int8 without a known accuracy there."""
    rows = comparison.compare_in(setting).rows
    ran = [name for name in DEVICE_METRICS if name in rows.columns]
    without = rows[ran].notna().any(axis=1) & rows["top1"].isna() & rows["name"].isin(ranking.rows["name"])
    return set(rows.loc[without, "name"])


def _named(rows: pd.DataFrame, setting: Setting) -> pd.DataFrame:
    return rows.assign(runtime=setting.runtime_name, run_precision=setting.precision)


def _best_of_each(rows: pd.DataFrame, ranking: Ranking) -> pd.DataFrame:
    """The best row of each model and image size, and the one that may be better because its numbers are in doubt.

    Rows within the limits come first, then those with the best objective, then those with the least limited cost. Where
    contradictory numbers look best, the best of the other rows is kept, too.
    """
    limited = [limit.metric for limit in ranking.limits if limit.metric in rows.columns]
    metrics = list(dict.fromkeys([ranking.objective, *limited]))
    by_numbers = _best_first(rows, ranking, metrics)
    flags = [column_of(by_numbers, f"{metric}_flags") for metric in metrics]
    too_good = np.logical_or.reduce([marked(of_metric, is_contradictory) for of_metric in flags])
    sure = by_numbers[~too_good].drop_duplicates(_MODEL)
    # What only keeps the limits better is no reason for another row.
    at_best = by_numbers.assign(**{metric: _at_best(by_numbers, metric) for metric in metrics})
    may_be = _best_first(at_best, ranking, [ranking.objective]).drop_duplicates(_MODEL)
    return rows.loc[sure.index.union(may_be.index)]


def _best_first(rows: pd.DataFrame, ranking: Ranking, metrics: Sequence[str]) -> pd.DataFrame:
    within = np.full(len(rows), True)
    for limit in ranking.limits:
        within &= limit.kept_by(limit.values_of(rows))
    keys = {metric: METRICS[metric].sign * numbers(rows, metric) for metric in metrics}
    order = pd.DataFrame({"beyond": ~within, **keys}, index=rows.index)
    return rows.loc[order.sort_values(list(order.columns), kind="stable", na_position="last").index]


def _at_best(rows: pd.DataFrame, metric: str) -> np.ndarray:
    """The numbers, those in doubt as good as they may be: without an interval they say nothing."""
    better = -METRICS[metric].sign
    in_doubt = marked(column_of(rows, f"{metric}_flags"), is_disturbed)
    values = np.where(in_doubt, numbers(rows, metric) * math.exp(better * DISTURBED), numbers(rows, metric))
    return np.where(says_nothing(rows, metric), np.inf if better > 0 else 0.0, values)
