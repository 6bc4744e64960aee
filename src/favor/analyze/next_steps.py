"""What to run so that a decision rests on the user's own measurements, and how long that takes."""

import math
import shlex
from collections.abc import Sequence
from dataclasses import dataclass, replace

import pandas as pd

from favor.analyze.limits import Limit
from favor.analyze.ranking import PREFERENCES, Ranking, Request
from favor.analyze.setting import column_of, on_device
from favor.analyze.verdict import BUDGET, LOAD_MINUTES, minutes_to_measure
from favor.machine.stopping import BUDGETS_FOR_WANTED_CALLS, least_count
from favor.metrics import METRICS
from favor.units import option_text
from favor.zoo.cards import TIMM

_METERED = ("energy_per_image", "carbon_per_image", "money_per_image")


@dataclass(frozen=True)
class NextSteps:
    """Commands to run one after the other, and the minutes that they take; None where that cannot be told."""

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
    if (running or not request.by_weights) and (names := _not_measured(rows, measurable)):
        command = _measuring(names, running, request, table)
        commands.append(command.text)
        minutes += command.minutes
    latency = _latency_at_load(ranking.limits)
    if latency is not None and (names := _not_measured(rows, ["max_qps"])):
        at_load = f"favor load {' '.join(names)} --p99 {option_text(latency, 's')} --study {request.study}"
        commands.append(f"{at_load}{_in_runtime(request)}")
        minutes += LOAD_MINUTES * len(names)
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
    """What a metric needs that not every machine has."""
    if not set(metrics).intersection(_METERED):
        return []
    return ["energy can be measured only on a machine with an energy meter; `favor doctor` says whether yours has one"]


@dataclass(frozen=True)
class _Command:
    text: str
    minutes: float


def _not_measured(rows: pd.DataFrame, metrics: Sequence[str]) -> list[str]:
    """The models that the user has not measured by all of these metrics."""
    lacking = [
        str(row["name"])
        for _, row in rows.iterrows()
        if any(row.get(f"{metric}_source") != "measured" for metric in metrics)
    ]
    return list(dict.fromkeys(lacking))


def _measuring(names: Sequence[str], running: Sequence[str], request: Request, table: pd.DataFrame) -> _Command:
    """The command that measures models; timm's networks are too many to name, so that `--for` chooses."""
    phases = {"training" if metric.startswith(("train", "finetune")) else "inference" for metric in running}
    runtime = _in_runtime(request) if phases == {"inference"} else ""
    if phases == {"inference"} and any(name.startswith(TIMM) for name in names):
        among = shlex.quote(request.among or "timm")
        # `favor load` measures the load, and `--for` refuses it.
        single = [limit for limit in request.limits if limit.metric != "max_qps"]
        question = replace(request, limits=tuple(single), also_on=()).question()
        text = f'favor measure --for "{question}" --among {among} --study {request.study}{runtime}'
        return _Command(text, math.nan)
    phase = "" if "training" not in phases else " --phase both" if "inference" in phases else " --phase training"
    done = table[(column_of(table, "source") == "measured") & table["name"].isin(names)]
    done = done[column_of(done, "task").astype(str).str.startswith(tuple(phases))] if phases else done[:0]
    # A model that is measured is done: it is measured again only if the user asks for that.
    repeat = " --repeat all" if len(done) else ""
    budget = _budget_for_p99(done) if "latency_p99" in running else BUDGET
    longer = f" --budget {budget:.0f}" if budget > BUDGET else ""
    text = f"favor measure {' '.join(names)} --study {request.study}{phase}{runtime}{longer}{repeat}"
    return _Command(text, minutes_to_measure(max(1, len(phases)) * len(names), budget))


def _budget_for_p99(done: pd.DataFrame) -> float:
    """The budget with which the slowest of the measured models makes the calls that a p99 needs."""
    slowest = column_of(done, "latency_p50").max()
    needed = least_count(0.99) * slowest / BUDGETS_FOR_WANTED_CALLS
    return BUDGET if pd.isna(needed) else max(BUDGET, math.ceil(needed))


def _latency_at_load(limits: Sequence[Limit]) -> float | None:
    return next((limit.p99 for limit in limits if limit.p99 is not None and limit.device is None), None)


def _in_runtime(request: Request) -> str:
    return "" if request.runtime is None else f" --runtime {request.runtime}"
