"""Which classes of the taxonomy are on which Pareto front.

Paper: Nauen et al., "Which Transformer to Favor", appendix D.10, Table 7.
"""

from collections.abc import Mapping
from dataclasses import asdict, dataclass
from typing import Any

import pandas as pd

from favor.analyze.pareto import pareto
from favor.analyze.selection import Excluded, require_columns
from favor.zoo.taxonomy import How

# Constraint and phase as the paper's table has them, and the metric that stands for each beside the accuracy.
TABLE_7_FRONTS = {
    "speed, inference": "throughput",
    "speed, training": "finetune_time",
    "memory, inference": "inference_memory",
    "memory, training": "train_memory",
}


@dataclass(frozen=True)
class ClassOnFronts:
    """A class, how many families of it were compared, and its members on every front (name, or name@img_size)."""

    how: str
    title: str
    families: int
    members: dict[str, tuple[str, ...]]


@dataclass(frozen=True)
class ParetoByClass:
    """The classes in the taxonomy's order; a front whose metric the table does not have is in `missing`."""

    fronts: dict[str, str]
    classes: tuple[ClassOnFronts, ...]
    missing: tuple[str, ...]
    excluded: dict[str, Excluded]

    def to_dict(self) -> dict[str, Any]:
        """Plain content for JSON."""
        return asdict(self)


def pareto_by_class(
    table: pd.DataFrame, fronts: Mapping[str, str] = TABLE_7_FRONTS, *, quality: str = "top1", strict: bool = False
) -> ParetoByClass:
    """Members of every front (a cost metric against quality), grouped by the class in the column `how`."""
    require_columns(table, ["name", "family", "how", quality], "a front by class")
    members: dict[str, dict[str, list[str]]] = {}
    excluded, missing = {}, []
    for label, cost in fronts.items():
        if cost not in table.columns:
            missing.append(label)
            continue
        front = pareto(table, [cost, quality], strict=strict, draws=1)
        excluded[label] = front.excluded
        for point in front.front:
            how = str(table["how"].iloc[point.row])
            shown = point.name if point.img_size in (None, 224) else f"{point.name}@{point.img_size}"
            members.setdefault(how, {}).setdefault(label, []).append(shown)
    families = table.dropna(subset=["how"]).groupby("how")["family"].nunique()
    classes = tuple(
        ClassOnFronts(
            how=how.key,
            title=how.title,
            families=int(families.get(how.key, 0)),
            members={label: tuple(names) for label, names in members.get(how.key, {}).items()},
        )
        for how in How
    )
    return ParetoByClass(dict(fronts), classes, tuple(missing), excluded)
