"""Who is compared and by what: the candidates of a request, and the number (or published front) that orders them."""

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Literal

import pandas as pd

from favor.analyze.assemble import AccuracyBasis, assemble, comparable
from favor.analyze.guide import Constraint, GuideEntry, Phase
from favor.analyze.intervals import with_accuracy_intervals
from favor.analyze.limits import Limit
from favor.analyze.selection import fitting
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

LEAST_TO_COMPARE = 2  # one model with a number is no comparison


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


def candidates(table: pd.DataFrame, request: Request, basis: AccuracyBasis | None) -> pd.DataFrame:
    """One row per model and image size with an accuracy; a model that nobody has trained cannot be favored."""
    rows = assemble(table, dataset=request.dataset, basis=basis, device=request.device)
    rows = fitting(rows[rows["top1"].notna()], request.among)
    return with_accuracy_intervals(rows.reset_index(drop=True), request.dataset)


@dataclass(frozen=True)
class Ranking:
    """Candidates and what orders them: their numbers of `objective`, or a published front where there are none.

    The rows hold the objective in one setting only; `notes` say who is left out and why.
    """

    rows: pd.DataFrame
    objective: str
    ranked_by: Literal["numbers", "published front"]
    notes: tuple[str, ...]


def rank(rows: pd.DataFrame, request: Request, published_fronts: Sequence[GuideEntry]) -> Ranking:
    """What the candidates can be ordered by: the preferred cost, else its published front, else the accuracy."""
    if request.prefer is None:
        return Ranking(rows, "top1", "numbers", ())
    by_numbers = _by_numbers(rows, PREFERENCES[request.prefer])
    if by_numbers is not None:
        return by_numbers
    asked = PREFERENCES[request.prefer][0]
    lack = f"no two models have a number for {asked}" + (f" on device {request.device}" if request.device else "")
    front = _PUBLISHED_FRONT.get(request.prefer)
    on_front = {
        (entry.family, entry.img_size) for entry in published_fronts if (entry.constraint, entry.phase) == front
    }
    members = rows[[key in on_front for key in zip(rows["family"], rows["img_size"], strict=True)]]
    if front is None or not len(members):
        return Ranking(rows, "top1", "numbers", (f"{lack}: the ranking is by accuracy instead",))
    told = (
        f"{lack}: the ranking is inferred from the benchmark's published Pareto front of accuracy and "
        f"{front[0]} at {front[1]} (Table 7), on which less accuracy means a better {request.prefer}"
    )
    return Ranking(members, asked, "published front", (told,))


def _by_numbers(rows: pd.DataFrame, metrics: Sequence[str]) -> Ranking | None:
    """The ranking by the metric that most rows have in one setting; None where no metric is known of two rows."""
    in_one_setting = {metric: comparable(rows, metric) for metric in metrics if metric in rows.columns}
    known = {metric: int(kept[metric].notna().sum()) for metric, (kept, _, _) in in_one_setting.items()}
    objective = max(known, key=lambda metric: known[metric], default=None)
    if objective is None or known[objective] < LEAST_TO_COMPARE:
        return None
    kept, setting, elsewhere = in_one_setting[objective]
    without = len(rows) - known[objective] - elsewhere
    notes = []
    if elsewhere:
        notes.append(f"not ranked: {elsewhere} of {len(rows)} models, whose {objective} is not from {setting}")
    if without:
        notes.append(f"not ranked: {without} of {len(rows)} models, which have no {objective}")
    return Ranking(kept[kept[objective].notna()], objective, "numbers", tuple(notes))
