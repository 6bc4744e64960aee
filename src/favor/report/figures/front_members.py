"""Who is on which of the benchmark's four fronts: by the reader's numbers where there are enough, else by Table 7."""

from dataclasses import dataclass
from typing import Literal

from favor.analyze import pareto_by_class
from favor.records.published import pareto_optimal
from favor.report.figures.evidence import Evidence
from favor.report.figures.fronts import TRAINING_TIMES, first_known

Constraint = Literal["speed", "memory"]
Phase = Literal["inference", "training"]

LEAST_FOR_A_FRONT = 5  # with fewer models than this nearly everyone is on the front

_COSTS: dict[tuple[Constraint, Phase], tuple[str, ...]] = {
    ("speed", "inference"): ("throughput",),
    ("speed", "training"): TRAINING_TIMES,
    ("memory", "inference"): ("inference_memory",),
    ("memory", "training"): ("train_memory",),
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


def sources_of(fronts: tuple[FrontMembers, ...]) -> str:
    """Which fronts are the reader's and which are the paper's, in one sentence."""
    own = [f"{f.constraint} at {f.phase} (of {f.models} models by {f.metric})" for f in fronts if f.metric is not None]
    paper = [f"{front.constraint} at {front.phase}" for front in fronts if front.metric is None]
    parts = [f"from the records: {', '.join(own)}"] if own else []
    parts += [f"published in the paper's Table 7: {', '.join(paper)}"] if paper else []
    return f"Sources: {'; '.join(parts)}."


def _own(evidence: Evidence, constraint: Constraint, phase: Phase, costs: tuple[str, ...]) -> FrontMembers | None:
    cost = first_known(evidence, costs, "top1")
    rows = evidence.rows([cost, "top1"])
    rows = rows[~rows["name"].isin(list(evidence.flags))]
    if rows["name"].nunique() < LEAST_FOR_A_FRONT:
        return None
    families = dict(zip(rows["name"], rows["family"], strict=True))
    found = pareto_by_class(rows, {"front": cost})
    members = tuple(
        Member(group.how, name, str(families[name.partition("@")[0]]))
        for group in found.classes
        for name in group.members.get("front", ())
    )
    return FrontMembers(constraint, phase, cost, int(rows["name"].nunique()), members)


def _published(constraint: Constraint, phase: Phase) -> FrontMembers:
    members = tuple(
        Member(entry.how, entry.title, entry.family)
        for entry in pareto_optimal()
        if (entry.constraint, entry.phase) == (constraint, phase)
    )
    return FrontMembers(constraint, phase, None, 0, members)
