"""The verdict on a ranking: the model that is best in most draws, or the models that it is undecided between."""

import math
import re
import shlex
from collections.abc import Sequence
from dataclasses import dataclass

import numpy as np
import pandas as pd

from favor.analyze.chances import draw_best
from favor.analyze.flags import disturbance
from favor.analyze.intervals import deviations, has_known_uncertainty, says_nothing
from favor.analyze.limits import Limit
from favor.analyze.metric_column import MetricColumn
from favor.analyze.origins import said_source
from favor.analyze.ranking import Request
from favor.analyze.recommendation import ToDecide, text_in
from favor.analyze.run_options import names_by_options, settings_of
from favor.analyze.selection import numbers
from favor.analyze.setting import QUANTIZED, Setting, column_of
from favor.metrics import METRICS
from favor.pipeline import Pipeline
from favor.text import plural
from favor.units import option_text

MOST = 0.5  # a model that is best in a smaller share of draws is not favored
LIKELY = 0.05  # a model that is best in a smaller share of draws is not a contender
_MOST_CONTENDERS = 5
_CLEAR = 1.645  # standard deviations between two numbers of which one is larger with 95 %

BUDGET = 20.0
"""Seconds: the default budget of a measurement."""
_LARGEST_BUDGET = 600.0
LOAD_MINUTES = 2.2
"""Duration of a load test, with its start."""


@dataclass(frozen=True)
class Verdict:
    """For each row, the probability of being the best (None if nothing can be drawn), and which row is favored.

    `contenders` is empty if one is favored. A model with a number of unknown uncertainty may be favored or a contender,
    but its probability is NaN. `nobody` is the share of draws in which no model meets all limits. `too_brief` are
    contenders that were measured too briefly on a busy machine; without them, a model would be favored.
    """

    chances: dict[int, float] | None
    favored: int | None
    contenders: tuple[int, ...]
    nobody: float
    too_brief: tuple[int, ...] = ()


def judge(rows: pd.DataFrame, pool: pd.DataFrame, objective: str, limits: Sequence[Limit], *, draws: int) -> Verdict:
    """The verdict on rows that are ordered best first; `pool` has those that meet all limits by their numbers."""
    first = int(pool.index[0]) if len(pool) else None
    drawn = draw_best(rows, objective, limits, draws=draws)
    if drawn is None:
        return Verdict(None, first, (), 0.0)
    shares, chances = (
        dict(zip(rows.index.tolist(), column.tolist(), strict=True)) for column in (drawn.shares, drawn.probabilities)
    )
    nobody = max(0.0, 1 - sum(shares.values()))
    likely = sorted(shares, key=lambda at: -shares[at])
    most = MOST + 1 / math.sqrt(draws)  # two standard errors more than half, so that chance does not decide
    if not len(pool):
        return Verdict(chances, None, (), nobody)
    open_shares = zip(rows.index.tolist(), drawn.open_shares.tolist(), strict=True)
    too_brief = tuple(at for at, share in open_shares if share >= LIKELY and at != likely[0])[: _MOST_CONTENDERS - 1]
    if shares[likely[0]] >= most and likely[0] in pool.index:
        if too_brief:
            return Verdict(chances, None, (likely[0], *too_brief), nobody, too_brief)
        return Verdict(chances, likely[0], (), nobody)
    contenders = dict.fromkeys([*(at for at in likely if shares[at] >= LIKELY), *too_brief])
    return Verdict(chances, None, tuple(contenders)[:_MOST_CONTENDERS], nobody)


def what_decides(
    rows: pd.DataFrame,
    verdict: Verdict,
    objective: str,
    limits: Sequence[Limit],
    request: Request,
    table: pd.DataFrame,
    *,
    draws: int,
) -> ToDecide:
    """The metric whose uncertainty keeps the answer open, and what to run to reduce it."""
    column = _doubtful(rows.loc[list(verdict.too_brief)], objective, limits) or _open_question(
        rows, objective, limits, draws=draws
    )
    limit = next((limit for limit in limits if limit.column == column and column != objective), None)
    some = rows.loc[list(verdict.contenders)]
    if MetricColumn.named(column).metric.group == "quality":
        return _by_training(some, column, limit, request)
    return _by_measuring(some, column, limit, request, table)


