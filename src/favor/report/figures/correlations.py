"""Correlations between costs, and between data sets (Tables 2 and 5)."""

import pandas as pd

from favor.analyze import correlate, correlate_datasets
from favor.errors import RequestError
from favor.records.published import correlations
from favor.report.figures.axes import INFERENCE_TIME
from favor.report.figures.commands import FULL, LAPTOP, to_fill
from favor.report.figures.evidence import Evidence
from favor.report.figures.figure import BENCHMARK, Figure
from favor.report.figures.fronts import TRAINING_TIMES, first_known
from favor.report.figures.heatmap import Cell, heatmap
from favor.report.figures.theme import one_plot

_LEAST = 5
_CELL_HEIGHT = 42
# The paper's order, with names short enough for a grid.
_COSTS = {
    "ops_mixed": "Operations",
    "params": "Parameters",
    "finetune_time": "Fine-tuning time",
    "train_memory": "Training memory",
    INFERENCE_TIME.name: "Inference time",
    "inference_memory": "Inference memory",
}


def published_costs() -> list[Cell]:
    """The lower triangle: what the paper's Table 2 prints."""
    order = list(_COSTS)
    found = [each for each in correlations() if each.between == "metrics" and each.place == "Table 2"]
    cells = []
    for each in found:
        column, row = sorted((each.x, each.y), key=order.index)
        cells.append(Cell(_COSTS[row], _COSTS[column], each.value, "Pearson, the paper"))
    return cells


def own_costs(evidence: Evidence) -> list[Cell]:
    """The upper triangle: the same of the records, as far as five points have both costs in one setting."""
    training_time = first_known(evidence, TRAINING_TIMES)
    stands_for = {name: training_time if name == "finetune_time" else name for name in _COSTS}
    cells = []
    names = list(_COSTS)
    for i, x in enumerate(names):
        for y in names[i + 1 :]:
            rows = evidence.rows([stands_for[x], stands_for[y]])
            if len(rows) < _LEAST:
                continue
            pair = correlate(rows, [stands_for[x], stands_for[y]]).pair(stands_for[x], stands_for[y])
            if pair.pearson is not None:
                cells.append(Cell(_COSTS[x], _COSTS[y], pair.pearson, f"Pearson, your records, {pair.n} points"))
    return cells


def cost_correlation_figure(evidence: Evidence) -> Figure:
    """Table 2: the paper's below the diagonal, the reader's own above."""
    own = own_costs(evidence)
    above = (
        f"above it, from the records ({len(own)} of 15 pairs have five or more points)"
        if own
        else f"above it, nothing yet, because no two costs are known for five models; run {FULL}"
    )
    caption = (
        f"Pearson's correlation between costs. Sources: below the diagonal, published in the paper's Table 2; {above}."
    )
    cells = sorted([*published_costs(), *own], key=lambda cell: list(_COSTS.values()).index(cell.column))
    chart = one_plot(heatmap(_in_order(cells)), height=_CELL_HEIGHT * len(_COSTS))
    return Figure("benchmark-cost-correlation", BENCHMARK, "Table 2", "Correlation between costs", caption, chart, None)


def _in_order(cells: list[Cell]) -> list[Cell]:
    """The cells such that rows and columns first occur in the paper's order."""
    order = list(_COSTS.values())
    return sorted(cells, key=lambda cell: max(order.index(cell.row), order.index(cell.column)))


def dataset_correlation_figure(table: pd.DataFrame) -> Figure:
    """Table 5, last rows: Pearson's correlation below the diagonal, Spearman's above, between data sets' accuracies."""
    identity = ("benchmark-data-set-correlation", BENCHMARK, "Table 5", "Correlation of accuracy between data sets")
    try:
        result = correlate_datasets(table)
    except RequestError:
        missing = to_fill("accuracies of the same models on two data sets", LAPTOP)
        return Figure(*identity, "Correlation between data sets.", None, missing)
    cells = []
    for pair in result.pairs:
        if pair.pearson is not None and pair.spearman is not None and pair.n >= _LEAST:
            cells.append(Cell(pair.y, pair.x, pair.pearson, f"Pearson, {pair.n} models"))
            cells.append(Cell(pair.x, pair.y, pair.spearman, f"Spearman, {pair.n} models"))
    sources = " and ".join(str(name) for name in table.loc[table["top1"].notna(), "source"].unique())
    caption = (
        "Pearson's correlation below the diagonal, Spearman's above, over models trained alike. "
        f"Sources: accuracies {sources}."
    )
    chart = one_plot(heatmap(cells), height=_CELL_HEIGHT * len({cell.row for cell in cells}))
    return Figure(*identity, caption, chart, None)
