"""The papers' tables as data: every value as printed, with its paper, table and row.

Values of one model are records (`records()`, `published_table()`); the rest is typed data with its source.
Where the papers contradict themselves, both values are kept.
"""

from typing import TYPE_CHECKING

from favor.records.published.findings import (
    GUIDE_CLASSES,
    VRAM_FORMULA,
    advice,
    class_sizes,
    correlations,
    guide,
    mean_gain,
    original_accuracies,
    pareto_optimal,
    variability,
)
from favor.records.published.measurements import card_fields, records

if TYPE_CHECKING:
    import pandas as pd

__all__ = [
    "GUIDE_CLASSES",
    "VRAM_FORMULA",
    "advice",
    "card_fields",
    "class_sizes",
    "correlations",
    "guide",
    "mean_gain",
    "original_accuracies",
    "pareto_optimal",
    "published_table",
    "records",
    "variability",
]


def published_table() -> "pd.DataFrame":
    """The wide table of all published records."""
    # pandas takes half a second to import, and the records do not need it.
    from favor.records.table import table_of

    return table_of(records())
