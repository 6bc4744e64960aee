"""The flow chart of the benchmark: main constraint, then phase, then the models on that Pareto front.

Paper: Nauen et al., "Which Transformer to Favor", Figure 6 and Table 7.
"""

from collections.abc import Collection, Iterable, Sequence
from dataclasses import asdict, dataclass
from typing import Any, Literal, Protocol

import pandas as pd

from favor.zoo.taxonomy import How

Constraint = Literal["speed", "memory"]
Phase = Literal["inference", "training"]


@dataclass(frozen=True)
class GuideEntry:
    """A family on the published front of one constraint in one phase; `img_size` is the resolution it is there with."""

    constraint: Constraint
    phase: Phase
    how: str
    family: str
    title: str
    img_size: int


class FoundOnFront(Protocol):
    """The fields of a family in a table of fronts."""

    @property
    def constraint(self) -> Constraint: ...
    @property
    def phase(self) -> Phase: ...
    @property
    def how(self) -> str: ...
    @property
    def family(self) -> str: ...
    @property
    def title(self) -> str: ...
    @property
    def img_size(self) -> int: ...


def guide_entries(members: Iterable[FoundOnFront]) -> list[GuideEntry]:
    """The entries of a table of fronts, such as the published one."""
    return [
        GuideEntry(member.constraint, member.phase, member.how, member.family, member.title, member.img_size)
        for member in members
    ]


@dataclass(frozen=True)
class GuideModel:
    """A family of the chart with its class and the models of it whose accuracy is known, the most accurate first.

    `flagged` are those of the models whose accuracy belongs to another configuration than ours.
    """

    title: str
    family: str
    how: str
    img_size: int
    models: tuple[str, ...]
    flagged: tuple[str, ...]


@dataclass(frozen=True)
class GuideBranch:
    """One way through the chart and where it leads."""

    constraint: Constraint
    phase: Phase
    suggestions: tuple[GuideModel, ...]


@dataclass(frozen=True)
class Guide:
    """The whole chart."""

    branches: tuple[GuideBranch, ...]

    def to_dict(self) -> dict[str, Any]:
        """Plain content for JSON."""
        return asdict(self)


def guide(entries: Sequence[GuideEntry], assembled: pd.DataFrame, flags: Collection[str] = ()) -> Guide:
    """The chart from its published families and the accuracies that are known; `flags` names models to mark."""
    titles = {how.key: how.title for how in How}
    branches = []
    for constraint, phase in dict.fromkeys((entry.constraint, entry.phase) for entry in entries):
        suggestions = tuple(
            GuideModel(
                title=entry.title,
                family=entry.family,
                how=titles[entry.how],
                img_size=entry.img_size,
                models=(models := _models_of(assembled, entry.family)),
                flagged=tuple(name for name in models if name in flags),
            )
            for entry in entries
            if (entry.constraint, entry.phase) == (constraint, phase)
        )
        branches.append(GuideBranch(constraint, phase, suggestions))
    return Guide(tuple(branches))


def _models_of(assembled: pd.DataFrame, family: str) -> tuple[str, ...]:
    rows = assembled[(assembled["family"] == family) & assembled["top1"].notna()]
    return tuple(rows.sort_values("top1", ascending=False)["name"].drop_duplicates())