def _doubtful(rows: pd.DataFrame, objective: str, limits: Sequence[Limit]) -> str | None:
    """The first column with an uninformative number."""
    return next((column for column in _involved(objective, limits) if says_nothing(rows, column).any()), None)


def _involved(objective: str, limits: Sequence[Limit]) -> list[str]:
    return list(dict.fromkeys([objective, *(limit.column for limit in limits)]))


def _open_question(rows: pd.DataFrame, objective: str, limits: Sequence[Limit], *, draws: int) -> str:
    """The column whose exact values would make one model the best in most draws."""

    def surest(column: str) -> float:
        known = rows.assign(**{f"{column}_{end}": rows[column] for end in ("low", "high")}).drop(
            columns=[f"{column}_flags"], errors="ignore"
        )
        drawn = draw_best(known, objective, limits, draws=draws)
        return 0.0 if drawn is None else float(drawn.shares.max())

    return max(_involved(objective, limits), key=surest)


def _by_measuring(
    some: pd.DataFrame, column: str, limit: Limit | None, request: Request, table: pd.DataFrame
) -> ToDecide:
    named = MetricColumn.named(column)
    metric, device = named.metric, named.device or request.device
    what = metric.title.lower()
    sources = {text_in(row, f"{column}_source") for _, row in some.iterrows()}
    flags = [text_in(row, f"{column}_flags") for _, row in some.iterrows()]
    budget, repeat = BUDGET, ""
    if sources <= {"imported", "published"}:
        # The command below runs here, and not on the machine of those who published.
        elsewhere = f"another machine{_device_of(some, column)}"
        why = f"{what} was measured on {elsewhere}; measuring it here decides for this machine only"
    elif sources != {"measured"}:
        origins = " and ".join(sorted({said_source(source) for source in sources if source}))
        why = f"{what} is {origins}; measure it{f' on {device}' if device else ''}"
    elif doubts := {disturbance(flag) for flag in flags} - {None}:
        doubt = "was measured while the machine was busy" if "busy" in doubts else "contradicts other measurements"
        why, repeat = f"{what} {doubt}; repeat it", " --repeat flagged"
    elif not has_known_uncertainty(some, column).all():
        why, repeat = f"{what} has no interval for at least one of these models; measure it again", " --repeat all"
    else:
        budget = _budget(some, column, limit)
        why, repeat = f"{what} is not measured precisely enough; measure longer", " --repeat all"
        if budget > _LARGEST_BUDGET:
            near = "too close to its limit" if limit else "too close"
            why = f"{what} is {near} to tell in {_LARGEST_BUDGET / 60:g} min each; choose by another metric"
            return ToDecide(metric.name, why, None, None)
    if (column_of(some, "run_precision") == QUANTIZED).any():
        return ToDecide(metric.name, f"{why} with the images that it was calibrated with", None, None)
    by_options = names_by_options(some, settings_of(some, column), table, request)
    count = sum(map(len, by_options.values()))
    if limit is not None and limit.p99 is not None:
        measure, asked = "load", f"--p99 {option_text(limit.p99, 's')} --study {request.study}"
        longer, minutes = "", count * LOAD_MINUTES
    else:
        phase = " --phase training" if metric.phase == "training" else ""
        measure, asked = "measure", f"--study {request.study}{phase}"
        longer = f" --budget {budget:.0f}" if budget > BUDGET else ""
        minutes = minutes_to_measure(count, budget)
    commands = [
        f"favor {measure} {' '.join(names)} {asked}{options}{longer}{repeat}" for options, names in by_options.items()
    ]
    return ToDecide(metric.name, why, "; ".join(commands), minutes)


