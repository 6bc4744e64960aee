"""Who is compared and by what: the candidates of a request, and the number (or published front) that orders them."""

import shlex
from collections.abc import Sequence
from dataclasses import dataclass, replace
from typing import Literal

import pandas as pd

from favor.analyze.assemble import AccuracyBasis, assemble, comparable
from favor.analyze.guide import Constraint, GuideEntry, Phase
from favor.analyze.intervals import with_accuracy_intervals
from favor.analyze.limits import Limit
from favor.analyze.selection import fitting
from favor.analyze.settings import LEAST_TO_COMPARE, QUALITIES, RunSetting, left_out_machines, run_setting
from favor.errors import RequestError, unknown_name

# What can be preferred, and the metrics that stand for it: the one that most models have is taken.
PREFERENCES: dict[str, tuple[str, ...]] = {
    "throughput": ("throughput",),
    "latency": ("latency_p50",),
    "memory": ("inference_memory",),
    "params": ("params",),
    "energy": ("energy_per_image",),
    "training-time": ("finetune_time", "train_hours_per_epoch", "train_step_time", "train_throughput"),
}

# The published front that stands for a preference where no number does.
_PUBLISHED_FRONT: dict[str, tuple[Constraint, Phase]] = {
    "throughput": ("speed", "inference"),
    "latency": ("speed", "inference"),
    "memory": ("memory", "inference"),
    "training-time": ("speed", "training"),
}

PUBLISHED_DEVICE = "a100"  # on which the published fronts were measured


@dataclass(frozen=True)
class Request:
    """What the user asks for. `among` is a pattern for names or families, as "swin*"; `top` counts the favored one."""

    prefer: str | None = None
    limits: tuple[Limit, ...] = ()
    dataset: str = "imagenet-1k"
    device: str | None = None
    among: str | None = None
    any_pipeline: bool = False
    top: int = 5

    def __post_init__(self) -> None:
        if self.prefer is not None and self.prefer not in PREFERENCES:
            raise unknown_name("preference", self.prefer, PREFERENCES, f"one of {', '.join(PREFERENCES)}")
        if self.top < 1:
            raise RequestError(f"--top {self.top}: ask for at least one model, for example --top 5")

    def options(self) -> list[str]:
        """The words of the command line that ask for the same, the device and the number of models left out.

        >>> Request("memory", (Limit("min_accuracy", "top1", "min", 82.0),)).options()
        ['--prefer memory', '--min-accuracy 82']
        """
        words = [f"--prefer {self.prefer}"] if self.prefer else []
        words += [
            f"--{limit.option.replace('_', '-')} {limit.value:.12g}{_SUFFIX[limit.unit]}" for limit in self.limits
        ]
        words += [f"--dataset {self.dataset}"] if self.dataset != Request.dataset else []
        words += [f"--among {shlex.quote(self.among)}"] if self.among else []
        return words + (["--any-pipeline"] if self.any_pipeline else [])


_SUFFIX = {"%": "", "1": "", "B": "B", "s": "s"}
"""How the command line wants the units that limits are stored in."""


def candidates(
    table: pd.DataFrame, request: Request, basis: AccuracyBasis | None, setting: RunSetting | None = None
) -> pd.DataFrame:
    """One row per model and image size with an accuracy; a model that nobody has trained cannot be favored."""
    rows = assemble(table, dataset=request.dataset, basis=basis, device=request.device, setting=setting)
    rows = fitting(rows[rows["top1"].notna()], request.among)
    return with_accuracy_intervals(rows.reset_index(drop=True), request.dataset)


@dataclass(frozen=True)
class Ranking:
    """Candidates and what orders them: their numbers of `objective`, or a published front where there are none.

    The rows hold the objective and what the limits are about in one `setting` only; `notes` say who is left out and
    why. `undecided` says why nothing can order them, in which case the objective is only what was asked for.
    """

    rows: pd.DataFrame
    objective: str
    ranked_by: Literal["numbers", "published front"]
    setting: RunSetting | None
    notes: tuple[str, ...]
    undecided: str | None = None


def rank(
    table: pd.DataFrame, request: Request, basis: AccuracyBasis | None, published_fronts: Sequence[GuideEntry]
) -> Ranking:
    """What the candidates can be ordered by: the accuracy where nothing is preferred, else the cost or its front."""
    everyone = candidates(table, request, basis)
    if request.prefer is None:
        return _in_one_setting(table, request, basis, everyone, "top1")
    # Of several metrics that stand for a preference, the first is taken among those that equally many models have.
    rankings = [_in_one_setting(table, request, basis, everyone, metric) for metric in PREFERENCES[request.prefer]]
    best = max(rankings, key=lambda ranking: _known(ranking.rows, ranking.objective))
    known = _known(best.rows, best.objective)
    if known >= LEAST_TO_COMPARE:
        without = len(best.rows) - known
        told = [f"not ranked: {without} of {len(best.rows)} models, which have no {best.objective}"] if without else []
        ranked = best.rows[best.rows[best.objective].notna()]
        return replace(best, rows=ranked, notes=(*best.notes, *told))
    lack = f"{'only one model has' if known else 'no model has'} a number for {best.objective}" + (
        f" on {request.device} or a device like it" if request.device else ""
    )
    return _on_published_front(best, request, lack, published_fronts) or replace(
        best, undecided=f"{request.prefer} cannot be ranked: {lack}"
    )


def _in_one_setting(
    table: pd.DataFrame, request: Request, basis: AccuracyBasis | None, everyone: pd.DataFrame, objective: str
) -> Ranking:
    """All candidates, with the objective and the limits' numbers from one setting; numbers of others are counted."""
    involved = list(dict.fromkeys([objective, *(limit.metric for limit in request.limits)]))
    setting = run_setting(table[table["name"].isin(everyone["name"])], involved, request.device)
    rows = everyone if setting is None else candidates(table, request, basis, setting)
    notes = []
    for metric in involved:
        if request.any_pipeline and metric in QUALITIES:
            continue
        rows, kept, elsewhere = comparable(rows, metric, setting)
        if elsewhere:
            where = kept or (setting.text if setting else "one setting")
            notes.append(f"not ranked: {elsewhere} of {len(rows)} models, whose {metric} is not from {where}")
    machines = left_out_machines(table, setting)
    return Ranking(rows, objective, "numbers", setting, (*notes, *([machines] if machines else [])))


def _on_published_front(
    ranking: Ranking, request: Request, lack: str, published_fronts: Sequence[GuideEntry]
) -> Ranking | None:
    """The paper's advice in place of numbers, for its own device; None where it has none."""
    front = _PUBLISHED_FRONT.get(request.prefer or "")
    if front is None or request.device not in (None, PUBLISHED_DEVICE):
        return None
    on_front = {
        (entry.family, entry.img_size) for entry in published_fronts if (entry.constraint, entry.phase) == front
    }
    rows = ranking.rows
    members = rows[[key in on_front for key in zip(rows["family"], rows["img_size"], strict=True)]]
    if not len(members):
        return None
    told = (
        f"{lack}: the paper's advice stands in. It finds these families on its {PUBLISHED_DEVICE.upper()} front of "
        f"accuracy and {front[0]} at {front[1]} (Table 7, which names families and not sizes); among their models the "
        f"order is by accuracy and says nothing about {request.prefer}"
    )
    return replace(ranking, rows=members, objective="top1", ranked_by="published front", notes=(told, *ranking.notes))


def _known(rows: pd.DataFrame, metric: str) -> int:
    return int(rows[metric].notna().sum()) if metric in rows.columns else 0
