"""What to run so that a decision rests on the user's own measurements, and how long that takes."""

import math
import shlex
from collections.abc import Sequence
from dataclasses import dataclass, replace

import numpy as np
import pandas as pd

from favor.analyze.limits import Limit
from favor.analyze.ranking import PREFERENCES, Ranking, Request
from favor.analyze.run_options import names_by_options, options_in, settings_like
from favor.analyze.setting import Setting, column_of, on_device
from favor.analyze.verdict import BUDGET, LOAD_MINUTES, minutes_to_measure
from favor.machine.stopping import BUDGETS_FOR_WANTED_CALLS, least_count
from favor.metrics import METRICS
from favor.units import option_text
from favor.zoo.cards import TIMM

_METERED = ("energy_per_image", "carbon_per_image", "money_per_image")


@dataclass(frozen=True)
class NextSteps:
    """Commands to run one after the other, and the minutes that they take; None if that is unknown."""

    commands: tuple[str, ...] = ()
    minutes: float | None = None


def next_steps(rows: pd.DataFrame, ranking: Ranking, request: Request, table: pd.DataFrame) -> NextSteps:
    """What to run for the models in `rows`; nothing where the user has measured all of them by all that decides."""
    metrics = deciding_metrics(ranking, request)
    measurable = [metric for metric in metrics if METRICS[metric].group != "quality" and metric != "max_qps"]
    running = [metric for metric in measurable if METRICS[metric].depends_on_device]
    commands: list[str] = []
    minutes = 0.0
    # Parameters of published weights are known.
    if (running or not request.by_weights) and len(lacking := _not_measured(rows, measurable)):
        measuring = _measuring(lacking, running, ranking, request, table)
        commands += measuring.commands
        minutes += measuring.minutes or 0.0
    latency = _latency_at_load(ranking.limits)
    if latency is not None and len(lacking := _not_measured(rows, ["max_qps"])):
        asked = f"--p99 {option_text(latency, 's')} --study {request.study}"
        usual = _setting_of(["max_qps"], ranking, Setting(runtime=request.runtime, precision=request.precision))
        by_options = names_by_options(lacking, settings_like(usual, lacking), table, request)
        commands += [f"favor load {' '.join(names)} {asked}{options}" for options, names in by_options.items()]
        minutes += LOAD_MINUTES * sum(map(len, by_options.values()))
    if not commands:
        return NextSteps()
    again = " ".join([f"favor recommend --study {request.study}", *request.options(), *_own_device(request, table)])
    return NextSteps((*commands, again), None if math.isnan(minutes) else minutes)


def _own_device(request: Request, table: pd.DataFrame) -> list[str]:
    """The option that names the device again if the user measures on it; on another, measurements are not its own."""
    if request.device is None or request.also_on:
        return []
    measured = table[column_of(table, "source") == "measured"]
    return [f"--device {shlex.quote(request.device)}"] if on_device(measured, request.device).any() else []


def deciding_metrics(ranking: Ranking, request: Request) -> list[str]:
    """The metrics that decide, or would decide if they were known."""
    on_front = ranking.ranked_by == "published front" and request.prefer is not None
    preferred = PREFERENCES[request.prefer][0] if on_front and request.prefer else ranking.objective
    return list(dict.fromkeys([preferred, *(limit.metric for limit in request.limits)]))


def meter_note(metrics: Sequence[str]) -> list[str]:
    """A requirement of a metric that not every machine meets."""
    if not set(metrics).intersection(_METERED):
        return []
    return ["energy can be measured only on a machine with an energy meter; `favor doctor` says whether yours has one"]


def _not_measured(rows: pd.DataFrame, metrics: Sequence[str]) -> pd.DataFrame:
    """The rows of models that the user has not measured by all of these metrics."""
    own = [(column_of(rows, f"{metric}_source") == "measured").to_numpy(dtype=bool) for metric in metrics]
    return rows[~np.logical_and.reduce([np.full(len(rows), True), *own])]


def _setting_of(metrics: Sequence[str], ranking: Ranking, asked: Setting) -> Setting:
    """The setting of the user's own numbers of these metrics; what the user asked for where there are none."""
    known = [setting for metric in metrics for setting in column_of(ranking.rows, f"{metric}_setting").dropna()]
    own = (setting for setting in (*known, ranking.setting) if setting is not None and setting.machine is not None)
    return next(own, asked)


def _measuring(
    rows: pd.DataFrame, running: Sequence[str], ranking: Ranking, request: Request, table: pd.DataFrame
) -> NextSteps:
    """The commands that measure models; timm's networks are too many to name, so that `--for` chooses."""
    phases = {METRICS[metric].phase for metric in running}
    asked = Setting(runtime=request.runtime, precision=request.precision) if phases == {"inference"} else Setting()
    usual = _setting_of(running, ranking, asked)
    if phases == {"inference"} and rows["name"].str.startswith(TIMM).any():
        among = shlex.quote(request.among or "timm")
        # `favor load` measures the load, and `--for` refuses it.
        single = [limit for limit in request.limits if limit.metric != "max_qps"]
        question = replace(request, limits=tuple(single), also_on=()).question()
        options = "".join(f" {option}" for option in options_in(usual, table))
        text = f'favor measure --for "{question}" --among {among} --study {request.study}{options}'
        return NextSteps((text,), math.nan)
    phase = "" if "training" not in phases else " --phase both" if "inference" in phases else " --phase training"
    done = table[(column_of(table, "source") == "measured") & table["name"].isin(rows["name"])]
    done = done[column_of(done, "task").astype(str).str.startswith(tuple(phases))] if phases else done[:0]
    # A model that is measured is done: it is measured again only if the user asks for that.
    repeat = " --repeat all" if len(done) else ""
    budget = _budget_for_p99(done) if "latency_p99" in running else BUDGET
    longer = f" --budget {budget:.0f}" if budget > BUDGET else ""
    by_options = names_by_options(rows, settings_like(usual, rows), table, request)
    commands = tuple(
        f"favor measure {' '.join(names)} --study {request.study}{phase}{options}{longer}{repeat}"
        for options, names in by_options.items()
    )
    count = max(1, len(phases)) * sum(map(len, by_options.values()))
    return NextSteps(commands, minutes_to_measure(count, budget))


def _budget_for_p99(done: pd.DataFrame) -> float:
    """The budget in which even the slowest measured model makes the calls that its p99 needs."""
    slowest = column_of(done, "latency_p50").max()
    needed = least_count(0.99) * slowest / BUDGETS_FOR_WANTED_CALLS
    return BUDGET if pd.isna(needed) else max(BUDGET, math.ceil(needed))


def _latency_at_load(limits: Sequence[Limit]) -> float | None:
    return next((limit.p99 for limit in limits if limit.p99 is not None and limit.device is None), None)