def _device_of(some: pd.DataFrame, column: str) -> str:
    """The device behind other people's numbers, in parentheses; empty if it is unknown."""
    settings = column_of(some, f"{column}_setting")
    devices = {setting.device for setting in settings if isinstance(setting, Setting) and setting.device}
    return f" ({' and '.join(sorted(devices))})" if devices else ""


def minutes_to_measure(models: int, budget: float = BUDGET) -> float:
    """How long it takes to measure models: 10 s each to start and warm up, and three and a half budgets.

    >>> round(minutes_to_measure(3), 1)
    4.0
    """
    return models * (10 + 3.5 * budget) / 60


def _budget(some: pd.DataFrame, column: str, limit: Limit | None) -> float:
    """The budget after which the first two models, or the first and its limit, can be told apart.

    Variances shrink with the time, from that which the records say they took.
    """
    spent = column_of(some, f"{column}_budget").astype(float).fillna(BUDGET).to_numpy()
    values, after_a_second = numbers(some, column), np.maximum(*deviations(some, column)) ** 2 * spent
    if limit is not None:
        values, after_a_second = np.array([values[0], limit.value]), after_a_second[:1]
    gap = abs(math.log(values[0] / values[1])) if len(values) > 1 else 0.0
    return math.inf if gap == 0 else max(BUDGET, float(after_a_second[:2].sum()) * (_CLEAR / gap) ** 2)


def _by_training(some: pd.DataFrame, metric: str, limit: Limit | None, request: Request) -> ToDecide:
    """More seeds decide between accuracies of the user's own training runs; between others, nothing quick does."""
    title = METRICS[metric].title.lower()
    instead = "move --min-accuracy" if limit else "choose by a cost (--prefer)"
    if set(some[f"{metric}_source"]) != {"measured"}:
        near = "too close to its limit" if limit else "too close"
        return ToDecide(metric, f"{title} is {near} for its number of test images; {instead}", None, None)
    seeds = int(some[f"{metric}_seeds"].max())
    why = f"{title} is too close to tell with {plural(seeds, 'seed')}; train more seeds or {instead}"
    trained = [_training(row, row[f"{metric}_setting"], seeds, request) for _, row in some.iterrows()]
    commands = [command for command in trained if command is not None]
    # No command gives a study's overrides to a model.
    if len(commands) < len(some) or column_of(some, f"{metric}_overrides").notna().any():
        return ToDecide(metric, why, None, None)
    return ToDecide(metric, why, "; ".join(commands), _minutes_to_train(some))


def _training(row: pd.Series, setting: Setting, seed: int, request: Request) -> str | None:
    """The command that trains a model as in its setting, with another seed.

    None if it needs initial weights or a recipe file: records do not say where these are.
    """
    pipeline = Pipeline.parsed(str(setting.pipeline))
    if pipeline is None or pipeline.file_hash is not None or setting.pretraining not in (None, "none"):
        return None
    sets = [f"seed={seed}", *pipeline.overrides]
    sets += [f"img_size={row['img_size']:g}"] if pd.notna(row["img_size"]) else []
    data = re.sub(r"\[\d+\+\d+\]$", "", str(setting.dataset))  # the size of a subset
    words = ["favor", "train", str(row["name"]), "--recipe", pipeline.recipe]
    words += [word for change in sets for word in ("--set", change)]
    words += ["--data", data]
    words += [] if pipeline.minutes is None else ["--minutes", str(pipeline.minutes)]
    return f"{shlex.join(words)} --study {request.study}"


def _minutes_to_train(some: pd.DataFrame) -> float | None:
    """One more training of each model, where its hours per epoch are known."""
    if "train_hours_per_epoch" not in some.columns or some["train_hours_per_epoch"].isna().any():
        return None
    return float((some["train_hours_per_epoch"] * some["top1_epochs_high"]).sum() * 60)
