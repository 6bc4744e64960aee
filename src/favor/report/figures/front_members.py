"""The members of the benchmark's four fronts: by the reader's numbers if there are enough, otherwise by Table 7."""

from dataclasses import dataclass

import pandas as pd

from favor.analyze import pareto
from favor.analyze.guide import Constraint, Phase
from favor.analyze.trainings import unequal_lengths
from favor.records.published import pareto_optimal
from favor.report.class_style import CLASS_STYLES, UNKNOWN_CLASS, class_style
from favor.report.figures.axes import quantity
from favor.report.figures.evidence import Evidence
from favor.report.figures.fronts import TRAINING_MEMORIES, TRAINING_TIMES, first_known

CLASS_ORDER = (*CLASS_STYLES, UNKNOWN_CLASS.key)
LEAST_FOR_A_FRONT = 5  # with fewer models than this nearly everyone is on the front

_COSTS: dict[tuple[Constraint, Phase], tuple[str, ...]] = {
    ("speed", "inference"): ("throughput",),
    ("speed", "training"): TRAINING_TIMES,
    ("memory", "inference"): ("inference_memory",),
    ("memory", "training"): TRAINING_MEMORIES,
}


@dataclass(frozen=True)
class Member:
    """A model, or a family of the paper's, on a front; an image size other than the usual stands behind an @."""

    how: str
    name: str
    family: str


@dataclass(frozen=True)
class FrontMembers:
    """A front: its constraint and phase, its members, and the metric, which is None where the paper is the source."""

    constraint: Constraint
    phase: Phase
    metric: str | None
    models: int
    members: tuple[Member, ...]


def front_members(evidence: Evidence) -> tuple[FrontMembers, ...]:
    """The four fronts, each from the records where five models or more have its metric and an accuracy."""
    return tuple(
        _own(evidence, constraint, phase, costs) or _published(constraint, phase)
        for (constraint, phase), costs in _COSTS.items()
    )


def both_fronts(evidence: Evidence) -> tuple[FrontMembers, ...]:
    """The paper's four fronts, and those of the records that five models or more have the numbers for."""
    own = (_own(evidence, constraint, phase, costs) for (constraint, phase), costs in _COSTS.items())
    return (*(_published(constraint, phase) for constraint, phase in _COSTS), *(front for front in own if front))


def sources_of(fronts: tuple[FrontMembers, ...]) -> str:
    """Which fronts are the reader's and which are the paper's, in one sentence."""
    own = [
        f"{front.constraint} at {front.phase} ({quantity(front.metric).title.lower()} of {front.models} models)"
        for front in fronts
        if front.metric is not None
    ]
    paper = [f"{front.constraint} at {front.phase}" for front in fronts if front.metric is None]
    parts = [f"from the records: {', '.join(own)}"] if own else []
    parts += [f"published in the paper's Table 7: {', '.join(paper)}"] if paper else []
    return f"Sources: {'; '.join(parts)}."


def why_none_is_yours(evidence: Evidence) -> str:
    """Why the reader's accuracies make no front, with a space before it; empty where they can be compared."""
    unequal = unequal_lengths(evidence.rows(["top1"]))
    return f" Your accuracies cannot be compared: {unequal}." if unequal else ""


def _own(evidence: Evidence, constraint: Constraint, phase: Phase, costs: tuple[str, ...]) -> FrontMembers | None:
    cost = first_known(evidence, costs, "top1")
    rows = evidence.rows([cost, "top1"])
    rows = rows[~rows["name"].isin(list(evidence.flags))]
    if rows["name"].nunique() < LEAST_FOR_A_FRONT or unequal_lengths(rows):
        return None
    front = pareto(rows, [cost, "top1"], draws=0).front
    members = tuple(_member(rows.iloc[point.row], point.name, point.img_size, evidence.base_size) for point in front)
    return FrontMembers(constraint, phase, cost, int(rows["name"].nunique()), _by_class(members))


def _member(row: pd.Series, name: str, img_size: int | None, base_size: int | None) -> Member:
    """A model on a front; one's own may have no class, and a network of timm no family but itself."""
    shown = name if img_size in (None, base_size) else f"{name}@{img_size}"
    family = row["family"] if isinstance(row["family"], str) else name
    return Member(class_style(row["how"]).key, shown, family)


def _by_class(members: tuple[Member, ...]) -> tuple[Member, ...]:
    return tuple(sorted(members, key=lambda member: CLASS_ORDER.index(member.how)))


def _published(constraint: Constraint, phase: Phase) -> FrontMembers:
    members = tuple(
        Member(entry.how, entry.title, entry.family)
        for entry in pareto_optimal()
        if (entry.constraint, entry.phase) == (constraint, phase)
    )
    return FrontMembers(constraint, phase, None, 0, members)
